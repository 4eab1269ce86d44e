/* Letting a nursery spawn: see client.h, and helper/nursery.c for the other side.
 *
 * A command of the same policy can kill or stop the nursery at any moment. What must never come of
 * it is a command that runs twice, or one that runs after its caller was told that it did not. */
#define _GNU_SOURCE
#include "client.h"
#include "packet.h"
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static const int64_t patience_ns = INT64_C(20) * 1000000000;
/* How often to look whether the nursery was stopped. */
static const int64_t look_ns = INT64_C(100) * 1000000;

static int is_stopped(int pidfd)
{
    siginfo_t info = {0};
    int error = waitid((idtype_t)P_PIDFD, (id_t)pidfd, &info, WSTOPPED | WNOHANG | WNOWAIT);
    return error == 0 && info.si_pid != 0;
}

/* Signals are no reason to lose a child that has been started; that a command has stopped the
 * nursery is. */
static int await_nursery(const struct client *client)
{
    int64_t deadline = packet_now() + patience_ns;
    int error;
    do {
        int64_t look = packet_now() + look_ns;
        error = packet_await(client->control, look < deadline ? look : deadline);
    } while (error == -EINTR ||
             (error == -ETIMEDOUT && packet_now() < deadline && !is_stopped(client->pidfd)));
    return error;
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
    if (reserved >= 0) {
        close(reserved);
    }
    if (error && error != -EPIPE) {
        *report = (struct stage_report){.stage = STAGE_REQUEST, .error = -error, .detail = -1};
    }
    return error;
}

static void reap(int kind, int32_t which)
{
    siginfo_t info;
    while (waitid((idtype_t)kind, (id_t)which, &info, WEXITED) < 0 && errno == EINTR) {
    }
}

/* A pid that is none would have all processes killed; a failure without a number would be a success. */
static int is_answer(const struct wire_reply *reply)
{
    return reply->kind == WIRE_STARTED ? reply->pid > 0
                                       : reply->kind == WIRE_FAILED && reply->report.error > 0;
}

/* The child is ours by now, even where it did not get as far as the command. */
static int end_child(const struct wire_reply *reply, int32_t *pidfd, struct stage_report *report)
{
    *report = reply->report;
    if (reply->kind == WIRE_STARTED) { /* another thread took the last free number */
        kill(reply->pid, SIGKILL);
        *report = (struct stage_report){.stage = STAGE_REQUEST, .error = EMFILE, .detail = -1};
    }
    if (*pidfd >= 0) {
        reap(P_PIDFD, *pidfd);
        close(*pidfd);
        *pidfd = -1;
    } else if (reply->pid > 0) {
        reap(P_PID, reply->pid);
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
    error = await_nursery(client);
    if (error == 0) {
        error = packet_receive_fd(client->control, INT64_MAX, &reply, pidfd);
    }
    if (error || !is_answer(&reply)) {
        /* One that was stopped must not take it up later. */
        syscall(SYS_pidfd_send_signal, client->pidfd, SIGKILL, NULL, 0);
        if (*pidfd >= 0) {
            close(*pidfd);
            *pidfd = -1;
        }
        return -ECONNABORTED;
    }
    if (reply.kind == WIRE_STARTED && *pidfd >= 0) {
        *pid = reply.pid;
        return 0;
    }
    return end_child(&reply, pidfd, report);
}
