# Children of the caller's own that join a live sandbox.


@cython.final
cdef class Joint:
    """A place of a helper, with namespaces, in which children of the calling process run.

    They share it: they see each other, and nothing of commands in lanes, but what sandboxes share.
    processes: how many may be in it at one time, as for Helper.lane. StageError when it cannot be
    had; LaneLost without a helper. For one thread at a time.
    """

    cdef Helper helper
    cdef Nursery nursery
    cdef int socket

    def __cinit__(self, Helper helper not None, uint32_t processes=0):
        cdef wire_reply ready
        cdef int32_t fds[WIRE_JOINT_FDS]
        cdef int i
        self.socket = -1
        if helper.closed or helper.c.owner != getpid():
            raise LaneLost("the helper is closed")
        self.helper = helper
        helper.users += 1
        with nogil:
            self.socket = client_join(&helper.c, processes, fds, &ready)
        helper.leave()
        if self.socket == -EPIPE:
            raise LaneLost("the helper has ended")
        if self.socket < 0:
            ready.report.error = -self.socket
            raise_stage(&ready.report)
        try:
            self.nursery = Nursery.make(helper.policy, fds)
        finally:
            for i in range(WIRE_JOINT_FDS):
                close(fds[i])

    def __dealloc__(self):
        self.end()

    cdef void end(self) noexcept:
        if self.socket < 0:
            return
        if self.nursery is not None:
            with nogil:
                client_end_joint(&self.nursery.helper.c, self.socket)
        else:
            close(self.socket)
        self.socket = -1

    @property
    def usable(self):
        """False once it was closed or lost, and in a forked copy of the process."""
        return (self.socket >= 0 and self.nursery.owner == getpid() and not self.nursery.lost
                and not self.helper.closed and not client_joint_is_lost(self.socket))

    def spawn(self, Plan plan not None):
        """Starts a plan's command in here: (pid, pidfd), as the function of that name.

        The plan's policy is to be the helper's. LaneLost when it could not be started; only one
        that says so may have run."""
        if not self.usable:
            raise LaneLost("the sandbox has ended")
        started = self.nursery.spawn(plan)
        if started is None:
            raise LaneLost("the helper process was killed")
        return started

    def close(self):
        """Ends all that has joined, which is dead when this returns. Idempotent.

        Children that were not waited for are there to be waited for."""
        self.end()
