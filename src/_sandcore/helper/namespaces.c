/* The namespaces of a sandbox: entered by the root process once, before anything else is confined.
 *
 * A user namespace comes first, for root too: the capabilities that mounting needs are then worth
 * nothing outside. Its user is the one that we are. Root maps every number to itself, so that files
 * keep their owners; that takes a process that stays outside, because who has entered cannot. */
#define _GNU_SOURCE
#include "helper.h"
#include "sys.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { LINE = 64, MAP = 4000 }; /* of a map the kernel takes less than a page */

/* struct ifreq as far as flags need it; the C library's header clashes with the kernel's. */
struct interface {
    char name[16];
    int16_t flags;
    char rest[22];
};
#define SET_INTERFACE_FLAGS 0x8914
#define INTERFACE_UP 0x1
_Static_assert(sizeof(struct interface) == 40, "the kernel reads all of a struct ifreq");

static char *put_number(char *at, uint32_t number, char behind)
{
    char digits[TEXT_NUMBER];
    const char *text = text_of(number, digits);
    size_t length = strlen(text);
    memcpy(at, text, length);
    at[length] = behind;
    return at + length + 1;
}

/* One line of a map: these numbers are themselves inside. */
static char *put_line(char *at, uint32_t first, uint32_t count)
{
    at = put_number(at, first, ' ');
    at = put_number(at, first, ' ');
    return put_number(at, count, '\n');
}

static int write_map(int directory, const char *name, uint32_t first, uint32_t count)
{
    char line[LINE];
    return text_write(directory, name, line, (size_t)(put_line(line, first, count) - line));
}

/* Of each range of a map the first number and the count, mapped to itself; the length of that. */
static size_t same_ranges(const char *map, size_t size, char *out)
{
    uint32_t field[3] = {0};
    char *at = out;
    int which = 0;
    for (size_t i = 0; i + 1 < size; i++) {
        if (map[i] < '0' || map[i] > '9') {
            continue;
        }
        field[which] = field[which] * 10 + (uint32_t)(map[i] - '0');
        if (map[i + 1] >= '0' && map[i + 1] <= '9') {
            continue;
        }
        if (which == 2) {
            at = put_line(at, field[0], field[2]);
            field[0] = field[1] = field[2] = 0;
        }
        which = (which + 1) % 3;
    }
    return (size_t)(at - out);
}

/* All the numbers that there are here: in a container not every one is, nor in one piece. */
static int map_same(int directory, const char *name, const char *ours)
{
    char map[MAP], out[MAP];
    long fd = SYS_4(SYS_openat, AT_FDCWD, ours, O_RDONLY | O_CLOEXEC, 0);
    long size = fd < 0 ? fd : SYS_3(SYS_read, fd, map, sizeof map);
    if (fd >= 0) {
        SYS_1(SYS_close, fd);
    }
    if (size < 0) {
        return (int)size;
    }
    /* What is written for a line is never longer than the line, which is padded. */
    return text_write(directory, name, out, same_ranges(map, (size_t)size, out));
}

static int map_all(int directory)
{
    int error = map_same(directory, "uid_map", "/proc/self/uid_map");
    return error ? error : map_same(directory, "gid_map", "/proc/self/gid_map");
}

/* Only one's own; what other groups there were still count, under the name of nobody's. */
static int map_self(int directory, uint32_t user, uint32_t group)
{
    int error = text_write(directory, "setgroups", "deny", 4);
    if (error == 0) {
        error = write_map(directory, "uid_map", user, 1);
    }
    return error ? error : write_map(directory, "gid_map", group, 1);
}

/* In a process that stays outside: waits until the other has entered. */
static int map_from_outside(int directory, int entered)
{
    char word = 0;
    long got = SYS_3(SYS_read, entered, &word, 1);
    return got == 1 ? map_all(directory) : -EPIPE;
}

static long enter(unsigned long flags)
{
    return SYS_1(SYS_unshare, flags);
}

/* The status with which the mapping process ended, as an errno. */
static int await_mapper(long pid)
{
    int32_t status = 0;
    long ended;
    do {
        ended = SYS_4(SYS_wait4, pid, &status, __WALL, 0);
    } while (ended == -EINTR);
    if (ended < 0 || (status & 0x7f) != 0) {
        return -ECHILD;
    }
    return -((status >> 8) & 0xff);
}

static int enter_mapping_all(unsigned long flags, int directory)
{
    int32_t pipe[2];
    long error = SYS_2(SYS_pipe2, pipe, O_CLOEXEC);
    if (error < 0) {
        return (int)error;
    }
    long pid = SYS_5(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        SYS_1(SYS_close, pipe[1]); /* or it would wait for itself when the other has ended */
        helper_exit(-map_from_outside(directory, pipe[0]));
    }
    SYS_1(SYS_close, pipe[0]);
    error = pid < 0 ? pid : enter(flags);
    if (error == 0) {
        SYS_3(SYS_write, pipe[1], "!", 1);
    }
    SYS_1(SYS_close, pipe[1]);
    if (pid > 0) {
        int mapped = await_mapper(pid);
        error = error ? error : mapped;
    }
    return (int)error;
}

/* A new network namespace has a loopback that is down. */
static int raise_loopback(void)
{
    struct interface loopback = {.name = "lo", .flags = INTERFACE_UP};
    long fd = SYS_3(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return (int)fd;
    }
    long error = SYS_3(SYS_ioctl, fd, SET_INTERFACE_FLAGS, &loopback);
    SYS_1(SYS_close, fd);
    return (int)error;
}

int namespaces_enter(const struct policy_view *policy)
{
    unsigned long flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS;
    int own_network = (policy->header->flags & POLICY_OWN_NETWORK) != 0;
    uint32_t user = (uint32_t)SYS_0(SYS_geteuid), group = (uint32_t)SYS_0(SYS_getegid);
    flags |= own_network ? CLONE_NEWNET : 0;
    long directory = SYS_4(SYS_openat, AT_FDCWD, "/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (directory < 0) {
        return (int)directory;
    }
    int error = -EPERM;
    if (user == 0) {
        error = enter_mapping_all(flags, (int)directory);
    } else {
        error = (int)enter(flags);
        error = error ? error : map_self((int)directory, user, group);
    }
    SYS_1(SYS_close, directory);
    if (error == 0 && own_network) {
        error = raise_loopback();
    }
    return error;
}
