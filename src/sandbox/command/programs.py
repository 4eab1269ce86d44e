"""Which program a word would start, and whether a command could have put it there.

A bare name is looked for in the directories of PATH, in their order. As soon as one of them is
relative, or can be written by commands, whatever is found from there on proves nothing: a file of
that name may be put there at any time. A word with a slash must be absolute, and outside.
The name alone, the last part of a path, is never a reason to trust.
"""

from __future__ import annotations

import os
import stat

from sandbox.paths import below

__all__ = ["find_program", "is_trusted"]

# Writable by everybody, or of the process that looks rather than of the command.
_PLACES = ("/dev", "/proc", "/run/user", "/tmp", "/var/tmp")


def find_program(path: str) -> str:
    """Where ``path`` leads if it is a file that may be executed; empty if not.

    The default of ``Context.resolve``, and the only function of this package that looks at a disk.
    """
    try:
        info = os.lstat(path)
        if stat.S_ISREG(info.st_mode) and os.access(path, os.X_OK):
            above = os.path.realpath(os.path.dirname(path))
            return f"{above.rstrip('/')}/{os.path.basename(path)}"
        if not stat.S_ISLNK(info.st_mode):
            return ""
        target = os.path.realpath(path, strict=True)
        return target if os.path.isfile(target) and os.access(target, os.X_OK) else ""
    except (OSError, ValueError):
        return ""


def is_trusted(path: str, writable: tuple[str, ...]) -> bool:
    """Whether nothing that a command writes lies at ``path``, a text without links.

    Case does not count: there are file systems for which it does not.
    """
    folded = path.casefold()
    if not folded.startswith("/") or "/../" in f"{folded}/" or "//" in folded:
        return False
    return not any(below(folded, place) for place in (*_PLACES, *writable))
