/* A kernel made of an input: it answers each call of the helper as the next bytes say, and holds the
 * helper to its fds: none is closed that is not open, none is forgotten. */
#ifndef SANDCORE_FUZZ_KERNEL_H
#define SANDCORE_FUZZ_KERNEL_H

#include "fuzz.h"

/* From here on all answers come from these bytes; where they end, all goes well and says nothing. */
void kernel_begin(struct fuzz_bytes answers);

/* How many fds are open. */
unsigned kernel_open_fds(void);

#endif
