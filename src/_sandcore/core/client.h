/* The caller's side of sandcore-helper: start it, ask it for lanes, close it. */
#ifndef SANDCORE_CLIENT_H
#define SANDCORE_CLIENT_H

#include "policy.h"
#include "wire.h"

#include <stdint.h>

struct client {
    int32_t control; /* socket to the root process; -1: closed */
    int32_t pid, pidfd;
    int32_t owner;  /* pid of the process that started it: a forked copy of us must not touch it */
    int32_t scoped; /* as proved by the root process */
    uint32_t unwatched;                /* as in its READY */
    uint32_t docks, docked;            /* how many workspaces were ordered, and answered for */
    int32_t scratch[WIRE_MAX_SCRATCH]; /* its SCRATCH mounts; -1 behind the last */
};

/* Starts a helper for a policy. The ruleset is made here, in the caller, with the caller's rights.
 * Returns 0, or a negative errno with the stage in *report: STAGE_LANDLOCK with the index of the
 * rule in detail (-1: none), the child's own stages, or STAGE_HELPER. Nothing is left behind then.
 * It is on its way when this returns: await, once, says whether it serves, and fails as start does. */
int client_start(const char *helper, const void *blob, size_t size, struct client *out,
                 struct stage_report *report);
int client_await(struct client *client, struct stage_report *report);

/* Orders a lane for at most so many processes (0: any number), also before the helper serves: its
 * socket, or a negative errno. */
int client_order_lane(const struct client *client, uint32_t processes);

/* The same for a joint, and waits for it; fds gets what a nursery joins it with, for the caller to
 * close. */
int client_join(const struct client *client, uint32_t processes, int32_t fds[WIRE_JOINT_FDS],
                struct wire_reply *ready);

/* Waits until what was ordered serves: the same socket, or a negative errno with the stage in
 * ready->report; then it is closed. */
int client_await_lane(int lane, struct wire_reply *ready);

/* Waits for a READY and what fds come with it; a signal is no reason to give up what takes a
 * millisecond. A negative errno, with ready->kind WIRE_READY where it came and says that. */
int client_receive_ready(int socket, struct wire_reply *ready, int32_t *fds, unsigned max);

/* Orders another workspace, by a blob whose first mount it is, in the place of the one that lies in the
 * dock; without a blob that only leaves. device and inode: which directory it is, as statx has them. No
 * command may run. What became of the last order is told by await; of those before it nobody hears. */
int client_dock(struct client *client, const void *blob, size_t size,
                const struct wire_dock *which);
int client_await_dock(struct client *client, struct wire_reply *ready);

/* Makes the helper a nursery, in a joint whose fds are given, or NULL. 0, or a negative errno with the
 * stage in ready->report. */
int client_direct(struct client *client, uint64_t cookie, const int32_t *fds,
                  struct wire_reply *ready);

/* Ends all that has joined, the joint's nursery first: when this returns it is dead, and what the
 * caller has to wait for is there to be waited for. Then closes the joint's socket. In a forked copy
 * of the nursery's owner only that. */
void client_end_joint(const struct client *nursery, int joint);

/* Whether a joint has ended. */
int client_joint_is_lost(int joint);

/* Lets a nursery spawn a command as the caller's own child. request: a struct wire_run and its body.
 * 0 with pid and pidfd (close-on-exec); a negative errno with the stage in *report where the command
 * did not start (then nothing is left behind). With STAGE_NONE there the nursery is lost: -EPIPE
 * before it got the request, so that another may have it; -ECONNABORTED after, when nobody knows
 * whether the command has started. */
int client_spawn(struct client *client, const uint8_t *request, size_t size, const int32_t *fds,
                 unsigned fd_count, int32_t *pid, int32_t *pidfd, struct stage_report *report);

/* Ends the helper and everything in it, waits for that, and reaps it. The fds stay, so that other
 * threads may be in client_lane meanwhile. Nothing in a forked copy. False when its notes are still
 * there: it was killed, or closed with something due. */
int client_end(const struct client *client);

/* client_end, then closes the fds; in a forked copy only that. */
void client_close(struct client *client);

/* Asks a lane to end itself and all below it; what it has still to say can be received. */
void client_end_lane(int lane);

#endif
