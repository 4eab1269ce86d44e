/* The pump; pump.h has the theory. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* ppoll */
#endif
#include "pump.h"

#include "stream.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#define PUMP_NEVER INT64_MAX

/* ppoll tells a signal only when it has to sleep, and none that came just before it slept: the
 * caller is sent to look after so long, at the first turn with work, and without any work. */
#define PUMP_BUSY_NS (50 * 1000 * 1000)
#define PUMP_IDLE_NS (1000 * 1000 * 1000)

struct pump {
    struct sink in;
    struct source out;
    struct source err;
    int watch_fd;
    bool fed;         /* the first write was tried */
    bool closed_told; /* PUMP_CLOSED was returned */
    bool counting;    /* nothing but PUMP_SIGNAL came of it: silence goes on from quiet_since */
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

static int setup_check(const struct pump_setup *s)
{
    int err;

    if (s->input_len > 0 && (s->input == NULL || s->in_fd < 0)) {
        return -EINVAL;
    }
    if (s->out_fd >= 0 && (s->out_fd == s->err_fd || s->out_fd == s->in_fd)) {
        return -EINVAL;
    }
    if (s->err_fd >= 0 && s->err_fd == s->in_fd) {
        return -EINVAL;
    }
    err = stream_prepare(s->in_fd);
    if (err == 0) {
        err = stream_prepare(s->out_fd);
    }
    if (err == 0) {
        err = stream_prepare(s->err_fd);
    }
    return err;
}

int pump_new(const struct pump_setup *setup, struct pump **out)
{
    struct pump *p;
    int err;

    if (setup == NULL || out == NULL) {
        return -EINVAL;
    }
    *out = NULL;
    p = calloc(1, sizeof *p);
    if (p == NULL) {
        return -ENOMEM;
    }
    err = setup_check(setup);
    if (err < 0) {
        free(p);
        return err;
    }
    p->out.fd = setup->out_fd;
    p->err.fd = setup->err_fd;
    buffer_init(&p->out.kept, setup->out_cap);
    buffer_init(&p->err.kept, setup->err_cap);
    p->in.fd = setup->in_fd;
    p->in.data = setup->input;
    p->in.left = setup->input_len;
    p->watch_fd = setup->watch_fd;
    p->in.set = p->out.set = p->err.set = -1;
    if (p->in.left == 0) {
        stream_close(&p->in.fd, p->in.set);
    }
    *out = p;
    return 0;
}

void pump_watch(struct pump *p, int watch_fd)
{
    p->watch_fd = watch_fd;
}

/* Sleeps until something is ready or `until`. */
static int pump_poll(struct pump *p, struct pollfd *fds, int64_t now, int64_t until)
{
    struct timespec ts = {0, 0};
    int n;

    fds[0] = (struct pollfd){.fd = p->watch_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = p->out.fd, .events = POLLIN};
    fds[2] = (struct pollfd){.fd = p->err.fd, .events = POLLIN};
    fds[3] = (struct pollfd){.fd = p->in.fd, .events = POLLOUT};
    if (until > now) {
        ts.tv_sec = (time_t)((until - now) / 1000000000);
        ts.tv_nsec = (long)((until - now) % 1000000000);
    }
    n = ppoll(fds, 4, &ts, NULL);
    return n < 0 ? -errno : n;
}

static bool pump_ended(const struct pump *p)
{
    return p->in.fd < 0 && p->out.fd < 0 && p->err.fd < 0;
}

/* One turn of work on what poll found: 1 if output arrived, 0, or a negative errno. */
static int pump_turn(struct pump *p, const struct pollfd *fds)
{
    int64_t out = fds[1].revents != 0 ? source_turn(&p->out, fds[1].revents) : 0;
    int64_t err = fds[2].revents != 0 ? source_turn(&p->err, fds[2].revents) : 0;
    int fed = fds[3].revents != 0 ? sink_turn(&p->in, fds[3].revents) : 0;

    if (out < 0) {
        return (int)out;
    }
    if (err < 0) {
        return (int)err;
    }
    if (fed < 0) {
        return fed;
    }
    if (fds[0].revents & POLLNVAL) {
        return -EBADF;
    }
    return out > 0 || err > 0;
}

/* True once, when nothing of the command's streams is left. */
static bool pump_closed(struct pump *p)
{
    bool tell = pump_ended(p) && !p->closed_told;

    p->closed_told = p->closed_told || tell;
    return tell;
}

/* Which event is due at `now`, or 0. */
static int pump_due(struct pump *p, bool watch, int64_t now, int64_t deadline_ns,
                    int64_t silence_ns)
{
    if (watch) {
        return PUMP_WATCH;
    }
    if (pump_closed(p)) {
        return PUMP_CLOSED;
    }
    if (now >= deadline_ns) {
        return PUMP_DEADLINE;
    }
    if (now >= time_add(p->quiet_since, silence_ns)) {
        return PUMP_SILENCE;
    }
    return 0;
}

/* When the clock alone brings an event. */
static int64_t pump_end(const struct pump *p, int64_t deadline_ns, int64_t silence_ns)
{
    int64_t quiet_end = time_add(p->quiet_since, silence_ns);

    return deadline_ns < quiet_end ? deadline_ns : quiet_end;
}

/* One poll, that sleeps until `until` at most, and the work that it brings: the event, 0 for none, or a
 * negative errno. *now comes back as the time after it; *ready as poll had it. */
static int pump_once(struct pump *p, int64_t until, int64_t deadline_ns, int64_t silence_ns,
                     int64_t *now, int *ready)
{
    struct pollfd fds[4];
    int moved = 0;

    *ready = pump_poll(p, fds, *now, until);
    if (*ready < 0 && *ready != -EINTR) {
        return *ready;
    }
    if (*ready > 0) {
        moved = pump_turn(p, fds);
    }
    if (moved < 0) {
        return moved;
    }
    *now = clock_now();
    if (moved > 0) {
        p->quiet_since = *now;
    }
    return pump_due(p, *ready > 0 && fds[0].revents != 0, *now, deadline_ns, silence_ns);
}

static int pump_loop(struct pump *p, int64_t deadline_ns, int64_t silence_ns)
{
    int64_t start = clock_now();
    int64_t now = start;
    int64_t look = time_add(start, PUMP_IDLE_NS);

    if (!p->counting) {
        p->quiet_since = start;
    }
    for (;;) {
        int64_t end = pump_end(p, deadline_ns, silence_ns);
        int ready;
        int event;

        if (end == PUMP_NEVER && p->watch_fd < 0 && pump_ended(p)) {
            return -EDEADLK;
        }
        event = pump_once(p, end < look ? end : look, deadline_ns, silence_ns, &now, &ready);
        if (event != 0) {
            return event;
        }
        if (ready == -EINTR || now - start >= (ready > 0 ? PUMP_BUSY_NS : PUMP_IDLE_NS)) {
            return PUMP_SIGNAL;
        }
    }
}

/* What is done before the first poll. */
static int pump_begin(struct pump *p)
{
    int error = 0;

    if (pump_closed(p)) {
        return PUMP_CLOSED;
    }
    if (!p->fed && p->in.fd >= 0) {
        error = sink_feed(&p->in);
    }
    p->fed = true;
    return error;
}

int pump_look(struct pump *p, int64_t deadline_ns, int64_t silence_ns, int64_t *next_ns)
{
    int64_t now = clock_now();
    int event = pump_begin(p);
    int ready;

    if (!p->counting) {
        p->quiet_since = now;
    }
    if (event == 0) {
        event = pump_once(p, now, deadline_ns, silence_ns, &now, &ready);
    }
    p->counting = event == 0;
    *next_ns = pump_end(p, deadline_ns, silence_ns);
    return event;
}

/* One stream joins a set: its place for that, and 0 or a negative errno. */
static int join_set(int fd, uint32_t events, int set, void *whose, int *joined)
{
    struct epoll_event event = {.events = events, .data.ptr = whose};

    if (fd < 0) {
        return 0;
    }
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) < 0) {
        return -errno;
    }
    *joined = set;
    return 0;
}

