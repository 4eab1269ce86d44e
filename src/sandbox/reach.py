"""One look into a sandbox's files, through a seat that is held meanwhile.

What a lane hands out is a fd of a regular file or of a directory, opened as a command would have
opened it; here it is read, written and listed, and nothing is opened through it: that would be with
the caller's rights. Commands choose what lies at a path and change it at any moment, so what was
found out of a path says nothing: a fd does.

Protected names that exist are read-only mounts in namespaces; those that do not, and all of them in
``landlock``, are refused here, by the real path of the directory that they would be made in.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Literal, NamedTuple, NoReturn, TypeVar

from sandbox.backends.base import FileKind, Seat
from sandbox.paths import ancestors

__all__ = [
    "FileEntry",
    "FileStat",
    "Reach",
    "Shown",
    "described",
    "drop_set_id",
    "entries_of",
    "fail",
    "read_all",
    "write_all",
]

Kind = Literal["file", "directory", "link", "other"]
Shown = str  # a path as the caller gave it, for errors
T = TypeVar("T")

_KINDS: dict[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
}
_FIRST = 1 << 14  # bytes: most files have less, and asking for their size costs as much
_CHUNK = 1 << 18
_PROTECTED = "protected: programs outside of the sandbox act on it"


class FileStat(NamedTuple):
    """What a file is: ``size`` in bytes, ``mode`` its permissions, ``mtime_ns`` since the epoch."""

    kind: Kind
    size: int
    mode: int
    mtime_ns: int
    uid: int
    gid: int


class FileEntry(NamedTuple):
    """A name in a directory; a link is itself."""

    name: str
    kind: Kind
    size: int
    mtime_ns: int


def described(found: os.stat_result) -> FileStat:
    """The value for what the kernel says."""
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "other")
    mode = stat.S_IMODE(found.st_mode)
    return FileStat(kind, found.st_size, mode, found.st_mtime_ns, found.st_uid, found.st_gid)


def fail(number: int, shown: Shown, text: str = "") -> NoReturn:
    """Raises the OSError of this number for a path.

    A read-only mount is how namespaces refuse what ``landlock`` refuses with EACCES: one answer.
    """
    number = errno.EACCES if number == errno.EROFS else number
    raise OSError(number, text or os.strerror(number), shown) from None


@lru_cache(maxsize=64)
def _protected(paths: tuple[str, ...]) -> tuple[frozenset[str], frozenset[bytes]]:
    """The paths, and their last names."""
    return frozenset(paths), frozenset(os.fsencode(os.path.basename(path)) for path in paths)


class Reach:
    """Files of a sandbox, for as long as its seat is held. Closes no fd that it gives out.

    ``protected``: real paths that are not to be written; ``mounted``: those that exist are so
    anyway.
    """

    def __init__(self, seat: Seat, protected: tuple[str, ...], *, mounted: bool) -> None:
        self._seat = seat
        self._paths, self._names = _protected(protected)
        self._mounted = mounted

    def open(
        self,
        what: FileKind,
        path: bytes,
        shown: Shown,
        *,
        directory: int = -1,
        mode: int = 0,
        follow: bool = True,
    ) -> int:
        """A fd, or -1 where none comes. Raises OSError for the path."""
        try:
            return self._seat.file(what, path, directory=directory, mode=mode, follow=follow)
        except OSError as error:
            fail(error.errno or errno.EIO, shown)

    def watched(self, act: Callable[[], T], shown: Shown) -> T:
        """Does what writes, with the look at protected names that a command has around it.

        A hard link or another mount can be a name of what is protected: what came of that is put
        back, and PermissionError raised; so is what a command of another thread did meanwhile.
        """
        done, denials = self._seat.watched(act)
        if denials:
            what = ", ".join(f"{one.change} {one.what!r}" for one in denials)
            fail(errno.EPERM, shown, f"{_PROTECTED}; put back: {what}")
        return done

    def open_to_write(
        self, what: FileKind, path: bytes, shown: Shown, *, mode: int, parents: bool
    ) -> int:
        """A fd to write on: ``write``, ``append`` or ``create``. Nothing is truncated yet."""
        above, name = os.path.split(path)
        if name in (b"", b".", b".."):
            fail(errno.EISDIR, shown)
        if self._mounted and name not in self._names:
            try:
                return self.open(what, path, shown, mode=mode)
            except FileNotFoundError:
                if not parents:
                    raise
        place = self.place(above, shown, parents=parents)
        try:
            return self.write_in(what, place, name, shown, mode=mode)
        finally:
            os.close(place)

    def write_in(
        self,
        what: FileKind,
        place: int,
        name: bytes,
        shown: Shown,
        *,
        mode: int,
        follow: bool = True,
    ) -> int:
        """As ``open_to_write``, for a name in a place."""
        self.check(place, name, shown)
        fd = self.open(what, name, shown, directory=place, mode=mode, follow=follow)
        try:
            self.check(fd, b"", shown)  # the name may be a link
        except BaseException:
            os.close(fd)
            raise
        return fd

    def place(self, path: bytes, shown: Shown, *, parents: bool) -> int:
        """A directory to name things in; with ``parents`` made with all above it."""
        missing = []
        while True:
            try:
                place = self.open("place", path, shown)
                break
            except FileNotFoundError:
                above, name = os.path.split(path)
                if not parents or above == path:
                    raise
                missing.append((path, name))
                path = above
        for path, name in reversed(missing):
            try:
                if name not in (b"", b".", b".."):
                    self.make(place, name, shown)
            finally:
                os.close(place)
            place = self.open("place", path, shown)
        return place

    def directory(self, path: bytes, shown: Shown, *, parents: bool) -> int:
        """A directory to name things in, made where nothing is."""
        try:
            return self.open("place", path, shown)
        except FileNotFoundError:
            self.make_at(path, shown, parents=parents, exist_ok=True)
        return self.open("place", path, shown)

    def make_at(self, path: bytes, shown: Shown, *, parents: bool, exist_ok: bool) -> None:
        """A directory at a path."""
        above, name = os.path.split(path.rstrip(b"/"))
        if name in (b"", b".", b".."):
            fail(errno.EEXIST, shown)
        place = self.place(above, shown, parents=parents)
        try:
            self.make(place, name, shown, exist_ok=exist_ok)
        finally:
            os.close(place)

    def make(self, place: int, name: bytes, shown: Shown, *, exist_ok: bool = True) -> None:
        """A directory in a place. ``exist_ok``: not where one is."""
        self.check(place, name, shown)
        try:
            self.open("make", name, shown, directory=place, mode=0o777)
        except FileExistsError:
            if not exist_ok:
                raise
            os.close(self.open("place", name, shown, directory=place))

    def remove(self, path: bytes, shown: Shown) -> None:
        """Removes a file, a link, or an empty directory."""
        above, name = os.path.split(path.rstrip(b"/"))
        if name in (b"", b".", b".."):
            fail(errno.EINVAL, shown)
        place = self.place(above, shown, parents=False)
        try:
            self.check(place, name, shown)
            try:
                self.open("remove", name, shown, directory=place)
            except IsADirectoryError:
                self.open("clear", name, shown, directory=place)
        finally:
            os.close(place)

    def check(self, fd: int, name: bytes, shown: Shown) -> None:
        """Raises PermissionError where what a fd is on, or a name in it, is protected."""
        if not self._paths:
            return
        try:
            real = os.readlink(f"/proc/self/fd/{fd}".encode())
        except OSError as error:
            fail(error.errno or errno.EIO, shown)
        path = os.fsdecode(os.path.join(real, name) if name else real)
        if path in self._paths or not self._paths.isdisjoint(ancestors(path)):
            fail(errno.EPERM, shown, _PROTECTED)


def read_all(fd: int, most: int, shown: Shown) -> bytes:
    """All of a file, which may grow meanwhile. EFBIG when that is more than so many bytes."""
    try:
        data = os.read(fd, min(_FIRST, most + 1))
        if len(data) < _FIRST and len(data) <= most:
            rest = os.read(fd, 1)  # the kernel's own files give less than there is
            if not rest:
                return data
            data += rest
        total, parts = len(data), [data]
        while data and total <= most and os.fstat(fd).st_size <= most:
            data = os.read(fd, min(_CHUNK, most + 1 - total))
            parts.append(data)
            total += len(data)
    except OSError as error:
        fail(error.errno or errno.EIO, shown)
    if data:
        fail(errno.EFBIG, shown, f"File too large: the limit of {most} bytes was exceeded")
    return b"".join(parts)


def drop_set_id(fd: int, found: os.stat_result) -> None:
    """What is written anew is no setuid program. The kernel sees to that, but not for root."""
    if found.st_mode & (stat.S_ISUID | stat.S_ISGID):
        with suppress(PermissionError):  # an ordinary user's, on a file of somebody else
            os.fchmod(fd, stat.S_IMODE(found.st_mode) & 0o777)


def write_all(fd: int, data: memoryview, shown: Shown) -> None:
    """Writes all of it."""
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError as error:
        fail(error.errno or errno.EIO, shown)


def entries_of(fd: int, most: int, shown: Shown) -> list[FileEntry]:
    """The names of a directory, sorted. EOVERFLOW when there are more than so many."""
    found: list[FileEntry] = []
    with os.scandir(fd) as scan:
        for entry in scan:
            if len(found) == most:
                fail(errno.EOVERFLOW, shown, f"more than {most} names")
            try:
                one = described(entry.stat(follow_symlinks=False))
            except FileNotFoundError:
                continue  # gone meanwhile
            found.append(FileEntry(entry.name, one.kind, one.size, one.mtime_ns))
    return sorted(found)
