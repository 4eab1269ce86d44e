/* What the next start is to know: that there was a sandbox, in which directory, and which protected
 * names were missing there.
 *
 * Who has an end of its own, the caller or the root process, sees to what commands have planted. When
 * both are killed at once nobody does, and a file that says so would itself be left on the host. So
 * the root leaves a note in the kernel (keys.h), before anything runs, and takes it away at its end.
 * A note whose root and caller are dead is found by the next sandbox in that directory (`journal.py`).
 *
 * No command can write one: the filter refuses the calls. Where the host refuses them too, or has no
 * room, there is no note, and everything else is as it would be. */
#define _GNU_SOURCE
#include "helper.h"
#include "stamp.h"
#include "sys.h"
#include "text.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <string.h>
#include <time.h>

enum {
    PATH_BYTES = 4096,
    KEEP_S = 24 * 3600,
    ROOM_OF_A_USER = 64, /* of 200 keys, which the user's other programs need too */
    ROOM_OF_ROOT = 256,  /* of a million; each is looked at when a sandbox starts */
};

/* The user namespace of the host has this number on every machine (PROC_USER_INIT_INO). */
static const uint64_t host_users = 0xEFFFFFFD;

static const char head[] = "sandcore:1";

static uint64_t inode_of(const char *path)
{
    struct statx found;
    long error = SYS_5(SYS_statx, AT_FDCWD, path, 0, STATX_INO, &found);
    return error < 0 ? 0 : found.stx_ino;
}

/* Appends ":NUMBER"; there is room for all of these. */
static char *put_field(char *at, uint64_t number)
{
    *at = ':';
    return text_put_number(at + 1, number);
}

/* Which directory, and whose note it is. A process that has one of the numbers and began after
 * `now` is another one. Returns the end of it. */
static char *put_head(const struct helper *helper, const struct stamp *directory, char *text)
{
    struct timespec now = {0};
    SYS_2(SYS_clock_gettime, CLOCK_BOOTTIME, &now);
    char *at = put_field(text_put(text, head), directory->device);
    at = put_field(at, directory->inode);
    at = put_field(at, (uint64_t)directory->change_ns);
    at = put_field(at, inode_of("/proc/self/ns/pid"));
    at = put_field(at, (uint64_t)helper->root);
    at = put_field(at, (uint64_t)helper->caller);
    at = put_field(at, (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
    *at++ = ':';
    return at;
}

/* The length of a path's directory, with the slash at its end. */
static size_t above(const char *path)
{
    size_t length = strlen(path);
    while (length > 0 && path[length - 1] != '/') {
        length--;
    }
    return length;
}

/* A note of the names from row `i` on that are missing in one directory; returns the row after. */
static uint32_t leave_note(struct helper *helper, uint32_t i, unsigned room)
{
    const struct policy_view *policy = &helper->policy;
    const char *first = policy->strings + policy->mounts[i].path;
    size_t length = above(first);
    char path[PATH_BYTES], text[KEYS_TEXT_MAX];
    const char *directory = path;
    struct stamp found = {0};
    if (length < sizeof path) {
        memcpy(path, first, length);
        path[length > 1 ? length - 1 : length] = '\0';
        stamp_identities(&directory, 1, &found);
    }
    char *at = put_head(helper, &found, text), *end = text + sizeof text - 1;
    for (; i < policy->header->mount_count; i++) {
        const char *name = policy->strings + policy->mounts[i].path;
        size_t size = strlen(name);
        if (policy->mounts[i].kind != POLICY_MOUNT_ABSENT || above(name) != length ||
            memcmp(name, first, length) != 0) {
            break;
        }
        size -= length;
        if (size < (size_t)(end - at)) { /* one that does not fit is not remembered */
            memcpy(at, name + length, size);
            at += size;
            *at++ = '/';
        }
    }
    *at = '\0';
    struct journal *journal = &helper->journal;
    if (found.inode && keys_leave(text, KEEP_S, room, &journal->notes[journal->count]) == 0) {
        journal->count++;
    }
    return i;
}

static unsigned room_of_caller(void)
{
    int is_root = SYS_0(SYS_geteuid) == 0 && inode_of("/proc/self/ns/user") == host_users;
    return is_root ? ROOM_OF_ROOT : ROOM_OF_A_USER;
}

void journal_open(struct helper *helper)
{
    const struct policy_view *policy = &helper->policy;
    struct journal *journal = &helper->journal;
    unsigned room = room_of_caller();
    for (uint32_t i = 0; i < policy->header->mount_count && journal->count < JOURNAL_MAX;) {
        i = policy->mounts[i].kind == POLICY_MOUNT_ABSENT ? leave_note(helper, i, room) : i + 1;
    }
    journal->renew_ns = helper_now() + JOURNAL_RENEW_NS;
}

void journal_renew(struct helper *helper)
{
    struct journal *journal = &helper->journal;
    if (helper_now() < journal->renew_ns) {
        return;
    }
    for (unsigned i = 0; i < journal->count; i++) {
        keys_renew(&journal->notes[i], KEEP_S);
    }
    journal->renew_ns = helper_now() + JOURNAL_RENEW_NS;
}

void journal_close(struct helper *helper)
{
    struct journal *journal = &helper->journal;
    while (journal->count > 0) {
        const struct keys_note *note = &journal->notes[--journal->count];
        keys_remove(note->key, note->ring);
    }
}
