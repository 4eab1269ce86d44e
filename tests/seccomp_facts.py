"""What the filter must do, written out by hand for the tests: nothing here comes from the table."""

from __future__ import annotations

import errno
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from bpfsim import ALLOW, ASK, Program, refuse
from ccore import ffi, lib

X86_64, AARCH64 = 0xC000003E, 0xC00000B7
I386, ARM, RISCV64 = 0x40000003, 0x40000028, 0xC00000F3
NONE, FULL = 0, 1
PTRACE, IPC, SCOPED, SUPERVISED = 1, 2, 4, 8
DENY, ABSENT = refuse(errno.EPERM), refuse(errno.ENOSYS)


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Names that are refused whatever their arguments, in every variant.
DENIED = words("""
    process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd unshare
    setns mount umount2 pivot_root move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr
    chroot name_to_handle_at open_by_handle_at bpf perf_event_open userfaultfd add_key request_key
    keyctl mq_open mq_unlink fanotify_init fanotify_mark modify_ldt migrate_pages move_pages
    create_module init_module finit_module delete_module get_kernel_syms query_module kexec_load
    kexec_file_load reboot swapon swapoff acct quotactl quotactl_fd settimeofday clock_settime
    clock_adjtime adjtimex sethostname setdomainname iopl ioperm vhangup syslog nfsservctl
    lookup_dcookie uselib ustat sysfs _sysctl getpmsg putpmsg afs_syscall tuxcall security
    get_thread_area
""")
MISSING = words("""
    io_uring_setup io_uring_enter io_uring_register clone3 statmount listmount lsm_get_self_attr
    lsm_set_self_attr lsm_list_modules setxattrat getxattrat listxattrat removexattrat file_getattr
    file_setattr open_tree_attr
""")
IPC_CALLS = words("""
    shmget shmat shmctl shmdt msgget msgsnd msgrcv msgctl semget semop semtimedop semctl
""")

# What came after the headers and the libseccomp of Debian 12 (the numbers of both architectures).
NEW = {
    "set_mempolicy_home_node": 450, "cachestat": 451, "fchmodat2": 452, "map_shadow_stack": 453,
    "futex_wake": 454, "futex_wait": 455, "futex_requeue": 456, "statmount": 457, "listmount": 458,
    "lsm_get_self_attr": 459, "lsm_set_self_attr": 460, "lsm_list_modules": 461, "mseal": 462,
    "setxattrat": 463, "getxattrat": 464, "listxattrat": 465, "removexattrat": 466,
    "open_tree_attr": 467, "file_getattr": 468, "file_setattr": 469,
}  # fmt: skip
NEW_X86_64 = {"uretprobe": 335, "uprobe": 336}


@dataclass(frozen=True)
class Variant:
    """One set of options."""

    arch: int
    network: int
    flags: int

    def __str__(self) -> str:
        arch = {X86_64: "x86_64", AARCH64: "aarch64"}[self.arch]
        return f"{arch}-{('none', 'full')[self.network]}-{self.flags}"

    @property
    def scoped(self) -> bool:
        return bool(self.flags & SCOPED)

    @property
    def supervised(self) -> bool:
        return bool(self.flags & SUPERVISED)

    def options(self) -> object:
        return ffi.new(
            "struct seccomp_options *",
            {"arch": self.arch, "network": self.network, "flags": self.flags},
        )

    def compile(self) -> Program:
        return compiled(self)


@cache
def compiled(variant: Variant) -> Program:
    """The variant's filter."""
    out = ffi.new("struct sock_filter[]", lib.SECCOMP_MAX_INSNS)
    count = lib.seccomp_compile(variant.options(), out, lib.SECCOMP_MAX_INSNS)
    assert count > 0
    return Program.of(out[0:count])


FLAGS = (*range(8), SUPERVISED, PTRACE | SUPERVISED, 15)
VARIANTS = [Variant(*v) for v in product((X86_64, AARCH64), (NONE, FULL), FLAGS)]
# Argument checks differ by network, SCOPED and SUPERVISED only (PTRACE turns one of them off).
FEW_VARIANTS = [v for v in VARIANTS if v.flags in (0, PTRACE | SCOPED, PTRACE | SUPERVISED)]


