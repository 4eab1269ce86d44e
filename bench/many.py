"""How many commands get done, so many in flight: each face beside the C floor's own throughput.

A figure is the floor's time for as many commands, by as many of its processes as are in flight,
over the time of the face, in turns: 1 is as many a second as the floor. More is better.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from measure import Figure, compile_floor

import sandbox
from sandbox import aio, run_many

COMMAND = ["/bin/true"]
IN_FLIGHT = (2, 8, 64)
COMMANDS = 512
FACES = ("run_many, one sandbox", "run_many, one for each", "aio, asyncio", "threads, Sandbox.run")
PLAIN = ("threads, subprocess.run", "asyncio's subprocess")
TARGETS = dict(zip(FACES, (0.82, None, 0.75, 0.75), strict=True))
Face = Callable[[int], None]


def _floor(floor: Path, most: int) -> None:
    words = [str(floor), str(COMMANDS // most), *COMMAND]
    for one in [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in range(most)]:
        if one.wait():
            raise SystemExit("the floor failed")


def _in_threads(act: Callable[[], object], most: int) -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(COMMANDS // most):
                act()
        except BaseException as error:
            failed.append(error)

    working = [threading.Thread(target=work) for _ in range(most)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join()
    if failed:
        raise failed[0]


async def _gathered(act: Callable[[], object], most: int) -> None:
    left = iter(range(COMMANDS))

    async def work() -> None:
        for _ in left:
            await act()  # type: ignore[misc]

    await asyncio.gather(*[work() for _ in range(most)])


async def _plain() -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    await (await asyncio.create_subprocess_exec(*COMMAND, **pipes)).communicate()  # type: ignore[arg-type]


def _faces(box: aio.Sandbox, work: str) -> dict[str, Face]:
    blocking = box.sandbox

    def shared(most: int) -> None:
        for done in run_many([COMMAND] * COMMANDS, sandbox=blocking, concurrency=most):
            _check(done)

    def own(most: int) -> None:
        for done in run_many([COMMAND] * COMMANDS, workspace=work, concurrency=most):
            _check(done)

    return {
        FACES[0]: shared,
        FACES[1]: own,
        FACES[2]: lambda most: asyncio.run(_gathered(lambda: box.run(COMMAND, check=True), most)),
        FACES[3]: lambda most: _in_threads(lambda: blocking.run(COMMAND, check=True), most),
        PLAIN[0]: lambda most: _in_threads(
            lambda: subprocess.run(COMMAND, capture_output=True), most
        ),
        PLAIN[1]: lambda most: asyncio.run(_gathered(_plain, most)),
    }


def _check(done: sandbox.Done) -> None:
    if done.result is None or not done.result.ok:
        raise SystemExit(f"a command failed: {done}")


def _time(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def measure(rounds: int) -> list[Figure]:
    """All faces at each number in flight; the first round warms up."""
    floor, found = compile_floor(), []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as work:
        box = aio.Sandbox(sandbox.workspace_write(work))
        faces = _faces(box, work)
        for most in IN_FLIGHT:
            taken: dict[str, list[float]] = {name: [] for name in faces}
            for _ in range(rounds + 1):
                for name, face in faces.items():
                    base = _time(partial(_floor, floor, most))
                    taken[name].append(base / _time(partial(face, most)))
            for name, ratios in taken.items():
                low, middle, high = statistics.quantiles(ratios[1:], n=4)
                title = f"{name}, {most} in flight"
                found.append(Figure(title, middle, low, high, rounds, TARGETS.get(name)))
        box.close()
    return found
