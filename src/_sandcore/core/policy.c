/* Reading and writing the blob; see policy.h. */
#define _GNU_SOURCE
#include "policy.h"

#include "landlock.h"
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/stat.h>
#include <string.h>

#define POLICY_VERSION 3u

static size_t aligned(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

int64_t policy_size(const struct policy_parts *parts)
{
    if (parts->rule_count > POLICY_MAX_RULES || parts->mount_count > POLICY_MAX_MOUNTS ||
        parts->filter.count > BPF_MAXINSNS || parts->extra_filter.count > BPF_MAXINSNS) {
        return -E2BIG;
    }
    size_t strings = 0;
    for (uint32_t i = 0; i < parts->rule_count + parts->mount_count; i++) {
        size_t length = strlen(parts->paths[i]);
        if (length == 0 || parts->paths[i][0] != '/') {
            return -EINVAL;
        }
        strings += length + 1;
        if (strings > POLICY_MAX_BYTES) {
            return -E2BIG;
        }
    }
    size_t size =
        sizeof(struct policy_header) + aligned(strings) +
        parts->rule_count * sizeof(struct policy_rule) +
        parts->mount_count * sizeof(struct policy_mount) +
        ((size_t)parts->filter.count + parts->extra_filter.count) * sizeof(struct sock_filter);
    return size > POLICY_MAX_BYTES ? -E2BIG : (int64_t)size;
}

/* memcpy of no bytes from a null pointer is undefined, hence the guard. */
static uint8_t *append(uint8_t *at, const void *bytes, size_t size)
{
    if (size > 0) {
        memcpy(at, bytes, size);
    }
    return at + size;
}

int policy_write(const struct policy_parts *parts, uint8_t *out, size_t size)
{
    int64_t expected = policy_size(parts);
    if (expected < 0 || (size_t)expected != size) {
        return -EINVAL;
    }
    uint32_t offset = 0;
    for (uint32_t i = 0; i < parts->rule_count + parts->mount_count; i++) {
        uint32_t *path = i < parts->rule_count ? &parts->rules[i].path
                                               : &parts->mounts[i - parts->rule_count].path;
        *path = offset;
        offset += (uint32_t)strlen(parts->paths[i]) + 1;
    }
    struct policy_header header = {
        .magic = {'S', 'C', 'P', 'B'},
        .version = POLICY_VERSION,
        .size = (uint32_t)size,
        .arch = parts->arch,
        .abi = parts->abi,
        .flags = parts->flags,
        .handle = parts->handle,
        .rule_count = parts->rule_count,
        .filter_count = parts->filter.count,
        .extra_filter_count = parts->extra_filter.count,
        .string_bytes = (uint32_t)aligned(offset),
        .network = parts->network,
        .filter_flags = parts->filter_flags,
        .mount_count = parts->mount_count,
    };
    memset(out, 0, size);
    uint8_t *at = append(out, &header, sizeof header);
    at = append(at, parts->rules, parts->rule_count * sizeof(struct policy_rule));
    at = append(at, parts->mounts, parts->mount_count * sizeof(struct policy_mount));
    at = append(at, parts->filter.code, parts->filter.count * sizeof(struct sock_filter));
    at = append(at, parts->extra_filter.code,
                parts->extra_filter.count * sizeof(struct sock_filter));
    for (uint32_t i = 0; i < parts->rule_count + parts->mount_count; i++) {
        at = append(at, parts->paths[i], strlen(parts->paths[i]) + 1);
    }
    return 0;
}

static int path_is_sound(const struct policy_view *view, uint32_t path)
{
    return path < view->header->string_bytes && view->strings[path] == '/';
}

static int flags_are_sound(const struct policy_mount *mount)
{
    const unsigned known = POLICY_MOUNT_OPTIONAL | POLICY_MOUNT_MAKE | POLICY_MOUNT_LATER |
                           POLICY_MOUNT_SOCKET | POLICY_MOUNT_DOCK;
    return (mount->flags & ~known) == 0 &&
           (!(mount->flags & POLICY_MOUNT_DOCK) || mount->kind == POLICY_MOUNT_HOLLOW) &&
           (!(mount->flags & POLICY_MOUNT_SOCKET) || mount->kind == POLICY_MOUNT_READ);
}

static int mounts_are_sound(const struct policy_view *view)
{
    for (uint32_t i = 0; i < view->header->mount_count; i++) {
        const struct policy_mount *mount = &view->mounts[i];
        if (!path_is_sound(view, mount->path) || mount->kind < POLICY_MOUNT_WRITE ||
            mount->kind > POLICY_MOUNT_ABSENT || mount->access > LANDLOCK_CLASS_NAMES ||
            !flags_are_sound(mount) || mount->reserved != 0) {
            return 0;
        }
        if (i > 0 && mount->kind != POLICY_MOUNT_ABSENT &&
            view->mounts[i - 1].kind == POLICY_MOUNT_ABSENT) {
            return 0; /* they come last */
        }
        if (!(view->header->flags & POLICY_NAMESPACES) && mount->kind != POLICY_MOUNT_ABSENT) {
            return 0; /* it could not be made */
        }
    }
    return 1;
}

static int rules_are_sound(const struct policy_view *view)
{
    const struct policy_header *header = view->header;
    for (uint32_t i = 0; i < header->rule_count; i++) {
        const struct policy_rule *rule = &view->rules[i];
        if (!path_is_sound(view, rule->path) || rule->access < LANDLOCK_CLASS_READ ||
            rule->access > LANDLOCK_CLASS_NAMES || (rule->flags & ~POLICY_RULE_OPTIONAL) != 0) {
            return 0;
        }
    }
    /* One terminator at the end bounds every string before it. */
    return header->string_bytes == 0 || view->strings[header->string_bytes - 1] == '\0';
}

/* What is announced and absent, or present and not announced, would be a hole. */
static int parts_are_announced(const struct policy_header *header)
{
    int landlock = (header->flags & POLICY_LANDLOCK) != 0;
    int filter = (header->flags & POLICY_FILTER) != 0;
    int spaces = (header->flags & POLICY_NAMESPACES) != 0;
    int more = (header->flags & (POLICY_OWN_NETWORK | POLICY_READ_ONLY)) != 0;
    int tell = (header->flags & POLICY_TELL) != 0;
    int anything =
        landlock || filter || header->mount_count != 0 || header->extra_filter_count != 0;
    return filter == (header->filter_count != 0) && landlock == (header->abi != 0) &&
           (landlock || header->rule_count == 0) && (!spaces || header->mount_count != 0) &&
           (spaces || !more) && (landlock || !tell) &&
           (!anything || (header->flags & POLICY_CONFINED) != 0);
}

static int header_is_sound(const struct policy_header *header, size_t size)
{
    uint32_t known = POLICY_CONFINED | POLICY_LANDLOCK | POLICY_FILTER | POLICY_NAMESPACES |
                     POLICY_OWN_NETWORK | POLICY_READ_ONLY | POLICY_TELL;
    if (memcmp(header->magic, "SCPB", 4) != 0 || header->version != POLICY_VERSION ||
        header->size != size || (header->flags & ~known) != 0) {
        return 0;
    }
    if (header->rule_count > POLICY_MAX_RULES || header->mount_count > POLICY_MAX_MOUNTS ||
        header->filter_count > BPF_MAXINSNS || header->extra_filter_count > BPF_MAXINSNS ||
        header->string_bytes > POLICY_MAX_BYTES || header->string_bytes % 8 != 0) {
        return 0;
    }
    if (!parts_are_announced(header)) {
        return 0;
    }
    size_t expected =
        sizeof *header + header->rule_count * sizeof(struct policy_rule) +
        header->mount_count * sizeof(struct policy_mount) +
        ((size_t)header->filter_count + header->extra_filter_count) * sizeof(struct sock_filter) +
        header->string_bytes;
    return expected == size;
}

int policy_open(const void *blob, size_t size, struct policy_view *view)
{
    if (size < sizeof(struct policy_header) || size > POLICY_MAX_BYTES ||
        ((uintptr_t)blob & 7) != 0 || !header_is_sound(blob, size)) {
        return -EINVAL;
    }
    const struct policy_header *header = blob;
    const uint8_t *at = (const uint8_t *)blob + sizeof *header;
    view->header = header;
    view->rules = (const void *)at;
    at += header->rule_count * sizeof(struct policy_rule);
    view->mounts = (const void *)at;
    at += header->mount_count * sizeof(struct policy_mount);
    view->filter = (struct plan_filter){(const void *)at, header->filter_count};
    at += header->filter_count * sizeof(struct sock_filter);
    view->extra_filter = (struct plan_filter){(const void *)at, header->extra_filter_count};
    at += header->extra_filter_count * sizeof(struct sock_filter);
    view->strings = (const char *)at;
    return rules_are_sound(view) && mounts_are_sound(view) ? 0 : -EINVAL;
}

static int add_rule(int ruleset, const struct policy_view *view, const struct policy_rule *rule)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
    long fd = SYS_4(SYS_openat2, AT_FDCWD, view->strings + rule->path, &how, sizeof how);
    if (fd < 0) {
        return fd == -ENOENT && (rule->flags & POLICY_RULE_OPTIONAL) ? 0 : (int)fd;
    }
    struct statx found;
    long error = SYS_5(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE, &found);
    if (error == 0) {
        int is_dir = (found.stx_mode & S_IFMT) == S_IFDIR;
        uint64_t rights =
            landlock_granted((int)view->header->abi, rule->access, is_dir, view->header->handle);
        /* Nothing to grant is not an error: reads need no rule where reads are not handled. */
        error = rights ? landlock_add_path(ruleset, (int)fd, rights) : 0;
    }
    SYS_1(SYS_close, fd);
    return (int)error;
}

/* Out of the numbers that a command's own fds take: a caller whose stdin is closed gets 0 here. */
static int create_above(const struct landlock_rights *handled)
{
    int ruleset = landlock_create(handled);
    if (ruleset < 0 || ruleset >= PLAN_MAX_FDS) {
        return ruleset;
    }
    long above = SYS_3(SYS_fcntl, ruleset, F_DUPFD_CLOEXEC, PLAN_MAX_FDS);
    SYS_1(SYS_close, ruleset);
    return (int)above;
}

int policy_ruleset(const struct policy_view *view, int *failed)
{
    struct landlock_rights handled;
    *failed = -1;
    if (!(view->header->flags & POLICY_LANDLOCK)) {
        return -EINVAL;
    }
    int error = landlock_handled((int)view->header->abi, view->header->handle, &handled);
    int ruleset = error ? error : create_above(&handled);
    for (uint32_t i = 0; ruleset >= 0 && i < view->header->rule_count; i++) {
        error = add_rule(ruleset, view, &view->rules[i]);
        if (error) {
            *failed = (int)i;
            SYS_1(SYS_close, ruleset);
            ruleset = error;
        }
    }
    return ruleset;
}
