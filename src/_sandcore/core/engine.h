/* Many commands at a time, by one thread: runs (run.h) behind one fd.
 *
 * The thread pumps their output, watches their clocks and ends their trees, whatever the caller does
 * meanwhile; it knows nothing of Python. The engine's fd is readable when a job is over, so whoever
 * already waits for fds, an event loop say, waits for all of these commands by one more.
 *
 * Who does what: the caller starts a run (pipes, request) and hands it over; from then on only the
 * thread touches it, under the lock, until it comes out of engine_take. So no event can be about a
 * job that is gone: the thread takes its fds out of the set before it hands it back. A forked copy has
 * no such thread; there an engine is only closed. */
#ifndef SANDCORE_ENGINE_H
#define SANDCORE_ENGINE_H

#include "run.h"

#include <pthread.h>

struct job {
    struct run run;
    int result;       /* RUN_DONE: the run has a reply; a negative errno: its lane is lost */
    int64_t ended_ns; /* when that was (CLOCK_MONOTONIC) */
    void *whose;      /* the caller's to use */
    /* Private to engine.c. */
    int error; /* it could not be watched */
    int64_t due_ns;
    struct job *next, *previous;
};

struct engine {
    int done; /* eventfd: to wait for, and nothing else */
    /* Private to engine.c. */
    int epoll, clock; /* a timerfd: when a job is due, or the thread is to look up */
    int64_t clock_ns;
    int stopping;
    struct job running, over; /* heads of two rings */
    pthread_mutex_t lock;
    pthread_t thread;
};

/* 0, or a negative errno: then nothing is to be closed. */
int engine_open(struct engine *engine);

/* Ends the thread; what is left comes out of engine_left. `forked`: in a copy of the process that
 * opened it, which has no such thread, and leaves its jobs alone. */
void engine_close(struct engine *engine, int forked);

/* After engine_close: a job that was not taken, whose lane is to be closed; NULL: there is none. */
struct job *engine_left(struct engine *engine);

/* Starts a command in a lane that runs none. As run_start: 0, and it comes out of engine_take one
 * day; else it is not in here. run_free(&job->run) must follow in any case. */
int engine_start(struct engine *engine, const struct run_setup *setup, struct job *job);

/* The jobs that are over, at most so many: how many. The fd is readable as long as there are more. */
unsigned engine_take(struct engine *engine, struct job **over, unsigned max);

/* Asks for the end of a job's whole tree. It is over when that is dead; nothing if it is. */
void engine_kill(struct engine *engine, struct job *job);

#endif
