/* The filter: the table of system calls and the options, compiled to classic BPF.
 *
 * The program checks the architecture (a foreign one is killed: the table's numbers would mean
 * other calls), then finds the number in a balanced search tree whose leaves are an answer or an
 * argument check. The kernel walks the path of every number at install, so the path is what an
 * install costs.
 *
 * Answers: allowed; EPERM for what is refused; ENOSYS for what is not in the table; the process is
 * killed (SIGSYS) for a foreign architecture and, on x86_64, for a number of the x32 ABI; where there
 * is a supervisor it is asked about connect (ENOSYS for all while nobody listens). Of those numbers
 * -1 is excepted and gets ENOSYS: no ABI has a call -1, it is what a tracer writes to skip one.
 * Arguments of 32 bits are compared by their low word only, as the kernel reads them; pointers by
 * both words. */
#ifndef SANDCORE_SECCOMP_H
#define SANDCORE_SECCOMP_H

#include <stddef.h>
#include <stdint.h>
#include <linux/audit.h>
#include <linux/filter.h>

#include "syscalls.h"

enum seccomp_network {
    SECCOMP_NET_NONE = 0, /* no inet sockets, no connecting; what is there carries data freely */
    SECCOMP_NET_FULL = 1, /* TCP, UDP and NETLINK_ROUTE; no AF_UNIX sockets but pairs, because the
                           * filter cannot tell the address of a host's service from another's */
};

enum {
    SECCOMP_ALLOW_PTRACE = 1u << 0, /* of own children: a Landlock domain keeps outsiders safe */
    SECCOMP_PRIVATE_IPC = 1u << 1,  /* SysV IPC is the sandbox's own: allowed */
    SECCOMP_UNIX_SCOPED = 1u << 2,  /* Landlock decides which unix sockets are reached (ABI 9):
                                     * AF_UNIX of any type, connect and addressed sends allowed */
    SECCOMP_SUPERVISED = 1u << 3,   /* a supervisor tells own sockets from the host's: it is asked
                                     * about every connect; AF_UNIX stream and seqpacket allowed */
};

/* What this is compiled for. */
#if defined(__x86_64__)
#define SECCOMP_NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define SECCOMP_NATIVE_ARCH AUDIT_ARCH_AARCH64
#endif

struct seccomp_options {
    uint32_t arch;    /* AUDIT_ARCH_X86_64 or AUDIT_ARCH_AARCH64; any host compiles either */
    uint32_t network; /* enum seccomp_network */
    uint32_t flags;
    uint64_t cookie; /* not 0: a clone with CLONE_PARENT and this number in the place of its TLS
                      * passes. The helper spawns the caller's children so; what it spawns does not
                      * know the number, and without CLONE_SETTLS the kernel does not look at it. */
};

/* More than any options need (a test counts); what callers reserve. */
#define SECCOMP_MAX_INSNS 1024

/* Compiles the filter into out, of cap instructions. Returns how many there are, -ENOSPC when they
 * do not fit (out is then undefined), -EINVAL for an unknown architecture or option. Pure: the same
 * options give the same bytes. */
int seccomp_compile(const struct seccomp_options *options, struct sock_filter *out, size_t cap);

/* What happens to a row under these options: SYSCALL_RULE is left only where arguments decide. */
enum syscall_action seccomp_action(const struct seccomp_options *options,
                                   const struct syscall_row *row);

#endif
