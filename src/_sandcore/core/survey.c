/* See survey.h. */
#define _GNU_SOURCE
#include "survey.h"

#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { IS_DIRECTORY = 4, IS_UNKNOWN = 0, LIST_BYTES = 16384 }; /* DT_DIR, DT_UNKNOWN */

struct entry {
    uint64_t inode, next;
    uint16_t size;
    uint8_t type;
    char name[];
};

/* The place of a name in a list; that of its end where it is in none. */
static unsigned find(const char *name, const char *const *list)
{
    unsigned at = 0;
    while (list[at] && strcmp(name, list[at]) != 0) {
        at++;
    }
    return at;
}

static int is_directory(int above, const struct entry *entry)
{
    struct stat found;
    if (entry->type != IS_UNKNOWN) {
        return entry->type == IS_DIRECTORY;
    }
    /* What cannot be looked at may be one. */
    return fstatat(above, entry->name, &found, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(found.st_mode);
}

static void note(int above, const struct entry *entry, const char *const *names,
                 const char *const *passed, struct survey *out)
{
    if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0) {
        return;
    }
    unsigned at = find(entry->name, names);
    out->present |= names[at] ? UINT64_C(1) << at : 0;
    if (!out->directories && is_directory(above, entry)) {
        out->directories = !passed[find(entry->name, passed)];
    }
}

int survey_directory(const char *path, const char *const *names, const char *const *passed,
                     struct survey *out)
{
    char list[LIST_BYTES] __attribute__((aligned(8)));
    *out = (struct survey){0};
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    long size;
    while ((size = SYS_3(SYS_getdents64, fd, list, sizeof list)) > 0) {
        for (long at = 0; at < size;
             at += ((const struct entry *)(const void *)(list + at))->size) {
            note(fd, (const struct entry *)(const void *)(list + at), names, passed, out);
        }
    }
    SYS_1(SYS_close, fd);
    return (int)size;
}
