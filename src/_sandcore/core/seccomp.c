#include "seccomp.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <string.h>

#include "bpf.h"

#define FLAGS_KNOWN (2u * SECCOMP_SUPERVISED - 1u) /* all up to the last one */

/* The kernel's numbers, which headers of ours may lack or hide behind a C library's. */
#define X32_FIRST 0x40000000u
#define SKIPPED_CALL 0xffffffffu
#define CLONE_NAMESPACES 0x7e020000u /* CLONE_NEW* */
#define CLONE_SIBLING 0x8000u        /* CLONE_PARENT */
#define FAMILY_UNIX 1u
#define FAMILY_INET 2u
#define FAMILY_INET6 10u
#define FAMILY_NETLINK 16u
#define TYPE_STREAM 1u
#define TYPE_DGRAM 2u
#define TYPE_RAW 3u /* on AF_UNIX the kernel makes it a datagram socket */
#define TYPE_SEQPACKET 5u
#define TYPE_FLAGS 0x80800u /* SOCK_CLOEXEC | SOCK_NONBLOCK */
#define FAST_OPEN 0x20000000u
#define NETLINK_ROUTE 0u
#define NEW_LISTENER 8u
#define PRCTL_SET_MM 35u
#define WHO_PROCESS_PRIORITY 0u
#define WHO_PROCESS_IOPRIO 1u

#define ARG_LOW(n) ((uint32_t)offsetof(struct seccomp_data, args) + 8u * (n))
#define ARG_HIGH(n) (ARG_LOW(n) + 4u)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "argument words are laid out for little-endian machines"
#endif

/* Leaves of the tree: the fixed answers, then one per rule. */
enum { LEAF_ABSENT, LEAF_ALLOW, LEAF_DENY, LEAF_KILL, LEAF_ASK, LEAF_RULES };
#define LEAF_COUNT (LEAF_RULES + RULE_COUNT)

struct seccomp_build {
    const struct seccomp_options *options;
    struct bpf_writer writer;
    bpf_label leaf[LEAF_COUNT];
    bpf_label allow, deny; /* of leaf, for the rules */
};

static int seccomp_has(const struct seccomp_options *options, uint32_t flag)
{
    return (options->flags & flag) != 0;
}

enum syscall_action seccomp_action(const struct seccomp_options *options,
                                   const struct syscall_row *row)
{
    int scoped = seccomp_has(options, SECCOMP_UNIX_SCOPED);
    int full = options->network == SECCOMP_NET_FULL;
    switch (row->rule) {
    case RULE_PTRACE:
        return seccomp_has(options, SECCOMP_ALLOW_PTRACE) ? SYSCALL_ALLOW : SYSCALL_DENY;
    case RULE_IPC:
        return seccomp_has(options, SECCOMP_PRIVATE_IPC) ? SYSCALL_ALLOW : SYSCALL_DENY;
    case RULE_CONNECT:
        if (seccomp_has(options, SECCOMP_SUPERVISED)) {
            return SYSCALL_ASK;
        }
        return full || scoped ? SYSCALL_ALLOW : SYSCALL_DENY;
    case RULE_SENDTO:
        return full || !scoped ? SYSCALL_RULE : SYSCALL_ALLOW;
    case RULE_SENDMSG:
    case RULE_SENDMMSG:
        return full ? SYSCALL_RULE : SYSCALL_ALLOW;
    default:
        return (enum syscall_action)row->action;
    }
}

/* To yes when the low word of argument n has one of the bits, or is one of the values. */
static bpf_label seccomp_bits(struct seccomp_build *b, uint32_t n, uint32_t bits, bpf_label yes,
                              bpf_label no)
{
    bpf_branch(&b->writer, BPF_JSET, bits, yes, no);
    return bpf_load(&b->writer, ARG_LOW(n));
}

static bpf_label seccomp_is(struct seccomp_build *b, uint32_t n, const uint32_t *values,
                            size_t count, bpf_label yes, bpf_label no)
{
    bpf_any(&b->writer, values, count, yes, no);
    return bpf_load(&b->writer, ARG_LOW(n));
}

static bpf_label seccomp_equal(struct seccomp_build *b, uint32_t n, uint32_t value, bpf_label yes,
                               bpf_label no)
{
    return seccomp_is(b, n, &value, 1, yes, no);
}

/* The type of socket and socketpair (argument 1), whatever flags came with it. */
static bpf_label seccomp_type(struct seccomp_build *b, uint32_t one, uint32_t other, bpf_label yes)
{
    const uint32_t types[] = {one, other};
    bpf_any(&b->writer, types, COUNT(types), yes, b->deny);
    bpf_and(&b->writer, ~TYPE_FLAGS);
    return bpf_load(&b->writer, ARG_LOW(1));
}

