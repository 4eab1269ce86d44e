/* Watching what mounts lie on, and covering what takes its place; see masks.h.
 *
 * Nothing is remembered of a mount: whether what is at a path is covered is asked of the kernel each
 * time, so that no sequence of renames can make this believe in a mount that is elsewhere. */
#define _GNU_SOURCE
#include "masks.h"
#include "helper.h"
#include "sys.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/stat.h>
#include <string.h>
#include <sys/mman.h>

enum { PATH_BYTES = 4096, DEPTH = 64, NONE = -1 };

/* fcntl.h has them only beside what clashes. */
enum { SET_SIGNAL = 10, NOTIFY = 1026, NOTIFY_CREATE = 4 };

static const char *path_of(const struct masks *masks, uint32_t row)
{
    return masks->policy->strings + masks->policy->mounts[row].path;
}

/* Whether a row's mount must lie on what is at its path now. Where there is nothing, nothing must. */
static int is_guarded(const struct policy_mount *mount)
{
    int by_host = !(mount->flags & POLICY_MOUNT_MAKE);
    return mount->kind == POLICY_MOUNT_READ || mount->kind == POLICY_MOUNT_PIN ||
           mount->kind == POLICY_MOUNT_MASK || (mount->kind == POLICY_MOUNT_HOLLOW && by_host);
}

/* Whether a path begins with the first `length` bytes of another, and goes on below them. */
static int goes_through(const char *path, const char *other, size_t length)
{
    size_t at = 0;
    while (at < length && path[at] == other[at] && path[at] != '\0') {
        at++;
    }
    return at == length && path[length] == '/';
}

static int is_in(const struct masks *masks, uint32_t row, const struct masks_directory *directory)
{
    return goes_through(path_of(masks, row), path_of(masks, directory->row), directory->length);
}

/* Whether a path, up to its end or to `end`, is one name in a directory that ends at `from`. */
static int is_name(const char *path, size_t from, size_t end)
{
    size_t at = from + 1;
    while (at < end && path[at] != '\0' && path[at] != '/') {
        at++;
    }
    return at == end || path[at] == '\0';
}

static int open_path(const struct masks *masks, const struct masks_directory *directory)
{
    char path[PATH_BYTES] = "/";
    if (directory->length >= sizeof path) {
        return -ENAMETOOLONG;
    }
    if (directory->length > 0) {
        memcpy(path, path_of(masks, directory->row), directory->length);
        path[directory->length] = '\0';
    }
    int fd = tree_open_directory(path);
    return fd == -EACCES ? tree_open(path) : fd; /* it may be passed, but is not watched */
}

static int arm(int fd)
{
    return (int)SYS_3(SYS_fcntl, fd, NOTIFY, NOTIFY_CREATE);
}

static int watch(int fd)
{
    long error = SYS_3(SYS_fcntl, fd, SET_SIGNAL, MASKS_SIGNAL);
    return error < 0 ? (int)error : arm(fd);
}

/* Watches what is at a directory's path now. 1: that is another one than before, or a link; 0: the
 * same, or none: what is missing will be made in a directory that is watched. */
static int watch_directory(struct masks *masks, struct masks_directory *directory)
{
    int place = open_path(masks, directory);
    if (directory->fd >= 0 && place >= 0 && tree_same(directory->fd, place)) {
        tree_drop(place);
        return 0;
    }
    tree_drop(directory->fd);
    directory->fd = NONE;
    if (place < 0) {
        /* What may not be passed by us may not be by commands. Of links the rows tell. */
        int harmless = place == -ENOENT || place == -ENOTDIR || place == -EACCES;
        return harmless ? 0 : place == -ELOOP ? 1 : place;
    }
    int error = watch(place);
    if (error < 0) {
        tree_drop(place);
        return error;
    }
    directory->fd = place;
    return 1;
}

/* The same for the first time. *gone: the last one that was not there: nothing in it is, and what
 * comes into being meanwhile is made in one that is watched already. */
static void watch_first(struct masks *masks, struct masks_directory *directory,
                        struct masks_directory *gone)
{
    if (directory->length > gone->length && is_in(masks, directory->row, gone)) {
        return;
    }
    int result = watch_directory(masks, directory);
    masks->unwatched += result < 0;
    if (result == 0) {
        *gone = *directory;
    }
}

/* Whether what lies at a prefix of a row's path is in a file system of the sandbox's own, by the
 * rows that the path is in: there the host changes nothing. */
static int is_own(const struct masks *masks, const uint32_t *above, uint32_t depth, size_t length)
{
    while (depth > 0) {
        uint32_t row = above[--depth];
        if (strlen(path_of(masks, row)) <= length) {
            return masks->policy->mounts[row].kind > POLICY_MOUNT_MASK;
        }
    }
    return 0;
}

/* The directories on the way to one row, without those that the one before came by. */
static void watch_way(struct masks *masks, uint32_t row, const char *before, const uint32_t *above,
                      uint32_t depth, struct masks_directory *gone)
{
    const char *path = path_of(masks, row);
    for (uint32_t length = masks->from; path[length] != '\0'; length++) {
        if (path[length] == '/' && !goes_through(before, path, length) &&
            !is_own(masks, above, depth, length)) {
            struct masks_directory *directory = &masks->directories[masks->count++];
            *directory = (struct masks_directory){.fd = NONE, .row = row, .length = length};
            watch_first(masks, directory, gone);
        }
    }
}

