// syscalls.h
#define SYSCALLS_HIGHEST ...
enum syscall_action { SYSCALL_ALLOW, SYSCALL_DENY, SYSCALL_ABSENT, SYSCALL_RULE, SYSCALL_ASK, ... };
enum syscall_rule { RULE_NONE, RULE_COUNT, ... };
struct syscall_row {
    const char *name;
    int16_t x86_64;
    int16_t aarch64;
    uint8_t action;
    uint8_t rule;
    const char *reason;
};
const struct syscall_row *syscalls_table(size_t *count);
int32_t syscalls_number(const struct syscall_row *row, uint32_t arch);
const char *syscalls_rule_text(uint32_t rule);
