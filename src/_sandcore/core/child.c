/* What runs between clone and exec.
 *
 * The contract of this file. The child shares its parent's memory (CLONE_VM) while the parent's
 * thread is suspended (CLONE_VFORK) and its other threads run on. It therefore
 *   - makes system calls and nothing else: no allocation, no locks, no C library, no errno;
 *   - writes to no memory but its own stack and plan->report;
 *   - never returns into its parent's frames: it has a stack of its own (sys_clone);
 *   - starts with all signals blocked and unblocks them only when no handler is left, because a
 *     handler of the parent's would run in the parent's memory;
 *   - prints nothing, ever: stdout and stderr belong to the command.
 * A failing stage leaves {stage, errno} in the report and the child ends with status 127, which
 * nobody shows: the parent reads the report and reaps it before it returns.
 * tests/test_layers.py holds the object file to that: it may refer to nothing outside a short list. */
#define _GNU_SOURCE
#include "landlock.h"
#include "plan.h"
#include "sys.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <signal.h>
#include <time.h>

#define CHILD SYS_UNINSTRUMENTED

enum { KERNEL_SIGNALS = 64, KERNEL_SIGKILL = 9, KERNEL_SIGSTOP = 19 };

/* For who cannot sleep until exec (CLONE_VFORK) because others may stop this process before. */
CHILD static int stage_birth(const struct plan *plan)
{
    if (plan->unborn) {
        SYS_1(SYS_set_tid_address, &plan->unborn);
    }
    return 0;
}

/* Handlers first, the mask after: a handler of the parent's must never run here. Exec would drop
 * handlers by itself, but not ignored signals (without SIGPIPE `yes | head` never ends) nor the
 * mask (without SIGTERM a command cannot be asked to stop). */
CHILD static int stage_signals(const struct plan *plan)
{
    struct kernel_sigaction standard = {0};
    int last = plan->flags & PLAN_RESET_HANDLERS ? KERNEL_SIGNALS : 0;
    for (int number = 1; number <= last; number++) {
        if (number == KERNEL_SIGKILL || number == KERNEL_SIGSTOP) {
            continue;
        }
        long error = SYS_4(SYS_rt_sigaction, number, &standard, 0, KERNEL_SIGSET_BYTES);
        if (error < 0) {
            return (int)error;
        }
    }
    if (plan->flags & PLAN_KEEP_MASK) {
        return 0;
    }
    uint64_t none = 0;
    return (int)SYS_4(SYS_rt_sigprocmask, SIG_SETMASK, &none, 0, KERNEL_SIGSET_BYTES);
}

CHILD static int stage_session(const struct plan *plan)
{
    if (plan->flags & PLAN_NEW_SESSION) {
        long session = SYS_0(SYS_setsid);
        return session < 0 ? (int)session : 0;
    }
    /* A terminal's job must be in the terminal's foreground group to hear its Ctrl-C. */
    return plan->group ? (int)SYS_2(SYS_setpgid, 0, plan->group > 0 ? plan->group : 0) : 0;
}

/* The parent may have ended between clone and prctl: then the signal never comes. Comparing with 1
 * would be wrong under a subreaper. */
CHILD static int stage_parent_death(const struct plan *plan)
{
    if (!(plan->flags & PLAN_DIE_WITH_PARENT)) {
        return 0;
    }
    long error = SYS_5(SYS_prctl, PR_SET_PDEATHSIG, KERNEL_SIGKILL, 0, 0, 0);
    if (error < 0) {
        return (int)error;
    }
    return SYS_0(SYS_getppid) == plan->parent ? 0 : -ESRCH;
}

CHILD static int32_t target_of(const struct plan *plan, uint32_t i)
{
    return plan->targets ? plan->targets[i] : (int32_t)i;
}

/* With a shared table, everything above the highest fd that is needed is left behind *before*
 * anything is changed: close_range copies only what lies below, so a caller with 20,000 open files
 * costs nothing, and the caller's own table is never touched. */
