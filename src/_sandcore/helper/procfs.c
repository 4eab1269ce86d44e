/* Numbers in what /proc says of a command's processes, of their open files and of their mounts. */
#define _GNU_SOURCE
#include "supervisor.h"
#include "sys.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum { PATH_BYTES = 64, TEXT_BYTES = 2048 };

static int digit(char text)
{
    if (text >= '0' && text <= '9') {
        return text - '0';
    }
    return text >= 'a' && text <= 'f' ? text - 'a' + 10 : 16;
}

static int64_t read_number(int proc, const char *path, const char *line, int base)
{
    char text[TEXT_BYTES];
    long fd = SYS_4(SYS_openat, proc, path, O_RDONLY | O_CLOEXEC, 0);
    long size = fd < 0 ? fd : SYS_3(SYS_read, fd, text, sizeof text);
    long length = (long)strlen(line);
    if (fd >= 0) {
        SYS_1(SYS_close, fd);
    }
    for (long i = 0; i + length < size; i++) {
        if ((i > 0 && text[i - 1] != '\n') || memcmp(text + i, line, (size_t)length) != 0) {
            continue;
        }
        uint64_t number = 0;
        for (i += length + 1; i < size && digit(text[i]) < base; i++) {
            number = number * (uint64_t)base + (uint64_t)digit(text[i]);
        }
        return (int64_t)number;
    }
    return size < 0 ? size : -ENOENT;
}

/* A line of mountinfo begins with NUMBER PARENT MAJOR:MINOR. */
int64_t mount_device(int proc, uint64_t process, uint64_t mount)
{
    char path[PATH_BYTES], text[TEXT_BYTES];
    text_put(text_put_number(path, process), "/mountinfo");
    long fd = SYS_4(SYS_openat, proc, path, O_RDONLY | O_CLOEXEC, 0);
    uint64_t fields[4] = {0}, device = 0;
    int at = 0, found = 0;
    for (long size = fd; size >= 0 && !found;) {
        size = SYS_3(SYS_read, fd, text, sizeof text);
        size = size == 0 ? -ENOENT : size;
        for (long i = 0; i < size && !found; i++) {
            if (text[i] == '\n') {
                memset(fields, 0, sizeof fields);
                at = 0;
            } else if (at < 4 && digit(text[i]) < 10) {
                fields[at] = fields[at] * 10 + (uint64_t)digit(text[i]);
            } else if (at < 4 && ++at == 4) {
                found = fields[0] == mount;
                device = fields[2] << DEVICE_MINOR_BITS | fields[3];
            }
        }
    }
    if (fd >= 0) {
        SYS_1(SYS_close, fd);
    }
    return found ? (int64_t)device : -ENOENT;
}

int64_t status_number(int proc, uint64_t process, const char *line, int base)
{
    char path[PATH_BYTES];
    text_put(text_put_number(path, process), "/status");
    return read_number(proc, path, line, base);
}

int64_t fdinfo_number(int proc, uint64_t process, int fd, const char *line, int base)
{
    char path[PATH_BYTES];
    text_put_number(text_put(text_put_number(path, process), "/fdinfo/"), (uint64_t)fd);
    return read_number(proc, path, line, base);
}
