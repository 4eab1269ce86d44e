"""Linux: policies become blobs for ``_sandcore``, and helpers that enforce them.

What decides here is the host: namespaces or none, which Landlock ABI, and whether there is a
filter. Whether namespaces can be had is found out by having them: hosts refuse in too many ways.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Sequence
from typing import cast

import _sandcore
from sandbox.backends.base import ConfinementLost, IsolationRefused, Outcome, Question, Request
from sandbox.backends.enforceable import (
    check_filters,
    check_host,
    check_ownership,
    weaker_limits,
    weaker_masks,
)
from sandbox.backends.ground import Ground, in_landlock, in_namespaces, unconfined
from sandbox.backends.guard import Guard
from sandbox.backends.prepared import Prepared
from sandbox.backends.refusals import Refusal, explain_refusal
from sandbox.backends.rlimits import Table, hard_limits, rlimits
from sandbox.backends.running import LaneRunning
from sandbox.backends.searched import resolve_searched
from sandbox.backends.temporary import Scratch, Temporary
from sandbox.errors import SandboxLost, Unenforceable, start_error
from sandbox.limits import Limits
from sandbox.locks import ForkLock
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy, resolve
from sandbox.result import Denial, Enforcement

__all__ = ["LandlockConfinement", "LinuxBackend"]

# What a mount that fails says of the path; anything else says something of the host.
_ABOUT_PATHS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EMFILE, errno.ENAMETOOLONG)


class LinuxBackend:
    """Namespaces, Landlock and a seccomp filter around commands of a small helper process.

    Confinements with the same writable directories share a guard: to one of its own, what a
    command of another has just planted would be the state to return to. Those of one sandbox (an
    old one in which commands still run, and the one after it) share the temporary directories.
    """

    def __init__(self, probe: _sandcore.Probe | None = None, *, namespaces: bool = True) -> None:
        self._namespaces = namespaces
        self.probe = probe if probe is not None else _sandcore.probe()
        self._prepared = Prepared()
        self._refusal: Refusal | None = None  # of namespaces; known when they were tried
        self._why: Refusal | None = None  # the latest one, also where it may be another next time
        self._lock = ForkLock()
        self._guards: weakref.WeakValueDictionary[tuple[object, ...], Guard] = (
            weakref.WeakValueDictionary()
        )
        self._temporary: weakref.WeakValueDictionary[tuple[object, ...], Temporary] = (
            weakref.WeakValueDictionary()
        )

    def isolations(self, policy: SandboxPolicy) -> Sequence[str]:
        """See ``Backend.isolations``.

        SANDBOX_ISOLATION=landlock in the caller's environment leaves namespaces out.
        """
        if policy.unconfined:
            return ("none",)
        check_filters(self.probe)
        found = []
        wanted = self._namespaces and os.environ.get("SANDBOX_ISOLATION") != "landlock"
        if self._refusal is None and wanted:
            found.append("namespaces")
        try:
            check_host(policy, self.probe, self._refusal or self._why)
            found.append("landlock")
        except Unenforceable:
            if not found:
                raise
        return found

    def resolve(self, question: Question, isolation: str) -> ResolvedPolicy:
        """See ``Backend.resolve``."""
        if isolation != "namespaces":
            return resolve(*question)
        found = self._prepared.resolved(question)
        if found is None:
            found = resolve_searched(question)
            ground = in_namespaces(found, self.probe.landlock_abi)
            self._prepared.keep(question, found, ground)
        return found

    def start(self, resolved: ResolvedPolicy, isolation: str) -> LandlockConfinement:
        """Confines; see ``Backend.start``."""
        if os.geteuid() == 0 and isolation != "none":
            check_ownership(resolved)
        if isolation == "namespaces":
            ground = self._prepared.ground(resolved) or in_namespaces(
                resolved, self.probe.landlock_abi
            )
        elif isolation == "landlock":
            ground = in_landlock(resolved, self.probe.landlock_abi, self._why)
        else:
            ground = unconfined(resolved.policy)
        guard = None if isolation == "none" else self._guard(resolved, ground)
        try:
            return LandlockConfinement(resolved, ground, guard, self._places(resolved.tmp))
        except NamespacesFailed as failed:
            refusal = explain_refusal(failed.stage, failed.number)
            self._why = refusal
            if failed.stage == "namespaces":
                self._refusal = refusal  # so will it be the next time
            raise IsolationRefused(refusal.cause, refusal.mend) from None

    def _places(self, root: str) -> Temporary | None:
        """The temporary directories below a sandbox's own, for a policy that has one."""
        if not root:
            return None
        with self._lock.held:
            key = (os.getpid(), root)
            return self._temporary.setdefault(key, Temporary(root, _sandcore.Stamps))

    def _guard(self, resolved: ResolvedPolicy, ground: Ground) -> Guard:
        """The guard of these directories. A forked copy of this process has its own."""
        roots = tuple(path for path in resolved.writable if path != resolved.tmp)
        key = (os.getpid(), roots, ground.guarded)
        guard = self._guards.get(key)
        if guard is None:
            made = Guard(roots, ground.guarded, _sandcore.Stamps)
            with self._lock.held:
                guard = self._guards.setdefault(key, made)
        guard.extend(ground.guarded_later)
        return guard


