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
#include <linux/inotify.h>
#include <linux/mount.h>
#include <string.h>
#include <sys/mman.h>

enum { PATH_BYTES = 4096, DEPTH = 64, NONE = -1 };

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

static int begins_with(const char *text, const char *other, size_t length)
{
    size_t at = 0;
    while (at < length && text[at] == other[at] && text[at] != '\0') {
        at++;
    }
    return at == length;
}

/* Whether a path begins with the first `length` bytes of another, and goes on below them. */
static int goes_through(const char *path, const char *other, size_t length)
{
    return begins_with(path, other, length) && path[length] == '/';
}

static void watch_directory(struct masks *masks, struct masks_directory *directory)
{
    const uint32_t changes = IN_CREATE | IN_MOVED_TO | IN_ONLYDIR | IN_EXCL_UNLINK;
    char path[PATH_BYTES] = "/";
    directory->watch = NONE;
    if (directory->length >= sizeof path) {
        masks->unwatched++;
        return;
    }
    if (directory->length > 0) {
        memcpy(path, path_of(masks, directory->row), directory->length);
        path[directory->length] = '\0';
    }
    int place = tree_open(path);
    /* What is missing will be made in a directory that is watched; what may not be passed by us
     * may not be by commands. By way of the working directory: a path would be followed. */
    if (place >= 0 && SYS_1(SYS_fchdir, place) == 0) {
        long watch = SYS_3(SYS_inotify_add_watch, masks->events, ".", changes);
        directory->watch = watch < 0 ? NONE : (int32_t)watch;
        masks->unwatched += watch < 0;
    }
    tree_drop(place);
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
                      uint32_t depth)
{
    const char *path = path_of(masks, row);
    for (uint32_t length = 0; path[length] != '\0'; length++) {
        if (path[length] == '/' && !goes_through(before, path, length) &&
            !is_own(masks, above, depth, length)) {
            struct masks_directory *directory = &masks->directories[masks->count++];
            *directory = (struct masks_directory){.row = row, .length = length};
            watch_directory(masks, directory);
        }
    }
}

static void watch_all(struct masks *masks)
{
    uint32_t above[DEPTH], depth = 0;
    const char *before = "";
    for (uint32_t row = 0; row < masks->policy->header->mount_count; row++) {
        const char *path = path_of(masks, row);
        while (depth > 0 && !goes_through(path, path_of(masks, above[depth - 1]),
                                          strlen(path_of(masks, above[depth - 1])))) {
            depth--;
        }
        if (is_guarded(&masks->policy->mounts[row])) {
            watch_way(masks, row, before, above, depth);
            before = path;
        }
        if (depth < DEPTH && masks->policy->mounts[row].kind != POLICY_MOUNT_ABSENT) {
            above[depth++] = row;
        }
    }
    SYS_1(SYS_chdir, "/");
}

int masks_watch(const struct policy_view *policy, struct masks *masks)
{
    *masks = (struct masks){.policy = policy, .events = NONE};
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
    long events = SYS_1(SYS_inotify_init1, IN_CLOEXEC | IN_NONBLOCK);
    if (events < 0) {
        masks->unwatched = (uint32_t)ways;
        return 0;
    }
    masks->events = (int32_t)events;
    watch_all(masks);
    return 0;
}

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
    struct mount_attr own = {.propagation = MS_PRIVATE};
    /* Or what is mounted on it later would also be mounted on what it is a clone of. */
    long error = tree < 0 ? tree
                          : SYS_5(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &own,
                                  sizeof own);
    if (tree >= 0 && error < 0) {
        tree_drop(tree);
    }
    return error < 0 ? (int)error : tree;
}

/* A link is covered itself; what it leads to is for the next layout. */
static int cover(const struct policy_mount *mount, const char *path)
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

/* A directory on the way became a link: no harm where it leads to what is covered (a command that
 * moves a directory and leaves a link does that). Only looked at: links are never mounted through. */
