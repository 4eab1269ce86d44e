/* What this host offers, found out once.
 *
 * Each fact comes from the query that the kernel documents for it, never from a version number:
 * distributions backport, and containers and filters take away what the kernel has. Only user
 * namespaces must be tried, because half a dozen settings forbid them in different ways (among them
 * AppArmor, which lets the namespace be made and then denies every capability in it). That happens
 * in a child that shares the memory for a moment and ends; the caller is left as it was: no signal
 * reaches it, no thread's wait(-1) meets the child, no fd stays open. */
#ifndef SANDCORE_PROBE_H
#define SANDCORE_PROBE_H

#include <stdint.h>

/* Bits of seccomp_actions: what a filter may answer here. */
enum {
    PROBE_RET_KILL_PROCESS = 1u << 0,
    PROBE_RET_KILL_THREAD = 1u << 1,
    PROBE_RET_TRAP = 1u << 2,
    PROBE_RET_ERRNO = 1u << 3,
    PROBE_RET_USER_NOTIF = 1u << 4,
    PROBE_RET_TRACE = 1u << 5,
    PROBE_RET_LOG = 1u << 6,
    PROBE_RET_ALLOW = 1u << 7,
};

/* Errnos are positive here, and 0 where there was none. */
struct probe {
    int32_t landlock_abi;   /* 0: none, landlock_errno says why */
    int32_t landlock_errno; /* ENOSYS: not built in, or filtered; EOPNOTSUPP: not enabled at boot */
    uint32_t landlock_errata; /* bit n-1: erratum n is fixed; 0 where the kernel cannot say */
    uint32_t seccomp_actions; /* PROBE_RET_* */
    uint8_t seccomp_filter;   /* filters can be installed */
    uint8_t pidfd_open;
    uint8_t close_range;
    uint8_t userns;          /* one could be made, and its capabilities worked in it */
    int32_t userns_errno;    /* why not */
    uint8_t pidfd_info_exit; /* a pidfd tells the exit status of a reaped process (Linux 6.15) */
    char release[65];        /* as uname -r */
};

/* Fills out. Returns 0, or -errno when not even the release can be had. Makes one child; needs no
 * privilege; safe in a process with threads. */
int probe_host(struct probe *out);

#endif
