/* Starting, asking and closing the helper; see client.h. */
#define _GNU_SOURCE
#include "client.h"

#include "packet.h"
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

/* Generous: a machine under full load is slow, not broken. */
static const int64_t start_patience_ns = INT64_C(20) * 1000000000;
static const int64_t end_patience_ns = INT64_C(5) * 1000000000;

static void close_fd(int32_t *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

static long kill_process(int pidfd)
{
    return syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

int client_receive_ready(int socket, struct wire_reply *ready, int32_t *fds, unsigned max)
{
    int64_t deadline = packet_now() + start_patience_ns;
    int error = packet_receive_fds(socket, ready, fds, max); /* of a workspace it often is there */
    while (error == -EAGAIN || error == -EINTR) {
        error = packet_await(socket, deadline);
        error = error ? error : packet_receive_fds(socket, ready, fds, max);
    }
    if (error == 0 && ready->kind != WIRE_READY) {
        error = -EPROTO;
    }
    if (error == 0 && ready->report.stage != STAGE_NONE) {
        /* A failure stays one, whatever number comes with it. */
        error = ready->report.error > 0 ? -ready->report.error : -EPROTO;
    }
    return error;
}

static int make_memfd(const void *blob, size_t size)
{
    int fd = memfd_create("sandcore-policy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -errno;
    }
    if (write(fd, blob, size) != (ssize_t)size ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0) {
        int error = errno ? -errno : -EIO;
        close(fd);
        return error;
    }
    return fd;
}

/* What the root process inherits, in the order of enum helper_fds. */
struct inheritance {
    int32_t null, control[2], policy, caller, ruleset;
};

static void close_inheritance(struct inheritance *fds)
{
    close_fd(&fds->null);
    close_fd(&fds->control[1]);
    close_fd(&fds->policy);
    close_fd(&fds->caller);
    close_fd(&fds->ruleset);
}

static int gather(const void *blob, size_t size, struct inheritance *fds,
                  struct stage_report *report)
{
    struct policy_view view;
    report->stage = STAGE_HELPER;
    int error = policy_open(blob, size, &view);
    if (error == 0 && view.header->flags & POLICY_LANDLOCK) {
        report->stage = STAGE_LANDLOCK;
        fds->ruleset = policy_ruleset(&view, &report->detail);
        error = fds->ruleset < 0 ? fds->ruleset : 0;
    }
    if (error == 0) {
        report->stage = STAGE_HELPER;
        fds->policy = make_memfd(blob, size);
        error = fds->policy < 0 ? fds->policy : 0;
    }
    if (error == 0) {
        fds->null = open("/dev/null", O_RDWR | O_CLOEXEC);
        fds->caller = (int32_t)syscall(SYS_pidfd_open, getpid(), 0);
        if (fds->null < 0 || fds->caller < 0 ||
            socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds->control) < 0) {
            error = -errno;
        }
    }
    return error;
}

static int exec_helper(const char *helper, const struct inheritance *fds, struct client *out,
                       struct stage_report *report)
{
    const char *programs[] = {helper, NULL};
    char *argv[] = {(char *)(uintptr_t)"sandcore-helper", NULL};
    char *envp[] = {NULL};
    struct plan plan = {
        .programs = programs,
        .argv = argv,
        .envp = envp,
        .fds = {fds->null, fds->null, fds->null, fds->control[1], fds->policy, fds->caller,
                fds->ruleset},
        .fd_count = fds->ruleset >= 0 ? 7 : 6,
        .umask = -1,
        .ruleset = -1,
    };
    int error = spawn_child(&plan, &out->pid, &out->pidfd);
    if (error) {
        *report = plan.report;
    }
    return error;
}

/* A caller that has closed its streams hands 0, 1 and 2 to commands all the same: none is ours. */
static int leave_streams(int32_t *fd)
{
    int32_t before = *fd;
    if (before > 2) {
        return 0;
    }
    *fd = fcntl(before, F_DUPFD_CLOEXEC, 3);
    int error = *fd < 0 ? -errno : 0;
    close(before);
    return error;
}

static int give_up(struct client *client, int error, struct stage_report *report)
{
    report->error = -error;
    client_close(client);
    return error;
}

int client_start(const char *helper, const void *blob, size_t size, struct client *out,
                 struct stage_report *report)
{
    struct inheritance fds = {-1, {-1, -1}, -1, -1, -1};
    *report = (struct stage_report){.detail = -1};
    *out =
        (struct client){.control = -1, .pidfd = -1, .owner = getpid(), .scratch = {-1, -1, -1, -1}};
    int error = gather(blob, size, &fds, report);
    if (error == 0) {
        error = exec_helper(helper, &fds, out, report);
    }
    out->control = fds.control[0];
    close_inheritance(&fds);
    error = error ? error : leave_streams(&out->control);
    error = error ? error : leave_streams(&out->pidfd);
    return error ? give_up(out, error, report) : 0;
}

int client_await(struct client *client, struct stage_report *report)
{
    struct wire_reply ready = {.report = {.detail = -1}};
    *report = (struct stage_report){.stage = STAGE_HELPER, .detail = -1};
    int error = client_receive_ready(client->control, &ready, client->scratch, WIRE_MAX_SCRATCH);
    if (error) {
        *report = ready.report.stage != STAGE_NONE ? ready.report : *report;
        return give_up(client, error, report);
    }
    client->scoped = ready.scoped != 0;
    client->unwatched = ready.unwatched;
    report->stage = STAGE_NONE;
    return 0;
}

static int order(const struct client *client, uint32_t kind, uint32_t processes)
{
    int pair[2];
    struct wire_lane order = {.kind = kind, .processes = processes};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return -errno;
    }
    int32_t theirs = pair[1];
    int error = packet_send(client->control, &order, sizeof order, &theirs, 1);
    close(pair[1]);
    error = error ? error : leave_streams(&pair[0]);
    if (error && pair[0] >= 0) {
        close(pair[0]);
    }
    return error ? error : pair[0];
}

