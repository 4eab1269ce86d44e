"""The log of a session: append-only JSON Lines, each line with the digest of the one before.

Several processes, forked children and threads may write to one log, and there is one chain: the
head is locked, then compared with what this process wrote last, the lines are written behind it,
and the head is written after them. So a writer that is killed leaves the head behind the lines,
never before them, and the next one puts that right and says so in the chain.

Nothing is lost silently: whatever is not as the head says, or cannot be written, ends this log for
its owner. An append is two system calls to lock, two to look and two to write.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
import weakref
from contextlib import suppress
from hashlib import sha256
from typing import Literal, Self, get_args

from sandbox.errors import InvalidArgument, RecordsLost, Unavailable
from sandbox.locks import ForkLock
from sandbox.session.events import Record, RecoveredRecord
from sandbox.session.lines import encode
from sandbox.session.mending import Wrong, count_behind, go_on_after_gap
from sandbox.session.segments import (
    EMPTY,
    HEAD,
    HEAD_SIZE,
    Head,
    default_directory,
    lock,
    open_directory,
    open_own,
    parse_head,
    segment_name,
    segments,
)

__all__ = ["Fsync", "Log"]

Fsync = Literal["session", "record", "never"]

_ROTATE = 64 << 20
_LOOK_AGAIN = 1.0  # seconds after which the names are looked at again
_SET_ASIDE = "keep the directory as it is, and start with another one"

Parts = list[tuple[bytes, bytes]]


class Log:
    """A log in ``directory``, by default the user's own (``sandbox log show`` reads that).

    ``fsync``: when records are brought to the disk: after each append (``record``), when a session
    or the log is closed (``session``), or when the machine likes (``never``); it is about power
    failures, a process that ends loses nothing. ``rotate``: bytes from which on a new segment is
    begun.

    Raises ``Unavailable`` where the directory cannot be had or others may write to it. Threads may
    share a log, and a forked child goes on with it.
    """

    def __init__(
        self, directory: str | None = None, *, fsync: Fsync = "session", rotate: int = _ROTATE
    ) -> None:
        self._forget()
        if rotate < 1:
            raise InvalidArgument("rotate", rotate, "less than one byte")
        if fsync not in get_args(Fsync):
            raise InvalidArgument("fsync", fsync, f"none of {', '.join(get_args(Fsync))}")
        self.directory = os.path.abspath(directory or default_directory())
        self._fsync, self._rotate = fsync, rotate
        self._lock = ForkLock()
        self._lost: tuple[str, str] | None = None  # why, and how to mend it
        self._head, self._wrote = EMPTY, False
        try:
            self._open()
        except (OSError, Wrong) as error:
            self._release()
            raise Unavailable(f"the log {self.directory!r}", _said(error), _SET_ASIDE) from error
        except BaseException:
            self._release()
            raise
        _logs.add(self)

    @property
    def head(self) -> str:
        """The digest of the last line that this process wrote or saw: to be kept elsewhere."""
        return self._head.last.decode()

    @property
    def is_lost(self) -> bool:
        """Whether it takes no records any more."""
        return self._lost is not None

    def append(self, *records: Record) -> None:
        """Writes records at the end, all of them or none.

        Raises ``RecordsLost`` where that failed, and ever after: the session must stop. Raises
        ``InvalidArgument``, and nothing has happened, for a record that is in a log already or
        longer than 64 MiB.
        """
        parts = [encode(record) for record in records]
        if not parts:
            return
        with self._lock.held:
            if self._lost is not None:
                raise RecordsLost(self.directory, *self._lost)
            try:
                if self._head_file < 0:  # in a forked child
                    self._open()
                self._locked_append(records[0], parts)
            except (OSError, Wrong, Unavailable) as error:
                self._lost = (_said(error), _mend(error))
                raise RecordsLost(self.directory, *self._lost) from error

    def sync(self) -> None:
        """Brings the records to the disk, unless ``fsync`` is ``never``. Raises ``RecordsLost``."""
        with self._lock.held:
            self._sync()

    def close(self) -> None:
        """Brings the records to the disk, unless ``fsync`` is ``never``; nothing is taken after.

        Raises ``RecordsLost`` where the disk has lost them.
        """
        with self._lock.held:
            self._lost = self._lost or ("it is closed", "")
            try:
                self._sync()
            finally:
                self._release()

    def _sync(self) -> None:
        try:
            if self._head_file >= 0 and self._fsync != "never":
                os.fsync(self._segment_file)
                os.fsync(self._head_file)
        except OSError as error:
            raise RecordsLost(self.directory, _said(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._release()

    def _forget(self) -> None:
        self._directory_file = self._head_file = self._segment_file = -1
        self._packed, self._looked = b"", -_LOOK_AGAIN

    def _release(self) -> None:
        for number in (self._segment_file, self._head_file, self._directory_file):
            if number >= 0:
                with suppress(OSError):
                    os.close(number)
        self._forget()

    def _open(self) -> None:
        """Opens the files; makes them where there are none. Raises what ``append`` turns around."""
        self._directory_file = open_directory(self.directory, create=True)
        self._head_file = open_own(self._directory_file, HEAD, os.O_CREAT)
        try:
            lock(self._head_file, fcntl.LOCK_EX)
            packed = os.pread(self._head_file, HEAD_SIZE + 1, 0)
            if not packed:
                packed = self._begin()
            self._learn(packed)
        finally:
            fcntl.flock(self._head_file, fcntl.LOCK_UN)

    def _begin(self) -> bytes:
        """The head of a log that is new."""
        if segments(self._directory_file):
            raise Wrong("there are records, and the head that counts them is gone")
        packed = EMPTY.pack()
        os.close(self._new_segment(EMPTY.segment))
        if os.pwrite(self._head_file, packed, 0) != len(packed):
            os.ftruncate(self._head_file, 0)
            raise Wrong("there is no room for its head")
        if self._fsync != "never":
            os.fsync(self._head_file)
            os.fsync(self._directory_file)
        return packed

    def _new_segment(self, number: int) -> int:
        return open_own(self._directory_file, segment_name(number), os.O_CREAT | os.O_APPEND)

    def _locked_append(self, first: Record, parts: Parts) -> None:
        """Appends under the lock that all writers of this log take."""
        try:
            lock(self._head_file, fcntl.LOCK_EX)
            packed = os.pread(self._head_file, HEAD_SIZE + 1, 0)
            if packed != self._packed:  # somebody else has written
                self._learn(packed)
            if (now := time.monotonic()) - self._looked > _LOOK_AGAIN:
                self._look(now)
            # Not fstat: who asks for a time of change makes the next write set an exact one, which
            # costs more than all the rest (since Linux 6.13).
            size = os.lseek(self._segment_file, 0, os.SEEK_END)
            if size != self._head.size:
                parts = [self._put_right(size, first), *parts]
            if self._head.size >= self._rotate:
                self._next_segment()
            self._write(parts)
        finally:
            fcntl.flock(self._head_file, fcntl.LOCK_UN)

    def _learn(self, packed: bytes) -> None:
        """Takes over the head as another writer left it."""
        head = parse_head(packed)
        if head is None:
            raise Wrong("its head is damaged")
        if head.records < self._head.records:
            raise Wrong("its head was set back: records were taken away")
        if head.segment != self._head.segment or self._segment_file < 0:
            self._use(open_own(self._directory_file, segment_name(head.segment), os.O_APPEND))
        self._head, self._packed = head, packed

    def _use(self, opened: int) -> None:
        """Goes on with another segment."""
        if self._segment_file >= 0:
            os.close(self._segment_file)
        self._segment_file = opened

    def _look(self, now: float) -> None:
        """Whether the names still lead to the files: what is read elsewhere is nobody's log."""
        opened = {HEAD: self._head_file, segment_name(self._head.segment): self._segment_file}
        for name, number in opened.items():
            named = os.stat(os.path.join(self.directory, name), follow_symlinks=False)
            if not os.path.samestat(named, os.fstat(number)):
                raise Wrong(f"{name} was replaced")
        self._looked = now

    def _write(self, parts: Parts) -> None:
        """Writes lines and then the head, or neither."""
        count, segment, size, last = self._head
        lines = []
        for start, rest in parts:
            count += 1
            line = b'%b%d,"prev":"%b",%b\n' % (start, count, last, rest)
            last = sha256(line).hexdigest().encode()
            lines.append(line)
        data = b"".join(lines)
        try:
            written = os.write(self._segment_file, data)
            while written < len(data):  # the next one fails, and says why
                written += os.write(self._segment_file, data[written:])
            if self._fsync == "record":
                _to_disk(self._segment_file)
            self._write_head(Head(count, segment, size + len(data), last))
        except (OSError, Wrong):
            os.ftruncate(self._segment_file, size)
            raise
        self._wrote = True

    def _write_head(self, head: Head) -> None:
        packed = head.pack()
        if os.pwrite(self._head_file, packed, 0) != HEAD_SIZE:
            raise Wrong("its head cannot be written")
        self._head, self._packed = head, packed

    def _next_segment(self) -> None:
        """Begins a segment. The head says so before a line is in it."""
        number = self._head.segment + 1
        opened = self._new_segment(number)
        if os.fstat(opened).st_size:  # an empty one is of a writer that ended here
            os.close(opened)
            raise Wrong(f"there is a {segment_name(number)} already")
        if self._fsync != "never":
            os.fsync(self._segment_file)
            os.fsync(self._directory_file)
        self._use(opened)
        self._write_head(self._head._replace(segment=number, size=0))

    def _put_right(self, size: int, first: Record) -> tuple[bytes, bytes]:
        """Makes head and segment agree again; the record that says what was done for that."""
        kept, dropped, missing = 0, b"", 0
        if size > self._head.size:
            self._head, kept, dropped = count_behind(self._segment_file, self._head, size)
        elif self._wrote:  # so it was no power failure
            raise Wrong("records were taken away at its end")
        else:
            missing = self._head.size - size
            self._head = go_on_after_gap(self._segment_file, self._head, size)
        return encode(
            RecoveredRecord(
                session=first.session,
                call=first.call,
                kept=kept,
                dropped=len(dropped),
                sha256=sha256(dropped).hexdigest() if dropped else "",
                missing=missing,
            )
        )


def _to_disk(number: int) -> None:
    # macOS has no fdatasync.
    getattr(os, "fdatasync", os.fsync)(number)


def _said(error: Exception) -> str:
    """What went wrong, in words."""
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror or error}{where}"
    return str(error)


def _mend(error: Exception) -> str:
    if isinstance(error, OSError):
        room = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        return "make room for it" if room else ""
    return _SET_ASIDE


_logs: weakref.WeakSet[Log] = weakref.WeakSet()


def _after_fork() -> None:
    """A child must not share the open files: a lock on one of them would be both processes'."""
    for log in list(_logs):
        log._release()


os.register_at_fork(after_in_child=_after_fork)
