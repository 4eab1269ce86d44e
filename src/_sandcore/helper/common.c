/* What root and lanes share: ending a tree, and packets. */
#define _GNU_SOURCE
#include "helper.h"
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

void helper_exit(int status)
{
    for (;;) {
        SYS_1(SYS_exit_group, status);
    }
}

int64_t helper_now(void)
{
    struct timespec now = {0};
    SYS_2(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void helper_add_usage(struct wire_usage *sum, const struct rusage *one)
{
    sum->user_us += (uint64_t)one->ru_utime.tv_sec * 1000000u + (uint64_t)one->ru_utime.tv_usec;
    sum->system_us += (uint64_t)one->ru_stime.tv_sec * 1000000u + (uint64_t)one->ru_stime.tv_usec;
    if ((uint64_t)one->ru_maxrss > sum->max_rss_kib) {
        sum->max_rss_kib = (uint64_t)one->ru_maxrss;
    }
    sum->minor_faults += (uint64_t)one->ru_minflt;
    sum->major_faults += (uint64_t)one->ru_majflt;
    sum->in_blocks += (uint64_t)one->ru_inblock;
    sum->out_blocks += (uint64_t)one->ru_oublock;
    sum->voluntary_switches += (uint64_t)one->ru_nvcsw;
    sum->involuntary_switches += (uint64_t)one->ru_nivcsw;
}

int helper_raise_fds(uint64_t before[2])
{
    long error = SYS_4(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, before);
    const uint64_t most[2] = {before[1], before[1]};
    return error ? (int)error : (int)SYS_4(SYS_prlimit64, 0, RLIMIT_NOFILE, most, 0);
}

int helper_restore_fds(const uint64_t before[2])
{
    return (int)SYS_4(SYS_prlimit64, 0, RLIMIT_NOFILE, before, 0);
}

int helper_prove_scope(int32_t outsider)
{
    return SYS_2(SYS_kill, outsider, 0) == -EPERM;
}

int helper_open_children(void)
{
    return (int)SYS_4(SYS_openat, AT_FDCWD, "/proc/thread-self/children", O_RDONLY | O_CLOEXEC, 0);
}

/* Without a signal scope: the direct children by name. As a subreaper this process inherits the
 * children of those that die, so that rounds of this reach everything that does not outrun them. */
static void kill_children(const struct helper *helper)
{
    char list[4096];
    long size =
        helper->children < 0 ? 0 : SYS_4(SYS_pread64, helper->children, list, sizeof list, 0);
    int32_t pid = 0;
    for (long i = 0; i < size; i++) {
        if (list[i] >= '0' && list[i] <= '9') {
            pid = pid * 10 + (list[i] - '0');
        } else if (pid > 1) {
            SYS_2(SYS_kill, pid, SIGKILL);
            pid = 0;
        }
    }
}

int helper_is_stop(int32_t status)
{
    return (status & 0xff) == 0x7f;
}

/* With a scope one call is enough: the kernel signals under the lock that fork needs, and a fork of
 * a process with a fatal signal pending fails. */
uint32_t helper_sweep(const struct helper *helper, int32_t leader, int32_t *leader_status,
                      struct wire_usage *usage)
{
    uint32_t reaped = 0;
    if (helper->scoped) {
        SYS_2(SYS_kill, -1, SIGKILL);
    }
    for (;;) {
        int32_t status = 0;
        struct rusage one;
        if (!helper->scoped) {
            kill_children(helper);
        }
        long pid = SYS_4(SYS_wait4, -1, &status, __WALL, &one);
        if (pid == -EINTR) {
            continue;
        }
        if (pid <= 0) {
            return reaped;
        }
        if (helper_is_stop(status)) {
            continue;
        }
        reaped++;
        if (pid == leader && leader_status) {
            *leader_status = status;
        }
        if (usage) {
            helper_add_usage(usage, &one);
        }
    }
}

static int send_message(int socket, struct iovec *parts, size_t part_count, const int32_t *fds,
                        unsigned count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int32_t) * WIRE_MAX_FDS)];
    } control = {.header = {.cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS,
                            .cmsg_len = CMSG_LEN(sizeof(int32_t) * count)}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = part_count};
    if (count > 0 && count <= WIRE_MAX_FDS) {
        memcpy(CMSG_DATA(&control.header), fds, sizeof *fds * count);
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(sizeof(int32_t) * count);
    }
    long sent = SYS_3(SYS_sendmsg, socket, &message, MSG_NOSIGNAL);
    return sent < 0 ? (int)sent : 0;
}

int helper_send_bytes(int socket, const void *bytes, size_t size, const int32_t *fds,
                      unsigned count)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    return send_message(socket, &part, 1, fds, count);
}

void helper_send(int socket, const struct wire_reply *reply, const int32_t *fds, unsigned count)
{
    int error = helper_send_bytes(socket, reply, sizeof *reply, fds, count);
    if (error && count > 0) {
        helper_send_bytes(socket, reply, sizeof *reply, 0, 0);
    }
}

void helper_send_done(int socket, const struct wire_reply *reply,
                      const struct wire_attempt *attempts)
{
    struct iovec parts[2] = {
        {.iov_base = (void *)(uintptr_t)reply, .iov_len = sizeof *reply},
        {.iov_base = (void *)(uintptr_t)attempts, .iov_len = reply->attempts * sizeof *attempts}};
    send_message(socket, parts, 2, 0, 0);
}

int helper_has_namespaces(const struct helper *helper)
{
    /* A policy that could not be read has none. */
    return helper->policy.header && (helper->policy.header->flags & POLICY_NAMESPACES) != 0;
}

void helper_send_ready(const struct helper *helper, int fd, const struct stage_report *report,
                       const int32_t *fds, unsigned count)
{
    struct wire_reply reply = {
        .kind = WIRE_READY,
        .pid = (int32_t)SYS_0(SYS_getpid),
        .report = *report,
        .scoped = (uint32_t)helper->scoped,
        .unwatched = helper->masks.unwatched + helper->dock.masks.unwatched,
    };
    helper_send(fd, &reply, fds, count);
}

static void take_fds(struct msghdr *message, int32_t *fds, unsigned max)
{
    struct cmsghdr *control = CMSG_FIRSTHDR(message);
    if (control == NULL || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) {
        return;
    }
    size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int32_t);
    for (size_t i = 0; i < count && i < max; i++) {
        memcpy(&fds[i], CMSG_DATA(control) + i * sizeof(int32_t), sizeof(int32_t));
    }
}

long helper_receive(int fd, void *buffer, size_t size, int32_t *fds, unsigned max)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int32_t) * WIRE_MAX_FDS)];
    } control;
    struct iovec part = {.iov_base = buffer, .iov_len = size};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             /* Not CMSG_SPACE: its padding has room for one fd more. */
                             .msg_controllen = CMSG_LEN(sizeof(int32_t) * max)};
    for (unsigned i = 0; i < max; i++) {
        fds[i] = -1;
    }
    long received;
    do {
        received = SYS_3(SYS_recvmsg, fd, &message, MSG_CMSG_CLOEXEC);
    } while (received == -EINTR);
    if (received > 0) {
        take_fds(&message, fds, max);
        if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
            received = -EMSGSIZE;
        }
    }
    return received;
}
