/* A nursery: spawns children of the caller's own, confined because it is.
 *
 * The caller waits for them as for any child; they die with the caller, because this process ends
 * everything in its signal scope when it does. For that a child of it stays, after the caller has
 * closed it, until the commands that it started have ended. A command can kill the nursery, which ends nothing
 * but that promise: the caller starts another.
 *
 * A nursery that has joined a sandbox has no number in there, and its commands end with that. */
#define _GNU_SOURCE
#include "helper.h"
#include "landlock.h"
#include "sys.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>

enum {
    CONTROL,
    CALLER,
    SIGNALS,
    FIRST_CHILD,
    WATCHED = 512,
    STACK = 32768,
    LOOK_NS = 10000000,
    LOOKS = 1500
};

/* Control socket, caller, what signals there are, and a pidfd for each command. While the caller is
 * there the latter are passed over (poll ignores negative numbers): a command's end is no reason to
 * wake up. */
static struct pollfd watched[WATCHED];
static unsigned watched_count;
static int lost_count; /* there were more than can be watched: stay until the caller ends */

/* Commands can send signals to this process; all are blocked, and so they are kept, each at the charge
 * of the user, who may have only so many. */
static int32_t open_signals(void)
{
    static const uint64_t all = ~UINT64_C(0);
    return (int32_t)SYS_4(SYS_signalfd4, -1, &all, KERNEL_SIGSET_BYTES, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Not all that there are: more may come as fast, and the caller would wait. */
static void drop_signals(void)
{
    struct signalfd_siginfo some[32];
    if (watched[SIGNALS].revents) {
        SYS_3(SYS_read, watched[SIGNALS].fd, some, sizeof some);
    }
}

static void flip_children(void)
{
    for (unsigned i = FIRST_CHILD; i < watched_count; i++) {
        watched[i].fd = ~watched[i].fd;
    }
}

/* Forgets the commands that have ended; children are not flipped. */
static void forget_ended(void)
{
    unsigned kept = FIRST_CHILD;
    for (unsigned i = FIRST_CHILD; i < watched_count; i++) {
        if (watched[i].revents) {
            SYS_1(SYS_close, watched[i].fd);
        } else {
            watched[kept++] = watched[i];
        }
    }
    watched_count = kept;
}

static int commands_left(void)
{
    struct timespec at_once = {0};
    flip_children();
    SYS_5(SYS_ppoll, watched + FIRST_CHILD, watched_count - FIRST_CHILD, &at_once, 0, 0);
    forget_ended();
    flip_children();
    return watched_count > FIRST_CHILD || lost_count;
}

static void watch_child(int pidfd)
{
    if (watched_count == WATCHED) {
        commands_left();
    }
    if (watched_count == WATCHED) {
        SYS_1(SYS_close, pidfd);
        lost_count = 1;
        return;
    }
    watched[watched_count++] = (struct pollfd){.fd = ~pidfd, .events = POLLIN};
}

static struct nursery {
    uint64_t cookie;
    int32_t error; /* what has failed by now */
    int32_t joins; /* a sandbox, with these */
    int32_t fds[WIRE_JOINT_FDS];
    int32_t ruleset;
    int32_t group; /* that this process has joined */
} self;

/* Zero when the thread that spawns has ended, whatever killed it: the kernel sees to that, as long as
 * a child shares this memory, which is then not to run what its caller was told nothing of. */
static volatile int32_t alive = 1;

/* Who joins is in the sandbox's hands: kill(-1) from here would reach the caller's world. */
static int confine_nursery(struct helper *helper)
{
    int error = self.error;
    if (error == 0 && self.joins) {
        error = joint_enter_thread(helper, self.fds, &self.ruleset);
    }
    if (error == 0 && (self.joins || helper->policy.header->flags & POLICY_LANDLOCK)) {
        error = landlock_restrict(self.ruleset, 0);
        helper->scoped = !self.joins && error == 0 && helper_prove_scope(helper->caller);
    }
    SYS_1(SYS_close, self.ruleset);
    return error ? error : listener_take_filter(helper);
}

/* In the sandbox's pid namespace the caller's process groups have no numbers: this process joins the
 * one that is wanted, and the command is born in it. */
static void settle_group(struct plan *plan)
{
    if (!self.joins || plan->group <= 0 || plan->report.stage != STAGE_NONE) {
        return;
    }
    long error = plan->group == self.group ? 0 : SYS_2(SYS_setpgid, 0, plan->group);
    if (error) {
        plan->report =
            (struct stage_report){.stage = STAGE_SESSION, .error = (int32_t)-error, .detail = -1};
        return;
    }
    self.group = plan->group;
    plan->group = 0;
}

/* Or whoever ends the command's group ends this process with it. */
static void leave_group(const struct helper *helper)
{
    if (self.joins && self.group && self.group != helper->group &&
        SYS_2(SYS_setpgid, 0, helper->group) == 0) {
        self.group = helper->group;
    }
}

/* Before exec the child is in the commands' reach, and one of them may stop it: with CLONE_VFORK this
 * process would sleep as long, and the caller with it. Nobody else has a reason to stop it by now. */
static void await_birth(const struct request *request)
{
    const volatile int32_t *unborn = &request->plan.unborn;
    struct timespec pause = {.tv_nsec = LOOK_NS};
    for (int looks = 0; *unborn; looks++) {
        long error = SYS_6(SYS_futex, unborn, FUTEX_WAIT, 1, &pause, 0, 0);
        if (error == -ETIMEDOUT) {
            int number = looks < LOOKS ? SIGCONT : SIGKILL;
            SYS_4(SYS_pidfd_send_signal, request->pidfd, number, 0, 0);
        }
    }
}

static void serve(const struct helper *helper, struct request *request)
{
    settle_group(&request->plan);
    request->plan.spawner = &alive;
    request->plan.unborn = 1;
    request_start(helper, request, CLONE_PARENT | SIGCHLD, self.cookie);
    if (request->pid > 0) {
        await_birth(request);
    }
    leave_group(helper);
    request_release(request);
    int started = request->plan.report.stage == STAGE_NONE;
    struct wire_reply reply = {
        .kind = started ? WIRE_STARTED : WIRE_FAILED,
        .pid = request->pid,
        .report = request->plan.report,
    };
    helper_send(HELPER_CONTROL, &reply, &request->pidfd, request->pidfd >= 0);
    if (started) {
        watch_child(request->pidfd);
    } else if (request->pidfd >= 0) {
        SYS_1(SYS_close, request->pidfd);
    }
}

/* Until the caller closes (1) or ends (0). */
static int serve_all(const struct helper *helper)
{
    for (;;) {
        long ready = SYS_5(SYS_ppoll, watched, FIRST_CHILD, 0, 0, 0);
        if (ready == -EINTR) {
            continue;
        }
        if (ready < 0 || watched[CALLER].revents) {
            return 0;
        }
        drop_signals();
        if (!watched[CONTROL].revents) {
            continue;
        }
        struct request request;
        int received = request_receive(HELPER_CONTROL, &request);
        if (received < 0) {
            return 1;
        }
        if (received > 0) {
            serve(helper, &request);
        }
    }
}

/* Closed, but commands may be running: they are ended with the caller, or end by themselves. */
static void stay(void)
{
    flip_children();
    while (watched_count > FIRST_CHILD || (lost_count && !self.joins)) {
        long ready = SYS_5(SYS_ppoll, watched + CALLER, watched_count - CALLER, 0, 0, 0);
        if ((ready < 0 && ready != -EINTR) || watched[CALLER].revents) {
            return;
        }
        drop_signals();
        forget_ended();
    }
}

/* Takes what binds threads, and serves to the end. */
static int run(void *argument)
{
    struct helper *helper = argument;
    watched[CONTROL] = (struct pollfd){.fd = HELPER_CONTROL, .events = POLLIN};
    watched[CALLER] = (struct pollfd){.fd = HELPER_CALLER, .events = POLLIN};
    watched[SIGNALS] = (struct pollfd){.fd = open_signals(), .events = POLLIN};
    watched_count = FIRST_CHILD;
    SYS_1(SYS_set_tid_address, &alive);
    int error = watched[SIGNALS].fd < 0 ? watched[SIGNALS].fd : confine_nursery(helper);
    struct stage_report report = {
        .stage = error ? STAGE_LANE : STAGE_NONE, .error = -error, .detail = -1};
    helper_send_ready(helper, HELPER_CONTROL, &report, 0, 0);
    if (error == 0 && serve_all(helper)) {
        SYS_1(SYS_close, HELPER_CONTROL);
        /* A child stays, so that the caller can reap this process now. What has joined a sandbox is
         * being ended by that, and the caller wants to know when. */
        if (!self.joins && commands_left() && SYS_5(SYS_clone, SIGCHLD, 0, 0, 0, 0) > 0) {
            helper_exit(0);
        }
        stay();
    }
    if (helper->scoped) {
        SYS_2(SYS_kill, -1, SIGKILL);
    }
    helper_exit(error ? 1 : 0);
}

void nursery_main(struct helper *helper, uint64_t cookie)
{
    self = (struct nursery){.cookie = cookie, .ruleset = HELPER_RULESET};
    run(helper);
    helper_exit(1);
}

/* Landlock binds threads, and whether a process may be signalled is asked of its first one: so that
 * one stays without, and commands that are in its process group cannot end it by kill(0). It is in no
 * new pid namespace either, whose processes have no threads in another. */
void nursery_join(struct helper *helper, uint64_t cookie, const int32_t *fds)
{
    static _Alignas(16) uint8_t stack[STACK];
    const unsigned long thread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
    self = (struct nursery){.cookie = cookie, .joins = 1};
    memcpy(self.fds, fds, sizeof self.fds);
    self.error = joint_enter(fds);
    if (sys_clone(thread, stack + sizeof stack, 0, 0, run, helper) < 0 ||
        child_drop_capabilities() < 0) {
        helper_exit(1);
    }
    for (;;) {
        SYS_5(SYS_ppoll, 0, 0, 0, 0, 0);
    }
}
