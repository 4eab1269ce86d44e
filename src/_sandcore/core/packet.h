/* Packets between the caller and the helper: sending, receiving, waiting with a clock. */
#ifndef SANDCORE_PACKET_H
#define SANDCORE_PACKET_H

#include "wire.h"

#include <stddef.h>
#include <stdint.h>

/* Sends one packet with fds. 0 or a negative errno (-EPIPE: the other side is gone). */
int packet_send(int socket, const void *packet, size_t size, const int32_t *fds, unsigned fd_count);

/* Sends a request (struct wire_run and its body) with the command's fds; a body that is too long for
 * a packet goes as a memory file. As packet_send. */
int packet_send_request(int socket, const uint8_t *request, size_t size, const int32_t *fds,
                        unsigned fd_count);

/* Receives one reply, waiting until the deadline (CLOCK_MONOTONIC, ns) at most. 0, -EPIPE when the
 * other side is gone, -ETIMEDOUT, -EPROTO, -EINTR. attempts, of which there is room for
 * WIRE_MAX_ATTEMPTS, gets as many as the reply says. */
int packet_receive(int socket, int64_t deadline_ns, struct wire_reply *reply,
                   struct wire_attempt *attempts);

/* Receives one reply that is there, with its fds (close-on-exec; -1 where there are none); max is at
 * most WIRE_MAX_FDS. As packet_receive, and -EAGAIN. */
int packet_receive_fds(int socket, struct wire_reply *reply, int32_t *fds, unsigned max);

/* The same for a reply that may bring a fd: -1 when it brought none, or no number was free for it.
 * One that came is the caller's to close, also after an error. */
int packet_receive_fd(int socket, int64_t deadline_ns, struct wire_reply *reply, int32_t *fd);

/* Waits until something can be received: 0, -ETIMEDOUT, -EINTR. */
int packet_await(int socket, int64_t deadline_ns);

/* CLOCK_MONOTONIC in nanoseconds. */
int64_t packet_now(void);

#endif