int pump_join(struct pump *p, int set, void *whose)
{
    int error = join_set(p->in.fd, EPOLLOUT, set, whose, &p->in.set);

    if (error == 0) {
        error = join_set(p->out.fd, EPOLLIN, set, whose, &p->out.set);
    }
    if (error == 0) {
        error = join_set(p->err.fd, EPOLLIN, set, whose, &p->err.set);
    }
    return error;
}

int pump_wait(struct pump *p, int64_t deadline_ns, int64_t silence_ns)
{
    int event = pump_begin(p);

    if (event == 0) {
        event = pump_loop(p, deadline_ns, silence_ns);
    }
    p->counting = event == PUMP_SIGNAL;
    return event;
}

int pump_drain(struct pump *p)
{
    int out = source_drain(&p->out);
    int err = source_drain(&p->err);

    stream_close(&p->in.fd, p->in.set);
    stream_close(&p->out.fd, p->out.set);
    stream_close(&p->err.fd, p->err.set);
    return out < 0 ? out : err;
}

void pump_output(const struct pump *p, int which, struct pump_output *out)
{
    struct buffer_view view;

    memset(out, 0, sizeof *out);
    if (which != 1 && which != 2) {
        return;
    }
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
    if (p == NULL) {
        return;
    }
    stream_close(&p->in.fd, p->in.set);
    stream_close(&p->out.fd, p->out.set);
    stream_close(&p->err.fd, p->err.set);
    buffer_free(&p->out.kept);
    buffer_free(&p->err.kept);
    free(p);
}
