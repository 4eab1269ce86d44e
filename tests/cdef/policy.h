/* core/policy.h, and of core/plan.h what it and its neighbours need */
#define POLICY_MAX_BYTES ...
#define POLICY_MAX_RULES ...
#define POLICY_MAX_MOUNTS ...
#define PLAN_MAX_FDS 16
enum policy_flags { POLICY_CONFINED, POLICY_LANDLOCK, POLICY_FILTER, POLICY_NAMESPACES, ... };
enum policy_rule_flags { POLICY_RULE_OPTIONAL, ... };
enum plan_flags { PLAN_NEW_SESSION, PLAN_DIE_WITH_PARENT, ... };
struct stage_report {
    int32_t stage;
    int32_t error;
    int32_t detail;
};
struct plan_limit {
    uint32_t resource;
    uint32_t reserved;
    uint64_t soft, hard;
};
struct plan_filter {
    const struct sock_filter *code;
    uint32_t count;
};
struct plan {
    const char *const *programs;
    char *const *argv;
    char *const *envp;
    const char *cwd;
    const struct plan_limit *limits;
    uint32_t limit_count;
    uint32_t flags;
    int32_t fds[PLAN_MAX_FDS];
    const int32_t *targets;
    uint32_t fd_count;
    int32_t parent;
    int32_t umask;
    int32_t group;
    int32_t ruleset;
    const volatile int32_t *spawner;
    int32_t unborn;
    struct plan_filter filter, extra_filter;
    struct stage_report report;
};
struct policy_rule {
    uint32_t path;
    uint16_t access;
    uint16_t flags;
};
struct policy_mount {
    uint32_t path;
    uint8_t kind;
    uint8_t flags;
    uint8_t access;
    uint8_t reserved;
    uint64_t size;
};
struct policy_header {
    char magic[4];
    uint32_t version;
    uint32_t size;
    uint32_t arch;
    uint32_t abi;
    uint32_t flags;
    uint32_t handle;
    uint32_t rule_count;
    uint32_t filter_count;
    uint32_t extra_filter_count;
    uint32_t string_bytes;
    uint32_t network;
    uint32_t filter_flags;
    uint32_t mount_count;
};
struct policy_view {
    const struct policy_header *header;
    const struct policy_rule *rules;
    const struct policy_mount *mounts;
    struct plan_filter filter, extra_filter;
    const char *strings;
};
struct policy_parts {
    uint32_t arch, abi, flags, handle;
    uint32_t network, filter_flags;
    struct policy_rule *rules;
    struct policy_mount *mounts;
    const char *const *paths;
    uint32_t rule_count, mount_count;
    struct plan_filter filter, extra_filter;
};
int64_t policy_size(const struct policy_parts *parts);
int policy_write(const struct policy_parts *parts, uint8_t *out, size_t size);
int policy_open(const void *blob, size_t size, struct policy_view *view);
int policy_ruleset(const struct policy_view *view, int *failed);
