/* Masks that stay: the root process watches what its mounts lie on.
 *
 * A mount lies on a file, not on a name. When the host puts another file there, as every editor does
 * to save, the kernel drops the mount: what was denied could be read, what was read-only be written.
 * So the directories on the way to each of these mounts are watched, and what is new at a name is
 * covered at once; lanes get it too, because their mounts are slaves of the root's.
 *
 * By dnotify, one shot each: inotify has 128 instances for all that a user runs, and giving one back
 * takes the kernel 10 ms, for which the caller would wait. A signal tells which directory it is; it
 * is armed again before it is looked at, so that signals never pile up and no change is missed.
 *
 * Between the file's appearance and its cover there is a moment, in which a command can open it.
 * File systems that tell of no changes (those of a network, made elsewhere) are not covered until
 * the caller looks, which it does before each command. */
#ifndef SANDCORE_MASKS_H
#define SANDCORE_MASKS_H

#include "policy.h"

#include <stdint.h>

enum { MASKS_SIGNAL = 34 }; /* blocked, to be read; SIGIO comes instead where the queue is full */

/* A directory on the way to a mount: the first `length` bytes of the path of a row, 0: the root. */
struct masks_directory {
    int32_t fd; /* -1: there is none */
    uint32_t row, length;
};

struct masks {
    const struct policy_view *policy;
    struct masks_directory *directories; /* each after what it is in, as rows are */
    uint32_t count;
    uint32_t unwatched; /* directories in which a change would not be noticed */
    uint32_t from;      /* where the first directory's path ends that matters */
    size_t room;        /* bytes, for directories */
};

/* Watches; before the mounts are made, so that nothing happens in between. A negative errno only
 * for want of memory: what the host does not give is counted in unwatched. */
int masks_watch(const struct policy_view *policy, struct masks *masks);

/* The same for mounts that are to be made now, in a tree that is there: makes them. Directories above
 * `from`, the end of a path that all rows begin with, are watched elsewhere. */
int masks_cover(const struct policy_view *policy, uint32_t from, struct masks *masks);

/* Something is new in the directory that a signal names, -1: in any of them: covers it. A negative
 * errno: something denied is open, or may come to be so unnoticed. */
int masks_mend(struct masks *masks, int fd);

/* Covers what is at the path of a row unless it is. Zero or a negative errno. A link is covered itself;
 * what it leads to is for the next layout. */
int cover_row(const struct policy_mount *mount, const char *path);

/* A directory on the way became a link: no harm where it leads to what is covered (a command that
 * moves a directory and leaves a link does that). Only looked at: links are never mounted through. */
int cover_leads_there(const struct policy_mount *mount, const char *path);

/* Watches no more: in a lane, which closes what is the root's, and where mounts are gone. */
void masks_drop(struct masks *masks);

#endif
