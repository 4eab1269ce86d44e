"""The dock of one sandbox (``docks``): what lies in it, what is mounted for that, and until when.

The helper is told which directory it is, and mounts it while the caller sees to the rest; lanes
wait by themselves (``helper/dock.c``). What the host has mounted since it was started is not
seen from there: the kernel tells of changes of the table of mounts, and a workspace that one of
them concerns is refused.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache

import _sandcore
from sandbox.backends.aliases import mount_table, parse_mounts
from sandbox.backends.base import ConfinementLost
from sandbox.backends.resting import missing, stamps
from sandbox.backends.search import NO_REPOSITORIES
from sandbox.docks import Names, NotDocked, Workspace, are_near, guessed, look, named
from sandbox.errors import WorkspaceRefused
from sandbox.paths import ancestors, below, by_parts
from sandbox.resolve import ResolvedPolicy

__all__ = ["Berth", "Mounts", "WorkspaceBasis"]

_ALONE = "a sandbox of its own"
_OTHER = "another directory was there when the sandbox was made, as when it was mounted since"


class WorkspaceBasis:
    """The state of the disk that a workspace is docked with. See ``LayoutBasis``.

    To be made before it is looked at: what changes meanwhile differs from ``rest``, the state of
    the directory itself, which is empty where that would not tell. Then ``note`` what was found.
    """

    def __init__(self, workspace: str, encoded: bytes) -> None:
        self._path = workspace
        self.top = _sandcore.Stamps((encoded,))
        state = self.top.take()
        # A clock that stands still between two changes would hide the second one.
        self.rest = state if self.top.settled(state) else b""
        self._git: tuple[_sandcore.Stamps, bytes] | None = None
        self._is_flat = False
        self._there: tuple[_sandcore.Stamps, bytes] | None = None
        self._found: Workspace | None = None
        self._vanished = False

    def await_pointer(self) -> None:
        """Before it is read what ``.git`` there says."""
        git = stamps([f"{self._path}/.git"], ())
        self._git = git, git.take()

    def note(self, found: Workspace) -> None:
        """What is there is looked at, what is not will be."""
        self._found = found
        # Where all are names in the workspace itself, none changes unless it does.
        self._is_flat = found.is_near and not found.behind
        if self._git is not None:
            if os.path.isfile(f"{found.path}/.git"):
                self._is_flat = False
            else:
                self._git = None
        if found.there:
            start = len(found.path) + 1
            self._is_flat &= not any("/" in path[start:] for path in found.there)
            paths = (*found.there, found.path)
            there = stamps((), paths)
            self._there = there, there.take()
            self._vanished = bool(missing(paths, self._there[1]))

    def holds(self) -> bool:
        """Whether what is mounted for the workspace still is what the policy says."""
        if self._is_flat and self.top.same(self.rest):
            return True
        found, there, git = self._found, self._there, self._git
        if found is None or self._vanished:
            return False
        return (
            (there[0].same(there[1]) if there is not None else _is_still(found))
            and (git is None or git[0].same(git[1]))
            and not any(map(os.path.lexists, found.absent))
        )


def _is_still(found: Workspace) -> bool:
    """Whether it is the same directory. As long as it is mounted no other gets its number."""
    try:
        return os.path.samestat(os.lstat(found.path), found.which)
    except OSError:
        return False


class Mounts:
    """What the host has mounted or unmounted at or below a directory since this was made."""

    def __init__(self, top: str) -> None:
        self._top = top
        self._fd = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLPRI)
        self._then = self._table()
        self._changed: tuple[str, ...] = ()

    def _table(self) -> set[tuple[str, str]]:
        """The lines of what matters, each with its point."""
        lines = mount_table().splitlines()
        found = [(line, mount.point) for line in lines for mount in parse_mounts(line)]
        return {one for one in found if below(one[1], self._top) or below(self._top, one[1])}

    def concern(self, path: str) -> bool:
        """Whether a path is not what it was then. A short call as long as nothing changes."""
        if self._poll.poll(0):
            self._changed = tuple({point for _, point in self._then ^ self._table()})
        return any(below(point, path) or below(path, point) for point in self._changed)

    def close(self) -> None:
        """Lets go of it."""
        os.close(self._fd)


class Berth:
    """What lies in the dock of a helper. Whoever calls has a lock for it.

    ``mounts`` is from before the helper was started.
    """

    def __init__(self, helper: _sandcore.Helper, mounts: Mounts) -> None:
        self._helper = helper
        self._mounts = mounts
        self.awaited = False  # what lies there may still be refused
        self.once = False  # it leaves by itself, when a command has ended
        self.vacated = False  # and may lie there until then, though nobody has it any more
        self._basis: WorkspaceBasis | None = None
        self.lying: Workspace | None = None  # or on its way

    def holds(self) -> bool:
        """Whether what is mounted for the workspace still is what the policy says."""
        basis = self._basis
        return basis is None or basis.holds()

    def order(
        self, base: ResolvedPolicy, workspace: str, once: bool
    ) -> tuple[Workspace, WorkspaceBasis]:
        """Asks for a workspace in the place of the last. The basis is to ``note`` what was found.

        ``once``: for one command. Raises ``PolicyError`` and ``ConfinementLost``; ``leave`` is to
        be called then.
        """
        path, which = named(base.dock, workspace)
        if self._mounts.concern(path):
            raise NotDocked(path, "something was mounted there, or unmounted, since", _ALONE)
        encoded = os.fsencode(path)
        basis = WorkspaceBasis(path, encoded)
        names = _listed(path, encoded, base.policy.protected)
        if ".git" in names.present:
            basis.await_pointer()
        found = look(base, path, which, names)
        self.awaited, self.lying, self._basis = True, found, basis
        self.once, self.vacated = once, False
        self._ask(found, encoded)
        return found, basis

    def _ask(self, found: Workspace, encoded: bytes) -> None:
        try:
            self._helper.dock(
                _policy_of(found, encoded),
                device_major=os.major(found.which.st_dev),
                device_minor=os.minor(found.which.st_dev),
                inode=found.which.st_ino,
                once=self.once,
            )
        except _sandcore.LaneLost as lost:
            raise ConfinementLost(str(lost)) from None
        except OSError as error:
            cause = f"more in it is protected than can be told ({error.strerror})"
            raise NotDocked(found.path, cause, _ALONE) from None

    def settle(self) -> int:
        """Waits until it is there; in how many directories in it changes are not told of.

        Raises ``WorkspaceRefused``, and ``ConfinementLost``; then nothing lies there.
        """
        found = self.lying
        if not self.awaited or found is None:
            return 0
        try:
            return self._helper.await_dock()
        except _sandcore.LaneLost as lost:
            raise ConfinementLost(str(lost)) from None
        except _sandcore.StageError as error:
            self.leave()
            if error.errno == errno.EXDEV:
                raise NotDocked(found.path, _OTHER, _ALONE) from None
            why = os.strerror(error.errno or 0)
            raise WorkspaceRefused(found.path, why, _ALONE) from None
        finally:
            self.awaited = False

    def leave(self) -> None:
        """Has what lies there leave; the next command waits for that, too."""
        if self.lying is not None or self.vacated:
            with suppress(_sandcore.LaneLost, OSError):  # the next call sees that
                self._helper.dock(None)
        self.lying, self._basis, self.vacated = None, None, False

    def vacate(self) -> None:
        """After the command of what was ordered ``once``: nobody has to be told."""
        if self.awaited:  # or there was none
            self.leave()
        elif self.lying is not None:
            self.lying, self._basis, self.vacated = None, None, True

    def close(self) -> None:
        """Lets go of what it watches."""
        self._mounts.close()


def _listed(path: str, encoded: bytes, names: tuple[str, ...]) -> Names:
    """Those of the names that are there. Raises ``WorkspaceRefused``."""
    try:
        try:
            places, deeper = _survey(names).of(encoded)
        except (PermissionError, ValueError):  # it cannot be listed; there are too many names
            return guessed(path, names)
    except OSError as error:
        raise WorkspaceRefused(path, f"it cannot be listed ({error.strerror})") from None
    present = [names[at] for at in places]
    if not are_near(names):
        deep = [name for name in names if "/" in name]
        present += [name for name in deep if os.path.lexists(f"{path}/{name}")]
    return Names(tuple(present), deeper)


@lru_cache(maxsize=64)
def _survey(names: tuple[str, ...]) -> _sandcore.Survey:
    return _sandcore.Survey(_encoded(names), _encoded(tuple(NO_REPOSITORIES)))


_Row = tuple[bytes, int, int, int, int]
_OPTIONAL = _sandcore.MOUNT_OPTIONAL


def _policy_of(found: Workspace, encoded: bytes) -> _sandcore.Policy:
    if found.there or not found.is_near:
        return _sandcore.compile_policy(mounts=[*_rows(found)])
    return _sandcore.compile_workspace(encoded, _encoded(found.missing))


@lru_cache(maxsize=64)
def _encoded(names: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(map(os.fsencode, names))


def _rows(found: Workspace) -> Iterator[_Row]:
    """Protected names, read-only, and the way to each: under another name it would be free."""
    yield os.fsencode(found.path), _sandcore.MOUNT_WRITE, 0, 0, 0
    read = frozenset(found.there)
    ways = {above for path in read for above in ancestors(path)[1:] if below(above, found.path)}
    for path in sorted((read | ways) - {found.path}, key=by_parts):
        kind = _sandcore.MOUNT_READ if path in read else _sandcore.MOUNT_PIN
        yield os.fsencode(path), kind, _OPTIONAL, 0, 0
    for path in found.absent:
        yield os.fsencode(path), _sandcore.MOUNT_ABSENT, _OPTIONAL, 0, 0
