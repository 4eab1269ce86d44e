# Spawning in the caller's own process.


cdef class Strings:
    """A NULL-terminated char *[] over a tuple of bytes that it keeps alive."""

    cdef tuple items
    cdef char **pointers

    def __cinit__(self, items):
        cdef Py_ssize_t i
        cdef bytes item
        self.items = tuple(items)
        self.pointers = <char **>calloc(len(self.items) + 1, sizeof(char *))
        if self.pointers == NULL:
            raise MemoryError
        for i in range(len(self.items)):
            item = self.items[i]
            if b"\0" in item:
                raise ValueError(f"contains NUL: {item!r}")
            self.pointers[i] = <char *>item

    def __dealloc__(self):
        free(self.pointers)


@cython.final
cdef class Plan:
    """All that one spawn needs, checked and laid out once; it can be spawned any number of times.

    Parameters:
        argv: the command's words, at least one, as bytes.
        env: the whole environment, as bytes `NAME=value`.
        programs: what to execute, candidates in the order of PATH; default: argv[0] as it is.
        policy: a Policy, or None for no confinement.
        cwd: absolute path as bytes, or None for the caller's.
        fds: which fds of the caller become 0, 1, 2, ... in the command (3 to 16 of them; a fd may
            come twice). All others are closed there.
        targets: which numbers they become instead: 0, 1, 2, and then ascending. Not inline.
        limits: (resource, soft, hard) each, as for setrlimit(2); at most 16.
        new_session: setsid(2): no terminal, and a process group of its own.
        process_group: without a new session: 0 for one of its own, or the one to join; None
            leaves it in the caller's.
        umask: None leaves it.
        inline: how a policy is put on the command. False: by a small helper process that is
            confined once and clones the command as the caller's child; limits, umask and priority
            that are not given are those of the time at which the policy was first used, and the
            command ends with the caller. True: between clone and exec, for each command anew,
            which costs more, and more with each rule, but needs no other process.
        die_with_thread: SIGKILL when the *thread* that spawned ends (PR_SET_PDEATHSIG); for
            commands without a policy, or inline.

    ValueError for NUL in a string, an empty argv or impossible counts.
    """

    cdef plan_c c
    cdef Strings argv, env, programs
    cdef bytes cwd
    cdef readonly Policy policy
    cdef readonly bint inline
    cdef tuple given_limits, targets
    cdef plan_limit limits[16]
    cdef tuple made  # (cwd, pid, the request for a nursery), once there was one

    def __cinit__(self, argv, env, *, programs=None, Policy policy=None, cwd=None, fds=(0, 1, 2),
                  limits=(), new_session=True, umask=None, inline=False, die_with_thread=False,
                  targets=(), process_group=None):
        cdef int i
        if die_with_thread and policy is not None and not inline:
            raise ValueError("die_with_thread goes with no policy, or with inline")
        self.inline = inline or policy is None
        self.targets = tuple(targets)
        if self.targets and (self.inline or len(self.targets) != len(fds)):
            raise ValueError("targets: one for each fd, and not inline")
        if process_group is not None and process_group < 0:
            raise ValueError("a process group is not negative")
        self.c.group = 0 if process_group is None else process_group if process_group else -1
        self.given_limits = tuple(limits)
        self.argv = Strings(argv)
        self.env = Strings(env)
        self.programs = Strings(programs if programs is not None else self.argv.items[:1])
        if not self.argv.items or not self.programs.items:
            raise ValueError("a command has at least one word")
        if not 3 <= len(fds) <= PLAN_MAX_FDS or len(limits) > 16:
            raise ValueError("from 3 to 16 fds and at most 16 limits")
        self.cwd = cwd
        self.policy = policy
        self.c.argv = self.argv.pointers
        self.c.envp = self.env.pointers
        self.c.programs = <const char *const *>self.programs.pointers
        self.c.cwd = <const char *>self.cwd if cwd is not None else NULL
        for i in range(len(fds)):
            self.c.fds[i] = fds[i]
        self.c.fd_count = len(fds)
        for i in range(len(limits)):
            resource, soft, hard = limits[i]
            self.limits[i] = plan_limit(resource, 0, soft, hard)
        self.c.limits = self.limits
        self.c.limit_count = len(limits)
        self.c.umask = -1 if umask is None else umask
        self.c.ruleset = -1
        self.c.flags = ((PLAN_NEW_SESSION if new_session else 0)
                        | (PLAN_DIE_WITH_PARENT if die_with_thread else 0))
        if policy is not None:
            self.c.filter = policy.view.filter
            self.c.extra_filter = policy.view.extra_filter
            if policy.view.header.flags & POLICY_CONFINED:
                self.c.flags |= PLAN_NO_NEW_PRIVS | PLAN_DROP_CAPABILITIES


    cdef bytes request(self, bytes place):
        """The request for a nursery; made once for a working directory."""
        cdef tuple made
        with cython.critical_section(self):
            made = self.made
        if made is None or made[0] != place or made[1] != getpid():
            request = _request(self.programs.items, self.argv.items, _block(self.env.items),
                               len(self.env.items), place, self.given_limits,
                               not self.c.flags & PLAN_NEW_SESSION, self.c.umask, 0, 0, 0, 0,
                               self.c.group, self.targets)
            made = (place, getpid(), request)
            with cython.critical_section(self):
                self.made = made
        return made[2]


Status = namedtuple("Status", "status reaped user system max_rss")
Status.__doc__ = """How a process ended.

`status` is a wait status (os.waitstatus_to_exitcode decodes it), `reaped` tells whether this call
reaped it (else somebody else did, and the figures are zero), `user` and `system` are CPU seconds,
`max_rss` is in KiB."""


