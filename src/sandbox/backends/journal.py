"""Names that were planted when everything was killed at once: found by the next start.

The root process of a sandbox keeps a note in the kernel as long as it lives (`helper/journal.c`):
which directory, and which protected names were missing there. A note whose root and caller are dead
is of a sandbox that nobody has looked after. What is now at one of its names is moved aside, as it
would have been then.

It may be the user's own, made after the kill: that cannot be told apart. So only a protected name
of the sandbox that starts now is moved, in the same directory (device, number and time of birth),
once, and the denial says how to undo it. Notes end a day after the last sign of life, or with the
machine.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import lru_cache
from typing import Literal, NamedTuple

import _sandcore
from sandbox.backends.restore import restore
from sandbox.backends.snapshot import Node
from sandbox.denial import Denial
from sandbox.locks import ForkLock
from sandbox.paths import below
from sandbox.resolve import ResolvedPolicy

__all__ = ["Journal", "forget"]

_HEAD = b"sandcore:1:"
_CROWDED = 32  # notes: half of what an ordinary user may have


class _Note(NamedTuple):
    """What a note says beside its directory; ``left`` is milliseconds of the machine's time."""

    space: int  # of process numbers
    root: int
    caller: int
    left: int
    names: frozenset[bytes]


class Journal:
    """What the notes of the dead led to, until somebody hears of it. Threads may share it."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._denials: list[Denial] = []
        self._own: frozenset[int] = frozenset()  # notes of this process's own living sandboxes

    def has_notes_of(self, which: os.stat_result) -> bool:
        """Whether there is one of this directory: of others, whose sandboxes live, there are."""
        number = os.major(which.st_dev) << 32 | os.minor(which.st_dev)
        return bool(_sandcore.notes(_HEAD + b"%d:%d:" % (number, which.st_ino)))

    def settle(self, resolved: ResolvedPolicy) -> bool:
        """Moves aside what the dead have left in the writable directories; whether there was any.

        To be called before anything is made from what lies there. Raises nothing for what it finds.
        """
        notes = _sandcore.notes(_HEAD)
        if not notes:
            return False
        roots = _directories(resolved)
        # One of those of other directories, where they are many: the dead must not fill the room.
        chosen = time.monotonic_ns() % len(notes) if len(notes) >= _CROWDED else -1
        denials: list[Denial] = []
        known, own = self._own, []
        for i, (key, text) in enumerate(notes):
            if key in known:
                own.append(key)
                continue
            where, rest = _parts(text)
            root = roots.get(where)
            note = _read(rest) if root is not None or i == chosen else None
            owner = _owner(note) if note is not None else "alive"
            if owner == "alive" and note is not None and note.caller == os.getpid():
                own.append(key)
            # Whoever takes the note away acts upon it. What this process ran it has looked after.
            if owner == "alive" or not _sandcore.forget(key):
                continue
            if note is not None and root is not None and owner == "dead":
                denials += _move(root, note.names, resolved)
        with self._lock.held:
            self._denials += denials
            self._own = frozenset(own)
        return bool(denials)

    def take(self, roots: tuple[str, ...]) -> tuple[Denial, ...]:
        """The denials in these directories, once."""
        if not self._denials:
            return ()
        with self._lock.held:
            found = [one for one in self._denials if any(below(one.what, root) for root in roots)]
            self._denials = [one for one in self._denials if one not in found]
        return tuple(found)


def forget(root: int) -> None:
    """Takes away what a root process has left that was killed, and that this process ran."""
    for key, text in _sandcore.notes(_HEAD):
        note = _read(_parts(text)[1])
        if note is not None and (note.root, note.caller) == (root, os.getpid()):
            _sandcore.forget(key)


def _parts(text: bytes) -> tuple[bytes, bytes]:
    """Of a note: which directory, and the rest."""
    fields = text[len(_HEAD) :].split(b":", 3)
    return b":".join(fields[:3]), b"".join(fields[3:])


def _directories(resolved: ResolvedPolicy) -> dict[bytes, str]:
    """The writable directories that have protected names, by what notes call them."""
    writable = frozenset(resolved.writable)
    roots = list(dict.fromkeys(os.path.dirname(path) for path in resolved.all_protected))
    roots = [root for root in roots if root in writable]
    state = _sandcore.Stamps((), [os.fsencode(root) for root in roots]).take()
    size = _sandcore.Stamps.SIZE
    return {_identity(state[i * size :]): root for i, root in enumerate(roots)}


def _identity(stamp: bytes) -> bytes:
    """Device, number and time of birth of a stamp, which has the size before the last."""
    device, inode, _, birth = (int.from_bytes(stamp[i : i + 8], "little") for i in range(0, 32, 8))
    return b"%d:%d:%d" % (device, inode, birth)


def _read(rest: bytes) -> _Note | None:
    """The note; None for what is none."""
    fields = rest.split(b":", 4)
    try:
        space, root, caller, left = map(int, fields[:4])
        return _Note(space, root, caller, left, frozenset(fields[4].split(b"/")))
    except (ValueError, IndexError):
        return None


def _owner(note: _Note) -> Literal["alive", "dead", "ours"]:
    """Whether both of its processes are dead, as far as can be told; or all but this one."""
    own = os.getpid()
    if note.space != _space(own):
        return "alive"  # or not: its numbers mean nothing here
    if note.caller == own and not _is_later(_began(own), note.left):
        return "ours" if _has_ended(note.root) else "alive"
    return (
        "dead" if _is_dead(note.root, note.left) and _is_dead(note.caller, note.left) else "alive"
    )


@lru_cache(maxsize=1)
def _space(own: int) -> int:
    """Which numbers of processes there are here."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


@lru_cache(maxsize=1)
def _began(own: int) -> int:
    """When this process was started; 0: a note of its own number is taken for its own."""
    found = _look(own)
    return found[1] if found is not None else 0


def _is_missing(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # another user's
    return False


def _has_ended(child: int) -> bool:
    """Whether a child of this process has ended, which may not have been waited for."""
    try:
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, child, flags) is not None
    except ChildProcessError:
        return _is_missing(child)


def _look(pid: int) -> tuple[bool, int] | None:
    """Whether a process has ended without being waited for, and when it began, in ticks."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # From the third field on: the second is a name, with anything in it.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None  # hidden, or it has ended just now
    return fields[0] in (b"Z", b"X") and int(fields[17]) <= 1, int(fields[19])


def _is_later(began: int, left: int) -> bool:
    return began * 1000 > left * os.sysconf("SC_CLK_TCK")


def _is_dead(pid: int, left: int) -> bool:
    """Whether a process has ended that was there when a note was left."""
    if _is_missing(pid):
        return True
    found = _look(pid)
    # What began later is another one with its number.
    return found is not None and (found[0] or _is_later(found[1], left))


def _move(root: str, names: frozenset[bytes], resolved: ResolvedPolicy) -> tuple[Denial, ...]:
    """Moves aside what is at those of the names that are protected now, too."""
    protected = [os.path.split(path) for path in resolved.all_protected]
    missing = [os.fsencode(name) for above, name in protected if above == root]
    nodes = tuple(Node(name, "absent", "same") for name in missing if name in names)
    try:
        found = os.stat(root)
    except OSError:
        return ()
    moved = restore([(os.fsencode(root), Node(b"", "dir", "pin", found, children=nodes))], set())
    why = "left by a sandbox that was killed, or made since"
    return tuple(replace(one, detail=f"{why}: {one.detail}") for one in moved)
