"""Linux: policies become blobs for ``_sandcore``, and helpers that enforce them.

What decides here is the host: which Landlock ABI, and whether there is a filter.
"""

from __future__ import annotations

import os
import weakref
from typing import cast

import _sandcore
from sandbox.backends.base import ConfinementLost, Outcome, Request
from sandbox.backends.basis import Basis, compile_with_basis
from sandbox.backends.enforceable import check_host, check_ownership, weaker_host, weaker_limits
from sandbox.backends.guard import Guard
from sandbox.backends.rules import Rules
from sandbox.backends.running import LaneRunning
from sandbox.backends.temporary import Temporary
from sandbox.errors import SandboxLost, start_error
from sandbox.locks import ForkLock
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy
from sandbox.result import Denial, Enforcement

__all__ = [
    "ACCESS",
    "LandlockConfinement",
    "LinuxBackend",
    "compile_blob",
    "filter_options",
    "handle_of",
    "rule_parts",
]

_ABI_TCP = 4
_ABI_UNIX = 9
_ABI_UDP = 10
ACCESS = {
    "read": _sandcore.ACCESS_READ,
    "write": _sandcore.ACCESS_WRITE,
    "device": _sandcore.ACCESS_DEVICE,
    "names": _sandcore.ACCESS_NAMES,
}


class LinuxBackend:
    """Landlock and a seccomp filter around commands of a small helper process.

    Confinements with the same writable directories share a guard: to one of its own, what a
    command of another has just planted would be the state to return to. Those of one sandbox (an
    old one in which commands still run, and the one after it) share the temporary directories.
    """

    def __init__(self, probe: _sandcore.Probe | None = None) -> None:
        self.probe = probe if probe is not None else _sandcore.probe()
        self._lock = ForkLock()
        self._guards: weakref.WeakValueDictionary[tuple[object, ...], Guard] = (
            weakref.WeakValueDictionary()
        )
        self._temporary: weakref.WeakValueDictionary[tuple[object, ...], Temporary] = (
            weakref.WeakValueDictionary()
        )

    def start(self, resolved: ResolvedPolicy) -> LandlockConfinement:
        """Confines; see ``Backend.start``."""
        check_host(resolved.policy, self.probe)
        if os.geteuid() == 0 and not resolved.policy.unconfined:
            check_ownership(resolved)
        guard = None if resolved.policy.unconfined else self._guard(resolved)
        return LandlockConfinement(
            resolved, self.probe.landlock_abi, guard, self._places(resolved.tmp)
        )

    def _places(self, root: str) -> Temporary | None:
        """The temporary directories below a sandbox's own, for a policy that has one."""
        if not root:
            return None
        with self._lock:
            return self._temporary.setdefault((os.getpid(), root), Temporary(root))

    def _guard(self, resolved: ResolvedPolicy) -> Guard:
        """The guard of these directories. A forked copy of this process has its own."""
        roots = tuple(path for path in resolved.writable if path != resolved.tmp)
        key = (os.getpid(), roots, resolved.protected)
        guard = self._guards.get(key)
        if guard is None:
            made = Guard(roots, resolved.protected, _sandcore.Stamps)
            with self._lock:
                guard = self._guards.setdefault(key, made)
        return guard


def handle_of(policy: SandboxPolicy, rules: Rules, abi: int) -> int:
    """What Landlock restricts for this policy: HANDLE_* or'ed."""
    handle = _sandcore.HANDLE_WRITE | _sandcore.HANDLE_SCOPES
    for wanted, one in (
        (rules.handle_read, _sandcore.HANDLE_READ),
        (rules.handle_names, _sandcore.HANDLE_NAMES),
        (policy.network == "none" and abi >= _ABI_TCP, _sandcore.HANDLE_TCP),
        (policy.network == "none" and abi >= _ABI_UDP, _sandcore.HANDLE_UDP),
        (abi >= _ABI_UNIX, _sandcore.HANDLE_UNIX),
    ):
        handle |= one if wanted else 0
    return handle