static bpf_label seccomp_unix(struct seccomp_build *b)
{
    if (seccomp_has(b->options, SECCOMP_UNIX_SCOPED)) {
        return b->allow;
    }
    return seccomp_type(b, TYPE_STREAM, TYPE_SEQPACKET, b->allow);
}

static bpf_label seccomp_socketpair(struct seccomp_build *b)
{
    return seccomp_equal(b, 0, FAMILY_UNIX, seccomp_unix(b), b->deny);
}

/* With the network open connect must be too, and it cannot be seen whereto: without a supervisor no
 * AF_UNIX then, or the host's control sockets would be in reach. Raw, ICMP, MPTCP, SCTP and the like
 * are other protocols than TCP and UDP, and pass Landlock's TCP rules. */
static bpf_label seccomp_socket(struct seccomp_build *b)
{
    static const uint32_t protocols[] = {0, 6 /* TCP */, 17 /* UDP */};
    bpf_label protocol = seccomp_is(b, 2, protocols, COUNT(protocols), b->allow, b->deny);
    bpf_label inet = seccomp_type(b, TYPE_STREAM, TYPE_DGRAM, protocol);
    bpf_label route = seccomp_equal(b, 2, NETLINK_ROUTE, b->allow, b->deny);
    bpf_label netlink = seccomp_type(b, TYPE_RAW, TYPE_DGRAM, route);
    bpf_label others = bpf_branch(&b->writer, BPF_JEQ, FAMILY_NETLINK, netlink, b->deny);
    if (seccomp_has(b->options, SECCOMP_UNIX_SCOPED | SECCOMP_SUPERVISED)) {
        others = bpf_branch(&b->writer, BPF_JEQ, FAMILY_UNIX, seccomp_unix(b), others);
    }
    static const uint32_t families[] = {FAMILY_INET, FAMILY_INET6};
    bpf_any(&b->writer, families, COUNT(families), inet, others);
    return bpf_load(&b->writer, ARG_LOW(0));
}

/* send(2) is sendto without an address; refusing that hangs event loops on their own pairs. */
static bpf_label seccomp_sendto(struct seccomp_build *b)
{
    if (b->options->network == SECCOMP_NET_FULL) {
        return seccomp_bits(b, 3, FAST_OPEN, b->deny, b->allow);
    }
    bpf_branch(&b->writer, BPF_JEQ, 0, b->allow, b->deny);
    bpf_label low = bpf_load(&b->writer, ARG_LOW(4));
    bpf_branch(&b->writer, BPF_JEQ, 0, low, b->deny);
    return bpf_load(&b->writer, ARG_HIGH(4));
}

/* Without a read-only mount the inode flags of files that may only be read could be set. Subvolumes
 * are made by ioctl on a directory that is open for reading, and Landlock is not asked: a snapshot
 * of HOME in the workspace shows all that is denied in it (done on btrfs, 6.18). */
static bpf_label seccomp_ioctl(struct seccomp_build *b)
{
    static const uint32_t requests[] = {
        /* rising, for the tree */
        0x5412u,     /* TIOCSTI */
        0x541cu,     /* TIOCLINUX */
        0x541du,     /* TIOCCONS */
        0x5423u,     /* TIOCSETD */
        0x40086602u, /* FS_IOC_SETFLAGS */
        0x4008941au, /* BTRFS_IOC_SUBVOL_SETFLAGS */
        0x40186f04u, /* OCFS2_IOC_REFLINK: copies a file to a path */
        0x401c5820u, /* FS_IOC_FSSETXATTR */
        0x4020bc10u, /* BCH_IOCTL_SUBVOLUME_CREATE */
        0x4020bc11u, /* BCH_IOCTL_SUBVOLUME_DESTROY */
        0x40806685u, /* FS_IOC_ENABLE_VERITY */
        0x50009401u, /* BTRFS_IOC_SNAP_CREATE */
        0x5000940eu, /* BTRFS_IOC_SUBVOL_CREATE */
        0x5000940fu, /* BTRFS_IOC_SNAP_DESTROY */
        0x50009417u, /* BTRFS_IOC_SNAP_CREATE_V2 */
        0x50009418u, /* BTRFS_IOC_SUBVOL_CREATE_V2 */
        0x5000943fu, /* BTRFS_IOC_SNAP_DESTROY_V2 */
        0x80045200u, /* RNDGETENTCNT: what there is to ask of the devices that all have */
        0x800c6613u, /* FS_IOC_SET_ENCRYPTION_POLICY */
        0xc0406618u, /* FS_IOC_REMOVE_ENCRYPTION_KEY: locks the user's files */
        0xc0506617u, /* FS_IOC_ADD_ENCRYPTION_KEY */
    };
    struct bpf_range ranges[2 * COUNT(requests) + 1] = {{0, b->allow}};
    size_t count = 1;
    for (size_t i = 0; i < COUNT(requests); i++) {
        if (ranges[count - 1].start == requests[i]) { /* goes on from the one before */
            ranges[count - 1].start++;
            continue;
        }
        ranges[count++] = (struct bpf_range){requests[i], b->deny};
        ranges[count++] = (struct bpf_range){requests[i] + 1, b->allow};
    }
    bpf_tree(&b->writer, ranges, count);
    return bpf_load(&b->writer, ARG_LOW(1));
}