def numbers(arch: int) -> dict[str, int]:
    """Name to number, as the table says it."""
    count = ffi.new("size_t *")
    rows = lib.syscalls_table(count)
    found = {
        ffi.string(rows[i].name).decode(): lib.syscalls_number(rows + i, arch)
        for i in range(count[0])
    }
    return {name: number for name, number in found.items() if number >= 0}


# The argument rules, as predicates on 32-bit words and 64-bit pointers: whether a call passes.

STREAM, DGRAM, RAW, SEQPACKET = 1, 2, 3, 5
UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
CLOEXEC, NONBLOCK = 0o2000000, 0o4000
FASTOPEN = 0x20000000
REFUSED_IOCTLS = (
    0x5412, 0x541C, 0x5423, 0x541D, 0x40086602, 0x401C5820, 0x40806685, 0x800C6613,
    0x80045200,
    0xC0506617, 0xC0406618, 0x50009401, 0x50009417, 0x5000940E, 0x50009418, 0x5000940F,
    0x5000943F, 0x4008941A, 0x4020BC10, 0x4020BC11, 0x40186F04,
)  # fmt: skip
REFUSED_FCNTLS = (1024, 1026, 1040, 15)
NEW_NAMESPACES = (1 << 17, 1 << 25, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30)
CLONE_PARENT = 1 << 15


def pair_passes(v: Variant, family: int, kind: int) -> bool:
    kind &= ~(CLOEXEC | NONBLOCK)
    return family == UNIX and (v.scoped or kind in (STREAM, SEQPACKET))


def socket_passes(v: Variant, family: int, kind: int, protocol: int) -> bool:
    if v.network == NONE:
        return pair_passes(v, family, kind)
    kind &= ~(CLOEXEC | NONBLOCK)
    if family in (INET, INET6):
        return kind in (STREAM, DGRAM) and protocol in (0, 6, 17)
    if family == NETLINK:
        return kind in (RAW, DGRAM) and protocol == 0
    if family == UNIX and v.supervised:
        return pair_passes(v, family, kind)
    return family == UNIX and v.scoped


def sendto_passes(v: Variant, flags: int, address: int) -> bool:
    if v.network == FULL:
        return not flags & FASTOPEN
    return v.scoped or address == 0


def passes(v: Variant, name: str, args: Sequence[int]) -> bool:
    """Whether a call with a rule passes; args are 64-bit registers, cut here as the kernel does."""
    a = [x & 0xFFFFFFFF for x in (*args, 0, 0, 0, 0, 0, 0)]
    match name:
        case "clone":
            return not any(a[0] & bit for bit in (*NEW_NAMESPACES, CLONE_PARENT))
        case "socket":
            return socket_passes(v, a[0], a[1], a[2])
        case "socketpair":
            return pair_passes(v, a[0], a[1])
        case "connect":
            return v.network == FULL or v.scoped  # without a supervisor
        case "sendto":
            return sendto_passes(v, a[3], (*args, 0, 0, 0, 0, 0)[4])
        case "sendmsg":
            return v.network == NONE or not a[2] & FASTOPEN
        case "sendmmsg":
            return v.network == NONE or not a[3] & FASTOPEN
        case "ioctl":
            return a[1] not in REFUSED_IOCTLS
        case "fcntl":
            return a[1] not in REFUSED_FCNTLS
        case "prctl":
            return a[0] != 35
        case "personality":
            return a[0] in (0, 0xFFFFFFFF)
        case "setpriority":
            return a[0] == 0 and a[1] == 0
        case "ioprio_set":
            return a[0] == 1 and a[1] == 0
        case "seccomp":
            return not a[1] & 8
        case "ptrace":
            return bool(v.flags & PTRACE)
        case _:
            return a[0] == 0  # the calls on pid 0


SELF_CALLS = ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam",
              "sched_setattr")  # fmt: skip
