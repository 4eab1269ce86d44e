/* The file tree of a sandbox: the host's own, made read-only, with the policy's exceptions on top.
 *
 * What shall stay as it was is cloned *before* everything is made read-only: taking the flag back
 * is refused where any mount below was read-only on the host. Then the table is worked through in
 * its order, in which a path comes after what it is in. Nothing is made on the host: mount points
 * that do not exist are made only in file systems of our own.
 *
 * No path is followed through a link. They were resolved when the policy was made; one that became
 * a link since then would put a mask beside the secret, so it is an error. */
#define _GNU_SOURCE
#include "helper.h"
#include "landlock.h"
#include "sys.h"
#include "text.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/stat.h>
#include <string.h>
#include <sys/mman.h>

enum { NONE = -1, FILE_BYTES = 4096, IN_DEV = sizeof "/dev/" - 1 };

static const char *const devices[] = {"/dev/null",   "/dev/zero",    "/dev/full",
                                      "/dev/random", "/dev/urandom", "/dev/tty"};
enum { DEVICES = sizeof devices / sizeof devices[0] };

struct layout {
    const struct policy_view *policy;
    int32_t ruleset;         /* -1: none */
    int32_t *trees;          /* one for each mount: a detached clone of what was there, or -1 */
    int32_t device[DEVICES]; /* as trees */
    int32_t masks[2];        /* one for a file, one for a directory that lies already; -1: none */
    struct dock *dock;
};

/* Rules are about files, and a new file system has others than those that the caller knew. */
int mounts_grant(const struct policy_view *policy, int ruleset, const char *path, unsigned access)
{
    const struct policy_header *header = policy->header;
    if (ruleset < 0 || access == 0) {
        return 0;
    }
    int place = tree_open(path);
    if (place < 0) {
        return place;
    }
    uint64_t rights = landlock_granted((int)header->abi, access, 1, header->handle);
    int error = rights ? landlock_add_path(ruleset, place, rights) : 0;
    tree_drop(place);
    return error;
}

static int is_of_devices(const char *path)
{
    static const char above[] = "/dev/";
    return strlen(path) >= sizeof above && memcmp(path, above, sizeof above - 1) == 0;
}

/* A device is written to through a read-only mount too; what that keeps is its mode, owner and times,
 * which are the host's. */
int mounts_tree(const struct policy_mount *mount, const char *path, int place)
{
    uint64_t attributes = MOUNT_ATTR_NOSUID;
    int tree = tree_clone_at(place);
    int type = tree < 0 ? tree : tree_type(tree);
    int read_only = mount->kind == POLICY_MOUNT_READ || type == S_IFCHR || type == S_IFBLK;
    attributes |= is_of_devices(path) ? 0 : MOUNT_ATTR_NODEV;
    attributes |= read_only ? MOUNT_ATTR_RDONLY : 0;
    int error = type < 0 ? type : tree_set(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, attributes);
    if (tree >= 0 && error) {
        tree_drop(tree);
        tree = error;
    }
    return tree;
}

static int take_trees(struct layout *layout, int *failed)
{
    const struct policy_view *policy = layout->policy;
    for (uint32_t i = 0; i < policy->header->mount_count; i++) {
        const struct policy_mount *mount = &policy->mounts[i];
        const char *path = policy->strings + mount->path;
        layout->trees[i] = NONE;
        if (mount->flags & POLICY_MOUNT_DOCK && !layout->dock->path) { /* one is enough */
            layout->dock->path = path;
            layout->dock->place = tree_open(path);
        }
        if (mount->kind > POLICY_MOUNT_PIN) {
            continue;
        }
        /* A link is made read-only itself: nobody replaces it. Nothing else may have become one. */
        int place = mount->kind == POLICY_MOUNT_READ ? tree_look(path) : tree_open(path);
        int is_other =
            place >= 0 && mount->flags & POLICY_MOUNT_SOCKET && tree_type(place) != S_IFSOCK;
        int tree = place < 0 ? place : is_other ? -ENOENT : mounts_tree(mount, path, place);
        tree_drop(place);
        if (tree < 0 && !(tree == -ENOENT && mount->flags & POLICY_MOUNT_OPTIONAL)) {
            *failed = (int)i;
            return tree;
        }
        layout->trees[i] = tree;
    }
    return 0;
}

/* Read-only as in mounts_tree: root owns them, and `chmod /dev/null` would be felt by everybody. */
static int take_devices(struct layout *layout)
{
    const uint64_t attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
    int error = 0;
    for (unsigned i = 0; i < DEVICES; i++) {
        layout->device[i] = error ? NONE : tree_clone(devices[i]);
        if (layout->device[i] >= 0) {
            error = tree_set(layout->device[i], "", AT_EMPTY_PATH, attributes);
        }
    }
    return error;
}

