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

    The blob is checked here and again by every other reader, so that one from a pickle or a file
    can be damaged, but not dangerous. ValueError when it is not a policy.
    """

    cdef readonly bytes blob
    cdef policy_view view
    cdef int ruleset_fd

    def __cinit__(self, bytes blob not None):
        self.ruleset_fd = -1
        self.blob = blob
        if policy_open(<const char *>blob, len(blob), &self.view) != 0:
            raise ValueError("not a compiled policy")

    def __dealloc__(self):
        if self.ruleset_fd >= 0:
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

    cdef int ruleset(self) except -2:
        """The Landlock ruleset, made on first use and kept; -1: the policy has none."""
        cdef int failed = -1
        cdef stage_report report
        if self.ruleset_fd < 0 and self.view.header.flags & POLICY_LANDLOCK:
            with nogil:
                self.ruleset_fd = policy_ruleset(&self.view, &failed)
            if self.ruleset_fd < 0:
                raise StageError("landlock", -self.ruleset_fd, failed)
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
    """The seccomp filter for a network mode (NET_*) and flags (SECCOMP_*), as bytes.

    arch is an AUDIT_ARCH_* number, 0 for the one that this was compiled for. ValueError for an
    unknown mode, flag or architecture.
    """
    cdef sock_filter code[SECCOMP_MAX_INSNS]
    cdef seccomp_options options
    options.arch = arch or NATIVE_ARCH
    options.network = network
    options.flags = flags
    count = seccomp_compile(&options, code, SECCOMP_MAX_INSNS)
    if count < 0:
        raise ValueError(f"no filter for these options: {strerror(-count)}")
    return (<const char *>code)[: count * sizeof(sock_filter)]


def compile_policy(rules=(), *, abi=0, handle=0, filter=b"", extra_filter=b"", confined=True):
    """Compiles a policy to its blob.

    Parameters:
        rules: (path, access, optional) each: an absolute canonical path as bytes, ACCESS_READ,
            ACCESS_WRITE, ACCESS_DEVICE or ACCESS_NAMES (list only), and whether the path may have vanished by the time the
            policy is used (then it grants nothing; otherwise its absence is an error).
        abi: the Landlock ABI to compile for, 0 for no Landlock.
        handle: what Landlock restricts, HANDLE_* or'ed.
        filter: a seccomp program as `compile_filter` makes it; empty for none.
        extra_filter: the caller's own, stacked on ours: classic BPF as libseccomp exports it.
        confined: take no_new_privs and drop all capabilities. False enforces nothing, and goes
            with no rules and no filter only.

    Returns a Policy. ValueError for a path that is not absolute or contains NUL, for a filter that
    is not a sequence of BPF instructions, or for more than 65,536 rules.
    """
    cdef policy_parts parts
    cdef Py_ssize_t i, count
    cdef const char **paths = NULL
    cdef policy_rule *table = NULL
    cdef bytes path
    rules = list(rules)
    count = len(rules)
    if not confined and (abi or filter or extra_filter):
        raise ValueError("a policy that does not confine has neither rules nor filters")
    paths = <const char **>calloc(count + 1, sizeof(char *))
    table = <policy_rule *>calloc(count + 1, sizeof(policy_rule))
    try:
        if paths == NULL or table == NULL:
            raise MemoryError
        for i in range(count):
            path, access, optional = rules[i]
            if b"\0" in path:
                raise ValueError(f"a path contains NUL: {path!r}")
            paths[i] = <const char *>path  # `rules` keeps it alive
            table[i].access = access
            table[i].flags = 1 if optional else 0
        parts.arch = NATIVE_ARCH
        parts.abi = abi
        parts.handle = handle
        parts.flags = ((POLICY_CONFINED if confined else 0) | (POLICY_LANDLOCK if abi else 0)
                       | (POLICY_FILTER if filter else 0))
        parts.rules = table
        parts.paths = paths
        parts.rule_count = count
        parts.filter = _as_filter(filter)
        parts.extra_filter = _as_filter(extra_filter)
        return Policy(_write_policy(&parts))
    finally:
        free(paths)
        free(table)


cdef bytes _write_policy(const policy_parts *parts):
    size = policy_size(parts)
    if size < 0:
        raise ValueError("a path is not absolute" if size == -22 else "the policy is too large")
    blob = PyBytes_FromStringAndSize(NULL, size)
    policy_write(parts, <uint8_t *><char *>blob, size)
    return blob
