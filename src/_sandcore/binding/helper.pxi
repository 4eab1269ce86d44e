# The helper of a sandbox, and what it is lost by.


class LaneLost(Exception):
    """The lane or its helper ended while a command ran, or did not answer in time.

    A command that kills or stops its own lane brings this about; the helper then ends the whole
    sandbox. Everything in it is dead; start a new one."""


@cython.final
cdef class Helper:
    """A running sandcore-helper for one policy.

    Parameters: the policy, and the path of the helper's executable as bytes. StageError when the
    host refuses a part; then nothing is left running. After a fork the copy in the child is dead:
    every call raises LaneLost there.

    With `ahead`, the processes of a first lane (as for `lane`), it is still on its way when it is
    given out, and that lane is ordered: the next thing to call is `settle`.
    """

    cdef client c
    cdef int ordered             # the first lane's socket; -1
    cdef uint32_t ordered_processes
    cdef bint settled
    cdef int users  # threads that are in a call without the GIL: the fds must not change hands
    cdef bint closed
    cdef readonly Policy policy

    def __cinit__(self, Policy policy not None, bytes path not None, *, ahead=None):
        cdef stage_report report
        cdef int error
        cdef const char *blob = policy.blob
        cdef const char *helper = path
        cdef size_t size = len(policy.blob)
        self.policy = policy
        self.ordered = -1
        with nogil:
            error = client_start(helper, blob, size, &self.c, &report)
        if error:
            raise_stage(&report)
        if ahead is None:
            self.settle()
        else:
            self.ordered_processes = ahead
            self.ordered = client_order_lane(&self.c, self.ordered_processes)

    @cython.critical_section
    def settle(self):
        """Waits until it serves. StageError as above. Idempotent; not for two threads at once."""
        cdef stage_report report
        cdef int error
        if self.settled:
            return
        with nogil:
            error = client_await(&self.c, &report)
        if error:
            self.cancel()
            raise_stage(&report)
        self.settled = True

    cdef void cancel(self) noexcept:
        """The first lane is not wanted any more."""
        if self.ordered >= 0:
            close(self.ordered)
            self.ordered = -1

    def __dealloc__(self):
        if self.c.owner:  # else it was never started, and fd 0 is not ours
            self.cancel()
            with nogil:
                client_close(&self.c)

    @property
    def pid(self):
        """The root process's pid."""
        return self.c.pid

    @property
    def scoped(self):
        """Whether the signal scope was proved: then a whole tree is ended at once."""
        return bool(self.c.scoped)

    @property
    def unwatched(self):
        """In how many directories on the way to its mounts the host does not tell of changes.

        A file that is replaced there loses its mask until the next helper is started."""
        return self.c.unwatched

    @cython.critical_section
    def take_scratch(self):
        """Fds of the sandbox's own writable directories, in the order of the policy's mounts.

        They are the caller's to close from here on; a second call gives none."""
        found = []
        for i in range(WIRE_MAX_SCRATCH):
            if self.c.scratch[i] >= 0:
                found.append(self.c.scratch[i])
                self.c.scratch[i] = -1
        return tuple(found)

    @cython.critical_section
    def close(self):
        """Ends the helper and everything in it. Idempotent.

        False when its notes are still there: it was killed, or a command was running."""
        cdef bint orderly
        self.closed = True
        self.users += 1
        with nogil:
            orderly = client_end(&self.c)
        self.leave()
        return orderly

    cdef void leave(self) noexcept:
        self.users -= 1
        if self.closed and self.users == 0:
            client_close(&self.c)
            self.cancel()

    @cython.critical_section
    def dock(self, Policy policy, *, uint32_t device_major=0, uint32_t device_minor=0, uint64_t inode=0, bint once=False):
        """Orders the workspace that is the first mount of a policy, to lie where the helper's own policy
        has MOUNT_DOCK, in the place of the one that lies there; None: only that one leaves. With `once` it
        leaves by itself when a command has ended that was asked for after this.

        The directory is given by what identifies it, as it is for the caller. No command may run; those
        that are asked for from here on wait. `await_dock` says what became of it. OSError (E2BIG) when it brings too many mounts;
        LaneLost without a helper."""
        cdef wire_dock which
        cdef int error
        cdef const char *blob = NULL
        cdef size_t size = 0
        if self.closed or self.c.owner != getpid():
            raise LaneLost("the helper is closed")
        if policy is not None:
            blob, size = policy.blob, len(policy.blob)
        memset(&which, 0, sizeof(which))
        which.device_major, which.device_minor, which.inode = device_major, device_minor, inode
        which.once = once
        self.users += 1
        with nogil:
            error = client_dock(&self.c, blob, size, &which)
        self.leave()
        if error == -E2BIG:
            raise OSError(-error, strerror(-error))
        if error:
            raise LaneLost(f"the helper does not answer: {strerror(-error)}")

    @cython.critical_section
    def await_dock(self):
        """Waits until what was ordered last lies there. In how many directories in it the host does not
        tell of changes. StageError when it could not be, with EXDEV when the helper sees another directory
        there; then none lies there. LaneLost without a helper, or when it does not answer."""
        cdef wire_reply ready
        cdef int error
        if self.closed or self.c.owner != getpid():
            raise LaneLost("the helper is closed")
        self.users += 1
        with nogil:
            error = client_await_dock(&self.c, &ready)
        self.leave()
        if error and ready.report.stage == 0:
            raise LaneLost(f"the helper does not answer: {strerror(-error)}")
        if error:
            ready.report.error = -error
            raise_stage(&ready.report)
        return max(int(ready.unwatched) - int(self.c.unwatched), 0)

    @cython.critical_section
    def lane(self, uint32_t processes=0):
        """Opens a lane. StageError when it could not confine itself; LaneLost without a helper.

        processes: how many its command may have at one time, threads counted; 0: any number. With
        namespaces, from Linux 6.14 on; StageError with the stage "limits" elsewhere.
        """
        cdef wire_reply ready
        cdef int socket
        if self.closed or self.c.owner != getpid():
            raise LaneLost("the helper is closed")
        self.users += 1
        socket, self.ordered = self.ordered, -1
        if socket >= 0 and processes != self.ordered_processes:
            close(socket)
            socket = -1
        with nogil:
            if socket < 0:
                socket = client_order_lane(&self.c, processes)
            socket = client_await_lane(socket, &ready)
        self.leave()
        if socket == -EPIPE:
            raise LaneLost("the helper has ended")
        if socket < 0:
            ready.report.error = -socket
            raise_stage(&ready.report)
        return Lane.make(self, socket, &ready)
