/* Covering what lies at the path of one row, when something else has taken its place. */
#define _GNU_SOURCE
#include "helper.h"
#include "masks.h"
#include "sys.h"
#include "tree.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/stat.h>

/* Whether what is there is covered as its row says. Only roots of mounts are: a command cannot
 * mount, and the host's later mounts do not come in. */
static int is_covered(const struct policy_mount *mount, int cover)
{
    if (cover < 0 || !(cover & TREE_ROOT)) {
        return 0;
    }
    switch (mount->kind) {
    case POLICY_MOUNT_MASK:
        return (cover & TREE_CLOSED) != 0;
    case POLICY_MOUNT_PIN:
        return 1;
    default:
        return (cover & (TREE_CLOSED | TREE_READ_ONLY)) != 0;
    }
}

/* A directory that was emptied but for what is shown in it is closed altogether: the next layout
 * shows it again. */
static int new_cover(const struct policy_mount *mount, const char *path, int place, int now)
{
    if (mount->kind == POLICY_MOUNT_MASK || mount->kind == POLICY_MOUNT_HOLLOW) {
        return mounts_mask((now & TREE_DIRECTORY) != 0);
    }
    int tree = mounts_tree(mount, path, place);
    /* Or what is mounted on it later would also be mounted on what it is a clone of. */
    int error = tree < 0 ? tree : tree_propagate(tree, "", MS_PRIVATE);
    if (tree >= 0 && error < 0) {
        tree_drop(tree);
    }
    return error < 0 ? error : tree;
}

int cover_row(const struct policy_mount *mount, const char *path)
{
    int place = tree_look(path);
    int now = place < 0 ? place : tree_cover(place);
    int error = now < 0 ? now : 0;
    if (error == 0 && !is_covered(mount, now)) {
        int tree = new_cover(mount, path, place, now);
        error = tree < 0 ? tree : tree_attach_at(tree, place);
        tree_drop(tree);
    }
    tree_drop(place);
    return error;
}

int cover_leads_there(const struct policy_mount *mount, const char *path)
{
    long place = SYS_4(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
    int covered = place < 0 || is_covered(mount, tree_cover((int)place));
    tree_drop((int)place);
    return covered;
}
