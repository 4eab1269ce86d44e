"""Children of the caller's own in a live sandbox: they join its namespaces, and end with it.

The core's joint spawns them: a place of the sandbox's helper with a pid namespace of its own, in
which all that joins one sandbox is. Whose children they are does not matter there: they end with
it. But nobody looks after each of them as a lane does after its command.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import _sandcore
from sandbox.backends.base import ConfinementLost, Order
from sandbox.backends.direct import check_wall, owner, plan_of, spawned, weaker_unwatched
from sandbox.backends.enforceable import ABI_SCOPES
from sandbox.backends.ground import Ground
from sandbox.backends.guard import Guard
from sandbox.backends.rlimits import Table
from sandbox.errors import Unenforceable, start_error
from sandbox.limits import Limits
from sandbox.locks import ForkLock
from sandbox.result import Enforcement, Weaker

__all__ = ["LinuxJoint", "check_joint"]

_MEND = "Sandbox.run, Sandbox.popen"


def check_joint(isolation: str, abi: int, limits: Limits) -> None:
    """Raises ``Unenforceable`` for what cannot be joined, or would be joined with less."""
    if isolation != "namespaces":
        cause = f"a sandbox is joined by its namespaces, and isolation {isolation!r} has none"
        raise Unenforceable("sandbox=", cause, f"policy=; {_MEND}")
    if abi < ABI_SCOPES:
        cause = f"signals to the caller's group take Landlock ABI {ABI_SCOPES}; this one is {abi}"
        raise Unenforceable("sandbox=", cause, f"Linux 6.12 or newer; {_MEND}")
    check_wall(limits, _MEND)


def _weaker(limits: Limits) -> Iterator[Weaker]:
    cause = "what a command starts may outlive it; all of it ends with the sandbox"
    yield Weaker("tree-kill", cause, _MEND)
    cause = "what is planted under protected names is put back when the sandbox is closed"
    yield Weaker("restore", cause, _MEND)
    yield from weaker_unwatched(limits, _MEND)
    if limits.processes is not None:
        yield Weaker("processes", "it is for all that joins the sandbox together", _MEND)


class LinuxJoint:
    """See ``Joint``. ``limits``, ``table``: the policy's, and as the kernel takes them.

    ``confinement`` is what it is in, which lives as long.
    """

    def __init__(
        self,
        helper: _sandcore.Helper,
        ground: Ground,
        guard: Guard | None,
        enforcement: Enforcement,
        limits: Limits,
        table: Table,
        confinement: object,
    ) -> None:
        check_joint(ground.isolation, ground.blob.abi, limits)
        self._confinement = confinement
        self._owner = owner()
        self._lock = ForkLock()
        self._blob, self._table = ground.blob, table
        self._guard: Guard | None = None
        self.tmp = ground.tmp
        try:
            self._joint = _sandcore.Joint(helper, ground.processes(limits))
        except _sandcore.LaneLost as lost:
            raise ConfinementLost(str(lost)) from None
        except _sandcore.StageError as error:
            raise start_error(error.stage, error.errno or 0) from None
        others = [one for one in enforcement.weaker if one.part not in ("memory", "processes")]
        self.enforcement = Enforcement(ground.isolation, (*others, *_weaker(limits)))
        if guard is not None:
            guard.before()
            self._guard = guard

    def is_current(self) -> bool:
        """See ``Confinement.is_current``. A session of the caller's is not the nursery's."""
        return self._owner == owner() and self._joint.usable

    def spawn(self, order: Order) -> int:
        """See ``Direct.spawn``."""
        plan = plan_of(order, self._blob, self._table)
        with self._lock.held:
            return spawned(self._joint.spawn, plan)

    def close(self) -> None:
        """Ends all that has joined; children are there to be waited for. Idempotent."""
        with self._lock.held:
            self._joint.close()
            guard, self._guard = self._guard, None
        if guard is not None and self._owner[0] == os.getpid():
            guard.found(guard.after())  # no result tells of it but the next one

    def __del__(self) -> None:
        if hasattr(self, "_joint"):
            self.close()
