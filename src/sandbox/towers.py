"""The commands of one event loop: one fd is watched for all of them.

Whoever starts one says what is to be called when it is over, on the loop's own thread.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from typing import Any

from sandbox.backends.choose import choose
from sandbox.backends.jobs import Engine
from sandbox.flights import Flight, Flights
from sandbox.live import Sandbox
from sandbox.loops import Loop
from sandbox.request import Args, RunOptions
from sandbox.result import Result

__all__ = ["Tower", "tower_of"]


class Tower:
    """The commands of one event loop, and who waits for each."""

    def __init__(self, engine: Engine) -> None:
        self._flights = Flights(engine)
        self._waiting: dict[Flight, Callable[[Flight], None]] = {}
        self._watching = False
        _towers.add(self)

    def start(
        self,
        loop: Loop,
        box: Sandbox,
        args: Args,
        how: RunOptions,
        told: Callable[[Flight], None],
        token: Any = None,
        after: Callable[[], None] | None = None,
    ) -> Flight:
        """See ``Flights.start``. ``told`` is called when it is over, unless it is at once."""
        flight = self._flights.start(box, args, how, token, after)
        if not flight.is_over:
            self._waiting[flight] = told
            if not self._watching:
                self._watching = True
                loop.watch(self._flights.fileno(), self._land, self._end)
        return flight

    async def fly(
        self,
        loop: Loop,
        box: Sandbox,
        args: Args,
        how: RunOptions,
        after: Callable[[], None] | None,
    ) -> Result:
        """Runs one. Raises as ``Sandbox.run``."""
        moment = loop.moment()
        flight = self.start(loop, box, args, how, lambda _: moment.come(), after=after)
        if not flight.is_over:
            try:
                await moment.wait()
            except GeneratorExit:  # its loop has ended: there is nothing that could be awaited
                self.kill(flight)
                raise
            except BaseException:
                self.kill(flight)
                await moment.outlast()
                raise
        if flight.error is not None:
            raise flight.error
        assert flight.result is not None
        return flight.result

    def kill(self, flight: Flight) -> None:
        """Ends one; it is over when that is dead."""
        self._flights.kill(flight)

    def close(self) -> None:
        """Ends what runs."""
        self._flights.close()

    def _end(self) -> None:
        self._flights.kill_all()
        while self._land(None):
            pass

    def _land(self, timeout: float | None = 0.0) -> bool:
        for flight in self._flights.over(timeout):
            told = self._waiting.pop(flight, None)
            if told is not None:
                told(flight)
        self._watching = bool(self._waiting)
        return self._watching


_towers: weakref.WeakSet[Tower] = weakref.WeakSet()


def _close() -> None:
    """At exit: commands of loops that were closed early, or never came to their end."""
    for tower in list(_towers):
        tower.close()


atexit.register(_close)


def tower_of(loop: Loop) -> Tower:
    """That of a loop."""
    return loop.once(lambda: Tower(choose().engine()))
