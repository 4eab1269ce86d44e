# What the kernel tells of directories.

cdef enum:
    _NOTICES_MAX = 256


@cython.final
cdef class Notices:
    """Directories of which the kernel tells that names in them changed, or that they went away.

    OSError when there is no fd for it. For one thread at a time.
    """

    cdef int fd

    def __cinit__(self):
        self.fd = notices_open()
        if self.fd < 0:
            raise OSError(-self.fd, strerror(-self.fd))

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)

    def watch(self, bytes path not None, *, bint contents=False):
        """The number of a directory from now on, the same for the same one. OSError where it cannot be
        read, or when the user watches too many. ``contents``: of what is written into its files,
        and of modes, too."""
        cdef int number = notices_watch(self.fd, path, contents)
        if number < 0:
            raise OSError(-number, strerror(-number))
        return number

    def forget(self, int number):
        """No more of this one; also where it is gone already."""
        notices_forget(self.fd, number)

    def take(self):
        """What was told since the last time: (number, whether of the directory itself) each. The number
        -1: some were lost, which can be of any."""
        cdef notice taken[_NOTICES_MAX]
        cdef long i, count = notices_take(self.fd, taken, _NOTICES_MAX)
        if count < 0:
            raise OSError(-count, strerror(-count))
        if count == 0:
            return ()
        found = []
        while count > 0:
            for i in range(count):
                found.append((taken[i].number, bool(taken[i].is_of_itself)))
            count = notices_take(self.fd, taken, _NOTICES_MAX)
        return found
