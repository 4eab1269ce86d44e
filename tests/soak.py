"""What only shows in the long run: `make soak`, or this with --commands, --many, --kills, ...

Thousands of commands that end in every way, callers that are killed at any moment, sandboxes by the
hundred; and then: is anything left, has anything grown? Fails with what it found. `test_soak.py`
runs a short one.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from scenekit import open_fds

import sandbox
from sandbox import aio

HELPER = b"sandcore-helper"
CALLER = """
import sys, warnings
warnings.simplefilter("ignore")
import sandbox
policy = sandbox.workspace_write(sys.argv[1])
command = f"echo x > f; mkdir -p .vscode; setsid sleep {sys.argv[2]} & sleep 0.01"
print("up", flush=True)
while True:
    sandbox.run(["sh", "-c", command], policy)
"""


def processes() -> dict[int, tuple[int, int]]:
    """Helpers on this machine, dead ones that nobody reaped too: parent and session of each."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if Path(f"/proc/{name}/comm").read_bytes().strip() == HELPER:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                found[int(name)] = int(fields[1]), int(fields[3])
        except OSError:
            continue
    return found


def helpers() -> set[int]:
    """Those of this process, and what is below them: supervisors, lanes."""
    found = processes()
    ours, more = set[int](), {os.getpid()}
    while more:
        more = {pid for pid, (parent, _) in found.items() if parent in more}
        ours |= more
    return ours


def sleepers(seconds: str) -> int:
    """Commands of the callers here that live on: nobody else sleeps that long."""
    done = subprocess.run(["pgrep", "-fc", f"sleep {seconds}"], capture_output=True, text=True)
    return int(done.stdout or 0)


def state() -> dict[str, int]:
    """What must be flat."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return {
        "fds": len(open_fds()),
        "threads": threading.active_count(),
        "KiB": int(status.split("VmRSS:")[1].split()[0]),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "helpers": len(helpers()),
    }


@contextmanager
def place() -> Iterator[Path]:
    """A workspace outside of /tmp and inside, in turns; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="sandcore-soak-") as name:
        yield Path(name)


def one(box: sandbox.Sandbox, pick: random.Random) -> None:
    """A command that ends in one of many ways."""
    kind = pick.randrange(8)
    if kind == 0:
        assert box.run(["sleep", "30"], timeout=0.02).timed_out
    elif kind == 1:
        # With the command's pipes it would be waited for, a second each time.
        assert box.run("setsid sleep 30 >/dev/null 2>&1 & exit 3").returncode == 3
    elif kind == 2:
        assert box.run("kill -9 $$").returncode == -9
    elif kind == 3:
        try:
            box.run(["no-such-program"])
        except sandbox.StartError:
            return
        raise AssertionError("a program that is not there has run")
    elif kind == 4:
        assert len(box.run("head -c 100000 /dev/zero").stdout) == 100_000
    elif kind == 5:
        with box.popen(["cat"], stdin=sandbox.PIPE) as process:
            process.kill()
            assert process.wait(30).returncode == -9
    else:
        assert box.run(["true"]).ok


