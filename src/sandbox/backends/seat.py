"""A lane with what belongs to it: a temporary directory, limits, and one command at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

import _sandcore
from sandbox.backends.audit import Hearing, heard
from sandbox.backends.base import ConfinementLost, FileKind, Outcome, Request
from sandbox.backends.ground import Ground
from sandbox.backends.guard import Guard
from sandbox.backends.jobs import Engine, Job
from sandbox.backends.journal import forget
from sandbox.backends.rlimits import rlimits
from sandbox.backends.running import LaneRunning
from sandbox.backends.temporary import Temporary
from sandbox.denial import Denial
from sandbox.errors import SandboxLost
from sandbox.limits import Limits
from sandbox.result import Enforcement

__all__ = ["House", "LinuxSeat"]

T = TypeVar("T")


class House(Protocol):
    """What a seat is in: a confinement."""

    enforcement: Enforcement
    guard: Guard | None
    ground: Ground
    hard_limits: dict[int, int]
    limits: Limits
    noted: int
    temporary: Temporary | None

    @property
    def owned(self) -> bool:
        """Whether this process made it."""

    def enforcement_of(self, limits: Limits) -> Enforcement:
        """What is enforced where a command has these limits."""

    def hearing(self, lane: _sandcore.Lane) -> Hearing | None:
        """What is told of the next command in a lane."""

    def settle(self) -> None:
        """Waits for the workspace, if it is on its way."""

    def left(self) -> None:
        """A seat that was taken is not any more."""

    def give_back(self, seat: LinuxSeat) -> None:
        """Takes a seat that is free."""


class LinuxSeat:
    """A lane with its temporary directory."""

    def __init__(
        self,
        confinement: House,
        lane: _sandcore.Lane,
        processes: int,
        tmp: str,
        null: int,
    ) -> None:
        self._confinement = confinement
        self._null = null
        self.enforcement = confinement.enforcement
        self.rlimits: Sequence[tuple[int, int, int]] = ()
        self.memory = 0
        self.processes = processes
        self.lane = lane
        self.tmp = tmp
        self._limits: Limits | None = None
        self._noted = 0
        self._guard: Guard | None = None  # of the command that runs
        self._hearing: Hearing | None = None

    def prepare(self, limits: Limits) -> None:
        """Takes the limits of the next command; usually those of the last."""
        place = self._confinement
        if limits is self._limits and self._noted == place.noted:
            return
        self._noted = place.noted
        same = limits == place.limits
        self.rlimits = rlimits(limits, place.hard_limits, place.ground.counted)
        self.memory = limits.memory or 0 if not place.ground.unsampled else 0
        self.enforcement = place.enforcement if same else place.enforcement_of(limits)
        self._limits = limits

    def run(self, request: Request) -> tuple[Outcome, tuple[Denial, ...]]:
        """See ``Seat.run``."""
        guard = self._guard = self._confinement.guard
        if guard is None:
            return self._run(request), ()
        guard.before()
        try:
            outcome = self._run(request)
        except ConfinementLost as lost:
            raise ConfinementLost(str(lost), self._after_loss()) from None
        except BaseException:
            guard.found(guard.after())  # there is no result of this one
            raise
        denials = guard.after()
        if not outcome.started:
            guard.found(denials)
        return outcome, denials

    def _run(self, request: Request) -> Outcome:
        hearing = self._confinement.hearing(self.lane)
        try:
            outcome = self.lane.run(**self._given(request), keep_session=request.terminal)
        except _sandcore.LaneLost as error:
            raise ConfinementLost(str(error)) from None
        self._settle()
        return heard(hearing, outcome)

    def _settle(self) -> None:
        """The workspace is there, or the command did not run; what is enforced is known now."""
        self._confinement.settle()
        if self._limits is not None:
            self.prepare(self._limits)

    def _given(self, request: Request) -> dict[str, Any]:
        """A request as a lane and an engine take it."""
        return {
            "programs": request.programs,
            "argv": request.argv,
            "env": request.env,
            "env_count": request.env_count,
            "cwd": request.cwd,
            "limits": request.limits,
            "input": request.input,
            "stdin": request.stdin if request.stdin >= 0 else self._null,
            "stdout": request.stdout,
            "stderr": request.stderr,
            "out_cap": request.cap,
            "err_cap": request.cap,
            "timeout": request.timeout,
            "memory": request.memory,
        }

    def submit(self, engine: Engine, request: Request, token: object) -> Job:
        """See ``Seat.submit``."""
        guard = self._guard = self._confinement.guard
        if guard is not None:
            guard.before()
        self._hearing = self._confinement.hearing(self.lane)
        try:
            running = cast(_sandcore.Engine, engine)
            return running.start(self.lane, **self._given(request), token=token)
        except _sandcore.LaneLost as lost:
            raise ConfinementLost(str(lost), self._after_loss()) from None
        except BaseException:
            if guard is not None:
                guard.found(guard.after())  # there is no result of this one
            raise

    def settle(self, job: Job) -> tuple[Outcome, tuple[Denial, ...]]:
        """See ``Seat.settle``."""
        guard = self._guard
        if job.lost is not None:
            raise ConfinementLost(job.lost, self._after_loss())
        denials = guard.after() if guard is not None else ()
        self._settle()
        found = cast(Outcome, job.outcome)
        if not found.started and guard is not None:
            guard.found(denials)
        return heard(self._hearing, found), denials

    def _after_loss(self) -> tuple[Denial, ...]:
        """What the command left behind whose sandbox was lost."""
        guard = self._guard
        if guard is None:
            return ()
        denials = guard.after()
        forget(self.lane.helper.pid)
        return denials

    def file(
        self,
        what: FileKind,
        path: bytes,
        *,
        directory: int = -1,
        mode: int = 0,
        follow: bool = True,
    ) -> int:
        """See ``Seat.file``."""
        self._confinement.settle()
        try:
            return self.lane.file(what, path, directory=directory, mode=mode, follow=follow)
        except _sandcore.LaneLost as error:
            raise ConfinementLost(str(error)) from None

    def watched(self, act: Callable[[], T]) -> tuple[T, tuple[Denial, ...]]:
        """See ``Seat.watched``. Of what is put back the next result tells, too."""
        guard = self._confinement.guard
        if guard is None:
            return act(), ()
        guard.before()
        try:
            done = act()
        finally:
            denials = guard.after(tells=False)
            if denials:
                guard.found(denials)
        return done, denials

    def start(self, request: Request, *, owns_terminal: bool) -> LaneRunning:
        """See ``Seat.start``."""
        place = self._confinement
        place.settle()
        hearing = place.hearing(self.lane)
        return LaneRunning(self.lane, place.guard, hearing, request, owns_terminal)

    def leave(self) -> None:
        """Empties the temporary directory and gives the lane back."""
        self._confinement.left()
        temporary = self._confinement.temporary
        if temporary is not None:
            try:
                self.tmp = temporary.tidy(self.tmp)
            except SandboxLost:  # for the next command to hear of: this one has its result
                self.close()
                return
        self._confinement.give_back(self)

    def close(self) -> None:
        """Ends the lane and removes its directory."""
        self.lane.close()
        if self._confinement.temporary is not None and self._confinement.owned:
            self._confinement.temporary.drop(self.tmp)
