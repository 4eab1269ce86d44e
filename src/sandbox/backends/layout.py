"""From a resolved policy to a file tree of namespaces: mounts, and the few rules beside them.

The host's tree is shown read-only, and a table of exceptions is put on top, each path after what it
is in. What differs from rules alone:

- A denied path is masked, wherever it lies. Its neighbours need no rules, so nothing is enumerated
  and reading costs no walk on each open.
- A protected path that exists is read-only; the way to it, or to what is read-only by an entry, has
  no renaming (another could take its place). One that is missing gets no placeholder: that would be
  seen by programs inside and outside; what is planted is moved aside afterwards (``guard``).
- ``/dev``, ``/proc``, ``/tmp``, ``/dev/shm`` and ``/run`` are the sandbox's own. What a policy
  names in them is shown there, in directories that hold nothing else.
- Where reading is denied by default, Landlock says what may be read; masks are for what is denied
  within that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sandbox.backends.aliases import aliases
from sandbox.backends.cover import DEVICES, Cover, Rule
from sandbox.backends.enforceable import weaker_layout
from sandbox.entries import Access, Special, Table, lookup
from sandbox.errors import Unenforceable
from sandbox.paths import ancestors, by_parts, is_there
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy
from sandbox.result import Weaker

__all__ = [
    "MOUNTS_MAX",
    "TMP",
    "Layout",
    "Mount",
    "MountKind",
    "compile_layout",
    "denied_paths",
    "has_tmp",
]

MOUNTS_MAX = 4096  # masks and all: above it a lane costs too much to be called quick
TMP = "/tmp"
_SHM = "/dev/shm"
_TERMINALS = ("/dev/ptmx", "/dev/pts", "/dev/pts/ptmx")
# Shown in /run, where everything else belongs to services of the host: names are looked up with
# the first, programs of NixOS are found through the others.
_RUN = ("/run/systemd/resolve", "/run/current-system", "/run/opengl-driver")
_OWN = ("/dev", "/proc", "/run", TMP)

NewKind = Literal["hollow", "dock", "scratch", "devices"]  # file systems of our own
MountKind = Literal["write", "read", "pin", "socket", "mask", "later", "absent", "proc"] | NewKind
_NEW: tuple[MountKind, ...] = ("hollow", "dock", "scratch", "devices")  # file systems of our own


class Mount(NamedTuple):
    """One exception.

    ``socket`` is one of the host's that is shown, and that commands may connect to.
    ``dock`` is as ``hollow``, with a workspace that comes and goes.
    ``later`` is a mask for what is missing, made when it comes; ``absent`` mounts nothing: a
    protected name that is missing.
    ``optional``: it may have vanished since. ``made``: its mount point is made, in a file system
    of our own. ``access``: what Landlock grants on a new file system (empty: nothing). ``size``:
    bytes.
    """

    path: bytes
    kind: MountKind
    optional: bool = False
    made: bool = False
    access: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """What namespaces and Landlock are told.

    - ``mounts``, ``rules``: what is shown, and what of it may be used.
    - ``read_only``: whether all else is read-only.
    - ``handle_read``: whether Landlock restricts reading and listing.
    - ``roots``: what a person named; another directory there makes all of this worthless.
    - ``scratch``: of each writable directory of its own, which mount points are at its top.
    """

    mounts: tuple[Mount, ...]
    rules: tuple[Rule, ...]
    read_only: bool
    handle_read: bool
    roots: tuple[str, ...]
    scratch: tuple[frozenset[str], ...]
    weaker: tuple[Weaker, ...]


def denied_paths(resolved: ResolvedPolicy) -> tuple[str, ...]:
    """All that is denied, under every name that it has, each after what it is in."""
    named = {place.path for place in resolved.places}
    denied = [place.path for place in resolved.places if place.access is Access.DENY]
    denied += [place.path for place in resolved.denied if place.path not in named]
    found = {*denied, *aliases(denied)}.difference(_OWN, "/")
    return tuple(sorted(found, key=by_parts))


def compile_layout(
    resolved: ResolvedPolicy, denied: Sequence[str], missing: Container[str]
) -> Layout:
    """The layout for a policy; ``denied``: its ``denied_paths``, ``missing``: those not there.

    Raises ``Unenforceable`` where there is too much in it.
    """
    table = _Table(resolved, denied, missing)
    top = resolved.access("/")
    handle_read = top is Access.DENY
    mounts = tuple(table.mounts())
    made = sum(mount.kind != "absent" for mount in mounts)
    if made > MOUNTS_MAX:
        raise Unenforceable(
            "denied reads",
            f"{made} mounts, more than {MOUNTS_MAX}",
            "deny directories instead of the files in them",
        )
    return Layout(
        mounts=mounts,
        rules=tuple(_rules(resolved, handle_read)),
        read_only=top is not Access.WRITE,
        handle_read=handle_read,
        roots=resolved.writable,
        scratch=tuple(_tops(mounts)),
        weaker=tuple(weaker_layout(resolved)),
    )


def _tops(mounts: Sequence[Mount]) -> Iterator[frozenset[str]]:
    """Of each scratch directory, in the order of the mounts: names that are to be left in it."""
    for scratch in mounts:
        if scratch.kind == "scratch":
            inside = scratch.path + b"/"
            rest = [m.path[len(inside) :] for m in mounts if m.path.startswith(inside)]
            yield frozenset(os.fsdecode(path.split(b"/")[0]) for path in rest)


def has_tmp(policy: SandboxPolicy) -> bool:
    """Whether a policy gives a private temporary directory."""
    return all(
        any(entry.special is Special.TMP and entry.access is Access.WRITE for entry in layer)
        for layer in policy.layers
    )


class _Table:
    """The mounts under construction, by path."""

    def __init__(
        self, resolved: ResolvedPolicy, denied: Sequence[str], missing: Container[str]
    ) -> None:
        self._resolved = resolved
        self._sockets = {path: os.path.lexists(path) for path in resolved.sockets}
        self._access: Table = {
            path: access
            for path, access in resolved.table().items()
            if self._sockets.get(path, True)
        }
        self._writable = frozenset(resolved.writable)
        self._found: dict[str, Mount] = {}
        self._absent: list[Mount] = []
        self._ways: set[str] = set()  # the directories above what is found
        self._pinned: set[str] = set()  # the directories to which the way is pinned
        self._own()
        self._places()
        if resolved.dock:
            self._add(resolved.dock, "dock", access="write")
            self._way(resolved.dock)
            self._pin_way(resolved.dock)
        self._protected()
        self._named()
        self._denied(denied, missing)
        for place in resolved.places:  # last: a pin where a mask belongs would leave that out
            above = self._above(place.path)
            if place.access is Access.READ and above is not None and above.kind in ("write", "pin"):
                self._pin_way(place.path)

    def mounts(self) -> Iterator[Mount]:
        """The table in its order, with what mount points have to be made; missing names last."""
        above: list[tuple[str, Mount]] = []
        for path, mount in sorted(self._found.items(), key=lambda row: by_parts(row[0])):
            while above and not path.startswith(above[-1][0]):
                above.pop()
            if above and above[-1][1].kind in _NEW:
                mount = mount._replace(made=True)
            above.append((f"{path}/", mount))
            yield mount
        yield from self._absent

    def _add(self, path: str, kind: MountKind, optional: bool = False, **more: int | str) -> None:
        access, size = str(more.get("access", "")), int(more.get("size", 0))
        self._found[path] = Mount(os.fsencode(path), kind, optional, False, access, size)
        while path != "/":
            path = path.rpartition("/")[0] or "/"
            if path in self._ways:
                break
            self._ways.add(path)

    def _above(self, path: str) -> Mount | None:
        """The nearest mount that a path lies in."""
        inside = [place for place in ancestors(path)[1:] if place in self._found]
        return self._found[inside[0]] if inside else None

    def _own(self) -> None:
        """What every sandbox has of its own, unless the policy names all of the host's."""
        show = {path: self._access.get(path) not in (Access.READ, Access.WRITE) for path in _OWN}
        listed = "names"
        size = self._resolved.policy.limits.tmp or 0
        if show["/dev"]:
            self._add("/dev", "devices", access="device")
            if self._access.get(_SHM) not in (Access.READ, Access.WRITE):
                self._add(_SHM, "scratch", access="write", size=size)
        self._add("/proc", "proc", access="read" if self._may_read("/proc") else "")
        if show["/run"] and os.path.isdir("/run"):
            self._add("/run", "hollow", access=listed)
            for path in _RUN:
                if os.path.exists(path) and self._may_read(path):
                    self._add(path, "read", True)
        if has_tmp(self._resolved.policy) and show[TMP]:
            self._add(TMP, "scratch", access="write", size=size)
        elif show[TMP] and os.path.isdir(TMP):
            self._add(TMP, "hollow", access=listed)

    def _may_read(self, path: str) -> bool:
        return lookup(self._access, path) is not Access.DENY

    def _places(self) -> None:
        """What the policy names: writable, or shown in or taken out of something else."""
        for place in self._resolved.places:
            path = place.path
            if path in self._sockets:
                continue
            if place.access is Access.DENY or path == "/" or path in self._found:
                continue
            if "/dev" in self._found and path in _TERMINALS:
                continue  # it has terminals of its own, which the host's would only hide
            above = self._above(path)
            if place.access is Access.WRITE:
                self._add(path, "write")
            elif above is not None:
                self._add(path, "read")
            else:
                continue
            self._way(path)
        for path in (self._resolved.place, *self._tools()):
            self._show(path)

    def _tools(self) -> tuple[str, ...]:
        """What programs look for wherever they are: HOME, and the caller's own interpreter."""
        return self._resolved.home, os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)

    def _show(self, path: str) -> None:
        """Shows what may be read where it would not be seen in a directory of ours."""
        above = self._above(path) if path and self._may_read(path) else None
        if above is not None and above.kind in _NEW and path not in self._found:
            self._add(path, "read", True)
            self._way(path)

    def _way(self, path: str) -> None:
        """Directories of our own on the way to what is shown in one: nothing else is in them."""
        for above in reversed(ancestors(path)[1:]):
            mount = self._above(above)
            if above in self._found or mount is None or mount.kind not in ("scratch", "devices"):
                continue
            self._add(above, "hollow", access="names")

    def _protected(self) -> None:
        for path in self._resolved.all_protected:
            if self._root(path) in ("", path):
                continue
            if is_there(path):
                self._add(path, "read", True)
                self._pin_way(path)
            else:
                self._absent.append(Mount(os.fsencode(path), "absent", True))

    def _named(self) -> None:
        """What the host has at the named paths now; another layout has what comes later."""
        for path, exists in self._sockets.items():
            if exists:
                self._add(path, "socket", True)
                self._way(path)
                self._pin_way(path)

    def _root(self, path: str) -> str:
        """The writable directory that a path lies in, or empty."""
        return next((above for above in ancestors(path) if above in self._writable), "")

    def _pin_way(self, path: str) -> None:
        """Keep the way to a mount in a writable directory: under another name it would be free."""
        root = self._root(path)
        for above in ancestors(path)[1:]:
            if not root or above == root:
                break
            if above not in self._found:
                self._add(above, "pin", True)

    def _denied(self, denied: Sequence[str], missing: Container[str]) -> None:
        """Masks; a denied directory in which something is allowed holds just that."""
        inside = self._allowed_inside()
        seen: dict[str, bool] = {}  # directories, and whether what is in them is hidden anyway
        for path in denied:
            if path in self._found:
                continue
            directory = path.rpartition("/")[0]
            if directory not in seen:
                seen[directory] = self._is_hidden(path)
            if seen[directory]:
                continue
            if path in missing:
                self._add(path, "later", True)
                continue
            if directory not in self._pinned:
                self._pin_way(path)
                self._pinned.add(directory)
            allowed = inside.get(path, ())
            for other in allowed:
                if other not in self._found:
                    self._add(other, "read")
            if allowed or path in self._ways:
                self._add(path, "hollow", True, access="names")
            else:
                self._add(path, "mask", True)

    def _allowed_inside(self) -> dict[str, list[str]]:
        """What the policy allows in each directory, by the directories above it."""
        found: dict[str, list[str]] = {}
        for path, access in self._access.items():
            if access is not Access.DENY:
                for above in ancestors(path)[1:]:
                    found.setdefault(above, []).append(path)
        return found

    def _is_hidden(self, path: str) -> bool:
        """Whether what a path lies in is not shown anyway."""
        above = self._above(path)
        return above is not None and above.kind in ("mask", "later", *_NEW)


def _rules(resolved: ResolvedPolicy, handle_read: bool) -> Iterable[Rule]:
    cover = Cover(resolved, False)
    for place in resolved.places:
        if place.path in resolved.sockets:
            continue  # connecting takes no rule
        if place.access is Access.WRITE:
            cover.named(place.path, "write")
        elif handle_read and place.access is Access.READ:
            cover.named(place.path, "read")
    for name in DEVICES:
        cover.device(f"/dev/{name}")
    return cover.rules.values()
