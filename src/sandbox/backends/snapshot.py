"""How everything that is watched was: a tree of nodes, with the content of files.

What is watched in a directory is said by a *plan* (``watched`` has them); what matters of a name
by its *need*:

- ``same``: exactly what it was: kind, content, permissions; of a directory also which one it is.
- ``pin``: a directory on the way to something watched: which one it is; what is in it is free.
- ``there``: a directory that git needs to take its repository for one. Without it git looks for
  a *bare* repository beside it, ``HEAD`` and ``config`` in the workspace, and that one can have
  been planted (tried with git 2.39: it runs the planted ``core.fsmonitor``).
- ``head``: as ``there``, for a file that git itself writes at any time.
- ``any``: may come and go; only what is watched in it matters.

All is bounded: depth, names, copies. What lies beyond is said (``Snapshot.weaker``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sandbox.backends.nofollow import (
    Kind,
    entries,
    is_aside,
    join,
    kind_of,
    look,
    open_directory,
    read_file,
    read_link,
)
from sandbox.paths import shell
from sandbox.result import Weaker

__all__ = [
    "FILE_MAX",
    "MEND",
    "NAMES_MAX",
    "NESTED_MAX",
    "PART",
    "Directory",
    "Found",
    "Need",
    "Node",
    "Plan",
    "Row",
    "Snapshot",
    "Survey",
    "everything",
    "take_snapshot",
]

Need = Literal["same", "pin", "there", "head", "any"]

PART = "protected"
MEND = "namespaces: see `sandbox doctor`"
FILE_MAX = 1 << 20  # bytes of one file of which a copy is kept
NAMES_MAX = 4096  # names in one directory
_BYTES_MAX = 8 << 20  # of all copies
_FILES_MAX = 256  # entries of directories, for each root
NESTED_MAX = 32  # git directories inside one, for each root

# A change within one tick of the kernel's clock leaves the change time as it is (10 ms at most;
# since Linux 6.13 most file systems do better). Content that young is compared byte by byte.
_TICK_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class Node:
    """One watched name as it was.

    ``found`` is its state (None: absent), ``data`` the content of a file or the target of a link,
    ``children`` what is watched in a directory, ``names`` everything in it where nothing may be
    added. ``young``: its state does not tell yet whether it changes.
    """

    name: bytes
    kind: Kind
    need: Need
    found: os.stat_result | None = None
    data: bytes | None = None
    children: tuple[Node, ...] = ()
    names: frozenset[bytes] | None = None
    young: bool = False

    def is_still(self, found: os.stat_result | None) -> bool:
        """Whether the state alone shows that nothing happened to it."""
        if found is None or self.found is None:
            return found is self.found
        return not self.young and self.has_state(found)

    def has_state(self, found: os.stat_result) -> bool:
        """Whether the state is the same, which says less while it is young."""
        return self.found is not None and _state(found) == _state(self.found)

    def has_mode(self, found: os.stat_result) -> bool:
        """Whether kind and permissions are the same."""
        return self.found is not None and found.st_mode == self.found.st_mode

    @property
    def is_leaf(self) -> bool:
        """Whether nothing in it is watched."""
        return not self.children and self.names is None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is watched: a node for each root that could be looked at.

    ``paths`` are those whose stamps tell whether anything changed: what is absent in a directory
    that has one needs none. ``young``: they do not tell yet. ``weaker``: what is not watched.
    """

    roots: tuple[tuple[bytes, Node], ...] = ()
    paths: tuple[bytes, ...] = ()
    young: bool = True
    weaker: tuple[Weaker, ...] = ()


def take_snapshot(roots: Sequence[tuple[bytes, Plan]], before: Snapshot) -> Snapshot:
    """The state now of roots, by their plans.

    Files are read again only where they differ from the snapshot ``before``.
    """
    survey = Survey()
    old = dict(before.roots)
    nodes = []
    for path, plan in roots:
        node = survey.root(path, plan, old.get(path))
        if node is not None:
            nodes.append((path, node))
    return Snapshot(tuple(nodes), tuple(survey.paths), survey.young, survey.weaker())


@dataclass(frozen=True, slots=True)
class Directory:
    """Where the survey is; ``fd`` None: there is none, and so is all that is wanted in it."""

    fd: int | None
    path: bytes
    stamped: bool
    old: Mapping[bytes, Node]


Found = tuple[tuple[Node, ...], frozenset[bytes] | None]
Plan = Callable[["Survey", Directory], Found]
Row = tuple[bytes, Need, Plan | None]  # a name, and the plan of what is in it


