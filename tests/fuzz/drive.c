/* The main of each fuzz program.
 *
 * Built by afl-clang-fast: serves AFL++ in one process, inputs in shared memory. Else:
 *     PROGRAM LAST MUTATIONS FILE...
 * runs each file, and that many changed copies of it; LAST is a file that holds the input at hand, and
 * so the one that did it after a crash. The changes are the same each time. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_INPUT = 1 << 18, PATIENCE_S = 20 };

static void run_copy(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    fuzz_one(copy, size);
    free(copy);
}

#ifdef __AFL_FUZZ_TESTCASE_LEN
__AFL_FUZZ_INIT();

int main(void)
{
    fuzz_start();
    __AFL_INIT();
    const uint8_t *data = __AFL_FUZZ_TESTCASE_BUF;
    while (__AFL_LOOP(20000)) {
        run_copy(data, (size_t)__AFL_FUZZ_TESTCASE_LEN);
    }
    return 0;
}
#else
static uint64_t state = 0x9e3779b97f4a7c15;

static uint32_t random_below(size_t bound)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return bound ? (uint32_t)(state >> 32) % (uint32_t)bound : 0;
}

/* One change: a bit, a byte, an edge of the integers, a span that is copied, or another length. */
static size_t change(uint8_t *data, size_t size)
{
    static const uint32_t edges[] = {0,   1,    7,     16,       17,       127,
                                     255, 4096, 65536, 1u << 20, 1u << 31, ~0u};
    size_t at = random_below(size), length = 1 + random_below(16);
    switch (random_below(6)) {
    case 0:
        data[at] ^= (uint8_t)(1u << random_below(8));
        return size;
    case 1:
        data[at] = (uint8_t)random_below(256);
        return size;
    case 2:
        at &= ~(size_t)3;
        memcpy(data + at, &edges[random_below(sizeof edges / sizeof *edges)], 4);
        return at + 4 > size ? at + 4 : size;
    case 3:
        memmove(data + at, data + random_below(size), at + length < size ? length : 0);
        return size;
    case 4:
        return at;
    default:
        memset(data + size, (int)random_below(2) * '/', length);
        return size + length;
    }
}

static uint8_t *map_last(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    uint8_t *last = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, MAX_INPUT + 4096) == 0) {
        last = mmap(NULL, MAX_INPUT + 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (last == MAP_FAILED) {
        perror(path);
        exit(2);
    }
    close(fd);
    return last;
}

static size_t read_file(const char *path, uint8_t *data)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(2);
    }
    size_t size = fread(data, 1, MAX_INPUT, file);
    fclose(file);
    return size;
}

int main(int argc, char **argv)
{
    static uint8_t seed[MAX_INPUT];
    if (argc < 4) {
        fprintf(stderr, "usage: %s LAST MUTATIONS FILE...\n", argv[0]);
        return 2;
    }
    uint8_t *last = map_last(argv[1]);
    long mutations = atol(argv[2]), runs = 0;
    fuzz_start();
    for (int i = 3; i < argc; i++) {
        size_t size = read_file(argv[i], seed);
        for (long round = 0; round <= mutations; round++, runs++) {
            size_t now = size;
            memcpy(last, seed, size);
            for (uint32_t n = round ? 1 + random_below(4) : 0; n > 0; n--) {
                now = now < MAX_INPUT ? change(last, now) : now;
            }
            alarm(PATIENCE_S);
            run_copy(last, now);
        }
    }
    printf("%ld inputs\n", runs);
    return 0;
}
#endif
