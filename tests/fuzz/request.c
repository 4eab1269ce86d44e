/* Requests, as a lane and a nursery receive them: over a real socket, with real fds.
 *
 * An input is a byte, how many fds come with the packet; then the packet, where the header says that
 * the body lies in a file: the header, and then the file. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "../../src/_sandcore/helper/request.c"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int lane, caller, null;

/* All is real but memory: what is mapped ends where it was asked to. */
long sys_call(long nr, long a, long b, long c, long d, long e, long f)
{
    if (nr == SYS_munmap) {
        free((void *)a);
        return 0;
    }
    if (nr != SYS_mmap) {
        return sys_call_real(nr, a, b, c, d, e, f);
    }
    void *at = calloc(1, (size_t)b);
    if (at && (int)e >= 0 && pread((int)e, at, (size_t)b, f) != b) {
        free(at);
        return -EIO;
    }
    return at ? (long)at : -ENOMEM;
}

/* Nothing is started. */
long sys_clone(unsigned long flags, void *stack, int *pidfd, unsigned long tls,
               int (*entry)(void *), void *argument)
{
    (void)flags, (void)stack, (void)pidfd, (void)tls, (void)entry, (void)argument;
    return -EPERM;
}

int child_main(void *plan)
{
    (void)plan;
    return 1;
}

void fuzz_start(void)
{
    int pair[2];
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    FUZZ_CHECK(null >= 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    lane = pair[0];
    caller = pair[1];
}

/* What the caller sends, with one fd more than a lane takes at the most. */
static int send_packet(const uint8_t *packet, size_t size, unsigned count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * (WIRE_MAX_FDS + 1))];
    } control = {.header = {.cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS,
                            .cmsg_len = CMSG_LEN(sizeof(int) * count)}};
    struct wire_run header = {0};
    int fds[WIRE_MAX_FDS + 1], file = -1;
    memcpy(&header, packet, size < sizeof header ? size : sizeof header);
    for (unsigned i = 0; i < count; i++) {
        fds[i] = null;
    }
    if (header.flags & WIRE_IN_MEMFD && size > sizeof header && count > 0) {
        file = memfd_create("fuzz", MFD_CLOEXEC);
        FUZZ_CHECK(write(file, packet + sizeof header, size - sizeof header) > 0);
        fds[count - 1] = file;
        size = sizeof header;
    }
    memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * count);
    struct iovec part = {(void *)(uintptr_t)packet, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    }
    ssize_t sent = sendmsg(caller, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (file >= 0) {
        close(file);
    }
    return sent == (ssize_t)size;
}

static void use_plan(const struct plan *plan)
{
    FUZZ_CHECK(plan->cwd[0] == '/' && plan->programs[0] && plan->argv[0]);
    FUZZ_CHECK(plan->fd_count >= 3 && plan->fd_count <= PLAN_MAX_FDS);
    fuzz_use_text(plan->cwd);
    for (unsigned i = 0; plan->programs[i]; i++) {
        fuzz_use_text(plan->programs[i]);
    }
    for (unsigned i = 0; plan->argv[i]; i++) {
        fuzz_use_text(plan->argv[i]);
    }
    for (unsigned i = 0; plan->envp[i]; i++) {
        fuzz_use_text(plan->envp[i]);
    }
    for (unsigned i = 0; i < plan->limit_count; i++) {
        fuzz_use(&plan->limits[i], sizeof plan->limits[i]);
    }
    for (unsigned i = 0; i < plan->fd_count; i++) {
        FUZZ_CHECK(fcntl(plan->fds[i], F_GETFD) == FD_CLOEXEC);
    }
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct helper helper = {0};
    struct request request;
    uint64_t before = fuzz_open_fds();
    if (size < 2) {
        return; /* an empty packet is the end of a socket */
    }
    if (!send_packet(data + 1, size - 1, data[0] % (WIRE_MAX_FDS + 2))) {
        return;
    }
    int received = request_receive(lane, &request);
    if (received > 0) {
        if (request.plan.report.stage == STAGE_NONE) {
            use_plan(&request.plan);
        }
        request_start(&helper, &request, 0, 0);
        FUZZ_CHECK(request.pid == 0 && request.plan.report.stage != STAGE_NONE);
        request_release(&request);
    } else {
        FUZZ_CHECK(received == 0 || received == -EMSGSIZE);
    }
    FUZZ_CHECK(fuzz_open_fds() == before);
}
