/* The caller's side of sandcore-helper: start it, ask it for lanes, close it. */
#ifndef SANDCORE_CLIENT_H
#define SANDCORE_CLIENT_H

#include "policy.h"
#include "wire.h"

#include <stdint.h>

struct client {
    int32_t control; /* socket to the root process; -1: closed */
    int32_t pid, pidfd;
    int32_t owner; /* pid of the process that started it: a forked copy of us must not touch it */
    int32_t scoped; /* as proved by the root process */
};

/* Starts a helper for a policy. The ruleset is made here, in the caller, with the caller's rights.
 * Returns 0, or a negative errno with the stage in *report: STAGE_LANDLOCK with the index of the
 * rule in detail (-1: none), the child's own stages, or STAGE_HELPER. Nothing is left behind then. */
int client_start(const char *helper, const void *blob, size_t size, struct client *out,
                 struct stage_report *report);

/* Opens a lane: its socket, or a negative errno with the stage in ready->report. */
int client_lane(struct client *client, struct wire_reply *ready);

/* Ends the helper and everything in it, and reaps it. In a forked copy it only closes the fds. */
void client_close(struct client *client);

/* Sends one packet with fds. 0 or a negative errno (-EPIPE: the other side is gone). */
int client_send(int socket, const void *packet, size_t size, const int32_t *fds, unsigned fd_count);

/* Receives one reply, waiting until the deadline (CLOCK_MONOTONIC, ns) at most. 0, -EPIPE when the
 * other side is gone, -ETIMEDOUT, -EPROTO, -EINTR. */
int client_receive(int socket, int64_t deadline_ns, struct wire_reply *reply);

/* CLOCK_MONOTONIC in nanoseconds. */
int64_t client_now(void);

#endif
