"""Children of the caller's own, confined: the direct path, for what takes the place of a ``Popen``.

The core's nursery spawns them: the caller waits for each as for any child, and all end with the
caller. There are no namespaces around them, nobody stands above them who would end a tree, put
back what they planted or watch a clock: what of that a policy may do without is reported, the rest
is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import _sandcore
from sandbox.backends.base import ConfinementLost, Order, StartFailed
from sandbox.backends.basis import Basis
from sandbox.backends.enforceable import (
    check_host,
    weaker_host,
    weaker_program,
    why_uncounted,
)
from sandbox.backends.ground import compile_blob
from sandbox.backends.refusals import Refusal
from sandbox.backends.rlimits import Table, hard_limits, rlimits
from sandbox.backends.rules import Rules
from sandbox.errors import Unenforceable
from sandbox.limits import WALL_DEFAULT, Limits
from sandbox.resolve import ResolvedPolicy
from sandbox.result import Enforcement, Weaker

__all__ = [
    "NO_NAMESPACES",
    "LinuxDirect",
    "check_direct",
    "check_wall",
    "owner",
    "plan_of",
    "spawned",
    "weaker_unwatched",
]

_MEND = "sandbox.run, Sandbox.popen"
NO_NAMESPACES = Refusal(
    "children of the caller's own are in none",
    f"sandbox=Sandbox(policy) in place of policy=; {_MEND}",
)


def check_direct(resolved: ResolvedPolicy, probe: _sandcore.Probe) -> None:
    """Raises ``Unenforceable`` for parts of a policy that the direct path cannot give.

    A time limit that is the default was asked for by nobody: who spawns a child waits for it.
    """
    check_host(resolved.policy, probe, NO_NAMESPACES)
    check_wall(resolved.policy.limits, _MEND)


def check_wall(limits: Limits, mend: str) -> None:
    """Raises ``Unenforceable`` for a time limit, where nobody is there to keep it."""
    if limits.wall not in (None, WALL_DEFAULT):
        cause = "nobody watches the clock of the caller's own children"
        raise Unenforceable("limits.wall", cause, f"Limits(wall=None), timeout=...; or {mend}")


def weaker_unwatched(limits: Limits, mend: str) -> Iterator[Weaker]:
    """Limits of which less is enforced on children that nobody watches."""
    if limits.wall is not None:
        yield Weaker("wall", "it is the caller who waits, with a time-out of his own", mend)
    if limits.memory is not None:
        yield Weaker("memory", "it binds single processes only (RLIMIT_DATA)", mend)


def _weaker(limits: Limits, confined: bool) -> Iterator[Weaker]:
    if confined:
        cause = "what a command starts may outlive it; all of it ends with the caller"
        yield Weaker("tree-kill", cause, _MEND)
        yield Weaker("restore", "what is planted under protected names is not put back", _MEND)
        yield Weaker("tmp-kept", "its temporary directory is emptied when the caller ends", _MEND)
    yield from weaker_unwatched(limits, _MEND)
    if limits.processes is not None:
        yield Weaker("processes", why_uncounted(), _MEND)


class LinuxDirect:
    """See ``Direct``."""

    def __init__(
        self, resolved: ResolvedPolicy, rules: Rules | None, basis: Basis, abi: int
    ) -> None:
        policy = resolved.policy
        self._blob = compile_blob(policy, rules, abi)
        self._basis = basis
        self._owner = owner()
        self._limits = rlimits(policy.limits, hard_limits())
        weaker = tuple(_weaker(policy.limits, confined=rules is not None))
        if rules is not None:
            helper = os.fsdecode(_sandcore.HELPER_PATH)
            host = weaker_host(resolved, abi, NO_NAMESPACES)
            weaker = (*rules.weaker, *host, *weaker_program(resolved, helper), *weaker)
        self.enforcement = Enforcement("none" if rules is None else "landlock", weaker)

    def is_current(self) -> bool:
        """See ``Confinement.is_current``. A session of the caller's is not the nursery's."""
        return self._owner == owner() and self._basis.holds()

    def spawn(self, order: Order) -> int:
        """See ``Direct.spawn``."""
        return spawned(_sandcore.spawn, plan_of(order, self._blob, self._limits))


def spawned(spawn: Callable[[_sandcore.Plan], tuple[int, int]], plan: _sandcore.Plan) -> int:
    """The pid of what the core has spawned. Raises as ``Direct.spawn``."""
    try:
        pid, pidfd = spawn(plan)
    except _sandcore.LaneLost as lost:
        raise ConfinementLost(str(lost)) from None
    except _sandcore.StageError as error:
        raise StartFailed(error.stage, error.errno or 0, error.detail) from None
    os.close(pidfd)
    return pid


def plan_of(order: Order, blob: _sandcore.Policy, limits: Table) -> _sandcore.Plan:
    """The core's plan of an order. Raises ``ValueError`` for a NUL."""
    return _sandcore.Plan(
        order.argv,
        order.env,
        programs=order.programs,
        policy=blob,
        cwd=order.cwd,
        fds=order.fds,
        limits=limits,
        targets=order.targets,
        new_session=order.new_session,
        process_group=order.group,
        umask=order.umask,
    )


def owner() -> tuple[object, ...]:
    """What a nursery has from its caller, in his process."""
    return (os.getpid(), os.getsid(0), os.getresuid(), os.getresgid(), os.getgroups())
