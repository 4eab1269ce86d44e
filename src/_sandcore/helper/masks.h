/* Masks that stay: the root process watches what its mounts lie on.
 *
 * A mount lies on a file, not on a name. When the host puts another file there, as every editor does
 * to save, the kernel drops the mount: what was denied could be read, what was read-only be written.
 * So the directories on the way to each of these mounts are watched, and what is new at a name is
 * covered at once; lanes get it too, because their mounts are slaves of the root's.
 *
 * Between the file's appearance and its cover there is a moment, in which a command can open it.
 * File systems that tell of no changes (those of a network, made elsewhere) are not covered until
 * the caller looks, which it does before each command. */
#ifndef SANDCORE_MASKS_H
#define SANDCORE_MASKS_H

#include "policy.h"

#include <stdint.h>

/* A directory on the way to a mount: the first `length` bytes of the path of a row, 0: the root. */
struct masks_directory {
    int32_t watch; /* -1: none */
    uint32_t row, length;
};

struct masks {
    const struct policy_view *policy;
    int32_t events; /* fd to poll for reading; -1: nothing is watched */
    uint32_t count;
    struct masks_directory *directories;
    uint32_t unwatched; /* directories in which a change would not be noticed */
};

/* Watches; before the mounts are made, so that nothing happens in between. A negative errno only
 * for want of memory: what the host does not give is counted in unwatched. */
int masks_watch(const struct policy_view *policy, struct masks *masks);

/* After the mounts were made, or when there is something to read in events: covers what is new.
 * Looks at a bounded number of events. A negative errno: something denied is open, and stays so. */
int masks_mend(struct masks *masks);

#endif