def filter_options(policy: SandboxPolicy, abi: int) -> tuple[int, int]:
    """The network mode and the flags of this policy's filter."""
    flags = _sandcore.FILTER_ALLOW_PTRACE  # of its own children: the domain keeps others safe
    if abi >= _ABI_UNIX:
        flags |= _sandcore.FILTER_UNIX_SCOPED
    network = _sandcore.NET_FULL if policy.network == "full" else _sandcore.NET_NONE
    return network, flags


def rule_parts(rules: Rules) -> list[tuple[bytes, int, bool]]:
    """Rules as the core takes them."""
    return [(rule.path, ACCESS[rule.access], not rule.named) for rule in rules.rules]


def compile_blob(policy: SandboxPolicy, rules: Rules | None, abi: int) -> _sandcore.Policy:
    """The blob of a policy with these rules; without rules one that enforces nothing."""
    if rules is None:
        return _sandcore.compile_policy(confined=False)
    network, flags = filter_options(policy, abi)
    return _sandcore.compile_policy(
        rule_parts(rules),
        abi=abi,
        handle=handle_of(policy, rules, abi),
        network=network,
        filter_flags=flags,
        extra_filter=policy.extra_filter or b"",
    )


def _identity() -> tuple[object, ...]:
    return (os.getresuid(), os.getresgid(), os.getgroups())


class LandlockConfinement:
    """A helper, its lanes, and a private temporary directory for each."""

    def __init__(
        self, resolved: ResolvedPolicy, abi: int, guard: Guard | None, temporary: Temporary | None
    ) -> None:
        policy = resolved.policy
        self._identity = _identity()
        self._owner = os.getpid()
        self._lock = ForkLock()
        self._idle: list[LandlockSeat] = []
        self._closed = False
        self._retired = False
        self.temporary = temporary
        self.guard = guard
        limits = tuple(weaker_limits(policy.limits))
        if guard is None:
            self._basis = Basis.nothing()
            blob = compile_blob(policy, None, 0)
            self.enforcement = Enforcement("none", limits)
        else:
            rules, self._basis = compile_with_basis(resolved, abi)
            blob = compile_blob(policy, rules, abi)
            helper = os.fsdecode(_sandcore.HELPER_PATH)
            weaker = (*rules.weaker, *weaker_host(resolved, abi, helper), *limits, *guard.weaker)
            self.enforcement = Enforcement("landlock", weaker)
        self._helper = _start(blob)
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)

    def is_current(self) -> bool:
        """Same process, same user, same directories as when it was made."""
        return (
            not self._closed
            and self.owned
            and self._basis.holds()
            and self._identity == _identity()
        )

    @property
    def owned(self) -> bool:
        """Whether this process made it; a forked copy leaves alone what is on the disk."""
        return self._owner == os.getpid()

    def seat(self) -> LandlockSeat:
        """A free lane, or a new one."""
        with self._lock:
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
            raise start_error(error.stage, error.errno or 0) from None
        try:
            tmp = self.temporary.take() if self.temporary is not None else ""
        except SandboxLost:
            lane.close()
            raise
        return LandlockSeat(self, lane, tmp, self._null)

    def give_back(self, seat: LandlockSeat) -> None:
        """Keeps a seat for the next command, unless this confinement is over."""
        with self._lock:
            if not self._closed and not self._retired and seat.lane.usable:
                self._idle.append(seat)
                return
        seat.close()

    def retire(self) -> None:
        """See ``Confinement.retire``: without idle seats only running commands refer to it."""
        with self._lock:
            self._retired = True
            idle, self._idle = self._idle, []
        for seat in idle:
            seat.close()

    def close(self) -> None:
        """Ends the helper and all that runs in it."""
        with self._lock:
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
        raise start_error(error.stage, error.errno or 0, path) from None


class LandlockSeat:
    """A lane with its temporary directory."""

    __slots__ = ("_confinement", "_null", "enforcement", "lane", "tmp")

    def __init__(
        self, confinement: LandlockConfinement, lane: _sandcore.Lane, tmp: str, null: int
    ) -> None:
        self._confinement = confinement
        self._null = null
        self.enforcement = confinement.enforcement
        self.lane = lane
        self.tmp = tmp

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
