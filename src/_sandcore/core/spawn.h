/* Spawning and waiting in the caller's own process: the primitive for libraries.
 *
 * The child is the caller's, confined by itself between clone and exec. What this cannot give stands
 * in docs/: no tree kill beyond the process group. Every function may be called from any thread,
 * without the GIL. */
#ifndef SANDCORE_SPAWN_H
#define SANDCORE_SPAWN_H

#include "plan.h"

#include <stdint.h>
#include <sys/resource.h>

struct spawn_status {
    int32_t status; /* wait status, as wait4 gives it */
    int32_t reaped; /* 0: somebody else reaped it (SIGCHLD is ignored); status is still right */
    struct rusage usage; /* zero where reaped is 0 */
};

/* 0, or -EBADF with what is closed in *report. To be asked before anything is opened for a spawn: what
 * is opened takes the lowest free number, and the command would get that. */
int spawn_check_fds(const int32_t *fds, unsigned fd_count, struct stage_report *report);

/* Clones, confines and execs. Returns 0 with pid and pidfd (close-on-exec; the caller closes it), or
 * a negative errno with the stage in plan->report; then no process and no fd is left behind, and
 * *pidfd is -1. */
int spawn_child(struct plan *plan, int32_t *pid, int32_t *pidfd);

/* Waits until the process ends or the deadline (CLOCK_MONOTONIC, ns; INT64_MAX: none) has passed.
 * 1: ended, and reaped; 0: still running; -EINTR: a signal came; -ECHILD: ended, but somebody else
 * reaped it and this kernel (before 6.15) does not tell how it ended. */
int spawn_wait(int pidfd, int64_t deadline_ns, struct spawn_status *out);

/* Sends a signal; -ESRCH when the process was reaped. */
int spawn_signal(int pidfd, int number);

/* SIGKILL to the process and, when it leads one, to its group. Before it is waited for: afterwards
 * the number may belong to somebody else, and nothing is sent (-ESRCH). */
int spawn_kill(int32_t pid, int pidfd);

#endif
