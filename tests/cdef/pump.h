/* core/pump.h */
enum pump_event { PUMP_WATCH, PUMP_CLOSED, PUMP_DEADLINE, PUMP_SILENCE, PUMP_SIGNAL, ... };
struct pump;
struct pump_setup {
    int in_fd;
    const uint8_t *input;
    size_t input_len;
    int out_fd;
    int err_fd;
    int watch_fd;
    size_t out_cap;
    size_t err_cap;
};
struct pump_output {
    const uint8_t *head;
    size_t head_len;
    const uint8_t *tail_a;
    size_t tail_a_len;
    const uint8_t *tail_b;
    size_t tail_b_len;
    uint64_t total;
};
int pump_new(const struct pump_setup *setup, struct pump **out);
int pump_wait(struct pump *p, int64_t deadline_ns, int64_t silence_ns);
void pump_watch(struct pump *p, int watch_fd);
int pump_drain(struct pump *p);
void pump_output(const struct pump *p, int which, struct pump_output *out);
void pump_free(struct pump *p);
