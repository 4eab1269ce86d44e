/* Reading the file of a compiled policy; see file.h. */
#define _GNU_SOURCE
#include "file.h"

#include "stamp.h"
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/stat.h>
#include <string.h>
#include <sys/mman.h>

enum { WRITABLE_BY_OTHERS = 022 };

/* Who can write the file decides what is enforced: that may be the caller and root. */
static int check_owner(int fd, size_t *size)
{
    struct statx found;
    long error = SYS_5(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &found);
    if (error < 0) {
        return (int)error;
    }
    if ((found.stx_mode & S_IFMT) != S_IFREG || found.stx_size > FILE_MAX_BYTES ||
        found.stx_size < sizeof(struct file_header)) {
        return -EINVAL;
    }
    if ((found.stx_uid != 0 && found.stx_uid != (uint32_t)SYS_0(SYS_geteuid)) ||
        (found.stx_mode & WRITABLE_BY_OTHERS) != 0) {
        return -EPERM;
    }
    *size = found.stx_size;
    return 0;
}

/* A copy: what is checked is what is used, whatever becomes of the file. */
static int read_whole(int fd, size_t size, uint8_t **out)
{
    long base = SYS_6(SYS_mmap, 0, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (base < 0) {
        return (int)base;
    }
    *out = (uint8_t *)base;
    size_t have = 0;
    while (have < size) {
        long more = SYS_3(SYS_read, fd, *out + have, size - have);
        if (more <= 0 && more != -EINTR) {
            return more < 0 ? (int)more : -EINVAL;
        }
        have += more > 0 ? (size_t)more : 0;
    }
    return 0;
}

int file_read(const char *path, struct file *out)
{
    size_t size = 0;
    uint8_t *base = 0;
    long fd = SYS_4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0);
    if (fd < 0) {
        return (int)fd;
    }
    int error = check_owner((int)fd, &size);
    error = error ? error : read_whole((int)fd, size, &base);
    SYS_1(SYS_close, fd);
    return error ? error : file_check(base, size, out);
}

/* FNV-1a over words: each step is a bijection, so no single changed word goes unseen. */
static uint64_t checksum(const uint8_t *at, size_t size)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t word;
        memcpy(&word, at + i, sizeof word);
        sum = (sum ^ word) * UINT64_C(0x100000001b3);
    }
    return sum;
}

static int span_is_sound(const struct file_header *header, const struct file_span *span)
{
    return span->at % 8 == 0 && span->at <= header->size && span->size <= header->size - span->at;
}

static int text_is_sound(const struct file_header *header, const struct file_span *span)
{
    const char *base = (const char *)header;
    return span_is_sound(header, span) && (span->size == 0 || base[span->at + span->size - 1] == 0);
}

static int part_is_sound(const struct file_header *header, const struct file_part *part)
{
    return part->isolation >= FILE_NAMESPACES && part->isolation <= FILE_LANDLOCK &&
           span_is_sound(header, &part->blob) && span_is_sound(header, &part->limits) &&
           span_is_sound(header, &part->states) && text_is_sound(header, &part->keep) &&
           text_is_sound(header, &part->set) && text_is_sound(header, &part->plain) &&
           text_is_sound(header, &part->links) &&
           part->limits.size % sizeof(struct plan_limit) == 0 &&
           part->limits.size / sizeof(struct plan_limit) <= 16 &&
           part->states.size % sizeof(struct stamp) == 0;
}

int file_check(const uint8_t *base, size_t size, struct file *out)
{
    const struct file_header *header = (const void *)base;
    const struct file_part *parts = (const void *)(header + 1);
    if (size < sizeof *header || size > FILE_MAX_BYTES || ((uintptr_t)base & 7) != 0 ||
        memcmp(header->magic, "SCXP", 4) != 0 || header->version != FILE_VERSION ||
        header->size != size || size % 8 != 0 || header->parts < 1 ||
        header->parts > FILE_PARTS_MAX || size < sizeof *header + header->parts * sizeof *parts ||
        header->checksum != checksum(base + sizeof *header, size - sizeof *header)) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < header->parts; i++) {
        if (!part_is_sound(header, &parts[i])) {
            return -EINVAL;
        }
    }
    out->base = base;
    out->header = header;
    return 0;
}

/* A blob that does not ask for what its part stands for would be a hole. */
static int is_meant(const struct view *view)
{
    uint32_t flags = view->policy.header->flags;
    int spaces = (flags & POLICY_NAMESPACES) != 0;
    return (flags & POLICY_CONFINED) && (flags & POLICY_FILTER) &&
           (view->part->isolation == FILE_NAMESPACES ? spaces
                                                     : !spaces && (flags & POLICY_LANDLOCK));
}

int file_part(const struct file *file, uint32_t isolation, struct view *out)
{
    const struct file_part *parts = (const void *)(file->base + sizeof *file->header);
    for (uint32_t i = 0; i < file->header->parts; i++) {
        if (isolation != 0 && parts[i].isolation != isolation) {
            continue;
        }
        *out = (struct view){.part = &parts[i], .base = file->base};
        out->limits = (const void *)(file->base + parts[i].limits.at);
        out->limit_count = parts[i].limits.size / (uint32_t)sizeof(struct plan_limit);
        int error = policy_open(file->base + parts[i].blob.at, parts[i].blob.size, &out->policy);
        return error || is_meant(out) ? error : -EINVAL;
    }
    return -ENOENT;
}

const char *file_text(const struct view *view, const struct file_span *span, const char **at)
{
    const char *start = (const char *)view->base + span->at;
    const char *text = *at ? *at + strlen(*at) + 1 : start;
    *at = text;
    return text < start + span->size ? text : 0;
}

/* What is denied was resolved when the policy was compiled: a link in its place would lead to a
 * file that nothing was said of. */
static int is_plain(const char *path)
{
    struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS};
    long fd = SYS_4(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    if (fd < 0) {
        return fd != -ELOOP;
    }
    struct statx found;
    long error = SYS_5(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE, &found);
    SYS_1(SYS_close, fd);
    return error == 0 && (found.stx_mode & S_IFMT) != S_IFLNK;
}

int file_is_current(const struct view *view, const char **path)
{
    const char *at = 0;
    while ((*path = file_text(view, &view->part->plain, &at))) {
        if (!is_plain(*path)) {
            return -ESTALE;
        }
    }
    const struct stamp *states = (const void *)(view->base + view->part->states.at);
    size_t count = view->part->states.size / sizeof *states, i = 0;
    for (at = 0; (*path = file_text(view, &view->part->links, &at)); i++) {
        struct stamp now;
        stamp_identities(path, 1, &now);
        if (i >= count || memcmp(&now, &states[i], sizeof now) != 0) {
            return -ESTALE;
        }
    }
    return 0;
}
