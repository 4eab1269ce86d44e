/* core/buffer.h */
#define BUFFER_FIRST ...
#define BUFFER_ROOM_MIN ...
#define BUFFER_RING_MIN ...
#define BUFFER_TAIL_MAX ...
struct buffer { size_t size; size_t cap; size_t head_cap; size_t limit; size_t at; uint64_t total; ...; };
struct buffer_view {
    const uint8_t *head;
    size_t head_len;
    const uint8_t *tail_a;
    size_t tail_a_len;
    const uint8_t *tail_b;
    size_t tail_b_len;
    uint64_t total;
};
void buffer_init(struct buffer *b, size_t cap);
int buffer_room(struct buffer *b, uint8_t **where, size_t *room);
void buffer_commit(struct buffer *b, size_t n);
void buffer_view(const struct buffer *b, struct buffer_view *out);
void buffer_free(struct buffer *b);
