/* The parent's side of a vfork; the child's side is child.c. */
#define _GNU_SOURCE
#include "spawn.h"

#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/sched.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum { SPAWN_STACK = 16384, LOW_FDS = 256 };

/* The child copies the table up to the highest fd that it needs, so a pipe or a ruleset that got a
 * high number in a caller with 20,000 open files would make it copy all of them. Returns the number
 * that *fd had, or -1 where it stays. A caller without a free low number pays: nothing is wrong
 * then, only slower. */
static int32_t lower_fd(int32_t *fd, int32_t least)
{
    int32_t before = *fd;
    if (before < LOW_FDS) {
        return -1;
    }
    long low = SYS_3(SYS_fcntl, before, F_DUPFD_CLOEXEC, least);
    if (low < 0) {
        return -1;
    }
    *fd = (int32_t)low;
    return before;
}

static void restore_fd(int32_t *fd, int32_t before)
{
    if (before >= 0) {
        SYS_1(SYS_close, *fd);
        *fd = before;
    }
}

int spawn_check_fds(const int32_t *fds, unsigned fd_count, struct stage_report *report)
{
    for (unsigned i = 0; i < fd_count; i++) {
        if (SYS_2(SYS_fcntl, fds[i], F_GETFD) < 0) {
            *report =
                (struct stage_report){.stage = STAGE_STREAMS, .error = EBADF, .detail = (int32_t)i};
            return -EBADF;
        }
    }
    return 0;
}

/* The numbers that fds had, the ruleset's behind them. */
struct kept {
    int32_t fds[PLAN_MAX_FDS + 1];
};

static void lower_fds(struct plan *plan, struct kept *kept)
{
    for (uint32_t i = 0; i < plan->fd_count; i++) {
        kept->fds[i] = lower_fd(&plan->fds[i], 3);
    }
    kept->fds[plan->fd_count] = lower_fd(&plan->ruleset, PLAN_MAX_FDS);
}

static void restore_fds(struct plan *plan, const struct kept *kept)
{
    for (uint32_t i = 0; i < plan->fd_count; i++) {
        restore_fd(&plan->fds[i], kept->fds[i]);
    }
    restore_fd(&plan->ruleset, kept->fds[plan->fd_count]);
}

/* A ruleset among the command's own fds would be overwritten by one of them. */
static int plan_is_sound(const struct plan *plan)
{
    if (plan->fd_count < 3 || plan->fd_count > PLAN_MAX_FDS || plan->programs == NULL ||
        plan->argv == NULL || plan->envp == NULL) {
        return 0;
    }
    if (plan->ruleset >= 0 && plan->ruleset < (int32_t)plan->fd_count) {
        return 0;
    }
    for (uint32_t i = 0; i < plan->fd_count; i++) {
        if (plan->fds[i] < 0) {
            return 0;
        }
    }
    return 1;
}

/* CLONE_VM and CLONE_VFORK: no page table is copied, whatever the caller's size, and this thread
 * sleeps until exec. CLONE_FILES: nor is the fd table; the child unshares what it needs of it.
 * All signals are blocked over it: a handler of ours must not run in the child. */
int spawn_child(struct plan *plan, int32_t *pid, int32_t *pidfd)
{
    _Alignas(16) uint8_t stack[SPAWN_STACK];
    struct kept kept;
    uint64_t all = ~UINT64_C(0), before = 0;
    *pidfd = -1;
    if (!plan_is_sound(plan)) {
        plan->report = (struct stage_report){.stage = STAGE_REQUEST, .error = EINVAL};
        return -EINVAL;
    }
    plan->report = (struct stage_report){0};
    if (spawn_check_fds(plan->fds, plan->fd_count, &plan->report) < 0) {
        return -EBADF;
    }
    plan->flags |= PLAN_RESET_HANDLERS | PLAN_SHARES_FDS;
    plan->parent = (int32_t)SYS_0(SYS_getpid);
    lower_fds(plan, &kept);
    SYS_4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, KERNEL_SIGSET_BYTES);
    long child = sys_clone(CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_PIDFD | SIGCHLD,
                           stack + SPAWN_STACK, pidfd, 0, child_main, plan);
    SYS_4(SYS_rt_sigprocmask, SIG_SETMASK, &before, 0, KERNEL_SIGSET_BYTES);
    restore_fds(plan, &kept);
    if (child < 0) {
        plan->report = (struct stage_report){.stage = STAGE_CLONE, .error = (int32_t)-child};
        *pidfd = -1; /* the kernel may have written it before it failed */
        return (int)child;
    }
    if (plan->report.stage != STAGE_NONE) {
        /* Signals are back, and a vfork's parent goes on a moment before the child can be reaped. */
        while (SYS_5(SYS_waitid, P_PIDFD, *pidfd, 0, WEXITED, 0) == -EINTR)
            ;
        SYS_1(SYS_close, *pidfd);
        *pidfd = -1;
        return -plan->report.error;
    }
    *pid = (int32_t)child;
    return 0;
}

