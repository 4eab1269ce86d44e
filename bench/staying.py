"""What a sandbox that stays costs: to start, to run in, to keep, to reach files in.

In each isolation. Ratios to the floor, but for the rows of KiB: memory that no other process has
(`Private_*` of smaps), of all processes of an idle sandbox.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from measure import Case, Figure, compare, compile_floor, floor_times

import sandbox
from sandbox.backends.base import Request

COMMAND = ["/bin/true"]
ISOLATIONS = ("namespaces", "landlock")
START, BARE, CAPTURED = "started, to the first command's end", "no pipes", "captured"
READ, WRITTEN = "1 KiB read from a file", "1 KiB written to a file that is there"
TARGETS = {START: 4.0, BARE: 1.10, CAPTURED: 1.20, READ: 0.125, WRITTEN: 0.125}
DENIED = 1_500
KIB = bytes(1024)
Floor = Callable[[int], list[float]]


@contextmanager
def _in(isolation: str) -> Iterator[None]:
    """Sandboxes made meanwhile are of this isolation, if the host has it."""
    before = os.environ.get("SANDBOX_ISOLATION")
    os.environ["SANDBOX_ISOLATION"] = "auto" if isolation == "namespaces" else isolation
    try:
        yield
    finally:
        del os.environ["SANDBOX_ISOLATION"]
        if before is not None:
            os.environ["SANDBOX_ISOLATION"] = before


def _made(isolation: str, policy: sandbox.SandboxPolicy) -> sandbox.Sandbox:
    with _in(isolation):
        box = sandbox.Sandbox(policy)
    if box.isolation != isolation:
        raise SystemExit(f"this host has no isolation {isolation!r}")
    return box


def _without_pipes(box: sandbox.Sandbox) -> Case:
    """One command in a lane, with nothing of ours around it."""
    seat = box._boundary.current().seat(box.policy.limits)
    null = os.open("/dev/null", os.O_RDWR)
    request = Request(
        programs=[os.fsencode(COMMAND[0])],
        argv=[os.fsencode(word) for word in COMMAND],
        env=b"PATH=/usr/bin:/bin\0",
        env_count=1,
        cwd=b"/",
        limits=(),
        memory=0,
        cap=0,
        timeout=120.0,
    )
    request.stdin = request.stdout = request.stderr = null
    return lambda: seat.run(request)


def measure(rounds: int) -> list[Figure]:
    """The figures of both isolations, in turns."""
    floor, count = compile_floor(), 20
    with tempfile.TemporaryDirectory() as place:
        policy = sandbox.workspace_write(place)
        boxes = {name: _made(name, policy) for name in ISOLATIONS}
        cases: dict[str, Case] = {}
        for name, box in boxes.items():
            cases[f"{name}: {BARE}"] = _without_pipes(box)
            cases[f"{name}: {CAPTURED}"] = partial(box.run, COMMAND)
            box.write_file("file", KIB)
            cases[f"{name}: {READ}"] = partial(box.read_file, "file")
            cases[f"{name}: {WRITTEN}"] = partial(box.write_file, "file", KIB)
        wanted = {f"{n}: {what}": aim for n in ISOLATIONS for what, aim in TARGETS.items()}

        def base(number: int) -> list[float]:
            return floor_times(floor, number, COMMAND)

        found = compare(base, cases, rounds=rounds, count=count, targets=wanted, progress="staying")
        found += [_started(name, policy, rounds, base, wanted) for name in ISOLATIONS]
        found += [_kept(name, box) for name, box in boxes.items()]
        found.append(_denying(Path(place), rounds, base))
        for box in boxes.values():
            box.close()
    return found


def _started(
    name: str, policy: sandbox.SandboxPolicy, rounds: int, base: Floor, wanted: dict[str, float]
) -> Figure:
    """From nothing to the end of the first command; closing is not part of it."""
    ratios = []
    for _ in range(rounds):
        floors, times = sorted(base(20)), []
        for _ in range(4):
            with _in(name):
                began = time.perf_counter_ns()
                box = sandbox.Sandbox(policy)
                box.run(COMMAND)
                times.append(time.perf_counter_ns() - began)
            box.close()
        ratios.append(sorted(times)[len(times) // 2] / floors[len(floors) // 2])
    return _figure(f"{name}: {START}", ratios, wanted[f"{name}: {START}"])


def _denying(place: Path, rounds: int, base: Floor) -> Figure:
    """A sandbox with many denied files, started for the first time."""
    closet = place / "closet"
    closet.mkdir()
    files = [closet / str(i) for i in range(DENIED)]
    for file in files:
        file.touch()
    policy = sandbox.workspace_write(place, deny=files)
    ratios = []
    for _ in range(max(3, rounds // 4)):
        floors = sorted(base(20))
        (closet / "0").rename(closet / "moved")
        (closet / "0").touch()  # another file: nothing that was prepared holds
        began = time.perf_counter_ns()
        box = _made("namespaces", policy)
        ratios.append((time.perf_counter_ns() - began) / floors[len(floors) // 2])
        box.close()
    return _figure(f"namespaces: started anew with {DENIED:,} denied files", ratios, None)


def _figure(name: str, ratios: list[float], target: float | None) -> Figure:
    ratios = sorted(ratios)
    quarter = len(ratios) // 4
    return Figure(
        name, ratios[len(ratios) // 2], ratios[quarter], ratios[-1 - quarter], len(ratios), target
    )


def _kept(name: str, box: sandbox.Sandbox) -> Figure:
    """KiB of an idle sandbox."""
    box.run(COMMAND)
    time.sleep(0.2)
    helper = box._boundary.current()._helper  # type: ignore[attr-defined]
    pids, size = [helper.pid], 0
    for pid in pids:  # root, supervisor, lane: each below the one before
        pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Private_"):
                size += int(line.split()[1])
    return Figure(
        f"{name}: KiB of an idle sandbox ({len(pids)} processes)", size, size, size, 1, 400
    )