/* F_SETOWN and F_SETSIG stay: event loops use them, ioctl(FIOSETOWN) does the same, and Landlock's
 * signal scope stops SIGIO to outsiders (before ABI 6 it does not, but then kill reaches them too).
 * F_SETOWN_EX aims at single threads and is used by profilers only. */
static bpf_label seccomp_fcntl(struct seccomp_build *b)
{
    static const uint32_t commands[] = {
        1024u, /* F_SETLEASE */
        1040u, /* F_SETDELEG, from 6.19: a lease on directories too */
        1026u, /* F_NOTIFY */
        15u,   /* F_SETOWN_EX */
    };
    return seccomp_is(b, 1, commands, COUNT(commands), b->deny, b->allow);
}

static bpf_label seccomp_personality(struct seccomp_build *b)
{
    static const uint32_t personas[] = {0, 0xffffffffu};
    return seccomp_is(b, 0, personas, COUNT(personas), b->allow, b->deny);
}

/* (which, 0): the caller itself. */
static bpf_label seccomp_who(struct seccomp_build *b, uint32_t which)
{
    bpf_label who = seccomp_equal(b, 1, 0, b->allow, b->deny);
    return seccomp_equal(b, 0, which, who, b->deny);
}

/* The thread's TLS is the last argument of clone on x86_64, the fourth on arm64. */
static bpf_label seccomp_clone(struct seccomp_build *b)
{
    uint64_t cookie = b->options->cookie;
    if (cookie == 0) {
        return seccomp_bits(b, 0, CLONE_NAMESPACES | CLONE_SIBLING, b->deny, b->allow);
    }
    uint32_t tls = b->options->arch == AUDIT_ARCH_X86_64 ? 4 : 3;
    bpf_branch(&b->writer, BPF_JEQ, (uint32_t)(cookie >> 32), b->allow, b->deny);
    bpf_label high = bpf_load(&b->writer, ARG_HIGH(tls));
    bpf_branch(&b->writer, BPF_JEQ, (uint32_t)cookie, high, b->deny);
    bpf_label known = bpf_load(&b->writer, ARG_LOW(tls));
    bpf_label sibling = bpf_branch(&b->writer, BPF_JSET, CLONE_SIBLING, known, b->allow);
    bpf_branch(&b->writer, BPF_JSET, CLONE_NAMESPACES, b->deny, sibling);
    return bpf_load(&b->writer, ARG_LOW(0));
}

/* The check of one rule; for rules that the options alone decide there is none. */
static bpf_label seccomp_rule(struct seccomp_build *b, uint32_t rule)
{
    switch (rule) {
    case RULE_CLONE:
        return seccomp_clone(b);
    case RULE_SOCKET:
        return seccomp_socket(b);
    case RULE_SOCKETPAIR:
        return seccomp_socketpair(b);
    case RULE_SENDTO:
        return seccomp_sendto(b);
    case RULE_SENDMSG:
        return seccomp_bits(b, 2, FAST_OPEN, b->deny, b->allow);
    case RULE_SENDMMSG:
        return seccomp_bits(b, 3, FAST_OPEN, b->deny, b->allow);
    case RULE_IOCTL:
        return seccomp_ioctl(b);
    case RULE_FCNTL:
        return seccomp_fcntl(b);
    case RULE_PRCTL:
        return seccomp_equal(b, 0, PRCTL_SET_MM, b->deny, b->allow);
    case RULE_PERSONALITY:
        return seccomp_personality(b);
    case RULE_SELF:
        return seccomp_equal(b, 0, 0, b->allow, b->deny);
    case RULE_PRIORITY:
        return seccomp_who(b, WHO_PROCESS_PRIORITY);
    case RULE_IOPRIO:
        return seccomp_who(b, WHO_PROCESS_IOPRIO);
    case RULE_SECCOMP:
        return seccomp_bits(b, 1, NEW_LISTENER, b->deny, b->allow);
    default:
        return b->deny;
    }
}

