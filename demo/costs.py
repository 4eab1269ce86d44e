"""What confinement costs: the same command inside and outside, in turns, as medians."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import sandbox

TESTS = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "toolz/tests")


@dataclass(frozen=True)
class Cost:
    """Medians in seconds."""

    name: str
    rounds: int
    outside: float
    inside: float

    @property
    def ratio(self) -> float:
        return self.inside / self.outside


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def compare(name: str, argv: Sequence[str], cwd: Path, rounds: int) -> Cost:
    """Runs a command inside and outside in turns, each with its output captured.

    What it reads should be in the page cache: it has been run before, or is run many times.
    """
    policy = sandbox.workspace_write(cwd)

    def confined() -> None:
        sandbox.run(list(argv), policy, cwd=cwd, check=True)

    def unconfined() -> None:
        subprocess.run(
            argv,
            cwd=cwd,
            env=dict(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            start_new_session=True,
            timeout=120,
            check=True,
        )

    pairs = [(timed(unconfined), timed(confined)) for _ in range(rounds)]
    outside, inside = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Cost(name, rounds, outside, inside)
