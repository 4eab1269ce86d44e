/* buffer: the beginning and the end of a stream of any length, in bounded memory.
 *
 * A command's output is kept under a cap of bytes: the beginning as it came (the head), the end as
 * a ring that is overwritten (the tail: half of the cap, a mebibyte at most, because a flood runs
 * through it again and again and what does not stay in a cache slows the producer by a fifth), and
 * the true number of bytes. What is in between is gone. Up to the cap nothing is lost.
 *
 * One allocation holds both: [0, head_cap) is the head, [head_cap, limit) the ring. It is filled
 * from left to right and grows with what arrives, so that a short output costs one small block
 * and touches only the pages it needs; at `limit` writing goes on at head_cap. Bytes are read
 * straight into it (room, then commit), never copied.
 *
 * The ring is never smaller than BUFFER_RING_MIN, also when the cap asks for less: a flood under a
 * cap of 100 bytes (or 0: count only) is still read in large pieces; the view shows only what the
 * cap allows.
 */
#ifndef SANDCORE_BUFFER_H
#define SANDCORE_BUFFER_H

#include <stddef.h>
#include <stdint.h>

enum {
    BUFFER_FIRST = 64 * 1024,     /* first block: what a Linux pipe holds, so one read takes it */
    BUFFER_ROOM_MIN = 32 * 1024,  /* grow rather than offer less than this to a read */
    BUFFER_RING_MIN = 128 * 1024, /* fits any second level cache */
    BUFFER_TAIL_MAX = 1024 * 1024,
};

struct buffer {
    uint8_t *data;
    size_t size;     /* bytes allocated, at most limit */
    size_t cap;      /* bytes shown at most */
    size_t head_cap; /* where the ring begins */
    size_t limit;    /* where the ring ends */
    size_t at;       /* where the next byte goes */
    uint64_t total;  /* bytes ever committed */
};

/* What is kept, oldest first: head, then (only when bytes were lost in between) the tail, which is
 * in two pieces when the ring has wrapped inside it. Pointers are valid until the next
 * buffer_room or buffer_free; pieces of length 0 may be NULL. */
struct buffer_view {
    const uint8_t *head;
    size_t head_len; /* the whole output while total <= cap, else what the tail leaves of it */
    const uint8_t *tail_a;
    size_t tail_a_len;
    const uint8_t *tail_b;
    size_t tail_b_len;
    uint64_t total;
};

/* Prepares an empty buffer that shows at most cap bytes (any value; 0 counts only). Allocates
 * nothing and cannot fail. */
void buffer_init(struct buffer *b, size_t cap);

/* Where the next bytes are to be written: *room bytes at *where, at least 1. Returns 0, or -ENOMEM
 * with the buffer unchanged. */
int buffer_room(struct buffer *b, uint8_t **where, size_t *room);

/* Says that n bytes were written to what buffer_room returned last; n at most its room. */
void buffer_commit(struct buffer *b, size_t n);

void buffer_view(const struct buffer *b, struct buffer_view *out);

/* Releases the memory. The buffer is then empty and may be initialised again. */
void buffer_free(struct buffer *b);

#endif
