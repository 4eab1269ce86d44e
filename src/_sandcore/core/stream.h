/* stream: our end of one pipe to or from a command; the pump drives three of them.
 *
 * A source is read into a buffer, a sink is fed from the caller's bytes. Neither ever blocks. Both
 * own their fd and close it when there is nothing left to move: fd is -1 then.
 */
#ifndef SANDCORE_STREAM_H
#define SANDCORE_STREAM_H

#include "buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct source {
    int fd;     /* -1 when absent or ended */
    int set;    /* the epoll set that it is in; -1: none */
    bool flood; /* much has come: the pipe was widened */
    struct buffer kept;
};

struct sink {
    int fd;  /* -1 when absent or all is written */
    int set; /* as of a source */
    const uint8_t *data;
    size_t left;
};

/* Makes a fresh pipe end non-blocking; -1 is allowed. Returns 0, -EBADF or what fcntl gave. */
int stream_prepare(int fd);

/* Closes *fd unless it is -1, and makes it -1. It leaves the epoll set (-1: none) first: what is closed
 * here alone stays in there as long as a forked copy of this process has it open. */
void stream_close(int *fd, int set);

/* One bounded turn after poll said `revents` (not 0). Returns the bytes taken, or a negative
 * errno. */
int64_t source_turn(struct source *s, short revents);

/* Takes what is in the pipe at this moment, and no more: whoever holds its other end may go on
 * writing. Returns 0 or a negative errno. */
int source_drain(struct source *s);

/* Writes what the pipe takes now. Returns 0 or a negative errno; that nobody reads any more is no
 * error: the sink is closed. Leaves the caller's SIGPIPE alone. */
int sink_feed(struct sink *s);

/* The same after poll said `revents` (not 0). */
int sink_turn(struct sink *s, short revents);

#endif
