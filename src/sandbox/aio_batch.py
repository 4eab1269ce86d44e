"""``run_many`` for programs that await: see ``batch``, and ``aio``.

All runs in the task that asks for results, but for a source that is awaited itself: that has a task
of its own, so that what is over can be given while the next command takes its time to come.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
)
from typing import Any, Protocol, Unpack

from sandbox.batch import (
    AHEAD,
    ASKING,
    Boxes,
    Command,
    Done,
    Due,
    Failures,
    check_batch,
    concurrency_of,
    done_of,
)
from sandbox.flights import Flight
from sandbox.live import Sandbox
from sandbox.loops import Loop, Moment, current
from sandbox.policy import SandboxPolicy
from sandbox.request import Args, RunOptions
from sandbox.towers import tower_of

__all__ = ["run_many"]


class _Holder(Protocol):
    """An ``aio.Sandbox``."""

    @property
    def sandbox(self) -> Sandbox:
        """The same one, for what is not awaited."""


_Commands = Iterable[Args | Command] | AsyncIterable[Args | Command]


class _Listed:
    """Commands from an iterable: asking for one takes the loop's time."""

    def __init__(self, commands: Iterable[Args | Command]) -> None:
        self._items = iter(commands)
        self.has_more = True

    def next(self) -> list[Args | Command]:
        """The next one, none at the end."""
        for found in self._items:
            return [found]
        self.has_more = False
        return []

    async def close(self) -> None:
        """Nothing of it runs."""


class _Awaited:
    """Commands that are awaited, in one task from the first to the last, one ahead at the most."""

    def __init__(
        self, commands: AsyncIterable[Args | Command], loop: Loop, wake: Callable[[], None]
    ) -> None:
        self._commands, self._loop, self._wake = commands, loop, wake
        self._come = deque[Args | Command]()
        self._wanted = loop.moment()
        self._ended = loop.moment()
        self._error: BaseException | None = None
        self._cancel: Callable[[], object] | None = None
        self._asked = False
        self._is_over = False

    @property
    def has_more(self) -> bool:
        """Whether there may be another one."""
        return bool(self._come) or not self._is_over or self._error is not None

    def next(self) -> list[Args | Command]:
        """The next one that is there; else it is asked for. Raises what the source raised."""
        if self._come:
            return [self._come.popleft()]
        error, self._error = self._error, None
        if error is not None:
            raise error
        if not self._asked and not self._is_over:
            self._asked = True
            if self._cancel is None:
                self._cancel = self._loop.spawn(self._ask, self._end)
            else:
                self._wanted.come()
        return []

    async def _ask(self) -> None:
        try:
            async for command in self._commands:
                self._come.append(command)
                self._asked, self._wanted = False, self._loop.moment()
                self._wake()
                await self._wanted.wait()
        finally:  # a generator may hold what is of this task
            if isinstance(self._commands, AsyncGenerator):
                await self._commands.aclose()

    def _end(self, error: BaseException | None) -> None:
        self._error, self._is_over = error, True
        self._ended.come()
        self._wake()

    async def close(self) -> None:
        """Ends its task, and waits for that."""
        if self._cancel is not None and not self._is_over:
            self._cancel()
            await self._ended.outlast()


