/* Trees of mounts. A tree that is detached lives as long as its fd; functions return it, or a negative
 * errno. Nothing here follows a symlink. */
#ifndef SANDCORE_TREE_H
#define SANDCORE_TREE_H

#include <stddef.h>
#include <stdint.h>

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

/* Closes a fd unless it is negative. */
void tree_drop(int fd);

/* A fd on what is at a path, without opening it; tree_look: on the link itself where one is at its
 * end. And the type of what a fd is on (S_IFDIR, ...). */
int tree_open(const char *path);
int tree_look(const char *path);
int tree_type(int fd);

/* A directory, opened for reading. */
int tree_open_directory(const char *path);

/* What covers the place that a fd is on, enum tree_cover or'ed, or a negative errno. */
enum tree_cover {
    TREE_DIRECTORY = 1 << 0,
    TREE_ROOT = 1 << 1,      /* the root of a mount */
    TREE_CLOSED = 1 << 2,    /* a device, or a directory without permissions */
    TREE_READ_ONLY = 1 << 3, /* the mount is */
};
int tree_cover(int fd);

/* Whether two fds are on the same file. */
int tree_same(int one, int other);

/* What mounts that are made later in one copy of a tree mean for the others: MS_PRIVATE, MS_SHARED,
 * MS_SLAVE. With an empty path the tree is that of the fd. */
int tree_propagate(int fd, const char *path, uint64_t kind);

/* Adds MOUNT_ATTR_* to a mount; how: AT_EMPTY_PATH, AT_RECURSIVE. */
int tree_set(int fd, const char *path, unsigned how, uint64_t attributes);

/* A detached clone of the tree at a path, or at what a fd is on, with all mounts in it. */
int tree_clone(const char *path);
int tree_clone_at(int place);

/* A new file system, detached: its kind, options in pairs with 0 at the end, MOUNT_ATTR_*. */
int tree_new(const char *kind, const char *const *options, uint64_t attributes);

/* Puts a detached tree over what is at a path, or what a fd is on; tree_put also lets go of it, and
 * hands on an error that is given in its place. */
int tree_attach(int tree, const char *path);
int tree_attach_at(int tree, int place);
int tree_put(int tree, const char *path);

/* The same over a name in a directory that only we have written in. */
int tree_attach_in(int tree, int directory, const char *name);

enum { DIRECTORY_MODE = 0755, FILE_MODE = 0444 }; /* of what is made in file systems of ours */

/* Makes the way to a mount point in a file system of ours, and at its end a directory or an empty
 * file. What is there already is left: elsewhere everything is. */
int tree_make_point(const char *path, int is_directory);

#endif
