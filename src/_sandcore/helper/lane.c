/* A lane: confined once, then one command at a time. */
#define _GNU_SOURCE
#include "helper.h"
#include "landlock.h"
#include "sys.h"

#include <errno.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

enum { LOOK_NS = 250000000, SECOND_NS = 1000000000 };

struct command {
    int32_t pid, pidfd;
    int32_t status;
    int32_t ended;
    int32_t background, timed_out;
    int64_t began_ns, until_ns; /* until_ns: when its time is up */
    struct wire_usage usage;
    struct memory_watch memory;
};

/* The first process of a pid namespace: what is below it ends with it, and kill(-1) is all of that
 * and nothing else. Nobody there can end or stop it. */
int lane_enter(struct helper *helper, struct stage_report *report)
{
    int ruleset = helper->policy.header->flags & POLICY_LANDLOCK ? HELPER_RULESET : -1;
    report->stage = STAGE_LIMITS;
    if (!helper_has_namespaces(helper)) {
        return helper->processes ? -EOPNOTSUPP : 0;
    }
    long error = SYS_5(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (error == 0) {
        error = limits_take_processes(helper->processes);
    }
    if (error == 0) {
        report->stage = STAGE_MOUNTS;
        error = mounts_make_proc(&helper->policy, ruleset);
    }
    if (error == 0) {
        error = child_drop_capabilities();
    }
    return (int)error;
}

/* By itself the kernel tells its audit of nothing that was executed after the layer was taken. */
static uint32_t told(const struct policy_header *header)
{
    uint32_t flags = header->flags & POLICY_TELL ? LANDLOCK_FLAG_LOG_NEW_EXEC_ON : 0;
    return flags & landlock_restrict_flags((int)header->abi);
}

static int confine_lane(struct helper *helper, struct stage_report *report)
{
    int entered = lane_enter(helper, report);
    if (entered) {
        return entered;
    }
    report->stage = STAGE_LANE;
    long error = SYS_5(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    /* Inherited over fork; said again because everything hangs on it: commands share our domain. */
    if (error == 0) {
        error = SYS_5(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
    helper->children = helper_open_children();
    if (error == 0 && helper->policy.header->flags & POLICY_LANDLOCK) {
        error = landlock_restrict(HELPER_RULESET, told(helper->policy.header));
        helper->scoped = error == 0 && helper_prove_scope(helper->root);
    }
    helper->scoped |= helper_has_namespaces(helper) && SYS_0(SYS_getpid) == 1;
    SYS_1(SYS_close, HELPER_RULESET);
    if (error == 0) {
        report->stage = STAGE_FILTER;
        error = listener_take_filter(helper);
    }
    return (int)error;
}

static void note_ended(struct command *command, int32_t pid, int32_t status,
                       const struct rusage *usage)
{
    helper_add_usage(&command->usage, usage);
    if (pid == command->pid) {
        command->status = status;
        command->ended = 1;
    }
}

/* Reaps what has ended by now; false when nothing at all is left below this lane. */
static int anything_left(struct command *command)
{
    for (;;) {
        int32_t status = 0;
        struct rusage usage;
        long pid = SYS_4(SYS_wait4, -1, &status, WNOHANG | __WALL, &usage);
        if (pid <= 0) {
            return pid == 0;
        }
        if (helper_is_stop(status)) {
            continue;
        }
        note_ended(command, (int32_t)pid, status, &usage);
    }
}

enum happening { ROOT_ENDED, CALLER_SPOKE, LEADER_ENDED, TIME_PASSED };

/* What happens first; leader is the pidfd of a command, -1: none. TIME_PASSED: after the pause;
 * INT64_MAX: never. */
static enum happening await(const struct helper *helper, int socket, int leader, int64_t pause_ns)
{
    struct timespec pause = {.tv_sec = pause_ns / SECOND_NS, .tv_nsec = pause_ns % SECOND_NS};
    struct pollfd events[3] = {{.fd = helper->root_fd, .events = POLLIN},
                               {.fd = socket, .events = POLLIN},
                               {.fd = leader, .events = POLLIN}};
    for (;;) {
        long ready = SYS_5(SYS_ppoll, events, 3, pause_ns == INT64_MAX ? 0 : &pause, 0, 0);
        if (ready == 0) {
            return TIME_PASSED;
        }
        if ((ready < 0 && ready != -EINTR) || (ready > 0 && events[0].revents)) {
            return ROOT_ENDED;
        }
        if (ready > 0) {
            return events[1].revents ? CALLER_SPOKE : LEADER_ENDED;
        }
    }
}

/* How long to sleep until something is to be looked at: the memory of a tree with a limit of it, the
 * clock, and orphans of a long command, or they stay zombies until it ends. */
static int64_t nap(const struct command *command, int leader)
{
    int64_t pause = leader < 0 ? INT64_MAX : LOOK_NS;
    pause = command->memory.most ? command->memory.pause_ns : pause;
    if (leader >= 0 && command->until_ns != INT64_MAX) {
        int64_t rest = command->until_ns - helper_now();
        pause = rest < pause ? rest : pause;
    }
    return pause < 0 ? 0 : pause;
}

/* After a nap: true when the leader (-1: nobody waits for it any more) has ended, or the tree must. */
static int is_over(struct command *command, int leader)
{
    anything_left(command);
    command->timed_out = !command->ended && helper_now() >= command->until_ns;
    return (leader >= 0 && command->ended) || command->timed_out ||
           (command->memory.most && memory_look(&command->memory));
}

/* Waits until the leader ends (its pidfd; -1: it has), its time is up, its tree has too much memory, or
 * the caller has had enough. False: caller or root is gone. */
static int await_order(const struct helper *helper, int socket, struct command *command, int leader)
{
    enum happening first;
    do {
        first = await(helper, socket, leader, nap(command, leader));
    } while (first == TIME_PASSED && !is_over(command, leader));
    if (first != CALLER_SPOKE) {
        return first != ROOT_ENDED;
    }
    uint32_t kind = 0;
    int32_t none;
    long size = helper_receive(socket, &kind, sizeof kind, &none, 0);
    return size == sizeof kind && (kind == WIRE_KILL || kind == WIRE_SWEEP);
}

static void send_failure(int socket, const struct plan *plan)
{
    struct wire_reply failed = {.kind = WIRE_FAILED, .report = plan->report};
    helper_send(socket, &failed, 0, 0);
}

/* Follows a command to the end of its whole tree. False: caller or root is gone; a command that was
 * ended for that has no result. The child may still be on its way to exec when this begins: that it
 * failed there is known when it has ended. */
static int attend(const struct helper *helper, int socket, struct command *command,
                  const struct plan *plan)
{
    uint32_t swept = 0;
    int present = await_order(helper, socket, command, command->pidfd);
    int left = anything_left(command);
    if (present && left && command->ended && !command->background && !command->memory.exceeded) {
        struct wire_reply early = {
            .kind = WIRE_EXITED, .pid = command->pid, .status = command->status};
        helper_send(socket, &early, 0, 0);
        present = await_order(helper, socket, command, -1);
    }
    if (left) {
        swept = helper_sweep(helper, command->pid, &command->status, &command->usage) -
                (uint32_t)!command->ended;
    }
    plants_end(helper, present); /* before the caller hears of it, who may close at once */
    if (!present) {
        return 0;
    }
    if (plan->report.stage != STAGE_NONE) {
        send_failure(socket, plan);
        return 1;
    }
    struct wire_reply done = {.kind = WIRE_DONE,
                              .pid = command->pid,
                              .status = command->status,
                              .swept = swept,
                              .timed_out = (uint32_t)command->timed_out,
                              .over_memory = (uint32_t)command->memory.exceeded,
                              .usage = command->usage,
                              .duration_ns =
                                  command->background ? helper_now() - command->began_ns : 0};
    attempts_end(helper->attempts, &done);
    helper_send_done(socket, &done, attempts_all(helper->attempts));
    return 1;
}

/* Commands can send signals to their lane; all are blocked, and so they are kept, each at the charge
 * of the user, who may have only so many: after the command they go. */
static void drop_signals(void)
{
    static const struct timespec none;
    uint64_t all = ~UINT64_C(0);
    while (SYS_4(SYS_rt_sigtimedwait, &all, 0, &none, sizeof all) > 0) {
    }
}

/* A terminal's job joins the caller's process group. In a pid namespace that has no number; there the
 * root has stayed in the group that it was born in, and what it starts is in it already. */
static void settle_group(const struct helper *helper, struct plan *plan)
{
    if (!helper_has_namespaces(helper) || plan->group == 0) {
        return;
    }
    if (plan->group != helper->group && plan->report.stage == STAGE_NONE) {
        plan->report = (struct stage_report){.stage = STAGE_SESSION, .error = EPERM};
    }
    plan->group = 0;
}

/* Without a scope one cannot tell whose processes are whose. */
static void watch_memory(const struct helper *helper, struct request *request,
                         struct memory_watch *watch)
{
    int error = memory_open(watch, request->memory);
    error = request->memory && !helper->scoped ? -EOPNOTSUPP : error;
    if (error && request->plan.report.stage == STAGE_NONE) {
        request->plan.report =
            (struct stage_report){.stage = STAGE_LIMITS, .error = -error, .detail = -1};
    }
}

/* It may have been asked for while the workspace was still on its way. */
static void await_workspace(const struct helper *helper, struct request *request)
{
    int error = request->docked ? dock_await(helper, request->docked) : 0;
    if (error && request->plan.report.stage == STAGE_NONE) {
        request->plan.report =
            (struct stage_report){.stage = STAGE_MOUNTS, .error = -error, .detail = -1};
    }
}

static void set_clock(struct command *command, const struct request *request)
{
    command->until_ns = INT64_MAX;
    command->began_ns = request->background ? helper_now() : 0;
    if (request->timeout_ns && request->timeout_ns < (uint64_t)(INT64_MAX - command->began_ns)) {
        command->until_ns = command->began_ns + (int64_t)request->timeout_ns;
    }
}

static void send_started(int socket, const struct request *request)
{
    struct wire_reply started = {.kind = WIRE_STARTED, .pid = request->pid};
    helper_send(socket, &started, &request->pidfd, request->pidfd >= 0);
}

/* One request from its packet to its last reply. False: the caller is gone. */
static int serve(const struct helper *helper, int socket, struct request *request)
{
    struct plan *plan = &request->plan;
    plan->parent = (int32_t)SYS_0(SYS_getpid);
    plan->flags |= PLAN_DIE_WITH_PARENT;
    settle_group(helper, plan);
    struct command command = {.background = request->background};
    watch_memory(helper, request, &command.memory);
    await_workspace(helper, request);
    plants_begin(helper);
    attempts_begin(helper->attempts);
    /* Without need no CLONE_VFORK: waking up at exec, only to wait again, costs as much as a message.
     * Who asked for a command in the background wants to know whether there is one. */
    request_start(helper, request, SIGCHLD | (request->background ? CLONE_VFORK : 0u), 0);
    request_close_fds(request);
    int present = 1;
    if (request->pid > 0) {
        command.pid = request->pid;
        command.pidfd = request->pidfd;
        set_clock(&command, request);
        if (request->background && plan->report.stage == STAGE_NONE) {
            send_started(socket, request);
        }
        present = attend(helper, socket, &command, plan);
        SYS_1(SYS_close, request->pidfd);
    } else {
        plants_end(helper, 1);
        send_failure(socket, plan);
    }
    dock_leave(helper, request->docked);
    memory_close(&command.memory);
    request_release(request);
    drop_signals();
    mounts_reopen(&helper->policy);
    if (helper_has_namespaces(helper)) {
        ipc_clear();
    }
    return present;
}

void lane_main(struct helper *helper, int socket)
{
    struct stage_report report = {.detail = -1};
    int error = confine_lane(helper, &report);
    report.stage = error ? report.stage : STAGE_NONE;
    report.error = (int32_t)-error;
    helper_send_ready(helper, socket, &report, 0, 0);
    while (error == 0 && await(helper, socket, -1, INT64_MAX) == CALLER_SPOKE) {
        struct request request;
        int received = request_receive(socket, &request);
        if (received > 0 && request.file) {
            files_serve(socket, &request);
            request_release(&request);
            continue;
        }
        if (received < 0 || (received > 0 && !serve(helper, socket, &request))) {
            break;
        }
    }
    helper_exit(error ? 1 : 0);
}
