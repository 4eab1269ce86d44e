/* Packets of the wire protocol, sent and received; see wire.h. */
#define _GNU_SOURCE
#include "packet.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int64_t packet_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int packet_send(int socket, const void *packet, size_t size, const int32_t *fds, unsigned fd_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int32_t) * WIRE_MAX_FDS)];
    } control;
    struct iovec part = {.iov_base = (void *)(uintptr_t)packet, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > WIRE_MAX_FDS) {
        return -EINVAL;
    }
    if (fd_count > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(sizeof(int32_t) * fd_count);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int32_t) * fd_count);
        memcpy(CMSG_DATA(header), fds, sizeof(int32_t) * fd_count);
    }
    ssize_t sent;
    do {
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
        return errno == ECONNRESET ? -EPIPE : -errno;
    }
    return (size_t)sent == size ? 0 : -EPROTO;
}

static int write_all(int fd, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t written = write(fd, bytes, size);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return -errno;
        }
        bytes += written;
        size -= (size_t)written;
    }
    return 0;
}

static int send_in_memfd(int socket, const uint8_t *request, const int32_t *fds, unsigned fd_count)
{
    struct wire_run header;
    int32_t all[WIRE_MAX_FDS];
    memcpy(&header, request, sizeof header);
    if (fd_count >= WIRE_MAX_FDS) {
        return -EINVAL;
    }
    int memfd = memfd_create("sandcore-request", MFD_CLOEXEC);
    if (memfd < 0) {
        return -errno;
    }
    header.flags |= WIRE_IN_MEMFD;
    memcpy(all, fds, fd_count * sizeof *fds);
    all[fd_count] = memfd;
    int error = write_all(memfd, request + sizeof header, header.body);
    if (error == 0) {
        error = packet_send(socket, &header, sizeof header, all, fd_count + 1);
    }
    close(memfd);
    return error;
}

int packet_send_request(int socket, const uint8_t *request, size_t size, const int32_t *fds,
                        unsigned fd_count)
{
    if (size < sizeof(struct wire_run)) {
        return -EINVAL;
    }
    if (size > sizeof(struct wire_run) + WIRE_MAX_INLINE) {
        return send_in_memfd(socket, request, fds, fd_count);
    }
    return packet_send(socket, request, size, fds, fd_count);
}

int packet_await(int socket, int64_t deadline_ns)
{
    struct pollfd event = {.fd = socket, .events = POLLIN};
    struct timespec left = {0};
    if (deadline_ns != INT64_MAX) {
        int64_t rest = deadline_ns - packet_now();
        left.tv_sec = rest > 0 ? rest / 1000000000 : 0;
        left.tv_nsec = rest > 0 ? rest % 1000000000 : 0;
    }
    int ready = ppoll(&event, 1, deadline_ns == INT64_MAX ? NULL : &left, NULL);
    if (ready < 0) {
        return -errno;
    }
    return ready == 0 ? -ETIMEDOUT : 0;
}

static void take_fds(struct msghdr *message, int32_t *fds, unsigned max)
{
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int32_t);
        memcpy(fds, CMSG_DATA(header), sizeof(int32_t) * (count < max ? count : max));
    }
}

int packet_receive_fds(int socket, struct wire_reply *reply, int32_t *fds, unsigned max)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int32_t) * WIRE_MAX_FDS)];
    } control;
    struct iovec part = {.iov_base = reply, .iov_len = sizeof *reply};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             /* Not CMSG_SPACE: in its padding the kernel would find room for one
                              * fd more, which nobody would close. */
                             .msg_controllen = CMSG_LEN(sizeof(int32_t) * max)};
    for (unsigned i = 0; i < max; i++) {
        fds[i] = -1;
    }
    ssize_t size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (size < 0 && errno == ECONNRESET) {
        /* It ended with a packet of ours unread. That is told once, before what it had said. */
        size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    }
    if (size > 0) {
        take_fds(&message, fds, max);
    }
    if (size <= 0) {
        return size == 0 || errno == ECONNRESET ? -EPIPE : -errno;
    }
    return size == sizeof *reply ? 0 : -EPROTO;
}

int packet_receive(int socket, int64_t deadline_ns, struct wire_reply *reply,
                   struct wire_attempt *attempts)
{
    struct iovec parts[2] = {
        {.iov_base = reply, .iov_len = sizeof *reply},
        {.iov_base = attempts, .iov_len = WIRE_MAX_ATTEMPTS * sizeof *attempts}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t size = recvmsg(socket, &message, MSG_DONTWAIT);
    if (size < 0 && errno == EAGAIN) {
        int error = packet_await(socket, deadline_ns);
        if (error) {
            return error;
        }
        size = recvmsg(socket, &message, MSG_DONTWAIT);
    }
    if (size < 0) {
        return errno == ECONNRESET ? -EPIPE : -errno;
    }
    if (size == 0) {
        return -EPIPE;
    }
    if (size < (ssize_t)sizeof *reply || reply->attempts > WIRE_MAX_ATTEMPTS) {
        return -EPROTO;
    }
    for (uint32_t i = 0; i < reply->attempts; i++) {
        if (attempts[i].size > WIRE_ADDRESS_BYTES) {
            return -EPROTO;
        }
    }
    size_t expected = sizeof *reply + reply->attempts * sizeof *attempts;
    return (size_t)size == expected ? 0 : -EPROTO;
}

int packet_receive_fd(int socket, int64_t deadline_ns, struct wire_reply *reply, int32_t *fd)
{
    *fd = -1;
    int error = packet_await(socket, deadline_ns);
    return error ? error : packet_receive_fds(socket, reply, fd, 1);
}
