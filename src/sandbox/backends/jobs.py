"""Commands at the same time, as a backend offers them to the layer above."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

__all__ = ["Engine", "Job"]


class Job(Protocol):
    """A command that an engine runs.

    ``token`` is whatever it was started with. It is over when it has an ``outcome``, or when it was
    ``lost``, which says why.
    """

    token: Any

    @property
    def at_once(self) -> bool:
        """Whether it was over when it was given out, and never comes out of the engine."""

    @property
    def outcome(self) -> Any:
        """Its ``Outcome``, or None."""

    @property
    def lost(self) -> str | None:
        """Why it has none, or None."""


class Engine(Protocol):
    """Commands at the same time, each in a seat of its own; not for a forked copy.

    Its length is how many run, or are over and were not taken.
    """

    def __len__(self) -> int:
        """How many."""

    def fileno(self) -> int:
        """A fd that is readable when some are over; -1 once it was closed."""

    def take(self, timeout: float | None = 0.0, /) -> Sequence[Job]:
        """The jobs that are over; waits for one so many seconds at most, None: for ever.

        Nothing when none runs. Raises what a Python signal handler raises.
        """

    def kill(self, job: Any, /) -> None:
        """Asks for the end of a job and all below it; it is over when that is dead."""

    def close(self) -> None:
        """Ends what runs. Idempotent."""