int client_order_lane(const struct client *client, uint32_t processes)
{
    return order(client, WIRE_LANE, processes);
}

int client_await_lane(int lane, struct wire_reply *ready)
{
    memset(ready, 0, sizeof *ready);
    ready->report.stage = STAGE_LANE;
    int error = lane < 0 ? lane : client_receive_ready(lane, ready, NULL, 0);
    if (error && lane >= 0) {
        close(lane);
    }
    return error ? error : lane;
}

int client_join(const struct client *client, uint32_t processes, int32_t fds[WIRE_JOINT_FDS],
                struct wire_reply *ready)
{
    memset(ready, 0, sizeof *ready);
    memset(fds, 0xff, WIRE_JOINT_FDS * sizeof *fds);
    ready->report.stage = STAGE_LANE;
    int joint = order(client, WIRE_JOIN, processes);
    int error = joint < 0 ? joint : client_receive_ready(joint, ready, fds, WIRE_JOINT_FDS);
    if (error == 0 && fds[WIRE_JOINT_FDS - 1] < 0) {
        error = -EMFILE;
    }
    if (error) {
        for (unsigned i = 0; i < WIRE_JOINT_FDS; i++) {
            close_fd(&fds[i]);
        }
        close_fd(&joint);
    }
    return error ? error : joint;
}

int client_direct(struct client *client, uint64_t cookie, const int32_t *fds,
                  struct wire_reply *ready)
{
    struct wire_direct order = {.kind = WIRE_DIRECT, .joins = fds != NULL, .cookie = cookie};
    memset(ready, 0, sizeof *ready);
    ready->report.stage = STAGE_LANE;
    int error = packet_send(client->control, &order, sizeof order, fds, fds ? WIRE_JOINT_FDS : 0);
    return error ? error : client_receive_ready(client->control, ready, NULL, 0);
}

/* Waits for the process's end, whatever signals come. */
static int has_ended(int pidfd)
{
    int64_t deadline = packet_now() + end_patience_ns;
    int error;
    do {
        error = packet_await(pidfd, deadline);
    } while (error == -EINTR);
    return error == 0;
}

/* Shutdown reaches the root process even where a fork of ours holds copies of the socket. It ends
 * its tree first; one that was stopped, or hangs, is killed, and its lanes see to what is left. */
int client_end(const struct client *client)
{
    siginfo_t info = {0};
    if (client->owner != getpid()) {
        return 1;
    }
    if (client->control >= 0) {
        uint32_t kind = WIRE_CLOSE;
        send(client->control, &kind, sizeof kind, MSG_DONTWAIT | MSG_NOSIGNAL);
        shutdown(client->control, SHUT_RDWR);
    }
    if (client->pidfd >= 0 && (has_ended(client->pidfd) ||
                               (kill_process(client->pidfd) == 0 && has_ended(client->pidfd)))) {
        waitid((idtype_t)P_PIDFD, (id_t)client->pidfd, &info, WEXITED | WNOHANG);
    }
    return info.si_code == 0 || (info.si_code == CLD_EXITED && info.si_status != HELPER_DUE);
}

void client_close(struct client *client)
{
    client_end(client);
    close_fd(&client->control);
    close_fd(&client->pidfd);
    for (unsigned i = 0; i < WIRE_MAX_SCRATCH; i++) {
        close_fd(&client->scratch[i]);
    }
}

int client_joint_is_lost(int joint)
{
    return packet_await(joint, 0) == 0; /* it says nothing before its end */
}

void client_end_joint(const struct client *nursery, int joint)
{
    uint32_t kind = WIRE_KILL;
    if (nursery->owner == getpid()) {
        packet_send(joint, &kind, sizeof kind, NULL, 0);
        client_end(nursery);
        shutdown(joint, SHUT_WR);
        int64_t deadline = packet_now() + end_patience_ns;
        while (packet_await(joint, deadline) == -EINTR) {
        }
    }
    close(joint);
}

/* One direction only: the lane closes the other when all is done. */
void client_end_lane(int lane)
{
    shutdown(lane, SHUT_WR);
}
