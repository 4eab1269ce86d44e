# What lies in a workspace.


@cython.final
cdef class Survey:
    """Looks in directories for some names (64 at the most), and for directories but those `passed`.

    `of(path)`: which of the names are there, as numbers, and whether other directories are. OSError
    when it cannot be listed, or is a link."""

    cdef Strings names, passed

    def __cinit__(self, names, passed):
        self.names, self.passed = Strings(names), Strings(passed)
        if len(self.names.items) > SURVEY_NAMES_MAX:
            raise ValueError("too many names")

    def of(self, bytes path not None):
        cdef survey found
        cdef int error
        cdef const char *place = path
        with nogil:
            error = survey_directory(place, <const char *const *>self.names.pointers,
                                     <const char *const *>self.passed.pointers, &found)
        if error:
            raise OSError(-error, strerror(-error))
        if found.present == 0:
            return (), bool(found.directories)
        present = tuple([i for i in range(len(self.names.items)) if found.present >> i & 1])
        return present, bool(found.directories)