class Survey:
    """One walk over everything, with what is left of the bounds."""

    def __init__(self) -> None:
        self.paths: list[bytes] = []
        self.young = False
        self._blind: dict[str, list[bytes]] = {}
        self._bytes = _BYTES_MAX
        self._files = self.nested = 0

    def weaker(self) -> tuple[Weaker, ...]:
        """What is not watched: one part for each cause, with its first path."""
        return tuple(
            Weaker(PART, f"{cause}: {shell(paths[0])}" + _more(len(paths) - 1), MEND)
            for cause, paths in self._blind.items()
        )

    def blind(self, cause: str, path: bytes) -> None:
        """Note that something is not watched."""
        self._blind.setdefault(cause, []).append(path)

    def root(self, path: bytes, plan: Plan, old: Node | None) -> Node | None:
        """The node of a writable directory; None where it cannot be opened."""
        self._files, self.nested = _FILES_MAX, NESTED_MAX
        try:
            fd = open_directory(path)
        except OSError as error:
            self.blind(f"not watched ({error.strerror})", path)
            self.paths.append(path)  # so that its return is noticed
            return None
        try:
            here = Directory(fd, path, False, _by_name(old))
            children, _ = plan(self, here)
            return Node(b"", "dir", "pin", os.fstat(fd), children=children)
        finally:
            os.close(fd)

    def nodes(self, here: Directory, rows: Sequence[Row]) -> Found:
        """Certain names of a directory; others are free."""
        found = [self.node(here, name, need, plan) for name, need, plan in rows]
        return tuple(node for node in found if node is not None), None

    def node(self, up: Directory, name: bytes, need: Need, plan: Plan | None) -> Node | None:
        """The node of one name, None where it need not be watched or cannot be."""
        path = join(up.path, name)
        try:
            found = None if up.fd is None else look(up.fd, name)
            kind = kind_of(found)
            if found is None and need in ("there", "head"):
                return None
            if found is not None and need != "pin":
                self.paths.append(path)
            if need in ("pin", "any") and kind != "dir":
                return self._missing(up, name, plan, found)
            if found is None:
                if not up.stamped:
                    self.paths.append(path)
                return Node(name, "absent", need)
            young = time.time_ns() - found.st_ctime_ns < _TICK_NS
            self.young |= young and need != "pin"
            assert up.fd is not None
            if kind == "dir":
                children, names = self._inside(up, name, need, plan)
                return Node(name, kind, need, found, None, children, names, young)
            data = read_link(up.fd, name) if kind == "link" else None
            if kind == "file":
                data = self._content(up, name, found)
            return Node(name, kind, need, found, data, young=young)
        except OSError as error:
            self.blind(f"not watched ({error.strerror})", path)
            return None

    def _missing(
        self, up: Directory, name: bytes, plan: Plan | None, found: os.stat_result | None
    ) -> Node:
        """A directory on the way that is none (yet): nothing that is wanted in it is there."""
        kind = kind_of(found)
        target = read_link(up.fd, name) if kind == "link" and up.fd is not None else None
        here = Directory(None, join(up.path, name), up.stamped, {})
        children = plan(self, here)[0] if plan else ()
        return Node(name, kind, "any", found, target, children)

    def _inside(self, up: Directory, name: bytes, need: Need, plan: Plan | None) -> Found:
        if plan is None:
            return (), None
        fd = open_directory(name, up.fd)
        try:
            old = _by_name(up.old.get(name))
            return plan(self, Directory(fd, join(up.path, name), need != "pin", old))
        finally:
            os.close(fd)

    def _content(self, up: Directory, name: bytes, found: os.stat_result) -> bytes | None:
        """The content of a file, within the bounds."""
        old = up.old.get(name)
        data = None
        if old is not None and old.kind == "file" and old.is_still(found):
            data = old.data
        elif found.st_size <= min(FILE_MAX, self._bytes) and up.fd is not None:
            data = read_file(up.fd, name, FILE_MAX)
        if data is None:
            self.blind("no copy is kept, it is too large", join(up.path, name))
        else:
            self._bytes -= len(data)
        return data

    def everything(self, here: Directory, depth: int, ignored: bytes) -> Found:
        """All entries, files before directories, and all names: nothing may be added."""
        if here.fd is None:
            return (), None
        names = entries(here.fd, NAMES_MAX)
        if names is None:
            self.blind(f"not watched (more than {NAMES_MAX} names)", here.path)
            return (), None
        nodes = []
        for name in sorted(names, key=lambda name: (names[name], name)):
            is_put_away = is_aside(name)
            if (is_put_away and not names[name]) or (ignored and name.endswith(ignored)):
                continue
            if self._files == 0:
                self.blind(f"only {_FILES_MAX} entries are watched, not all", here.path)
                break
            self._files -= 1
            plan = everything(depth - 1) if depth > 1 and not is_put_away else None
            if names[name] and plan is None and not is_put_away:
                self.blind("not watched (too deep)", join(here.path, name))
            nodes.append(self.node(here, name, "same", plan))
        return tuple(node for node in nodes if node is not None), frozenset(names)


def everything(depth: int, ignored: bytes = b"") -> Plan:
    """The plan of a directory to which nothing may be added, except names ending in ``ignored``.

    ``depth`` 1: its entries; 2: theirs too.
    """
    return lambda survey, here: survey.everything(here, depth, ignored)


def _by_name(node: Node | None) -> dict[bytes, Node]:
    return {child.name: child for child in node.children} if node is not None else {}


def _state(found: os.stat_result) -> tuple[int, int, int, int, int]:
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns, found.st_mode


def _more(count: int) -> str:
    return f" and {count} more" if count else ""
