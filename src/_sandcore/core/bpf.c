#include "bpf.h"

#include <errno.h>

#define BRANCH_REACH 255u

static bpf_label bpf_write(struct bpf_writer *w, struct sock_filter insn) {
    if (w->len >= w->cap)
        w->full = 1;
    if (!w->full) {
        w->out[w->cap - w->len - 1] = insn;
        w->len++;
    }
    return (bpf_label)w->len;
}

bpf_label bpf_return(struct bpf_writer *w, uint32_t value) {
    return bpf_write(w, (struct sock_filter){.code = BPF_RET | BPF_K, .k = value});
}

bpf_label bpf_load(struct bpf_writer *w, uint32_t offset) {
    return bpf_write(w, (struct sock_filter){.code = BPF_LD | BPF_W | BPF_ABS, .k = offset});
}

bpf_label bpf_and(struct bpf_writer *w, uint32_t mask) {
    return bpf_write(w, (struct sock_filter){.code = BPF_ALU | BPF_AND | BPF_K, .k = mask});
}

/* How many instructions lie between one that is written next and its target. */
static uint32_t bpf_distance(const struct bpf_writer *w, bpf_label target) {
    return (uint32_t)w->len - target;
}

/* A label that does what target does and is near: a copy where target returns, else a jump to it.
 */
static bpf_label bpf_bring_near(struct bpf_writer *w, bpf_label target) {
    if (w->full)
        return target;
    struct sock_filter insn = w->out[w->cap - target];
    if (BPF_CLASS(insn.code) != BPF_RET)
        insn = (struct sock_filter){.code = BPF_JMP | BPF_JA, .k = bpf_distance(w, target)};
    return bpf_write(w, insn);
}

bpf_label bpf_branch(struct bpf_writer *w, uint16_t op, uint32_t k, bpf_label yes, bpf_label no) {
    /* One less than the reach: the detour of the second may push the first one further away. */
    if (bpf_distance(w, yes) > BRANCH_REACH - 1)
        yes = bpf_bring_near(w, yes);
    if (bpf_distance(w, no) > BRANCH_REACH)
        no = bpf_bring_near(w, no);
    return bpf_write(w, (struct sock_filter){
                            .code = (uint16_t)(BPF_JMP | op | BPF_K),
                            .jt = (uint8_t)bpf_distance(w, yes),
                            .jf = (uint8_t)bpf_distance(w, no),
                            .k = k,
                        });
}

bpf_label bpf_any(struct bpf_writer *w, const uint32_t *values, size_t count, bpf_label yes,
                  bpf_label no) {
    bpf_label next = no;
    for (size_t i = count; i-- > 0;)
        next = bpf_branch(w, BPF_JEQ, values[i], yes, next);
    return next;
}

/* A single number among others that all go elsewhere: one comparison instead of two. */
static int bpf_is_exception(const struct bpf_range *r, size_t count) {
    return count == 3 && r[0].to == r[2].to && r[2].start - r[1].start == 1;
}

bpf_label bpf_tree(struct bpf_writer *w, const struct bpf_range *ranges, size_t count) {
    if (count == 1)
        return ranges[0].to;
    if (bpf_is_exception(ranges, count))
        return bpf_branch(w, BPF_JEQ, ranges[1].start, ranges[1].to, ranges[0].to);
    size_t half = count / 2;
    bpf_label right = bpf_tree(w, ranges + half, count - half);
    bpf_label left = bpf_tree(w, ranges, half);
    return bpf_branch(w, BPF_JGE, ranges[half].start, right, left);
}

int bpf_finish(struct bpf_writer *w) {
    if (w->full)
        return -ENOSPC;
    const struct sock_filter *from = w->out + (w->cap - w->len);
    for (size_t i = 0; i < w->len; i++)
        w->out[i] = from[i];
    return (int)w->len;
}
