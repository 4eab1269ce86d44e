/* One command in a lane, from request to result: pipes, pump, deadline, and the end of the tree. */
#ifndef SANDCORE_RUN_H
#define SANDCORE_RUN_H

#include "packet.h"
#include "pump.h"

/* How long output may still come after the leader has ended while others of its tree hold the pipe:
 * until it is silent for the first span, and never longer than the second. `exec > >(sleep .4; cat)`
 * must not lose its last line, `server &` must not hang the call. */
#define RUN_DRAIN_SILENCE_NS (INT64_C(1) * 1000000000)
#define RUN_DRAIN_LIMIT_NS (INT64_C(2) * 1000000000)
/* How long a lane may take to answer a request: a machine under full load is slow, not broken. */
#define RUN_START_PATIENCE_NS (INT64_C(20) * 1000000000)
/* How long the kernel may take to end a killed tree before the lane counts as lost. */
#define RUN_KILL_PATIENCE_NS (INT64_C(10) * 1000000000)

struct run_setup {
    int lane; /* socket */
    /* A complete request: struct wire_run and its body. */
    const uint8_t *request;
    size_t request_size;
    /* stdin: bytes to feed when input is not NULL, else stdin_fd. */
    const uint8_t *input;
    size_t input_len;
    int stdin_fd;
    /* Each captured into a buffer of its cap when the fd is -1, else the command gets that fd. */
    int stdout_fd, stderr_fd;
    size_t out_cap, err_cap;
    int64_t deadline_ns; /* CLOCK_MONOTONIC; INT64_MAX: none */
};

struct run {
    struct wire_reply reply; /* DONE or FAILED, once run_step returned RUN_DONE */
    int timed_out, killed;   /* why it was ended early */
    int drained_early;       /* output was cut off: somebody still held the pipe */
    struct wire_attempt attempts[WIRE_MAX_ATTEMPTS]; /* as many as the reply says */
    /* Private to run.c. */
    struct pump *pump;
    int32_t held[2]; /* the command's ends of the outputs that we capture; -1: closed */
    int lane, leader_ended, streams_ended;
    int64_t deadline_ns, drain_until_ns, kill_until_ns;
};

enum run_progress { RUN_DONE = 1, RUN_SIGNAL = 2 };

/* Makes the pipes and sends the request. 0: go on with run_step. RUN_DONE: this process could not
 * send it (no free fd, ...), the reply says why, and the lane is as it was. -EPIPE: the lane is gone.
 * Whatever it returns, run_free must follow. */
int run_start(const struct run_setup *setup, struct run *run);

/* Goes on until the command is done (RUN_DONE), or a signal came that the caller should look at
 * (RUN_SIGNAL: call again), or the lane is lost (negative errno: it must not be used again). */
int run_step(struct run *run);

/* The same for who waits for many at once: does what is to be done now, and never sleeps. 0: nothing is
 * over; *next_ns is when the clock alone will have something to do (INT64_MAX: never). */
int run_look(struct run *run, int64_t *next_ns);

/* Asks the lane to end the whole tree now; run_step then comes to RUN_DONE. */
int run_kill(struct run *run);

void run_free(struct run *run);

/* Starts a command that goes on by itself: `request` asks for WIRE_BACKGROUND. 0: it runs. RUN_DONE:
 * it did not start, the reply says why, and the lane is as it was. Else a negative errno: the lane is
 * lost. *pidfd is the caller's to close; -1 when it was not started, or no number was free. What comes
 * next from the lane, and is to be received, is WIRE_DONE. */
int run_launch(int lane, const uint8_t *request, size_t size, const int32_t *fds, unsigned fd_count,
               struct wire_reply *reply, int32_t *pidfd);

#endif
