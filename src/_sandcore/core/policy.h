/* The blob: a policy compiled to bytes, without pointers and without fds.
 *
 * It is made once by the caller, hashed and pickled by Python, and read by the caller's process and
 * by the helper. No reader trusts it: policy_open checks every offset, count and string before it
 * hands out a view. Layout: the header, then rules, filter, extra filter, strings, each 8-aligned
 * and in this order. */
#ifndef SANDCORE_POLICY_H
#define SANDCORE_POLICY_H

#include "plan.h"

#include <stddef.h>
#include <stdint.h>

#define POLICY_MAX_BYTES (16u << 20)
#define POLICY_MAX_RULES 65536u
#define POLICY_MAX_MOUNTS 16384u

enum policy_flags {
    POLICY_CONFINED = 1u << 0, /* no capabilities, no_new_privs; without it nothing is enforced */
    POLICY_LANDLOCK = 1u << 1,
    POLICY_FILTER = 1u << 2,
    POLICY_NAMESPACES = 1u << 3,  /* user, mount, pid, ipc and uts; the mounts are the layout */
    POLICY_OWN_NETWORK = 1u << 4, /* with it: a network of its own, of which only loopback is up */
    POLICY_READ_ONLY = 1u << 5,   /* with it: all that no mount says otherwise of is read-only */
    POLICY_TELL = 1u << 6,        /* what Landlock refuses is told to the kernel's audit (ABI 7) */
};

enum policy_rule_flags {
    /* may have vanished since it was listed: then it grants nothing */
    POLICY_RULE_OPTIONAL = 1u << 0,
};

struct policy_rule {
    uint32_t path;   /* offset into the strings; a canonical absolute path, NUL-terminated */
    uint16_t access; /* enum landlock_class */
    uint16_t flags;  /* enum policy_rule_flags */
};

/* What namespaces change of the file tree, in the order of the table: a path after what it is in.
 * ABSENT rows are for every isolation. */
enum policy_mount_kind {
    POLICY_MOUNT_WRITE = 1,  /* this tree as it was: writable where it was */
    POLICY_MOUNT_READ = 2,   /* this tree, read-only */
    POLICY_MOUNT_PIN = 3,    /* this tree as it was, so that it cannot be renamed */
    POLICY_MOUNT_MASK = 4,   /* nothing: a directory without permissions, a file that cannot open */
    POLICY_MOUNT_HOLLOW = 5, /* a directory with nothing but the mounts in it, read-only */
    POLICY_MOUNT_SCRATCH = 6, /* an empty directory for all, writable */
    POLICY_MOUNT_DEVICES = 7, /* a directory with the usual devices, and terminals of its own */
    POLICY_MOUNT_PROC = 8,    /* the lane's own processes, read-only */
    POLICY_MOUNT_ABSENT =
        9, /* mounts nothing: what a command puts there is moved aside at the end; these come last */
};

enum policy_mount_flags {
    /* may have vanished since it was listed: then there is nothing to do */
    POLICY_MOUNT_OPTIONAL = 1u << 0,
    /* lies in a directory of the layout's own: its mount point is made there */
    POLICY_MOUNT_MAKE = 1u << 1,
    /* a mask for what was missing when it was listed: made when it comes */
    POLICY_MOUNT_LATER = 1u << 2,
    /* READ: a socket of the host's that commands may connect to; nothing where it is none */
    POLICY_MOUNT_SOCKET = 1u << 3,
    /* HOLLOW: one workspace at a time, of those that the host has in this directory, lies in it */
    POLICY_MOUNT_DOCK = 1u << 4,
};

struct policy_mount {
    uint32_t path;  /* as in a rule */
    uint8_t kind;   /* enum policy_mount_kind */
    uint8_t flags;  /* enum policy_mount_flags */
    uint8_t access; /* enum landlock_class that a new file system is granted; 0: none */
    uint8_t reserved;
    uint64_t size; /* SCRATCH: bytes at the most; 0: what the kernel gives */
};

struct policy_header {
    char magic[4]; /* "SCPB" */
    uint32_t version;
    uint32_t size; /* of the whole blob, in bytes */
    uint32_t arch; /* AUDIT_ARCH_* that the filter was made for */
    uint32_t abi;  /* Landlock ABI that the rules were made for; 0: none */
    uint32_t flags;
    uint32_t handle; /* LANDLOCK_HANDLE_* */
    uint32_t rule_count;
    uint32_t filter_count;       /* instructions */
    uint32_t extra_filter_count; /* instructions */
    uint32_t string_bytes;
    uint32_t network; /* enum seccomp_network and SECCOMP_* flags: what the filter was made of, */
    uint32_t filter_flags; /* so that it can be made anew with a cookie */
    uint32_t mount_count;
};

struct policy_view {
    const struct policy_header *header;
    const struct policy_rule *rules;
    const struct policy_mount *mounts;
    struct plan_filter filter, extra_filter;
    const char *strings;
};

/* What a blob is made of. paths[i] belongs to rules[i], those after them to mounts; their path fields
 * are filled in here. */
struct policy_parts {
    uint32_t arch, abi, flags, handle;
    uint32_t network, filter_flags;
    struct policy_rule *rules;
    struct policy_mount *mounts;
    const char *const *paths;
    uint32_t rule_count, mount_count;
    struct plan_filter filter, extra_filter;
};

/* The size a blob of these parts has, or -EINVAL, -E2BIG. */
int64_t policy_size(const struct policy_parts *parts);

/* Writes the blob into out, which holds policy_size bytes. Deterministic: equal parts, equal bytes. */
int policy_write(const struct policy_parts *parts, uint8_t *out, size_t size);

/* Checks a blob and opens a view of it; -EINVAL when it is not one, whatever its bytes are. The blob
 * must be 8-aligned and outlive the view. */
int policy_open(const void *blob, size_t size, struct policy_view *view);

/* Makes the Landlock ruleset of a policy: its fd (PLAN_MAX_FDS or more), or a negative errno with the
 * rule that failed in *failed (-1: not a rule's fault). A path is opened without following any symlink, because it was
 * resolved when the policy was made: what became a symlink since then is an error, not a grant. */
int policy_ruleset(const struct policy_view *view, int *failed);

#endif