class _Batch:
    """See ``batch._Batch``."""

    def __init__(
        self,
        commands: _Commands,
        boxes: Boxes,
        loop: Loop,
        most: int,
        ordered: bool,
        how: RunOptions,
    ) -> None:
        self._boxes, self._loop, self._tower = boxes, loop, tower_of(loop)
        self._most, self._how = most, how
        self._source: _Listed | _Awaited = (
            _Awaited(commands, loop, self._wake)
            if isinstance(commands, AsyncIterable)
            else _Listed(commands)
        )
        self._begun: dict[int, tuple[Flight, Args | Command]] = {}
        self._landed = deque[Flight]()
        self._due = Due(ordered)
        self._moment: Moment | None = None  # who waits for a change
        self._ended: Moment | None = None  # who waits for the end of all
        self._count = 0
        self._more = True

    def stop(self) -> None:
        """Starts no more."""
        self._more = False

    async def goes_on(self) -> bool:
        """Starts some, and waits until something has happened; false: that was all."""
        there_is_more = self._fill()
        if not (self._begun or self._due or (self._more and self._source.has_more)):
            return False
        if there_is_more or self._landed or self._due.has_one:
            await self._loop.rest()
        else:
            self._moment = self._loop.moment()
            await self._moment.wait()
        return True

    def given(self) -> Iterator[Done]:
        """What is there to be given."""
        while self._landed:
            flight = self._landed.popleft()
            self._due.put(done_of(flight, self._begun.pop(flight.token)[1]))
        yield from self._due.take()

    def _fill(self) -> bool:
        """Starts what there is room for, and is there; whether there is more of that."""
        until = time.monotonic() + ASKING
        while (
            self._more
            and self._source.has_more
            and len(self._begun) < self._most
            and len(self._due) < self._most * AHEAD
        ):
            if time.monotonic() > until:
                return True
            found = self._source.next()
            if not found:
                break
            index, command = self._count, found[0]
            flight = self._due.begin(self._boxes, self, command, self._how, index)
            if flight is not None:
                self._begun[index] = flight, command
            self._count += 1
        return False

    def start(
        self,
        box: Sandbox,
        args: Args,
        how: RunOptions,
        token: Any = None,
        after: Callable[[], None] | None = None,
    ) -> Flight:
        """See ``Flights.start``: in those of the loop."""
        return self._tower.start(self._loop, box, args, how, self._told, token, after)

    def _told(self, flight: Flight) -> None:
        self._landed.append(flight)
        self._wake()
        if self._ended is not None and len(self._landed) == len(self._begun):
            self._ended.come()

    def _wake(self) -> None:
        if self._moment is not None:
            self._moment.come()

    async def close(self) -> None:
        """Ends what runs, and waits for that, whoever cancels meanwhile."""
        for flight, _ in self._begun.values():
            self._tower.kill(flight)
        try:
            await self._source.close()
        finally:
            if len(self._landed) < len(self._begun):
                self._ended = self._loop.moment()
                await self._ended.outlast()


def run_many(
    commands: _Commands,
    policy: SandboxPolicy | None = None,
    *,
    sandbox: Sandbox | _Holder | None = None,
    workspace: Any = None,
    workspaces: Any = None,
    concurrency: int | None = None,
    ordered: bool = True,
    failures: Failures = "keep",
    **how: Unpack[RunOptions],
) -> AsyncIterator[Done]:
    """As ``sandbox.run_many``, for ``async for``. ``commands`` may be an async iterable as well.

    That is asked for the next one when there is room for it, in a task of its own, and what is over
    is given meanwhile; a generator is closed in the end. Another iterable is asked as there, and
    what it takes is the loop's time.
    ``sandbox`` may be an ``aio.Sandbox``. Who is cancelled while waiting for a result ends all of
    them, as ``aclose`` does, and goes on when they are dead; who leaves the loop half way is to use
    ``contextlib.aclosing``.
    """
    check_batch(commands, failures, how)
    most = concurrency_of(concurrency)
    box = sandbox if isinstance(sandbox, Sandbox) or sandbox is None else sandbox.sandbox
    boxes = Boxes(policy, box, workspace, workspaces, most)
    return _run(commands, boxes, most, ordered, failures, how)


async def _run(
    commands: _Commands,
    boxes: Boxes,
    most: int,
    ordered: bool,
    failures: Failures,
    how: RunOptions,
) -> AsyncIterator[Done]:
    failed: Exception | None = None
    batch = _Batch(commands, boxes, current(), most, ordered, how)
    try:
        while await batch.goes_on():
            for done in batch.given():
                if done.error is None or failures == "keep":
                    yield done
                elif failures == "raise":
                    raise done.error
                else:
                    failed = failed or done.error
                    batch.stop()
        if failed is not None:
            raise failed
    finally:
        try:
            await batch.close()
        finally:
            boxes.close()
