/* See text.h. */
#define _GNU_SOURCE
#include "text.h"

#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

const char *text_of(uint64_t number, char *out)
{
    char *at = out + TEXT_NUMBER - 1;
    *at = '\0';
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    return at;
}

char *text_put(char *at, const char *text)
{
    size_t length = strlen(text);
    memcpy(at, text, length + 1);
    return at + length;
}

char *text_put_number(char *at, uint64_t number)
{
    char digits[TEXT_NUMBER];
    return text_put(at, text_of(number, digits));
}

uint64_t text_take(const char **at, const char *end)
{
    uint64_t number = 0;
    while (*at < end && **at >= '0' && **at <= '9') {
        number = number * 10 + (uint64_t)(*(*at)++ - '0');
    }
    return number;
}

int text_write(int directory, const char *name, const char *text, size_t size)
{
    long fd = SYS_4(SYS_openat, directory, name, O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return (int)fd;
    }
    long written = SYS_3(SYS_write, fd, text, size);
    SYS_1(SYS_close, fd);
    if (written < 0) {
        return (int)written;
    }
    return (size_t)written == size ? 0 : -EIO;
}

int text_write_number(int directory, const char *name, uint64_t number)
{
    char digits[TEXT_NUMBER];
    const char *text = text_of(number, digits);
    return text_write(directory, name, text, strlen(text));
}
