"""Interleaved measuring: what is compared is measured in turns, so that drift hits all alike.

A figure is a ratio to the floor of the same run: the median over all rounds, with the quartiles of
the rounds' own ratios as the spread. Absolute times are kept out on purpose.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
Case = Callable[[], object]


@dataclass(frozen=True)
class Figure:
    """A ratio to the floor: median, and the quartiles over the rounds."""

    name: str
    ratio: float
    low: float
    high: float
    rounds: int
    target: float | None = None

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def compile_floor() -> Path:
    """The floor program, compiled into a directory of its own."""
    target = Path(tempfile.mkdtemp(prefix="sandcore-bench-")) / "floor"
    subprocess.run(["cc", "-O2", "-o", target, HERE / "floor.c"], check=True)
    return target


def floor_times(floor: Path, count: int, command: Iterable[str]) -> list[float]:
    """Nanoseconds of that many bare runs, in a small process."""
    done = subprocess.run([floor, str(count), *command], check=True, capture_output=True, text=True)
    return [float(line) for line in done.stdout.split()]


def times(case: Case, count: int) -> list[float]:
    """Nanoseconds of that many calls."""
    found = []
    for _ in range(count):
        began = time.perf_counter_ns()
        case()
        found.append(float(time.perf_counter_ns() - began))
    return found


def compare(
    base: Callable[[int], list[float]],
    cases: dict[str, Case],
    *,
    rounds: int,
    count: int,
    targets: dict[str, float] | None = None,
    progress: str = "",
) -> list[Figure]:
    """The cases against ``base``, in turns. The first round warms up and is not counted."""
    floors: list[list[float]] = []
    samples: dict[str, list[list[float]]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        if progress and sys.stderr.isatty():
            print(f"\r{progress}: round {number} of {rounds} ", end="", file=sys.stderr)
        floors.append(base(count))
        for name, case in cases.items():
            samples[name].append(times(case, count))
    if progress and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    return [
        _figure(name, floors[1:], taken[1:], (targets or {}).get(name))
        for name, taken in samples.items()
    ]


def compare_programs(
    floor: Path,
    base: list[str],
    cases: dict[str, list[str]],
    *,
    rounds: int,
    count: int,
    targets: dict[str, float] | None = None,
) -> list[Figure]:
    """Programs against ``base``, all started by the floor program, in turns as in ``compare``."""
    floors: list[list[float]] = []
    samples: dict[str, list[list[float]]] = {name: [] for name in cases}
    for _ in range(rounds + 1):
        floors.append(floor_times(floor, count, base))
        for name, words in cases.items():
            samples[name].append(floor_times(floor, count, words))
    return [
        _figure(name, floors[1:], taken[1:], (targets or {}).get(name))
        for name, taken in samples.items()
    ]


def _figure(
    name: str, floors: list[list[float]], taken: list[list[float]], target: float | None
) -> Figure:
    ratios = [
        statistics.median(one) / statistics.median(floor)
        for one, floor in zip(taken, floors, strict=True)
    ]
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
    every = [value for one in taken for value in one]
    base = [value for floor in floors for value in floor]
    ratio = statistics.median(every) / statistics.median(base)
    return Figure(name, ratio, low, high, len(ratios), target)
