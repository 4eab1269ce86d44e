/* The sockets of the host that a policy names: which files they are, held for as long as this lives.
 *
 * They are told when the mounts are made and before there is a command, at mounts of ours: nobody
 * inside can have put another there. Where the host makes its socket anew it is another file; the
 * caller's next layout has that. */
#define _GNU_SOURCE
#include "supervisor.h"
#include "sys.h"
#include "tree.h"

#include <fcntl.h>

uint64_t device_of(const struct statx *file)
{
    return (uint64_t)file->stx_dev_major << 32 | file->stx_dev_minor;
}

static void hold(struct supervisor *self, const char *path)
{
    struct statx file = {0};
    int place = tree_look(path);
    if (place < 0) {
        return; /* it has vanished since */
    }
    long error = SYS_5(SYS_statx, place, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO, &file);
    int is_socket = error == 0 && (file.stx_mode & S_IFMT) == S_IFSOCK;
    if (!is_socket || !(file.stx_attributes & STATX_ATTR_MOUNT_ROOT)) {
        tree_drop(place);
        return;
    }
    self->named[self->named_count++] =
        (struct named_socket){.device = device_of(&file), .inode = file.stx_ino, .place = place};
}

void named_open(struct supervisor *self, const struct policy_view *policy)
{
    for (uint32_t i = 0; i < policy->header->mount_count; i++) {
        if (policy->mounts[i].flags & POLICY_MOUNT_SOCKET && self->named_count < NAMED_SOCKETS) {
            hold(self, policy->strings + policy->mounts[i].path);
        }
    }
}

int named_has(const struct supervisor *self, const struct statx *file)
{
    for (uint32_t i = 0; i < self->named_count; i++) {
        if (self->named[i].device == device_of(file) && self->named[i].inode == file->stx_ino) {
            return 1;
        }
    }
    return 0;
}

void named_close(struct supervisor *self)
{
    while (self->named_count) {
        tree_drop(self->named[--self->named_count].place);
    }
}
