/* See run.h. Who ends what: the lane ends trees, because only it can reach all of one; this side
 * decides when, because only it sees the output and the clock. */
#define _GNU_SOURCE
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct ends {
    int32_t command[3]; /* what the command gets */
    int owned[3];       /* ... and we must close, having made it */
    int ours[3];        /* the other end, -1: none */
};

static int make_pipe(struct ends *ends, int stream)
{
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) < 0) {
        return -errno;
    }
    ends->command[stream] = stream == 0 ? pair[0] : pair[1];
    ends->ours[stream] = stream == 0 ? pair[1] : pair[0];
    ends->owned[stream] = 1;
    return 0;
}

static int make_ends(const struct run_setup *setup, struct ends *ends)
{
    int given[3] = {setup->input ? -1 : setup->stdin_fd, setup->stdout_fd, setup->stderr_fd};
    for (int i = 0; i < 3; i++) {
        ends->command[i] = given[i];
        ends->ours[i] = -1;
        ends->owned[i] = 0;
    }
    for (int i = 0; i < 3; i++) {
        int error = given[i] < 0 ? make_pipe(ends, i) : 0;
        if (error) {
            return error;
        }
    }
    return 0;
}

/* The ends that were made for the command, once it has them. Those of its outputs are kept open
 * while its leader runs: else the exit of the usual command wakes the caller twice, by each end of
 * stream, just before the lane's one reply, and on the same core interrupts that exit. */
static void pass_on(struct run *run, struct ends *ends)
{
    for (int i = 0; i < 3; i++) {
        if (ends->owned[i] && i == 0) {
            close(ends->command[i]);
        } else if (ends->owned[i]) {
            run->held[i - 1] = ends->command[i];
        }
    }
}

/* From here on the ends of the streams are to be seen. */
static void close_held(struct run *run)
{
    for (int i = 0; i < 2; i++) {
        if (run->held[i] >= 0) {
            close(run->held[i]);
            run->held[i] = -1;
        }
    }
}

static void close_our_ends(struct ends *ends)
{
    for (int i = 0; i < 3; i++) {
        if (ends->ours[i] >= 0) {
            close(ends->ours[i]);
        }
    }
}

/* What it means that a request could not be sent: as run_start. */
static int not_sent(int error, struct wire_reply *reply)
{
    if (error == 0 || error == -EPIPE) {
        return error;
    }
    reply->kind = WIRE_FAILED;
    reply->report = (struct stage_report){.stage = STAGE_REQUEST, .error = -error};
    return RUN_DONE;
}

int run_start(const struct run_setup *setup, struct run *run)
{
    struct ends ends;
    memset(run, 0, sizeof *run);
    run->lane = setup->lane;
    run->held[0] = run->held[1] = -1;
    run->deadline_ns = setup->deadline_ns;
    run->drain_until_ns = run->kill_until_ns = INT64_MAX;
    int error = make_ends(setup, &ends);
    if (error == 0) {
        struct pump_setup streams = {
            .in_fd = ends.ours[0],
            .input = setup->input,
            .input_len = setup->input_len,
            .out_fd = ends.ours[1],
            .err_fd = ends.ours[2],
            .watch_fd = setup->lane,
            .out_cap = setup->out_cap,
            .err_cap = setup->err_cap,
        };
        error = pump_new(&streams, &run->pump);
    }
    if (run->pump == NULL) {
        close_our_ends(&ends);
    }
    if (error == 0) {
        error =
            packet_send_request(setup->lane, setup->request, setup->request_size, ends.command, 3);
    }
    pass_on(run, &ends);
    return not_sent(error, &run->reply);
}

int run_launch(int lane, const uint8_t *request, size_t size, const int32_t *fds, unsigned fd_count,
               struct wire_reply *reply, int32_t *pidfd)
{
    int64_t deadline = packet_now() + RUN_START_PATIENCE_NS;
    *pidfd = -1;
    int error = not_sent(packet_send_request(lane, request, size, fds, fd_count), reply);
    if (error) {
        return error;
    }
    do { /* a signal is no reason to give up a start that takes a millisecond */
        error = packet_receive_fd(lane, deadline, reply, pidfd);
    } while (error == -EINTR);
    if (error == 0 && reply->kind == WIRE_FAILED) {
        return RUN_DONE;
    }
    return error == 0 && reply->kind != WIRE_STARTED ? -EPROTO : error;
}

