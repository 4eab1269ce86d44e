// bpf.h
struct sock_filter {
    uint16_t code;
    uint8_t jt;
    uint8_t jf;
    uint32_t k;
};
typedef uint32_t bpf_label;
struct bpf_writer {
    struct sock_filter *out;
    size_t cap;
    size_t len;
    int full;
};
struct bpf_range {
    uint32_t start;
    bpf_label to;
};
bpf_label bpf_return(struct bpf_writer *w, uint32_t value);
bpf_label bpf_load(struct bpf_writer *w, uint32_t offset);
bpf_label bpf_and(struct bpf_writer *w, uint32_t mask);
bpf_label bpf_branch(struct bpf_writer *w, uint16_t op, uint32_t k, bpf_label yes, bpf_label no);
bpf_label bpf_any(struct bpf_writer *w, const uint32_t *values, size_t count, bpf_label yes,
                  bpf_label no);
bpf_label bpf_tree(struct bpf_writer *w, const struct bpf_range *ranges, size_t count);
int bpf_finish(struct bpf_writer *w);
