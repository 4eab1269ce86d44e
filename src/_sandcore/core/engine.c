/* See engine.h. */
#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { EVENTS = 64, STACK_BYTES = 128 * 1024 };

static void ring_init(struct job *head)
{
    head->next = head->previous = head;
}

static void ring_append(struct job *head, struct job *job)
{
    job->next = head;
    job->previous = head->previous;
    head->previous->next = job;
    head->previous = job;
}

static void ring_remove(struct job *job)
{
    job->previous->next = job->next;
    job->next->previous = job->previous;
}

static int watch(const struct engine *engine, int fd, void *whose)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = whose};
    return epoll_ctl(engine->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* The clock is to ring at the first moment that it was told; too early does no harm. */
static void set_clock(struct engine *engine, int64_t due_ns)
{
    if (due_ns >= engine->clock_ns) {
        return;
    }
    int64_t at = due_ns > 0 ? due_ns : 1;
    struct itimerspec when = {.it_value = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000}};
    engine->clock_ns = due_ns;
    timerfd_settime(engine->clock, TFD_TIMER_ABSTIME, &when, NULL);
}

static void finish(struct engine *engine, struct job *job, int result)
{
    uint64_t one = 1;
    job->result = result;
    job->ended_ns = packet_now();
    epoll_ctl(engine->epoll, EPOLL_CTL_DEL, job->run.lane, NULL);
    if (result < 0 || job->run.reply.kind != WIRE_DONE) {
        pump_drain(job->run.pump); /* closes the streams: else the set goes on telling of them */
    }
    ring_remove(job);
    if (engine->over.next == &engine->over) {
        while (write(engine->done, &one, sizeof one) < 0 && errno == EINTR) {
        }
    }
    ring_append(&engine->over, job);
}

/* Does what is to be done for one job now. */
static void look(struct engine *engine, struct job *job)
{
    int result = job->error ? job->error : run_look(&job->run, &job->due_ns);
    if (result) {
        finish(engine, job, result);
    } else {
        set_clock(engine, job->due_ns);
    }
}

/* The clock has rung: looks at all that are due, and sets it anew. */
static void look_at_due(struct engine *engine)
{
    uint64_t times;
    int64_t now = packet_now(), next = INT64_MAX;
    if (read(engine->clock, &times, sizeof times) < 0 && errno != EAGAIN) {
        return;
    }
    engine->clock_ns = INT64_MAX;
    for (struct job *job = engine->running.next, *after; job != &engine->running; job = after) {
        after = job->next;
        if (job->due_ns <= now) {
            look(engine, job);
        } else if (job->due_ns < next) {
            next = job->due_ns;
        }
    }
    set_clock(engine, next);
}

static void *work(void *argument)
{
    struct engine *engine = argument;
    struct epoll_event events[EVENTS];
    int stopping = 0;
    while (!stopping) {
        int ready = epoll_wait(engine->epoll, events, EVENTS, -1);
        pthread_mutex_lock(&engine->lock);
        for (int i = 0; i < ready; i++) {
            struct job *job = events[i].data.ptr;
            if (job == NULL) {
                look_at_due(engine);
            } else if (job->result == 0) { /* not by an earlier event of these */
                look(engine, job);
            }
        }
        stopping = engine->stopping;
        pthread_mutex_unlock(&engine->lock);
    }
    return NULL;
}

/* Signals are for the caller's threads. */
static int start_thread(struct engine *engine)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    int error = pthread_attr_init(&attributes);
    if (error) {
        return -error;
    }
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&engine->thread, &attributes, work, engine);
    if (error == EINVAL) { /* what the process keeps for each thread alone takes more */
        error = pthread_create(&engine->thread, NULL, work, engine);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return -error;
}

static void close_fds(struct engine *engine)
{
    int *fds[] = {&engine->epoll, &engine->clock, &engine->done};
    for (int i = 0; i < 3; i++) {
        if (*fds[i] >= 0) {
            close(*fds[i]);
        }
        *fds[i] = -1;
    }
}

int engine_open(struct engine *engine)
{
    memset(engine, 0, sizeof *engine);
    ring_init(&engine->running);
    ring_init(&engine->over);
    engine->clock_ns = INT64_MAX;
    engine->epoll = epoll_create1(EPOLL_CLOEXEC);
    engine->clock = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    engine->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = engine->epoll < 0 || engine->clock < 0 || engine->done < 0 ? -errno : 0;
    if (error == 0) {
        error = watch(engine, engine->clock, NULL);
    }
    if (error == 0) {
        error = -pthread_mutex_init(&engine->lock, NULL);
    }
    if (error == 0) {
        error = start_thread(engine);
    }
    if (error) {
        close_fds(engine);
    }
    return error;
}

void engine_close(struct engine *engine, int forked)
{
    if (!forked) {
        pthread_mutex_lock(&engine->lock);
        engine->stopping = 1;
        set_clock(engine, 0);
        pthread_mutex_unlock(&engine->lock);
        pthread_join(engine->thread, NULL);
    }
    close_fds(engine);
}

struct job *engine_left(struct engine *engine)
{
    struct job *heads[] = {&engine->running, &engine->over};
    for (int i = 0; i < 2; i++) {
        struct job *job = heads[i]->next;
        if (job != heads[i]) {
            ring_remove(job);
            return job;
        }
    }
    return NULL;
}

int engine_start(struct engine *engine, const struct run_setup *setup, struct job *job)
{
    job->result = 0;
    int error = run_start(setup, &job->run);
    if (error) {
        job->result = error;
        job->ended_ns = packet_now();
        return error;
    }
    pthread_mutex_lock(&engine->lock);
    ring_append(&engine->running, job);
    job->due_ns = setup->deadline_ns;
    job->error = watch(engine, job->run.lane, job);
    if (job->error == 0) {
        job->error = pump_join(job->run.pump, engine->epoll, job);
    }
    if (job->error) {
        job->due_ns = 0; /* nobody would hear of its end */
    }
    set_clock(engine, job->due_ns);
    pthread_mutex_unlock(&engine->lock);
    return 0;
}

unsigned engine_take(struct engine *engine, struct job **over, unsigned max)
{
    unsigned count = 0;
    uint64_t times;
    pthread_mutex_lock(&engine->lock);
    while (count < max && engine->over.next != &engine->over) {
        struct job *job = engine->over.next;
        ring_remove(job);
        over[count++] = job;
    }
    if (count > 0 && engine->over.next == &engine->over) {
        while (read(engine->done, &times, sizeof times) < 0 && errno == EINTR) {
        }
    }
    pthread_mutex_unlock(&engine->lock);
    return count;
}

void engine_kill(struct engine *engine, struct job *job)
{
    pthread_mutex_lock(&engine->lock);
    if (job->result == 0) {
        run_kill(&job->run);
        job->due_ns = job->run.kill_until_ns;
        set_clock(engine, job->due_ns);
    }
    pthread_mutex_unlock(&engine->lock);
}
