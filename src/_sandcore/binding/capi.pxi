# The C interface for other extensions: see include/sandcore.h.
from cpython.pycapsule cimport PyCapsule_New


cdef extern from "api.h" nogil:
    const void *api_table()


C_API = PyCapsule_New(<void *>api_table(), "_sandcore._core.C_API", NULL)
