/* See kernel.h. */
#define _GNU_SOURCE
#include "kernel.h"

#include <errno.h>
#include <linux/stat.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#include "sys.h"

enum { FIRST = 100, FDS = 4096, NAME = 24 };

static struct fuzz_bytes answers;
static uint8_t is_open[FDS];
static unsigned open_fds;

void kernel_begin(struct fuzz_bytes bytes)
{
    answers = bytes;
    memset(is_open, 0, sizeof is_open);
    open_fds = 0;
}

unsigned kernel_open_fds(void)
{
    return open_fds;
}

/* Three of four calls succeed, or no input would come far. */
static long result(void)
{
    static const uint8_t errors[] = {ENOENT, ENOTDIR, ELOOP,  EACCES, EPERM,
                                     EEXIST, EINTR,   ENOMEM, EMFILE, EIO};
    uint8_t byte = fuzz_take(&answers);
    return byte < 192 ? 0 : -errors[byte % sizeof errors];
}

static long open_fd(void)
{
    long error = result();
    for (int i = 0; error == 0 && i < FDS; i++) {
        if (!is_open[i]) {
            is_open[i] = 1;
            open_fds++;
            return FIRST + i;
        }
    }
    return error ? error : -EMFILE;
}

static long close_fd(long fd)
{
    FUZZ_CHECK(fd >= FIRST && fd < FIRST + FDS && is_open[fd - FIRST]);
    is_open[fd - FIRST] = 0;
    open_fds--;
    return 0;
}

static long fill(void *out, size_t size)
{
    uint8_t *bytes = out;
    for (size_t i = 0; i < size; i++) {
        bytes[i] = fuzz_take(&answers);
    }
    return (long)size;
}

static long stat_file(struct statx *out)
{
    static const uint16_t modes[] = {S_IFDIR | 0755, S_IFDIR, S_IFREG | 0644, S_IFCHR, S_IFLNK};
    long error = result();
    memset(out, 0, sizeof *out);
    out->stx_mode = modes[fuzz_take(&answers) % 5];
    out->stx_ino = fuzz_take(&answers) % 4;
    out->stx_attributes = fuzz_take(&answers) & 1 ? STATX_ATTR_MOUNT_ROOT : 0;
    return error;
}

/* What stands in a file of /proc: a line of length that comes first. */
static long read_file(uint8_t *out, size_t size)
{
    size_t length = (size_t)fuzz_take(&answers) * 4, left = (size_t)(answers.end - answers.at);
    length = length < size ? length : size;
    return result() ? -ESRCH : fill(out, length < left ? length : left);
}

/* One entry as the kernel makes them: what it says of itself is right, its name is anybody's. */
static long list(uint8_t *out, size_t size)
{
    uint8_t name[NAME], length = fuzz_take(&answers) % NAME;
    uint16_t bytes = (uint16_t)((19 + length + 1 + 7) & ~7);
    if (length == 0 || size < bytes) {
        return 0;
    }
    fill(name, length);
    memset(out, 0, bytes);
    memcpy(out + 16, &bytes, sizeof bytes);
    memcpy(out + 19, name, length);
    return bytes;
}

static long wait_for(struct pollfd *events, size_t count)
{
    long ready = 0;
    for (size_t i = 0; i < count; i++) {
        events[i].revents = fuzz_take(&answers) & POLLIN;
        ready += events[i].revents != 0;
    }
    return ready;
}

static long allocate(size_t size)
{
    void *at = result() == 0 && size > 0 ? calloc(1, size) : NULL;
    return at ? (long)at : -ENOMEM;
}

static long say_time(struct timespec *now)
{
    static time_t seconds;
    *now = (struct timespec){.tv_sec = seconds++};
    return 0;
}

long sys_call(long nr, long a, long b, long c, long d, long e, long f)
{
    (void)d, (void)f;
    switch (nr) {
    case SYS_openat:
    case SYS_openat2:
        fuzz_use_text((const char *)b);
        return open_fd();
    case SYS_open_tree:
    case SYS_fsopen:
    case SYS_fsmount:
    case SYS_eventfd2:
        return open_fd();
    case SYS_close:
        return close_fd(a);
    case SYS_mmap:
        return allocate((size_t)b);
    case SYS_munmap:
        free((void *)a);
        return 0;
    case SYS_statx:
        return stat_file((void *)e);
    case SYS_fstatfs:
        memset((void *)b, 0, sizeof(struct statfs));
        ((struct statfs *)b)->f_flags = fuzz_take(&answers) & 1;
        return result();
    case SYS_read:
        return read_file((void *)b, (size_t)c);
    case SYS_getdents64:
        return list((void *)b, (size_t)c);
    case SYS_getrandom:
        return fill((void *)a, (size_t)b);
    case SYS_ppoll:
        return wait_for((void *)a, (size_t)b);
    case SYS_clock_gettime:
        return say_time((void *)b);
    case SYS_renameat2:
        fuzz_use_text((const char *)b);
        fuzz_use_text((const char *)d);
        return result();
    case SYS_prlimit64:
        return d ? fill((void *)d, 16) & 0 : 0;
    case SYS_recvmsg:
    case SYS_getpid:
        return 0;
    case SYS_sendmsg:
    case SYS_umount2:
    case SYS_unlinkat:
    case SYS_fchdir:
    case SYS_futex:
    case SYS_mkdirat:
    case SYS_mknodat:
    case SYS_symlinkat:
    case SYS_mount_setattr:
    case SYS_move_mount:
    case SYS_fsconfig:
    case SYS_fcntl:
    case SYS_chdir:
    case SYS_lseek:
    case SYS_kill:
    case SYS_fchmodat:
    case SYS_write:
        return result();
    default:
        fprintf(stderr, "system call %ld\n", nr);
        FUZZ_CHECK(!"a system call that this kernel does not know");
    }
}
