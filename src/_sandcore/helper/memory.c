/* The memory of a command's tree, looked at by its lane while the command runs.
 *
 * What counts is what only the tree holds: memory of its own, shared memory that it maps, and what of
 * these lies in swap; pages of files can be dropped, and are not counted. /proc/PID/status gives an
 * upper bound for little: what several processes share is in it several times. Only when that is above
 * the limit the exact sum is made, by shares (PSS), for which the kernel walks page tables.
 *
 * A child of vfork shares all with its parent until it executes something, and nothing tells it from
 * one that has just as much of its own; so what equals its parent is taken for the same memory, but
 * not for long. */
#define _GNU_SOURCE
#include "helper.h"
#include "sys.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define LOOK_NS (INT64_C(20) * 1000000)
#define BELIEF_NS (INT64_C(1000) * 1000000)
enum { COST_FACTOR = 10, NAME = 32, TEXT = 16384, KEYS = 3, EQUAL_KIB = 2048 };

static const char *const bound_keys[KEYS] = {"\nRssAnon:", "\nRssShmem:", "\nVmSwap:"};
static const char *const share_keys[KEYS] = {"\nPss_Anon:", "\nPss_Shmem:", "\nSwapPss:"};

/* The kernel's struct linux_dirent64. */
struct entry {
    uint64_t inode;
    int64_t offset;
    uint16_t size;
    uint8_t type;
    char name[];
};

struct sum {
    uint64_t certain, doubtful; /* KiB */
};

typedef void (*visit)(const struct memory_watch *watch, const char *name, void *data);

/* What stands behind a key at the start of a line; 0 when it is not there. */
static uint64_t value_of(const char *text, size_t size, const char *key)
{
    size_t length = strlen(key);
    for (size_t i = 0; i + length < size; i++) {
        if (memcmp(text + i, key, length) == 0) {
            const char *at = text + i + length, *end = text + size;
            while (at < end && (*at == ' ' || *at == '\t')) {
                at++;
            }
            return text_take(&at, end);
        }
    }
    return 0;
}

/* The text of /proc/NAME/FILE; its size, 0 when it cannot be read. */
static size_t read_text(const struct memory_watch *watch, const char *name, const char *file,
                        char *text)
{
    char path[3 * NAME];
    size_t length = strlen(name), more = strlen(file) + 1;
    if (length + more > sizeof path) {
        return 0;
    }
    memcpy(path, name, length);
    memcpy(path + length, file, more);
    long fd = SYS_4(SYS_openat, watch->proc, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return 0;
    }
    long size = SYS_3(SYS_read, fd, text, TEXT);
    SYS_1(SYS_close, fd);
    return size > 0 ? (size_t)size : 0;
}

static uint64_t sum_keys(const char *text, size_t size, const char *const *keys)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < KEYS; i++) {
        sum += value_of(text, size, keys[i]);
    }
    return sum;
}

/* Calls visit for each number that a directory of /proc lists. */
static void for_each(const struct memory_watch *watch, int directory, visit visit, void *data)
{
    _Alignas(8) char entries[2048];
    long size;
    while ((size = SYS_3(SYS_getdents64, directory, entries, sizeof entries)) > 0) {
        for (long at = 0; at < size;) {
            const struct entry *entry = (const void *)(entries + at);
            if (entry->name[0] >= '1' && entry->name[0] <= '9') {
                visit(watch, entry->name, data);
            }
            at += entry->size;
        }
    }
}

static void take_larger(const struct memory_watch *watch, const char *name, void *data)
{
    char text[TEXT];
    uint64_t *largest = data;
    uint64_t found = sum_keys(text, read_text(watch, name, "/status", text), bound_keys);
    *largest = found > *largest ? found : *largest;
}