class NamespacesFailed(Exception):
    """The helper could not make its namespaces, or what is in them."""

    def __init__(self, stage: str, number: int) -> None:
        self.stage, self.number = stage, number
        super().__init__(stage, number)


def _identity() -> tuple[object, ...]:
    return (os.getresuid(), os.getresgid(), os.getgroups())


class LandlockConfinement:
    """A helper, its lanes, and a private temporary directory for each."""

    def __init__(
        self,
        resolved: ResolvedPolicy,
        ground: Ground,
        guard: Guard | None,
        temporary: Temporary | None,
    ) -> None:
        self._identity = _identity()
        self._owner = os.getpid()
        self._lock = ForkLock()
        self._idle: list[LandlockSeat] = []
        self._closed = False
        self._retired = False
        self._ground = ground
        self._basis = ground.basis
        self.temporary = temporary
        self.guard = guard
        limits = tuple(weaker_limits(resolved.policy.limits))
        watched = guard.weaker if guard is not None else ()
        self.hard_limits = hard_limits()
        self._helper = _start(ground.blob)
        masks = weaker_masks(self._helper.unwatched)
        weaker = (*ground.weaker, *masks, *limits, *watched)
        self.enforcement = Enforcement(ground.isolation, weaker)
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._scratch = Scratch(self._helper.scratch, ground.scratch)
        if ground.isolation == "namespaces":
            self._idle.append(self.seat())  # whether a lane can be had says if they can

    def is_current(self) -> bool:
        """Same process, same user, same directories as when it was made."""
        return (
            not self._closed
            and self._owner == os.getpid()
            and self._basis.holds()
            and self._identity == _identity()
        )

    @property
    def owned(self) -> bool:
        """Whether this process made it; a forked copy leaves alone what is on the disk."""
        return self._owner == os.getpid()

    def seat(self) -> LandlockSeat:
        """A free lane, or a new one."""
        with self._lock.held:
            while self._idle:
                seat = self._idle.pop()
                if seat.lane.usable:
                    return seat
                seat.close()
        try:
            lane = self._helper.lane()
        except _sandcore.LaneLost as error:
            raise ConfinementLost(str(error)) from None
        except _sandcore.StageError as error:
            if error.stage == "mounts":
                raise NamespacesFailed(error.stage, error.errno or 0) from None
            raise start_error(error.stage, error.errno or 0) from None
        try:
            tmp = self.temporary.take() if self.temporary is not None else self._ground.tmp
        except SandboxLost:
            lane.close()
            raise
        return LandlockSeat(self, lane, tmp, self._null)

    def give_back(self, seat: LandlockSeat) -> None:
        """Keeps a seat for the next command, unless this confinement is over."""
        with self._lock.held:
            if not self._closed and not self._retired and seat.lane.usable:
                self._idle.append(seat)
                return
        seat.close()

    def clear(self) -> None:
        """See ``Confinement.clear``. With Landlock each command had a directory of its own."""
        try:
            self._scratch.clear()
        except OSError as error:
            raise ConfinementLost(f"its own directories: {error.strerror}") from None

    def retire(self) -> None:
        """See ``Confinement.retire``: without idle seats only running commands refer to it."""
        with self._lock.held:
            self._retired = True
            idle, self._idle = self._idle, []
        for seat in idle:
            seat.close()

    def close(self) -> None:
        """Ends the helper and all that runs in it."""
        with self._lock.held:
            if self._closed:
                return
            self._closed = True
            idle, self._idle = self._idle, []
        for seat in idle:
            seat.close()
        self._helper.close()
        os.close(self._null)

    def __del__(self) -> None:
        # What never got as far as a helper has nothing to close.
        if hasattr(self, "_null"):
            self.close()


