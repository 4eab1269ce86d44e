/* The rows of mounts of a blob, in the root and the lanes of a helper, whatever the kernel answers.
 *
 * An input is the answers (their number in 16 bits before them), then rows: kind, flags, path with a
 * NUL at its end. */
#include "fuzz.h"
#include "helper.h"
#include "kernel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 64 };

void fuzz_start(void) {}

/* Filter and rules take no part. */
static uint8_t *write_blob(struct fuzz_bytes *left, size_t *size)
{
    static struct policy_mount mounts[ROWS];
    const char *paths[ROWS];
    uint32_t count = 0;
    while (count < ROWS && left->end - left->at > 2) {
        uint8_t kind = fuzz_take(left), flags = fuzz_take(left);
        const uint8_t *end = memchr(left->at, '\0', (size_t)(left->end - left->at));
        if (end == NULL || end == left->at || *left->at != '/') {
            break;
        }
        mounts[count] = (struct policy_mount){.kind = (uint8_t)(1 + kind % 9),
                                              .flags = flags & 7,
                                              .size = flags >> 3 ? (1u << (flags >> 3)) : 0};
        if (count > 0 && mounts[count - 1].kind == POLICY_MOUNT_ABSENT) {
            mounts[count].kind = POLICY_MOUNT_ABSENT; /* they come last */
        }
        if (mounts[count].kind == POLICY_MOUNT_HOLLOW && flags & POLICY_MOUNT_LATER) {
            mounts[count].flags ^= POLICY_MOUNT_LATER | POLICY_MOUNT_DOCK;
        }
        paths[count++] = (const char *)left->at;
        left->at = end + 1;
    }
    struct policy_parts parts = {.flags = POLICY_CONFINED | POLICY_NAMESPACES | POLICY_READ_ONLY,
                                 .mounts = mounts,
                                 .paths = paths,
                                 .mount_count = count};
    int64_t wanted = count ? policy_size(&parts) : -EINVAL;
    uint8_t *blob = wanted > 0 ? malloc((size_t)wanted) : NULL;
    *size = (size_t)wanted;
    FUZZ_CHECK(blob == NULL || policy_write(&parts, blob, *size) == 0);
    return blob;
}

/* The same rows once more, as those of a workspace. */
static void dock(struct helper *helper, const uint8_t *blob, size_t size)
{
    struct wire_dock order = {.size = (uint32_t)size, .once = 1};
    if (dock_share(&helper->dock) == 0 && size <= WIRE_MAX_DOCK) {
        for (order.inode = 0; order.inode < 4 && dock_serve(helper, &order, blob); order.inode++) {
            masks_mend(&helper->dock.masks, -1);
        }
        dock_leave(helper, 1);
        dock_expire(&helper->dock);
        dock_has(&helper->dock);
        order.size = 0;
        dock_serve(helper, &order, NULL);
    }
}

static void live(struct helper *helper, const uint8_t *blob, size_t size)
{
    int failed;
    if (masks_watch(&helper->policy, &helper->masks) == 0) {
        unsigned watching = kernel_open_fds();
        mounts_make(&helper->policy, -1, &helper->dock, &failed);
        watching += (helper->dock.place >= 0) + (helper->dock.hollow >= 0);
        watching += helper->dock.top >= 0;
        FUZZ_CHECK(kernel_open_fds() == watching);
        dock(helper, blob, size);
        FUZZ_CHECK(failed >= -1 && failed < (int)helper->policy.header->mount_count);
        for (int i = 0; i < 3; i++) {
            masks_mend(&helper->masks, i ? 100 + i : -1);
        }
        mounts_make_proc(&helper->policy, -1);
        mounts_reopen(&helper->policy);
    }
    masks_drop(&helper->masks);
    dock_drop(&helper->dock);
    tree_drop(helper->dock.over);
    if (plants_share(helper) == 0) {
        plants_begin(helper);
        plants_settle(helper);
        plants_end(helper, 1);
    }
    FUZZ_CHECK(kernel_open_fds() == 0);
    free(helper->plants);
    free(helper->dock.blob);
    free(helper->dock.log);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct helper helper = {.dock = {.place = -1, .hollow = -1, .top = -1, .over = -1}};
    struct fuzz_bytes left = {data, data + size}, answers;
    size_t count = fuzz_take(&left), most;
    count |= (size_t)fuzz_take(&left) << 8;
    most = (size_t)(left.end - left.at);
    answers = (struct fuzz_bytes){left.at, left.at + (count < most ? count : most)};
    left.at = answers.end;
    uint8_t *blob = write_blob(&left, &size);
    if (blob) {
        kernel_begin(answers);
        FUZZ_CHECK(policy_open(blob, size, &helper.policy) == 0);
        live(&helper, blob, size);
    }
    free(blob);
}
