# Stamps of paths, taken before and after a command.


@cython.final
cdef class Stamps:
    """Fixed lists of paths whose state is taken in one call.

    `take()` returns bytes. Of each of `paths` they hold device, inode, size, mode and the kernel's
    own change time, so that equal bytes mean that none was created, removed, written, replaced or
    re-permitted in between. Of each of `identities` they hold device, inode and time of birth only:
    the same directory, whatever happened in it. `SIZE` bytes belong to one path, in the order given; all
    zero: absent. Symlinks are not followed.
    """

    SIZE = sizeof(stamp)

    cdef Strings paths
    cdef size_t exact

    def __cinit__(self, paths, identities=()):
        paths = tuple(paths)
        self.exact = len(paths)
        self.paths = Strings(paths + tuple(identities))

    def __len__(self):
        return len(self.paths.items)

    def settled(self, bytes state not None):
        """Whether the youngest change in a taken state is 20 ms old or older.

        Kernels before 6.13 count change times in ticks of up to 10 ms, so that two changes in one
        tick look alike; what is older than that cannot change again without a difference.
        """
        cdef size_t i, count = len(state) // sizeof(stamp)
        cdef const stamp *at = <const stamp *><const char *>state
        cdef int64_t youngest = 0
        for i in range(count):
            youngest = max(youngest, at[i].change_ns)
        return time_ns() - youngest >= 20_000_000

    def take(self):
        """The state of all paths now."""
        cdef size_t count = len(self.paths.items)
        cdef const char *const *paths = <const char *const *>self.paths.pointers
        taken = PyBytes_FromStringAndSize(NULL, count * sizeof(stamp))
        cdef stamp *at = <stamp *><char *>taken
        stamp_paths(paths, self.exact, at)
        stamp_identities(paths + self.exact, count - self.exact, at + self.exact)
        return taken

    def same(self, bytes state not None):
        """Whether the state now is one that was taken before, without making another."""
        cdef size_t i, count = len(self.paths.items)
        cdef const stamp *then = <const stamp *><const char *>state
        cdef stamp now
        if len(state) != count * sizeof(stamp):
            return False
        for i in range(count):
            self.look(i, &now)
            if memcmp(&now, &then[i], sizeof(stamp)):
                return False
        return True

    cdef void look(self, size_t i, stamp *out) noexcept:
        cdef const char *const *path = <const char *const *>&self.paths.pointers[i]
        if i < self.exact:
            stamp_paths(path, 1, out)
        else:
            stamp_identities(path, 1, out)
