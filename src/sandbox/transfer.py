"""Files and whole directories, in and out of a sandbox.

A tree is walked name by name in open directories, on both sides, and no link in it is followed. In
the sandbox each name is opened by the lane; on the caller's side what is made is new, so nothing
that lies there can lead elsewhere. All is streamed, and bounded in bytes, files and depth.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from sandbox.backends.base import FileKind
from sandbox.reach import Reach, Shown, drop_set_id, entries_of, fail, write_all

__all__ = ["Transfer", "Transport"]

_CHUNK = 1 << 18
_DEPTH = 64  # directories in each other: two fds each
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# What may be wrong with one thing of a tree, while the rest can be had.
_LEFT_OUT = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EISDIR)


class Transfer(NamedTuple):
    """What was copied, and what was not.

    ``skipped``: paths below the source that were left out: links, what is no file, what may not be
    read, protected names.
    """

    files: int
    bytes: int
    skipped: tuple[str, ...]


class Transport:
    """One upload or download, within its bounds."""

    def __init__(
        self, reach: Reach, max_bytes: int, max_files: int, max_file: int | None = None
    ) -> None:
        self._reach, self._max_file = reach, max_file
        self._max_bytes, self._max_files = max_bytes, max_files
        self._files = self._bytes = self._names = 0
        self._skipped: list[str] = []

    @property
    def done(self) -> Transfer:
        """What came of it."""
        return Transfer(self._files, self._bytes, tuple(self._skipped))

    def download(self, place: bytes, shown: Shown, local: str) -> None:
        """A file or a directory of the sandbox to a path of the caller's."""
        try:
            source = self._reach.open("read", place, shown)
        except IsADirectoryError:
            source = self._reach.open("list", place, shown)
            try:
                os.mkdir(local)
                target = os.open(local, _ENTER)
                try:
                    self._fetch(source, target, shown, 1)
                finally:
                    os.close(target)
            finally:
                os.close(source)
            return
        try:
            self._to_local(source, local, shown)
        finally:
            os.close(source)

    def _to_local(self, source: int, local: str, shown: Shown) -> None:
        """One file, in the place of a regular file or of nothing."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        target = os.open(local, flags, _mode(source))
        try:
            if not stat.S_ISREG(os.fstat(target).st_mode):
                fail(errno.EPERM, local, "is no regular file")
            self._copy(source, target, shown, local)
        finally:
            os.close(target)

    def _fetch(self, source: int, target: int, shown: Shown, depth: int) -> None:
        """What is in a directory of the sandbox to an empty one of the caller's."""
        self._descend(depth, shown)
        for entry in entries_of(source, self._max_files, shown):
            path = os.path.join(shown, entry.name)
            self._count(path)
            name = os.fsencode(entry.name)
            if entry.kind not in ("file", "directory"):
                self._skipped.append(path)
                continue
            what: FileKind = "read" if entry.kind == "file" else "list"
            try:
                fd = self._reach.open(what, name, path, directory=source, follow=False)
            except OSError as error:
                self._leave_out(path, error)
                continue
            try:
                if entry.kind == "file":
                    out = os.open(name, _NEW, _mode(fd), dir_fd=target)
                    try:
                        self._copy(fd, out, path, path)
                    finally:
                        os.close(out)
                    continue
                os.mkdir(name, dir_fd=target)
                out = os.open(name, _ENTER, dir_fd=target)
                try:
                    self._fetch(fd, out, path, depth + 1)
                finally:
                    os.close(out)
            finally:
                os.close(fd)

    def upload(self, local: str, place: bytes, shown: Shown, *, parents: bool) -> None:
        """A file or a directory of the caller's to a path in the sandbox."""
        source = _open_local(local)
        try:
            if stat.S_ISREG(os.fstat(source).st_mode):
                self._to_sandbox(source, place, shown, local, parents=parents)
                return
            target = self._reach.directory(place, shown, parents=parents)
            try:
                self._reach.check(target, b"", shown)
                self._send(source, target, local, shown, 1)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _to_sandbox(
        self, source: int, place: bytes, shown: Shown, local: str, *, parents: bool
    ) -> None:
        mode = _mode(source)
        target = self._reach.open_to_write("write", place, shown, mode=mode, parents=parents)
        try:
            self._copy(source, target, local, shown)
        finally:
            os.close(target)

    def _send(self, source: int, target: int, local: str, shown: Shown, depth: int) -> None:
        """What is in a directory of the caller's to one of the sandbox."""
        self._descend(depth, local)
        for entry in entries_of(source, self._max_files, local):
            path, there = os.path.join(local, entry.name), os.path.join(shown, entry.name)
            self._count(path)
            name = os.fsencode(entry.name)
            if entry.kind not in ("file", "directory"):
                self._skipped.append(path)
                continue
            try:
                fd = os.open(name, _LOOK, dir_fd=source)
            except OSError as error:
                self._leave_out(path, error)
                continue
            try:
                self._send_one(fd, target, name, path, there, depth)
            finally:
                os.close(fd)

    def _send_one(
        self, fd: int, target: int, name: bytes, path: str, there: Shown, depth: int
    ) -> None:
        kind = stat.S_IFMT(os.fstat(fd).st_mode)
        try:
            self._reach.check(target, name, there)
        except PermissionError as error:
            self._leave_out(path, error)
            return
        if kind == stat.S_IFDIR:
            self._reach.make(target, name, there)
            out = self._reach.open("place", name, there, directory=target, follow=False)
        elif kind == stat.S_IFREG:
            out = self._reach.write_in("write", target, name, there, mode=_mode(fd), follow=False)
        else:
            self._skipped.append(path)
            return
        try:
            if kind == stat.S_IFDIR:
                self._send(fd, out, path, there, depth + 1)
            else:
                self._copy(fd, out, path, there)
        finally:
            os.close(out)

    def _copy(self, source: int, target: int, shown: str, written: str) -> None:
        """All that is in a file, instead of what is in the other; EFBIG beyond the bounds."""
        size = 0
        drop_set_id(target, os.fstat(target))
        while True:
            try:
                data = os.read(source, _CHUNK)
            except OSError as error:
                fail(error.errno or errno.EIO, shown)
            if not data:
                break
            size += len(data)
            self._bytes += len(data)
            if self._bytes > self._max_bytes or (self._max_file and size > self._max_file):
                fail(errno.EFBIG, shown)
            write_all(target, memoryview(data), written)
        os.ftruncate(target, size)
        self._files += 1

    def _count(self, shown: str) -> None:
        self._names += 1
        if self._names > self._max_files:
            fail(errno.EOVERFLOW, shown, f"more than {self._max_files} names altogether")

    def _descend(self, depth: int, shown: str) -> None:
        if depth > _DEPTH:
            fail(errno.ENAMETOOLONG, shown, f"more than {_DEPTH} directories in each other")

    def _leave_out(self, path: str, error: OSError) -> None:
        if error.errno not in _LEFT_OUT:
            raise error
        self._skipped.append(path)


def _mode(fd: int) -> int:
    """Permissions for a copy: everybody's as the umask has it, executable if it was."""
    return 0o666 | (os.fstat(fd).st_mode & 0o111)


def _open_local(local: str) -> int:
    """A regular file or a directory of the caller's; not by a link at its end."""
    fd = os.open(local, _LOOK)
    if not stat.S_ISREG(mode := os.fstat(fd).st_mode) and not stat.S_ISDIR(mode):
        os.close(fd)
        fail(errno.EPERM, local, "is neither a file nor a directory")
    return fd