int mounts_mask(int is_directory)
{
    static const char *const closed[] = {"mode", "000", "size", "4096", 0};
    uint64_t attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    if (is_directory) {
        return tree_new("tmpfs", closed, attributes | MOUNT_ATTR_NOEXEC);
    }
    /* A device that may not be used as one cannot even be opened. */
    int tree = tree_clone(devices[0]);
    int error = tree < 0 ? tree : tree_set(tree, "", AT_EMPTY_PATH, attributes);
    if (tree >= 0 && error) {
        tree_drop(tree);
    }
    return error ? error : tree;
}

/* A clone of the first mask of its sort where there is one: the 1,500th costs less than the first. */
static int new_mask(struct layout *layout, int is_directory)
{
    int first = layout->masks[is_directory];
    return first >= 0 ? tree_clone_at(first) : mounts_mask(is_directory);
}

static int place_mask(struct layout *layout, const char *path)
{
    int place = tree_open(path);
    int type = place < 0 ? place : tree_type(place);
    if (type < 0) {
        tree_drop(place);
        return type;
    }
    int is_directory = type == S_IFDIR;
    int mask = new_mask(layout, is_directory);
    int error = mask < 0 ? mask : tree_attach_at(mask, place);
    tree_drop(place);
    if (error == 0 && layout->masks[is_directory] < 0) {
        layout->masks[is_directory] = mask;
    } else {
        tree_drop(mask);
    }
    return error;
}

/* All by the fd of the new file system: nothing but what is made here can be in its way. */
static int place_devices(struct layout *layout, const struct policy_mount *mount, const char *path)
{
    static const char *const plain[] = {"mode", "0755", "size", "65536", 0};
    static const char *const terminals[] = {"mode", "0620", "ptmxmode", "0666", 0};
    static const char *const links[][2] = {{"/proc/self/fd", "fd"},
                                           {"/proc/self/fd/0", "stdin"},
                                           {"/proc/self/fd/1", "stdout"},
                                           {"/proc/self/fd/2", "stderr"},
                                           {"pts/ptmx", "ptmx"}};
    int tree = tree_new("tmpfs", plain, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    long error = tree < 0 ? tree : tree_attach(tree, path);
    for (unsigned i = 0; error == 0 && i < DEVICES; i++) {
        if (layout->device[i] >= 0) { /* a host without one gives none */
            error = SYS_4(SYS_mknodat, tree, devices[i] + IN_DEV, S_IFREG | FILE_MODE, 0);
            error = error ? error : tree_attach_in(layout->device[i], tree, devices[i] + IN_DEV);
        }
    }
    for (unsigned i = 0; error == 0 && i < sizeof links / sizeof links[0]; i++) {
        error = SYS_3(SYS_symlinkat, links[i][0], tree, links[i][1]);
    }
    error = error ? error : SYS_3(SYS_mkdirat, tree, "shm", DIRECTORY_MODE);
    error = error ? error : SYS_3(SYS_mkdirat, tree, "pts", DIRECTORY_MODE);
    tree_drop(tree);
    error = error ? error
                  : tree_put(tree_new("devpts", terminals, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC),
                             "/dev/pts");
    return error ? (int)error
                 : mounts_grant(layout->policy, layout->ruleset, "/dev/pts", mount->access);
}

/* Files count too: each takes a kilobyte of the kernel's memory, however little is in it. */
static int place_own(const struct policy_mount *mount, const char *path)
{
    char digits[TEXT_NUMBER], files[TEXT_NUMBER];
    int is_scratch = mount->kind == POLICY_MOUNT_SCRATCH;
    const char *options[] = {"mode",
                             is_scratch ? "1777" : "0755",
                             "size",
                             is_scratch ? text_of(mount->size, digits) : "65536",
                             "nr_inodes",
                             is_scratch ? text_of(mount->size / FILE_BYTES, files) : "4096",
                             0};
    if (is_scratch && mount->size == 0) {
        options[2] = 0;
    }
    return tree_put(tree_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV), path);
}

static int attach_to_link(int tree, const char *path)
{
    int place = tree_look(path);
    int error = place < 0 ? place : tree_attach_at(tree, place);
    tree_drop(place);
    return error;
}

