# Policies: compiling one to a blob, and holding one.


class StageError(OSError):
    """A stage between clone and exec, or of the helper's start, failed.

    `stage` is its name ("cwd", "landlock", "exec", ...), `detail` an index whose meaning the stage
    gives (a rule, a candidate of PATH, a stream, an RLIMIT number; -1: none).
    """

    def __init__(self, stage, error, detail=-1):
        super().__init__(error, strerror(error), None)
        self.stage = stage
        self.detail = detail

    def __str__(self):
        return f"{self.stage}: {self.strerror}"

    def __reduce__(self):
        return (StageError, (self.stage, self.errno, self.detail))


cdef raise_stage(const stage_report *report):
    raise StageError(stage_name(report.stage).decode(), report.error, report.detail)


@cython.final
cdef class Policy:
    """A compiled policy: bytes without pointers or fds, equal and hashed by its bytes.

    The blob is checked here and again by every other reader, so that a damaged one makes none of
    them look outside of it. What it says is believed: its origin is to be trusted as much as the
    rules. ValueError when it is not a policy.
    """

    cdef readonly bytes blob
    cdef policy_view view
    cdef int ruleset_fd
    cdef list nurseries  # idle ones

    def __cinit__(self, bytes blob not None):
        self.ruleset_fd = -1
        self.nurseries = []
        self.blob = blob
        if policy_open(<const char *>blob, len(blob), &self.view) != 0:
            raise ValueError("not a compiled policy")

    def __dealloc__(self):
        if self.view.header and self.ruleset_fd >= 0:  # else it is no policy, and fd 0 is not ours
            close(self.ruleset_fd)

    def __hash__(self):
        return hash(self.blob)

    def __eq__(self, other):
        return isinstance(other, Policy) and self.blob == (<Policy>other).blob

    def __reduce__(self):
        return (Policy, (self.blob,))

    @property
    def abi(self):
        """The Landlock ABI that the rules were made for; 0: the policy has none."""
        return self.view.header.abi

    @property
    def filter(self):
        """The seccomp filter as (code, jt, jf, k), an instruction each."""
        return _instructions(&self.view.filter)

    @property
    def rules(self):
        """The Landlock rules as (path, access, flags)."""
        cdef uint32_t i
        result = []
        for i in range(self.view.header.rule_count):
            rule = self.view.rules[i]
            result.append((<bytes>(self.view.strings + rule.path), rule.access, rule.flags))
        return result

    @property
    def mounts(self):
        """What namespaces change of the file tree, as compile_policy takes it."""
        cdef uint32_t i
        result = []
        for i in range(self.view.header.mount_count):
            one = self.view.mounts[i]
            path = <bytes>(self.view.strings + one.path)
            result.append((path, one.kind, one.flags, one.access, one.size))
        return result

    cdef Policy with_cookie(self, uint64_t cookie, bint alone):
        """The same policy with a filter that lets the holder of a number spawn siblings.

        alone: the filter alone."""
        cdef const policy_header *header = self.view.header
        cdef const plan_filter *extra = &self.view.extra_filter
        code = b""
        if header.flags & POLICY_FILTER:
            code = _filter_code(header.arch, header.network, header.filter_flags, cookie)
        mine = (<const char *>extra.code)[: extra.count * sizeof(sock_filter)]
        if alone:
            return _assemble([], [], 0, 0, POLICY_CONFINED | POLICY_FILTER, header.network,
                             header.filter_flags, code, mine)
        return _assemble(self.rules, [], header.abi, header.handle, header.flags, header.network,
                         header.filter_flags, code, mine)

    cdef int ruleset(self) except -2:
        """The Landlock ruleset, made on first use and kept; -1: the policy has none."""
        cdef int made, failed = -1
        if self.ruleset_fd < 0 and self.view.header.flags & POLICY_LANDLOCK:
            with nogil:
                made = policy_ruleset(&self.view, &failed)
            if made < 0:
                raise StageError("landlock", -made, failed)
            with cython.critical_section(self):
                if self.ruleset_fd < 0:
                    self.ruleset_fd, made = made, -1
            if made >= 0:
                close(made)  # another thread was quicker
        return self.ruleset_fd


cdef _instructions(const plan_filter *program):
    cdef uint32_t i
    cdef const sock_filter *one
    result = []
    for i in range(program.count):
        one = &program.code[i]
        result.append((one.code, one.jt, one.jf, one.k))
    return result


cdef plan_filter _as_filter(bytes program) except *:
    cdef plan_filter result
    if len(program) % sizeof(sock_filter) or len(program) > 4096 * sizeof(sock_filter):
        raise ValueError("a filter is at most 4096 instructions of 8 bytes")
    result.code = <const sock_filter *><const char *>program
    result.count = len(program) // sizeof(sock_filter)
    return result


def compile_filter(*, network, flags=0, arch=0):
    """The seccomp filter for a network mode (NET_*) and flags (FILTER_*), as bytes.

    arch is an AUDIT_ARCH_* number, 0 for the one that this was compiled for. ValueError for an
    unknown mode, flag or architecture.
    """
    return _filter_code(arch or NATIVE_ARCH, network, flags, 0)


cdef bytes _filter_code(uint32_t arch, uint32_t network, uint32_t flags, uint64_t cookie):
    cdef sock_filter code[SECCOMP_MAX_INSNS]
    cdef seccomp_options options
    options.arch = arch
    options.network = network
    options.flags = flags
    options.cookie = cookie
    count = seccomp_compile(&options, code, SECCOMP_MAX_INSNS)
    if count < 0:
        raise ValueError(f"no filter for these options: {strerror(-count)}")
    return (<const char *>code)[: count * sizeof(sock_filter)]


