"""What is mounted for a workspace that lies in a dock (``docks``), and when that is outdated.

The helper is told which directory it is: what the host has mounted since it was started is not seen
from there (``helper/dock.c``).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import _sandcore
from sandbox.backends.base import ConfinementLost
from sandbox.backends.resting import stamps
from sandbox.docks import Workspace
from sandbox.errors import WorkspaceRefused
from sandbox.paths import ancestors, below, by_parts

__all__ = ["WorkspaceBasis", "await_dock", "leave_dock", "order_dock"]

_OTHER = "another directory was there when the sandbox was made, as when it was mounted since"


class WorkspaceBasis:
    """The state of the disk that a workspace is docked with. See ``LayoutBasis``.

    To be made before it is looked at: what changes meanwhile differs from ``rest``, the state of
    the directory itself, which is empty where that would not tell. Then ``note`` what was found.
    """

    def __init__(self, workspace: str) -> None:
        self.top = stamps([workspace], ())
        state = self.top.take()
        # A clock that stands still between two changes would hide the second one.
        self.rest = state if self.top.settled(state) else b""
        self._is_flat = False
        self._there, self._state = stamps((), ()), b""
        self._absent: tuple[str, ...] = ()

    def note(self, found: Workspace) -> None:
        """What is there is looked at, what is not will be."""
        pointers = [path for path in found.there if path.endswith("/.git") and os.path.isfile(path)]
        start = len(found.path) + 1
        # Where all are names in the workspace itself, none changes unless it does.
        self._is_flat = not pointers and not any("/" in path[start:] for path in found.there)
        self._there = stamps(pointers, (*found.there, found.path))
        self._state, self._absent = self._there.take(), found.absent

    def holds(self) -> bool:
        """Whether what is mounted for the workspace still is what the policy says."""
        if self._is_flat and self.top.same(self.rest):
            return True
        return self._there.same(self._state) and not any(map(os.path.lexists, self._absent))


def order_dock(helper: _sandcore.Helper, found: Workspace) -> None:
    """Asks a helper for a workspace; ``await_dock`` is to be called next, whatever happens.

    Raises ``ConfinementLost`` and ``WorkspaceRefused``; then not.
    """
    try:
        blob = _sandcore.compile_policy(mounts=[*_rows(found)])
        helper.dock(
            blob,
            device_major=os.major(found.which.st_dev),
            device_minor=os.minor(found.which.st_dev),
            inode=found.which.st_ino,
        )
    except _sandcore.LaneLost as lost:
        raise ConfinementLost(str(lost)) from None
    except OSError as error:  # it is gone, or more is protected in it than can be told
        why = error.strerror or str(error)
        raise WorkspaceRefused(found.path, why, "a sandbox of its own") from None


def await_dock(helper: _sandcore.Helper, found: Workspace) -> int:
    """Waits until it lies there; in how many directories in it the host tells of no changes.

    Raises as ``order_dock``; then none lies there.
    """
    try:
        return helper.await_dock()
    except _sandcore.LaneLost as lost:
        raise ConfinementLost(str(lost)) from None
    except _sandcore.StageError as error:
        why = _OTHER if error.errno == errno.EXDEV else os.strerror(error.errno or 0)
        raise WorkspaceRefused(found.path, why, "a sandbox of its own") from None


def leave_dock(helper: _sandcore.Helper) -> None:
    """Takes away what lies there. Raises ``ConfinementLost``."""
    try:
        helper.dock(None)
        helper.await_dock()
    except (_sandcore.LaneLost, _sandcore.StageError) as lost:
        raise ConfinementLost(str(lost)) from None


_Row = tuple[bytes, int, int, int, int]
_OPTIONAL = _sandcore.MOUNT_OPTIONAL


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