static int leads_to_covered(const struct policy_mount *mount, const char *path)
{
    long place = SYS_4(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
    int covered = place < 0 || is_covered(mount, tree_cover((int)place));
    tree_drop((int)place);
    return covered;
}

static int mend_row(struct masks *masks, uint32_t row)
{
    const struct policy_mount *mount = &masks->policy->mounts[row];
    if (!is_guarded(mount)) {
        return 0;
    }
    int error = cover(mount, path_of(masks, row));
    switch (error) {
    case -ELOOP:
        return leads_to_covered(mount, path_of(masks, row)) ? 0 : error;
    case -ENOENT: /* gone again: what comes next is told of */
    case -ENOTDIR:
    case -EACCES: /* for commands too */
        return 0;
    default:
        return error;
    }
}

/* Whether a path goes through, or ends at, a name in its directory. */
static int has_name(const char *path, size_t directory, const char *name, size_t length)
{
    const char *rest = path + directory + 1;
    return begins_with(rest, name, length) && (rest[length] == '/' || rest[length] == '\0');
}

/* What is on the way to rows is another directory now. Its parent is watched, so that nothing can
 * be made in it unseen; those in it are watched before rows are looked at, for the same reason. */
static void watch_anew(struct masks *masks, const struct masks_directory *in, const char *name)
{
    const char *directory = path_of(masks, in->row);
    uint32_t length = (uint32_t)strlen(name), from = in->length;
    for (uint32_t i = 0; i < masks->count; i++) {
        struct masks_directory *other = &masks->directories[i];
        const char *path = path_of(masks, other->row);
        if (other->length <= from || !goes_through(path, directory, from) ||
            !has_name(path, from, name, length)) {
            continue;
        }
        int32_t before = other->watch;
        watch_directory(masks, other);
        int is_used = before == NONE;
        for (uint32_t k = 0; k < masks->count && !is_used; k++) {
            is_used = masks->directories[k].watch == before;
        }
        if (!is_used) {
            SYS_2(SYS_inotify_rm_watch, masks->events, before);
        }
    }
    SYS_1(SYS_chdir, "/");
}

/* Something came to be in a directory. Rows are sorted, so those in it are side by side. */
static int mend_name(struct masks *masks, const struct masks_directory *in,
                     const struct inotify_event *event)
{
    const char *directory = path_of(masks, in->row);
    size_t length = strlen(event->name);
    int error = 0, is_anew = (event->mask & IN_ISDIR) == 0;
    for (uint32_t row = in->row; error == 0 && row < masks->policy->header->mount_count; row++) {
        const char *path = path_of(masks, row);
        if (!goes_through(path, directory, in->length)) {
            break;
        }
        if (!has_name(path, in->length, event->name, length)) {
            continue;
        }
        if (!is_anew) {
            watch_anew(masks, in, event->name);
            is_anew = 1;
        }
        error = mend_row(masks, row);
    }
    return error;
}

/* Too much happened for the kernel to remember. */
static int mend_all(struct masks *masks)
{
    int error = 0;
    for (uint32_t i = 0; i < masks->count; i++) {
        watch_directory(masks, &masks->directories[i]);
    }
    SYS_1(SYS_chdir, "/");
    for (uint32_t row = 0; error == 0 && row < masks->policy->header->mount_count; row++) {
        error = mend_row(masks, row);
    }
    return error;
}

static int take_event(struct masks *masks, const struct inotify_event *event)
{
    int error = 0;
    if (event->mask & IN_Q_OVERFLOW) {
        return mend_all(masks);
    }
    /* One directory may be on several ways, where the host shows it under two names. */
    for (uint32_t i = 0; error == 0 && i < masks->count; i++) {
        struct masks_directory *directory = &masks->directories[i];
        if (directory->watch != event->wd) {
            continue;
        }
        if (event->mask & IN_IGNORED) {
            directory->watch = NONE;
        } else if (event->len > 0) {
            error = mend_name(masks, directory, event);
        }
    }
    return error;
}

int masks_mend(struct masks *masks)
{
    union {
        struct inotify_event align;
        char bytes[4096];
    } buffer;
    long size = SYS_3(SYS_read, masks->events, buffer.bytes, sizeof buffer);
    if (size < 0) {
        return size == -EAGAIN || size == -EINTR ? 0 : (int)size;
    }
    int error = 0;
    for (long at = 0; error == 0 && at < size;) {
        const struct inotify_event *event = (const void *)(buffer.bytes + at);
        error = take_event(masks, event);
        at += (long)sizeof *event + (long)event->len;
    }
    return error;
}
