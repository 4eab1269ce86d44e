/* See fuzz.h. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile uint8_t sink;

void fuzz_fail(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}

void fuzz_use(const void *bytes, size_t size)
{
    uint8_t sum = 0;
    for (size_t i = 0; i < size; i++) {
        sum ^= ((const uint8_t *)bytes)[i];
    }
    if (sum) { /* valgrind complains of a decision, not of a copy */
        sink ^= sum;
    }
}

void fuzz_use_text(const char *text)
{
    fuzz_use(text, strlen(text));
}

uint64_t fuzz_open_fds(void)
{
    struct pollfd fds[64];
    uint64_t open = 0;
    for (int i = 0; i < 64; i++) {
        fds[i] = (struct pollfd){.fd = i};
    }
    poll(fds, 64, 0);
    for (int i = 0; i < 64; i++) {
        open |= (uint64_t)!(fds[i].revents & POLLNVAL) << i;
    }
    return open;
}

uint8_t fuzz_take(struct fuzz_bytes *bytes)
{
    return bytes->at < bytes->end ? *bytes->at++ : 0;
}
