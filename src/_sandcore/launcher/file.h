/* The file of a compiled policy: one or two parts, the strongest isolation first, each with a blob
 * and all else that is known before there is a command.
 *
 * Written by `sandbox compile` (backends/compiled.py), read by sandcore-exec alone. Numbers are of
 * this machine: a file belongs to it and to the paths that were there. Every span is checked before
 * use, and the checksum tells damage; against forgery there is the owner and the mode. */
#ifndef SANDCORE_FILE_H
#define SANDCORE_FILE_H

#include "policy.h"

#include <stddef.h>
#include <stdint.h>

enum { FILE_VERSION = 1, FILE_PARTS_MAX = 2 };
#define FILE_MAX_BYTES (40u << 20) /* two blobs and what belongs to them */

enum file_isolation { FILE_NAMESPACES = 1, FILE_LANDLOCK = 2 };

struct file_header {
    char magic[4]; /* "SCXP" */
    uint32_t version;
    uint32_t size; /* of the file, a multiple of 8 */
    uint32_t parts;
    uint64_t checksum; /* of all behind the header */
};

struct file_span {
    uint32_t at, size; /* bytes from the start of the file; at is 8-aligned */
};

struct file_part {
    uint32_t isolation; /* enum file_isolation */
    uint32_t processes; /* of the command at one time; 0: any number */
    uint64_t memory;    /* bytes of its tree; 0: any */
    struct file_span blob;
    struct file_span limits; /* struct plan_limit each */
    /* Texts, each with its end: */
    struct file_span keep;   /* names of variables that the command gets from the caller */
    struct file_span set;    /* NAME=VALUE */
    struct file_span plain;  /* paths that must not lead through a symbolic link */
    struct file_span links;  /* symbolic links that must be what they were ... */
    struct file_span states; /* ... a struct stamp of each, as an identity */
};

/* A part that was read and checked. */
struct view {
    const struct file_part *part;
    struct policy_view policy;
    const uint8_t *base; /* of the file */
    const struct plan_limit *limits;
    uint32_t limit_count;
};

struct file {
    const uint8_t *base;
    const struct file_header *header;
};

/* Reads a file whole and checks it. Zero, or a negative errno: -EPERM when somebody else could have
 * written it, -EINVAL when it is damaged or of another version. */
int file_read(const char *path, struct file *out);

/* As file_read, of bytes that are in memory (8-aligned). */
int file_check(const uint8_t *base, size_t size, struct file *out);

/* Opens the part for an isolation (0: the first one); -ENOENT when it has none. */
int file_part(const struct file *file, uint32_t isolation, struct view *out);

/* Whether the paths still mean what they meant: zero, or -ESTALE with the one that does not. */
int file_is_current(const struct view *view, const char **path);

/* The texts of a span, one after the other: the next one, NULL at the end. Begins with *at NULL. */
const char *file_text(const struct view *view, const struct file_span *span, const char **at);

#endif
