"""Private temporary directories: made where nobody can guess them, emptied whatever is in them.

What a command leaves behind may be hostile: thousands of levels deep, without permissions, full of
links. So nothing here recurses (a directory found inside another is moved to the top and done
there), follows a link, or trusts a name twice.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Collection

__all__ = [
    "claim",
    "clean_up",
    "empty",
    "own_directory",
    "private_directory",
    "remove",
    "remove_abandoned",
]

_OURS = re.compile(r"sandbox-[0-9a-f]{18}")
_YOUNG = 60  # seconds
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def private_directory(parent: str | None = None) -> str:
    """A new directory that only this user may enter, with a name that nobody can guess.

    ``parent`` is where, None for the caller's own temporary directory. A command that may write in
    it may also have taken its permissions: it is given them back, and never looked for elsewhere.
    """
    if parent is not None:
        os.close(_open_ours(parent))
    place = os.path.realpath(parent if parent is not None else _temporary())
    while True:
        path = f"{place}/sandbox-{os.urandom(9).hex()}"
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            continue
        return path


def claim(path: str) -> int:
    """Marks a private directory as in use by this process: a fd whose lock ends with it."""
    fd = os.open(path, _DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def own_directory() -> tuple[str, int]:
    """A temporary directory and the fd that says that it is in use; abandoned ones go."""
    path = private_directory()
    lock = claim(path)
    remove_abandoned(os.path.dirname(path))
    return path, lock


def clean_up(tmp: str, lock: int, owner: int) -> None:
    """Removes the directory of ``own_directory`` in the process that made it; empty: none was."""
    if tmp and owner == os.getpid():
        remove(tmp)
        os.close(lock)


def remove_abandoned(place: str) -> None:
    """Removes private directories beside ours whose process was killed before it could.

    Known by a name of ours, by belonging to this user, and by nobody's lock. The youngest are left:
    theirs may be about to be taken.
    """
    for name in os.listdir(place):
        if not _OURS.fullmatch(name):
            continue
        path = f"{place}/{name}"
        try:
            found = os.lstat(path)
            if found.st_uid != os.geteuid():
                continue
            if time.time() - found.st_mtime > _YOUNG and stat.S_ISDIR(found.st_mode):
                os.close(claim(path))
                remove(path)
        except OSError:
            continue


def _temporary() -> str:
    """The caller's temporary directory, as ``tempfile`` finds it; its import costs a command."""
    named = [os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    for path in (*named, "/tmp", "/var/tmp"):
        if path.startswith("/") and os.access(path, os.W_OK | os.X_OK):
            return path
    return os.getcwd()


def remove(path: str) -> None:
    """Removes a directory with all that is in it; what cannot be removed stays."""
    try:
        empty(path)
        os.rmdir(path)
    except OSError:
        return


def empty(path: str, kept: Collection[str] = ()) -> None:
    """Removes all that is in a directory but the names ``kept``.

    What another process puts there meanwhile may stay.
    Raises ``OSError`` when there is no directory any more, or not one of ours.
    """
    top = _open_ours(path)
    try:
        todo = _clear(top, kept)
        while todo:
            name = todo.pop()
            inner = _open_anyway(name, top)
            if inner is None:
                continue
            try:
                for child in _clear(inner):
                    target = f".sandbox-{os.urandom(9).hex()}"  # what can be guessed may be there
                    if _lift(child, inner, target, top):
                        todo.append(target)
            finally:
                os.close(inner)
            _quietly_rmdir(name, top)
    finally:
        os.close(top)


def _clear(directory: int, kept: Collection[str] = ()) -> list[str]:
    """Unlinks what is no directory; returns the names of what is."""
    left = []
    for name in os.listdir(directory):
        if name in kept:
            continue
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if getattr(found, "st_flags", 0):
                _unflag(name, directory)
            if stat.S_ISDIR(found.st_mode):
                left.append(name)
            else:
                os.unlink(name, dir_fd=directory)
        except OSError:
            continue
    return left


def _unflag(name: str, parent: int) -> None:
    """Takes the flags of macOS (``chflags uchg``), under which nothing is changed or removed.

    By a path, since Python has no ``fchflags``; a link as the last part is not followed.
    """
    above = fcntl.fcntl(parent, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")  # type: ignore[attr-defined, unused-ignore]
    os.lchflags(os.path.join(above, os.fsencode(name)), 0)  # type: ignore[attr-defined, unused-ignore]


def _open_ours(path: str) -> int:
    """The fd of a directory that we made, with all permissions on it."""
    top = _open_anyway(path, None)
    if top is None:
        raise NotADirectoryError(errno.ENOTDIR, "no directory of ours is there any more", path)
    return top


def _open_anyway(name: str, parent: int | None) -> int | None:
    """A directory's fd, with all permissions on it; None when it is gone or not ours."""
    if not hasattr(os, "O_PATH"):  # macOS, which changes modes without following links
        try:
            os.chmod(name, 0o700, dir_fd=parent, follow_symlinks=False)
            return os.open(name, _DIRECTORY, dir_fd=parent)
        except OSError:
            return None
    try:
        handle = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=parent)
    except OSError:
        return None
    try:
        # By the handle: chmod by name could be led through a link that was put there just now.
        os.chmod(f"/proc/self/fd/{handle}", 0o700)
        return os.open(".", _DIRECTORY, dir_fd=handle)
    except OSError:
        return None
    finally:
        os.close(handle)


def _lift(name: str, parent: int, target: str, top: int) -> bool:
    """Moves a directory to the top; it needs write permission on itself for that."""
    inner = _open_anyway(name, parent)
    if inner is None:
        return False
    os.close(inner)
    try:
        os.rename(name, target, src_dir_fd=parent, dst_dir_fd=top)
    except OSError:
        return False
    return True


def _quietly_rmdir(name: str, parent: int) -> None:
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError:
        return
