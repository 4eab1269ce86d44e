#define _GNU_SOURCE
#include "stamp.h"

#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <string.h>

static int64_t to_ns(struct statx_timestamp time)
{
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void stamp_path(const char *path, int is_identity, struct stamp *out)
{
    struct statx found;
    memset(out, 0, sizeof *out);
    long error = SYS_5(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC,
                       is_identity ? STATX_INO | STATX_BTIME : STATX_BASIC_STATS, &found);
    if (error == -ENOENT || error == -ENOTDIR) {
        return;
    }
    if (error < 0) {
        out->error = (int32_t)-error;
        return;
    }
    out->device = (uint64_t)found.stx_dev_major << 32 | found.stx_dev_minor;
    out->inode = found.stx_ino;
    if (is_identity) {
        out->change_ns = found.stx_mask & STATX_BTIME ? to_ns(found.stx_btime) : 0;
        return;
    }
    out->size = found.stx_size;
    out->change_ns = to_ns(found.stx_ctime);
    out->mode = found.stx_mode;
}

void stamp_paths(const char *const *paths, size_t count, struct stamp *out)
{
    for (size_t i = 0; i < count; i++) {
        stamp_path(paths[i], 0, &out[i]);
    }
}

void stamp_identities(const char *const *paths, size_t count, struct stamp *out)
{
    for (size_t i = 0; i < count; i++) {
        stamp_path(paths[i], 1, &out[i]);
    }
}
