# A lane: commands that are run, or started and waited for, and files that are reached.

_FILE_KINDS = {
    "look": WIRE_FILE_LOOK, "place": WIRE_FILE_PLACE, "list": WIRE_FILE_LIST,
    "read": WIRE_FILE_READ, "write": WIRE_FILE_WRITE, "append": WIRE_FILE_APPEND,
    "create": WIRE_FILE_CREATE, "make": WIRE_FILE_MAKE, "remove": WIRE_FILE_REMOVE,
    "clear": WIRE_FILE_CLEAR}
_FILE_WITHOUT_FD = frozenset(("make", "remove", "clear"))
cdef enum:
    _FILE_PATIENCE_S = 30  # a file system that hangs, hangs its lane


@cython.final
cdef class Lane:
    """One place of a helper in which one command at a time runs."""

    cdef int socket
    cdef int owner
    cdef bint running, closed
    cdef int32_t pidfd    # of the command that was started; -1
    cdef object outcome   # of the command that was started, once it is over
    cdef int64_t lost_ns  # when it counts as lost, because it should have ended long before
    cdef readonly Helper helper
    cdef readonly bint scoped
    cdef readonly int pid  # as the helper sees it: in namespaces a number in there

    def __cinit__(self):
        self.socket = self.pidfd = -1

    @staticmethod
    cdef Lane make(Helper helper, int socket, const wire_reply *ready):
        cdef Lane lane = Lane.__new__(Lane)
        lane.socket = socket
        lane.owner = getpid()
        lane.helper = helper
        lane.scoped, lane.pid = ready.scoped, ready.pid
        return lane

    def __dealloc__(self):
        self.running = False
        self.end()
        if self.pidfd >= 0:
            close(self.pidfd)

    @cython.critical_section
    def close(self):
        """Ends the lane and what runs in it; a thread in `run` gets LaneLost. Idempotent."""
        self.end()

    cdef void end(self) noexcept:
        self.closed = True
        if self.socket < 0:
            return
        if self.owner == getpid():
            client_end_lane(self.socket)
        if not self.running:
            close(self.socket)
            self.socket = -1

    @property
    def usable(self):
        """False while a command runs, once it or its helper was closed or lost or has ended, and in a
        forked copy of the process."""
        # What is idle says nothing but that it has ended.
        return not self.running and self.is_open() and packet_await(self.socket, 0) != 0

    def fileno(self):
        """To wait for: readable when the command that was started may be over; -1: closed."""
        return self.socket

    cdef bint is_open(self):
        return self.owner == getpid() and not (self.closed or self.helper.closed)

    @cython.critical_section
    def run(self, programs, argv, bytes env not None, int env_count, bytes cwd not None, *,
            limits=(), bytes input=None, int stdin=-1, int stdout=-1, int stderr=-1,
            Py_ssize_t out_cap=0, Py_ssize_t err_cap=0, timeout=None, bint keep_session=False,
            uint64_t memory=0):
        """Runs one command to the end of its whole tree.

        Parameters:
            programs, argv: non-empty lists of bytes, as for a Plan.
            env, env_count: the environment as one block of NUL-terminated `NAME=value`.
            cwd: absolute path.
            limits: (resource, soft, hard) each.
            input: bytes for stdin; without it the fd `stdin`.
            stdout, stderr: a fd, or -1 to capture at most out_cap and err_cap bytes.
            timeout: seconds, None for ever; then the tree is killed.
            keep_session: stay in the caller's session and process group, for a terminal.
            memory: bytes that the whole tree may have, 0 for any number; looked at from time to
                time, in a lane that is `scoped`. The stage "limits" fails in others.

        Returns an Outcome. Raises LaneLost, and what a Python signal handler raises (the tree is
        killed first). ValueError for impossible arguments.
        """
        cdef run_setup setup
        cdef run_c state
        cdef int progress
        if not self.is_open():
            raise LaneLost("the lane is closed")
        if self.running:
            raise ValueError("a lane runs one command at a time")
        request = _request(programs, argv, env, env_count, cwd, limits, keep_session, -1, 0, 0,
                           memory, self.helper.c.docks)
        _give(&setup, self.socket, request, input)
        setup.stdin_fd, setup.stdout_fd, setup.stderr_fd = stdin, stdout, stderr
        setup.out_cap, setup.err_cap = out_cap, err_cap
        began = packet_now()
        setup.deadline_ns = INT64_MAX if timeout is None else began + _nanoseconds(timeout)
        raised = None
        self.running = True
        try:
            with nogil:
                progress = run_start(&setup, &state)
                if progress == 0:
                    progress = run_step(&state)
            while progress == RUN_SIGNAL:
                try:
                    PyErr_CheckSignals()
                except BaseException as error:
                    raised = error
                    run_kill(&state)
                with nogil:
                    progress = run_step(&state)
            if progress != RUN_DONE:
                self.lose()
            if raised is not None:
                raise raised
            if progress != RUN_DONE:
                raise LaneLost(f"the sandbox was lost: {strerror(-progress)}")
            return _outcome(&state, state.attempts, (packet_now() - began) / 1e9)
        finally:
            self.running = False
            if self.closed:
                self.end()
            run_free(&state)

    @cython.critical_section
    def start(self, programs, argv, bytes env not None, int env_count, bytes cwd not None, *,
              fds, limits=(), timeout=None, bint terminal=False, uint64_t memory=0):
        """Starts a command that goes on by itself; `wait` has what comes of it.

        Parameters as for `run`, and:
            fds: what becomes 0, 1, 2 and so on in the command; at least three.
            timeout: seconds, None for ever; then the lane kills the tree, whoever waits or not.
            terminal: fd 0 becomes the controlling terminal of the command's session.

        Returns the leader's pid as the helper sees it, or 0 when it did not start: then `wait` says
        why. Raises LaneLost and ValueError. When the leader ends, its whole tree is ended.
        """
        cdef wire_reply reply
        cdef int32_t handed[PLAN_MAX_FDS]
        cdef unsigned count = len(fds)
        cdef int32_t pidfd
        cdef int progress
        if not self.is_open():
            raise LaneLost("the lane is closed")
        if self.running or not 3 <= count <= PLAN_MAX_FDS:
            raise ValueError("a lane runs one command at a time, with 3 to 16 fds")
        for index, fd in enumerate(fds):
            handed[index] = fd
        span = 0 if timeout is None else max(_nanoseconds(timeout), 1)
        request = _request(programs, argv, env, env_count, cwd, limits, False, -1,
                           WIRE_BACKGROUND | (WIRE_TERMINAL if terminal else 0), span, memory,
                           self.helper.c.docks)
        cdef const uint8_t *at = <const uint8_t *><const char *>request
        cdef size_t size = len(request)
        self.outcome = None
        self.lost_ns = packet_now() + span + RUN_KILL_PATIENCE_NS if span else INT64_MAX
        self.running = True
        with nogil:
            progress = run_launch(self.socket, at, size, handed, count, &reply, &pidfd)
        self.pidfd = pidfd
        if progress == 0:
            return reply.pid
        self.leave(progress, &reply, NULL)
        return 0

    @cython.critical_section
    def wait(self, timeout=None):
        """The Outcome of the command that was started, or None if it is not over within so many
        seconds. By one thread at a time. Raises LaneLost, and what a Python signal handler raises;
        that does not end the command."""
        cdef wire_reply reply
        cdef wire_attempt attempts[WIRE_MAX_ATTEMPTS]
        cdef int64_t until = INT64_MAX if timeout is None else packet_now() + _nanoseconds(timeout)
        cdef int64_t now
        cdef int error
        while self.outcome is None:
            if not self.running or self.owner != getpid():
                raise LaneLost("the lane is closed")
            # A signal that comes just before the sleep is seen after it.
            now = packet_now()
            turn = min(until, self.lost_ns, now + 1000000000)
            error = self.receive(turn, &reply, attempts)
            now = packet_now()
            if error == 0:
                self.leave(RUN_DONE if reply.kind == WIRE_DONE else -EPROTO, &reply, attempts)
            elif error != -EINTR and (error != -ETIMEDOUT or now >= self.lost_ns):
                self.leave(error, &reply, NULL)
            else:
                PyErr_CheckSignals()
                if now >= until:
                    return None
        return self.outcome

    cdef int receive(self, int64_t until, wire_reply *reply, wire_attempt *attempts):
        cdef int error
        with nogil:
            error = packet_receive(self.socket, until, reply, attempts)
        return error

    cdef leave(self, int progress, wire_reply *reply, const wire_attempt *attempts):
        """A started command is over: RUN_DONE, or the lane is lost."""
        self.running = False
        if self.pidfd >= 0:
            close(self.pidfd)
            self.pidfd = -1
        if progress != RUN_DONE:
            self.lose()
        else:
            self.outcome = _started_outcome(reply, attempts)
        if self.closed:
            self.end()
        if progress != RUN_DONE:
            raise LaneLost(f"the sandbox was lost: {strerror(-progress)}")

    @cython.critical_section
    def file(self, str what, bytes path not None, *, int directory=-1, int mode=0,
             bint follow=True):
        """Reaches one file with the rights of a command; between commands.

        Parameters:
            what: "look", "place", "list", "read", "write", "append", "create", or, with a
                directory, "make", "remove", "clear"; see wire.h.
            path: absolute, or one name in `directory`, a fd that came of "place" or "list".
            mode: permissions of what is new, less the umask.
            follow: whether a link at the end of the path is followed.

        Returns a fd, the caller's to close; -1 for the last three. Raises OSError (without the
        path), LaneLost, and what a Python signal handler raises, which ends the lane.
        """
        cdef wire_reply reply
        cdef int32_t fd = -1
        cdef int32_t place = directory
        cdef int error
        cdef const uint8_t *at
        cdef size_t size
        cdef int64_t until = packet_now() + _FILE_PATIENCE_S * <int64_t>1000000000
        if not self.is_open():
            raise LaneLost("the lane is closed")
        if self.running:
            raise ValueError("a lane runs one command at a time")
        request = _file_request(_FILE_KINDS[what], path, directory >= 0, mode, follow)
        at = <const uint8_t *><const char *>request
        size = len(request)
        self.running = True
        try:
            with nogil:
                error = packet_send(self.socket, at, size, &place, 1 if place >= 0 else 0)
                if error == 0:
                    error = packet_receive_fd(self.socket, until, &reply, &fd)
            while error == -EINTR:
                try:
                    PyErr_CheckSignals()
                except BaseException:
                    self.closed = True  # its answer would come to the next question
                    raise
                with nogil:
                    error = packet_receive_fd(self.socket, until, &reply, &fd)
            if error == 0 and reply.kind != WIRE_FILED:
                error = -EPROTO
            if error:
                self.lose()
                raise LaneLost(f"the sandbox was lost: {strerror(-error)}")
            if reply.status:
                raise OSError(reply.status, strerror(reply.status))
            if fd < 0 and what not in _FILE_WITHOUT_FD:
                raise OSError(EMFILE, strerror(EMFILE))
            answer, fd = fd, -1
            return answer
        finally:
            if fd >= 0:
                close(fd)
            self.running = False
            if self.closed:
                self.end()

    @cython.critical_section
    def kill(self):
        """Asks the lane to end the command that runs, and all below it. Does not wait."""
        cdef uint32_t kind = WIRE_KILL
        if self.running and self.is_open():
            self.lost_ns = min(self.lost_ns, packet_now() + RUN_KILL_PATIENCE_NS)
            with nogil:
                packet_send(self.socket, &kind, sizeof(kind), NULL, 0)

    @cython.critical_section
    def signal(self, int number):
        """Sends a signal to the command that was started, and to nothing below it; nothing happens
        when it has ended. OSError."""
        cdef int error
        if self.running and self.is_open():
            # Not by the lane: what the caller does next would overtake it.
            error = spawn_signal(self.pidfd, number) if self.pidfd >= 0 else -EMFILE
            if error < 0 and error != -ESRCH:
                raise OSError(-error, strerror(-error))

    cdef lose(self):
        """Somebody has killed, unless it was closed by us: then nothing of the sandbox is to go on,
        and all of it is dead when this returns."""
        if not self.closed:
            self.closed = True
            self.helper.close()
