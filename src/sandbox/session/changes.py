"""What was created, changed and deleted below some roots between two looks, whoever did it.

A look is a walk over all directories, and each file is known by what no command can put back: the
time of its last change of any kind (ctime), with its inode. Nothing is opened but directories, and
no link is followed. A walk costs 5 microseconds a file, so from the third on the kernel is asked to
tell of changes (inotify, a watch for each directory): where it tells of none, the last look holds.
Where it tells of any, all is walked again: a hard link that was made, written to and removed is an
event in its own directory only.

That takes that a file with one name can get a second one only where it is told of. So the kernel is
not asked where a part is skipped, or where commands may write on the same file system elsewhere.
Not seen without a walk: writing by a command that still runs, through a mapping; flags of
``chattr``. Before Linux 6.13 a ctime is a clock's tick (4 ms): of two changes in one the second can
be missed, if it leaves the size.
"""

from __future__ import annotations

import os
import stat
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from sandbox.errors import InvalidArgument
from sandbox.paths import ancestors, below

if TYPE_CHECKING:
    from sandbox.backends.notices import Contents

__all__ = ["FileChanges", "Watch"]

ENTRIES_MAX = 20_000
_PLAIN_LOOKS = 2  # a session of one command needs no more, and a watch costs what a file does


# What tells a file that has changed; made in C, for each of them.
_Stamp = tuple[int, ...]
_stamp_of = attrgetter(
    *("st_mode", "st_ino", "st_dev", "st_uid", "st_gid", "st_size", "st_mtime_ns", "st_ctime_ns")
)
_MODE = 0
_WHICH = slice(1, 3)  # inode and device
_OWN = slice(5)  # of a directory, without what names in it do to it


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Absolute paths, sorted. A rename is a deletion and a creation.

    A directory is changed when it is another, its owner or mode is, or its ctime and no name in it
    came, went or became another file.
    ``complete``: whether that is all; if not, ``why`` says what was not looked at, and what is
    listed is true all the same. ``skipped``: what was left out because the caller said so.
    """

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    complete: bool = True
    why: str = ""
    skipped: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.created or self.changed or self.deleted or not self.complete)


@dataclass(slots=True)
class _Look:
    """What was there. ``listed``: directories all of whose names are in it."""

    entries: dict[str, _Stamp] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)
    apart: list[str] = field(default_factory=list)  # of which directories do not tell
    why: str = ""


class Watch:
    """Looks at roots before and after; of one call at a time.

    ``roots``: real, absolute paths; those in others count once, and what is missing may come.
    ``skip``: paths that are left out, and said so. ``most``: entries that are looked at.
    ``elsewhere``: where commands may write that is no root (a temporary directory of the host's).
    Raises ``InvalidArgument``.
    """

    def __init__(
        self,
        roots: Sequence[str],
        *,
        skip: Sequence[str] = (),
        most: int = ENTRIES_MAX,
        elsewhere: Sequence[str] = (),
    ) -> None:
        for path in (*roots, *skip, *elsewhere):
            if not isinstance(path, str) or os.path.normpath(path) != path or path[:1] != "/":
                raise InvalidArgument("roots", path, "is no absolute path without '..'")
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise InvalidArgument("most", most, "is no number of entries")
        self._roots = [one for one in dict.fromkeys(roots) if not _is_in_another(one, roots, skip)]
        self._skip, self._most = frozenset(skip), most
        self._elsewhere = tuple(elsewhere)
        self._last: _Look | None = None
        self._looks = 0
        self._ear: Contents | None = None
        self._can_hear = sys.platform == "linux" and not skip

    def before(self) -> None:
        """The first look; what was seen last, where nothing has changed since."""
        if not self._is_still():
            self._last = self._look()

    def after(self) -> FileChanges:
        """What is another since ``before``. Raises ``InvalidArgument`` without one."""
        was = self._last
        if was is None:
            raise InvalidArgument("watch", "...", "there was no look before")
        now = was if self._is_still() else self._look()
        self._last = now
        skipped = tuple(sorted(self._skip))
        if now is was:
            return FileChanges(complete=not was.why, why=was.why, skipped=skipped)
        return _compared(was, now, skipped)

    def close(self) -> None:
        """Gives back what the kernel watches. It can go on, with walks."""
        self._ear, self._can_hear = None, False

    # Whether a look still holds.

    def _is_still(self) -> bool:
        if self._ear is None or self._last is None or self._ear.heard() or self._last.why:
            return False
        return all(_stamp_at(path) == self._last.entries.get(path) for path in self._last.apart)

    def _listen(self) -> None:
        """The kernel tells from this look on, if it is worth it and can be right."""
        self._looks += 1
        if self._ear is not None and not self._ear.is_own:
            self._ear = None
        if self._ear is None and self._can_hear and self._looks > _PLAIN_LOOKS:
            from sandbox.backends.notices import Contents

            self._can_hear = _devices(self._roots).isdisjoint(_devices(self._elsewhere))
            with suppress(OSError):
                self._ear = Contents() if self._can_hear else None
            self._can_hear = self._ear is not None

    # Looking.

    def _look(self) -> _Look:
        self._listen()
        look = _Look()
        todo: deque[tuple[str, _Stamp]] = deque()
        for root in self._roots:
            stamp = _stamp_at(root)
            if stamp is not None:
                look.entries[root] = stamp
            if stamp is not None and stat.S_ISDIR(stamp[_MODE]):
                todo.append((root, stamp))
            else:
                look.apart.append(root)
        seen = []
        while todo and not (look.why and len(look.entries) >= self._most):
            path, stamp = todo.popleft()
            seen.append(stamp[_WHICH])
            self._list(path, stamp, look, todo)
        if self._ear is not None and len(look.entries) >= self._most and look.why:
            self.close()  # it will not be less than that
        if self._ear is not None:
            self._ear.keep(seen)
        return look

    def _list(self, path: str, stamp: _Stamp, look: _Look, todo: deque[tuple[str, _Stamp]]) -> None:
        """All names of a directory; first it is listened to, so that nothing is between."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            look.entries.pop(path)  # gone meanwhile
            return
        except OSError as error:
            look.why = look.why or f"{path}: {error.strerror}"
            return
        try:
            if _stamp_of(os.fstat(fd))[_WHICH] != stamp[_WHICH]:
                look.why = look.why or f"{path}: another directory came there meanwhile"
                return
            if self._ear is not None:
                try:
                    self._ear.listen(fd, stamp[_WHICH])
                except OSError:  # there are too many
                    self.close()
            with os.scandir(fd) as names:
                if self._take(path, names, look, todo):
                    look.listed.add(path)
        except OSError as error:
            look.why = look.why or f"{path}: {error.strerror}"
        finally:
            os.close(fd)

    def _take(
        self,
        path: str,
        names: Iterable[os.DirEntry[str]],
        look: _Look,
        todo: deque[tuple[str, _Stamp]],
    ) -> bool:
        """Whether all of a directory's names were looked at."""
        start, entries, most = path.rstrip("/") + "/", look.entries, self._most
        for entry in names:
            if len(entries) >= most:
                look.why = f"more than {most} entries"
                return False
            inner = start + entry.name
            if inner in self._skip:
                continue
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # gone meanwhile: not there
            entries[inner] = stamp = _stamp_of(info)
            if stat.S_ISDIR(info.st_mode):
                todo.append((inner, stamp))
            elif info.st_nlink > 1:
                look.apart.append(inner)
        return True


def _stamp_at(path: str) -> _Stamp | None:
    try:
        stamp: _Stamp = _stamp_of(os.lstat(path))
    except OSError:
        return None
    return stamp


def _devices(paths: Iterable[str]) -> set[int]:
    """The file systems of paths, and of what is above those that are missing."""
    found = set()
    for path in paths:
        stamps = (_stamp_at(above) for above in ancestors(path))
        found.add(next(stamp[2] for stamp in stamps if stamp is not None))
    return found


def _is_in_another(root: str, roots: Iterable[str], skip: Iterable[str]) -> bool:
    """Whether a root is looked at with one above it: nothing between them is skipped."""
    return any(
        below(root, one) and not any(below(root, s) and below(s, one) for s in skip)
        for one in roots
        if one != root
    )


# What is another.


def _compared(was: _Look, now: _Look, skipped: tuple[str, ...]) -> FileChanges:
    """Only what is known on both sides: a name that was not looked at is neither new nor gone."""
    created = [path for path in now.entries.keys() - was.entries if _is_known(path, was)]
    deleted = [path for path in was.entries.keys() - now.entries if _is_known(path, now)]
    both = [
        (path, stamp, other)
        for path, stamp in was.entries.items()
        if (other := now.entries.get(path, stamp)) != stamp
    ]
    replaced = [path for path, stamp, other in both if _is_other(stamp, other)]
    moved = {os.path.dirname(path) for path in (*created, *deleted, *replaced)}
    changed = [path for path, stamp, other in both if _is_changed(stamp, other, path in moved)]
    why = now.why or was.why
    return FileChanges(
        tuple(sorted(created)),
        tuple(sorted(changed)),
        tuple(sorted(deleted)),
        not why,
        why,
        skipped,
    )


def _is_known(path: str, look: _Look) -> bool:
    """Whether a path that a look does not have was not there then."""
    for above in ancestors(path)[1:]:
        stamp = look.entries.get(above)
        if stamp is not None:
            return above in look.listed or not stat.S_ISDIR(stamp[_MODE])
    return True  # a root, or below one that was not there


def _is_other(was: _Stamp, now: _Stamp) -> bool:
    """Whether a name is another file's by now; an inode may have been used again."""
    return was[_WHICH] != now[_WHICH] or stat.S_IFMT(was[_MODE]) != stat.S_IFMT(now[_MODE])


def _is_changed(was: _Stamp, now: _Stamp, names_differ: bool) -> bool:
    """Of a directory whose names differ, time and size say only that."""
    is_both = stat.S_ISDIR(was[_MODE]) and stat.S_ISDIR(now[_MODE])
    return not (is_both and names_differ and was[_OWN] == now[_OWN])
