"""What one command costs: the faces of this package and the standard library, over the floor.

Run as a program it measures in the process it finds itself in, after blowing that up as asked:
`--resident GIB`, `--open COUNT`, `--roots COUNT`. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from measure import Case, Figure, compare, compile_floor, floor_times

import _sandcore
import sandbox
from sandbox.backends.ground import compile_blob
from sandbox.backends.rules import compile_rules

COMMAND = ["/bin/true"]
ENV = {f"VARIABLE_{i}": "value" for i in range(20)}
TARGETS = {"_sandcore.spawn, confined": 1.18, "sandbox.run, captured": 1.30}


def cases(workspace: str, roots: list[str]) -> dict[str, Case]:
    """Name to call, all for the same program."""
    policy = sandbox.workspace_write(workspace, write=roots)
    words = [word.encode() for word in COMMAND]
    env = [f"{name}={value}".encode() for name, value in ENV.items()]
    box = sandbox.Sandbox(policy)  # kept by the case below: its directories are in the rules
    confined = _sandcore.Plan(words, env, policy=_blob(box))
    inline = _sandcore.Plan(words, env, policy=_blob(box), inline=True)
    bare = _sandcore.Plan(words, env)
    return {
        "_sandcore.spawn, confined": lambda: _spawn(confined),
        "_sandcore.spawn, confined inline": lambda: _spawn(inline),
        "_sandcore.spawn, bare": lambda: _spawn(bare),
        "sandbox.run, captured": lambda: sandbox.run(COMMAND, policy, cwd=workspace),
        "Sandbox.run, captured": lambda: box.run(COMMAND),
        "subprocess.run, no sandbox": _subprocess,
    }


def _blob(box: sandbox.Sandbox) -> _sandcore.Policy:
    abi = _sandcore.probe().landlock_abi
    return compile_blob(box.policy, compile_rules(box.resolved, abi), abi)


def _spawn(plan: _sandcore.Plan) -> None:
    _, pidfd = _sandcore.spawn(plan)
    _sandcore.wait(pidfd)
    os.close(pidfd)


def _subprocess() -> None:
    subprocess.run(
        COMMAND,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=ENV,
        start_new_session=True,
        timeout=120,
        check=True,
    )


def _floor(floor: Path) -> Callable[[int], list[float]]:
    return lambda count: floor_times(floor, count, COMMAND)


def measure(rounds: int, count: int, roots: int = 0, progress: str = "") -> list[Figure]:
    """The figures in this process."""
    with tempfile.TemporaryDirectory() as place:
        more = [f"{place}/root-{i}" for i in range(roots)]
        for path in [f"{place}/workspace", *more]:
            os.mkdir(path)
        taken = cases(f"{place}/workspace", more)
        base = _floor(compile_floor())
        return compare(base, taken, rounds=rounds, count=count, targets=TARGETS, progress=progress)


def open_files(count: int) -> list[int]:
    """That many, or as many as this user may have less the few that measuring needs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return [os.open("/dev/null", os.O_RDONLY) for _ in range(min(count, hard - 200))]


def main() -> None:
    """Blows this process up, measures in it, prints JSON."""
    warnings.simplefilter("ignore", sandbox.SandboxWeakened)
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--resident", type=float, default=0.0)
    parser.add_argument("--open", type=int, default=0)
    parser.add_argument("--roots", type=int, default=0)
    given = parser.parse_args()
    ballast = bytearray(int(given.resident * 2**30))
    ballast[:: os.sysconf("SC_PAGESIZE")] = b"x" * len(ballast[:: os.sysconf("SC_PAGESIZE")])
    kept = open_files(given.open)
    figures = measure(given.rounds, given.count, given.roots)
    json.dump([one.as_dict() for one in figures], sys.stdout)
    del ballast, kept


if __name__ == "__main__":
    main()