RULED = ("clone", "socket", "socketpair", "connect", "sendto", "sendmsg", "sendmmsg", "ioctl",
         "fcntl", "prctl", "personality", *SELF_CALLS, "setpriority", "ioprio_set", "seccomp",
         "ptrace")  # fmt: skip

JUNK = 0xDEADBEEF << 32  # what a caller may leave in the upper half of a register


def dirty(values: Sequence[int]) -> list[int]:
    """Each value as it is, and with something in the upper half."""
    return [*values, *(v | JUNK for v in values), *(v | 1 << 32 for v in values)]


def argument_classes(name: str) -> Iterator[tuple[int, ...]]:
    """Registers that between them reach every branch of a rule, upper halves included."""
    word = dirty((0, 1, 2, 7, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF))
    match name:
        case "clone":
            yield from ((x,) for x in dirty([0, *(1 << bit for bit in range(32)), 0xFFFFFFFF]))
            yield (0x5111,)  # CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD
            yield (0x1200011,)  # glibc's fork
            yield (0x3D0F00,)  # glibc's thread
        case "socket" | "socketpair":
            families = dirty([*range(47), 0x7FFFFFFF, 0xFFFFFFFF])
            yield from product(families, (STREAM, SEQPACKET | CLOEXEC, DGRAM | NONBLOCK), (0,))
            flags = (0, CLOEXEC, NONBLOCK, CLOEXEC | NONBLOCK, JUNK, 1 << 4, 1 << 31)
            types = [t | f for t in range(12) for f in flags]
            yield from product((UNIX, INET, INET6, NETLINK), types, (0, 17))
            protocols = dirty((0, 1, 2, 4, 6, 16, 17, 58, 132, 136, 255, 262))
            yield from product((UNIX, INET, INET6, NETLINK), (STREAM, DGRAM, RAW), protocols)
        case "sendto" | "sendmsg" | "sendmmsg":
            flags = (0, 0x4040, JUNK, FASTOPEN, FASTOPEN | 0x40, JUNK | FASTOPEN, 0xFFFFFFFF)
            pointers = (0, 1, 1 << 31, 1 << 32, 0x7FFF00000000, 0x7FFF12345678, 1 << 63)
            yield from ((3, 4096, f, f2, p) for f in flags for f2 in flags for p in pointers)
        case "ioctl" | "fcntl":
            known = (*REFUSED_IOCTLS, *REFUSED_FCNTLS, 8, 10, 1025, 1030, 1041, 0x5413, 0x5401)
            near = [x + step for x in known for step in (-1, 0, 1)]
            yield from ((fd, x, 0) for fd in (0, 3, JUNK) for x in dirty(near))
        case "prctl":
            yield from ((x, 0) for x in dirty([*range(80), 0xFFFFFFFF]))
        case _:
            yield from product(word, dirty((0, 1, 2, 3, 8, 9, 16, 0xFFFFFFFF)))


def expected(v: Variant, name: str, args: Sequence[int] = ()) -> int:
    """What the filter must answer to a call by name."""
    if name in MISSING:
        return ABSENT
    if name in DENIED or (name in IPC_CALLS and not v.flags & IPC):
        return DENY
    if name == "connect" and v.supervised:
        return ASK
    if name in RULED:
        return ALLOW if passes(v, name, args) else DENY
    return ALLOW


def header_numbers(source: str, compiler: str = "gcc") -> dict[str, int]:
    """What a kernel header says, up to the highest number that was reviewed."""
    done = subprocess.run(
        [compiler, "-E", "-dM", "-xc", "-"],
        input=source,
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(re.findall(r"#define __NR_?(\w+) (\w+)", done.stdout))
    while any(not value.isdigit() for value in found.values()):
        found = {
            name: found.get(re.sub("^__NR_?", "", value), value) for name, value in found.items()
        }
    reviewed = {name: int(value) for name, value in found.items()}
    return {name: value for name, value in reviewed.items() if value <= lib.SYSCALLS_HIGHEST}
