"""Paths as a policy sees them: absolute, without dots, compared component by component.

Lexical functions touch no file. ``follow`` does, and is used once, when a policy is resolved: the
kernel judges the file that a path leads to, so a rule about a symbolic link is worth nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import stat
from contextlib import suppress
from typing import Any

from sandbox.errors import InvalidPath

__all__ = [
    "ancestors",
    "below",
    "by_parts",
    "clean",
    "depth",
    "follow",
    "has_pattern",
    "is_there",
    "real",
    "shell",
]

_GETPATH = getattr(fcntl, "F_GETPATH", None)  # macOS
_EVTONLY = getattr(os, "O_EVTONLY", 0)  # there: opens what may not be read, and holds no volume
_LINKS_MAX = 40  # as the kernel: more is a loop


def clean(path: Any) -> str:
    """The normal form of a path that a person wrote in a policy.

    ``path`` is text or an ``os.PathLike``; a leading ``~`` is this user's HOME, now. Raises
    ``InvalidPath`` when it is empty, relative, contains NUL, ``..`` or what is not UTF-8.
    """
    try:
        text = os.fspath(path)
    except TypeError:
        raise InvalidPath(repr(path), "is not a path") from None
    if not isinstance(text, str):
        raise InvalidPath(repr(text), "is bytes", "write it as text")
    if not text:
        raise InvalidPath(text, "is empty")
    if "\0" in text:
        raise InvalidPath(text, "contains a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidPath(text, "contains a surrogate: it is not UTF-8") from None
    if text.startswith("~"):
        text = _expand(text)
    if not text.startswith("/"):
        raise InvalidPath(text, "is relative", "write it from the root, or from ~")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidPath(text, "contains '..'", "write the path that it leads to")
    return "/" + "/".join(parts)


def _expand(text: str) -> str:
    """``~`` and ``~/...`` by this user's HOME; another user's home is not guessed."""
    if text != "~" and not text.startswith("~/"):
        raise InvalidPath(text, "names another user's home", "write it from the root")
    home = os.path.expanduser("~")
    if home == "~":
        raise InvalidPath(text, "HOME is not known", "set HOME, or write it from the root")
    return home + text[1:]


def below(path: str, root: str) -> bool:
    """Whether ``path`` is ``root`` or lies under it."""
    return root == "/" or path == root or path.startswith(root + "/")


def by_parts(path: str) -> str:
    """A key that sorts a directory before what is in it, and that before what comes after it."""
    return path.replace("/", "\0")


def is_there(path: str) -> bool:
    """Whether something is at a path, as far as can be told: what cannot be looked at may be."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def depth(path: str) -> int:
    """How specific a path is: the number of its components."""
    return 0 if path == "/" else path.count("/")


def ancestors(path: str) -> list[str]:
    """``path`` and every directory above it, the nearest first, ``/`` last."""
    found = [path]
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        found.append(path)
    return found


def has_pattern(path: str) -> bool:
    """Whether a path reads like a glob."""
    return "*" in path or "?" in path or "[" in path


def real(path: str, what: str) -> str:
    """Where ``path`` leads; it must be there.

    ``what`` names it in the error. Raises ``InvalidPath`` when it is missing, a loop of links, or
    lies in a directory that this user may not search.
    """
    try:
        return _spelled(os.path.realpath(path, strict=True))
    except FileNotFoundError:
        raise InvalidPath(path, f"{what} does not exist", "create it or take it out") from None
    except OSError as error:
        cause = (error.strerror or str(error)).lower()
        raise InvalidPath(path, f"{what} cannot be used: {cause}") from None


def follow(
    path: str, start: str = "", known: set[str] | None = None
) -> tuple[str, tuple[str, ...]]:
    """Where ``path`` leads, whether it exists or not, and the links that were passed on the way.

    ``start`` is a directory without links that ``path`` begins in, the root unless given;
    ``known``: directories without links, which grow, for who asks for many paths at once.
    A part that does not exist (yet) is kept as it is written: what is denied stays denied when it
    is created later. A loop leads nowhere and is returned as far as it was followed.
    """
    if known and not start:  # most often a file beside the one before
        above, _, name = path.rpartition("/")
        if above in known and name not in ("", ".", "..") and _look(path)[1] is None:
            return _spelled(path), ()
    todo = [part for part in reversed(path.split("/")) if part]
    links: list[str] = []
    done = start.rstrip("/")
    there = True
    while todo:
        part = todo.pop()
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        here = f"{done}/{part}"
        target = None
        if there and len(links) < _LINKS_MAX and not (known and here in known):
            there, target = _look(here)
            if known is not None and todo and there and target is None:
                known.add(here)
        if target is None:
            done = here
            continue
        links.append(here)
        if target.startswith("/"):
            done = ""
        todo.extend(piece for piece in reversed(target.split("/")) if piece not in ("", "."))
    return _spelled(done or "/"), tuple(links)


def _spelled(path: str) -> str:
    """A path without links as the file system has it, as far as it exists. Only macOS asks.

    There a name in another case or normal form is the same, and rules are asked for the one that
    was given to the file when it was made. Of a file with several names the kernel may tell any.
    """
    if _GETPATH is None:
        return path
    rest: list[str] = []
    at = path
    while at != "/":
        with suppress(OSError):
            found = os.lstat(at)
            if stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1):
                top = _path_of(at).rstrip("/")
                return "/".join([top, *reversed(rest)]) or "/"
        above, _, name = at.rpartition("/")
        rest.append(name)
        at = above or "/"
    return path


def _path_of(path: str) -> str:
    """What the kernel calls a file. Raises ``OSError``."""
    fd = os.open(path, _EVTONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        said: bytes = fcntl.fcntl(fd, _GETPATH or 0, bytes(1024))
    finally:
        os.close(fd)
    return os.fsdecode(said.partition(b"\0")[0])


def _look(path: str) -> tuple[bool, str | None]:
    """Whether something is there, and what it says if it is a symbolic link."""
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            return True, os.readlink(path)
    except OSError as error:
        return error.errno != errno.ENOENT, None
    return True, None


def shell(path: bytes) -> str:
    """A path as a shell reads it back; unprintable bytes in the ``$'...'`` form of bash and zsh.

    The names are the command's own: as they are they could rewrite the terminal they appear on.
    """
    text = os.fsdecode(path)
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_escaped, path)) + "'"


def _escaped(byte: int) -> str:
    return chr(byte) if 0x20 <= byte < 0x7F and byte not in b"'\\" else f"\\x{byte:02x}"
