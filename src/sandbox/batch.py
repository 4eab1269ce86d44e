"""Thousands of commands, as they come.

So many at a time, each in a sandbox of its own for as long as it runs: it finds nothing in /tmp, in
shared memory or on the network that another one has left. With ``sandbox`` they share that one. No
thread waits for a command; the engine's does, for all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Unpack

from sandbox.backends.choose import choose
from sandbox.bars import shown
from sandbox.errors import InvalidArgument, SandboxException
from sandbox.flights import Flight, Flights
from sandbox.live import Sandbox, checked
from sandbox.policy import SandboxPolicy
from sandbox.presets import workspace_write
from sandbox.request import Args, RunOptions, check_names, working_directory
from sandbox.result import Result
from sandbox.shared import Shelf

__all__ = [
    "AHEAD",
    "ASKING",
    "Boxes",
    "Command",
    "Done",
    "Failures",
    "check_batch",
    "concurrency_of",
    "done_of",
    "run_many",
]

Failures = Literal["keep", "stop", "raise"]
_PER_CORE = 4
AHEAD = 8  # times the concurrency: how far a command may be over before the one that is waited for
ASKING = 0.01  # seconds for which commands are asked for before what is over is given


@dataclass(frozen=True, slots=True)
class Command:
    """One of many, with what is its own: ``workspace``, and options as for ``Sandbox.run``.

    Raises ``TypeError`` for an option that is none. ``Command.of`` takes them as keywords.
    """

    args: Args
    workspace: Any = None
    how: RunOptions = field(default_factory=lambda: RunOptions())

    def __post_init__(self) -> None:
        check_names(self.how)

    @classmethod
    def of(cls, args: Args, workspace: Any = None, **how: Unpack[RunOptions]) -> Command:
        """``Command.of("make", "/srv/one", input=b"...")``."""
        return cls(args, workspace, how)


@dataclass(frozen=True, slots=True)
class Done:
    """What came of one: its number, from 0 on, and its ``result``, or the ``error``."""

    index: int
    command: Args | Command
    result: Result | None = None
    error: Exception | None = None


def concurrency_of(given: object) -> int:
    """How many at a time. Raises ``InvalidArgument``."""
    if given is None:
        return _PER_CORE * (os.cpu_count() or 1)
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise InvalidArgument("concurrency", given, "is no positive number")
    return given


def check_batch(commands: object, failures: object, how: RunOptions) -> None:
    """What many are told in common. Raises ``InvalidArgument`` and ``TypeError``."""
    check_names(how)
    if isinstance(commands, (str, bytes)):
        raise InvalidArgument("commands", commands, "is one command", "a list of them")
    if failures not in ("keep", "stop", "raise"):
        raise InvalidArgument("failures", failures, "is none of keep, stop, raise")


class Starts(Protocol):
    """What starts commands."""

    def start(
        self,
        box: Sandbox,
        args: Args,
        how: RunOptions,
        token: Any = None,
        after: Callable[[], None] | None = None,
    ) -> Flight:
        """See ``Flights.start``."""


class Boxes:
    """Where each command runs: one sandbox for all, or one at a time for itself."""

    def __init__(
        self,
        policy: SandboxPolicy | None,
        sandbox: Sandbox | None,
        workspace: Any,
        workspaces: Any,
        kept: int,
    ) -> None:
        of_its_own = (policy, workspace, workspaces)
        if sandbox is not None and any(one is not None for one in of_its_own):
            raise InvalidArgument("sandbox", "...", "has its policy and workspace", "one of them")
        self._sandbox = sandbox
        self._policy = workspace_write() if policy is None else checked(policy)
        self._workspace, self._workspaces = workspace, workspaces
        self._shelf = Shelf(kept)

    def start(
        self, flights: Starts, command: Args | Command, how: RunOptions, token: Any
    ) -> Flight:
        """Starts one, which may be over at once. Raises as ``Sandbox`` and ``Sandbox.run``."""
        said: RunOptions = {**how}
        if isinstance(command, Command):
            args, own = command.args, command.workspace
            said |= command.how
        else:
            args, own = command, None
        if self._sandbox is not None:
            if own is not None:
                raise InvalidArgument("workspace", own, "the sandbox has its own")
            return flights.start(self._sandbox, args, said, token)
        given = own if own is not None else self._workspace
        place = working_directory(given if given is not None else said.get("cwd"))
        slot = self._shelf.borrow_for(self._policy, place, self._workspaces)
        said.setdefault("cwd", place)
        try:
            return flights.start(
                slot.sandbox, args, said, token, lambda: self._shelf.give_back(slot)
            )
        except BaseException:
            self._shelf.give_back(slot)
            raise

    def close(self) -> None:
        """Ends those that are its own."""
        self._shelf.close()


class Due:
    """What is over and not given yet: to be given as it comes, or in the order of the commands."""

    def __init__(self, ordered: bool) -> None:
        self._ordered = ordered
        self._over: dict[int, Done] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._over)

    @property
    def has_one(self) -> bool:
        """Whether there is one to be given."""
        return self._next in self._over if self._ordered else bool(self._over)

    def put(self, done: Done) -> None:
        """One more that is over."""
        self._over[done.index] = done

    def take(self) -> Iterator[Done]:
        """Those that are to be given."""
        while self.has_one:
            index = self._next if self._ordered else next(iter(self._over))
            self._next = index + 1
            yield self._over.pop(index)

    def begin(
        self, boxes: Boxes, starts: Starts, command: Args | Command, how: RunOptions, index: int
    ) -> Flight | None:
        """Starts a command; None when it is over at once, or could not be started."""
        try:
            flight = boxes.start(starts, command, how, index)
        except SandboxException as error:
            self.put(Done(index, command, error=error))
            return None
        if flight.is_over:
            self.put(done_of(flight, command))
            return None
        return flight


class _Batch:
    """Commands from an iterable: some are under way, some are over and not given yet.

    Those are given as they end, or in their order.
    """

    def __init__(
        self,
        commands: Iterable[Args | Command],
        boxes: Boxes,
        flights: Flights,
        most: int,
        ordered: bool,
        how: RunOptions,
    ) -> None:
        self._source = enumerate(commands)
        self._boxes, self._flights = boxes, flights
        self._most, self._how = most, how
        self._begun: dict[int, Args | Command] = {}
        self._due = Due(ordered)
        self._more = True

    def stop(self) -> None:
        """Starts no more."""
        self._more = False

    def given(self) -> Iterator[Done]:
        """What came of each."""
        while True:
            may_wait = self._fill()
            if may_wait and not self._begun and not self._due:
                return
            at_once = self._due.has_one or not may_wait
            for flight in self._flights.over(0.0 if at_once else None):
                self._due.put(done_of(flight, self._begun.pop(flight.token)))
            yield from self._due.take()

    def _fill(self) -> bool:
        """Starts what there is room for; false: there is more, which takes its time to come."""
        until = time.monotonic() + ASKING
        while self._more and len(self._begun) < self._most and len(self._due) < self._most * AHEAD:
            if time.monotonic() > until:
                return False
            index, command = next(self._source, (-1, ""))
            if index < 0:
                self._more = False
                break
            if self._due.begin(self._boxes, self._flights, command, self._how, index) is not None:
                self._begun[index] = command
        return True


def done_of(flight: Flight, command: Args | Command) -> Done:
    """What came of a command that is over. Raises what is no ``Exception``."""
    if flight.error is not None and not isinstance(flight.error, Exception):
        raise flight.error
    return Done(flight.token, command, flight.result, flight.error)


def run_many(
    commands: Iterable[Args | Command],
    policy: SandboxPolicy | None = None,
    *,
    sandbox: Sandbox | None = None,
    workspace: Any = None,
    workspaces: Any = None,
    concurrency: int | None = None,
    ordered: bool = True,
    failures: Failures = "keep",
    progress: bool = False,
    **how: Unpack[RunOptions],
) -> Iterator[Done]:
    """Runs many commands, so many at a time, and gives what came of each as it comes.

    ``commands``: any iterable, also one without an end: it is asked for the next one when there is
    room for it, and while it is asked no result is given: one that waits for those is for a
    ``Pool``. Each is as for ``run``, or a ``Command`` with a workspace and options of its own.

    - ``policy``, ``workspace``: as for ``Sandbox``; ``workspace`` is for those that name none.
      ``sandbox``: all run in this one instead, and see what others leave there.
    - ``workspaces``: a directory that the workspaces of all commands are in. Each sees its own and
      no other, and a sandbox goes from one to the next, which costs less than a command; else each
      workspace that is new costs a sandbox. As for ``run`` where there are no namespaces.
    - ``concurrency``: how many at a time; default: four for each processor.
    - ``ordered``: in the order of the commands; else as they end.
    - ``failures``: what is done about one that has no result, because it could not be started, its
      sandbox was lost, or ``check`` was asked for: ``keep`` gives it as ``Done.error`` and goes on;
      ``stop`` starts no more from its turn on, and raises it when the others are over and given;
      ``raise`` ends the others and raises it.
    - ``progress``: show a bar on stderr, where that is a terminal.
    - all else as for ``Sandbox.run`` but ``terminal``, for each of them.

    An iterator: nothing runs before it is asked, and what runs when it is closed or dropped is
    ended. Where nobody asks for a while, what runs goes on, and no more is started.
    Raises ``InvalidArgument``, ``TypeError`` for an option that is none, and what ``commands``
    raises, after the others were ended.
    """
    check_batch(commands, failures, how)
    most = concurrency_of(concurrency)
    boxes = Boxes(policy, sandbox, workspace, workspaces, most)
    found = _run(commands, boxes, most, ordered, failures, how)
    return shown(found, commands, "commands") if progress else found


def _run(
    commands: Iterable[Args | Command],
    boxes: Boxes,
    most: int,
    ordered: bool,
    failures: Failures,
    how: RunOptions,
) -> Iterator[Done]:
    failed: Exception | None = None
    try:
        with Flights(choose().engine()) as flights:
            batch = _Batch(commands, boxes, flights, most, ordered, how)
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
        boxes.close()
