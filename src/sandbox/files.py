"""Files of a sandbox for its caller: what a command would see there, with a command's rights.

A part of ``Sandbox``. No name is looked up on the caller's side, so what a command has put in the
way (a link, a FIFO, a device) leads nowhere that it could not go itself.
"""

from __future__ import annotations

import errno
import os
from types import TracebackType
from typing import Any

from sandbox.backends.base import ConfinementLost, FileKind
from sandbox.boundary import Boundary
from sandbox.errors import InvalidArgument, SandboxLost
from sandbox.limits import Limits
from sandbox.policy import SandboxPolicy
from sandbox.reach import (
    FileEntry,
    FileStat,
    Reach,
    Shown,
    described,
    drop_set_id,
    entries_of,
    fail,
    read_all,
    write_all,
)
from sandbox.transfer import Transfer, Transport

__all__ = ["Files"]

READ_MAX = 100 << 20
TREE_MAX = 1 << 30
NAMES_MAX = 100_000


class _Held:
    """A seat of a sandbox, held while files are reached through it."""

    __slots__ = ("_boundary", "_seat")

    def __init__(self, boundary: Boundary, limits: Limits) -> None:
        self._boundary = boundary
        self._seat = boundary.seat(limits)

    def __enter__(self) -> Reach:
        isolation = self._boundary.isolation
        protected = self._boundary.resolved.all_protected if isolation != "none" else ()
        return Reach(self._seat, protected, mounted=isolation == "namespaces")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._seat.leave()
        if isinstance(error, ConfinementLost):
            raise SandboxLost(str(error), error.denials) from None


