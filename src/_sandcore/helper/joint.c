/* A joint: a lane in which no command is started, and which children of the caller's own join.
 *
 * Its first process hands the caller what a nursery (nursery.c) needs to come in: its namespaces, the
 * ruleset with all that was granted in here, and its way to the supervisor. From then on it is only
 * there to end: with it the kernel ends all that is in its pid namespace, whoever's child that is. It
 * has taken no Landlock layer, so that kill(-1) reaches domains that are not below its own; it reads
 * nothing of what commands write, and like any lane it is not dumpable and out of reach of their
 * signals.
 *
 * What the caller has not yet waited for stays a zombie in here, and a pid namespace does not end
 * before that is gone. So nobody waits for this process: it says itself when all else is dead. */
#define _GNU_SOURCE
#include "helper.h"
#include "sys.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/prctl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

enum { NETWORK = 4, PID, RULESET, HANDOVER, PATIENCE_S = 4, LOOKS = 4000 };

static void close_all(const int32_t *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        tree_drop(fds[i]);
    }
}

/* By a /proc of our own: the policy may show commands none. The user namespace comes first, which
 * gives the capabilities that the others take. A network that is the host's is no one to enter. */
static int open_spaces(const struct helper *helper, int32_t *fds)
{
    static const char *const none[] = {0};
    static const char *const names[WIRE_SPACES] = {"self/ns/user", "self/ns/mnt", "self/ns/ipc",
                                                   "self/ns/uts",  "self/ns/net", "self/ns/pid"};
    const uint64_t attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    int own_network = (helper->policy.header->flags & POLICY_OWN_NETWORK) != 0;
    int proc = tree_new("proc", none, attributes), error = proc < 0 ? proc : 0;
    for (int i = 0; error == 0 && i < WIRE_SPACES; i++) {
        const char *name = i == NETWORK && !own_network ? names[i - 1] : names[i];
        fds[i] = (int32_t)SYS_4(SYS_openat, proc, name, O_RDONLY | O_CLOEXEC, 0);
        error = fds[i] < 0 ? fds[i] : 0;
    }
    tree_drop(proc);
    return error;
}

/* Orphans are the kernel's to reap. And the first process of a pid namespace is sent no signals from in
 * there that it has no handler for, unless they are blocked: those would be kept, at the user's charge. */
static int ignore_signals(void)
{
    struct kernel_sigaction ignore = {.handler = SIG_IGN};
    uint64_t nothing = 0;
    long error = SYS_4(SYS_rt_sigaction, SIGCHLD, &ignore, 0, KERNEL_SIGSET_BYTES);
    return error ? (int)error
                 : (int)SYS_4(SYS_rt_sigprocmask, SIG_SETMASK, &nothing, 0, KERNEL_SIGSET_BYTES);
}

/* Until the caller has had enough, or root or caller is gone (0). */
static int await_end(const struct helper *helper, int socket)
{
    struct pollfd events[2] = {{.fd = helper->root_fd, .events = POLLIN},
                               {.fd = socket, .events = POLLIN}};
    for (;;) {
        uint32_t kind = 0;
        int32_t none;
        long ready = SYS_5(SYS_ppoll, events, 2, 0, 0, 0);
        if (ready == -EINTR) {
            continue;
        }
        if (ready < 0 || events[0].revents) {
            return 0;
        }
        if (helper_receive(socket, &kind, sizeof kind, &none, 0) != sizeof kind) {
            return 1;
        }
        if (kind == WIRE_KILL) {
            SYS_2(SYS_kill, -1, SIGKILL);
        }
    }
}

/* One that has closed the joint still listens for the answer. */
static int caller_is_gone(int socket)
{
    struct pollfd event = {.fd = socket};
    struct timespec no_time = {0};
    return SYS_5(SYS_ppoll, &event, 1, &no_time, 0, 0) > 0 && event.revents & POLLHUP;
}

/* Those that the caller waits for are dead when this is asked for, so all others are ours to reap. What
 * they planted is for the root to see to where there is nobody else. */
static void end(const struct helper *helper, int socket)
{
    long pid;
    SYS_2(SYS_kill, -1, SIGKILL);
    do {
        pid = SYS_4(SYS_wait4, -1, 0, __WALL, 0);
    } while (pid >= 0 || pid == -EINTR);
    plants_end(helper, !caller_is_gone(socket));
    struct wire_reply done = {.kind = WIRE_DONE};
    helper_send(socket, &done, 0, 0);
}

void joint_main(struct helper *helper, int socket)
{
    struct stage_report report = {.stage = STAGE_NAMESPACES, .detail = -1};
    int32_t fds[WIRE_JOINT_FDS] = {-1, -1, -1, -1, -1, -1, HELPER_RULESET, helper->handover};
    int usable = helper->handover >= 0 && helper->policy.header->flags & POLICY_LANDLOCK;
    int error = usable ? open_spaces(helper, fds) : -EOPNOTSUPP;
    error = error ? error : lane_enter(helper, &report);
    error = error ? error : (int)SYS_5(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
    error = error ? error : ignore_signals();
    if (error == 0) {
        plants_begin(helper);
    }
    report.stage = error ? report.stage : STAGE_NONE;
    report.error = -error;
    helper_send_ready(helper, socket, &report, fds, error ? 0 : WIRE_JOINT_FDS);
    close_all(fds, WIRE_JOINT_FDS);
    if (error == 0 && await_end(helper, socket)) {
        end(helper, socket);
    }
    helper_exit(0); /* never a reason to end the sandbox */
}

int joint_enter(const int32_t *fds)
{
    long error = 0;
    for (int i = 0; error == 0 && i < PID; i++) {
        error = SYS_2(SYS_setns, fds[i], 0);
    }
    close_all(fds, PID);
    return error ? (int)error : (int)SYS_5(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
}

int joint_enter_thread(struct helper *helper, const int32_t *fds, int32_t *ruleset)
{
    long error = SYS_2(SYS_setns, fds[PID], 0);
    SYS_1(SYS_close, fds[PID]);
    if (error == 0) {
        error = child_drop_capabilities();
    }
    if (error == 0) {
        error = SYS_5(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    }
    helper->handover = fds[HANDOVER];
    *ruleset = fds[RULESET];
    return (int)error;
}

void joint_sweep(const struct helper *helper)
{
    struct pollfd event = {.fd = helper->supervisor, .events = POLLIN};
    struct timespec patience = {.tv_sec = PATIENCE_S}, pause = {.tv_nsec = 1000000};
    SYS_2(SYS_shutdown, helper->supervisor, SHUT_WR);
    SYS_5(SYS_ppoll, &event, 1, &patience, 0, 0);
    /* A caller that has closed has seen to what it joined. Without one, somebody reaps that now. */
    for (int i = 0; !helper->closed && i < LOOKS; i++) {
        if (SYS_4(SYS_wait4, -1, 0, WNOHANG | __WALL, 0) < 0) {
            return;
        }
        SYS_2(SYS_nanosleep, &pause, 0);
    }
}
