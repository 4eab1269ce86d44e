"""Commands in lanes of a helper, whatever it stands on.

A confinement is a helper and its idle lanes; a seat is a lane with what belongs to it: a temporary
directory, and limits.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import _sandcore
from sandbox.backends.audit import Audit, Hearing
from sandbox.backends.base import ConfinementLost
from sandbox.backends.enforceable import weaker_limits, weaker_masks
from sandbox.backends.ground import Ground
from sandbox.backends.guard import Guard
from sandbox.backends.joint import LinuxJoint
from sandbox.backends.journal import forget
from sandbox.backends.launch import SHORTAGES, NamespacesFailed, await_helper, start_lane
from sandbox.backends.moored import Berth, Mounts, WorkspaceBasis
from sandbox.backends.refusals import LANE_STAGES
from sandbox.backends.rlimits import hard_limits, rlimits
from sandbox.backends.searched import weaker_nested
from sandbox.backends.seat import LinuxSeat
from sandbox.backends.temporary import Scratch, Temporary
from sandbox.docks import Workspace, docked
from sandbox.errors import InvalidArgument, SandboxLost, StartError, WorkspaceRefused
from sandbox.limits import Limits
from sandbox.locks import ForkLock
from sandbox.resolve import ResolvedPolicy
from sandbox.result import Enforcement, Weaker

__all__ = ["LinuxConfinement"]

Moor = Callable[[ResolvedPolicy, Workspace, Ground, WorkspaceBasis], Guard]


def _identity() -> tuple[object, ...]:
    return (os.getresuid(), os.getresgid(), os.getgroups())


class LinuxConfinement:
    """A helper, its lanes, and a private temporary directory for each.

    The helper was just started, for the usual number of processes, and is waited for here.
    """

    def __init__(
        self,
        helper: _sandcore.Helper,
        resolved: ResolvedPolicy,
        ground: Ground,
        guard: Guard | None,
        temporary: Temporary | None,
        audit: Audit | None = None,
        moor: Moor | None = None,
        mounts: Mounts | None = None,
    ) -> None:
        self._identity = _identity()
        self._owner = os.getpid()
        self._lock = ForkLock()
        self._idle: list[LinuxSeat] = []
        self._taken = 0  # seats
        self._used = False  # since what commands leave was removed
        self._joint: LinuxJoint | None = None
        self._moor = moor
        self._own_guard = guard  # of what is writable beside a workspace that comes and goes
        self.noted = 0  # how often what is enforced was another thing
        self._weaker: tuple[Weaker, ...] = ()  # what is not, in the workspace that lies there
        self._noted: tuple[tuple[Weaker, ...], ...] = ()  # that, and what its guard does not see
        self._closed = False
        self._retired = False
        self.ground = ground
        self._basis = ground.basis
        self._audit = audit
        self.temporary = temporary
        self.guard = guard
        self._learned = -1
        self.hard_limits = hard_limits()
        self.limits = resolved.policy.limits
        self._helper = helper
        self._berth = Berth(helper, mounts) if mounts is not None else None
        scratch = await_helper(helper, len(ground.scratch))
        self._scratch = Scratch(scratch, ground.scratch)
        self.enforcement = self.enforcement_of(self.limits)
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        if ground.isolation == "namespaces":
            try:
                self.seat(self.limits).leave()  # whether a lane can be had says if they can
            except StartError as error:
                if error.errno in SHORTAGES:
                    raise
                stage = LANE_STAGES.get(error.stage, error.stage)
                raise NamespacesFailed(stage, error.errno or 0) from None

    def enforcement_of(self, limits: Limits) -> Enforcement:
        """What is enforced where a command has these limits."""
        shared = self.limits if self.ground.tmp else limits
        parts = weaker_limits(limits, self.ground.counted, self.ground.unsampled, shared)
        watched = self.guard.weaker if self.guard is not None else ()
        masks = (*weaker_masks(self._helper.unwatched), *self._weaker)
        return Enforcement(self.ground.isolation, (*self.ground.weaker, *masks, *parts, *watched))

    def is_current(self) -> bool:
        """Same process, same user, same directories as when it was made."""
        return (
            not self._closed
            and self._owner == os.getpid()
            and self._basis.holds()
            and (self._berth is None or self._berth.holds())
            and self._identity == _identity()
            and self._is_absent()
        )

    def _is_absent(self) -> bool:
        """Whether no protected name that was missing is the host's by now, as the guard knows."""
        learned = self.guard.learned if self.guard is not None else self._learned
        if learned == self._learned:
            return True
        if any(os.path.lexists(path) for path in self.ground.absent):
            return False  # and so says who asks again
        self._learned = learned
        return True

    def hearing(self, lane: _sandcore.Lane) -> Hearing | None:
        """What is told of the next command in a lane; None: nobody listens to that."""
        return Hearing(self._audit, lane.pid) if self._audit is not None else None

    @property
    def owned(self) -> bool:
        """Whether this process made it; a forked copy leaves alone what is on the disk."""
        return self._owner == os.getpid()

    def seat(self, limits: Limits) -> LinuxSeat:
        """A free lane, or a new one."""
        processes = self.ground.processes(limits)
        taken = False
        try:
            with self._lock.held:
                if self._berth is not None and self._berth.vacated:
                    self._berth.leave()
                self._taken += 1
                self._used = True
                taken = True
            seat = self._free_seat(processes) or self._new_seat(processes)
            seat.prepare(limits)
        except BaseException:
            if taken:
                self.left()
            raise
        return seat

    @property
    def closed(self) -> bool:
        """See ``Confinement.closed``."""
        return self._closed

    @property
    def busy(self) -> bool:
        """See ``Confinement.busy``."""
        return self._taken > 0

    def left(self) -> None:
        """A seat that was taken is not any more."""
        with self._lock.held:
            self._taken -= 1

    @property
    def lying(self) -> Workspace | None:
        """See ``Confinement.lying``."""
        return self._berth.lying if self._berth is not None else None

    def dock(self, base: ResolvedPolicy, workspace: str, once: bool = False) -> None:
        """See ``Confinement.dock``. The helper mounts while what remains is seen to here."""
        with self._lock.held:
            berth, weaker = self._free_berth(workspace), tuple[Weaker, ...]()
            self.guard = self._own_guard
            try:
                if workspace:
                    found, basis = berth.order(base, workspace, once)
                    self._clear()
                    basis.note(found)
                    assert self._moor is not None
                    self.guard = self._moor(base, found, self.ground, basis)
                    weaker = () if found.complete else tuple(weaker_nested(docked(base, found)))
                else:
                    berth.leave()
                    self._clear()
            except BaseException:
                berth.leave()
                raise
            self._note_weaker(weaker)

    def _free_berth(self, workspace: str) -> Berth:
        if self._closed or self._berth is None:
            raise ConfinementLost("it was closed")
        if self._taken:
            raise InvalidArgument("workspace", workspace, "a command is in another")
        if self._joint is not None:
            cause = "children have joined, and stay where they are"
            raise InvalidArgument("workspace", workspace, cause, "a new Sandbox")
        return self._berth

    def settle(self) -> None:
        """See ``Confinement.settle``."""
        berth = self._berth
        if berth is not None and berth.awaited:
            with self._lock.held:
                self._settle(berth)

    def _settle(self, berth: Berth) -> None:
        try:
            unwatched = berth.settle()
        except WorkspaceRefused:
            self.guard = self._own_guard
            raise
        if unwatched:
            self._note_weaker((*weaker_masks(unwatched), *self._weaker))

    def _note_weaker(self, weaker: tuple[Weaker, ...]) -> None:
        """Of the workspace that lies in the dock."""
        watched = self.guard.weaker if self.guard is not None else ()
        noted = (weaker, watched)
        if noted != self._noted:
            self._weaker, self._noted = weaker, noted
            self.enforcement = self.enforcement_of(self.limits)
            self.noted += 1

    def _free_seat(self, processes: int) -> LinuxSeat | None:
        """An idle one of this number. Without one, those of unusual numbers make room."""
        usual = self.ground.processes(self.limits)
        with self._lock.held:
            fit = [seat for seat in self._idle if seat.processes == processes]
            while fit:
                seat = fit.pop()
                self._idle.remove(seat)
                if seat.lane.usable:
                    return seat
                seat.close()
            odd = [seat for seat in self._idle if seat.processes != usual]
            self._idle = [seat for seat in self._idle if seat.processes == usual]
        for seat in odd:
            seat.close()
        return None

    def _new_seat(self, processes: int) -> LinuxSeat:
        lane = start_lane(self._helper, processes)
        try:
            tmp = self.temporary.take() if self.temporary is not None else self.ground.tmp
        except SandboxLost:
            lane.close()
            raise
        return LinuxSeat(self, lane, processes, tmp, self._null)

    def give_back(self, seat: LinuxSeat) -> None:
        """Keeps a seat for the next command, unless this confinement is over."""
        with self._lock.held:
            if not self._closed and not self._retired and seat.lane.usable:
                self._idle.append(seat)
                return
        seat.close()

    def joint(self) -> LinuxJoint:
        """See ``Confinement.joint``. One that was lost is replaced."""
        with self._lock.held:
            if self._joint is not None and self._joint.is_current():
                return self._joint
            if self._closed or self._retired:
                raise ConfinementLost("it was closed")
            if self._berth is not None:
                self._settle(self._berth)
            table = rlimits(self.limits, self.hard_limits, self.ground.counted)
            self._used = True
            self._joint = LinuxJoint(
                self._helper, self.ground, self.guard, self.enforcement, self.limits, table, self
            )
            return self._joint

    def clear(self) -> None:
        """See ``Confinement.clear``."""
        if self._berth is not None and self._berth.once:
            with self._lock.held:
                self.guard = self._own_guard
                self._berth.vacate()
                self._note_weaker(())
        self._clear()

    def _clear(self) -> None:
        """With Landlock each command had a directory of its own."""
        if not self._used:
            return
        try:
            self._scratch.clear()
        except OSError as error:
            raise ConfinementLost(f"its own directories: {error.strerror}") from None
        self._used = self._taken > 0

    def retire(self) -> None:
        """See ``Confinement.retire``: without idle seats only running commands refer to it."""
        with self._lock.held:
            self._retired = True
            self._joint = None  # whoever has joined holds it
            idle, self._idle = self._idle, []
        for seat in idle:
            seat.close()

    def close(self) -> None:
        """Ends the helper and all that runs in it."""
        if self._berth is not None and self._berth.awaited:
            self._helper.close()  # or who waits for a workspace would hold this up
        with self._lock.held:
            if self._closed:
                return
            self._closed = True
            idle, self._idle = self._idle, []
            joint, self._joint = self._joint, None
        for seat in idle:
            seat.close()
        if joint is not None:
            joint.close()
        if not self._helper.close() and (self.guard is None or not self.guard.is_busy):
            forget(self._helper.pid)
        self._scratch.close()
        if self._berth is not None:
            self._berth.close()
        if self._audit is not None:
            self._audit.close()
        os.close(self._null)

    def __del__(self) -> None:
        # What never got as far as a helper has nothing to close.
        if hasattr(self, "_null"):
            self.close()
