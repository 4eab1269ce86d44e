"""macOS: policies become Seatbelt profiles, and commands run under ``/usr/bin/sandbox-exec``.

Nothing here is compiled. Each seat is a small Python process that keeps one command at a time
(``keeper``). Whether a profile can be had is found out by having it, once for each sandbox: what
``sandbox-exec`` says of a program that is known is certain, while what a command prints is its own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

from sandbox.backends.apple import Marks
from sandbox.backends.base import ConfinementLost, Direct, Joint, Question
from sandbox.backends.jobs import Engine
from sandbox.backends.macos_seat import MacSeat
from sandbox.backends.rlimits import hard_limits
from sandbox.backends.search import literal_part
from sandbox.backends.seatbelt import SANDBOX_EXEC, writable_above
from sandbox.backends.settings import resolve_seatbelt
from sandbox.backends.threads import ThreadEngine
from sandbox.backends.unenforced import check_seatbelt, weaker_seatbelt, weaker_seatbelt_limits
from sandbox.docks import Workspace
from sandbox.entries import Access
from sandbox.errors import Unenforceable
from sandbox.limits import Limits
from sandbox.locks import ForkLock
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy, resolve
from sandbox.result import Enforcement

__all__ = ["MacBackend", "MacConfinement"]

_NO_CHILDREN = "children of the caller's own cannot be ended with their trees on macOS"


class MacBackend:
    """Seatbelt. ``program`` is another ``sandbox-exec``, for tests; nothing else sets it."""

    def __init__(self, program: str = SANDBOX_EXEC) -> None:
        self._program = program

    def engine(self) -> Engine:
        """See ``Backend.engine``."""
        return cast(Engine, ThreadEngine())

    def isolations(self, policy: SandboxPolicy) -> Sequence[str]:
        """See ``Backend.isolations``."""
        if policy.unconfined:
            return ("none",)
        check_seatbelt(policy, os.path.exists(self._program))
        return ("seatbelt",)

    def resolve(self, question: Question, isolation: str) -> ResolvedPolicy:
        """See ``Backend.resolve``."""
        if isolation == "none":
            return resolve(*question.asked)
        return resolve_seatbelt(question)

    def start(self, resolved: ResolvedPolicy, isolation: str) -> MacConfinement:
        """See ``Backend.start``."""
        return MacConfinement(resolved, isolation, self._program)

    def direct(self, resolved: ResolvedPolicy) -> Direct:
        """See ``Backend.direct``: there is none here."""
        raise Unenforceable("sandbox.subprocess", _NO_CHILDREN, "sandbox.run, Sandbox.popen")


class MacConfinement:
    """A profile, and the keepers of its commands. See ``Confinement``."""

    def __init__(self, resolved: ResolvedPolicy, isolation: str, program: str) -> None:
        self._owner = (os.getpid(), os.getuid(), os.getgid())
        self.resolved = resolved
        self.isolation = isolation
        self.program = program
        self._lock = ForkLock()
        self._idle: list[MacSeat] = []
        self._taken: set[MacSeat] = set()
        self._closed = self._retired = False
        self._excepted = _excepted(resolved)
        self._links = _links(self._excepted)
        self.hard_limits = hard_limits()
        self._marked = Marks().known
        self.enforcement = self.enforcement_of(resolved.policy.limits)
        if isolation == "seatbelt":
            self._try_profile()

    def _try_profile(self) -> None:
        seat = self.seat(self.resolved.policy.limits)
        try:
            seat.check_profile()
        except BaseException:
            seat.leave()
            self.close()
            raise
        seat.leave()

    def enforcement_of(self, limits: Limits) -> Enforcement:
        """What is enforced where a command has these limits."""
        parts = tuple(weaker_seatbelt_limits(limits))
        if self.isolation == "seatbelt":
            parts = (*weaker_seatbelt(self.resolved, self._marked), *parts)
        return Enforcement(self.isolation, parts)

    def is_current(self) -> bool:
        """See ``Confinement.is_current``: same process and user, no link where none was."""
        same = self._owner == (os.getpid(), os.getuid(), os.getgid())
        return not self._closed and same and self._links == _links(self._excepted)

    def seat(self, limits: Limits) -> MacSeat:
        """See ``Confinement.seat``."""
        with self._lock.held:
            if self._closed:
                raise ConfinementLost("it was closed")
            seat = self._free_seat() or MacSeat(self)
            self._taken.add(seat)
        try:
            seat.prepare(limits)
        except BaseException:
            seat.leave()
            raise
        return seat

    def _free_seat(self) -> MacSeat | None:
        """An idle one whose keeper is there."""
        while self._idle:
            seat = self._idle.pop()
            if seat.lane.is_free():
                return seat
            seat.close()
        return None

    def give_back(self, seat: MacSeat) -> None:
        """Keeps a seat for the next command, unless this is over."""
        with self._lock.held:
            self._taken.discard(seat)
            if not self._closed and not self._retired and seat.lane.usable:
                self._idle.append(seat)
                return
        seat.close()

    def joint(self) -> Joint:
        """See ``Confinement.joint``: there is none here."""
        raise Unenforceable("sandbox=", _NO_CHILDREN, "sandbox.run, Sandbox.popen")

    @property
    def closed(self) -> bool:
        """See ``Confinement.closed``."""
        return self._closed

    @property
    def busy(self) -> bool:
        """See ``Confinement.busy``."""
        return bool(self._taken)

    @property
    def lying(self) -> Workspace | None:
        """See ``Confinement.lying``: nothing is moved here."""
        return None

    def dock(self, base: ResolvedPolicy, workspace: str, once: bool = False) -> None:
        """See ``Confinement.dock``: who has namespaces only gets that far."""
        raise ConfinementLost("macOS has no docks")

    def settle(self) -> None:
        """See ``Confinement.settle``: nothing is on its way."""

    def clear(self) -> None:
        """See ``Confinement.clear``: each command had a directory of its own."""

    def retire(self) -> None:
        """See ``Confinement.retire``."""
        with self._lock.held:
            self._retired = True
            idle, self._idle = self._idle, []
        for seat in idle:
            seat.close()

    def close(self) -> None:
        """See ``Confinement.close``."""
        with self._lock.held:
            self._closed = True
            taken = list(self._taken)
        for seat in taken:
            seat.lane.abandon()
        self.retire()

    def __del__(self) -> None:
        # What never got as far as seats has nothing to close; a forked copy leaves them alone.
        if hasattr(self, "_links") and self._owner[0] == os.getpid():
            self.close()


def _excepted(resolved: ResolvedPolicy) -> tuple[str, ...]:
    """The paths that a profile excepts, and those above them in what may be written.

    There a command makes links.
    """
    table = resolved.table()
    kept = (path for path, access in table.items() if access is not Access.WRITE)
    patterns = (literal_part(pattern).rstrip("/") + "/*" for pattern in resolved.patterns)
    denied = (place.path for place in resolved.denied)
    paths = (*denied, *kept, *patterns, *resolved.all_protected)
    return tuple(dict.fromkeys((*paths, *writable_above(table, paths))))


def _links(paths: Sequence[str]) -> tuple[str, ...]:
    """Which of the paths are links now: a profile would except the wrong ones."""
    found = []
    for path in paths:
        with suppress(OSError):
            if stat.S_ISLNK(os.lstat(path).st_mode):
                found.append(path)
    return tuple(found)
