#include "probe.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdalign.h>
#include <string.h>
#include <sys/utsname.h>

#include "sys.h"

/* Headers of Linux 6.1 lack some of these, and the C library's clash with the kernel's. */
#define LANDLOCK_VERSION 1u
#define LANDLOCK_ERRATA 2u
#define CLONE_VM_FLAG 0x100ul
#define CLONE_PIDFD_FLAG 0x1000ul
#define CLONE_VFORK_FLAG 0x4000ul
#define NEW_USER_NAMESPACE 0x10000000ul
#define NEW_MOUNT_NAMESPACE 0x20000ul
#define WAIT_PID 1
#define WAIT_EXITED 4
#define WAIT_ANY_CLONE 0x40000000
#define SIGNALS_SETMASK 2
#define CHILD_STACK 4096

/* ioctl PIDFD_GET_INFO in its first size; newer kernels accept it. */
struct probe_pidfd_info {
    uint64_t mask;
    uint64_t cgroup;
    uint32_t ids[11];
    int32_t exit_code;
};
#define PIDFD_GET_INFO 0xc040ff0bu
#define PIDFD_INFO_EXIT 8u
_Static_assert(sizeof(struct probe_pidfd_info) == 64, "the size is part of the ioctl's number");

static void probe_landlock(struct probe *out)
{
    long abi = SYS_3(SYS_landlock_create_ruleset, 0, 0, LANDLOCK_VERSION);
    if (abi < 0) {
        out->landlock_errno = (int32_t)-abi;
        return;
    }
    out->landlock_abi = (int32_t)abi;
    long errata = SYS_3(SYS_landlock_create_ruleset, 0, 0, LANDLOCK_ERRATA);
    if (errata > 0) {
        out->landlock_errata = (uint32_t)errata;
    }
}

static void probe_seccomp(struct probe *out)
{
    static const struct {
        uint32_t action, bit;
    } actions[] = {
        {SECCOMP_RET_KILL_PROCESS, PROBE_RET_KILL_PROCESS},
        {SECCOMP_RET_KILL_THREAD, PROBE_RET_KILL_THREAD},
        {SECCOMP_RET_TRAP, PROBE_RET_TRAP},
        {SECCOMP_RET_ERRNO, PROBE_RET_ERRNO},
        {SECCOMP_RET_USER_NOTIF, PROBE_RET_USER_NOTIF},
        {SECCOMP_RET_TRACE, PROBE_RET_TRACE},
        {SECCOMP_RET_LOG, PROBE_RET_LOG},
        {SECCOMP_RET_ALLOW, PROBE_RET_ALLOW},
    };
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (SYS_3(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &actions[i].action) == 0) {
            out->seccomp_actions |= actions[i].bit;
        }
    }
    /* No program: a kernel that knows filters tries to read it. */
    out->seccomp_filter = SYS_3(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 0) == -EFAULT;
}

static void probe_fds(struct probe *out)
{
    long pidfd = SYS_2(SYS_pidfd_open, SYS_0(SYS_getpid), 0);
    out->pidfd_open = pidfd >= 0;
    if (pidfd >= 0) {
        SYS_1(SYS_close, pidfd);
    }
    /* The last possible fd, which nobody can have. */
    out->close_range = SYS_3(SYS_close_range, ~0u, ~0u, 0) == 0;
}

/* In the child. The mount namespace shows that the capabilities of the user namespace work. */
SYS_UNINSTRUMENTED static int probe_enter(void *error)
{
    long result = SYS_1(SYS_unshare, NEW_USER_NAMESPACE);
    if (result == 0) {
        result = SYS_1(SYS_unshare, NEW_MOUNT_NAMESPACE);
    }
    *(int32_t *)error = (int32_t)-result;
    return 0;
}

static int probe_tells_exit(int pidfd)
{
    struct probe_pidfd_info info = {.mask = PIDFD_INFO_EXIT};
    return SYS_3(SYS_ioctl, pidfd, PIDFD_GET_INFO, &info) == 0 &&
           (info.mask & PIDFD_INFO_EXIT) != 0;
}

/* Signals wait meanwhile: a handler must not run in the child, on memory that is the caller's. The
 * child's end sends none (exit signal 0), so it is neither reaped by an ignored SIGCHLD nor seen by
 * another thread's wait, which leaves such children out. */
static void probe_child(struct probe *out)
{
    alignas(16) unsigned char stack[CHILD_STACK];
    uint64_t all = ~(uint64_t)0, before = 0;
    int32_t error = 0;
    int pidfd = -1;
    SYS_4(SYS_rt_sigprocmask, SIGNALS_SETMASK, &all, &before, sizeof(all));
    long pid = sys_clone(CLONE_VM_FLAG | CLONE_VFORK_FLAG | CLONE_PIDFD_FLAG, stack + CHILD_STACK,
                         &pidfd, 0, probe_enter, &error);
    SYS_4(SYS_rt_sigprocmask, SIGNALS_SETMASK, &before, 0, sizeof(before));
    if (pid < 0) {
        out->userns_errno = (int32_t)-pid;
        return;
    }
    while (SYS_5(SYS_waitid, WAIT_PID, pid, 0, WAIT_EXITED | WAIT_ANY_CLONE, 0) == -EINTR)
        ;
    out->userns = error == 0;
    out->userns_errno = error;
    if (pidfd < 0) {
        return;
    }
    out->pidfd_info_exit = probe_tells_exit(pidfd) != 0;
    SYS_1(SYS_close, pidfd);
}

int probe_host(struct probe *out)
{
    struct utsname name;
    memset(out, 0, sizeof(*out));
    long result = SYS_1(SYS_uname, &name);
    if (result < 0) {
        return (int)result;
    }
    memcpy(out->release, name.release, sizeof(out->release));
    probe_landlock(out);
    probe_seccomp(out);
    probe_fds(out);
    probe_child(out);
    return 0;
}