def _start(blob: _sandcore.Policy) -> _sandcore.Helper:
    try:
        return _sandcore.Helper(blob, _sandcore.HELPER_PATH)
    except _sandcore.StageError as error:
        path = ""
        if error.stage == "landlock" and error.detail >= 0:
            path = os.fsdecode(blob.rules[error.detail][0])
        if error.stage == "mounts" and error.detail >= 0 and error.errno in _ABOUT_PATHS:
            path = os.fsdecode(blob.mounts[error.detail][0])
        elif error.stage in ("namespaces", "mounts"):
            raise NamespacesFailed(error.stage, error.errno or 0) from None
        raise start_error(error.stage, error.errno or 0, path) from None


class LandlockSeat:
    """A lane with its temporary directory."""

    __slots__ = ("_confinement", "_limits", "_null", "_table", "enforcement", "lane", "tmp")

    def __init__(
        self, confinement: LandlockConfinement, lane: _sandcore.Lane, tmp: str, null: int
    ) -> None:
        self._confinement = confinement
        self._null = null
        self.enforcement = confinement.enforcement
        self.lane = lane
        self.tmp = tmp
        self._limits: Limits | None = None
        self._table: Table = ()

    def rlimits(self, limits: Limits) -> Table:
        """See ``Seat.rlimits``; those of the last command are kept."""
        if limits is not self._limits:
            self._table = rlimits(limits, self._confinement.hard_limits)
            self._limits = limits
        return self._table

    def run(self, request: Request) -> tuple[Outcome, tuple[Denial, ...]]:
        """See ``Seat.run``."""
        guard = self._confinement.guard
        if guard is None:
            return self._run(request), ()
        guard.before()
        try:
            outcome = self._run(request)
        except ConfinementLost as lost:
            raise ConfinementLost(str(lost), guard.after()) from None
        except BaseException:
            guard.after()
            raise
        return outcome, guard.after()

    def _run(self, request: Request) -> Outcome:
        try:
            outcome = self.lane.run(
                request.programs,
                request.argv,
                request.env,
                request.env_count,
                request.cwd,
                limits=request.limits,
                input=request.input,
                stdin=request.stdin if request.stdin >= 0 else self._null,
                stdout=request.stdout,
                stderr=request.stderr,
                out_cap=request.cap,
                err_cap=request.cap,
                timeout=request.timeout,
                keep_session=request.terminal,
            )
        except _sandcore.LaneLost as error:
            raise ConfinementLost(str(error)) from None
        return cast(Outcome, outcome)

    def start(self, request: Request, *, owns_terminal: bool) -> LaneRunning:
        """See ``Seat.start``."""
        return LaneRunning(self.lane, self._confinement.guard, request, owns_terminal)

    def leave(self) -> None:
        """Empties the temporary directory and gives the lane back."""
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