CHILD static int stage_unshare_fds(const struct plan *plan)
{
    if (!(plan->flags & PLAN_SHARES_FDS)) {
        return 0;
    }
    int32_t highest = (int32_t)plan->fd_count - 1;
    for (uint32_t i = 0; i < plan->fd_count; i++) {
        highest = plan->fds[i] > highest ? plan->fds[i] : highest;
    }
    highest = plan->ruleset > highest ? plan->ruleset : highest;
    return (int)SYS_3(SYS_close_range, (unsigned)highest + 1, ~0u, CLOSE_RANGE_UNSHARE);
}

/* Sources that lie in the target range are moved out of it first, or a later dup3 overwrites them. */
CHILD static int stage_streams(struct plan *plan)
{
    int32_t moved[PLAN_MAX_FDS];
    int32_t behind = target_of(plan, plan->fd_count - 1) + 1;
    for (uint32_t i = 0; i < plan->fd_count; i++) {
        moved[i] = plan->fds[i];
        if (moved[i] < behind) {
            moved[i] = (int32_t)SYS_3(SYS_fcntl, moved[i], F_DUPFD_CLOEXEC, behind);
        }
        if (moved[i] < 0) {
            plan->report.detail = (int32_t)i;
            return moved[i];
        }
    }
    for (uint32_t i = 0; i < plan->fd_count; i++) {
        long fd = SYS_3(SYS_dup3, moved[i], target_of(plan, i), 0);
        if (fd < 0) {
            plan->report.detail = (int32_t)i;
            return (int)fd;
        }
    }
    return 0;
}

/* Only the leader of a session that has none yet may take a terminal, and only one that nobody has:
 * so nobody's is stolen. The fd may be one that Landlock would not let this process open. */
CHILD static int stage_terminal(const struct plan *plan)
{
    return plan->flags & PLAN_TERMINAL ? (int)SYS_3(SYS_ioctl, 0, TIOCSCTTY, 0) : 0;
}

/* The ruleset is needed four stages later: it is marked close-on-exec and jumped over. */
CHILD static int stage_close(const struct plan *plan)
{
    unsigned first = 0;
    for (uint32_t i = 0; i < plan->fd_count; i++) {
        unsigned target = (unsigned)target_of(plan, i);
        if (target > first) {
            long error = SYS_3(SYS_close_range, first, target - 1, 0);
            if (error < 0) {
                return (int)error;
            }
        }
        first = target + 1;
    }
    if (plan->ruleset >= 0) {
        unsigned ruleset = (unsigned)plan->ruleset;
        long error = SYS_3(SYS_fcntl, ruleset, F_SETFD, FD_CLOEXEC);
        if (error >= 0 && ruleset > first) {
            error = SYS_3(SYS_close_range, first, ruleset - 1, 0);
        }
        if (error < 0) {
            return (int)error;
        }
        first = ruleset + 1;
    }
    return (int)SYS_3(SYS_close_range, first, ~0u, 0);
}

CHILD static int stage_cwd(const struct plan *plan)
{
    return plan->cwd ? (int)SYS_1(SYS_chdir, plan->cwd) : 0;
}

CHILD static int stage_limits(struct plan *plan)
{
    for (uint32_t i = 0; i < plan->limit_count; i++) {
        const struct plan_limit *limit = &plan->limits[i];
        uint64_t pair[2] = {limit->soft, limit->hard};
        long error = SYS_4(SYS_prlimit64, 0, limit->resource, pair, 0);
        if (error < 0) {
            plan->report.detail = (int32_t)limit->resource;
            return (int)error;
        }
    }
    return 0;
}

CHILD static int stage_umask(const struct plan *plan)
{
    if (plan->umask >= 0) {
        SYS_1(SYS_umask, plan->umask);
    }
    return 0;
}

/* Uid 0 without capabilities is what an ordinary user is, but for the files it owns. The bounding
 * set first (it needs CAP_SETPCAP), or exec as uid 0 gives everything back. */
