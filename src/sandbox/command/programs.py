"""Which program a word would start, and whether a command could have put it there.

A bare name is looked for in the directories of PATH, in their order. As soon as one of them is
relative, or can be written by commands, whatever is found from there on proves nothing: a file of
that name may be put there at any time. A word with a slash must be absolute, and outside.
The name alone, the last part of a path, is never a reason to trust.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

__all__ = ["Programs", "is_outside", "places_of"]

# Writable by everybody, or of the process that looks rather than of the command.
_PLACES = ("/dev", "/proc", "/run/user", "/tmp", "/var/tmp")


class Programs:
    """Looks programs up on the disk: the default of ``Context.resolve``.

    Where a directory leads is remembered. Only directories that commands cannot write are asked
    about, so nobody but the machine's owner changes that.
    """

    def __init__(self) -> None:
        self._directories: dict[str, str] = {}

    def __call__(self, path: str) -> str:
        """Where ``path`` leads if it is a file that may be executed; empty if not."""
        try:
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                path = os.path.realpath(path, strict=True)
                mode = os.lstat(path).st_mode
            # What this user may not execute a shell passes over.
            if not (stat.S_ISREG(mode) and os.access(path, os.X_OK)):
                return ""
        except (OSError, ValueError):
            return ""
        above, _, name = path.rpartition("/")
        real = self._directories.get(above)
        if real is None:
            real = self._directories[above] = os.path.realpath(above or "/").rstrip("/")
        return f"{real}/{name}"


def places_of(writable: Iterable[str]) -> tuple[str, ...]:
    """The beginnings of paths at which a command may have put something.

    Case does not count: there are file systems for which it does not.
    """
    return tuple(f"{place.rstrip('/').casefold()}/" for place in (*_PLACES, *writable))


def is_outside(path: str, places: tuple[str, ...]) -> bool:
    """Whether a path is absolute, plain, and in none of ``places``."""
    folded = f"{path.casefold()}/"
    if path[:1] != "/" or "/../" in folded or "//" in folded or "\0" in folded:
        return False
    return not folded.startswith(places)
