/* The four functions that a compiler calls by itself, for sandcore-helper, which has no C library.
 * Not part of the extension: there they are the C library's. */
#ifdef SANDCORE_FREESTANDING
#include <stddef.h>
#include <stdint.h>

void *memcpy(void *restrict to, const void *restrict from, size_t size);
void *memset(void *to, int byte, size_t size);
int memcmp(const void *a, const void *b, size_t size);
size_t strlen(const char *text);

void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    uint8_t *target = to;
    const uint8_t *source = from;
    while (size--) {
        *target++ = *source++;
    }
    return to;
}

void *memset(void *to, int byte, size_t size)
{
    uint8_t *target = to;
    while (size--) {
        *target++ = (uint8_t)byte;
    }
    return to;
}

int memcmp(const void *a, const void *b, size_t size)
{
    const uint8_t *left = a, *right = b;
    for (; size; size--, left++, right++) {
        if (*left != *right) {
            return *left - *right;
        }
    }
    return 0;
}

size_t strlen(const char *text)
{
    const char *end = text;
    while (*end) {
        end++;
    }
    return (size_t)(end - text);
}
#endif