CHILD int child_drop_capabilities(void)
{
    long error = 0; /* EINVAL behind the last; EPERM for an ordinary user, who has none to lose */
    for (int capability = 0; error == 0; capability++) {
        error = SYS_5(SYS_prctl, PR_CAPBSET_DROP, capability, 0, 0, 0);
    }
    if (error != -EINVAL && error != -EPERM) {
        return (int)error;
    }
    error = SYS_5(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
    if (error == 0) {
        error = SYS_2(SYS_capset, &header, none);
    }
    return (int)error;
}

CHILD static int stage_capabilities(const struct plan *plan)
{
    return plan->flags & PLAN_DROP_CAPABILITIES ? child_drop_capabilities() : 0;
}

CHILD static int stage_no_new_privs(const struct plan *plan)
{
    if (!(plan->flags & PLAN_NO_NEW_PRIVS)) {
        return 0;
    }
    return (int)SYS_5(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

CHILD static int stage_landlock(const struct plan *plan)
{
    return plan->ruleset >= 0 ? landlock_restrict(plan->ruleset, 0) : 0;
}

CHILD int child_install_filter(const struct plan_filter *filter)
{
    if (filter->count == 0) {
        return 0;
    }
    if (filter->count > BPF_MAXINSNS) {
        return -EINVAL;
    }
    struct sock_fprog program = {.len = (unsigned short)filter->count,
                                 .filter = (struct sock_filter *)(uintptr_t)filter->code};
    return (int)SYS_3(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

/* Ours first: a filter of the caller's may refuse seccomp(2) itself. All filters are asked at every
 * call and the strictest answer counts, so the order changes nothing else. */
CHILD static int stage_filter(const struct plan *plan)
{
    int error = child_install_filter(&plan->filter);
    return error ? error : child_install_filter(&plan->extra_filter);
}

/* A program that some other process still holds open for writing gives ETXTBSY for as long as an
 * unlucky fork elsewhere keeps the descriptor: wait for it, but not for ever. */
CHILD static long exec_patiently(const char *program, const struct plan *plan)
{
    struct timespec pause = {.tv_nsec = 1000000};
    for (int attempt = 0;; attempt++) {
        if (plan->spawner && *plan->spawner == 0) {
            return -ESRCH;
        }
        long error = SYS_3(SYS_execve, program, plan->argv, plan->envp);
        if (error != -ETXTBSY || attempt == 50) {
            return error;
        }
        SYS_2(SYS_nanosleep, &pause, 0);
    }
}

/* As a shell looks along PATH: what is not there is passed over, and "permission denied" counts
 * only when nothing better follows. */
CHILD static int stage_exec(struct plan *plan)
{
    long verdict = -ENOENT;
    for (int32_t i = 0; plan->programs[i]; i++) {
        long error = exec_patiently(plan->programs[i], plan);
        if (error == -ENOENT || error == -ENOTDIR) {
            continue;
        }
        verdict = error;
        plan->report.detail = i;
        if (error != -EACCES) {
            break;
        }
    }
    return (int)verdict;
}

#define RUN(number, call)                                                                          \
    do {                                                                                           \
        int error_ = (call);                                                                       \
        if (error_ != 0) {                                                                         \
            plan->report.stage = (number);                                                         \
            plan->report.error = -error_;                                                          \
            return 127;                                                                            \
        }                                                                                          \
    } while (0)

CHILD int child_main(void *argument)
{
    struct plan *plan = argument;
    RUN(STAGE_SIGNALS, stage_birth(plan));
    RUN(STAGE_SIGNALS, stage_signals(plan));
    RUN(STAGE_SESSION, stage_session(plan));
    RUN(STAGE_PARENT_DEATH, stage_parent_death(plan));
    RUN(STAGE_CLOSE, stage_unshare_fds(plan)); /* before any fd changes */
    RUN(STAGE_STREAMS, stage_streams(plan));
    RUN(STAGE_TERMINAL, stage_terminal(plan));
    RUN(STAGE_CLOSE, stage_close(plan)); /* descriptors escape every later layer */
    RUN(STAGE_CWD, stage_cwd(plan));
    RUN(STAGE_LIMITS, stage_limits(plan)); /* while a hard limit may still be raised */
    RUN(STAGE_UMASK, stage_umask(plan));
    RUN(STAGE_CAPABILITIES, stage_capabilities(plan)); /* CAP_SYS_ADMIN reads past Landlock */
    RUN(STAGE_NO_NEW_PRIVS, stage_no_new_privs(plan)); /* the next two need it */
    RUN(STAGE_LANDLOCK, stage_landlock(plan));
    RUN(STAGE_FILTER, stage_filter(plan)); /* last: it may refuse what the others use */
    RUN(STAGE_EXEC, stage_exec(plan));
    return 127;
}
