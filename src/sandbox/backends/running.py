"""Commands that go on in a lane while the caller does other things.

The lane sees to the end of each by itself: it watches the clock, and sweeps the tree when the
command ends. What the guard has to put back waits for somebody who asks what came of it.
"""

from __future__ import annotations

import _sandcore
from sandbox.backends.audit import Hearing, heard
from sandbox.backends.base import ConfinementLost, Outcome, Request
from sandbox.backends.guard import Guard
from sandbox.backends.journal import forget
from sandbox.denial import Denial

__all__ = ["LaneRunning"]


class LaneRunning:
    """A command in a lane. See ``Running``, and ``Seat.start`` for what it is made of."""

    __slots__ = ("_denials", "_guard", "_heard", "_hearing", "_lane", "pid")

    def __init__(
        self,
        lane: _sandcore.Lane,
        guard: Guard | None,
        hearing: Hearing | None,
        request: Request,
        owns_terminal: bool,
    ) -> None:
        self._lane = lane
        self._guard = guard
        self._hearing = hearing
        self._heard: Outcome | None = None
        self._denials: tuple[Denial, ...] | None = None
        if guard is not None:
            guard.before()
        try:
            self.pid = lane.start(
                request.programs,
                request.argv,
                request.env,
                request.env_count,
                request.cwd,
                fds=(request.stdin, request.stdout, request.stderr),
                limits=request.limits,
                memory=request.memory,
                timeout=request.timeout,
                terminal=owns_terminal,
            )
        except _sandcore.LaneLost as error:
            raise ConfinementLost(str(error), self._after()) from None
        except BaseException:
            if guard is not None:
                guard.found(guard.after())  # there is no result of this one
            raise

    def wait(self, timeout: float | None) -> tuple[Outcome, tuple[Denial, ...]] | None:
        """See ``Running.wait``."""
        try:
            outcome = self._lane.wait(timeout)
        except _sandcore.LaneLost as error:
            raise ConfinementLost(str(error), self._after()) from None
        if outcome is None:
            return None
        denials = self._after()
        if not outcome.started and self._guard is not None:
            self._guard.found(denials)  # there is no result of this one
            self._denials = ()
        if self._heard is None:
            self._heard = heard(self._hearing, outcome)
        return self._heard, denials

    def fileno(self) -> int:
        """See ``Running.fileno``."""
        return self._lane.fileno()

    def kill(self) -> None:
        """See ``Running.kill``."""
        self._lane.kill()

    def signal(self, number: int) -> None:
        """See ``Running.signal``."""
        self._lane.signal(number)

    def _after(self) -> tuple[Denial, ...]:
        """What was put back, once its tree is dead."""
        if self._denials is None:
            self._denials = self._guard.after() if self._guard is not None else ()
            if not self._lane.usable:
                forget(self._lane.helper.pid)
        return self._denials
