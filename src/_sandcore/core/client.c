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

/* As packet_receive, but a signal is no reason to give up a start that takes a millisecond. */
static int receive_ready(int socket, struct wire_reply *ready)
{
    int64_t deadline = packet_now() + start_patience_ns;
    int error;
    do {
        error = packet_receive(socket, deadline, ready);
    } while (error == -EINTR);
    if (error == 0 && ready->kind != WIRE_READY) {
        error = -EPROTO;
    }
    if (error == 0 && ready->report.stage != STAGE_NONE) {
        error = -ready->report.error;
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

int client_start(const char *helper, const void *blob, size_t size, struct client *out,
                 struct stage_report *report)
{
    struct inheritance fds = {-1, {-1, -1}, -1, -1, -1};
    struct wire_reply ready;
    *report = (struct stage_report){.detail = -1};
    *out = (struct client){.control = -1, .pidfd = -1, .owner = getpid()};
    int error = gather(blob, size, &fds, report);
    if (error == 0) {
        error = exec_helper(helper, &fds, out, report);
    }
    out->control = fds.control[0];
    close_inheritance(&fds);
    if (error == 0) {
        error = receive_ready(out->control, &ready);
        out->scoped = error == 0 && ready.scoped != 0;
    }
    if (error) {
        report->error = -error;
        client_close(out);
        return error;
    }
    report->stage = STAGE_NONE;
    return 0;
}

int client_lane(struct client *client, struct wire_reply *ready)
{
    int pair[2];
    uint32_t kind = WIRE_LANE;
    memset(ready, 0, sizeof *ready);
    ready->report.stage = STAGE_LANE;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return -errno;
    }
    int32_t theirs = pair[1];
    int error = packet_send(client->control, &kind, sizeof kind, &theirs, 1);
    close(pair[1]);
    if (error == 0) {
        error = receive_ready(pair[0], ready);
    }
    if (error) {
        close(pair[0]);
        return error;
    }
    return pair[0];
}

int client_direct(struct client *client, uint64_t cookie, struct wire_reply *ready)
{
    struct wire_direct order = {.kind = WIRE_DIRECT, .cookie = cookie};
    memset(ready, 0, sizeof *ready);
    ready->report.stage = STAGE_LANE;
    int error = packet_send(client->control, &order, sizeof order, NULL, 0);
    return error ? error : receive_ready(client->control, ready);
}

/* A reply that brings a pidfd. Signals are no reason to lose a child that has been started. */
static int receive_started(int socket, struct wire_reply *reply, int32_t *pidfd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int32_t))];
    } control;
    struct iovec part = {.iov_base = reply, .iov_len = sizeof *reply};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    int64_t deadline = packet_now() + start_patience_ns;
    int error;
    do {
        error = packet_await(socket, deadline);
    } while (error == -EINTR);
    if (error) {
        return error;
    }
    ssize_t size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    struct cmsghdr *header = size > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    *pidfd = -1;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        memcpy(pidfd, CMSG_DATA(header), sizeof *pidfd);
    }
    if (size <= 0) {
        return size == 0 || errno == ECONNRESET ? -EPIPE : -errno;
    }
    return size == sizeof *reply ? 0 : -EPROTO;
}

/* Sends the request, having made sure of a number for the pidfd that comes back. */
static int order_spawn(struct client *client, const uint8_t *request, size_t size,
                       const int32_t *fds, unsigned fd_count, struct stage_report *report)
{
    int error = spawn_check_fds(fds, fd_count, report);
    if (error) {
        return error;
    }
    int reserved = fcntl(client->control, F_DUPFD_CLOEXEC, 0);
    error =
        reserved < 0 ? -errno : packet_send_request(client->control, request, size, fds, fd_count);
    close_fd(&reserved);
    if (error && error != -EPIPE) {
        *report = (struct stage_report){.stage = STAGE_REQUEST, .error = -error, .detail = -1};
    }
    return error;
}

static void reap(int kind, int32_t which)
{
    siginfo_t info;
    while (waitid((idtype_t)kind, (id_t)which, &info, WEXITED) < 0 && errno == EINTR)
        ;
}

/* The child is ours by now, even where it did not get as far as the command. */
static int end_child(const struct wire_reply *reply, int32_t *pidfd, struct stage_report *report)
{
    *report = reply->report;
    if (*pidfd >= 0) {
        reap(P_PIDFD, *pidfd);
        close_fd(pidfd);
    } else if (reply->kind == WIRE_STARTED) { /* another thread took the last free number */
        kill(reply->pid, SIGKILL);
        reap(P_PID, reply->pid);
        *report = (struct stage_report){.stage = STAGE_REQUEST, .error = EMFILE, .detail = -1};
    }
    return -report->error;
}

int client_spawn(struct client *client, const uint8_t *request, size_t size, const int32_t *fds,
                 unsigned fd_count, int32_t *pid, int32_t *pidfd, struct stage_report *report)
{
    struct wire_reply reply;
    *report = (struct stage_report){.stage = STAGE_NONE};
    *pidfd = -1;
    int error = order_spawn(client, request, size, fds, fd_count, report);
    if (error) {
        return error;
    }
    error = receive_started(client->control, &reply, pidfd);
    if (error) {
        kill_process(client->pidfd); /* one that was stopped must not take it up later */
        close_fd(pidfd);
        return -ECONNABORTED;
    }
    if (reply.kind == WIRE_STARTED && *pidfd >= 0) {
        *pid = reply.pid;
        return 0;
    }
    return end_child(&reply, pidfd, report);
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
void client_end(const struct client *client)
{
    siginfo_t info;
    if (client->owner != getpid()) {
        return;
    }
    if (client->control >= 0) {
        shutdown(client->control, SHUT_RDWR);
    }
    if (client->pidfd >= 0 && (has_ended(client->pidfd) ||
                               (kill_process(client->pidfd) == 0 && has_ended(client->pidfd)))) {
        waitid((idtype_t)P_PIDFD, (id_t)client->pidfd, &info, WEXITED | WNOHANG);
    }
}

void client_close(struct client *client)
{
    client_end(client);
    close_fd(&client->control);
    close_fd(&client->pidfd);
}

/* One direction only: the lane closes the other when all is done. */
void client_end_lane(int lane)
{
    shutdown(lane, SHUT_WR);
}
