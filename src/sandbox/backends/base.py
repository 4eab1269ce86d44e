"""What every way of confining offers to the layer above.

A backend turns a resolved policy into a *confinement*: something live that runs commands under it
until it is closed. The layer above knows policies, environments and results, a confinement knows
the operating system; between them go a ``Request`` and an ``Outcome``, made of bytes and numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sandbox.resolve import ResolvedPolicy
from sandbox.result import Denial, Enforcement

__all__ = ["Backend", "Confinement", "ConfinementLost", "Outcome", "Request", "Seat"]


class ConfinementLost(Exception):
    """The confinement ended under a command, or could not be reached any more."""


@dataclass(slots=True)
class Request:
    """One command, ready for the operating system.

    ``programs`` are candidates for execve in the order of PATH; ``env`` is a block of ``env_count``
    NUL-terminated items; ``limits`` are (resource, soft, hard). ``stdin`` is a fd; ``stdout`` and
    ``stderr`` are fds, or -1 to capture at most ``cap`` bytes. ``timeout`` is in seconds.
    """

    programs: Sequence[bytes]
    argv: Sequence[bytes]
    env: bytes
    env_count: int
    cwd: bytes
    limits: Sequence[tuple[int, int, int]]
    input: bytes | None
    stdin: int
    stdout: int
    stderr: int
    cap: int
    timeout: float | None
    terminal: bool


class Outcome(Protocol):
    """What became of a request; ``_sandcore.Outcome`` documents the fields."""

    @property
    def started(self) -> bool: ...
    @property
    def status(self) -> int: ...
    @property
    def timed_out(self) -> bool: ...
    @property
    def stage(self) -> str: ...
    @property
    def errno(self) -> int: ...
    @property
    def detail(self) -> int: ...
    @property
    def stdout(self) -> bytes: ...
    @property
    def stdout_head(self) -> int: ...
    @property
    def stdout_total(self) -> int: ...
    @property
    def stderr(self) -> bytes: ...
    @property
    def stderr_head(self) -> int: ...
    @property
    def stderr_total(self) -> int: ...
    @property
    def swept(self) -> int: ...
    @property
    def drained_early(self) -> bool: ...
    @property
    def usage(self) -> tuple[float, float, int, int, int, int, int, int, int]: ...
    @property
    def duration(self) -> float: ...


class Seat(Protocol):
    """A place for one command at a time, with a temporary directory of its own."""

    tmp: str
    enforcement: Enforcement

    def run(self, request: Request) -> tuple[Outcome, tuple[Denial, ...]]:
        """Runs a command to the end of its tree. Raises ``ConfinementLost``."""

    def leave(self) -> None:
        """Gives the place back."""


class Confinement(Protocol):
    """A policy that is being enforced."""

    enforcement: Enforcement

    def is_current(self) -> bool:
        """False when the host has changed so that it must be made anew. Cheap."""

    def seat(self) -> Seat:
        """A free place; made if there is none. Raises what starting raises."""

    def close(self) -> None:
        """Ends everything that runs in it. Idempotent."""


class Backend(Protocol):
    """A way to confine on this machine."""

    def start(self, resolved: ResolvedPolicy) -> Confinement:
        """Confines. Raises ``Unenforceable`` or ``Unavailable`` before anything runs."""
