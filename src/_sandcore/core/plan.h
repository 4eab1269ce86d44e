/* A plan: all that one spawn needs, complete before the clone.
 *
 * Whoever spawns (the caller's own process, or a lane of the helper) fills it in; the child only
 * reads it, and writes the report. Every pointer stays valid until the child has exec'ed or ended:
 * the child shares its parent's memory. */
#ifndef SANDCORE_PLAN_H
#define SANDCORE_PLAN_H

#include "stage.h"

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

#define PLAN_MAX_FDS 16

enum plan_flags {
    PLAN_NEW_SESSION = 1u << 0, /* setsid: no controlling terminal, a process group of its own */
    PLAN_DIE_WITH_PARENT = 1u << 1, /* SIGKILL when the parent *thread* ends */
    PLAN_RESET_HANDLERS = 1u << 2,  /* the parent may have handlers or ignored signals */
    PLAN_SHARES_FDS = 1u << 3,      /* cloned with CLONE_FILES: unshare before touching the table */
    PLAN_DROP_CAPABILITIES = 1u << 4,
    PLAN_NO_NEW_PRIVS = 1u << 5,
    PLAN_TERMINAL = 1u << 6,  /* fd 0 becomes the controlling terminal of its new session */
    PLAN_KEEP_MASK = 1u << 7, /* signals that are blocked stay so: there was no clone */
};

struct plan_limit {
    uint32_t resource; /* RLIMIT_* */
    uint32_t reserved;
    uint64_t soft, hard;
};

struct plan_filter {
    const struct sock_filter *code;
    uint32_t count; /* 0: none */
};

struct plan {
    const char *const *programs; /* candidates for execve in the order of PATH, NULL-terminated */
    char *const *argv;           /* NULL-terminated */
    char *const *envp;           /* NULL-terminated */
    const char *cwd;             /* absolute path; NULL: as it is */
    const struct plan_limit *limits;
    uint32_t limit_count;
    uint32_t flags;            /* enum plan_flags */
    int32_t fds[PLAN_MAX_FDS]; /* fds[i] becomes targets[i] in the command; all others are closed */
    const int32_t *targets;    /* 0, 1, 2, and then ascending, no ruleset with it; NULL: i itself */
    uint32_t fd_count;         /* 3 to PLAN_MAX_FDS */
    int32_t parent;            /* pid that getppid must give; for PLAN_DIE_WITH_PARENT */
    int32_t umask;             /* -1: as it is */
    int32_t group;             /* without a new session: group to join; 0: as is; -1: its own */
    int32_t ruleset;           /* Landlock ruleset, fd_count or more; -1: none to take */
    /* 0 there: who cloned is dead, and nothing may run; NULL: unasked. */
    const volatile int32_t *spawner;
    int32_t unborn; /* not 0: zero when it has exec'ed or ended, and who waits on it is woken */
    struct plan_filter filter, extra_filter;
    struct stage_report report; /* written by the child */
};

/* The child: runs the stages in order and does not come back unless one failed, which the report
 * then names. The argument is a struct plan. */
int child_main(void *plan);

/* Two stages that the helper's processes take for themselves. Zero or a negative errno. */
int child_drop_capabilities(void);
int child_install_filter(const struct plan_filter *filter);

#endif
