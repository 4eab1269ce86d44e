/* Workspaces that come and go: the same sandbox for one after another.
 *
 * The host's directory that they are in is hidden by an empty one of ours, in which one of them is
 * mounted at its own path. Lanes get it, and lose it, because their mounts are slaves of the root's.
 * What Landlock grants is granted on the empty directory, for whatever lies in it; so a lane serves
 * any number of workspaces, and none is made for one. What must stay as it is in a workspace comes
 * with it, as rows like those of the policy, and is watched likewise (masks.h).
 *
 * What a workspace is the caller says by device and inode: what the host has mounted since this was
 * started is not to be seen from here, and an empty directory in its place would be a wrong one. */
#define _GNU_SOURCE
#include "helper.h"
#include "sys.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/stat.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { DETACH = 2, NO_LINK = 8, REMOVE_DIRECTORY = 0x200, LOOK_NS = 20000000 };

struct dock_log {
    uint32_t served; /* orders */
    int32_t error;   /* errno of the last one */
    uint32_t once;   /* the last one was for one command */
    uint32_t ended;  /* the order that the last command which has ended had waited for */
};

static const char *workspace_of(const struct dock *dock)
{
    return dock->policy.strings + dock->policy.mounts[0].path;
}

/* What of a path lies in a directory, NULL where it does not. */
static const char *within(const char *path, const char *above)
{
    size_t length = strlen(above);
    return strlen(path) > length && memcmp(path, above, length) == 0 && path[length] == '/'
               ? path + length + 1
               : 0;
}

/* Its one name in the directory, NULL where it is none. */
static const char *name_of(const struct dock *dock)
{
    if (dock->policy.header->mount_count == 0 ||
        dock->policy.mounts[0].kind != POLICY_MOUNT_WRITE) {
        return 0;
    }
    const char *name = within(workspace_of(dock), dock->path);
    for (const char *at = name; at && *at; at++) {
        if (*at == '/') {
            return 0;
        }
    }
    return name && *name ? name : 0;
}

void dock_drop(struct dock *dock)
{
    tree_drop(dock->place);
    tree_drop(dock->hollow);
    tree_drop(dock->top);
    dock->place = dock->hollow = dock->top = -1;
    masks_drop(&dock->masks);
}

/* With all that is mounted in it, by where it is mounted: the host may have renamed the way there. Its
 * name goes, too: the next one has no business with it. */
static int leave(struct dock *dock)
{
    if (!dock->lies) {
        return 0;
    }
    masks_drop(&dock->masks);
    long error = SYS_1(SYS_fchdir, dock->top);
    if (error == 0 && dock->attached) {
        error = SYS_2(SYS_umount2, name_of(dock), DETACH | NO_LINK);
        dock->attached = error != 0;
    }
    if (error == 0) {
        error = SYS_3(SYS_unlinkat, dock->hollow, name_of(dock), REMOVE_DIRECTORY);
        error = error == -ENOENT ? 0 : error; /* it did not get so far */
    }
    SYS_1(SYS_chdir, "/");
    dock->lies = error != 0;
    return (int)error;
}

/* Whether the way to the directory still leads to what hides it. */
static int is_in_place(const struct dock *dock)
{
    int now = tree_open(dock->path);
    int same = now >= 0 && tree_same(now, dock->top);
    tree_drop(now);
    return same;
}

static int open_ordered(const struct dock *dock, const struct wire_dock *order)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
    struct statx found;
    long fd = SYS_4(SYS_openat2, dock->place, name_of(dock), &how, sizeof how);
    long error = fd < 0 ? fd : SYS_5(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_INO, &found);
    if (error >= 0 &&
        (found.stx_ino != order->inode || found.stx_dev_major != order->device_major ||
         found.stx_dev_minor != order->device_minor)) {
        error = -EXDEV;
    }
    if (error < 0) {
        tree_drop((int)fd);
    }
    return error < 0 ? (int)error : (int)fd;
}

/* Detached, writable, and a peer of nothing: what is mounted in it is to be in it alone. Mounts in it
 * may be read-only on the host, which cannot be taken back: then only the top is made writable. */
static int take_tree(const struct dock *dock, const struct wire_dock *order)
{
    struct mount_attr change = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
                                .attr_clr = MOUNT_ATTR_RDONLY,
                                .propagation = MS_PRIVATE};
    int place = open_ordered(dock, order);
    int tree = place < 0 ? place : tree_clone_at(place);
    tree_drop(place);
    long error = tree < 0 ? tree
                          : SYS_5(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE,
                                  &change, sizeof change);
    if (error == -EPERM) {
        error = tree_propagate(tree, "", MS_PRIVATE);
        error = error ? error
                      : SYS_5(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &change, sizeof change);
    }
    if (tree >= 0 && error < 0) {
        tree_drop(tree);
    }
    return error < 0 ? (int)error : tree;
}

static int take_place(struct dock *dock, const struct wire_dock *order)
{
    int tree = take_tree(dock, order);
    long error = tree < 0 ? tree : SYS_3(SYS_mkdirat, dock->hollow, name_of(dock), DIRECTORY_MODE);
    error = error == -EEXIST ? 0 : error;
    error = error ? error : tree_attach_in(tree, dock->top, name_of(dock));
    dock->attached = error == 0;
    tree_drop(tree);
    error = error ? error : is_in_place(dock) ? 0 : -ESTALE;
    return error ? (int)error
                 : masks_cover(&dock->policy, (uint32_t)strlen(workspace_of(dock)), &dock->masks);
}

