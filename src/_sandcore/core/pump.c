/* The pump; pump.h has the theory. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* ppoll, F_SETPIPE_SZ */
#endif
#include "pump.h"

#include "buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define PUMP_NEVER INT64_MAX

enum {
    PUMP_TURN = 512 * 1024,          /* bytes of one stream in one turn, about */
    PUMP_FLOOD = 1024 * 1024,        /* a stream that wrote more than this is a flood */
    PUMP_PIPE = 512 * 1024,          /* and gets a pipe of this size */
    PUMP_BUSY_NS = 50 * 1000 * 1000, /* longest stretch without a look at signals */
};

struct stream {
    int fd; /* -1 when absent or ended */
    bool flood;
    struct buffer kept;
};

struct pump {
    struct stream out;
    struct stream err;
    int in_fd;
    const uint8_t *input;
    size_t input_left;
    int watch_fd;
    bool fed;         /* the first write was tried */
    bool closed_told; /* PUMP_CLOSED was returned */
    bool counting;    /* the last event was PUMP_SIGNAL: silence goes on from quiet_since */
    int64_t quiet_since;
};

static int64_t clock_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* a + b for a, b >= 0, PUMP_NEVER where that is too much. */
static int64_t time_add(int64_t a, int64_t b)
{
    return b > PUMP_NEVER - a ? PUMP_NEVER : a + b;
}

static void fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Checks one stream fd and makes it non-blocking. A fresh pipe end has no other status flags, so
 * they need not be read first. */
