/* Orders to the root process: a lane, to be a nursery, the end. An input is a packet, and a byte
 * before it, how many fds come with it. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "../../src/_sandcore/helper/root.c"

#include <setjmp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "packet.h"

static int caller, null;
static jmp_buf away;
static const char *gone; /* where the root would not have come back from */

/* All is real but the lane. */
long sys_call(long nr, long a, long b, long c, long d, long e, long f)
{
    return nr == SYS_clone ? 1000 : sys_call_real(nr, a, b, c, d, e, f);
}

void lane_main(struct helper *helper, int socket)
{
    (void)helper, (void)socket;
    FUZZ_CHECK(!"the root became a lane");
    __builtin_unreachable();
}

void nursery_main(struct helper *helper, uint64_t cookie)
{
    (void)helper, (void)cookie;
    gone = "nursery";
    longjmp(away, 1);
}

void nursery_join(struct helper *helper, uint64_t cookie, const int32_t *fds)
{
    (void)helper, (void)cookie;
    for (int i = 0; i < WIRE_JOINT_FDS; i++) {
        FUZZ_CHECK(fcntl(fds[i], F_GETFD) == FD_CLOEXEC);
    }
    gone = "nursery";
    longjmp(away, 1);
}

void joint_main(struct helper *helper, int socket)
{
    lane_main(helper, socket);
}

void joint_sweep(const struct helper *helper)
{
    (void)helper;
}

void fuzz_start(void)
{
    int pair[2];
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    FUZZ_CHECK(null >= 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    caller = fcntl(pair[1], F_DUPFD_CLOEXEC, 100);
    null = fcntl(null, F_DUPFD_CLOEXEC, 100);
    FUZZ_CHECK(fcntl(pair[0], F_DUPFD_CLOEXEC, 100) >= 0);
    FUZZ_CHECK(dup2(pair[0], HELPER_CONTROL) == HELPER_CONTROL);
    close_range(HELPER_CONTROL + 1, 99, 0);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    static const struct policy_header header; /* no namespaces: a lane is the root's own child */
    struct helper helper = {.policy = {.header = &header}, .children = -1, .supervisor = -1};
    const int32_t fds[WIRE_JOINT_FDS + 1] = {null, null, null, null, null, null, null, null, null};
    unsigned count = size ? data[0] % (WIRE_JOINT_FDS + 2) : 0;
    uint64_t before = fuzz_open_fds();
    int goes_on = 0;
    if (size < 2 || packet_send(caller, data + 1, size - 1, fds, count) != 0) {
        return;
    }
    gone = NULL;
    if (setjmp(away) == 0) {
        helper.signals = dup(null);
        goes_on = take_order(&helper);
    }
    FUZZ_CHECK(!goes_on || (count == 1 && size == 1 + sizeof(struct wire_lane)));
    if (goes_on) {
        /* But the fd of signals, which was made for it. */
        FUZZ_CHECK(fuzz_open_fds() == (before | 1u << (HELPER_CONTROL + 1)));
    }
    close_range(HELPER_CONTROL + 1, 99, 0);
}
