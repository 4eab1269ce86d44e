"""What the kernel tells of directories, for all of this process together.

Looking at every path of a layout before every command costs more than all else that is done for
one in Python. The kernel tells of a change before the call that made it returns, so one short read
says that nothing happened anywhere. A user has 128 places to be told at (inotify), so there is one
for the process, and each ``Watch`` hears what concerns its own directories. Giving it back takes
the kernel 10 ms, also at the end of the process: it is kept, and those who run few commands have
none.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

import _sandcore
from sandbox.locks import ForkLock

__all__ = ["Contents", "Watch", "pays"]

_asked = itertools.count()
_EARLY = 16  # times that looking is cheaper than what being told costs at the end


class _News:
    """What was told of the directories of one ``Watch``: the count of it all when it was told."""

    __slots__ = ("count", "of_names", "of_themselves")

    def __init__(self) -> None:
        self.count = self.of_themselves = 0
        self.of_names: dict[str, int] = {}


_left = deque[_News]()  # of whom nobody listens: what is collected may not wait for a lock


class Watch:
    """Hears that names in some directories changed, or that one of these or of ``ways`` went away.

    ``ways``: directories of which only that matters. ``unwatched``: those that nobody tells of,
    since they cannot be read or there are too many, or it is too ``early`` in this process's life.
    Threads may share one; a forked copy may not.
    """

    __slots__ = ("_news", "early", "unwatched")

    def __init__(self, directories: Iterable[str], ways: Iterable[str] = ()) -> None:
        self._news, self.early = _News(), not pays()
        wanted = dict.fromkeys(ways, "") | {path: path for path in directories}
        self.unwatched = tuple(wanted) if self.early else _teller.listen(self._news, wanted)

    def __del__(self, left: deque[_News] = _left) -> None:  # there at the end of all, too
        left.append(self._news)

    def heard(self) -> int:
        """How much was told until now."""
        _teller.hear()
        return self._news.count

    def went(self, since: int) -> bool:
        """Whether a directory went away after so much was told."""
        return self._news.of_themselves > since

    def changed(self, since: int) -> list[str]:
        """The directories in which names changed after so much was told."""
        return [path for path, count in [*self._news.of_names.items()] if count > since]


class Contents:
    """Hears that anything changes in directories: names, what is written into files, their modes.

    It has a place of its own (OSError where there is none), since it is told of every write. Not
    told: what is written through a mapping, or by a name in another directory (a hard link), and
    flags of ``chattr``. For one thread at a time; to a forked copy it is as if everything changed.
    """

    __slots__ = ("_notices", "_numbers", "_owner")

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._notices = _sandcore.Notices()
        self._numbers: dict[tuple[int, ...], int] = {}

    @property
    def is_own(self) -> bool:
        """Whether this is not a forked copy."""
        return self._owner == os.getpid()

    def listen(self, fd: int, key: tuple[int, ...]) -> None:
        """Begins with a directory, if it is not known by its device and inode. Raises OSError."""
        if key not in self._numbers:
            place = f"/proc/self/fd/{fd}/.".encode()
            self._numbers[key] = self._notices.watch(place, contents=True)

    def keep(self, keys: Iterable[tuple[int, ...]]) -> None:
        """No more of all others."""
        for key in self._numbers.keys() - keys:
            self._notices.forget(self._numbers.pop(key))

    def heard(self) -> bool:
        """Whether anything changed since the last time, or may have."""
        if not self.is_own:
            return True
        told = self._notices.take()
        gone = {number for number, of_itself in told if of_itself}
        if gone:  # the numbers may be another directory's by now
            self._numbers = {key: n for key, n in self._numbers.items() if n not in gone}
        return bool(told)


class _Teller:
    def __init__(self) -> None:
        self._lock = ForkLock()
        self._owner = 0
        self._notices: _sandcore.Notices | None = None
        # By what names each listens; by none: of itself only.
        self._listeners: dict[int, dict[_News, set[str]]] = {}
        self._numbers: dict[_News, set[int]] = {}

    def listen(self, news: _News, wanted: dict[str, str]) -> tuple[str, ...]:
        """Begins to tell; of which that cannot be."""
        with self._lock.held:
            self._own()
            self._let_go()
            return tuple(path for path in wanted if not self._add(news, path, wanted[path]))

    def hear(self) -> None:
        """Tells all who listen what there is to be told."""
        with self._lock.held:
            if self._owner != os.getpid():  # a forked copy, of which nobody has told until now
                self._own()
            if self._notices is None:
                return
            for number, of_itself in self._notices.take():
                if number < 0:
                    for news in self._numbers:
                        _tell(news, "")
                for news, paths in self._listeners.get(number, {}).items():
                    for path in ("",) if of_itself else paths:
                        _tell(news, path)

    def _own(self) -> None:
        """What a forked copy reads, its parent would never hear."""
        if self._owner == os.getpid():
            return
        self._owner = os.getpid()
        for news in self._numbers:
            _tell(news, "")
        self._listeners.clear()
        self._numbers.clear()
        self._notices = None
        with suppress(OSError):  # nothing is watched, then
            self._notices = _sandcore.Notices()

    def _add(self, news: _News, path: str, name: str) -> bool:
        if self._notices is None:
            return False
        try:
            number = self._notices.watch(os.fsencode(path))
        except OSError:
            return False
        paths = self._listeners.setdefault(number, {}).setdefault(news, set())
        paths.update({name} - {""})
        self._numbers.setdefault(news, set()).add(number)
        return True

    def _let_go(self) -> None:
        """Of what nobody listens to any more."""
        while _left:
            news = _left.popleft()
            for number in self._numbers.pop(news, ()):
                listeners = self._listeners.get(number, {})
                listeners.pop(news, None)
                if not listeners and self._notices is not None:
                    self._listeners.pop(number, None)
                    self._notices.forget(number)


def _tell(news: _News, path: str) -> None:
    """The count comes last: who has read it finds what it counts."""
    count = news.count + 1
    if path:
        news.of_names[path] = count
    else:
        news.of_themselves = count
    news.count = count


_teller = _Teller()


def pays() -> bool:
    """Whether so much is looked at in this process that being told is cheaper."""
    return next(_asked) > _EARLY
