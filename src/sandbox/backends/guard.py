"""Protected names where the kernel cannot protect them.

Landlock only grants: inside a writable directory ``.git``, ``.envrc`` or ``.vscode`` can be written
by the command, and programs of the host run what stands there. So the guard looks before a command
and, when its tree is dead, after it; what was planted is moved aside and what was changed is put
back (``restore``). While the command runs, the host can see what it planted.

The usual answer is that nothing happened, and costs two looks at the kernel's change times. They
stand for the *state* that the snapshot was taken in. A host may change these names between
commands: then the snapshot is taken anew, but only while no command is in flight, or what one of
them is just doing would become the state to return to. For the same reason those
who write in the same directories share a guard (``LinuxBackend`` sees to that): a second one could
not know what the first one's commands are doing, as is so for one of another process, or for other
directories that overlap. What could not be put back is told once; then it is the state, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from sandbox.backends.restore import restore
from sandbox.backends.snapshot import MEND, PART, Node, Plan, Snapshot, take_snapshot
from sandbox.backends.watched import Wanted, on_the_way
from sandbox.denial import Denial, Grant
from sandbox.locks import ForkLock
from sandbox.paths import ancestors, below, depth
from sandbox.protected import GUARDED_MAX
from sandbox.result import Weaker

__all__ = ["Guard", "StampTaker"]

_TRIES = 3  # the first finds the paths, the second their state; the host may be changing them
_UNKNOWN = b""  # equal to the state of no path list: look closer


class StampTaker(Protocol):
    """The state of a fixed list of paths; ``_sandcore.Stamps`` is one."""

    def take(self) -> bytes:
        """The state now; equal bytes: none of the paths was made, removed, written or replaced."""

    def same(self, state: bytes) -> bool:
        """Whether ``take`` would give this; cheaper. No list of paths has the state ``b""``."""

    def settled(self, state: bytes) -> bool:
        """Whether the youngest change in a state is old enough for the next to look different."""


class Guard:
    """Looks after protected names in writable directories around each command.

    ``roots`` are the writable directories, ``protected`` the real paths that must stay as they
    are, existing or not (``ResolvedPolicy`` has both); ``stamps`` makes a ``StampTaker`` of paths.
    ``weaker`` is what is not watched. Threads may share a guard; none of its calls raises because
    of what is on the disk.
    """

    def __init__(
        self,
        roots: Sequence[str],
        protected: Sequence[str],
        stamps: Callable[[Sequence[bytes]], StampTaker],
    ) -> None:
        self._begin(roots, protected, stamps)
        self._taker = self._quick = stamps(())
        if roots:
            self._plan()
        if self._roots:
            self._learn()

    # There is one for each workspace: what most never change costs it nothing.
    _extended = False
    _planned = True
    _untouched: os.stat_result | None = None  # of a directory in which all were missing
    _beyond: tuple[Weaker, ...] = ()
    _running = 0
    learned = 0  # how often the state to return to was taken
    _found: tuple[Denial, ...] = ()
    _snapshot = Snapshot()
    _state = _quick_state = _UNKNOWN

    def _begin(
        self,
        roots: Sequence[str],
        protected: Sequence[str],
        stamps: Callable[[Sequence[bytes]], StampTaker],
    ) -> None:
        self._directories, self._protected = tuple(roots), tuple(protected)
        self._roots: list[tuple[bytes, Plan]] = []
        self._stamps = stamps
        self._lock = ForkLock()
        self._moved: set[bytes] = set()
        self._present: list[bytes] = []  # what the quick look is at

    @classmethod
    def of_absent(
        cls,
        roots: Sequence[str],
        absent: Sequence[str],
        stamps: Callable[[Sequence[bytes]], StampTaker],
        still: tuple[StampTaker, bytes],
        which: os.stat_result,
    ) -> Guard:
        """As ``Guard(roots, absent, stamps)``, for names right in the first root that are missing.

        They are as long as ``still`` is the root's state, ``which``. There is nothing to survey,
        and nothing to make ready before that state is another one.
        """
        guard = cls.__new__(cls)
        guard._begin(roots, absent, stamps)
        guard._planned = False
        guard._quick, guard._quick_state = still
        guard._taker = guard._quick
        guard._untouched = which
        return guard

    def _unfold(self, which: os.stat_result) -> None:
        """What a snapshot would have found, of names that are missing."""
        self._untouched = None
        place, start = os.fsencode(self._directories[0]), len(self._directories[0]) + 1
        nodes = tuple([_absent_node(path[start:]) for path in self._protected])
        paths = tuple([place + b"/" + node.name for node in nodes])
        node = Node(b"", "dir", "pin", which, children=nodes)
        self._snapshot = Snapshot(((place, node),), paths, young=False)
        self._taker = self._stamps(paths)
        self._state = bytes(len(self._quick.take()) * len(paths))
        self._present = [place]

    def _plan(self) -> None:
        self._planned = True
        self._roots, beyond = _wanted_roots(self._directories, self._protected)
        self._beyond = tuple(
            Weaker(PART, f"only {GUARDED_MAX} writable directories are watched, not {path!r}", MEND)
            for path in beyond
        )

    def extend(self, protected: Sequence[str]) -> None:
        """Looks after these too, from the next time on that no command is running."""
        with self._lock.held:
            more = [path for path in protected if path not in self._protected]
            self._protected += tuple(more)
            self._extended |= bool(more)

    def found(self, denials: tuple[Denial, ...]) -> None:
        """What was put back and no result tells of: the next one has it to tell."""
        with self._lock.held:
            self._found += tuple(self._explained(denial) for denial in denials)

    @property
    def weaker(self) -> tuple[Weaker, ...]:
        """What is not watched, as of the last snapshot."""
        return (*self._beyond, *self._snapshot.weaker)

    @property
    def is_busy(self) -> bool:
        """Whether there is a command that was not looked after yet."""
        return self._running > 0

    def before(self) -> None:
        """To be called right before each command."""
        with self._lock.held:
            self._look()
            self._running += 1

    def look(self) -> None:
        """Brings ``weaker`` up to date, in a guard that was not used for a while."""
        with self._lock.held:
            self._look()

    def _look(self) -> None:
        """What the host has changed while no command was running is the state from here on."""
        if self._extended and not self._running:
            self._extended = False
            self._plan()
            self._learn()
        if not (self._running or self._quick.same(self._quick_state) or self._is_unchanged()):
            self._learn()

    def after(self, *, tells: bool = True) -> tuple[Denial, ...]:
        """To be called right after each command, when its tree is dead; what was put back.

        ``tells``: also what was found before and no result has told of.
        """
        with self._lock.held:
            self._running -= 1
            told = self._told() if tells else ()
            if self._quick.same(self._quick_state) or self._is_unchanged():
                return told
            denials = restore(self._snapshot.roots, self._moved)
            # Under other commands the old snapshot stays, so that what they do is seen after them.
            if not self._running:
                self._learn()
            return told + tuple(self._explained(denial) for denial in denials)

    def _explained(self, denial: Denial) -> Denial:
        """With the protected path that it is about, or the first one that it leads to."""
        path = denial.what
        about = [place for place in self._protected if below(path, place)]
        about += [place for place in self._protected if below(place, path)]
        if not about:
            return denial
        rule = f"protected: {about[0]}"
        return replace(denial, rule=rule, grant=Grant.one("write", about[0]))

    def _told(self) -> tuple[Denial, ...]:
        found, self._found = self._found, ()
        return found

    def _is_unchanged(self) -> bool:
        """Whether all is as it was, after a quick look that said no.

        Most names are absent, and none can come into being without a change of the directory that
        it is in: looking at that is enough. Where there is nothing to watch it says yes.
        """
        if self._untouched is not None:
            self._unfold(self._untouched)
        quick = self._quick.take()  # first: what changes meanwhile differs from it
        if not self._taker.same(self._state):
            return False
        # A clock that stands still between two changes would hide the second one.
        self._quick_state = quick if self._quick.settled(quick) else _UNKNOWN
        return True

    def _learn(self) -> None:
        """Take what is there now as the state to return to."""
        self.learned += 1
        self._untouched = None
        if not self._planned:
            self._plan()
        self._moved.clear()
        self._state = _UNKNOWN
        for _ in range(_TRIES):
            # The state is taken first: whatever happens meanwhile then differs from it.
            state = self._taker.take()
            snapshot = take_snapshot(self._roots, self._snapshot)
            is_settled = snapshot.paths == self._snapshot.paths
            if not is_settled:
                self._taker = self._stamps(snapshot.paths)
            present = _present(snapshot.paths)
            if present != self._present:  # what has come is not told by its directory any more
                self._present, self._quick = present, self._stamps(present)
                self._quick_state = _UNKNOWN
            self._snapshot = snapshot
            if snapshot.young:
                break
            if is_settled:
                self._state = state
                break


@lru_cache(maxsize=64)
def _absent_node(name: str) -> Node:
    return Node(os.fsencode(name), "absent", "same")


def _present(paths: Sequence[bytes]) -> list[bytes]:
    """What stands for all of them: those that exist, and the directories of those that do not."""
    found: dict[bytes, None] = {}
    for path in paths:
        while path != b"/" and not os.path.lexists(path):
            path = os.path.dirname(path)
        found.setdefault(path)
    return list(found)


def _wanted_roots(
    roots: Sequence[str], protected: Sequence[str]
) -> tuple[list[tuple[bytes, Plan]], list[str]]:
    """The roots that have something to protect, with the ways to it; and those beyond the limit.

    Of nested roots the outermost is where walking starts: only its own directory cannot be
    renamed by a command. What lies in another protected path is watched with that.
    """
    outermost = _outermost(roots)
    found: dict[str, Wanted] = {root: {} for root in outermost}
    places = {path: place for place, path in enumerate(protected)}
    for path in sorted(_outermost(protected), key=places.__getitem__):
        root = next((above for above in ancestors(path)[1:] if above in found), None)
        if root is not None:
            _add(found[root], os.fsencode(path[len(root.rstrip("/")) + 1 :]).split(b"/"))
    wanted = [(root, names) for root, names in found.items() if names]
    watched = [(os.fsencode(root), on_the_way(names)) for root, names in wanted[:GUARDED_MAX]]
    return watched, [root for root, _ in wanted[GUARDED_MAX:]]


def _outermost(paths: Sequence[str]) -> list[str]:
    """Those that lie in none of the others, the shortest way first."""
    found: dict[str, None] = {}
    for path in sorted(dict.fromkeys(paths), key=depth):
        if not any(above in found for above in ancestors(path)):
            found[path] = None
    return list(found)


def _add(wanted: Wanted, parts: Sequence[bytes]) -> None:
    for part in parts:
        wanted = wanted.setdefault(part, {})
