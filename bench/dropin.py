"""The drop-in with a policy beside the standard library without one: the same call, in turns."""

from __future__ import annotations

import asyncio
import subprocess as plain
import tempfile
from collections.abc import Callable

from measure import Case, Figure, compare, times

import sandbox
from sandbox import subprocess

COMMAND = ["/bin/true"]
TARGET = 1.05


def measure(rounds: int) -> list[Figure]:
    """Ratios to the standard library's own `run`, and to `asyncio` as it is.

    `joined`: the child joins a live sandbox, where this host has namespaces for one.
    """
    with (
        tempfile.TemporaryDirectory() as place,
        asyncio.Runner() as runner,
        sandbox.Sandbox(sandbox.workspace_write(place)) as box,
    ):
        policy = sandbox.workspace_write(place)

        def confined() -> None:
            subprocess.run(COMMAND, capture_output=True, policy=policy)

        def joined() -> None:
            subprocess.run(COMMAND, capture_output=True, sandbox=box)

        def through_asyncio() -> None:
            runner.run(_through_asyncio())

        def confined_through_asyncio() -> None:
            with subprocess.installed(policy):
                runner.run(_through_asyncio())

        runs: dict[str, Case] = {"run": confined}
        if box.isolation == "namespaces":
            runs["run, joined"] = joined
        return [
            *_beside(_plain, runs, rounds),
            *_beside(through_asyncio, {"asyncio": confined_through_asyncio}, rounds),
        ]


def _beside(base: Case, cases: dict[str, Case], rounds: int) -> list[Figure]:
    floor: Callable[[int], list[float]] = lambda count: times(base, count)  # noqa: E731
    targets = dict.fromkeys(cases, TARGET)
    return compare(floor, cases, rounds=rounds, count=20, targets=targets)


def _plain() -> None:
    plain.run(COMMAND, capture_output=True)


async def _through_asyncio() -> None:
    child = await asyncio.create_subprocess_exec(*COMMAND, stdout=plain.PIPE, stderr=plain.PIPE)
    await child.communicate()
