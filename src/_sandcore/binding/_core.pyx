# cython: language_level=3, embedsignature=False
"""The binding over the C core: turns Python values into plans and blobs, and outcomes back.

It decides nothing and makes no system call of its own but getpid and close; what happens, and why,
stands in core/ and helper/."""
cimport cython
from collections import namedtuple
from os import strerror

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, EPIPE
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from posix.unistd cimport close, getpid

include "externs.pxi"
include "host.pxi"
include "policy.pxi"
include "spawn.pxi"
include "helper.pxi"
include "stamp.pxi"
