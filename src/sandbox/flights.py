"""Commands that are under way at the same time: what ``run_many``, ``Pool`` and ``aio`` share.

Each runs in a sandbox, and all are behind one fd that is readable when one is over. Nothing here
waits but ``over`` and ``wait``. What was taken of the engine is landed, whatever is raised between.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any

from sandbox.backends.base import ConfinementLost
from sandbox.backends.jobs import Engine, Job
from sandbox.errors import InvalidArgument
from sandbox.live import Ready, Sandbox
from sandbox.request import Args, RunOptions
from sandbox.result import Result

__all__ = ["Flight", "Flights"]


class Flight:
    """One command: over when it has a ``result``, or an ``error`` that is to be raised.

    ``token`` is whatever it was started with.
    """

    __slots__ = ("_after", "_box", "_check", "_ready", "error", "job", "result", "token")

    def __init__(
        self,
        box: Sandbox,
        ready: Ready,
        check: bool,
        token: Any,
        after: Callable[[], None] | None,
    ) -> None:
        self._box = box
        self._ready = ready
        self._check = check
        self._after = after
        self.token = token
        self.job: Job | None = None
        self.result: Result | None = None
        self.error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end."""
        return self.result is not None or self.error is not None

    def start(self, engine: Engine) -> None:
        """Starts it; it may be over at once. Raises before anything was begun."""
        try:
            self.job = self._ready.seat.submit(engine, self._ready.request, self)
        except ConfinementLost as lost:
            self.error = self._box.lost(lost)
            self._leave()
            return
        except BaseException:
            self._ready.seat.leave()
            raise
        if self.job.at_once:
            self.land(self.job)

    def land(self, job: Job) -> None:
        """Takes what came of it, once, and gives back what it held.

        What is not an ``Exception`` is raised, too: an interrupt, say.
        """
        seat = self._ready.seat
        try:
            outcome, denials = seat.settle(job)
            result = self._box.result(self._ready, outcome, denials, seat.enforcement)
            self.result = result.check() if self._check else result
        except ConfinementLost as lost:
            self.error = self._box.lost(lost)
        except Exception as error:
            self.error = error
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.job = None  # which refers to this
            self._leave()

    def _leave(self) -> None:
        self._ready.seat.leave()
        if self._after is not None:
            self._after()


class Flights:
    """Commands under way; a context manager, at whose end all of them are dead."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._owner = os.getpid()
        self._going: set[Flight] = set()
        self._taken: deque[Job] = deque()  # of the engine, not landed
        self._landed: list[Flight] = []  # not told of

    def __enter__(self) -> Flights:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __len__(self) -> int:
        """How many are under way, or over and were not landed."""
        return len(self._going)

    def fileno(self) -> int:
        """To wait for: readable when ``over`` has something."""
        return self._engine.fileno()

    def start(
        self,
        box: Sandbox,
        args: Args,
        how: RunOptions,
        token: Any = None,
        after: Callable[[], None] | None = None,
    ) -> Flight:
        """Starts a command, with options as for ``Sandbox.run`` but ``terminal``.

        ``after`` is called at its end. One that is over at once never is under way. Raises as
        ``Sandbox.run`` for what makes no sense; then ``after`` is not called.
        """
        if how.get("terminal"):
            raise InvalidArgument("terminal", True, "is for one command at a time", "Sandbox.run")
        check = bool(how.get("check"))
        flight = Flight(box, box.ready(args, how), check, token, after)
        self._going.add(flight)  # it may be taken before this comes to its end
        try:
            flight.start(self._engine)
        except BaseException:
            self._going.discard(flight)
            raise
        if flight.is_over:
            self._going.discard(flight)
        return flight

    def over(self, timeout: float | None = 0.0) -> list[Flight]:
        """Those that are over; waits for one so many seconds at most, None: until there is one.

        Nothing when none is under way. Raises what a Python signal handler raises.
        """
        self._taken.extend(self._engine.take(timeout if not self._taken else 0.0))
        return self.landed()

    def wait(self) -> None:
        """As ``over(None)`` without the last part, ``landed``: beside a thread that starts some."""
        self._taken.extend(self._engine.take(None))

    def landed(self) -> list[Flight]:
        """What was waited for, with what came of it."""
        while self._taken:
            job = self._taken.popleft()
            flight: Flight = job.token
            self._going.discard(flight)
            self._landed.append(flight)
            flight.land(job)
        found, self._landed = self._landed, []
        return found

    def kill(self, flight: Flight) -> None:
        """Ends a command and all below it; it is over when that is dead."""
        if flight in self._going and flight.job is not None:
            self._engine.kill(flight.job)

    def kill_all(self) -> None:
        """Ends all that are under way; they are over when they are dead."""
        for flight in list(self._going):
            self.kill(flight)

    def close(self) -> None:
        """Ends all of them, and waits for that. Idempotent; a forked copy leaves them alone."""
        mine = self._owner == os.getpid()
        if mine:
            self.kill_all()
        while mine and (len(self._engine) or self._taken):
            self.over(None)
        self._going.clear()
        self._engine.close()