static int fd_prepare(int fd)
{
    if (fd == -1)
        return 0;
    if (fd < 0)
        return -EBADF;
    return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int setup_check(const struct pump_setup *s)
{
    int err;

    if (s->input_len > 0 && (s->input == NULL || s->in_fd < 0))
        return -EINVAL;
    if (s->out_fd >= 0 && (s->out_fd == s->err_fd || s->out_fd == s->in_fd))
        return -EINVAL;
    if (s->err_fd >= 0 && s->err_fd == s->in_fd)
        return -EINVAL;
    err = fd_prepare(s->in_fd);
    if (err == 0)
        err = fd_prepare(s->out_fd);
    if (err == 0)
        err = fd_prepare(s->err_fd);
    return err;
}

int pump_new(const struct pump_setup *setup, struct pump **out)
{
    struct pump *p;
    int err;

    if (setup == NULL || out == NULL)
        return -EINVAL;
    *out = NULL;
    p = calloc(1, sizeof *p);
    if (p == NULL)
        return -ENOMEM;
    err = setup_check(setup);
    if (err < 0) {
        free(p);
        return err;
    }
    p->out.fd = setup->out_fd;
    p->err.fd = setup->err_fd;
    buffer_init(&p->out.kept, setup->out_cap);
    buffer_init(&p->err.kept, setup->err_cap);
    p->in_fd = setup->in_fd;
    p->input = setup->input;
    p->input_left = setup->input_len;
    p->watch_fd = setup->watch_fd;
    if (p->input_left == 0)
        fd_close(&p->in_fd);
    *out = p;
    return 0;
}

void pump_watch(struct pump *p, int watch_fd)
{
    p->watch_fd = watch_fd;
}

/* A flood gets a larger pipe, so that the producer sleeps less often. Measured on 2 cores, speed
 * of `cat > /dev/null` = 1: 64 KiB 0.78 to 0.85, 256 KiB 0.93, 512 KiB 1.0; 1 MiB falls out of the
 * caches, and would use up sooner what an ordinary user may have in pipes (64 MiB). Failure (that
 * limit; not a pipe) changes nothing. */
static void stream_flood(struct stream *s)
{
    s->flood = true;
    (void)fcntl(s->fd, F_SETPIPE_SZ, (int)PUMP_PIPE);
}

/* Takes what is there, about `most` bytes; closes at the end of the stream. Returns the bytes
 * taken or a negative errno. A read that returned less than asked has emptied the pipe (or took
 * one packet): what comes next is told by poll, except in a flood, where the next bytes are there
 * before poll could say so. */
static int64_t stream_take(struct stream *s, size_t most)
{
    size_t taken = 0;

    while (taken < most) {
        uint8_t *where;
        size_t room;
        ssize_t n;
        int err = buffer_room(&s->kept, &where, &room);

        if (err < 0)
            return err;
        if (room > most - taken)
            room = most - taken;
        n = read(s->fd, where, room);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        if (n == 0)
            fd_close(&s->fd);
        if (n <= 0)
            break;
        buffer_commit(&s->kept, (size_t)n);
        taken += (size_t)n;
        if (!s->flood && (size_t)n < room)
            break;
    }
    if (!s->flood && s->fd >= 0 && s->kept.total > PUMP_FLOOD)
        stream_flood(s);
    return (int64_t)taken;
}

static int64_t stream_turn(struct stream *s, short revents)
{
    if (revents & POLLNVAL)
        return -EBADF;
    if (revents & POLLIN)
        return stream_take(s, PUMP_TURN);
    if (revents != 0) /* POLLHUP or POLLERR alone: empty, and no writer is left */
        fd_close(&s->fd);
    return 0;
}

/* write that cannot raise SIGPIPE in the caller, whatever it does with that signal: blocked in
 * this thread for the moment, and taken out of the pending set if we put it there. One that was
 * pending before stays. */
static ssize_t write_quietly(int fd, const uint8_t *data, size_t len)
{
    static const struct timespec at_once = {0, 0};
    sigset_t pipe_set;
    sigset_t old;
    sigset_t pending;
    bool was_pending;
    ssize_t n;
    int err;

    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
    was_pending = sigismember(&old, SIGPIPE) && sigpending(&pending) == 0 &&
                  sigismember(&pending, SIGPIPE);
    n = write(fd, data, len);
    err = errno;
    if (n < 0 && err == EPIPE && !was_pending)
        while (sigtimedwait(&pipe_set, NULL, &at_once) < 0 && errno == EINTR)
            ;
    if (!sigismember(&old, SIGPIPE))
        pthread_sigmask(SIG_UNBLOCK, &pipe_set, NULL);
    errno = err;
    return n;
}

/* Gives the command what its pipe takes now. One write per turn fills a pipe. */
static int pump_feed(struct pump *p)
{
    ssize_t n = write_quietly(p->in_fd, p->input, p->input_left);

    if (n < 0) {
        if (errno == EAGAIN || errno == EINTR)
            return 0;
        if (errno != EPIPE)
            return -errno;
        p->input_left = 0; /* the command does not want the rest */
    } else {
        p->input += n;
        p->input_left -= (size_t)n;
    }
    if (p->input_left == 0)
        fd_close(&p->in_fd);
    return 0;
}

/* Sleeps until something is ready or `until`. */
static int pump_poll(struct pump *p, struct pollfd *fds, int64_t now, int64_t until)
{
    struct timespec ts = {0, 0};
    int n;

    fds[0] = (struct pollfd){.fd = p->watch_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = p->out.fd, .events = POLLIN};
    fds[2] = (struct pollfd){.fd = p->err.fd, .events = POLLIN};
    fds[3] = (struct pollfd){.fd = p->in_fd, .events = POLLOUT};
    if (until > now) {
        ts.tv_sec = (time_t)((until - now) / 1000000000);
        ts.tv_nsec = (long)((until - now) % 1000000000);
    }
    n = ppoll(fds, 4, until == PUMP_NEVER ? NULL : &ts, NULL);
    return n < 0 ? -errno : n;
}

static bool pump_streams_open(const struct pump *p)
{
    return p->in_fd >= 0 || p->out.fd >= 0 || p->err.fd >= 0;
}

/* One turn of work on what poll found: 1 if output arrived, 0, or a negative errno. */
static int pump_turn(struct pump *p, const struct pollfd *fds)
{
    int64_t out = stream_turn(&p->out, fds[1].revents);
    int64_t err = stream_turn(&p->err, fds[2].revents);
    int fed = 0;

    if (fds[3].revents & POLLNVAL)
        fed = -EBADF;
    else if (fds[3].revents & POLLERR)
        fd_close(&p->in_fd); /* nobody reads any more */
    else if (fds[3].revents != 0)
        fed = pump_feed(p);
    if (out < 0)
        return (int)out;
    if (err < 0)
        return (int)err;
    if (fed < 0)
        return fed;
    if (fds[0].revents & POLLNVAL)
        return -EBADF;
    return out > 0 || err > 0;
}

/* Which event is due at `now`, or 0. */
static int pump_due(struct pump *p, bool watch, int64_t now, int64_t deadline_ns,
                    int64_t silence_ns)
{
    if (watch)
        return PUMP_WATCH;
    if (!pump_streams_open(p) && !p->closed_told) {
        p->closed_told = true;
        return PUMP_CLOSED;
    }
    if (now >= deadline_ns)
        return PUMP_DEADLINE;
    if (now >= time_add(p->quiet_since, silence_ns))
        return PUMP_SILENCE;
    return 0;
}

static int pump_loop(struct pump *p, int64_t deadline_ns, int64_t silence_ns)
{
    int64_t start = clock_now();
    int64_t now = start;

    if (!p->counting)
        p->quiet_since = start;
    for (;;) {
        int64_t quiet_end = time_add(p->quiet_since, silence_ns);
        int64_t until = deadline_ns < quiet_end ? deadline_ns : quiet_end;
        struct pollfd fds[4];
        int moved = 0;
        int ready;
        int event;

        if (until == PUMP_NEVER && p->watch_fd < 0 && !pump_streams_open(p))
            return -EDEADLK;
        ready = pump_poll(p, fds, now, until);
        if (ready < 0 && ready != -EINTR)
            return ready;
        if (ready > 0)
            moved = pump_turn(p, fds);
        if (moved < 0)
            return moved;
        now = clock_now();
        if (moved > 0)
            p->quiet_since = now;
        event = pump_due(p, ready > 0 && fds[0].revents != 0, now, deadline_ns, silence_ns);
        if (event != 0)
            return event;
        if (ready == -EINTR || (moved > 0 && now - start >= PUMP_BUSY_NS))
            return PUMP_SIGNAL;
    }
}

int pump_wait(struct pump *p, int64_t deadline_ns, int64_t silence_ns)
{
    int event = 0;

    if (!pump_streams_open(p) && !p->closed_told) {
        p->closed_told = true;
        return PUMP_CLOSED;
    }
    if (!p->fed && p->in_fd >= 0)
        event = pump_feed(p);
    p->fed = true;
    if (event == 0)
        event = pump_loop(p, deadline_ns, silence_ns);
    p->counting = event == PUMP_SIGNAL;
    return event;
}

/* What is in the pipe now, and no more: a stranger who holds the other end may go on writing. */
static int stream_drain(struct stream *s)
{
    int left = 0;

    if (s->fd < 0)
        return 0;
    if (ioctl(s->fd, FIONREAD, &left) < 0)
        return -errno;
    while (left > 0 && s->fd >= 0) {
        int64_t n = stream_take(s, (size_t)left);

        if (n < 0)
            return (int)n;
        if (n == 0)
            break;
        left -= (int)n;
    }
    return 0;
}

int pump_drain(struct pump *p)
{
    int out = stream_drain(&p->out);
    int err = stream_drain(&p->err);

    fd_close(&p->in_fd);
    fd_close(&p->out.fd);
    fd_close(&p->err.fd);
    return out < 0 ? out : err;
}

void pump_output(const struct pump *p, int which, struct pump_output *out)
{
    struct buffer_view view;

    memset(out, 0, sizeof *out);
    if (which != 1 && which != 2)
        return;
    buffer_view(which == 1 ? &p->out.kept : &p->err.kept, &view);
    out->head = view.head;
    out->head_len = view.head_len;
    out->tail_a = view.tail_a;
    out->tail_a_len = view.tail_a_len;
    out->tail_b = view.tail_b;
    out->tail_b_len = view.tail_b_len;
    out->total = view.total;
}

void pump_free(struct pump *p)
{
    if (p == NULL)
        return;
    fd_close(&p->in_fd);
    fd_close(&p->out.fd);
    fd_close(&p->err.fd);
    buffer_free(&p->out.kept);
    buffer_free(&p->err.kept);
    free(p);
}
