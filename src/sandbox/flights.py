"""Commands that are under way at the same time: what ``run_many``, ``Pool`` and ``aio`` share.

Each runs in a sandbox, and all are behind one fd that is readable when one is over. One thread
starts them and takes them; nothing here waits but ``over``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from sandbox.backends.base import ConfinementLost
from sandbox.backends.jobs import Engine, Job
from sandbox.errors import SandboxException
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
        self.error: SandboxException | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end."""
        return self.result is not None or self.error is not None

    def start(self, engine: Engine) -> None:
        """Starts it; it may be over at once."""
        try:
            self.job = self._ready.seat.submit(engine, self._ready.request, self)
        except ConfinementLost as lost:
            self.error = self._box.lost(lost)
            self.leave()
            return
        except BaseException:
            self.leave()
            raise
        if self.job.outcome is not None:  # it could not be asked for
            self.land()

    def land(self) -> None:
        """Takes what came of it, and gives back what it held."""
        assert self.job is not None
        seat = self._ready.seat
        try:
            outcome, denials = seat.settle(self.job)
            result = self._box.result(self._ready, outcome, denials, seat.enforcement)
            self.result = result.check() if self._check else result
        except ConfinementLost as lost:
            self.error = self._box.lost(lost)
        except SandboxException as error:
            self.error = error
        finally:
            self.leave()

    def leave(self) -> None:
        """Gives back what it held."""
        self._ready.seat.leave()
        if self._after is not None:
            self._after()


class Flights:
    """Commands under way; a context manager, at whose end all of them are dead."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._owner = os.getpid()
        self._going: set[Flight] = set()

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
        """How many are under way, or over and were not taken."""
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
        """Starts a command, with options as for ``Sandbox.run``; ``after`` is called at its end.

        One that is over at once never is under way. Raises as ``Sandbox.run`` for what makes no
        sense; then ``after`` is not called.
        """
        check = bool(how.get("check"))
        flight = Flight(box, box.ready(args, how), check, token, after)
        flight.start(self._engine)
        if not flight.is_over:
            self._going.add(flight)
        return flight

    def over(self, timeout: float | None = 0.0) -> list[Flight]:
        """Those that are over; waits for one so many seconds at most, None: until there is one.

        Nothing when none is under way. Raises what a Python signal handler raises.
        """
        return self.landed(self._engine.take(timeout))

    def wait(self) -> Sequence[Job]:
        """As ``over(None)``, without the last part, ``landed``: for another thread than starts."""
        return self._engine.take(None)

    def landed(self, jobs: Sequence[Job]) -> list[Flight]:
        """The commands of jobs that are over, with what came of them."""
        found = []
        for job in jobs:
            flight: Flight = job.token
            self._going.discard(flight)
            flight.land()
            found.append(flight)
        return found

    def kill(self, flight: Flight) -> None:
        """Ends a command and all below it; it is over when that is dead."""
        if flight in self._going:
            self._engine.kill(flight.job)

    def close(self) -> None:
        """Ends all of them, and waits for that. Idempotent; a forked copy leaves them alone."""
        if self._owner != os.getpid():
            self._going.clear()
        for flight in list(self._going):
            self.kill(flight)
        while self._going:
            self.over(None)
        self._engine.close()
