/* What the kernel tells of directories: that a name in them came, went or became another file, or
 * that the directory itself went away (inotify(7)).
 *
 * It is told when the change is done, before the call that made it returns. File systems that are
 * changed elsewhere tell of nothing. What is written into files, and their modes, are told where that
 * is asked for; what is written through a mapping, when the last fd and mapping of it are gone. */
#ifndef SANDCORE_NOTICES_H
#define SANDCORE_NOTICES_H

#include <stddef.h>
#include <stdint.h>

enum { NOTICES_AT_LEAST = 17, NOTICES_ALL = -1 };

struct notice {
    int32_t number; /* the directory's; NOTICES_ALL: some were lost, which can be of any */
    int32_t is_of_itself;
};

/* An fd that notices come from, or a negative errno. It never blocks. */
int notices_open(void);

/* The number of a directory from now on, the same for the same one, or a negative errno: EACCES
 * where it may be passed and not read, ENOSPC when the user watches too many. */
int notices_watch(int fd, const char *path, int of_contents);

int notices_forget(int fd, int32_t number);

/* Takes up to `most`, no fewer than NOTICES_AT_LEAST; how many, or a negative errno. */
long notices_take(int fd, struct notice *out, size_t most);

#endif
