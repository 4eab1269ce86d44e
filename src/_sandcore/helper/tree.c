/* Trees of mounts: cloned, made, and put in their place, by fd and never through a link. */
#define _GNU_SOURCE
#include "tree.h"

#include "sys.h"

#include <asm/statfs.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/stat.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

void tree_drop(int fd)
{
    if (fd >= 0) {
        SYS_1(SYS_close, fd);
    }
}

static int find(const char *path, uint64_t flags)
{
    struct open_how how = {.flags = O_CLOEXEC | flags, .resolve = RESOLVE_NO_SYMLINKS};
    return (int)SYS_4(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

int tree_open(const char *path)
{
    return find(path, O_PATH);
}

int tree_look(const char *path)
{
    return find(path, O_PATH | O_NOFOLLOW);
}

int tree_open_directory(const char *path)
{
    return find(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
}

/* The type of what a fd is on (S_IFDIR, ...), or a negative errno. */
int tree_type(int fd)
{
    struct statx found;
    long error = SYS_5(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE, &found);
    return error < 0 ? (int)error : found.stx_mode & S_IFMT;
}

int tree_cover(int fd)
{
    enum { READ_ONLY = 1 /* ST_RDONLY */ };
    struct statx found;
    struct statfs system;
    long error = SYS_5(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_MODE, &found);
    error = error < 0 ? error : SYS_2(SYS_fstatfs, fd, &system);
    if (error < 0) {
        return (int)error;
    }
    unsigned type = found.stx_mode & S_IFMT;
    int cover = type == S_IFDIR ? TREE_DIRECTORY : 0;
    cover |= found.stx_attributes & STATX_ATTR_MOUNT_ROOT ? TREE_ROOT : 0;
    cover |= system.f_flags & READ_ONLY ? TREE_READ_ONLY : 0;
    if (type == S_IFCHR || (type == S_IFDIR && (found.stx_mode & 0777) == 0)) {
        cover |= TREE_CLOSED;
    }
    return cover;
}

int tree_same(int one, int other)
{
    struct statx a, b;
    return SYS_5(SYS_statx, one, "", AT_EMPTY_PATH, STATX_INO, &a) == 0 &&
           SYS_5(SYS_statx, other, "", AT_EMPTY_PATH, STATX_INO, &b) == 0 &&
           a.stx_ino == b.stx_ino && a.stx_dev_major == b.stx_dev_major &&
           a.stx_dev_minor == b.stx_dev_minor;
}

int tree_propagate(int fd, const char *path, uint64_t kind)
{
    struct mount_attr change = {.propagation = kind};
    return (int)SYS_5(SYS_mount_setattr, fd, path, AT_EMPTY_PATH | AT_RECURSIVE, &change,
                      sizeof change);
}

int tree_set(int fd, const char *path, unsigned how, uint64_t attributes)
{
    struct mount_attr change = {.attr_set = attributes};
    return (int)SYS_5(SYS_mount_setattr, fd, path, how, &change, sizeof change);
}

int tree_clone_at(int place)
{
    return (int)SYS_3(SYS_open_tree, place, "",
                      AT_EMPTY_PATH | AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
}

/* A detached clone of the tree at a path. */
int tree_clone(const char *path)
{
    int place = tree_open(path);
    int tree = place < 0 ? place : tree_clone_at(place);
    tree_drop(place);
    return tree;
}

int tree_attach_at(int tree, int place)
{
    return (int)SYS_5(SYS_move_mount, tree, "", place, "",
                      MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}

int tree_attach_in(int tree, int directory, const char *name)
{
    return (int)SYS_5(SYS_move_mount, tree, "", directory, name, MOVE_MOUNT_F_EMPTY_PATH);
}

int tree_attach(int tree, const char *path)
{
    int place = tree_open(path);
    int error = place < 0 ? place : tree_attach_at(tree, place);
    tree_drop(place);
    return error;
}

/* A new file system of a kind, with options in pairs, NULL at the end; detached. */
int tree_new(const char *kind, const char *const *options, uint64_t attributes)
{
    enum { SET_STRING = 1, CREATE = 6 }; /* of enum fsconfig_command, which clashes */
    long context = SYS_2(SYS_fsopen, kind, 1 /* FSOPEN_CLOEXEC */);
    if (context < 0) {
        return (int)context;
    }
    long result = 0;
    for (; result == 0 && *options; options += 2) {
        result = SYS_5(SYS_fsconfig, context, SET_STRING, options[0], options[1], 0);
    }
    if (result == 0) {
        result = SYS_5(SYS_fsconfig, context, CREATE, 0, 0, 0);
    }
    if (result == 0) {
        result = SYS_3(SYS_fsmount, context, 1 /* FSMOUNT_CLOEXEC */, attributes);
    }
    tree_drop((int)context);
    return (int)result;
}

/* Attaches what is detached, and lets go of it. */
int tree_put(int tree, const char *path)
{
    int error = tree < 0 ? tree : tree_attach(tree, path);
    tree_drop(tree);
    return error;
}

/* Makes the way to a mount point in a file system of ours, and an empty file at its end unless that
 * is to be a directory. What is there already is left: elsewhere everything is. */
int tree_make_point(const char *path, int is_directory)
{
    char part[PATH_BYTES];
    size_t length = strlen(path);
    if (length >= sizeof part) {
        return -ENAMETOOLONG;
    }
    for (size_t i = 1; i < length; i++) {
        if (path[i] == '/') {
            memcpy(part, path, i);
            part[i] = '\0';
            SYS_3(SYS_mkdirat, AT_FDCWD, part, DIRECTORY_MODE);
        }
    }
    long error = is_directory ? SYS_3(SYS_mkdirat, AT_FDCWD, path, DIRECTORY_MODE)
                              : SYS_4(SYS_mknodat, AT_FDCWD, path, S_IFREG | FILE_MODE, 0);
    return error == -EEXIST ? 0 : (int)error;
}