def compile_policy(rules=(), *, abi=0, handle=0, network=None, filter_flags=0, extra_filter=b"",
                   confined=True, mounts=(), own_network=False, read_only=False, tell=False):
    """Compiles a policy to its blob.

    Parameters:
        rules: (path, access, optional) each: an absolute canonical path as bytes, ACCESS_READ,
            ACCESS_WRITE, ACCESS_DEVICE or ACCESS_NAMES (list only), and whether the path may have
            vanished by the time the policy is used (then it grants nothing; otherwise its absence
            is an error).
        abi: the Landlock ABI to compile for, 0 for no Landlock.
        handle: what Landlock restricts, HANDLE_* or'ed.
        network: NET_NONE or NET_FULL for a seccomp filter of that mode, None for no filter.
        filter_flags: FILTER_* or'ed.
        extra_filter: the caller's own, stacked on ours: classic BPF as libseccomp exports it.
        confined: take no_new_privs and drop all capabilities. False enforces nothing, and goes
            with no rules and no filter only.
        mounts: where there are any but MOUNT_ABSENT: in namespaces, whose file tree differs from the host's in these: (path,
            kind, flags, access, size) each, MOUNT_* and MOUNT_OPTIONAL | MOUNT_MAKE; a path after
            what it is in. access (ACCESS_*, 0: none) is what Landlock grants on a new file system,
            size its bytes at the most (0: the kernel's own limit).
        own_network: in namespaces: a network of its own, with nothing but a loopback.
        read_only: in namespaces: all but what they say otherwise is read-only.
        tell: have the kernel's audit told of what Landlock refuses (from ABI 7 on).

    Returns a Policy. ValueError for a path that is not absolute or contains NUL, for a filter that
    is not a sequence of BPF instructions, or for more than 65,536 rules.
    """
    rules = list(rules)
    if not confined and (rules or abi or network is not None or extra_filter):
        raise ValueError("a policy that does not confine has neither rules nor filters")
    if not confined and mounts:
        raise ValueError("namespaces come with all the rest")
    mounts = list(mounts or ())
    spaces = any(row[1] != POLICY_MOUNT_ABSENT for row in mounts)
    if not spaces and (own_network or read_only):
        raise ValueError("a network of its own, or a read-only tree, takes namespaces")
    if rules and not abi:
        raise ValueError("rules without Landlock (abi 0) would restrict nothing")
    flags = POLICY_CONFINED if confined else 0
    flags |= POLICY_LANDLOCK if abi else 0
    flags |= POLICY_NAMESPACES if spaces else 0
    flags |= POLICY_OWN_NETWORK if own_network else 0
    flags |= POLICY_READ_ONLY if read_only else 0
    flags |= POLICY_TELL if tell and abi else 0
    code = b""
    if network is not None:
        flags |= POLICY_FILTER
        code = compile_filter(network=network, flags=filter_flags)
    return _assemble(rules, mounts, abi, handle, flags, network or 0, filter_flags,
                     code, extra_filter)


def compile_workspace(bytes path not None, tuple names not None):
    """As compile_policy for a workspace (MOUNT_WRITE) in which protected names are missing (MOUNT_ABSENT)."""
    cdef bytes above = path + b"/", name
    mounts = [(path, POLICY_MOUNT_WRITE, 0, 0, 0)]
    for name in names:
        mounts.append((above + name, POLICY_MOUNT_ABSENT, POLICY_MOUNT_OPTIONAL, 0, 0))
    return _assemble([], mounts, 0, 0, POLICY_CONFINED | POLICY_NAMESPACES, 0, 0, b"", b"")


cdef Policy _assemble(list rules, list mounts, uint32_t abi, uint32_t handle, uint32_t flags, uint32_t network,
                      uint32_t filter_flags, bytes code, bytes extra_filter):
    cdef policy_parts parts
    cdef Py_ssize_t i, count = len(rules), more = len(mounts)
    cdef bytes path
    cdef const char **paths = <const char **>calloc(count + more + 1, sizeof(char *))
    cdef policy_rule *table = <policy_rule *>calloc(count + 1, sizeof(policy_rule))
    cdef policy_mount *layout = <policy_mount *>calloc(more + 1, sizeof(policy_mount))
    try:
        if paths == NULL or table == NULL or layout == NULL:
            raise MemoryError
        for i in range(count):
            path, access, optional = rules[i]
            if b"\0" in path:
                raise ValueError(f"a path contains NUL: {path!r}")
            paths[i] = <const char *>path  # `rules` keeps it alive
            table[i].access = access
            table[i].flags = 1 if optional else 0
        for i in range(more):
            path, layout[i].kind, layout[i].flags, layout[i].access, layout[i].size = mounts[i]
            if b"\0" in path:
                raise ValueError(f"a path contains NUL: {path!r}")
            paths[count + i] = <const char *>path  # `mounts` keeps it alive
        parts.arch = NATIVE_ARCH
        parts.abi = abi
        parts.handle = handle
        parts.flags = flags
        parts.network = network
        parts.filter_flags = filter_flags
        parts.rules = table
        parts.mounts = layout
        parts.paths = paths
        parts.rule_count = count
        parts.mount_count = more
        parts.filter = _as_filter(code)
        parts.extra_filter = _as_filter(extra_filter)
        return Policy(_write_policy(&parts))
    finally:
        free(paths)
        free(table)
        free(layout)


cdef bytes _write_policy(const policy_parts *parts):
    size = policy_size(parts)
    if size < 0:
        raise ValueError("a path is not absolute" if size == -22 else "the policy is too large")
    blob = PyBytes_FromStringAndSize(NULL, size)
    policy_write(parts, <uint8_t *><char *>blob, size)
    return blob
