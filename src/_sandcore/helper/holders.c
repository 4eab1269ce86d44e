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

enum {
    LIST_BYTES = 8192,
    LINK_BYTES = 32,    /* "socket:[" and ten digits */
    LOOKS_MOST = 65536, /* fds of all processes: tens of milliseconds */
};

struct search {
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

static int is_wanted(const struct search *search, const char *link, long size)
{
    static const char kind[] = "socket:[";
    const size_t length = sizeof kind - 1;
    if (size <= (long)length || memcmp(link, kind, length) != 0) {
        return 0;
    }
    const char *at = link + length;
    uint64_t number = text_take(&at, link + size);
    for (uint32_t i = 0; i < search->count; i++) {
        if (search->sockets[i] == number) {
            return 1;
        }
    }
    return 0;
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
    int found = fds >= 0 && any(search, fds, look_at_fd);
    tree_drop(fds);
    return found;
}

int holders_have(const struct supervisor *self, const uint32_t *sockets, uint32_t count)
{
    struct search search = {.sockets = sockets, .count = count};
    int all = (int)SYS_4(SYS_openat, self->proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    int found = all >= 0 && any(&search, all, look_at_process);
    tree_drop(all);
    return found;
}