/* <linux/pidfd.h> is newer than the headers that we build with. */
struct pidfd_exit_info {
    uint64_t mask, cgroup;
    uint32_t ids[11];
    int32_t exit_code;
};
#define PIDFD_WANT_EXIT (UINT64_C(1) << 3)
#define PIDFD_READ_INFO _IOWR(0xFF, 11, struct pidfd_exit_info)

static int ask_pidfd(int pidfd, struct spawn_status *out)
{
    struct pidfd_exit_info info = {.mask = PIDFD_WANT_EXIT};
    if (SYS_3(SYS_ioctl, pidfd, PIDFD_READ_INFO, &info) < 0 || !(info.mask & PIDFD_WANT_EXIT)) {
        return -ECHILD;
    }
    memset(out, 0, sizeof *out);
    out->status = info.exit_code;
    return 1;
}

/* SIGCHLD ignored, or somebody waits for every child: the kernel keeps the status with the pidfd. It
 * is there when the process is gone, which is a moment after its end was announced. */
static int ask_patiently(int pidfd, struct spawn_status *out)
{
    struct timespec pause = {.tv_nsec = 100000};
    for (int attempt = 0; attempt < 1000; attempt++) {
        long there = SYS_4(SYS_pidfd_send_signal, pidfd, 0, 0, 0);
        int told = ask_pidfd(pidfd, out);
        if (told == 1 || there < 0) {
            return told;
        }
        SYS_2(SYS_nanosleep, &pause, 0);
    }
    return -ECHILD;
}

/* waitid gives code and status apart; wait4's encoding is what everybody decodes. */
static int32_t wait_status(const siginfo_t *info)
{
    if (info->si_code == CLD_EXITED) {
        return (info->si_status & 0xff) << 8;
    }
    return (info->si_status & 0x7f) | (info->si_code == CLD_DUMPED ? 0x80 : 0);
}

static int await_readable(int pidfd, int64_t deadline_ns)
{
    struct pollfd event = {.fd = pidfd, .events = POLLIN};
    struct timespec left = {0};
    if (deadline_ns != INT64_MAX) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        int64_t rest = deadline_ns - ((int64_t)now.tv_sec * 1000000000 + now.tv_nsec);
        if (rest > 0) {
            left.tv_sec = rest / 1000000000;
            left.tv_nsec = rest % 1000000000;
        }
    }
    return (int)SYS_5(SYS_ppoll, &event, 1, deadline_ns == INT64_MAX ? NULL : &left, 0, 0);
}

int spawn_wait(int pidfd, int64_t deadline_ns, struct spawn_status *out)
{
    int ready = await_readable(pidfd, deadline_ns);
    if (ready <= 0) {
        return ready;
    }
    siginfo_t info;
    memset(out, 0, sizeof *out);
    memset(&info, 0, sizeof info);
    long error = SYS_5(SYS_waitid, P_PIDFD, pidfd, &info, WEXITED | WNOHANG, &out->usage);
    if (error == -ECHILD) {
        return ask_patiently(pidfd, out);
    }
    if (error < 0) {
        return (int)error;
    }
    out->status = wait_status(&info);
    out->reaped = 1;
    return info.si_pid != 0;
}

int spawn_signal(int pidfd, int number)
{
    return (int)SYS_4(SYS_pidfd_send_signal, pidfd, number, 0, 0);
}

/* Unreaped, it still holds its number, so that kill(-pid) cannot reach a stranger. */
int spawn_kill(int32_t pid, int pidfd)
{
    long alive = SYS_4(SYS_pidfd_send_signal, pidfd, 0, 0, 0);
    if (alive < 0 || pid <= 1) {
        return alive < 0 ? (int)alive : -EINVAL;
    }
    if (SYS_1(SYS_getpgid, pid) == pid) {
        SYS_2(SYS_kill, -pid, SIGKILL);
    }
    return (int)SYS_4(SYS_pidfd_send_signal, pidfd, SIGKILL, 0, 0);
}
