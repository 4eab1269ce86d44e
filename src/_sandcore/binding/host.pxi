# What this host offers, and the tables in words.

NATIVE_ARCH = SECCOMP_NATIVE_ARCH
NET_NONE = SECCOMP_NET_NONE
NET_FULL = SECCOMP_NET_FULL
FILTER_ALLOW_PTRACE = SECCOMP_ALLOW_PTRACE
FILTER_PRIVATE_IPC = SECCOMP_PRIVATE_IPC
FILTER_UNIX_SCOPED = SECCOMP_UNIX_SCOPED
FILTER_SUPERVISED = SECCOMP_SUPERVISED
MOUNT_WRITE = POLICY_MOUNT_WRITE
MOUNT_READ = POLICY_MOUNT_READ
MOUNT_PIN = POLICY_MOUNT_PIN
MOUNT_MASK = POLICY_MOUNT_MASK
MOUNT_HOLLOW = POLICY_MOUNT_HOLLOW
MOUNT_SCRATCH = POLICY_MOUNT_SCRATCH
MOUNT_DEVICES = POLICY_MOUNT_DEVICES
MOUNT_PROC = POLICY_MOUNT_PROC
MOUNT_ABSENT = POLICY_MOUNT_ABSENT
MOUNT_OPTIONAL = POLICY_MOUNT_OPTIONAL
MOUNT_MAKE = POLICY_MOUNT_MAKE
MOUNT_LATER = POLICY_MOUNT_LATER
MOUNT_SOCKET = POLICY_MOUNT_SOCKET
MOUNT_DOCK = POLICY_MOUNT_DOCK
ACCESS_READ = LANDLOCK_CLASS_READ
ACCESS_WRITE = LANDLOCK_CLASS_WRITE
ACCESS_DEVICE = LANDLOCK_CLASS_DEVICE
ACCESS_NAMES = LANDLOCK_CLASS_NAMES
HANDLE_READ = LANDLOCK_HANDLE_READ
HANDLE_MOUNTED = LANDLOCK_HANDLE_MOUNTED
HANDLE_NAMES = LANDLOCK_HANDLE_NAMES
HANDLE_WRITE = LANDLOCK_HANDLE_WRITE
HANDLE_TCP = LANDLOCK_HANDLE_TCP
HANDLE_SCOPES = LANDLOCK_HANDLE_SCOPES
HANDLE_UNIX = LANDLOCK_HANDLE_UNIX
HANDLE_UDP = LANDLOCK_HANDLE_UDP

Probe = namedtuple(
    "Probe",
    "landlock_abi landlock_errno landlock_errata seccomp_actions seccomp_filter pidfd_open "
    "close_range userns userns_errno pidfd_info_exit release")
Probe.__doc__ = """What the kernel offers to this process: see probe.h for each field."""

SyscallRow = namedtuple("SyscallRow", "name number action rule reason")
SyscallRow.__doc__ = """One reviewed system call on one architecture under given options.

`number` is -1 where the architecture lacks it; `action` is "allow", "EPERM", "ENOSYS", "rule" or "ask" (a supervisor);
`rule` says in words what a rule looks at, `reason` why."""


def probe():
    """Asks the kernel once what it offers; tries user namespaces in a child process. OSError when
    the question itself cannot be asked."""
    cdef probe_c found
    cdef int error
    with nogil:
        error = probe_host(&found)
    if error < 0:
        raise OSError(-error, strerror(-error))
    return Probe(
        found.landlock_abi, found.landlock_errno, found.landlock_errata, found.seccomp_actions,
        bool(found.seccomp_filter), bool(found.pidfd_open), bool(found.close_range),
        bool(found.userns), found.userns_errno, bool(found.pidfd_info_exit),
        (<bytes>found.release).decode())


def syscall_rows(*, network, flags=0, arch=0):
    """The reviewed system calls with what a filter of these options does with each."""
    cdef seccomp_options options
    cdef size_t count, i
    cdef const syscall_row *table = syscalls_table(&count)
    cdef const char *rule
    options.arch = arch or NATIVE_ARCH
    options.network = network
    options.flags = flags
    rows = []
    for i in range(count):
        action = ("allow", "EPERM", "ENOSYS", "rule", "ask")[seccomp_action(&options, &table[i])]
        rule = syscalls_rule_text(table[i].rule) if action == "rule" else NULL
        rows.append(SyscallRow(
            table[i].name.decode(), syscalls_number(&table[i], options.arch), action,
            rule.decode() if rule != NULL else "", table[i].reason.decode()))
    return rows


def landlock_rights(int abi, uint32_t handle):
    """Names of what a ruleset handles: (file system rights, network rights, scopes)."""
    cdef landlock_rights_c rights
    if landlock_handled(abi, handle, &rights) != 0:
        raise ValueError("no such ABI or handle")
    return (_names(rights.fs, landlock_right_name), _names(rights.net, landlock_net_name),
            _names(rights.scoped, landlock_scope_name))


def landlock_grants(int abi, int access, bint directory, uint32_t handle):
    """Names of the rights that an ACCESS_* class grants on a directory or a file."""
    return _names(landlock_granted(abi, access, directory, handle), landlock_right_name)


ctypedef const char *(*bit_name)(uint64_t) noexcept nogil


cdef list _names(uint64_t bits, bit_name name_of):
    cdef int bit
    cdef const char *name
    names = []
    for bit in range(64):
        if bits >> bit & 1:
            name = name_of(<uint64_t>1 << bit)
            names.append(name.decode() if name != NULL else f"bit {bit}")
    return names