/* Without network a socket is what a pair is: one check for both. */
static uint32_t seccomp_shared(const struct seccomp_options *options, uint32_t rule)
{
    int alike = rule == RULE_SOCKET && options->network == SECCOMP_NET_NONE;
    return alike ? (uint32_t)RULE_SOCKETPAIR : rule;
}

/* Which leaf each number up to the highest reviewed one has; writes the checks that are needed. */
static void seccomp_leaves(struct seccomp_build *b, uint8_t leaves[SYSCALLS_HIGHEST + 1])
{
    static const uint8_t fixed[] = {[SYSCALL_ALLOW] = LEAF_ALLOW,
                                    [SYSCALL_DENY] = LEAF_DENY,
                                    [SYSCALL_ABSENT] = LEAF_ABSENT,
                                    [SYSCALL_ASK] = LEAF_ASK};
    size_t count;
    const struct syscall_row *rows = syscalls_table(&count);
    memset(leaves, LEAF_ABSENT, SYSCALLS_HIGHEST + 1);
    for (size_t i = 0; i < count; i++) {
        int32_t number = syscalls_number(&rows[i], b->options->arch);
        if (number < 0 || number > SYSCALLS_HIGHEST) {
            continue;
        }
        enum syscall_action action = seccomp_action(b->options, &rows[i]);
        if (action != SYSCALL_RULE) {
            leaves[number] = fixed[action];
            continue;
        }
        uint32_t rule = seccomp_shared(b->options, rows[i].rule);
        uint32_t leaf = LEAF_RULES + rule;
        if (b->leaf[leaf] == 0) {
            b->leaf[leaf] = seccomp_rule(b, rule);
        }
        leaves[number] = (uint8_t)leaf;
    }
}

/* The tree over all numbers, those beyond the table included. */
static void seccomp_dispatch(struct seccomp_build *b)
{
    uint8_t leaves[SYSCALLS_HIGHEST + 1];
    struct bpf_range ranges[SYSCALLS_HIGHEST + 4];
    size_t count = 0;
    seccomp_leaves(b, leaves);
    for (uint32_t nr = 0; nr <= SYSCALLS_HIGHEST; nr++) {
        if (nr == 0 || leaves[nr] != leaves[nr - 1]) {
            ranges[count++] = (struct bpf_range){nr, b->leaf[leaves[nr]]};
        }
    }
    ranges[count++] = (struct bpf_range){SYSCALLS_HIGHEST + 1, b->leaf[LEAF_ABSENT]};
    if (b->options->arch == AUDIT_ARCH_X86_64) {
        ranges[count++] = (struct bpf_range){X32_FIRST, b->leaf[LEAF_KILL]};
        ranges[count++] = (struct bpf_range){SKIPPED_CALL, b->leaf[LEAF_ABSENT]};
    }
    bpf_tree(&b->writer, ranges, count);
}

static int seccomp_known(const struct seccomp_options *options)
{
    return (options->arch == AUDIT_ARCH_X86_64 || options->arch == AUDIT_ARCH_AARCH64) &&
           options->network <= SECCOMP_NET_FULL && (options->flags & ~FLAGS_KNOWN) == 0;
}

int seccomp_compile(const struct seccomp_options *options, struct sock_filter *out, size_t cap)
{
    if (!seccomp_known(options)) {
        return -EINVAL;
    }
    struct seccomp_build b = {.options = options, .writer = {.out = out, .cap = cap}};
    struct bpf_writer *w = &b.writer;
    b.leaf[LEAF_KILL] = bpf_return(w, SECCOMP_RET_KILL_PROCESS);
    b.leaf[LEAF_ABSENT] = bpf_return(w, SECCOMP_RET_ERRNO | ENOSYS);
    if (seccomp_has(options, SECCOMP_SUPERVISED)) {
        b.leaf[LEAF_ASK] = bpf_return(w, SECCOMP_RET_USER_NOTIF);
    }
    b.leaf[LEAF_DENY] = b.deny = bpf_return(w, SECCOMP_RET_ERRNO | EPERM);
    b.leaf[LEAF_ALLOW] = b.allow = bpf_return(w, SECCOMP_RET_ALLOW);
    seccomp_dispatch(&b);
    bpf_label number = bpf_load(w, (uint32_t)offsetof(struct seccomp_data, nr));
    bpf_branch(w, BPF_JEQ, options->arch, number, b.leaf[LEAF_KILL]);
    bpf_load(w, (uint32_t)offsetof(struct seccomp_data, arch));
    return bpf_finish(w);
}