def spawn(Plan plan not None):
    """Starts a plan's command, confined, as a child of the calling process.

    Returns (pid, pidfd); the caller owns both: wait for the one, close the other. Raises StageError
    when any step up to and including exec failed; then the command did not run, not even in part,
    and neither process nor fd is left behind. LaneLost when another command of the policy killed
    the process that spawns, meanwhile or again and again. May be called from any thread; the GIL is
    free meanwhile. clone(2) with CLONE_VM | CLONE_PIDFD underneath, and CLONE_VFORK where no other
    command can stop the child before it executes.
    """
    if plan.inline:
        return _spawn_inline(plan)
    for _ in range(2):
        nursery = _nursery_of(plan)
        try:
            started = nursery.spawn(plan)
        finally:
            if not nursery.lost:
                plan.policy.nurseries.append(nursery)
        if started is not None:
            return started
    raise LaneLost("the helper process was killed twice")


cdef _spawn_inline(Plan plan):
    cdef plan_c c = plan.c  # a copy: the same plan may be spawned by several threads at once
    cdef int32_t pid = 0, pidfd = -1
    cdef int error
    if plan.policy is not None:
        c.ruleset = plan.policy.ruleset()
    with nogil:
        error = spawn_child(&c, &pid, &pidfd)
    if error:
        raise_stage(&c.report)
    return (pid, pidfd)


cdef class Nursery:
    """A helper process that spawns commands of one policy as the caller's children."""

    cdef Helper helper
    cdef int owner
    cdef bint lost

    @staticmethod
    cdef Nursery make(Policy policy, const int32_t *joint):
        """`joint`: what it is to join a sandbox with, for which it takes the filter alone; or NULL."""
        cdef wire_reply ready
        cdef int error
        cdef uint64_t cookie = int.from_bytes(urandom(8), "little") | 1
        cdef Nursery nursery = Nursery.__new__(Nursery)
        nursery.owner = getpid()
        nursery.helper = Helper(policy.with_cookie(cookie, joint != NULL), HELPER_PATH)
        with nogil:
            error = client_direct(&nursery.helper.c, cookie, joint, &ready)
        if error:
            ready.report.error = -error
            raise_stage(&ready.report)
        return nursery

    cdef spawn(self, Plan plan):
        """(pid, pidfd), or None when this nursery was lost before."""
        cdef int32_t pid = 0, pidfd = -1
        cdef int error
        cdef stage_report report
        cdef int32_t fds[PLAN_MAX_FDS]
        cdef unsigned count = plan.c.fd_count
        cdef Py_ssize_t size
        cdef const uint8_t *at
        memcpy(fds, plan.c.fds, sizeof(fds))
        request = plan.request(plan.cwd if plan.cwd is not None else getcwdb())
        size = len(request)
        at = <const uint8_t *><const char *>request
        with nogil:
            error = client_spawn(&self.helper.c, at, size, fds, count, &pid, &pidfd, &report)
        self.lost = error != 0 and report.stage == STAGE_NONE
        if self.lost and error == -EPIPE:
            return None
        if self.lost:
            raise LaneLost("the helper process was killed; the command may have run")
        if error:
            raise_stage(&report)
        return (pid, pidfd)


cdef Nursery _nursery_of(Plan plan):
    """An idle nursery of this process, or a new one: StageError then for a fd that is closed, whose
    number would be one of the nursery's."""
    cdef Nursery nursery
    cdef stage_report report
    while True:
        try:
            nursery = plan.policy.nurseries.pop()
        except IndexError:  # not asked before: another thread may take the last one
            break
        if nursery.owner == getpid():
            return nursery
    if spawn_check_fds(plan.c.fds, plan.c.fd_count, &report):
        raise_stage(&report)
    return Nursery.make(plan.policy, NULL)


cdef bytes _block(tuple items):
    return b"".join([item + b"\0" for item in items])


def wait(int pidfd, timeout=None):
    """Waits for a spawned process through its pidfd and reaps it.

    timeout is in seconds, None for ever. Returns a Status, or None when the time is over. Right
    also where SIGCHLD is ignored (Linux 6.15 and later; ChildProcessError before). Not disturbed by
    signals: their Python handlers run, and waiting goes on unless they raise.
    """
    cdef int64_t deadline = INT64_MAX
    cdef spawn_status status
    cdef int ended
    if timeout is not None:
        deadline = packet_now() + _nanoseconds(timeout)
    while True:
        with nogil:
            ended = spawn_wait(pidfd, deadline, &status)
        if ended == 1:
            return Status(
                status.status, bool(status.reaped),
                status.usage.ru_utime.tv_sec + status.usage.ru_utime.tv_usec / 1e6,
                status.usage.ru_stime.tv_sec + status.usage.ru_stime.tv_usec / 1e6,
                status.usage.ru_maxrss)
        if ended == 0:
            return None
        if ended == -EINTR:
            PyErr_CheckSignals()
            continue
        raise OSError(-ended, strerror(-ended))


def kill(int pid, int pidfd):
    """SIGKILL to a spawned process and, where it leads one, to its process group.

    ProcessLookupError when it was reaped already. What has left the group lives on: whole trees are
    ended by a Lane.
    """
    cdef int error
    with nogil:
        error = spawn_kill(pid, pidfd)
    if error:
        raise OSError(-error, strerror(-error))


cdef int64_t _nanoseconds(seconds) except -1:
    """A finite span in nanoseconds, cut at 100 years, which no clock here outlives."""
    value = float(seconds)
    if not value >= 0:
        raise ValueError(f"a time span is not negative: {seconds!r}")
    return <int64_t>(min(value, 3.2e9) * 1e9)
