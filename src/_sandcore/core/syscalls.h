/* The reviewed system calls: one row each, and what the filter does with it and why.
 *
 * The table is the truth: the filter is compiled from it and `sandbox debug seccomp` prints it.
 * What is not in it is answered ENOSYS, as by a kernel that never had it, so that a call which a
 * newer kernel brings stays closed until someone has read what it does. */
#ifndef SANDCORE_SYSCALLS_H
#define SANDCORE_SYSCALLS_H

#include <stddef.h>
#include <stdint.h>

/* The highest number that was reviewed: what Linux 6.18 has. From 424 on both architectures count
 * alike. Known above it and closed by this line: 470 listns (6.19), 471 rseq_slice_yield (7.0). */
#define SYSCALLS_HIGHEST 469

enum syscall_action {
    SYSCALL_ALLOW = 0,
    SYSCALL_DENY = 1,   /* EPERM: exists, and is refused */
    SYSCALL_ABSENT = 2, /* ENOSYS: programs fall back as on a kernel without it */
    SYSCALL_RULE = 3,   /* decided by the rule from the arguments or the options */
    SYSCALL_ASK = 4,    /* a supervisor makes the call in the command's place, or refuses it */
};

enum syscall_rule {
    RULE_NONE = 0,
    RULE_CLONE,
    RULE_SOCKET,
    RULE_SOCKETPAIR,
    RULE_CONNECT,
    RULE_SENDTO,
    RULE_SENDMSG,
    RULE_SENDMMSG,
    RULE_IOCTL,
    RULE_FCNTL,
    RULE_PRCTL,
    RULE_PERSONALITY,
    RULE_SELF,
    RULE_PRIORITY,
    RULE_IOPRIO,
    RULE_SECCOMP,
    RULE_PTRACE,
    RULE_IPC,
    RULE_COUNT,
};

struct syscall_row {
    const char *name;
    int16_t x86_64;     /* -1: this architecture does not have it */
    int16_t aarch64;    /* likewise */
    uint8_t action;     /* enum syscall_action */
    uint8_t rule;       /* enum syscall_rule; RULE_NONE unless action is SYSCALL_RULE */
    const char *reason; /* "" where it is allowed */
};

/* All rows, in no order that matters; valid for ever. */
const struct syscall_row *syscalls_table(size_t *count);

/* The row's number on an architecture (AUDIT_ARCH_*), -1 if it has none there or it is unknown. */
int32_t syscalls_number(const struct syscall_row *row, uint32_t arch);

/* What a rule looks at, in words; NULL for no such rule. */
const char *syscalls_rule_text(uint32_t rule);

#endif
