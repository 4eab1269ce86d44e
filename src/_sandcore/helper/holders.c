/* Whether a process of the lanes has a socket open.
 *
 * In a network that is the host's the kernel's list of sockets has the host's too, and does not say
 * whose they are. A socket that somebody of the sandbox listens on is open in one of its processes, so
 * their fds are looked through. This only saves services of the host from a knock: what decides is who
 * listens. What there is no time to look at, or lies in a message that nobody has received, is taken
 * for the host's. */
#define _GNU_SOURCE
#include "supervisor.h"
#include "sys.h"
#include "text.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

enum {
    LIST_BYTES = 8192,
    LINK_BYTES = 32,    /* "socket:[" and ten digits */
    LOOKS_MOST = 65536, /* fds of all processes: tens of milliseconds */
};

struct search {
    int32_t proc;
    const uint32_t *sockets;
    uint32_t count, looks;
};

struct entry {
    uint64_t inode;
    int64_t next;
    uint16_t size;
    uint8_t type;
    char name[];
};

static int is_number(const char *text)
{
    return text[0] >= '1' && text[0] <= '9';
}

static int is_one(const struct search *search, uint64_t socket)
{
    for (uint32_t i = 0; i < search->count; i++) {
        if (search->sockets[i] == socket) {
            return 1;
        }
    }
    return 0;
}

static int is_wanted(const struct search *search, const char *link, long size)
{
    static const char kind[] = "socket:[";
    const size_t length = sizeof kind - 1;
    if (size <= (long)length || memcmp(link, kind, length) != 0) {
        return 0;
    }
    const char *at = link + length;
    return is_one(search, text_take(&at, link + size));
}

/* Calls `look` for what is listed in a directory until it says yes. */
static int any(struct search *search, int directory,
               int (*look)(struct search *, int, const char *))
{
    char list[LIST_BYTES] __attribute__((aligned(8)));
    long size;
    while ((size = SYS_3(SYS_getdents64, directory, list, sizeof list)) > 0) {
        for (long at = 0; at < size;) {
            const struct entry *entry = (const struct entry *)(list + at);
            if (search->looks >= LOOKS_MOST) {
                return 0;
            }
            if (look(search, directory, entry->name)) {
                return 1;
            }
            at += entry->size;
        }
    }
    return 0;
}

static int look_at_fd(struct search *search, int directory, const char *name)
{
    char link[LINK_BYTES];
    search->looks++;
    long size = SYS_4(SYS_readlinkat, directory, name, link, sizeof link);
    return is_wanted(search, link, size);
}

/* A process that is not dumpable shows its fds to nobody whose numbers do not include root, but gives
 * copies of them to who may trace it. */
static int take_fds(struct search *search, uint64_t process)
{
    long pidfd = SYS_2(SYS_pidfd_open, process, 0);
    int64_t count = pidfd < 0 ? 0 : status_number(search->proc, process, "FDSize:", 10);
    int found = 0;
    for (int64_t fd = 0; fd < count && !found && search->looks++ < LOOKS_MOST; fd++) {
        struct statx file = {0};
        int copy = (int)SYS_3(SYS_pidfd_getfd, pidfd, fd, 0);
        found = copy >= 0 &&
                SYS_5(SYS_statx, copy, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO, &file) == 0 &&
                (file.stx_mode & S_IFMT) == S_IFSOCK && is_one(search, file.stx_ino);
        tree_drop(copy);
    }
    tree_drop((int)pidfd);
    return found;
}

static int look_at_process(struct search *search, int directory, const char *name)
{
    char path[TEXT_NUMBER + sizeof "/fd"];
    size_t length = strlen(name);
    if (!is_number(name) || length >= TEXT_NUMBER) {
        return 0;
    }
    memcpy(path, name, length);
    memcpy(path + length, "/fd", sizeof "/fd");
    int fds = (int)SYS_4(SYS_openat, directory, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fds < 0) {
        const char *at = name;
        return fds == -EACCES && take_fds(search, text_take(&at, name + length));
    }
    int found = any(search, fds, look_at_fd);
    tree_drop(fds);
    return found;
}

int holders_have(const struct supervisor *self, const uint32_t *sockets, uint32_t count)
{
    struct search search = {.proc = self->proc, .sockets = sockets, .count = count};
    int all = (int)SYS_4(SYS_openat, self->proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    int found = all >= 0 && any(&search, all, look_at_process);
    tree_drop(all);
    return found;
}
