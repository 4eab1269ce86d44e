// landlock.h
#define LANDLOCK_ABI_KNOWN 10
#define LANDLOCK_FLAG_LOG_SAME_EXEC_OFF ...
#define LANDLOCK_FLAG_LOG_NEW_EXEC_ON ...
#define LANDLOCK_FLAG_LOG_SUBDOMAINS_OFF ...
#define LANDLOCK_FLAG_TSYNC ...
enum landlock_class { LANDLOCK_CLASS_READ, LANDLOCK_CLASS_WRITE, LANDLOCK_CLASS_DEVICE,
                      LANDLOCK_CLASS_NAMES, ... };
enum {
    LANDLOCK_HANDLE_READ,
    LANDLOCK_HANDLE_NAMES,
    LANDLOCK_HANDLE_WRITE,
    LANDLOCK_HANDLE_TCP,
    LANDLOCK_HANDLE_SCOPES,
    LANDLOCK_HANDLE_UNIX,
    LANDLOCK_HANDLE_UDP,
    LANDLOCK_HANDLE_REFER,
    LANDLOCK_HANDLE_MOUNTED,
    ...
};
struct landlock_rights {
    uint64_t fs, net, scoped;
};
int landlock_handled(int abi, uint32_t handle, struct landlock_rights *out);
uint64_t landlock_granted(int abi, enum landlock_class cls, int is_dir, uint32_t handle);
uint32_t landlock_restrict_flags(int abi);
int landlock_create(const struct landlock_rights *handled);
int landlock_add_path(int ruleset, int parent_fd, uint64_t access);
int landlock_restrict(int ruleset, uint32_t flags);
const char *landlock_right_name(uint64_t bit);
const char *landlock_net_name(uint64_t bit);
const char *landlock_scope_name(uint64_t bit);