int run_kill(struct run *run)
{
    uint32_t kind = WIRE_KILL;
    if (run->kill_until_ns != INT64_MAX) {
        return 0;
    }
    run->kill_until_ns = packet_now() + RUN_KILL_PATIENCE_NS;
    run->killed = 1;
    return packet_send(run->lane, &kind, sizeof kind, NULL, 0);
}

/* The leader has ended and nothing more is to be expected: what is left of its tree goes. */
static int sweep(struct run *run)
{
    uint32_t kind = WIRE_SWEEP;
    run->drain_until_ns = INT64_MAX;
    run->kill_until_ns = packet_now() + RUN_KILL_PATIENCE_NS;
    return packet_send(run->lane, &kind, sizeof kind, NULL, 0);
}

/* A packet from the lane: RUN_DONE, 0 to go on, or a negative errno. */
static int take_reply(struct run *run)
{
    int error = packet_receive(run->lane, packet_now(), &run->reply, run->attempts);
    if (error == -EINTR || error == -ETIMEDOUT) {
        return 0;
    }
    if (error) {
        return error;
    }
    switch (run->reply.kind) {
    case WIRE_EXITED:
        if (run->kill_until_ns == INT64_MAX) { /* else it is being killed already */
            run->leader_ended = 1;
            close_held(run);
            run->drain_until_ns = packet_now() + RUN_DRAIN_LIMIT_NS;
        }
        return 0;
    case WIRE_DONE:
        error = pump_drain(run->pump);
        return error ? error : RUN_DONE;
    case WIRE_FAILED:
        return RUN_DONE;
    default:
        return -EPROTO;
    }
}

static int64_t next_deadline(const struct run *run)
{
    if (run->kill_until_ns != INT64_MAX) {
        return run->kill_until_ns;
    }
    return run->leader_ended ? run->drain_until_ns : run->deadline_ns;
}

static int take_deadline(struct run *run)
{
    if (run->kill_until_ns != INT64_MAX) {
        return -ETIMEDOUT; /* killed, and still not gone: the lane is lost */
    }
    if (run->leader_ended) {
        run->drained_early = 1;
        return sweep(run);
    }
    run->timed_out = 1;
    return run_kill(run);
}

static int take_event(struct run *run, int event)
{
    switch (event) {
    case PUMP_WATCH:
        return take_reply(run);
    case PUMP_CLOSED:
        run->streams_ended = 1;
        return 0;
    case PUMP_DEADLINE:
        return take_deadline(run);
    case PUMP_SILENCE:
        run->drained_early = 1;
        return sweep(run);
    case PUMP_SIGNAL:
        return RUN_SIGNAL;
    default:
        return event < 0 ? event : -EPROTO;
    }
}

static int is_draining(const struct run *run)
{
    return run->leader_ended && run->kill_until_ns == INT64_MAX;
}

static int64_t silence_of(const struct run *run)
{
    return is_draining(run) ? RUN_DRAIN_SILENCE_NS : INT64_MAX;
}

int run_step(struct run *run)
{
    int result = 0;
    while (result == 0) {
        if (is_draining(run) && run->streams_ended) {
            result = sweep(run);
        } else {
            result = take_event(run, pump_wait(run->pump, next_deadline(run), silence_of(run)));
        }
    }
    return result;
}

int run_look(struct run *run, int64_t *next_ns)
{
    int result = 0;
    while (result == 0) {
        if (is_draining(run) && run->streams_ended) {
            result = sweep(run);
            continue;
        }
        int event = pump_look(run->pump, next_deadline(run), silence_of(run), next_ns);
        if (event == 0) {
            return 0;
        }
        result = take_event(run, event);
    }
    return result;
}

void run_free(struct run *run)
{
    close_held(run);
    pump_free(run->pump);
    run->pump = NULL;
}
