/* Programs that feed bytes to the readers of bytes in core/ and helper/; see fuzzing.py.
 *
 * Each has fuzz_one; drive.c calls it, under AFL++ or with files and mutations of its own. Memory that
 * is given is allocated at its exact size, so that ASan and valgrind see the first byte too far. */
#ifndef SANDCORE_FUZZ_H
#define SANDCORE_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* One input; what is wrong with the answer ends the process by FUZZ_CHECK. */
void fuzz_one(const uint8_t *data, size_t size);

/* At the first input, before it. */
void fuzz_start(void);

#define FUZZ_CHECK(holds)                                                                          \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            fuzz_fail(#holds, __FILE__, __LINE__);                                                 \
        }                                                                                          \
    } while (0)

_Noreturn void fuzz_fail(const char *what, const char *file, int line);

/* Keeps a value: whoever made it up from bytes that are not there is seen to. */
void fuzz_use(const void *bytes, size_t size);
void fuzz_use_text(const char *text);

/* Which of the first 64 fds are open, a bit each. */
uint64_t fuzz_open_fds(void);

/* The next byte of an input, 0 at its end. */
struct fuzz_bytes {
    const uint8_t *at, *end;
};
uint8_t fuzz_take(struct fuzz_bytes *bytes);

#endif
