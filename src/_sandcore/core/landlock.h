/*
 * Landlock: which rights exist since which ABI, what a ruleset handles, what a path is granted.
 *
 * Two questions must stay apart. *Handled* is what a layer restricts at all; *granted* is what a
 * rule gives back below a path. A right that is not handled is free, and costs nothing (no path
 * walk), so a policy that reads everything does not handle the read rights. A right that is
 * granted but not handled makes the kernel refuse the rule, so grants are cut to what is handled.
 *
 * The kernel only ever adds rules up: nothing below a granted path can be taken away again.
 * Source: Linux, Documentation/userspace-api/landlock.rst and include/uapi/linux/landlock.h.
 */
#ifndef SANDCORE_LANDLOCK_H
#define SANDCORE_LANDLOCK_H

#include <stdint.h>

/* The newest ABI of the table; a newer kernel is treated as this one. */
#define LANDLOCK_ABI_KNOWN 10

/* landlock_restrict_self flags of newer kernels (see landlock_restrict_flags). */
#define LANDLOCK_FLAG_LOG_SAME_EXEC_OFF (1u << 0)
#define LANDLOCK_FLAG_LOG_NEW_EXEC_ON (1u << 1)
#define LANDLOCK_FLAG_LOG_SUBDOMAINS_OFF (1u << 2)
#define LANDLOCK_FLAG_TSYNC (1u << 3)

/* What a path is for. */
enum landlock_class {
    LANDLOCK_CLASS_READ = 1,   /* read, execute, list */
    LANDLOCK_CLASS_WRITE = 2,  /* READ, and change and make everything but device nodes */
    LANDLOCK_CLASS_DEVICE = 3, /* read and write, device ioctls; no execute, nothing made */
    LANDLOCK_CLASS_NAMES =
        4 /* list, of directories only: what is read below has rules of its own */
};

/* What a layer restricts. */
enum {
    LANDLOCK_HANDLE_READ = 1u << 0,
    LANDLOCK_HANDLE_NAMES = 1u << 1,  /* READ_DIR */
    LANDLOCK_HANDLE_WRITE = 1u << 2,  /* with device ioctls (ABI 5) */
    LANDLOCK_HANDLE_TCP = 1u << 3,    /* ABI 4; no class grants a port: all bind and connect */
    LANDLOCK_HANDLE_SCOPES = 1u << 4, /* ABI 6; signals and abstract sockets to the outside */
    LANDLOCK_HANDLE_UNIX = 1u << 5,   /* ABI 9; no class grants it: sockets made outside */
    LANDLOCK_HANDLE_UDP = 1u << 6,    /* ABI 10; as TCP */
    LANDLOCK_HANDLE_REFER = 1u << 7,  /* only to grant it: for a layer of scopes, see below */
    /* With WRITE: read-only and nodev mounts refuse truncation and device ioctls already, which as
     * rights cost a walk on each open. */
    LANDLOCK_HANDLE_MOUNTED = 1u << 8
};

struct landlock_rights {
    uint64_t fs, net, scoped;
};

/*
 * What a ruleset handles at this ABI (1 or more, may be injected) when it is to restrict `handle`
 * (LANDLOCK_HANDLE_*). Rights that the ABI lacks are left out without a word: the caller decides
 * from the ABI whether that is enough (TRUNCATE needs 3, signal scopes need 6).
 * As soon as one file right is handled, so is REFER: every such layer denies it unless granted.
 * A layer of scopes alone denies nothing while it stands alone; under or over a layer with file
 * rights it denies every rename between directories (EXDEV, seen on 6.18 in both orders). Such a
 * layer therefore takes HANDLE_REFER too and grants CLASS_READ on "/". The price: a layer with any
 * file right makes mount(2) EPERM.
 * Returns 0, or -EINVAL for an ABI below 1 or an unknown flag.
 */
int landlock_handled(int abi, uint32_t handle, struct landlock_rights *out);

/*
 * The file rights that `cls` grants below a directory, or on a file (is_dir = 0: rights that only
 * make sense on directories are left out, the kernel refuses them on a file). Always a subset of
 * what `handle` handles; 0 when nothing of it is handled, or for an invalid argument.
 */
uint64_t landlock_granted(int abi, enum landlock_class cls, int is_dir, uint32_t handle);

/* The flags that landlock_restrict_self knows at this ABI (LANDLOCK_FLAG_*). */
uint32_t landlock_restrict_flags(int abi);

/* A ruleset's fd (close-on-exec), or -errno; -ENOMSG when nothing is handled. */
int landlock_create(const struct landlock_rights *handled);

/*
 * Grants `access` below parent_fd (an O_PATH fd will do). 0 as access adds no rule, as no rule
 * grants nothing. Returns 0 or -errno.
 */
int landlock_add_path(int ruleset, int parent_fd, uint64_t access);

/* Confines the calling thread, for good. It needs no_new_privs. `flags`: LANDLOCK_FLAG_*, of those that
 * the kernel knows. Returns 0 or -errno. */
int landlock_restrict(int ruleset, uint32_t flags);

/* The name of one right, or NULL when the bit is none of the table's. For explanations. */
const char *landlock_right_name(uint64_t bit);
const char *landlock_net_name(uint64_t bit);
const char *landlock_scope_name(uint64_t bit);

#endif
