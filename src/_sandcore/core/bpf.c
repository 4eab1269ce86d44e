#include "bpf.h"

#include <errno.h>

#define BRANCH_REACH 255u

/* Below this many comparisons a chain is better than a tree. An install costs the kernel about
 * 0.25 us for each instruction that it translates and 4 ns for each step of each number's path:
 * chains of 1 / 4 / 6 / 8 made 198 / 171 / 170 / 161 instructions and 112 / 106 / 103 / 108 us. */
#define CHAIN_LONGEST 6

static bpf_label bpf_write(struct bpf_writer *w, struct sock_filter insn)
{
    if (w->len >= w->cap) {
        w->full = 1;
    }
    if (!w->full) {
        w->out[w->cap - w->len - 1] = insn;
        w->len++;
    }
    return (bpf_label)w->len;
}

bpf_label bpf_return(struct bpf_writer *w, uint32_t value)
{
    return bpf_write(w, (struct sock_filter){.code = BPF_RET | BPF_K, .k = value});
}

bpf_label bpf_load(struct bpf_writer *w, uint32_t offset)
{
    return bpf_write(w, (struct sock_filter){.code = BPF_LD | BPF_W | BPF_ABS, .k = offset});
}

bpf_label bpf_and(struct bpf_writer *w, uint32_t mask)
{
    return bpf_write(w, (struct sock_filter){.code = BPF_ALU | BPF_AND | BPF_K, .k = mask});
}

/* How many instructions lie between one that is written next and its target. */
static uint32_t bpf_distance(const struct bpf_writer *w, bpf_label target)
{
    return (uint32_t)w->len - target;
}

/* A label that does what target does and is near: a copy where target returns, else a jump to it.
 */
static bpf_label bpf_bring_near(struct bpf_writer *w, bpf_label target)
{
    if (w->full) {
        return target;
    }
    struct sock_filter insn = w->out[w->cap - target];
    if (BPF_CLASS(insn.code) != BPF_RET) {
        insn = (struct sock_filter){.code = BPF_JMP | BPF_JA, .k = bpf_distance(w, target)};
    }
    return bpf_write(w, insn);
}

bpf_label bpf_branch(struct bpf_writer *w, uint16_t op, uint32_t k, bpf_label yes, bpf_label no)
{
    /* One less than the reach: the detour of the second may push the first one further away. */
    if (bpf_distance(w, yes) > BRANCH_REACH - 1) {
        yes = bpf_bring_near(w, yes);
    }
    if (bpf_distance(w, no) > BRANCH_REACH) {
        no = bpf_bring_near(w, no);
    }
    return bpf_write(w, (struct sock_filter){
                            .code = (uint16_t)(BPF_JMP | op | BPF_K),
                            .jt = (uint8_t)bpf_distance(w, yes),
                            .jf = (uint8_t)bpf_distance(w, no),
                            .k = k,
                        });
}

bpf_label bpf_any(struct bpf_writer *w, const uint32_t *values, size_t count, bpf_label yes,
                  bpf_label no)
{
    bpf_label next = no;
    for (size_t i = count; i-- > 0;) {
        next = bpf_branch(w, BPF_JEQ, values[i], yes, next);
    }
    return next;
}

/* Whether range i is one number in the midst of a range that goes on behind it: JEQ takes it out, and
 * its neighbours are one range then. */
static int bpf_is_exception(const struct bpf_range *r, size_t count, size_t i)
{
    return i > 0 && i + 1 < count && r[i + 1].start - r[i].start == 1 && r[i - 1].to == r[i + 1].to;
}

/* The first exception from i on, or count. Of two in a row the second is what goes on. */
static size_t bpf_next_exception(const struct bpf_range *r, size_t count, size_t i)
{
    while (i < count && !bpf_is_exception(r, count, i)) {
        i++;
    }
    return i;
}

/* One comparison after the other: exceptions first, then what is left from the highest start down.
 * All but the last fall through where they do not match, which is one instruction less each once
 * the kernel has translated it. Without a writer it only counts them. */
static size_t bpf_chain(struct bpf_writer *w, const struct bpf_range *r, size_t count,
                        bpf_label *first)
{
    size_t length = 0;
    bpf_label next = r[0].to, kept = r[0].to;
    for (size_t i = 1, out = bpf_next_exception(r, count, 1); i < count; i++) {
        if (i == out) {
            out = bpf_next_exception(r, count, i + 2);
        } else if (r[i].to != kept) {
            kept = r[i].to;
            next = w ? bpf_branch(w, BPF_JGE, r[i].start, kept, next) : next;
            length++;
        }
    }
    for (size_t i = bpf_next_exception(r, count, 1); i < count;
         i = bpf_next_exception(r, count, i + 2)) {
        next = w ? bpf_branch(w, BPF_JEQ, r[i].start, r[i].to, next) : next;
        length++;
    }
    *first = next;
    return length;
}

bpf_label bpf_tree(struct bpf_writer *w, const struct bpf_range *ranges, size_t count)
{
    bpf_label first;
    if (bpf_chain(NULL, ranges, count, &first) <= CHAIN_LONGEST) {
        bpf_chain(w, ranges, count, &first);
        return first;
    }
    size_t half = count / 2;
    bpf_label right = bpf_tree(w, ranges + half, count - half);
    bpf_label left = bpf_tree(w, ranges, half);
    return bpf_branch(w, BPF_JGE, ranges[half].start, right, left);
}

int bpf_finish(struct bpf_writer *w)
{
    if (w->full) {
        return -ENOSPC;
    }
    const struct sock_filter *from = w->out + (w->cap - w->len);
    for (size_t i = 0; i < w->len; i++) {
        w->out[i] = from[i];
    }
    return (int)w->len;
}
