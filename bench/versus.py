"""`make versus`: this package beside the standard library and other sandboxes, in one run.

    bench/versus.py [--quick] [--install] [--only NAME,...] [--json FILE] [--plots DIRECTORY]

The same command under the same policy, by turns: each way to run it has a process of its own and
idles while the others have theirs. Figures are over the bare C floor of the same round (vfork,
exec, wait; nothing captured): latency as the floor's median, throughput as a part of the floor's
with as many in flight. What each refuses is tried, and counted in its row.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import peers
import plots
from faces import ENV, FACES
from measure import compile_floor
from probing import PROBES, Range
from rich.console import Console
from rich.table import Table

import sandbox
from sandbox.backends.compiled import compile_file, launcher_path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
COMMAND = ["/bin/true"]
IN_FLIGHT = (1, 2, 8, 64, 512)
SECONDS = 0.8  # of one turn, as long as it takes no fewer commands than are in flight
MOST_COMMANDS = 2000
SLOW = 25.0  # floors: what takes longer is asked for one at a time only, or this took hours
STANDARD = ("posix_spawn", "subprocess.run", "asyncio subprocess")
PROCESSES = 2 * (os.cpu_count() or 1)  # of the floor, at the most


@dataclass
class Turn:
    """What came of one: nanoseconds of each command, and of all."""

    times: list[int]
    wall: int
    held: dict[str, int] = field(default_factory=dict)


@dataclass
class Row:
    """One way to run commands."""

    name: str
    kind: str
    turn: Callable[[int, int], Turn]
    run: Callable[[Sequence[str]], str]
    runs: dict[int, list[tuple[float, float, float]]] = field(default_factory=dict)
    held: dict[int, dict[str, int]] = field(default_factory=dict)
    refused: dict[str, bool] | str = "not tried"
    inner: dict[str, float] = field(default_factory=dict)
    middle: float = 0.0  # of the floor: nanoseconds of a command
    failed: str = ""


class Worker:
    """A face in its process."""

    def __init__(self, python: str, name: str, work: str) -> None:
        env = {**os.environ, "BENCH_SECRET": "s3cr3t", "PYTHONPATH": str(ROOT / "src")}
        words = [python, str(HERE / "faces.py"), name, work]
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            text=True,
            pass_fds=(77,),
            cwd=work,
        )

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        found: dict[str, Any] = json.loads(answer) if answer else {"error": "it has ended"}
        if "error" in found:
            raise RuntimeError(found["error"])
        return found

    def turn(self, count: int, most: int) -> Turn:
        found = self.ask(words=COMMAND, count=count, most=most)
        held = {name: found[name] for name in ("fds", "threads", "resident", "started")}
        return Turn(found["times"], found["wall"], held)

    def run(self, words: Sequence[str]) -> str:
        return str(self.ask(words=list(words))["output"])

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def by_floor(
    floor: Path, words: list[str], env: dict[str, str] | None = None
) -> Callable[..., Turn]:
    """Programs, started by the floor program, of which there are a few where many are in flight."""

    def turn(count: int, most: int) -> Turn:
        processes = min(most, PROCESSES)
        began = time.perf_counter_ns()
        running = []
        for i in range(processes):
            share = most // processes + (i < most % processes)
            part = str(max(count // processes, share))
            given = [str(floor), "-n", str(share), part, *words]
            if env is not None:  # the floor gives its own
                given[4:4] = ["/usr/bin/env", *(f"{name}={value}" for name, value in env.items())]
            running.append(
                subprocess.Popen(
                    given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    cwd="/var/tmp",
                )
            )
        taken = [int(line) for one in running for line in one.communicate()[0].split()]
        wall = time.perf_counter_ns() - began
        if any(one.returncode for one in running):
            raise RuntimeError(f"{words[0]} failed")
        return Turn(taken, wall * count // max(len(taken), 1))

    return turn


def plainly(words: list[str], env: dict[str, str], work: str) -> Callable[[Sequence[str]], str]:
    def run(command: Sequence[str]) -> str:
        done = subprocess.run(
            [*words, *command],
            capture_output=True,
            text=True,
            env={**env, "BENCH_SECRET": "s3cr3t"},
            cwd=work,
            pass_fds=(77,),
            timeout=60,
        )
        return done.stdout or done.stderr

    return run


def launchers(place: Path, work: str, floor: Path) -> Iterator[Row]:
    """``sandcore-exec``, in each isolation.

    Compiled for each turn: some peers leave directories of protected names in the workspace, and a
    policy that was compiled before that is refused.
    """
    file = str(place / "policy.scx")

    def anew(act: Callable[..., Any]) -> Callable[..., Any]:
        def acting(*given: Any) -> Any:
            compile_file(sandbox.workspace_write(), file, work)
            return act(*given)

        return acting

    for isolation in ("landlock", "namespaces"):
        words = [launcher_path(), "--policy", file, "--isolation", isolation, "--"]
        name = f"sandcore-exec ({isolation})"
        turn = anew(by_floor(floor, [*words, *COMMAND]))
        yield Row(name, "ours", turn, anew(plainly(words, ENV, work)))


@contextmanager
def rows(work: str, floor: Path, python: Path, only: set[str]) -> Iterator[list[Row]]:
    """All that can be had, the floor first."""
    os.dup2(os.open("/dev/null", os.O_RDONLY), 77)
    made = [Row("floor", "floor", by_floor(floor, COMMAND), plainly([], ENV, work))]
    workers = list[Worker]()
    wanted = {name: sys.executable for name in FACES if name not in peers.API}
    wanted |= {name: str(python) for name in peers.API} if python.exists() else {}
    for name, interpreter in wanted.items():
        if only and name not in only:
            continue
        kind = "standard" if name in STANDARD else "peer" if name in peers.API else "ours"
        worker = Worker(interpreter, name, work)
        workers.append(worker)
        made.append(Row(name, kind, worker.turn, worker.run))
    place = Path(work).parent
    made += [row for row in launchers(place, work, floor) if not only or row.name in only]
    for name, found in peers.programs(python.parent.parent, work).items():
        if only and name not in only:
            continue
        if isinstance(found, str):
            made.append(Row(name, "peer", _missing, plainly([], {}, work), failed=found))
            continue
        turn = by_floor(floor, [*found.words, *COMMAND], found.env)
        made.append(Row(name, "peer", turn, plainly(found.words, found.env, work)))
    try:
        yield made
    finally:
        for worker in workers:
            worker.close()


@contextmanager
def _tidied(place: str) -> Iterator[None]:
    """Removes empty directories that are new there: some peers leave some that git looks at."""
    before = set(os.listdir(place))
    try:
        yield
    finally:
        for name in {".git", ".codex", ".agents"} & set(os.listdir(place)) - before:
            with suppress(OSError):
                os.rmdir(f"{place}/{name}")


def _missing(count: int, most: int) -> Turn:
    raise RuntimeError("it is not there")


def probe(table: list[Row], work: str, console: Console) -> None:
    """Fills in what each refuses. Without a sandbox nothing may be, or the probe says nothing."""
    target = Range(work)
    for row in table:
        if row.failed or row.name == "posix_spawn":
            continue
        try:
            row.refused = target.refused(row.run)
        except (RuntimeError, subprocess.SubprocessError, OSError) as error:
            row.refused = str(error)[:200]
        if row.kind == "floor" and isinstance(row.refused, dict):
            vain = [name for name, was in row.refused.items() if was and name not in ("env", "fd")]
            if vain:
                console.print(
                    f"refused without a sandbox, so nothing is said by: {', '.join(vain)}"
                )
        if isinstance(row.refused, str):
            row.failed = f"the command did not run: {row.refused}"
    target.close()


def inner(table: list[Row], work: str, rounds: int) -> None:
    """Fills in what programs do inside, over the same without a sandbox."""
    place = Path(work).parent
    subprocess.run(["cc", "-O2", "-o", place / "inner", HERE / "inner.c"], check=True)
    samples: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for row in table:
            if row.failed or row.name in ("posix_spawn", "asyncio subprocess"):
                continue
            try:
                lines = row.run([str(place / "inner")]).splitlines()
                found = {line.split()[0]: float(line.split()[1]) for line in lines}
            except (RuntimeError, ValueError, IndexError, subprocess.SubprocessError):
                continue
            samples.setdefault(row.name, []).append(found)
    base = samples.get("floor") or []
    for row in table:
        for what in ("stat", "open", "create", "spawn"):
            taken = samples.get(row.name, [])
            ratios = [
                one[what] / plain[what]
                for one, plain in zip(taken, base, strict=False)
                if what in one and what in plain
            ]
            if ratios:
                row.inner[what] = statistics.median(ratios)


def measure(table: list[Row], rounds: int, in_flight: Sequence[int], console: Console) -> None:
    """Rounds by turns; the first one finds out how long each takes, and is not counted."""
    floor, slow = table[0], set[str]()
    for most in in_flight:
        counts: dict[str, int] = {}
        for number in range(rounds + 1):
            base: Turn | None = None
            for row in table:
                if row.failed or row.name in slow:
                    continue
                count = counts.get(row.name) or max(most, 8)
                try:
                    turn = row.turn(count, most)
                except RuntimeError as error:
                    row.failed = str(error)
                    continue
                if row is floor:
                    base = turn
                assert base is not None
                each = turn.wall / count
                if number == 0:
                    fits = int(SECONDS * 1e9 / each)
                    counts[row.name] = min(max(fits, most, 8), MOST_COMMANDS)
                    if most > 1 and each > SLOW * base.wall / max(len(base.times), 1):
                        slow.add(row.name)
                    continue
                middle = statistics.median(base.times)
                floor.middle = middle if most == 1 else floor.middle
                times = sorted(turn.times)
                row.runs.setdefault(most, []).append(
                    (
                        times[len(times) // 2] / middle,
                        times[min(int(len(times) * 0.99), len(times) - 1)] / middle,
                        (base.wall / len(base.times)) / each,
                    )
                )
                row.held[most] = turn.held
            if sys.stderr.isatty():
                print(f"\r{most} in flight: round {number} of {rounds} ", end="", file=sys.stderr)
        console.print(f"{most} in flight: done")


def as_saved(table: list[Row]) -> list[dict[str, Any]]:
    """The figures of each row.

    ``first``: floors from nothing but an interpreter to the end of the first command, with imports.
    ``each``: bytes that the caller has more for each command in flight.
    """
    found = []
    for row in table:
        runs = {}
        for most, samples in row.runs.items():
            parts = [sorted(one[i] for one in samples) for i in range(3)]
            p50, p99, of_floor = (statistics.median(part) for part in parts)
            spread = {"low": parts[2][0], "high": parts[2][-1]}
            runs[str(most)] = {"p50": p50, "p99": p99, "of_floor": of_floor, **spread}
            runs[str(most)].update(row.held.get(most, {}))
        found.append(
            {
                "name": row.name,
                "kind": row.kind,
                "runs": runs,
                "refused": row.refused,
                "inside": row.inner,
                "failed": row.failed,
                **_kept(row, table[0].middle),
            }
        )
    return found


def _kept(row: Row, middle: float) -> dict[str, float]:
    held = {most: one for most, one in row.held.items() if one}
    if 1 not in held or not middle:
        return {}
    least, most = min(held), max(held)
    grown = (held[most]["resident"] - held[least]["resident"]) / max(most - least, 1)
    return {"first": held[1]["started"] / middle, "each": grown}


def show(saved: list[dict[str, Any]], console: Console) -> None:
    """The tables: what each costs, and what each refuses."""
    flights = sorted({int(most) for row in saved for most in row["runs"]})
    table = Table(
        title="One command, over the floor; throughput, of the floor's", title_justify="left"
    )
    heads = ["", "p50", "p99", *(f"×{most}" for most in flights), "p99 at most", "refuses"]
    heads += ["stat", "open", "create", "spawn", "first", "KiB each"]
    for head in heads:
        table.add_column(head, justify="right" if head else "left")
    for row in saved:
        if row["failed"] and not row["runs"]:
            table.add_row(row["name"], row["failed"][:60])
            continue
        one = row["runs"].get("1", {})
        most = row["runs"].get(str(flights[-1]), {}) if flights else {}
        refused = row["refused"]
        count = f"{sum(refused.values())}/{len(refused)}" if isinstance(refused, dict) else "?"
        cells = [_number(one.get("p50")), _number(one.get("p99"))]
        cells += [_number(row["runs"].get(str(n), {}).get("of_floor")) for n in flights]
        cells += [_number(most.get("p99")), count]
        cells += [_number(row["inside"].get(what)) for what in ("stat", "open", "create", "spawn")]
        each = row.get("each")
        cells += [_number(row.get("first")), _number(each / 1024 if each is not None else None)]
        table.add_row(row["name"], *cells)
    console.print(table)
    refusals = Table(title="What is refused (+), and what is not (.)", title_justify="left")
    refusals.add_column("")
    for name in PROBES:
        refusals.add_column(name)
    for row in saved:
        if isinstance(row["refused"], dict):
            refusals.add_row(row["name"], *("+" if row["refused"][one] else "." for one in PROBES))
    console.print(refusals)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def main() -> None:
    """Measures, shows, saves and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="few rounds: a look, not a figure")
    parser.add_argument("--install", action="store_true", help="install peers into build/peers")
    parser.add_argument("--only", default="", help="names, with commas between")
    parser.add_argument("--json", type=Path, default=Path("build/versus.json"))
    parser.add_argument("--plots", type=Path, default=Path("build/plots"))
    given = parser.parse_args()
    place = ROOT / "build" / "peers"
    python = peers.install(place) if given.install else place / "bin" / "python"
    # What is no terminal has no width that a table would have to fit in.
    console = Console(width=None if sys.stdout.isatty() else 180)
    rounds, flights = (2, IN_FLIGHT[:3]) if given.quick else (5, IN_FLIGHT)
    # Neither in /tmp nor in /var/tmp, which some peers hide.
    home = Path(tempfile.mkdtemp(prefix="versus-", dir=ROOT / "build"))
    home.chmod(0o755)
    work = str(home / "work")
    os.mkdir(work)
    only = set(filter(None, given.only.split(",")))
    with _tidied("/tmp"), _tidied("/var/tmp"), rows(work, compile_floor(), python, only) as table:
        probe(table, work, console)
        inner(table, work, 1 if given.quick else 3)
        measure(table, rounds, flights, console)
    saved = {
        "kernel": platform.release(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "uid": os.getuid(),
        "rounds": rounds,
        "faces": as_saved(table),
    }
    show(saved["faces"], console)  # type: ignore[arg-type]
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(saved, indent=1))
    drawn = plots.draw(saved, given.plots)
    console.print(f"saved in {given.json}")
    console.print(f"drawn: {', '.join(map(str, drawn)) or 'nothing, for want of matplotlib'}")
    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
