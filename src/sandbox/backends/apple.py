"""What macOS tells of processes and is told: functions of the system that Python does not have.

Off a Mac nothing of it is there, and each says so by its answer.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["Marks", "death_of", "execute", "system_library"]

# SANDBOX_FILTER_GLOBAL_NAME and SANDBOX_CHECK_NO_REPORT: WebKit, wtf/spi/darwin/SandboxSPI.h
_FILTER_NAME = 2 | 0x40000000
_SETEXEC = 0x40  # POSIX_SPAWN_SETEXEC: in the place of this process; <spawn.h> of macOS


def system_library() -> Any:
    """The system's own library on a Mac, else None."""
    return ctypes.CDLL(None) if sys.platform == "darwin" else None


class Marks:
    """Whose processes are which, by the profile that they run under, and by who is responsible."""

    def __init__(self, library: Any = None) -> None:
        library = library or system_library()
        self._check = getattr(library, "sandbox_check", None)
        self._responsible = getattr(library, "responsibility_get_pid_responsible_for_pid", None)
        if self._check is not None:
            # The rest are variadic, which Apple's processors want told from the fixed ones.
            self._check.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int]

    @property
    def known(self) -> bool:
        """Whether profiles can be asked for."""
        return self._check is not None

    def has(self, pid: int, mark: str) -> bool:
        """Whether a process runs under the profile with this mark; an unconfined one has none."""
        return bool(mark) and self._may(pid, mark) and not self._may(pid, f"{mark}.not")

    def _may(self, pid: int, name: str) -> bool:
        if self._check is None:
            return False
        word = ctypes.c_char_p(name.encode())
        return int(self._check(pid, b"mach-lookup", _FILTER_NAME, word)) == 0

    def is_responsible(self, leader: int, pid: int) -> bool:
        """Whether the system holds the command itself responsible for a process."""
        return self._responsible is not None and int(self._responsible(pid)) == leader


def execute(argv: list[bytes], env: Mapping[bytes, bytes], library: Any = None) -> None:
    """As ``os.execve``. A Mac then holds the command responsible for all that it starts.

    Without that it would hold the caller's terminal responsible, or whoever started that (Qt, "The
    curious case of the responsible process"). Raises ``OSError``.
    """
    library = library or system_library()
    disclaim = getattr(library, "responsibility_spawnattrs_setdisclaim", None)
    if disclaim is None:
        os.execve(argv[0], argv, env)
    attributes = ctypes.c_void_p()
    words = (ctypes.c_char_p * (len(argv) + 1))(*argv, None)
    items = [name + b"=" + value for name, value in env.items()]
    block = (ctypes.c_char_p * (len(items) + 1))(*items, None)
    given = ctypes.byref(attributes)
    for number in (
        library.posix_spawnattr_init(given),
        library.posix_spawnattr_setflags(given, ctypes.c_short(_SETEXEC)),
        disclaim(given, 1),
        library.posix_spawn(None, argv[0], None, given, words, block),
    ):
        if number:
            raise OSError(number, os.strerror(number))


def death_of(pid: int) -> Any:
    """Something that is readable when a process has ended; None where it cannot be had."""
    if sys.platform == "darwin":
        queue = select.kqueue()
        event = select.kevent(pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)
        queue.control([event], 0)
        return queue
    return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
