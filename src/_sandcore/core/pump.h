/* pump: moves bytes between one command and its caller, until something happens.
 *
 * One loop over ppoll: feeds the command's input, takes both of its outputs (each kept as head and
 * tail under its own cap, see buffer.h), and watches one foreign fd (a pidfd, or the helper's
 * socket) and two clocks. It calls nothing of Python, so the binding runs it without the GIL, and
 * it never ends, signals or reaps anything: it returns events, the caller decides.
 *
 * Three promises shape it. Work per turn is bounded for each stream, so that neither starves the
 * other, and the deadline, the watched fd and the caller's signals are looked at also while a
 * flood never lets the loop sleep. No fd blocks, so that nobody (a command that does not read,
 * another process with the same pipe open through /proc) can hold the loop. And the usual command,
 * which prints little and ends, costs one read per stream that has something to say, none for one
 * that has not: the end of a stream is seen in ppoll (POLLHUP without POLLIN).
 *
 * A pump is used by one thread at a time. Caller side only: it allocates.
 */
#ifndef SANDCORE_PUMP_H
#define SANDCORE_PUMP_H

#include <stddef.h>
#include <stdint.h>

enum pump_event {
    PUMP_WATCH = 1, /* watch_fd is readable or hung up; the next wait looks at it again */
    PUMP_CLOSED,    /* all streams have ended: only watch_fd is left to wait for. Told once. */
    PUMP_DEADLINE,  /* the deadline has come */
    PUMP_SILENCE,   /* no output for silence_ns */
    PUMP_SIGNAL,    /* the caller should look at its signals, then wait again: after EINTR, and once
                       in a while (50 ms under a flood, 1 s of sleep), since a flood hides signals */
};

struct pump;

/* in_fd, out_fd, err_fd: our ends of the command's streams, -1 where there is none; all different.
 * They are to be ends of pipes made for this command: the pump sets O_NONBLOCK on them, which is a
 * property of the open file description and so would show to whoever else shares it. The two ends
 * of a pipe are two descriptions, and ours is not inherited, so neither the command's end nor any
 * file of the caller becomes non-blocking.
 * input is borrowed until pump_free. After input_len bytes (also 0) in_fd is closed.
 * watch_fd: -1 for none; never read, changed or closed.
 * out_cap, err_cap: bytes kept of each output; 0 counts only. */
struct pump_setup {
    int in_fd;
    const uint8_t *input;
    size_t input_len;
    int out_fd;
    int err_fd;
    int watch_fd;
    size_t out_cap;
    size_t err_cap;
};

/* The kept part of one output: see struct buffer_view. */
struct pump_output {
    const uint8_t *head;
    size_t head_len;
    const uint8_t *tail_a;
    size_t tail_a_len;
    const uint8_t *tail_b;
    size_t tail_b_len;
    uint64_t total; /* bytes that the command wrote and we took */
};

/* Takes over the three streams. Returns 0, or -EINVAL, -EBADF, -ENOMEM or what fcntl gave; then no
 * fd was closed and all still belong to the caller. */
int pump_new(const struct pump_setup *setup, struct pump **out);

/* Moves bytes until an event, and returns it, or a negative errno (output so far is kept). Lasts
 * about a second at most (PUMP_SIGNAL).
 * deadline_ns: CLOCK_MONOTONIC, absolute; INT64_MAX for none; one in the past still gets one turn.
 * silence_ns: how long nothing may arrive, counted from the last output or from this call,
 * whichever is later (a call that follows PUMP_SIGNAL goes on counting); INT64_MAX for none.
 * When several events are due: WATCH, CLOSED, DEADLINE, SILENCE, SIGNAL, in this order. -EDEADLK
 * if there is nothing left that could ever end the wait.
 * SIGPIPE is neither delivered nor left pending by it; a command that closes its input early is no
 * error. */
int pump_wait(struct pump *p, int64_t deadline_ns, int64_t silence_ns);

/* As pump_wait, for who waits for many at once: one turn with what is ready now, without sleeping. 0
 * when no event is due; *next_ns is then when the clock alone brings one (INT64_MAX: never). */
int pump_look(struct pump *p, int64_t deadline_ns, int64_t silence_ns, int64_t *next_ns);

/* Has an epoll set watch the streams, `whose` as the data of their events, until each is closed. The
 * foreign fd is not watched. 0 or a negative errno. */
int pump_join(struct pump *p, int set, void *whose);

/* Another fd to watch, or -1: a pidfd stays readable, so it is dropped after its PUMP_WATCH. */
void pump_watch(struct pump *p, int watch_fd);

/* For when the command's tree is dead: takes what is in the pipes at this moment, does not wait
 * for more even if a stranger still holds and fills them, and closes all streams. Returns 0 or a
 * negative errno; the streams are closed in any case. */
int pump_drain(struct pump *p);

/* What was kept of stdout (which = 1) or stderr (2); nothing for any other. Valid until the next
 * call with this pump that is not pump_output. */
void pump_output(const struct pump *p, int which, struct pump_output *out);

/* Closes what is open and releases everything. NULL is allowed. */
void pump_free(struct pump *p);

#endif
