/* See landlock.h. One table says everything; the functions below only read it. */
#include "landlock.h"

#include <errno.h>
#include <stddef.h>

#include "sys.h"

/*
 * Our own constants: distributions build against headers older than the kernel that runs
 * (Debian 12 has those of 6.1, ABI 2).
 */
#define RULE_PATH_BENEATH 1

/* Which HANDLE_* flag a right belongs to, and with which class a path is granted it. */
enum field { FS, NET, SCOPE };
enum {
    BY_READ = 1u << LANDLOCK_CLASS_READ,
    BY_WRITE = 1u << LANDLOCK_CLASS_WRITE,
    BY_DEVICE = 1u << LANDLOCK_CLASS_DEVICE,
    BY_NAMES = 1u << LANDLOCK_CLASS_NAMES,
    ON_FILES = 1u << 7 /* means something on a file; all others only on directories */
};

struct right {
    const char *name;
    uint8_t field, bit, abi;
    uint8_t handle; /* LANDLOCK_HANDLE_* */
    uint8_t grant;  /* BY_* and ON_FILES */
};

/* No class grants MAKE_CHAR and MAKE_BLOCK: a device node is a way round every path rule. */
static const struct right RIGHTS[] = {
    {"execute", FS, 0, 1, LANDLOCK_HANDLE_READ, BY_READ | BY_WRITE | ON_FILES},
    {"write_file", FS, 1, 1, LANDLOCK_HANDLE_WRITE, BY_WRITE | BY_DEVICE | ON_FILES},
    {"read_file", FS, 2, 1, LANDLOCK_HANDLE_READ, BY_READ | BY_WRITE | BY_DEVICE | ON_FILES},
    {"read_dir", FS, 3, 1, LANDLOCK_HANDLE_NAMES, BY_READ | BY_WRITE | BY_DEVICE | BY_NAMES},
    {"remove_dir", FS, 4, 1, LANDLOCK_HANDLE_WRITE, BY_WRITE},
    {"remove_file", FS, 5, 1, LANDLOCK_HANDLE_WRITE, BY_WRITE},
    {"make_char", FS, 6, 1, LANDLOCK_HANDLE_WRITE, 0},
    {"make_dir", FS, 7, 1, LANDLOCK_HANDLE_WRITE, BY_WRITE},
    {"make_reg", FS, 8, 1, LANDLOCK_HANDLE_WRITE, BY_WRITE},
    {"make_sock", FS, 9, 1, LANDLOCK_HANDLE_WRITE, BY_WRITE},
    {"make_fifo", FS, 10, 1, LANDLOCK_HANDLE_WRITE, BY_WRITE},
    {"make_block", FS, 11, 1, LANDLOCK_HANDLE_WRITE, 0},
    {"make_sym", FS, 12, 1, LANDLOCK_HANDLE_WRITE, BY_WRITE},
    {"refer", FS, 13, 2, LANDLOCK_HANDLE_WRITE | LANDLOCK_HANDLE_REFER, BY_WRITE},
    {"truncate", FS, 14, 3, LANDLOCK_HANDLE_WRITE, BY_WRITE | BY_DEVICE | ON_FILES},
    {"ioctl_dev", FS, 15, 5, LANDLOCK_HANDLE_WRITE, BY_DEVICE | ON_FILES},
    {"resolve_unix", FS, 16, 9, LANDLOCK_HANDLE_UNIX, 0},
    {"bind_tcp", NET, 0, 4, LANDLOCK_HANDLE_TCP, 0},
    {"connect_tcp", NET, 1, 4, LANDLOCK_HANDLE_TCP, 0},
    {"bind_udp", NET, 2, 10, LANDLOCK_HANDLE_UDP, 0},
    {"connect_send_udp", NET, 3, 10, LANDLOCK_HANDLE_UDP, 0},
    {"abstract_unix_socket", SCOPE, 0, 6, LANDLOCK_HANDLE_SCOPES, 0},
    {"signal", SCOPE, 1, 6, LANDLOCK_HANDLE_SCOPES, 0},
};

