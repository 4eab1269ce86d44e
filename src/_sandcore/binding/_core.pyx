# cython: language_level=3, embedsignature=False
# cython: freethreading_compatible=True, subinterpreters_compatible=own_gil
"""The binding over the C core: turns Python values into plans and blobs, and outcomes back.

It decides nothing and makes no system call of its own but close, getpid and getpgrp; what happens, and why,
stands in core/ and helper/. What two threads may use at once changes in a critical section of its object, which
the GIL is where there is one; a section, too, is given up wherever the GIL is."""
cimport cython
from collections import namedtuple
from os import getcwdb, strerror, urandom
from os.path import abspath, dirname, join
from time import time_ns

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport E2BIG, EINTR, EMFILE, ENAMETOOLONG, EPIPE, EPROTO, ESRCH, ETIMEDOUT
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset, strncmp
from posix.unistd cimport close, getpgrp, getpid

include "externs.pxi"
include "runs.pxi"

# Installed beside this module.
HELPER_PATH = join(dirname(abspath(__file__)), "sandcore-helper").encode()
LAUNCHER_PATH = join(dirname(abspath(__file__)), "sandcore-exec").encode()

include "capi.pxi"
include "host.pxi"
include "policy.pxi"
include "helper.pxi"
include "outcome.pxi"
include "request.pxi"
include "lane.pxi"
include "engine.pxi"
include "spawn.pxi"
include "joint.pxi"
include "stamp.pxi"
include "survey.pxi"
include "notices.pxi"
include "keys.pxi"
