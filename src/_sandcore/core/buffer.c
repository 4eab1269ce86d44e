/* The head and tail store; buffer.h has the theory. */
#include "buffer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void buffer_init(struct buffer *b, size_t cap)
{
    size_t half = cap - cap / 2;
    size_t ring = half < BUFFER_TAIL_MAX ? half : BUFFER_TAIL_MAX;

    memset(b, 0, sizeof *b);
    b->cap = cap;
    b->head_cap = cap - ring;
    /* No overflow: with ring > BUFFER_RING_MIN the sum is cap itself. */
    b->limit = b->head_cap + (ring > BUFFER_RING_MIN ? ring : BUFFER_RING_MIN);
}

/* Doubling: from about 128 KiB on, realloc moves page tables (mremap) and copies nothing. */
static int buffer_grow(struct buffer *b)
{
    size_t size = b->size > b->limit / 2 ? b->limit : b->size * 2;
    uint8_t *data;

    if (size < BUFFER_FIRST) {
        size = BUFFER_FIRST; /* never above limit, which is at least BUFFER_RING_MIN */
    }
    data = realloc(b->data, size);
    if (data == NULL) {
        return -ENOMEM;
    }
    b->data = data;
    b->size = size;
    return 0;
}

int buffer_room(struct buffer *b, uint8_t **where, size_t *room)
{
    if (b->size < b->limit && b->size - b->at < BUFFER_ROOM_MIN) {
        int err = buffer_grow(b);

        if (err < 0) {
            return err;
        }
    }
    if (b->at == b->limit) {
        b->at = b->head_cap;
    }
    *where = b->data + b->at;
    *room = b->size - b->at;
    return 0;
}

void buffer_commit(struct buffer *b, size_t n)
{
    b->at += n;
    b->total += n;
}

void buffer_view(const struct buffer *b, struct buffer_view *out)
{
    size_t tail = b->cap - b->head_cap;
    size_t in_ring = b->at - b->head_cap; /* used only where at >= head_cap */

    memset(out, 0, sizeof *out);
    out->total = b->total;
    out->head = b->data;
    if (b->total <= b->cap) { /* then it has not wrapped: limit is not below cap */
        out->head_len = (size_t)b->total;
        return;
    }
    out->head_len = b->head_cap;
    if (in_ring >= tail) {
        out->tail_a = b->data + (b->at - tail);
        out->tail_a_len = tail;
        return;
    }
    out->tail_a_len = tail - in_ring;
    out->tail_a = b->data + (b->limit - out->tail_a_len);
    out->tail_b = b->data + b->head_cap;
    out->tail_b_len = in_ring;
}

void buffer_free(struct buffer *b)
{
    free(b->data);
    buffer_init(b, b->cap);
}
