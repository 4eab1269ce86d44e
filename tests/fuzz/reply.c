/* What a helper says, as its caller receives it, whatever has become of the helper.
 *
 * An input is a byte, who listens; then packets, each with a byte of how many fds come with it and a
 * byte of half its size. Then the helper ends. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

/* Nobody is to be killed, or waited for, by what an input says. */
static int fuzz_kill(pid_t pid, int number)
{
    FUZZ_CHECK(pid > 0 && number == SIGKILL);
    return 0;
}

static int fuzz_waitid(idtype_t kind, id_t which, siginfo_t *info, int options)
{
    (void)kind, (void)which, (void)info, (void)options;
    errno = ECHILD;
    return -1;
}

#define kill fuzz_kill
#define waitid fuzz_waitid
#include "../../src/_sandcore/core/client.c"
#include "../../src/_sandcore/core/direct.c"
#undef kill
#undef waitid

#include "run.h"

static int null;

void fuzz_start(void)
{
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    FUZZ_CHECK(null >= 0);
}

static void send_all(int helper, struct fuzz_bytes *left)
{
    const int32_t fds[WIRE_MAX_FDS] = {null, null, null, null, null, null};
    while (left->end - left->at > 2) {
        unsigned count = *left->at++ % 7;
        size_t size = 2u * *left->at++, most = (size_t)(left->end - left->at);
        size = size < most ? size : most;
        if (size > 0 && packet_send(helper, left->at, size, fds, count) != 0) {
            return;
        }
        left->at += size;
    }
}

static void check_fds(const int32_t *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (fds[i] >= 0) {
            FUZZ_CHECK(fcntl(fds[i], F_GETFD) == FD_CLOEXEC);
            close(fds[i]);
        }
    }
}

static void run_command(int socket, int helper, struct fuzz_bytes *left)
{
    static const struct wire_run request = {.kind = WIRE_RUN};
    struct run_setup setup = {.lane = socket,
                              .request = (const uint8_t *)&request,
                              .request_size = sizeof request,
                              .input = (const uint8_t *)"input",
                              .input_len = 5,
                              .stdin_fd = -1,
                              .stdout_fd = -1,
                              .stderr_fd = -1,
                              .out_cap = 16,
                              .err_cap = 16,
                              .deadline_ns = packet_now()};
    struct run run;
    char taken[sizeof request];
    int progress = run_start(&setup, &run);
    recv(helper, taken, sizeof taken, 0); /* and with it goes the command's end of each pipe */
    send_all(helper, left);
    shutdown(helper, SHUT_WR);
    while (progress == 0 || progress == RUN_SIGNAL) {
        progress = run_step(&run);
    }
    FUZZ_CHECK(progress == RUN_DONE ? run.reply.kind == WIRE_DONE || run.reply.kind == WIRE_FAILED
                                    : progress < 0);
    for (uint32_t i = 0; progress == RUN_DONE && i < run.reply.attempts; i++) {
        FUZZ_CHECK(run.attempts[i].size <= WIRE_ADDRESS_BYTES);
    }
    run_free(&run);
}

static void spawn(int socket, int helper, struct fuzz_bytes *left)
{
    static const struct wire_run request = {.kind = WIRE_RUN};
    struct client client = {.control = socket, .pidfd = -1};
    struct stage_report report;
    const int32_t fds[3] = {null, null, null};
    int32_t pid = 0, pidfd;
    send_all(helper, left);
    shutdown(helper, SHUT_WR);
    int error = client_spawn(&client, (const uint8_t *)&request, sizeof request, fds, 3, &pid,
                             &pidfd, &report);
    FUZZ_CHECK(error == 0 ? pid > 0 && pidfd >= 0 : error < 0 && pidfd < 0);
    check_fds(&pidfd, 1);
}

static void launch(int socket, int helper, struct fuzz_bytes *left)
{
    static const struct wire_run request = {.kind = WIRE_RUN};
    struct wire_reply reply = {0};
    int32_t fds[3] = {null, null, null}, pidfd;
    send_all(helper, left);
    shutdown(helper, SHUT_WR);
    int error =
        run_launch(socket, (const uint8_t *)&request, sizeof request, fds, 3, &reply, &pidfd);
    FUZZ_CHECK(error == 0 ? reply.kind == WIRE_STARTED : error < 0 || reply.kind == WIRE_FAILED);
    check_fds(&pidfd, 1);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct fuzz_bytes left = {data, data + size};
    struct wire_reply reply = {0};
    int32_t fds[WIRE_MAX_SCRATCH] = {-1, -1, -1, -1};
    uint64_t before = fuzz_open_fds();
    int pair[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    switch (fuzz_take(&left) % 4) {
    case 0:
        send_all(pair[1], &left);
        shutdown(pair[1], SHUT_WR);
        if (client_receive_ready(pair[0], &reply, fds, WIRE_MAX_SCRATCH) == 0) {
            FUZZ_CHECK(reply.kind == WIRE_READY && reply.report.stage == STAGE_NONE);
        }
        check_fds(fds, WIRE_MAX_SCRATCH);
        break;
    case 1:
        run_command(pair[0], pair[1], &left);
        break;
    case 2:
        spawn(pair[0], pair[1], &left);
        break;
    default:
        launch(pair[0], pair[1], &left);
        break;
    }
    close(pair[0]);
    close(pair[1]);
    FUZZ_CHECK(fuzz_open_fds() == before);
}
