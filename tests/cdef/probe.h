// probe.h
enum {
    PROBE_RET_KILL_PROCESS,
    PROBE_RET_KILL_THREAD,
    PROBE_RET_TRAP,
    PROBE_RET_ERRNO,
    PROBE_RET_USER_NOTIF,
    PROBE_RET_TRACE,
    PROBE_RET_LOG,
    PROBE_RET_ALLOW,
    ...
};
struct probe {
    int32_t landlock_abi;
    int32_t landlock_errno;
    uint32_t landlock_errata;
    uint32_t seccomp_actions;
    uint8_t seccomp_filter;
    uint8_t pidfd_open;
    uint8_t close_range;
    uint8_t userns;
    int32_t userns_errno;
    uint8_t pidfd_info_exit;
    char release[65];
};
int probe_host(struct probe *out);
