"""Paths at which the same files lie as before, or none, as is asked before each command.

There are hundreds, and almost never does one change. None is replaced or comes into being without a
change of the directory that it is in, and of that the kernel tells: what is looked at is what lies
in the directories that it told of. A file system that is changed elsewhere tells of nothing, so all
are looked at from time to time, and those in directories that nobody tells of each time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence

import _sandcore
from sandbox.backends.notices import Watch, pays
from sandbox.paths import ancestors

__all__ = ["UNKNOWN", "Resting", "missing", "stamps"]

UNKNOWN = b"-"  # equal to the state of no path list: look closer
_LOOK = 0.05  # seconds between two looks at everything
_SHARE = 20  # which take one part of so many of the time
_TRIES = 3


class Resting:
    """Some paths in their state of now. ``missing``: those at which nothing is."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(paths)
        self._all = stamps((), self._paths)
        self._state = self._all.take()
        self._told: _Told | None = None
        self._look_at = 0.0
        self.missing = missing(self._paths, self._state)

    def holds(self) -> bool:
        """Whether each is the file that it was."""
        told = self._told
        if told is None or time.monotonic() >= self._look_at:
            return self.holds_now()
        holds = told.holds()
        return holds if holds is not None else self._listen()

    def holds_now(self) -> bool:
        """The same, by a look at each: also where changes are told of by nobody."""
        if self._told is None or self._told.could_hear_more():
            return self._listen()
        began = time.monotonic()
        if not self._all.same(self._state):
            return False
        now = time.monotonic()
        self._look_at = now + max(_LOOK, _SHARE * (now - began))
        return True

    def _listen(self) -> bool:
        """The same, and is told of changes from here on."""
        self._told = None
        for _ in range(_TRIES):
            told = _Told(self._paths, self._state)
            if not self._all.same(self._state):
                return False
            if not told.has_come():  # or somebody is making directories just now
                self._told, self._look_at = told, time.monotonic() + _LOOK
                return True
        return True


class _Told:
    """What lies in which directory, and what was told of that until now."""

    def __init__(self, paths: Sequence[str], state: bytes) -> None:
        self._groups = {
            above: _Group(above, paths, places, state) for above, places in _groups(paths).items()
        }
        ways = {way for above in self._groups for way in ancestors(above)[1:]}
        self._watch = Watch(self._groups, ways)
        self._heard = self._watch.heard()
        # A way that nobody tells of is that of all that lies below it.
        deaf = self._watch.unwatched
        self._untold = [
            above for above in self._groups if deaf and any(way in deaf for way in ancestors(above))
        ]
        self._directories, self._resting = stamps(self._untold, ()), UNKNOWN
        # A link is told of, and looked at, where it is, not where it leads.
        self._links = [self._groups[above] for above in self._groups if os.path.islink(above)]

    def could_hear_more(self) -> bool:
        """Whether another one would be told of changes that this one has to look for."""
        return self._watch.early and pays()

    def has_come(self) -> bool:
        """Whether there are more directories by now than were known."""
        return any(group.has_come() for group in self._groups.values())

    def holds(self) -> bool | None:
        """Whether all are what they were; None: there are other directories, listen again."""
        heard = self._watch.heard()
        if heard != self._heard:
            if self._watch.went(self._heard):
                return None
            changed = [self._groups[above] for above in self._watch.changed(self._heard)]
            if any(group.has_come() for group in changed):
                return None
            if not all(group.same() for group in changed):
                return False
            self._heard = heard
        if any(group.has_come() or not group.same() for group in self._links):
            return None
        return self._directories.same(self._resting) or self._look()

    def _look(self) -> bool | None:
        """At what is in directories that nobody tells of."""
        state = self._directories.take()  # first: what changes meanwhile differs from it
        groups = [self._groups[above] for above in self._untold]
        if any(group.has_come() for group in groups):
            return None
        if not all(group.same() for group in groups):
            return False
        # A clock that stands still between two changes would hide the second one.
        self._resting = state if self._directories.settled(state) else UNKNOWN
        return True


class _Group:
    """The paths in one directory, or in directories in it that do not exist yet."""

    def __init__(
        self, above: str, paths: Sequence[str], places: Sequence[int], state: bytes
    ) -> None:
        self._paths, self._places, self._state = paths, places, state
        start = len(above.rstrip("/")) + 1
        deeper = [paths[at] for at in places if "/" in paths[at][start:]]
        self._awaited = {path[: path.index("/", start)] for path in deeper}
        self._known: tuple[_sandcore.Stamps, bytes] | None = None

    def has_come(self) -> bool:
        """Whether one of those directories exists by now."""
        return any(os.path.isdir(path) for path in self._awaited)

    def same(self) -> bool:
        """Whether each path is the file that it was."""
        known = self._known
        if known is None:  # most directories never change
            size = _sandcore.Stamps.SIZE
            state = b"".join(self._state[at * size : (at + 1) * size] for at in self._places)
            known = stamps((), [self._paths[at] for at in self._places]), state
            self._known = known
        return known[0].same(known[1])


def missing(paths: Sequence[str], state: bytes) -> set[str]:
    """Those at which nothing was, by their stamps."""
    size, none = _sandcore.Stamps.SIZE, bytes(8)
    places = enumerate(paths)  # the second number of a stamp is the inode's
    return {path for at, path in places if state[at * size + 8 : at * size + 16] == none}


def stamps(exact: Iterable[str], identities: Iterable[str]) -> _sandcore.Stamps:
    """Of some paths everything, of others only which file it is."""
    encode = os.fsencode
    return _sandcore.Stamps([encode(path) for path in exact], [encode(p) for p in identities])


def _groups(paths: Sequence[str]) -> dict[str, list[int]]:
    """The directories that change when a path comes into being, with the places of these paths."""
    there = {"/": "/"}
    found: dict[str, list[int]] = {}
    for place, path in enumerate(paths):
        found.setdefault(_existing(path.rpartition("/")[0] or "/", there), []).append(place)
    return found


def _existing(path: str, there: dict[str, str]) -> str:
    """The nearest directory that exists; ``there`` remembers."""
    if path not in there:
        above = path.rpartition("/")[0] or "/"
        there[path] = path if os.path.isdir(path) else _existing(above, there)
    return there[path]