/* KiB of a process at the most. One whose first thread has ended shows none; its threads do. */
static uint64_t bound_of(const struct memory_watch *watch, const char *name)
{
    char path[NAME];
    uint64_t found = 0;
    take_larger(watch, name, &found);
    size_t length = strlen(name);
    if (found || length + sizeof "/task" > sizeof path) {
        return found;
    }
    memcpy(path, name, length);
    memcpy(path + length, "/task", sizeof "/task");
    long tasks = SYS_4(SYS_openat, watch->proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (tasks >= 0) {
        /* Threads have their names in /proc too, where it does not list them. */
        for_each(watch, (int)tasks, take_larger, &found);
        SYS_1(SYS_close, tasks);
    }
    return found;
}

/* Whether a process is of the tree below this lane: no other can be signalled from here. */
static int is_below(const char *name)
{
    const char *at = name;
    long pid = (long)text_take(&at, name + strlen(name));
    return pid != SYS_0(SYS_getpid) && SYS_2(SYS_kill, pid, 0) == 0;
}

static void add_bound(const struct memory_watch *watch, const char *name, void *data)
{
    struct sum *sum = data;
    sum->certain += is_below(name) ? bound_of(watch, name) : 0;
}

/* About: the child of vfork goes on meanwhile, in the memory of both. */
static int equals_parent(const struct memory_watch *watch, const char *name, uint64_t bound)
{
    char text[TEXT], digits[TEXT_NUMBER];
    size_t size = read_text(watch, name, "/status", text);
    const char *parent = text_of(value_of(text, size, "\nPPid:"), digits);
    uint64_t theirs = is_below(parent) ? bound_of(watch, parent) : 0;
    return theirs && (theirs > bound ? theirs - bound : bound - theirs) < EQUAL_KIB;
}

static void add_share(const struct memory_watch *watch, const char *name, void *data)
{
    char text[TEXT];
    struct sum *sum = data;
    if (!is_below(name)) {
        return;
    }
    uint64_t bound = bound_of(watch, name);
    /* One that may not be looked into is taken for all that it shares. */
    size_t size = read_text(watch, name, "/smaps_rollup", text);
    uint64_t share = size ? sum_keys(text, size, share_keys) : bound;
    int doubtful = equals_parent(watch, name, bound);
    /* What has executed or ended while it was looked at has no more than it has now. */
    uint64_t after = bound_of(watch, name);
    share = share < after ? share : after;
    if (doubtful) {
        sum->doubtful += share;
    } else {
        sum->certain += share;
    }
}

static struct sum add_all(const struct memory_watch *watch, visit visit)
{
    struct sum sum = {0};
    SYS_3(SYS_lseek, watch->proc, 0, SEEK_SET);
    for_each(watch, watch->proc, visit, &sum);
    return sum;
}

static int is_exceeded(struct memory_watch *watch, int64_t now)
{
    uint64_t most = watch->most / 1024;
    if (add_all(watch, add_bound).certain <= most) {
        watch->doubted_ns = 0;
        return 0;
    }
    struct sum sum = add_all(watch, add_share);
    if (sum.certain + sum.doubtful <= most) {
        watch->doubted_ns = 0;
        return 0;
    }
    watch->doubted_ns = watch->doubted_ns ? watch->doubted_ns : now;
    if (now - watch->doubted_ns > BELIEF_NS) {
        return 1;
    }
    /* Twice: what executes while it is looked at is seen half as it was and half as it is. */
    return sum.certain > most && add_all(watch, add_share).certain > most;
}

int memory_open(struct memory_watch *watch, uint64_t most)
{
    *watch = (struct memory_watch){.most = most, .pause_ns = LOOK_NS, .proc = -1};
    if (most == 0) {
        return 0;
    }
    watch->proc =
        (int32_t)SYS_4(SYS_openat, AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    return watch->proc < 0 ? watch->proc : 0;
}

/* Never more than a part of the lane's time, however many processes there are. */
int memory_look(struct memory_watch *watch)
{
    int64_t began = helper_now();
    watch->exceeded |= is_exceeded(watch, began);
    int64_t pause = (helper_now() - began) * COST_FACTOR;
    watch->pause_ns = pause > LOOK_NS ? pause : LOOK_NS;
    return watch->exceeded;
}

void memory_close(struct memory_watch *watch)
{
    if (watch->proc >= 0) {
        SYS_1(SYS_close, watch->proc);
    }
}
