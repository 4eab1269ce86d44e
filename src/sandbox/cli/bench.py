"""`sandbox bench`: what confinement costs on this machine, for a command of your choice.

Three ways to run the same command, in turn within each round, so that whatever else the machine
does falls on all of them alike; medians and quartiles, as ratios to the first.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

import sandbox
from sandbox.cli.options import command_argument
from sandbox.errors import CommandNotFound, SandboxWeakened
from sandbox.policy import SandboxPolicy
from sandbox.presets import read_only

__all__ = ["command"]

Case = tuple[str, Callable[[], int]]

_ROUNDS_MAX = 500
_ROUNDS_MIN = 5
_BUDGET = 6.0  # seconds that a bench takes unless the number of rounds is given
_WARM = 3  # uncounted rounds: the sandbox is started, files are in the cache


@dataclass(frozen=True, slots=True)
class Cost:
    """One case: seconds of a run (quartiles), and the exit status that all its runs had."""

    name: str
    low: float
    median: float
    high: float
    status: int

    def ratios(self, floor: Cost) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile in medians of the floor."""
        return (self.low / floor.median, self.median / floor.median, self.high / floor.median)


@click.command("bench", context_settings={"allow_interspersed_args": False})
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("-n", "rounds", metavar="N", type=click.IntRange(1, 100_000), help="Rounds.")
@command_argument
def command(as_json: bool, rounds: int | None, words: tuple[str, ...]) -> int:
    """Show what confinement costs on this machine.

    CMD (by default `true`) runs by posix_spawn, the floor; by subprocess.run with captured output,
    unconfined; and by sandbox.run, confined.
    """
    warnings.simplefilter("ignore", SandboxWeakened)
    chosen = list(words) or ["true"]
    # `true` needs no workspace, and there may be none here: HOME is refused as one.
    cases = cases_of(chosen, None if words else read_only())
    count = rounds if rounds is not None else _fitting(cases)
    with _progress(count, not as_json) as advance:
        costs = measure(cases, count, advance)
    if as_json:
        click.echo(json.dumps(document(chosen, count, costs)))
    else:
        _print(chosen, count, costs)
    return 0


def cases_of(words: list[str], policy: SandboxPolicy | None) -> list[Case]:
    """The ways to run a command, the floor first. Raises `CommandNotFound`."""
    program = shutil.which(words[0])
    if program is None:
        raise CommandNotFound("exec", 2, words[0], "it is in no directory of PATH")
    null = os.open(os.devnull, os.O_RDWR)
    streams = [(os.POSIX_SPAWN_DUP2, null, number) for number in range(3)]

    def floor() -> int:
        pid = os.posix_spawn(program, words, os.environ, file_actions=streams)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def unconfined() -> int:
        done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL)
        return done.returncode

    def confined() -> int:
        return sandbox.run(words, policy, timeout=None).returncode

    return [
        ("posix_spawn", floor),
        ("subprocess.run, unconfined", unconfined),
        ("sandbox.run, confined", confined),
    ]


def _fitting(cases: list[Case]) -> int:
    """As many rounds as fit into the time that a person waits."""
    for _, run in cases:
        run()  # uncounted: the first confined run starts the sandbox
    began = time.perf_counter()
    for _, run in cases:
        run()
    each = time.perf_counter() - began
    return max(_ROUNDS_MIN, min(_ROUNDS_MAX, int(_BUDGET / max(each, 1e-6))))


def measure(cases: list[Case], rounds: int, advance: Callable[[], None]) -> list[Cost]:
    """Runs all cases in each round, each round beginning with the next of them."""
    spans: dict[str, list[float]] = {name: [] for name, _ in cases}
    statuses: dict[str, int] = {}
    for number in range(-_WARM, rounds):
        first = number % len(cases)
        for name, run in cases[first:] + cases[:first]:
            began = time.perf_counter()
            statuses[name] = run()
            if number >= 0:
                spans[name].append(time.perf_counter() - began)
        advance()
    return [_cost(name, spans[name], statuses[name]) for name, _ in cases]


def _cost(name: str, spans: list[float], status: int) -> Cost:
    if len(spans) == 1:
        return Cost(name, spans[0], spans[0], spans[0], status)
    low, median, high = statistics.quantiles(spans, n=4, method="inclusive")
    return Cost(name, low, median, high, status)


def document(words: list[str], rounds: int, costs: list[Cost]) -> dict[str, Any]:
    """The costs for a program to read; seconds, and ratios to the floor."""
    return {
        "schema": "sandbox-bench/1",
        "args": words,
        "rounds": rounds,
        "cases": [
            {
                "name": cost.name,
                "exit_status": cost.status if cost.status >= 0 else 128 - cost.status,
                "seconds": [cost.low, cost.median, cost.high],
                "ratios": list(cost.ratios(costs[0])),
            }
            for cost in costs
        ],
    }


def _print(words: list[str], rounds: int, costs: list[Cost]) -> None:
    from sandbox.cli.tables import as_text, show

    rows = []
    for cost in costs:
        low, median, high = cost.ratios(costs[0])
        rows.append(
            (
                cost.name,
                f"{cost.median * 1e3:.3f} ms",
                f"{median:.2f}",
                f"{low:.2f} to {high:.2f}",
                str(cost.status),
            )
        )
    title = f"{' '.join(words)}: medians of {rounds} rounds, ratios to the first, with quartiles"
    sections = [(title, ("", "median", "ratio", "quartiles", "status"), rows)]
    if sys.stdout.isatty():
        show(sections)
    else:
        click.echo(as_text(sections))
    if len({cost.status for cost in costs}) > 1:
        click.echo("The ways end differently: the figures do not compare the same work.", err=True)


@contextmanager
def _progress(rounds: int, wanted: bool) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, nothing elsewhere."""
    if not (wanted and sys.stderr.isatty()):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task("rounds", total=rounds + _WARM)
        yield lambda: bar.update(task, advance=1, refresh=True)
