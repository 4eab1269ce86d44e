"""From a resolved policy to a file tree of namespaces: mounts, and the few rules beside them.

The host's tree is shown read-only, and a table of exceptions is put on top, each path after what it
is in. What differs from rules alone:

- A denied path is masked, wherever it lies. Its neighbours need no rules, so nothing is enumerated
  and reading costs no walk on each open.
- A protected path that exists is read-only, and the directories on the way to it cannot be renamed
  (another could be put in their place). One that is missing gets no placeholder: that would be seen
  by programs inside and outside; what is planted is moved aside afterwards (``guard``).
- ``/dev``, ``/proc``, ``/tmp``, ``/dev/shm`` and ``/run`` are the sandbox's own. What a policy
  names in them is shown there, in directories that hold nothing else.
- Where reading is denied by default, Landlock says what may be read; masks are for what is denied
  within that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from sandbox.backends.aliases import aliases
from sandbox.backends.cover import DEVICES, Cover, Rule
from sandbox.entries import Access, Special
from sandbox.errors import Unenforceable
from sandbox.paths import ancestors, below
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy
from sandbox.result import Weaker

__all__ = ["MOUNTS_MAX", "TMP", "Layout", "Mount", "MountKind", "compile_layout", "has_tmp"]

MOUNTS_MAX = 4096  # masks and all: above it a lane costs too much to be called quick
TMP = "/tmp"
_SHM = "/dev/shm"
# Shown in /run, where everything else belongs to services of the host: names are looked up with
# the first, programs of NixOS are found through the others.
_RUN = ("/run/systemd/resolve", "/run/current-system", "/run/opengl-driver")
_OWN = ("/dev", "/proc", "/run", TMP)

MountKind = Literal["write", "read", "pin", "mask", "hollow", "scratch", "devices", "proc"]
_NEW: tuple[MountKind, ...] = ("hollow", "scratch", "devices")  # file systems of our own


@dataclass(frozen=True, slots=True)
class Mount:
    """One exception.

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
    - ``masked``: what must stay as it is while the masks are to hold.
    - ``scratch``: of each writable directory of its own, which mount points are at its top.
    """

    mounts: tuple[Mount, ...]
    rules: tuple[Rule, ...]
    read_only: bool
    handle_read: bool
    roots: tuple[str, ...]
    masked: tuple[str, ...]
    scratch: tuple[frozenset[str], ...]
    weaker: tuple[Weaker, ...]


def compile_layout(resolved: ResolvedPolicy) -> Layout:
    """The layout for a policy. Raises ``Unenforceable`` where there is too much in it."""
    table = _Table(resolved)
    handle_read = resolved.access("/") is Access.DENY
    mounts = tuple(table.mounts())
    if len(mounts) > MOUNTS_MAX:
        raise Unenforceable(
            "denied reads",
            f"{len(mounts)} mounts, more than {MOUNTS_MAX}",
            "deny directories instead of the files in them",
        )
    return Layout(
        mounts=mounts,
        rules=tuple(_rules(resolved, handle_read)),
        read_only=resolved.access("/") is not Access.WRITE,
        handle_read=handle_read,
        roots=resolved.writable,
        masked=tuple(table.masked),
        scratch=tuple(_tops(mounts)),
        weaker=tuple(_weaker(resolved)),
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

    def __init__(self, resolved: ResolvedPolicy) -> None:
        self._resolved = resolved
        self._access = resolved.table()
        self._found: dict[str, Mount] = {}
        self.masked: list[str] = []
        self._own()
        self._places()
        self._protected()
        self._denied()

    def mounts(self) -> Iterator[Mount]:
        """The table in its order, with what mount points have to be made."""
        for path in sorted(self._found, key=lambda path: path.split("/")):
            above = self._above(path)
            mount = self._found[path]
            if above is not None and above.kind in _NEW:
                mount = _made(mount)
            yield mount

    def _add(self, path: str, kind: MountKind, optional: bool = False, **more: int | str) -> None:
        access, size = str(more.get("access", "")), int(more.get("size", 0))
        self._found[path] = Mount(os.fsencode(path), kind, optional, False, access, size)

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
        return self._resolved.access(path) is not Access.DENY

    def _places(self) -> None:
        """What the policy names: writable, or shown in or taken out of something else."""
        for place in self._resolved.places:
            path = place.path
            if place.access is Access.DENY or path == "/" or path in self._found:
                continue
            above = self._above(path)
            if place.access is Access.WRITE:
                self._add(path, "write")
            elif above is not None:
                self._add(path, "read")
            else:
                continue
            self._way(path)
        self._show(self._resolved.place)
        self._show(self._resolved.home)  # programs look for it, in tests it lies in /tmp

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
        roots = self._resolved.writable
        for path in self._resolved.protected:
            root = next((above for above in ancestors(path) if above in roots), None)
            if root is None or root == path or not _is_plain(path):
                continue
            self._add(path, "read", True)
            self._pin(path)

    def _pin(self, path: str) -> None:
        """Keeps the directories on the way to a path in a writable directory from being renamed.

        A mask moves along, but the next sandbox would look for the path at its old name.
        """
        above = ancestors(path)[1:]
        root = next((place for place in above if place in self._resolved.writable), None)
        for place in above[: above.index(root)] if root is not None else ():
            if place not in self._found:
                self._add(place, "pin", True)

    def _denied(self) -> None:
        """Masks; a denied directory in which something is allowed holds just that."""
        denied = [place.path for place in self._resolved.places if place.access is Access.DENY]
        denied += [place.path for place in self._resolved.denied if place.path not in self._access]
        for path in sorted({*denied, *aliases(denied)}, key=lambda path: path.split("/")):
            if path in _OWN or path == "/" or path in self._found:
                continue
            self.masked.append(path)
            if not os.path.lexists(path) or self._is_hidden(path):
                continue
            inner = [other for other in self._found if other != path and below(other, path)]
            allowed = [other for other in self._access if other != path and below(other, path)]
            allowed = [other for other in allowed if self._access[other] is not Access.DENY]
            for other in allowed:
                self._found.setdefault(other, Mount(os.fsencode(other), "read"))
            if inner or allowed:
                self._add(path, "hollow", True, access="names")
            else:
                self._add(path, "mask", True)
            self._pin(path)

    def _is_hidden(self, path: str) -> bool:
        """Whether what a path lies in is not shown anyway."""
        above = self._above(path)
        return above is not None and above.kind in ("mask", *_NEW)


def _made(mount: Mount) -> Mount:
    return Mount(mount.path, mount.kind, mount.optional, True, mount.access, mount.size)


def _is_plain(path: str) -> bool:
    """A file or a directory: a link cannot be mounted upon, and is watched instead."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _rules(resolved: ResolvedPolicy, handle_read: bool) -> Iterable[Rule]:
    cover = Cover(resolved, False)
    for place in resolved.places:
        if place.access is Access.WRITE:
            cover.named(place.path, "write")
        elif handle_read and place.access is Access.READ:
            cover.named(place.path, "read")
    for name in DEVICES:
        cover.device(f"/dev/{name}")
    return cover.rules.values()


def _weaker(resolved: ResolvedPolicy) -> Iterator[Weaker]:
    if resolved.access("/") is not Access.WRITE:
        cause = (
            "a hard link that was there before gives a file outside a name where more is allowed"
        )
        yield Weaker("hard-links", cause, "find WORKSPACE -type f -links +1")
        cause = "a file that may be read may be locked, and who waits for the lock waits"
        yield Weaker("locks", cause, "deny what others lock")
    if resolved.protected:
        cause = "a repository deeper in a writable directory, or a new one, has hooks as any file"
        mend = "git -c core.hooksPath=/dev/null -c core.fsmonitor=false in what a command made"
        yield Weaker("repositories", cause, mend)
