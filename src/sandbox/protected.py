"""What must not change in a writable directory, because programs outside read and run it later.

Each writable directory has its protected names. A ``.git`` that is a file (a linked worktree, a
submodule) protects itself and what it points to: the git directory and the common directory,
where hooks and configuration really are.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from sandbox.entries import Access
from sandbox.paths import ancestors, below, depth, follow

__all__ = ["GUARDED_MAX", "leads_to", "lifted_by", "protected_paths"]

GUARDED_MAX = 16  # writable directories that are looked after around each command
_POINTER_MAX = 4096  # bytes of a .git file or commondir file that are looked at


def lifted_by(granted: Mapping[str, Access], tables: Sequence[Mapping[str, Access]]) -> set[str]:
    """The paths that are writable because they, or something in them, were granted by themselves.

    ``tables``: each list of entries by real path. One in which writing begins at the directory
    around a path has to grant the path, too: else a narrowed policy would lift what one side
    protects.
    """
    sides = [(_and_above(_writes(table)), _beginnings(table)) for table in tables]
    return {
        path
        for path in _and_above(_writes(granted))
        if all(path in opened or _above(path) not in roots for opened, roots in sides)
    }


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _beginnings(table: Mapping[str, Access]) -> set[str]:
    """The paths that are writable while what is around them is not."""
    around = {
        path: next((table[above] for above in ancestors(path)[1:] if above in table), Access.DENY)
        for path in _writes(table)
    }
    return {path for path, access in around.items() if access is not Access.WRITE}


def _writes(table: Mapping[str, Access]) -> set[str]:
    return {path for path, access in table.items() if access is Access.WRITE}


def _and_above(paths: Iterable[str]) -> set[str]:
    return {above for path in paths for above in ancestors(path)}


def protected_paths(
    names: tuple[str, ...],
    granted: Mapping[str, Access],
    tmp: str,
    lifted: Collection[str] | None = None,
) -> tuple[str, ...]:
    """The protected paths of each writable directory, existing or not.

    ``granted`` are real paths with their access; a path that is ``lifted`` (by default: that one of
    them makes writable by itself) is not protected, and with the common directory of a linked
    worktree neither is its own. The private ``tmp`` is nobody's workspace and has none.
    """
    writes = _writes(granted)
    if lifted is None:
        lifted = _and_above(writes)
    found: list[str] = []
    for root in sorted(writes, key=depth):
        if root == tmp or not os.path.isdir(root):
            continue
        for path, behind in _protected(root, names):
            if path not in lifted:
                found.append(path)
                # A grant around the pointer itself (a bare repository as workspace) is of no .git.
                wide = ancestors(root)
                opened = [one for one in behind if one in writes and one in lifted]
                opened = [one for one in opened if one not in wide]
                found.extend(one for one in behind if not any(below(one, at) for at in opened))
    return tuple(dict.fromkeys(found))


def _protected(root: str, names: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Each protected path in a directory, with what it leads to."""
    there = _listed(root, names)
    for name in names:
        behind = leads_to(root, name) if name.partition("/")[0] in there else []
        yield f"{root.rstrip('/')}/{name}", behind


def _listed(root: str, names: tuple[str, ...]) -> frozenset[str]:
    """What is in a directory; where it cannot be listed, all that is asked for may be."""
    try:
        return frozenset(os.listdir(root))
    except OSError:
        return frozenset(name.partition("/")[0] for name in names)


def leads_to(root: str, name: str) -> list[str]:
    """What a protected path leads to: the target of a link, the git directory of a .git file.

    Who wants to write there has to be granted the last of them.
    """
    target, links = follow(name, root)
    found = [target] if links else []
    if name != ".git" or not os.path.isfile(target):
        return found
    gitdir = _pointer(target, "gitdir:")
    if gitdir:
        found.append(gitdir)
        common = _pointer(f"{gitdir}/commondir", "")
        found.extend([common] if common else [])
    return found


def _pointer(path: str, prefix: str) -> str:
    """The directory that a small file of git names, empty when it names none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would be waited for
        with open(fd, "rb") as file:
            is_file = stat.S_ISREG(os.fstat(fd).st_mode)
            text = os.fsdecode(file.read(_POINTER_MAX)).strip() if is_file else ""
    except OSError:
        return ""
    if not text.startswith(prefix) or "\0" in text:
        return ""
    named = text[len(prefix) :].strip()
    target = os.path.realpath(os.path.join(os.path.dirname(path), named)) if named else ""
    return target if os.path.isdir(target) else ""
