/* One connect, from its notification to its answer. */
#define _GNU_SOURCE
#include "alarm.h"
#include "seccomp.h"
#include "supervisor.h"
#include "sys.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

enum {
    PIDFD_OF_THREAD = O_EXCL, /* PIDFD_THREAD, from Linux 6.9 */
    SHARE_NS = 500000,        /* of a lane, until the others have their turn */
};

/* Who has waited for long is looked at seldom: a blocking connect over the wire may take minutes. */
enum { PATIENCE = 8, SOONEST_NS = 1000000, LATEST_NS = 128000000 };

int rights_drop(const struct supervisor *self)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    return (int)SYS_2(SYS_capset, &header, self->none);
}

void rights_take(const struct supervisor *self)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    SYS_2(SYS_capset, &header, self->rights);
}

static int is_waiting(const struct ward *ward, uint64_t id)
{
    long error;
    do {
        error = SYS_3(SYS_ioctl, ward->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id);
    } while (error == -EINTR);
    return error == 0;
}

/* Only errors and the success of what was done here: never "let the kernel go on". */
static void answer(const struct ward *ward, uint64_t id, int error)
{
    struct seccomp_notif_resp response = {.id = id, .error = error};
    SYS_3(SYS_ioctl, ward->listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

/* Once: what is in the command's memory later is of no interest. */
static int copy_address(struct connect *connect, uint64_t address)
{
    struct {
        void *base;
        size_t size;
    } here = {connect->address, connect->size}, there = {(void *)(uintptr_t)address, connect->size};
    if (connect->size > sizeof connect->address) { /* negative ones too, as the kernel has it */
        return -EINVAL;
    }
    if (connect->size == 0) {
        return 0;
    }
    long size = SYS_6(SYS_process_vm_readv, connect->pid, &here, 1, &there, 1, 0);
    if (size < 0) {
        return size == -EFAULT ? -EFAULT : -EPERM;
    }
    return (uint64_t)size == connect->size ? 0 : -EFAULT;
}

/* Before Linux 6.9 there are no pidfds of threads: that of their process then, whose fds they share. */
static int open_thread(const struct supervisor *self, int32_t pid)
{
    long fd = SYS_2(SYS_pidfd_open, pid, PIDFD_OF_THREAD);
    if (fd == -EINVAL) {
        int64_t process = status_number(self->proc, (uint64_t)pid, "Tgid:", 10);
        fd = process > 0 ? SYS_2(SYS_pidfd_open, process, 0) : -ESRCH;
    }
    return (int)fd;
}

/* The command's socket, for a moment; what the supervisor has no room or right for is refused. */
static int take_socket(const struct supervisor *self, struct connect *connect)
{
    int32_t values[2] = {0}; /* domain, type */
    static const int names[2] = {SO_DOMAIN, SO_TYPE};
    int thread = open_thread(self, connect->pid);
    if (thread < 0) {
        return -EPERM;
    }
    connect->socket = (int32_t)SYS_3(SYS_pidfd_getfd, thread, connect->fd, 0);
    SYS_1(SYS_close, thread);
    if (connect->socket < 0) {
        return connect->socket == -EBADF ? -EBADF : -EPERM;
    }
    for (int i = 0; i < 2; i++) {
        uint32_t size = sizeof values[i];
        long error =
            SYS_5(SYS_getsockopt, connect->socket, SOL_SOCKET, names[i], &values[i], &size);
        if (error < 0) {
            return (int)error; /* ENOTSOCK */
        }
    }
    connect->domain = values[0];
    connect->type = values[1];
    connect->flags = (int32_t)SYS_2(SYS_fcntl, connect->socket, F_GETFL);
    return connect->flags < 0 ? -EPERM : 0;
}

/* A blocking connect waits as long as the socket's own limit says. */
static void set_patience(struct connect *connect)
{
    int64_t span[2] = {0}; /* struct timeval: seconds, microseconds */
    uint32_t size = sizeof span;
    connect->until_ns = INT64_MAX;
    if (SYS_5(SYS_getsockopt, connect->socket, SOL_SOCKET, SO_SNDTIMEO, span, &size) == 0 &&
        (span[0] || span[1]) && span[0] < INT32_MAX) {
        connect->until_ns = connect->since_ns + span[0] * 1000000000 + span[1] * 1000;
    }
}

/* When it is tried next; false: its time is up. */
static int waits(struct connect *connect)
{
    int64_t now = helper_now();
    if (connect->since_ns == 0) {
        connect->since_ns = now;
        set_patience(connect);
    }
    int64_t pause = (now - connect->since_ns) / PATIENCE;
    pause = pause < SOONEST_NS ? SOONEST_NS : pause > LATEST_NS ? LATEST_NS : pause;
    connect->again_ns = now + pause < connect->until_ns ? now + pause : connect->until_ns;
    return now < connect->until_ns;
}

static void note(const struct ward *ward, const struct connect *connect, int error)
{
    struct wire_attempt one = {.error = -error, .type = (uint16_t)connect->type};
    uint32_t size = connect->size < sizeof one.address ? connect->size : sizeof one.address;
    one.size = (uint16_t)size;
    memcpy(one.address, connect->address, size);
    attempts_note(ward->attempts, connect->command, &one);
}

static int attempt_by_kind(struct supervisor *self, const struct ward *ward,
                           struct connect *connect)
{
    int error = take_socket(self, connect);
    if (error) {
        return error;
    }
    if (!is_waiting(ward, connect->id)) {
        return -EPERM; /* the number may be another's by now */
    }
    if (connect->domain == AF_UNIX) {
        return unix_connect(self, ward, connect);
    }
    error = inet_connect(self, connect);
    connect->outside =
        !self->shares_network && error < 0 && error != -EINPROGRESS && inet_is_outside(connect);
    return error;
}

/* Tries it: zero, CONNECT_LATER or a negative errno. Under the clock whatever the socket: to take a
 * copy, to read about an fd and to let go of one may each be the end of a file that sleeps then. */
static int attempt(struct supervisor *self, const struct ward *ward, struct connect *connect)
{
    if (self->alarm < 0) {
        return -EPERM; /* the supervisor would sleep */
    }
    connect->outside = connect->named = connect->domain = 0;
    alarm_begin(self->alarm);
    int error = attempt_by_kind(self, ward, connect);
    if (error == CONNECT_LATER && !waits(connect)) {
        error = connect->domain == AF_UNIX ? -EAGAIN : -EINPROGRESS;
    }
    tree_drop(connect->socket);
    connect->socket = -1;
    alarm_end(self->alarm);
    if (connect->outside) {
        note(ward, connect, error);
    }
    return error;
}

void connect_serve(struct supervisor *self, struct ward *ward)
{
    struct seccomp_notif notice = {0};
    if (SYS_3(SYS_ioctl, ward->listener, SECCOMP_IOCTL_NOTIF_RECV, &notice) < 0) {
        return; /* who asked is dead */
    }
    struct connect *connect = &ward->connects[ward->waiting];
    *connect = (struct connect){.id = notice.id,
                                .pid = (int32_t)notice.pid,
                                .fd = (int32_t)notice.data.args[0],
                                .size = (uint32_t)notice.data.args[2],
                                .command = attempts_current(ward->attempts),
                                .socket = -1};
    int error = copy_address(connect, notice.data.args[1]);
    if (error == 0) {
        error = attempt(self, ward, connect);
    }
    if (error == CONNECT_LATER) {
        int is_next = ward->waiting++ == 0 || connect->again_ns < ward->next_ns;
        ward->next_ns = is_next ? connect->again_ns : ward->next_ns;
    } else {
        answer(ward, notice.id, error);
    }
}

/* While it waits only a fatal signal gets through to the thread (so that what takes no time is not done
 * twice). One for which it has a handler therefore ends the wait, as it ends that of the kernel. */
static int is_signalled(const struct supervisor *self, const struct connect *connect)
{
    static const char *const names[] = {"SigPnd:", "ShdPnd:", "SigBlk:", "SigCgt:"};
    uint64_t masks[4];
    for (int i = 0; i < 4; i++) {
        masks[i] = (uint64_t)status_number(self->proc, (uint64_t)connect->pid, names[i], 16);
    }
    return ((masks[0] | masks[1]) & ~masks[2] & masks[3]) != 0;
}

/* Whether it goes on waiting. */
static int try_again(struct supervisor *self, const struct ward *ward, struct connect *connect)
{
    if (!is_waiting(ward, connect->id)) {
        return 0; /* killed */
    }
    int error = attempt(self, ward, connect);
    if (error == CONNECT_LATER && is_signalled(self, connect)) {
        error = -EINTR;
    }
    if (error != CONNECT_LATER) {
        answer(ward, connect->id, error);
    }
    return error == CONNECT_LATER;
}

/* A command can make one try take milliseconds, by thousands of sockets: a turn is bounded, and the rest
 * is due when the others have had theirs. */
void connect_again(struct supervisor *self, struct ward *ward)
{
    int64_t now = helper_now();
    for (int64_t end_ns = now + SHARE_NS; ward->tried < ward->waiting && now < end_ns;
         now = helper_now()) {
        struct connect *connect = &ward->connects[ward->tried];
        if (connect->again_ns > now || try_again(self, ward, connect)) {
            ward->tried++;
        } else {
            *connect = ward->connects[--ward->waiting];
        }
    }
    if (ward->tried < ward->waiting) {
        ward->next_ns = now;
        return;
    }
    ward->tried = 0;
    ward->next_ns = INT64_MAX;
    for (uint32_t i = 0; i < ward->waiting; i++) {
        int64_t again_ns = ward->connects[i].again_ns;
        ward->next_ns = again_ns < ward->next_ns ? again_ns : ward->next_ns;
    }
}