def commands(count: int, isolation: str, threads: int = 4) -> None:
    """Many commands, ending in every way, from several threads."""
    os.environ["SANDBOX_ISOLATION"] = isolation
    with place() as workspace, sandbox.Sandbox(sandbox.workspace_write(workspace)) as box:
        failures: list[BaseException] = []

        def work(seed: int, share: int) -> None:
            pick = random.Random(seed)
            try:
                for _ in range(share):
                    one(box, pick)
            except BaseException as error:
                failures.append(error)

        def turn(share: int) -> None:
            workers = [
                threading.Thread(target=work, args=(random.randrange(2**32), share))
                for _ in range(threads)
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            if failures:
                raise failures[0]

        turn(max(10, count // threads // 10))
        before = state()
        turn(count // threads)
        after = state()
    assert after["KiB"] - before["KiB"] < 4096, (before, after)
    for what in ("fds", "threads", "mounts", "helpers"):
        assert after[what] <= before[what], (what, before, after)


def mixed(pick: random.Random) -> tuple[list[str], dict[str, Any], Callable[[Any], bool]]:
    """Words and options of a command that is one of many, and whether a result is what it has."""
    kind = pick.randrange(400)
    if kind == 0:
        return ["sleep", "30"], {"timeout": 0.02}, lambda result: result.timed_out
    if kind < 5:
        return ["sh", "-c", "kill -9 $$"], {}, lambda result: result.returncode == -9
    if kind < 10:
        words = ["sh", "-c", "setsid sleep 30 >/dev/null 2>&1 & exit 3"]
        return words, {}, lambda result: result.returncode == 3
    if kind < 20:
        words = ["head", "-c", "70000", "/dev/zero"]
        return words, {}, lambda result: len(result.stdout) == 70_000
    if kind < 30:
        return ["cat"], {"input": b"x" * 70_000}, lambda result: len(result.stdout) == 70_000
    return ["/bin/true"], {}, lambda result: result.ok


def flat(turn: Callable[[int], None], count: int) -> None:
    """A tenth of it first; then the rest must leave all as it was."""
    turn(count // 10)
    before = state()
    turn(count - count // 10)
    after = state()
    assert after["KiB"] - before["KiB"] < 8192, (before, after)
    for what in ("fds", "threads", "mounts", "helpers"):
        assert after[what] <= before[what], (what, before, after)


def batch(count: int, isolation: str, at_once: int = 16) -> None:
    """Many through ``run_many``: in one sandbox, each in one for itself, each in a workspace."""
    os.environ["SANDBOX_ISOLATION"] = isolation
    pick = random.Random(count)
    with place() as workspace, sandbox.Sandbox(sandbox.workspace_write(workspace)) as box:
        samples = workspace / "samples"
        for number in range(50):
            (samples / str(number)).mkdir(parents=True)

        def run(share: int, each: bool, **how: Any) -> None:
            right: dict[int, Callable[[Any], bool]] = {}

            def commands() -> Iterator[sandbox.Command]:
                for number in range(share):
                    words, options, right[number] = mixed(pick)
                    path = samples / str(number % 50) if each else None
                    yield sandbox.Command(words, path, options)  # type: ignore[arg-type]

            done = sandbox.run_many(commands(), concurrency=at_once, ordered=False, **how)
            for one in done:
                assert one.result is not None, one.error
                assert right.pop(one.index)(one.result), one
            assert not right

        def turn(share: int) -> None:
            run(share // 2, False, sandbox=box)
            run(share // 4, False, workspace=workspace)
            if isolation == "auto":  # else each is a sandbox more
                run(share // 4, True, workspaces=samples)

        flat(turn, count)


def awaited(count: int, isolation: str, at_once: int = 16) -> None:
    """Many through ``aio``, of which some are cancelled."""
    os.environ["SANDBOX_ISOLATION"] = isolation
    pick = random.Random(count)

    async def serve(box: aio.Sandbox, left: Iterator[int]) -> None:
        for _ in left:
            if pick.randrange(500) == 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(box.run(["sleep", "30"]), 0.01)
                continue
            words, options, right = mixed(pick)
            assert right(await box.run(words, **options)), words

    async def act(share: int) -> None:
        async with aio.Sandbox(sandbox.workspace_write(workspace)) as box:
            left = iter(range(share))
            await asyncio.gather(*[serve(box, left) for _ in range(at_once)])

    with place() as workspace:
        flat(lambda share: asyncio.run(act(share)), count)


def kills(count: int, isolation: str) -> None:
    """Callers that are killed at any moment: of the start, too."""
    environ = os.environ | {"SANDBOX_ISOLATION": isolation}
    sessions, seconds = set(), f"1000.{random.randrange(10**9):09d}"
    with place() as workspace:
        for number in range(count):
            words = [sys.executable, "-c", CALLER, str(workspace), seconds]
            caller = subprocess.Popen(
                words, env=environ, stdout=subprocess.PIPE, start_new_session=True
            )
            sessions.add(caller.pid)
            assert caller.stdout is not None
            caller.stdout.readline()
            time.sleep(random.random() * (0.03 if number % 2 else 0.2))
            caller.send_signal(signal.SIGKILL)
            caller.wait()
            caller.stdout.close()

        def left() -> list[int]:
            return [pid for pid, (_, session) in processes().items() if session in sessions]

        end = time.monotonic() + 10
        while (left() or sleepers(seconds)) and time.monotonic() < end:
            time.sleep(0.05)
        assert left() == [] and sleepers(seconds) == 0
        assert not (workspace / ".vscode").exists()  # the root process has moved what was planted


def sandboxes(count: int, at_once: int) -> None:
    """Many sandboxes alive at once, and commands in many of them at the same time."""
    os.environ["SANDBOX_ISOLATION"] = "auto"
    before = helpers()
    with place() as workspace:
        policy = sandbox.workspace_write(workspace)
        boxes = [sandbox.Sandbox(policy) for _ in range(count)]
        running = [box.popen(["sleep", "1000"]) for box in boxes[:at_once]]
        assert all(process.poll() is None for process in running)
        assert boxes[-1].run("echo here").out == "here\n"
        for process in running:
            process.kill()
        for process in running:
            assert process.wait(60).returncode == -9
        for box in boxes:
            box.close()
    assert helpers() == before


def main() -> None:
    """As long as it is told."""
    warnings.simplefilter("ignore", sandbox.SandboxWeakened)
    parser = argparse.ArgumentParser()
    parser.add_argument("--commands", type=int, default=50_000, help="in each isolation")
    parser.add_argument("--many", type=int, default=1_000_000, help="through run_many and aio")
    parser.add_argument("--kills", type=int, default=500, help="in each isolation")
    parser.add_argument("--sandboxes", type=int, default=1_000)
    given = parser.parse_args()
    for isolation in ("auto", "landlock"):
        print(f"{isolation}: {given.commands} commands", flush=True)
        commands(given.commands, isolation)
        print(f"{isolation}: {given.kills} callers killed", flush=True)
        kills(given.kills, isolation)
    for isolation, part in (("auto", 0.8), ("landlock", 0.2)):
        share = int(given.many * part / 2)
        print(f"{isolation}: {share} through run_many, {share} through aio", flush=True)
        batch(share, isolation)
        awaited(share, isolation)
    print(f"{given.sandboxes} sandboxes", flush=True)
    sandboxes(given.sandboxes, min(200, given.sandboxes))
    print("nothing is left, nothing has grown")


if __name__ == "__main__":
    main()