static void watch_all(struct masks *masks)
{
    uint32_t above[DEPTH], depth = 0;
    struct masks_directory gone = {.length = UINT32_MAX}; /* none: no path is so long */
    const char *before = "";
    for (uint32_t row = 0; row < masks->policy->header->mount_count; row++) {
        const char *path = path_of(masks, row);
        while (depth > 0 && !goes_through(path, path_of(masks, above[depth - 1]),
                                          strlen(path_of(masks, above[depth - 1])))) {
            depth--;
        }
        if (is_guarded(&masks->policy->mounts[row])) {
            watch_way(masks, row, before, above, depth, &gone);
            before = path;
        }
        if (depth < DEPTH && masks->policy->mounts[row].kind != POLICY_MOUNT_ABSENT) {
            above[depth++] = row;
        }
    }
}

static int watch_from(const struct policy_view *policy, uint32_t from, struct masks *masks)
{
    *masks = (struct masks){.policy = policy, .from = from};
    uint64_t limits[2];
    size_t ways = 0;
    for (uint32_t row = 0; row < policy->header->mount_count; row++) {
        for (const char *at = path_of(masks, row); *at && is_guarded(&policy->mounts[row]); at++) {
            ways += *at == '/';
        }
    }
    if (ways == 0) {
        return 0;
    }
    long room = SYS_6(SYS_mmap, 0, ways * sizeof *masks->directories, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room < 0) {
        return (int)room;
    }
    masks->directories = (struct masks_directory *)room;
    masks->room = ways * sizeof *masks->directories;
    int error = helper_raise_fds(limits);
    if (error == 0) {
        watch_all(masks);
        error = helper_restore_fds(limits);
    }
    return error;
}

int masks_watch(const struct policy_view *policy, struct masks *masks)
{
    return watch_from(policy, 0, masks);
}

static int mend_row(struct masks *masks, uint32_t row)
{
    const struct policy_mount *mount = &masks->policy->mounts[row];
    if (!is_guarded(mount)) {
        return 0;
    }
    int error = cover_row(mount, path_of(masks, row));
    switch (error) {
    case -ELOOP:
        return cover_leads_there(mount, path_of(masks, row)) ? 0 : error;
    case -ENOENT: /* gone again: what comes next is told of */
    case -ENOTDIR:
    case -EACCES: /* for commands too */
        return 0;
    default:
        return error;
    }
}

int masks_cover(const struct policy_view *policy, uint32_t from, struct masks *masks)
{
    int error = watch_from(policy, from, masks);
    for (uint32_t row = 0; error == 0 && row < policy->header->mount_count; row++) {
        error = mend_row(masks, row);
    }
    return error;
}

/* A directory is another one: all that lies below. Directories are watched before rows are looked
 * at, from the top, so that nothing is made in them unseen. */
static int mend_below(struct masks *masks, uint32_t index)
{
    const struct masks_directory *top = &masks->directories[index];
    int error = 0;
    for (uint32_t i = index + 1; i < masks->count; i++) {
        struct masks_directory *other = &masks->directories[i];
        if (other->length <= top->length || !is_in(masks, other->row, top)) {
            break;
        }
        int changed = watch_directory(masks, other);
        error = changed < 0 && error == 0 ? changed : error;
    }
    for (uint32_t row = top->row; row < masks->policy->header->mount_count; row++) {
        if (!is_in(masks, row, top)) {
            break;
        }
        int mended = mend_row(masks, row);
        error = mended < 0 && error == 0 ? mended : error;
    }
    return error;
}

/* Something is new in a directory: the rows that are names in it, and the directories in it, each
 * with all that lies below it when it is another one. Rows are sorted, so those are side by side. */
static int mend_directory(struct masks *masks, uint32_t index)
{
    const struct masks_directory *in = &masks->directories[index];
    int error = 0;
    for (uint32_t i = index + 1; error >= 0 && i < masks->count; i++) {
        struct masks_directory *other = &masks->directories[i];
        const char *path = path_of(masks, other->row);
        if (other->length <= in->length || !is_in(masks, other->row, in)) {
            break;
        }
        if (!is_name(path, in->length, other->length)) {
            continue;
        }
        error = watch_directory(masks, other);
        error = error == 1 ? mend_below(masks, i) : error;
    }
    for (uint32_t row = in->row; error >= 0 && row < masks->policy->header->mount_count; row++) {
        if (!is_in(masks, row, in)) {
            break;
        }
        if (is_name(path_of(masks, row), in->length, SIZE_MAX)) {
            error = mend_row(masks, row);
        }
    }
    return error < 0 ? error : 0;
}

int masks_mend(struct masks *masks, int fd)
{
    int error = 0;
    for (uint32_t i = 0; error == 0 && i < masks->count; i++) {
        if (masks->directories[i].fd >= 0 && (fd < 0 || masks->directories[i].fd == fd)) {
            error = arm(masks->directories[i].fd);
            error = error < 0 ? error : mend_directory(masks, i);
        }
    }
    return error;
}

void masks_drop(struct masks *masks)
{
    for (uint32_t i = 0; i < masks->count; i++) {
        tree_drop(masks->directories[i].fd);
    }
    if (masks->room) {
        SYS_2(SYS_munmap, masks->directories, masks->room);
    }
    *masks = (struct masks){.count = 0};
}
