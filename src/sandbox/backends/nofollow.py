"""Looking at, and changing, a directory tree that someone hostile has written.

Everything is one name in one open directory: no path with a slash is ever looked up, and no name
is followed, so a link that is planted or swapped meanwhile leads nowhere. Nothing blocks (only
regular files are opened), nothing is read or listed without a bound, nothing found is deleted.

An open directory may have lost its permissions; ``/proc/self/fd`` is how it is given them back,
because ``fchmod`` refuses descriptors that were opened without reading and ``chmod`` follows links.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Literal

from sandbox.paths import shell

__all__ = [
    "Identity",
    "Kind",
    "change_mode",
    "entries",
    "find_directory",
    "identity",
    "is_aside",
    "join",
    "kind_of",
    "look",
    "make_directory",
    "move_aside",
    "move_line",
    "open_directory",
    "put_file",
    "put_link",
    "read_file",
    "read_link",
    "swap_line",
    "unlock_directory",
]

Kind = Literal["absent", "file", "dir", "link", "other"]
Identity = tuple[int, int]

_NAME_MAX = 255  # bytes of one name, on every Linux file system
_FIND = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ASIDE = re.compile(rb"\.(planted|changed)-[0-9a-f]{12}\Z")
_OWNER = 0o700


def look(fd: int, name: bytes) -> os.stat_result | None:
    """What ``name`` in a directory is, or None; a link is itself."""
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def kind_of(found: os.stat_result | None) -> Kind:
    """Which kind of thing was found."""
    if found is None:
        return "absent"
    if stat.S_ISREG(found.st_mode):
        return "file"
    if stat.S_ISDIR(found.st_mode):
        return "dir"
    return "link" if stat.S_ISLNK(found.st_mode) else "other"


def identity(found: os.stat_result) -> Identity:
    """What stays when a thing is renamed (and may be reused when it is removed)."""
    return found.st_dev, found.st_ino


def open_directory(name: bytes, fd: int | None = None) -> int:
    """A descriptor to list and look up in; without ``fd`` the name is a path that is trusted."""
    return os.open(name, _DIRECTORY, dir_fd=fd)


def unlock_directory(name: bytes, fd: int | None = None) -> tuple[int, int]:
    """As ``open_directory``, where its owner may have lost the right to; and the mode it had."""
    found = os.open(name, _FIND | os.O_DIRECTORY, dir_fd=fd)
    try:
        mode = stat.S_IMODE(os.fstat(found).st_mode)
        if mode & _OWNER != _OWNER:
            os.chmod(f"/proc/self/fd/{found}", mode | _OWNER)
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), mode
    finally:
        os.close(found)


def change_mode(fd: int, name: bytes, expected: Identity, mode: int) -> None:
    """Set the permissions of the file or directory that ``expected`` is, and of nothing else."""
    found = os.open(name, _FIND, dir_fd=fd)
    try:
        if identity(os.fstat(found)) == expected:
            os.chmod(f"/proc/self/fd/{found}", mode)
    finally:
        os.close(found)


def entries(fd: int, limit: int) -> dict[bytes, bool] | None:
    """Each name in a directory and whether it is a directory; None when there are more."""
    names: dict[bytes, bool] = {}
    with os.scandir(fd) as scan:
        for entry in scan:
            if len(names) == limit:
                return None
            names[os.fsencode(entry.name)] = entry.is_dir(follow_symlinks=False)
    return names


def find_directory(fd: int, wanted: Identity, marks: set[bytes], limit: int) -> bytes | None:
    """The name, among at most ``limit``, of the directory that is ``wanted``, unlocked.

    The number of a removed directory is given to the next new one, so that it says little: one of
    the names ``marks`` must be in it.
    """
    for name in entries(fd, limit) or ():
        found = look(fd, name)
        if found is None or identity(found) != wanted or kind_of(found) != "dir":
            continue
        inside, _ = unlock_directory(name, fd)  # moving it changes what is in it too: ".."
        try:
            if not marks.isdisjoint(entries(inside, limit) or ()):
                return name
        finally:
            os.close(inside)
    return None


def read_file(fd: int, name: bytes, limit: int) -> bytes | None:
    """The content of a regular file, None when it is none or longer than ``limit`` bytes."""
    if kind_of(look(fd, name)) != "file":
        return None  # opening a FIFO or a device would already do something
    with open(os.open(name, _READ, dir_fd=fd), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        data = file.read(limit + 1)
    return data if len(data) <= limit else None


def read_link(fd: int, name: bytes) -> bytes:
    """What a link says."""
    return os.readlink(name, dir_fd=fd)


def move_aside(fd: int, name: bytes, word: str) -> bytes:
    """Rename what is there to ``NAME.WORD-ID`` in the same directory; the new name.

    Within one directory this works for links and for directories without permissions too, and
    never crosses a file system. The ID cannot be guessed, so nothing can lie in wait under it:
    a plain rename is enough, and no ``renameat2`` from outside Python is needed.
    """
    while True:
        suffix = f".{word}-{_unguessable()}".encode()
        new = name[: _NAME_MAX - len(suffix)] + suffix
        if look(fd, new) is None:
            os.rename(name, new, src_dir_fd=fd, dst_dir_fd=fd)
            return new


def is_aside(name: bytes) -> bool:
    """Whether a name reads like one that ``move_aside`` gave."""
    return _ASIDE.search(name) is not None


def make_directory(fd: int, name: bytes, like: os.stat_result) -> None:
    """Make a directory with the owner and permissions of ``like``."""
    os.mkdir(name, _OWNER, dir_fd=fd)
    made = open_directory(name, fd)
    try:
        _settle(made, like)
    finally:
        os.close(made)


def put_file(fd: int, name: bytes, data: bytes, like: os.stat_result) -> None:
    """Make a file with the content, and the owner and permissions of ``like``, in one step."""
    temporary = f".restored-{_unguessable()}".encode()
    made = os.open(temporary, _MAKE, 0o600, dir_fd=fd)
    try:
        with open(made, "wb") as file:
            file.write(data)
            file.flush()
            _settle(made, like)
        os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
    except OSError:
        os.unlink(temporary, dir_fd=fd)
        raise


def _settle(fd: int, like: os.stat_result) -> None:
    now = os.fstat(fd)
    if (now.st_uid, now.st_gid) != (like.st_uid, like.st_gid):
        os.fchown(fd, like.st_uid, like.st_gid)
    os.fchmod(fd, stat.S_IMODE(like.st_mode))  # last: chown takes set-id bits away


def put_link(fd: int, name: bytes, target: bytes) -> None:
    """Make a symbolic link in one step."""
    temporary = f".restored-{_unguessable()}".encode()
    os.symlink(target, temporary, dir_fd=fd)
    try:
        os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
    except OSError:
        os.unlink(temporary, dir_fd=fd)
        raise


def join(directory: bytes, name: bytes) -> bytes:
    """The path of a name in a directory."""
    return directory.rstrip(b"/") + b"/" + name


def move_line(source: bytes, target: bytes) -> str:
    """The line for a shell that renames."""
    return f"mv -fT -- {shell(source)} {shell(target)}"


def swap_line(aside: bytes, path: bytes) -> str:
    """The line that puts ``aside`` in the place of a directory, which is kept."""
    return f"{move_line(path, aside + b'.undone')} && {move_line(aside, path)}"


def _unguessable() -> str:
    return os.urandom(6).hex()
