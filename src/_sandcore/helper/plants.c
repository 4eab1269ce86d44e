/* Names that a command has planted, when there is nobody left to look after them.
 *
 * A protected name that is missing cannot be mounted upon, and a placeholder would be seen by
 * everyone. So a command can make it, and the caller moves it aside when the command's tree is dead.
 * Where the caller was killed, the root process does that: it is the last one that knows. It does so
 * only when a command was running or had just ended, because at any other time such a name is the
 * host's own. Moved within its directory, and never over anything; what is at a name is not opened.
 */
#define _GNU_SOURCE
#include "helper.h"
#include "sys.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PATH_BYTES = 4096, NAME_BYTES = 255, ID_BYTES = 6, NO_REPLACE = 1 };

static const char mark[] = ".planted-"; /* the caller names what it moves aside in the same way */

/* What lanes tell the root, in memory that they share. */
struct plants {
    int32_t running; /* commands */
    int64_t ended_ns, orphaned_ns;
};

/* How long the caller has, after a command, to look by itself; and how long a command counts whose
 * caller was gone when it ended. The root may come late to see that, on a machine with much to do. */
static const int64_t grace_ns = INT64_C(2000000000), orphan_ns = INT64_C(60000000000);

int plants_share(struct helper *helper)
{
    long page = SYS_6(SYS_mmap, 0, sizeof(struct plants), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page < 0) {
        return (int)page;
    }
    helper->plants = (struct plants *)page;
    return 0;
}

void plants_begin(const struct helper *helper)
{
    if (helper->plants) {
        __atomic_add_fetch(&helper->plants->running, 1, __ATOMIC_SEQ_CST);
    }
}

void plants_end(const struct helper *helper, int present)
{
    struct plants *plants = helper->plants;
    if (plants) {
        int64_t *when = present ? &plants->ended_ns : &plants->orphaned_ns;
        __atomic_store_n(when, helper_now(), __ATOMIC_SEQ_CST);
        __atomic_sub_fetch(&plants->running, 1, __ATOMIC_SEQ_CST);
    }
}

/* NAME.planted-ID, with an ID that nobody can guess. */
static int put_aside_name(const char *name, char *aside)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t id[ID_BYTES];
    size_t length = strlen(name), most = NAME_BYTES - (sizeof mark - 1) - 2 * ID_BYTES;
    if (SYS_3(SYS_getrandom, id, sizeof id, 0) != sizeof id) {
        return -EIO;
    }
    length = length < most ? length : most;
    memcpy(aside, name, length);
    memcpy(aside + length, mark, sizeof mark - 1);
    aside += length + sizeof mark - 1;
    for (int i = 0; i < ID_BYTES; i++) {
        *aside++ = digits[id[i] >> 4];
        *aside++ = digits[id[i] & 15];
    }
    *aside = '\0';
    return 0;
}

static void move_aside(int directory, const char *name)
{
    char aside[NAME_BYTES + 1];
    struct statx found;
    long error = SYS_5(SYS_statx, directory, name, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &found);
    if (error < 0 || found.stx_attributes & STATX_ATTR_MOUNT_ROOT) {
        return;
    }
    do {
        error = put_aside_name(name, aside);
        if (error == 0) {
            error = SYS_5(SYS_renameat2, directory, name, directory, aside, NO_REPLACE);
        }
    } while (error == -EEXIST);
}

static void move_path(const char *path)
{
    char above[PATH_BYTES];
    size_t length = strlen(path), end = length;
    while (end > 1 && path[end - 1] != '/') {
        end--;
    }
    if (end >= sizeof above || length - end > NAME_BYTES) {
        return;
    }
    memcpy(above, path, end);
    above[end] = '\0';
    int directory = tree_open(above);
    if (directory >= 0) {
        move_aside(directory, path + end);
    }
    tree_drop(directory);
}

/* Whether the caller ends without having closed: at once, or before its grace is over. */
static int caller_is_lost(struct helper *helper, int64_t until_ns)
{
    struct pollfd events[2] = {{.fd = HELPER_CALLER, .events = POLLIN},
                               {.fd = HELPER_CONTROL, .events = POLLIN}};
    for (;;) {
        int64_t rest = until_ns - helper_now();
        rest = rest > 0 ? rest : 0;
        struct timespec pause = {.tv_sec = rest / 1000000000, .tv_nsec = rest % 1000000000};
        long ready = SYS_5(SYS_ppoll, events, 2, &pause, 0, 0);
        if (ready == -EINTR) {
            continue;
        }
        if (ready <= 0 || events[0].revents) {
            return ready > 0;
        }
        /* Its end of the socket is gone, or it says something: then it lives, and looks itself. */
        uint32_t kind = 0;
        int32_t socket;
        long size = helper_receive(HELPER_CONTROL, &kind, sizeof kind, &socket, 1);
        helper->closed = size == sizeof kind && kind == WIRE_CLOSE;
        return size == 0;
    }
}

/* There are commands, or there was one whose caller was gone when it ended. */
static int is_left_alone(const struct plants *plants)
{
    return __atomic_load_n(&plants->running, __ATOMIC_SEQ_CST) > 0 ||
           (plants->orphaned_ns && helper_now() < plants->orphaned_ns + orphan_ns);
}

int plants_are_due(const struct helper *helper)
{
    return helper->closed && helper->plants && is_left_alone(helper->plants);
}

int plants_are_fresh(const struct helper *helper)
{
    const struct plants *plants = helper->plants;
    return plants && (is_left_alone(plants) || helper_now() < plants->ended_ns + grace_ns);
}

static void settle_names(const struct policy_view *policy)
{
    for (uint32_t i = 0; i < policy->header->mount_count; i++) {
        if (policy->mounts[i].kind == POLICY_MOUNT_ABSENT) {
            move_path(policy->strings + policy->mounts[i].path);
        }
    }
}

void plants_settle(struct helper *helper)
{
    if (!caller_is_lost(helper, helper_now() + grace_ns)) {
        return;
    }
    settle_names(&helper->policy);
    if (dock_has(&helper->dock)) {
        settle_names(&helper->dock.policy);
    }
}
