/* What a lane makes of the file tree for itself: its own processes in /proc, and order in between. */
#define _GNU_SOURCE
#include "helper.h"
#include "sys.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/stat.h>

enum { SCRATCH_MODE = 01777 };

/* What a command could read of the kernel and of others, as root with no capability too. */
static const char *const hidden[] = {"/proc/kcore",         "/proc/keys",       "/proc/key-users",
                                     "/proc/timer_list",    "/proc/kpagecount", "/proc/kpageflags",
                                     "/proc/sysrq-trigger", "/proc/vmallocinfo"};

/* *mask: the first one, of which the others are clones; negative: none yet. */
static int hide(const char *path, int *mask)
{
    int place = tree_open(path);
    if (place < 0) {
        return place == -ENOENT ? 0 : place; /* this kernel has none */
    }
    int tree = *mask < 0 ? mounts_mask(0) : tree_clone_at(*mask);
    int error = tree < 0 ? tree : tree_attach_at(tree, place);
    tree_drop(place);
    if (*mask < 0 && error == 0) {
        *mask = tree;
    } else {
        tree_drop(tree);
    }
    return error;
}

static int hide_all(void)
{
    int mask = -1, error = 0;
    for (unsigned i = 0; error == 0 && i < sizeof hidden / sizeof hidden[0]; i++) {
        error = hide(hidden[i], &mask);
    }
    tree_drop(mask);
    return error;
}

int mounts_make_proc(const struct policy_view *policy, int ruleset)
{
    static const char *const none[] = {0};
    const uint64_t attributes =
        MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    /* Masks of the root process come in, our own processes do not go out. */
    int error = tree_propagate(AT_FDCWD, "/", MS_SLAVE);
    for (uint32_t i = 0; error == 0 && i < policy->header->mount_count; i++) {
        const struct policy_mount *mount = &policy->mounts[i];
        if (mount->kind != POLICY_MOUNT_PROC) {
            continue;
        }
        error = tree_put(tree_new("proc", none, attributes), policy->strings + mount->path);
        error = error ? error : hide_all();
        error = error ? error
                      : mounts_grant(policy, ruleset, policy->strings + mount->path, mount->access);
    }
    return error;
}

/* Who owns the top of a file system may close it, and root without capabilities owns it: the next
 * command shall find its temporary directory as open as this one did. */
void mounts_reopen(const struct policy_view *policy)
{
    for (uint32_t i = 0; i < policy->header->mount_count; i++) {
        const char *path = policy->strings + policy->mounts[i].path;
        struct statx found = {0};
        if (policy->mounts[i].kind == POLICY_MOUNT_ABSENT) {
            break; /* thousands, with many writable directories, and they come last */
        }
        if (policy->mounts[i].kind != POLICY_MOUNT_SCRATCH) {
            continue;
        }
        /* Not without need: the caller sees by the time of change whether there is something to do. */
        long error = SYS_5(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_MODE, &found);
        if (error < 0 || (found.stx_mode & 07777) != SCRATCH_MODE) {
            SYS_3(SYS_fchmodat, AT_FDCWD, path, SCRATCH_MODE);
        }
    }
}
