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

enum { LANE_STACK = 16384, LANE_POINTERS = 4096 };

/* One request is small and they come one by one: fixed memory, so that nothing can run out. */
static struct {
    union {
        struct wire_run run;
        uint8_t bytes[sizeof(struct wire_run) + WIRE_MAX_INLINE];
    } message;
    const char *pointers[LANE_POINTERS];
    _Alignas(16) uint8_t stack[LANE_STACK];
} memory;

struct command {
    int32_t pid, pidfd;
    int32_t status;
    int32_t ended;
    struct wire_usage usage;
};

static int confine_lane(struct helper *helper)
{
    long error = SYS_5(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (error == 0 && SYS_0(SYS_getppid) != helper->root) {
        error = -ESRCH;
    }
    if (error == 0) {
        error = SYS_5(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
    /* Inherited over fork; said again because everything hangs on it: commands share our domain. */
    if (error == 0) {
        error = SYS_5(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
    helper->children = helper_open_children();
    if (error == 0 && helper->policy.header->flags & POLICY_LANDLOCK) {
        error = landlock_restrict(HELPER_RULESET);
        helper->scoped = error == 0 && helper_prove_scope(helper->root);
    }
    SYS_1(SYS_close, HELPER_RULESET);
    return error == 0 ? child_install_filter(&helper->policy.filter) : (int)error;
}

static void send_reply(int socket, const struct wire_reply *reply)
{
    SYS_6(SYS_sendto, socket, reply, sizeof *reply, MSG_NOSIGNAL, 0, 0);
}

static void send_failure(int socket, const struct stage_report *report)
{
    struct wire_reply reply = {.kind = WIRE_FAILED, .report = *report};
    send_reply(socket, &reply);
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
static int anything_left(struct command *command, uint32_t *reaped)
{
    for (;;) {
        int32_t status = 0;
        struct rusage usage;
        long pid = SYS_4(SYS_wait4, -1, &status, WNOHANG | __WALL, &usage);
        if (pid <= 0) {
            return pid == 0;
        }
        *reaped += pid != command->pid;
        note_ended(command, (int32_t)pid, status, &usage);
    }
}

/* Waits for the caller's next word; false when the caller is gone or not to be understood. */
static int receive_order(int socket)
{
    uint32_t kind = 0;
    int32_t none;
    long size = helper_receive(socket, &kind, sizeof kind, &none, 0);
    return size == sizeof kind && (kind == WIRE_KILL || kind == WIRE_SWEEP);
}

/* Until the leader ends or the caller has had enough. False: the caller is gone. */
static int await_leader(int socket, const struct command *command)
{
    struct pollfd events[2] = {{.fd = command->pidfd, .events = POLLIN},
                               {.fd = socket, .events = POLLIN}};
    for (;;) {
        long ready = SYS_5(SYS_ppoll, events, 2, 0, 0, 0);
        if (ready < 0 && ready != -EINTR) {
            return 0;
        }
        if (ready > 0 && events[1].revents) {
            return receive_order(socket);
        }
        if (ready > 0) {
            return 1;
        }
    }
}

/* Follows a command that has started, to the end of its whole tree. False: the caller is gone. */
static int attend(const struct helper *helper, int socket, struct command *command)
{
    uint32_t reaped = 0;
    int present = await_leader(socket, command);
    int left = anything_left(command, &reaped);
    if (present && left && command->ended) {
        struct wire_reply early = {
            .kind = WIRE_EXITED, .pid = command->pid, .status = command->status};
        send_reply(socket, &early);
        present = receive_order(socket);
    }
    if (left) {
        reaped += helper_sweep(helper, command->pid, &command->status, &command->usage) -
                  (uint32_t)!command->ended;
    }
    struct wire_reply done = {.kind = WIRE_DONE,
                              .pid = command->pid,
                              .status = command->status,
                              .swept = reaped,
                              .usage = command->usage};
    send_reply(socket, &done);
    return present;
}

struct request {
    struct wire_run *run;
    const uint8_t *body;
    const char **pointers;
    void *mapped_body, *mapped_pointers;
};

static void *map_bytes(size_t size, int fd)
{
    long at = SYS_6(SYS_mmap, 0, size, fd < 0 ? PROT_READ | PROT_WRITE : PROT_READ,
                    fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_PRIVATE, fd, 0);
    return at < 0 ? 0 : (void *)at;
}

/* Body and pointers: here when they fit, mapped when they do not. */
static int open_request(struct request *request, long size, int memfd)
{
    struct wire_run *run = request->run;
    if ((size_t)size < sizeof *run) {
        return -EINVAL;
    }
    int error = wire_check(run);
    if (error) {
        return error;
    }
    request->body = memory.message.bytes + sizeof *run;
    request->pointers = memory.pointers;
    if (run->flags & WIRE_IN_MEMFD) {
        request->mapped_body = run->body ? map_bytes(run->body, memfd) : 0;
        request->body = request->mapped_body;
        if (request->body == 0) {
            return -ENOMEM;
        }
    } else if ((size_t)size != sizeof *run + run->body) {
        return -EINVAL;
    }
    if (wire_pointers(run) > LANE_POINTERS) {
        request->mapped_pointers = map_bytes(wire_pointers(run) * sizeof(char *), -1);
        request->pointers = request->mapped_pointers;
    }
    return request->pointers ? 0 : -ENOMEM;
}

static void close_request(struct request *request)
{
    if (request->mapped_body) {
        SYS_2(SYS_munmap, request->mapped_body, request->run->body);
    }
    if (request->mapped_pointers) {
        SYS_2(SYS_munmap, request->mapped_pointers, wire_pointers(request->run) * sizeof(char *));
    }
}

/* Starts the command; its pid and pidfd, or what failed in the plan's report. */
static void start(struct plan *plan, struct command *command)
{
    long pid = sys_clone(CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD,
                         memory.stack + LANE_STACK, &command->pidfd, child_main, plan);
    if (pid < 0) {
        plan->report = (struct stage_report){.stage = STAGE_CLONE, .error = (int32_t)-pid};
        return;
    }
    command->pid = (int32_t)pid;
    if (plan->report.stage != STAGE_NONE) {
        SYS_4(SYS_wait4, pid, 0, __WALL, 0);
        SYS_1(SYS_close, command->pidfd);
    }
}

/* One request from its packet to its last reply. False: the caller is gone. */
static int serve(const struct helper *helper, int socket, long size, const int32_t *fds)
{
    struct request request = {.run = &memory.message.run};
    struct command command = {.pid = 0};
    struct plan plan = {.ruleset = -1,
                        .parent = (int32_t)SYS_0(SYS_getpid),
                        .extra_filter = helper->policy.extra_filter,
                        .fds = {fds[0], fds[1], fds[2]},
                        .fd_count = 3};
    int error = fds[2] < 0 ? -EBADF : open_request(&request, size, fds[3]);
    if (error == 0) {
        error = wire_parse(request.run, request.body, request.pointers, &plan);
    }
    if (error) {
        plan.report = (struct stage_report){.stage = STAGE_REQUEST, .error = -error};
    } else {
        plan.flags = PLAN_DIE_WITH_PARENT;
        plan.flags |= request.run->flags & WIRE_KEEP_SESSION ? 0u : PLAN_NEW_SESSION;
        start(&plan, &command);
    }
    for (int i = 0; i < 4; i++) {
        if (fds[i] >= 0) {
            SYS_1(SYS_close, fds[i]); /* or no reader ever sees the end of the output */
        }
    }
    close_request(&request);
    if (plan.report.stage != STAGE_NONE) {
        send_failure(socket, &plan.report);
        return 1;
    }
    int present = attend(helper, socket, &command);
    SYS_1(SYS_close, command.pidfd);
    return present;
}

void lane_main(struct helper *helper, int socket)
{
    int error = confine_lane(helper);
    helper_send_ready(helper, socket, error ? STAGE_LANE : STAGE_NONE, -error);
    while (error == 0) {
        int32_t fds[4];
        long size = helper_receive(socket, &memory.message, sizeof memory.message, fds, 4);
        if (size == sizeof(uint32_t)) {
            continue; /* a KILL that crossed the DONE it came too late for */
        }
        if (size <= 0 || !serve(helper, socket, size, fds)) {
            break;
        }
    }
    helper_exit(error ? 1 : 0);
}