/* What else a blob has to mount is in the workspace: whoever watches it goes by that. */
static int rows_are_inside(const struct dock *dock)
{
    for (uint32_t i = 1; i < dock->policy.header->mount_count; i++) {
        const char *path = dock->policy.strings + dock->policy.mounts[i].path;
        if (!within(path, workspace_of(dock))) {
            return 0;
        }
    }
    return 1;
}

/* The view is into the blob: it is kept. */
static int open_blob(struct dock *dock, const uint8_t *blob, size_t size)
{
    if (!dock->blob) {
        long room = SYS_6(SYS_mmap, 0, WIRE_MAX_DOCK, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room < 0) {
            return (int)room;
        }
        dock->blob = (void *)room;
    }
    memcpy(dock->blob, blob, size);
    int error = policy_open(dock->blob, size, &dock->policy);
    return error ? error : name_of(dock) && rows_are_inside(dock) ? 0 : -EINVAL;
}

static int take(struct dock *dock, const struct wire_dock *order, const uint8_t *blob)
{
    int error = open_blob(dock, blob, order->size);
    if (error) {
        return error;
    }
    dock->lies = 1;
    return take_place(dock, order);
}

int dock_share(struct dock *dock)
{
    if (!dock->path) {
        return 0;
    }
    if (dock->place < 0 || dock->hollow < 0 || dock->top < 0) {
        return dock->place < 0 ? dock->place : dock->hollow < 0 ? dock->hollow : dock->top;
    }
    long page = SYS_6(SYS_mmap, 0, sizeof *dock->log, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page < 0) {
        return (int)page;
    }
    dock->log = (struct dock_log *)page;
    dock->over = (int32_t)SYS_2(SYS_eventfd2, 0, O_CLOEXEC | O_NONBLOCK);
    return dock->over < 0 ? dock->over : 0;
}

int dock_await(const struct helper *helper, uint32_t orders)
{
    struct dock_log *log = helper->dock.log;
    if (!log) {
        return -EINVAL;
    }
    struct timespec pause = {.tv_nsec = LOOK_NS};
    struct pollfd root = {.fd = helper->root_fd, .events = POLLIN};
    uint32_t served = __atomic_load_n(&log->served, __ATOMIC_ACQUIRE);
    while ((int32_t)(served - orders) < 0) {
        SYS_6(SYS_futex, &log->served, FUTEX_WAIT, served, &pause, 0, 0);
        served = __atomic_load_n(&log->served, __ATOMIC_ACQUIRE);
        struct timespec now = {0};
        if (SYS_5(SYS_ppoll, &root, 1, &now, 0, 0) != 0) {
            return -EPIPE;
        }
    }
    return served == orders ? -log->error : -ESTALE;
}

/* The kernel lets whoever unmounts wait until all processors have come by, which takes as long as a
 * system call does elsewhere, or a time slice where all are busy. So it is done while the caller takes
 * the result, and what it orders next does not wait for it. */
void dock_leave(const struct helper *helper, uint32_t orders)
{
    static const uint64_t one = 1;
    struct dock_log *log = helper->dock.log;
    if (log && log->once && orders) {
        __atomic_store_n(&log->ended, orders, __ATOMIC_RELEASE);
        SYS_3(SYS_write, helper->dock.over, &one, sizeof one);
    }
}

/* What was ordered since then stays. */
int dock_expire(struct dock *dock)
{
    uint64_t count;
    struct dock_log *log = dock->log;
    if (!log) {
        return 1;
    }
    SYS_3(SYS_read, dock->over, &count, sizeof count);
    uint32_t ended = __atomic_load_n(&log->ended, __ATOMIC_ACQUIRE);
    if (!dock->lies || !log->once || ended != log->served) {
        return 1;
    }
    dock->expired = leave(dock) == 0;
    return dock->expired;
}

/* Who was killed before it heard of the end of its command has not looked after it. */
int dock_has(struct dock *dock)
{
    if (dock->expired && !dock->lies) {
        dock->lies = 1;
        take_place(dock, &dock->order);
    }
    return dock->lies;
}

/* Lanes may have been asked for commands already that are for this workspace. */
static void tell(struct dock_log *log, int error)
{
    log->error = -error;
    __atomic_add_fetch(&log->served, 1, __ATOMIC_RELEASE);
    SYS_6(SYS_futex, &log->served, FUTEX_WAKE, INT32_MAX, 0, 0, 0);
}

int dock_serve(struct helper *helper, const struct wire_dock *order, const uint8_t *blob)
{
    struct dock *dock = &helper->dock;
    struct stage_report report = {.stage = STAGE_NONE, .detail = -1};
    if (!dock->log) {
        return 0;
    }
    int error = leave(dock);
    if (error == 0 && order->size > 0) {
        error = take(dock, order, blob);
    }
    int stuck = error ? leave(dock) : 0;
    if (error) {
        report = (struct stage_report){.stage = STAGE_MOUNTS, .error = -error, .detail = -1};
    }
    dock->order = *order;
    dock->expired = 0;
    dock->log->once = order->once;
    tell(dock->log, error);
    helper_send_ready(helper, HELPER_CONTROL, &report, 0, 0);
    return stuck == 0;
}
