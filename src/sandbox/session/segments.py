"""Where a log lies on a disk: its directory, its segments, its head.

    000001.jsonl  000002.jsonl ...   the records; only the last segment grows
    head                             how many records there are, which segment is the last, its
                                     size, the digest of the last line; also what is locked

The head has one size for ever, so it is written again in place and cannot fail for want of room.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from sandbox.errors import Unavailable
from sandbox.session.events import GENESIS

__all__ = [
    "EMPTY",
    "HEAD",
    "HEAD_SIZE",
    "Head",
    "default_directory",
    "lock",
    "open_directory",
    "open_own",
    "open_reading",
    "parse_head",
    "segment_name",
    "segments",
]

HEAD = "head"
_LAYOUT = b"sandcore-log 1 %020d %020d %020d %b\n"
_PARSED = re.compile(rb"sandcore-log 1 (\d{20}) (\d{20}) (\d{20}) ([0-9a-f]{64})\n")
_SEGMENT = re.compile(r"(\d{6,19})\.jsonl")
# Without O_NONBLOCK the opening of a FIFO would wait for ever.
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_LOCK_SECONDS = 10.0
_PAUSE_LEAST, _PAUSE_MOST = 50e-6, 5e-3


class Head(NamedTuple):
    """``records`` in all, the last ``segment``, its ``size``, the digest of the ``last`` line."""

    records: int
    segment: int
    size: int
    last: bytes

    def pack(self) -> bytes:
        """As it stands in the file."""
        return _LAYOUT % self


EMPTY = Head(0, 1, 0, GENESIS.encode())
HEAD_SIZE = len(EMPTY.pack())


def parse_head(data: bytes) -> Head | None:
    """The head in a file's content; None where it is none."""
    found = _PARSED.fullmatch(data)
    return Head(int(found[1]), int(found[2]), int(found[3]), found[4]) if found else None


def segment_name(number: int) -> str:
    """The file name of a segment, from 1."""
    return f"{number:06d}.jsonl"


def segments(directory: int) -> list[int]:
    """The numbers of all segments that are there, in order."""
    found = (_SEGMENT.fullmatch(name) for name in os.listdir(directory))
    return sorted(int(one[1]) for one in found if one and segment_name(int(one[1])) == one[0])


def default_directory() -> str:
    """The user's own: `sandbox/log` in XDG_STATE_HOME, or in ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):  # a relative one is to be ignored, says the specification
        state = os.path.expanduser("~/.local/state")
    return os.path.join(state, "sandbox", "log")


def open_directory(path: str, *, create: bool = False) -> int:
    """A log's directory, opened; with ``create`` it is made, for this user alone.

    Raises ``OSError``, and ``Unavailable`` where others could change what is in it.
    """
    if create:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
    return _own(number, path, stat.S_ISDIR)


def open_own(directory: int, name: str, flags: int) -> int:
    """A file of a log to be written, made for this user alone. Raises as ``open_directory``."""
    number = os.open(name, os.O_RDWR | flags | _FLAGS, 0o600, dir_fd=directory)
    return _own(number, name, stat.S_ISREG)


def open_reading(directory: int, name: str) -> int:
    """A file of a log to be read, whoever owns it. Raises ``OSError``."""
    number = os.open(name, os.O_RDONLY | _FLAGS, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "is no regular file", name)
    return number


def _own(number: int, name: str, is_kind: Callable[[int], bool]) -> int:
    """The same file, if it is of the right kind and nobody else may write to it."""
    found = os.fstat(number)
    cause = ""
    if not is_kind(found.st_mode):
        cause = "it is no regular file"
    elif found.st_uid != os.geteuid():
        cause = f"it belongs to user {found.st_uid}"
    elif found.st_mode & 0o022:
        cause = f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o})"
    if cause:
        os.close(number)
        raise Unavailable(f"the log ({name})", cause, "a directory of one's own, of mode 0700")
    return number


def lock(number: int, kind: int) -> None:
    """Takes a lock (``fcntl.LOCK_EX`` or ``LOCK_SH``) on an open head. Raises ``OSError``.

    ``TimeoutError`` after ten seconds: who may read the file may lock it and never let go.
    """
    try:
        fcntl.flock(number, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        _wait_for(number, kind)


def _wait_for(number: int, kind: int) -> None:
    end, pause = time.monotonic() + _LOCK_SECONDS, _PAUSE_LEAST
    while True:
        time.sleep(pause)
        try:
            fcntl.flock(number, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                cause = f"locked by another process for {_LOCK_SECONDS:g} s"
                raise TimeoutError(cause) from None
        pause = min(_PAUSE_MOST, pause * 2)
