"""Makes one system call fail, in this process and what it starts: for tests of error paths."""

from __future__ import annotations

import ctypes
import platform
import struct

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _MODE_FILTER = 38, 22, 2
X86 = platform.machine() == "x86_64"

# number on x86_64, on aarch64
NUMBERS = {
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "clone": (56, 220),
    "setsid": (112, 157),
    "prctl": (157, 167),
    "dup3": (292, 24),
    "close_range": (436, 436),
    "chdir": (80, 49),
    "prlimit64": (302, 261),
    "capset": (126, 91),
    "seccomp": (317, 277),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    "execve": (59, 221),
    "memfd_create": (319, 279),
    "unshare": (272, 97),
    "socketpair": (53, 199),
    "pidfd_open": (434, 434),
    "mmap": (9, 222),
    "ppoll": (271, 73),
}


def fail(call: str, errno: int, first_argument: int | None = None) -> None:
    """From now on ``call`` gives ``errno`` (only with that first argument, where one is given)."""
    number = NUMBERS[call][0 if X86 else 1]
    code = [(_LOAD, 0, 0, 0), (_EQUAL, 0, 1 if first_argument is None else 3, number)]
    if first_argument is not None:
        code += [(_LOAD, 0, 0, 16), (_EQUAL, 0, 1, first_argument & 0xFFFFFFFF)]
    code += [(_RETURN, 0, 0, _ERRNO | errno), (_RETURN, 0, 0, _ALLOW)]
    blob = b"".join(struct.pack("HBBI", *one) for one in code)
    program = ctypes.create_string_buffer(blob)
    header = struct.pack("HxxxxxxP", len(code), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(header)
    if libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _SET_SECCOMP, _MODE_FILTER, buffer, 0, 0
    ):
        raise OSError(ctypes.get_errno(), "the failing filter was not installed")
