/* Classic BPF, written back to front.
 *
 * A BPF jump only goes forward. A program that is written from its last instruction to its first
 * therefore knows every target before the jump to it, and needs neither names nor a second pass: a
 * label is how many instructions stood behind (and with) the target when it was written. A branch
 * reaches only 255 instructions far; beyond that it goes over a copy of the return it wants, or
 * over a plain jump, which are written where they are needed.
 *
 * Pure: no system call, no allocation; the caller's array is the only memory written. */
#ifndef SANDCORE_BPF_H
#define SANDCORE_BPF_H

#include <stddef.h>
#include <stdint.h>
#include <linux/filter.h>

typedef uint32_t bpf_label;

/* A program that is being written into the end of out[cap]. full is set, and stays, when it did not
 * fit; nothing is written any more then. */
struct bpf_writer {
    struct sock_filter *out;
    size_t cap;
    size_t len;
    int full;
};

/* Each writes one instruction before those that are there, and returns its label. What does not
 * jump falls through to the instruction that was written just before it. */
bpf_label bpf_return(struct bpf_writer *w, uint32_t value);
bpf_label bpf_load(struct bpf_writer *w, uint32_t offset);
bpf_label bpf_and(struct bpf_writer *w, uint32_t mask);

/* op is BPF_JEQ, BPF_JGE or BPF_JSET against the constant k. */
bpf_label bpf_branch(struct bpf_writer *w, uint16_t op, uint32_t k, bpf_label yes, bpf_label no);

/* To yes when the accumulator is one of the values, else to no. */
bpf_label bpf_any(struct bpf_writer *w, const uint32_t *values, size_t count, bpf_label yes,
                  bpf_label no);

/* One piece of a partition of 0..2^32-1: from start up to the next piece's start. */
struct bpf_range {
    uint32_t start;
    bpf_label to;
};

/* A balanced search tree over the accumulator, with short chains for leaves. ranges[0].start is 0, starts rise, count >= 1. */
bpf_label bpf_tree(struct bpf_writer *w, const struct bpf_range *ranges, size_t count);

/* Moves the program to out[0]; returns its length, or -ENOSPC. */
int bpf_finish(struct bpf_writer *w);

#endif
