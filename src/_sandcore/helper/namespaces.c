/* The namespaces of a sandbox: entered by the root process once, before anything else is confined.
 *
 * A user namespace comes first, for root too: the capabilities that mounting needs are then worth
 * nothing outside. Its user is the one that we are. Root maps every number to itself, so that files
 * keep their owners; who has entered cannot do that. And a network namespace takes the kernel longer
 * than all the mounts. So a second process, the *maker*, is born in the new user namespace, and makes
 * the slow ones in it while the root, which is still outside, writes the maps, joins, and mounts;
 * then the root joins those too, and the maker ends. It shares the root's memory, runs nothing but
 * what is here, and ends with it: it reads from a socket whose other end only the root has. */
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

enum { LINE = 64, MAP = 4000, MAKER_STACK = 4096 }; /* of a map the kernel takes less than a page */

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
    at = text_put_number(at, number);
    *at = behind;
    return at + 1;
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

static int open_process(int32_t pid)
{
    char path[sizeof "/proc/" + TEXT_NUMBER];
    text_put_number(text_put(path, "/proc/"), (uint64_t)pid);
    return (int)SYS_4(SYS_openat, AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
}

static int write_maps(int32_t pid)
{
    uint32_t user = (uint32_t)SYS_0(SYS_geteuid), group = (uint32_t)SYS_0(SYS_getegid);
    int directory = open_process(pid);
    if (directory < 0) {
        return directory;
    }
    int error = user == 0 ? map_all(directory) : map_self(directory, user, group);
    SYS_1(SYS_close, directory);
    return error;
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

/* The maker. It has a copy of the fds, so it lets go of the root's end, or would wait for itself. */
static int make(void *argument)
{
    const struct namespaces *spaces = argument;
    char word;
    SYS_1(SYS_close, spaces->root_end);
    int error = (int)SYS_1(SYS_unshare, spaces->slow);
    if (error == 0 && spaces->slow & CLONE_NEWNET) {
        error = raise_loopback();
    }
    SYS_3(SYS_write, spaces->maker_end, &error, sizeof error);
    SYS_3(SYS_read, spaces->maker_end, &word, 1);
    return 0;
}

int namespaces_begin(const struct policy_view *policy, struct namespaces *spaces)
{
    static _Alignas(16) uint8_t stack[MAKER_STACK];
    int own_network = (policy->header->flags & POLICY_OWN_NETWORK) != 0;
    int32_t pair[2];
    spaces->slow = CLONE_NEWUTS | (own_network ? CLONE_NEWNET : 0);
    long error = SYS_4(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
    if (error < 0) {
        return (int)error;
    }
    spaces->root_end = pair[0];
    spaces->maker_end = pair[1];
    long pid = sys_clone(CLONE_VM | CLONE_NEWUSER | CLONE_PIDFD | SIGCHLD, stack + sizeof stack,
                         &spaces->maker, 0, make, spaces);
    SYS_1(SYS_close, pair[1]);
    spaces->pid = (int32_t)pid;
    error = pid < 0 ? pid : write_maps(spaces->pid);
    if (error == 0) {
        error = SYS_2(SYS_setns, spaces->maker, CLONE_NEWUSER);
    }
    return error ? (int)error : (int)SYS_1(SYS_unshare, CLONE_NEWNS);
}

static int join(const struct namespaces *spaces)
{
    int made = 0;
    long size = SYS_3(SYS_read, spaces->root_end, &made, sizeof made);
    if (size != sizeof made) {
        return size < 0 ? (int)size : -EPIPE;
    }
    return made ? made : (int)SYS_2(SYS_setns, spaces->maker, spaces->slow);
}

int namespaces_finish(const struct namespaces *spaces, int failed)
{
    if (spaces->pid <= 0) {
        return failed;
    }
    int error = failed ? failed : join(spaces);
    SYS_1(SYS_close, spaces->root_end);
    SYS_1(SYS_close, spaces->maker);
    if (error) { /* else it is reaped with the lanes: nobody waits for its last steps */
        SYS_4(SYS_wait4, spaces->pid, 0, __WALL, 0);
    }
    return error;
}
