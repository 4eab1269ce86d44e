"""What each call changed below the roots, also where calls run at the same time.

Looking before and after tells what changed between, and not who changed it: what others did at the
same time cannot be told apart, so that is said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sandbox.locks import ForkLock
from sandbox.paths import below
from sandbox.session.changes import FileChanges, Watch

__all__ = ["Look", "Watching", "roots_of"]

_CROWD = "another call ran at the same time: its changes cannot be told from this one's"
_OUTSIDE = "outside of the session's directories nobody looked"
_KEPT = 4


class Watching:
    """Looks at directories before and after calls; one at a time."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._watches: dict[tuple[str, ...], Watch] = {}
        self._going = 0
        self._crowded = False

    def look(self, roots: tuple[str, ...], own: Iterable[str], *, whole: bool) -> Look:
        """Looks at what is there. ``own``: temporary directories, in which nobody looks.

        ``whole``: whether all else that may be written lies in the roots.
        """
        with self._lock.held:
            is_alone = not self._enter()
        try:
            watch = self._watch_of(roots, own) if is_alone else None
            if watch is not None:
                watch.before()
        except BaseException:
            self.leave()
            raise
        return Look(self, watch, whole)

    def _watch_of(self, roots: tuple[str, ...], own: Iterable[str]) -> Watch:
        with self._lock.held:
            watch = self._watches.get(roots)
            if watch is None:
                if len(self._watches) >= _KEPT:
                    self._watches.pop(next(iter(self._watches))).close()
                watch = self._watches[roots] = Watch(roots, elsewhere=tuple(own))
            return watch

    def enter(self) -> None:
        """One call begins that is not looked at; to be followed by ``leave``."""
        with self._lock.held:
            self._enter()

    def _enter(self) -> bool:
        self._going += 1
        self._crowded = self._crowded or self._going > 1
        return self._crowded

    def leave(self) -> bool:
        """One call is over; whether it was alone all the time."""
        with self._lock.held:
            self._going -= 1
            alone = not self._crowded
            self._crowded = self._crowded and self._going > 0
            return alone

    def close(self) -> None:
        """Gives back what it holds."""
        with self._lock.held:
            for watch in self._watches.values():
                watch.close()
            self._watches.clear()


class Look:
    """The look before one call; to be closed."""

    def __init__(self, watching: Watching, watch: Watch | None, whole: bool) -> None:
        self._watching, self._watch, self._whole = watching, watch, whole
        self._open = True

    def changes(self) -> FileChanges:
        """What is different now."""
        if self._watch is None:
            self.close()
            return FileChanges((), (), (), False, _CROWD)
        found = self._watch.after()
        self._open = False
        if not self._watching.leave():
            return replace(found, complete=False, why=_CROWD)
        return found if self._whole else replace(found, complete=False, why=_OUTSIDE)

    def close(self) -> None:
        """Without another look. Idempotent."""
        if self._open:
            self._open = False
            self._watching.leave()


def roots_of(writable: Iterable[str], without: set[str]) -> tuple[str, ...]:
    """The outermost of some directories, but for those to be left out."""
    paths = sorted(set(writable) - without)
    return tuple(
        path for path in paths if not any(path != top and below(path, top) for top in paths)
    )
