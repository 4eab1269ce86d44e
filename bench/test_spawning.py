"""The same cases for pytest-benchmark, to keep and compare runs over time.

.venv/bin/python -m pytest bench --benchmark-only --benchmark-autosave
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import spawning
from measure import compile_floor, floor_times

NAMES = (
    "_sandcore.spawn, confined",
    "_sandcore.spawn, confined inline",
    "_sandcore.spawn, bare",
    "sandbox.run, captured",
    "Sandbox.run, captured",
    "subprocess.run, no sandbox",
)


@pytest.fixture(scope="module")
def floor() -> Iterator[Path]:
    yield compile_floor()


@pytest.mark.parametrize("name", NAMES)
def test_spawning(benchmark: Any, floor: Path, tmp_path: Path, name: str) -> None:
    """Each case with the floor of the same moment beside it."""
    case = spawning.cases(str(tmp_path), [])[name]
    before = floor_times(floor, 50, spawning.COMMAND)
    benchmark.pedantic(case, rounds=100, warmup_rounds=5)
    after = floor_times(floor, 50, spawning.COMMAND)
    bare = sorted(before + after)[50]
    ratio = benchmark.stats.stats.median * 1e9 / bare
    benchmark.extra_info["ratio_to_floor"] = ratio
    assert ratio > 0.9, "nothing is cheaper than the floor: the measurement is broken"