static const struct {
    uint32_t flag;
    int abi;
} FLAGS[] = {
    {LANDLOCK_FLAG_LOG_SAME_EXEC_OFF, 7},
    {LANDLOCK_FLAG_LOG_NEW_EXEC_ON, 7},
    {LANDLOCK_FLAG_LOG_SUBDOMAINS_OFF, 7},
    {LANDLOCK_FLAG_TSYNC, 8},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define HANDLE_ALL ((1u << 9) - 1)
#define REFER (UINT64_C(1) << 13)
#define REFER_ABI 2
#define TRUNCATE (UINT64_C(1) << 14)
#define IOCTL_DEV (UINT64_C(1) << 15)

int landlock_handled(int abi, uint32_t handle, struct landlock_rights *out)
{
    uint64_t masks[3] = {0, 0, 0};

    if (abi < 1 || (handle & ~HANDLE_ALL) != 0) {
        return -EINVAL;
    }
    for (size_t i = 0; i < COUNT(RIGHTS); i++) {
        if (RIGHTS[i].abi <= abi && (RIGHTS[i].handle & handle) != 0) {
            masks[RIGHTS[i].field] |= UINT64_C(1) << RIGHTS[i].bit;
        }
    }
    if (handle & LANDLOCK_HANDLE_MOUNTED) {
        masks[FS] &= ~(TRUNCATE | IOCTL_DEV);
    }
    /* A layer with any file right refuses to rename between directories unless it grants REFER,
     * and it can only grant what it handles (else EXDEV: npm, cargo, git). */
    if (masks[FS] != 0 && abi >= REFER_ABI) {
        masks[FS] |= REFER;
    }
    out->fs = masks[FS];
    out->net = masks[NET];
    out->scoped = masks[SCOPE];
    return 0;
}

uint64_t landlock_granted(int abi, enum landlock_class cls, int is_dir, uint32_t handle)
{
    struct landlock_rights handled;
    uint64_t granted = 0;

    if (cls < LANDLOCK_CLASS_READ || cls > LANDLOCK_CLASS_NAMES) {
        return 0;
    }
    if (landlock_handled(abi, handle, &handled) < 0) {
        return 0;
    }
    for (size_t i = 0; i < COUNT(RIGHTS); i++) {
        const struct right *right = &RIGHTS[i];
        if (right->field != FS || (right->grant & (1u << cls)) == 0) {
            continue;
        }
        if (is_dir || (right->grant & ON_FILES) != 0) {
            granted |= UINT64_C(1) << right->bit;
        }
    }
    /* A layer that leaves writes alone must not stop renames by the way. */
    if (is_dir && (handle & LANDLOCK_HANDLE_WRITE) == 0) {
        granted |= REFER;
    }
    return granted & handled.fs;
}

uint32_t landlock_restrict_flags(int abi)
{
    uint32_t flags = 0;

    for (size_t i = 0; i < COUNT(FLAGS); i++) {
        if (FLAGS[i].abi <= abi) {
            flags |= FLAGS[i].flag;
        }
    }
    return flags;
}

int landlock_create(const struct landlock_rights *handled)
{
    const uint64_t attr[3] = {handled->fs, handled->net, handled->scoped};
    size_t size = sizeof(attr[0]);

    /* The struct grew with ABI 4 and 6. Older kernels refuse set bits past the size they know, and
     * take any shorter size: hand over just the fields that say something. */
    if (handled->scoped != 0) {
        size = sizeof(attr);
    } else if (handled->net != 0) {
        size = 2 * sizeof(attr[0]);
    }
    return (int)SYS_3(SYS_landlock_create_ruleset, attr, size, 0);
}

int landlock_add_path(int ruleset, int parent_fd, uint64_t access)
{
    struct {
        uint64_t access;
        int32_t parent_fd;
    } __attribute__((packed)) rule = {access, parent_fd};

    if (access == 0) {
        return 0;
    }
    return (int)SYS_4(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0);
}

int landlock_restrict(int ruleset, uint32_t flags)
{
    return (int)SYS_2(SYS_landlock_restrict_self, ruleset, flags);
}

static const char *name_of(enum field field, uint64_t bit)
{
    for (size_t i = 0; i < COUNT(RIGHTS); i++) {
        if (RIGHTS[i].field == field && bit == UINT64_C(1) << RIGHTS[i].bit) {
            return RIGHTS[i].name;
        }
    }
    return NULL;
}

const char *landlock_right_name(uint64_t bit)
{
    return name_of(FS, bit);
}

const char *landlock_net_name(uint64_t bit)
{
    return name_of(NET, bit);
}

const char *landlock_scope_name(uint64_t bit)
{
    return name_of(SCOPE, bit);
}