class Files:
    """What ``Sandbox`` offers on files.

    A relative path begins in the workspace (without one, where commands start). All methods raise
    OSError and its kind for the path: ``FileNotFoundError``, ``PermissionError`` (also for what is
    read-only or denied), ``IsADirectoryError``, ``NotADirectoryError``, ``FileExistsError``, with
    the path as ``filename``; ``InvalidArgument`` for what makes no sense, and ``SandboxLost``.
    What is neither a regular file nor a directory is refused, and so is /proc, which is another for
    each process.
    """

    policy: SandboxPolicy
    _boundary: Boundary

    def _directory(self, given: Any) -> str:
        raise NotImplementedError

    def read_file(self, path: Any, *, max_bytes: int = READ_MAX) -> bytes:
        """The content of a file. OSError with EFBIG when it has more than ``max_bytes``."""
        place, shown = self._located(path)
        most = _count("max_bytes", max_bytes)
        with self._reach() as reach:
            fd = reach.open("read", place, shown)
        try:
            return read_all(fd, most, shown)
        finally:
            os.close(fd)

    def write_file(
        self,
        path: Any,
        data: bytes | bytearray | memoryview | str,
        *,
        parents: bool = False,
        mode: int = 0o644,
        append: bool = False,
        exclusive: bool = False,
    ) -> None:
        """Writes a file, in place: one that was there keeps what it is, and has the new content.

        ``data``: text is written as UTF-8. ``parents``: missing directories are made. ``mode``: the
        permissions of a new file, less the umask that commands have. ``append``: at its end.
        ``exclusive``: FileExistsError where something is there, a link too.
        A link that leads nowhere is not followed (FileNotFoundError). Protected names are refused
        with PermissionError, by whatever way they are named. OSError with EFBIG beyond the
        policy's limit of ``file_size``.
        """
        place, shown = self._located(path)
        if append and exclusive:
            raise InvalidArgument("append", append, "means nothing for a new file")
        what: FileKind = "create" if exclusive else "append" if append else "write"
        view = _bytes_of(data)
        _check_mode(mode)
        with self._reach() as reach:

            def act() -> None:
                fd = reach.open_to_write(what, place, shown, mode=mode, parents=parents)
                try:
                    self._fill(fd, view, shown, append=append)
                finally:
                    os.close(fd)

            reach.watched(act, shown)

    def list(self, path: Any = ".", *, max_names: int = NAMES_MAX) -> tuple[FileEntry, ...]:
        """What is in a directory, by name. OSError with EOVERFLOW beyond ``max_names``."""
        place, shown = self._located(path)
        most = _count("max_names", max_names)
        with self._reach() as reach:
            fd = reach.open("list", place, shown)
        try:
            return tuple(entries_of(fd, most, shown))
        finally:
            os.close(fd)

    def stat(self, path: Any, *, follow: bool = True) -> FileStat:
        """What something is. ``follow``: what a link leads to, else the link."""
        place, shown = self._located(path)
        with self._reach() as reach:
            fd = reach.open("look", place, shown, follow=follow)
        try:
            return described(os.fstat(fd))
        finally:
            os.close(fd)

    def mkdir(self, path: Any, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Makes a directory. ``exist_ok``: not where one is. Protected names are refused."""
        place, shown = self._located(path)
        with self._reach() as reach:
            reach.watched(
                lambda: reach.make_at(place, shown, parents=parents, exist_ok=exist_ok), shown
            )

    def remove(self, path: Any) -> None:
        """Removes a file, a link (not what it leads to), or an empty directory."""
        place, shown = self._located(path)
        with self._reach() as reach:
            reach.watched(lambda: reach.remove(place, shown), shown)

    def upload(
        self,
        local: Any,
        path: Any,
        *,
        parents: bool = False,
        max_bytes: int = TREE_MAX,
        max_files: int = NAMES_MAX,
    ) -> Transfer:
        """Copies a file or directory of the caller's into the sandbox; ``path`` is what it becomes.

        A directory that is there gets what it lacks, and files in it are written anew, in place.
        ``local`` is opened as the caller, and no link at its end or in it is followed: links,
        devices and protected names in a tree are left out (``skipped``). OSError with EFBIG or
        EOVERFLOW beyond the bounds; what was copied by then stays.
        """
        place, shown = self._located(path)
        source = _local(local)
        with self._reach() as reach:
            way = self._transport(reach, max_bytes, max_files, self.policy.limits.file_size)
            reach.watched(lambda: way.upload(source, place, shown, parents=parents), shown)
        return way.done

    def download(
        self,
        path: Any,
        local: Any,
        *,
        max_bytes: int = TREE_MAX,
        max_files: int = NAMES_MAX,
    ) -> Transfer:
        """Copies a file or a directory of the sandbox to ``local``, which is what it becomes.

        A directory must not be there yet; a file may be, and is written anew. Only regular files
        and directories are made, with the caller's umask: links, devices, and what may not be read
        in a tree are left out (``skipped``). Bounds as for ``upload``.
        """
        place, shown = self._located(path)
        target = _local(local)
        with self._reach() as reach:
            way = self._transport(reach, max_bytes, max_files)
            way.download(place, shown, target)
        return way.done

    def _transport(
        self, reach: Reach, max_bytes: int, max_files: int, max_file: int | None = None
    ) -> Transport:
        most, names = _count("max_bytes", max_bytes), _count("max_files", max_files)
        return Transport(reach, most, names, max_file)

    def _fill(self, fd: int, data: memoryview, shown: Shown, *, append: bool) -> None:
        found = os.fstat(fd)
        size = found.st_size
        most = self.policy.limits.file_size
        if most is not None and len(data) + (size if append else 0) > most:
            fail(errno.EFBIG, shown)
        drop_set_id(fd, found)
        write_all(fd, data, shown)
        # Only then: a file that was emptied first is flushed to the disk by some file systems.
        if size > len(data) and not append:
            os.ftruncate(fd, len(data))

    def _reach(self) -> _Held:
        return _Held(self._boundary, self.policy.limits)

    def _located(self, path: Any) -> tuple[bytes, Shown]:
        """The path as the lane takes it, and as errors have it."""
        try:
            place, shown = os.fsencode(path), os.fsdecode(path)
        except (TypeError, UnicodeError):
            raise InvalidArgument("path", path, "is no path") from None
        if not place or b"\0" in place:
            raise InvalidArgument("path", path, "is empty or contains a NUL character")
        if not place.startswith(b"/"):
            place = os.path.join(os.fsencode(self._directory(None)), place)
        return place, shown


def _local(path: Any) -> str:
    try:
        text = os.fsdecode(path)
    except (TypeError, UnicodeError):
        raise InvalidArgument("local", path, "is no path") from None
    if not text or "\0" in text:
        raise InvalidArgument("local", path, "is empty or contains a NUL character")
    return text


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgument(name, value, "is no number of them")
    return value


def _check_mode(mode: object) -> None:
    if isinstance(mode, bool) or not isinstance(mode, int) or not 0 <= mode <= 0o777:
        raise InvalidArgument("mode", mode, "is not a number from 0 to 0o777")


def _bytes_of(data: object) -> memoryview:
    if isinstance(data, str):
        try:
            return memoryview(data.encode())
        except UnicodeError:
            raise InvalidArgument("data", "...", "contains a surrogate") from None
    try:
        return memoryview(data).cast("B")  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgument("data", "...", "is neither bytes nor text") from None