static int place_mount(struct layout *layout, uint32_t index)
{
    const struct policy_mount *mount = &layout->policy->mounts[index];
    const char *path = layout->policy->strings + mount->path;
    int tree = layout->trees[index], error = 0;
    int is_tree = mount->kind <= POLICY_MOUNT_PIN;
    int later = mount->kind >= POLICY_MOUNT_PROC || mount->flags & POLICY_MOUNT_LATER;
    if (later || (is_tree && tree < 0)) {
        return 0;
    }
    if (mount->flags & POLICY_MOUNT_MAKE) {
        int type = is_tree ? tree_type(tree) : S_IFDIR;
        error = type < 0 ? type : tree_make_point(path, type == S_IFDIR);
    }
    if (error == 0 && is_tree) {
        error = tree_type(tree) == S_IFLNK ? attach_to_link(tree, path) : tree_attach(tree, path);
    } else if (error == 0 && mount->kind == POLICY_MOUNT_MASK) {
        error = place_mask(layout, path);
    } else if (error == 0 && mount->kind == POLICY_MOUNT_DEVICES) {
        error = place_devices(layout, mount, path);
    } else if (error == 0) {
        error = place_own(mount, path);
        if (error == 0 && path == layout->dock->path) {
            layout->dock->hollow = tree_clone(path); /* which is not sealed with it */
            layout->dock->top = tree_open(path);
        }
        error = error ? error : mounts_grant(layout->policy, layout->ruleset, path, mount->access);
    }
    return error == -ENOENT && mount->flags & POLICY_MOUNT_OPTIONAL ? 0 : error;
}

/* Directories of ours are closed when all that belongs into them is there. */
static int seal(const struct layout *layout, const struct policy_mount *mount)
{
    if (mount->kind != POLICY_MOUNT_HOLLOW && mount->kind != POLICY_MOUNT_DEVICES) {
        return 0;
    }
    const char *path = layout->policy->strings + mount->path;
    int error = tree_set(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, MOUNT_ATTR_RDONLY);
    return error == -ENOENT && mount->flags & POLICY_MOUNT_OPTIONAL ? 0 : error;
}

static int place_all(struct layout *layout, int *failed)
{
    const struct policy_view *policy = layout->policy;
    uint64_t attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    attributes |= policy->header->flags & POLICY_READ_ONLY ? MOUNT_ATTR_RDONLY : 0;
    int error = tree_set(AT_FDCWD, "/", AT_RECURSIVE, attributes);
    for (uint32_t i = 0; error == 0 && i < policy->header->mount_count; i++) {
        *failed = (int)i;
        error = place_mount(layout, i);
    }
    for (uint32_t i = 0; error == 0 && i < policy->header->mount_count; i++) {
        *failed = (int)i;
        error = seal(layout, &policy->mounts[i]);
    }
    return error;
}

static void close_trees(struct layout *layout)
{
    for (uint32_t i = 0; i < layout->policy->header->mount_count; i++) {
        tree_drop(layout->trees[i]);
    }
    for (unsigned i = 0; i < DEVICES; i++) {
        tree_drop(layout->device[i]);
    }
    tree_drop(layout->masks[0]);
    tree_drop(layout->masks[1]);
}

/* A fd for each mount, for a moment. */
static int with_many_fds(struct layout *layout, int *failed)
{
    uint64_t before[2];
    int error = helper_raise_fds(before);
    if (error) {
        return error;
    }
    int result = take_devices(layout);
    result = result ? result : take_trees(layout, failed);
    result = result ? result : place_all(layout, failed);
    close_trees(layout);
    error = helper_restore_fds(before);
    return result ? result : error;
}

int mounts_make(const struct policy_view *policy, int ruleset, struct dock *dock, int *failed)
{
    struct layout layout = {
        .policy = policy, .ruleset = ruleset, .masks = {NONE, NONE}, .dock = dock};
    size_t size = policy->header->mount_count * sizeof(int32_t);
    *failed = NONE;
    /* What the host mounts later is not for us: it would come in with its own flags. */
    int error = tree_propagate(AT_FDCWD, "/", MS_PRIVATE);
    if (error || size == 0) {
        return error;
    }
    long trees =
        SYS_6(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (trees < 0) {
        return (int)trees;
    }
    layout.trees = (int32_t *)trees;
    memset(layout.trees, 0xff, size);
    error = with_many_fds(&layout, failed);
    SYS_2(SYS_munmap, trees, size);
    error = error ? error : (int)SYS_1(SYS_chdir, "/");
    /* What is masked later is to be masked in the lanes too. */
    return error ? error : tree_propagate(AT_FDCWD, "/", MS_SHARED);
}
