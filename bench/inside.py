"""What confinement costs while a command runs: real work, inside against outside.

Two policies: everything may be read (then Landlock does not look at opens for reading at all), and
the secrets of HOME denied, which is the default. The work: `git status` of a large tree, many
imports of Python, a compilation in C.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import Figure, compare, times

import sandbox

FILES = 20_000
TARGETS = {"all reads": 1.02, "secrets denied": 1.05}
PROGRAM = "\n".join(f"int f{i}(int x) {{ return x * {i} + x / {i + 1}; }}" for i in range(1500))
IMPORTS = (
    "import asyncio, ctypes, email.message, http.client, http.server, json, logging.config,"
    "multiprocessing, sqlite3, unittest.mock, urllib.request, xml.dom.minidom, zipfile"
)


def make_tree(place: Path) -> None:
    """A repository with many files, and a C file."""
    for i in range(FILES):
        path = place / f"d{i % 200}" / f"f{i}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(i))
    (place / "big.c").write_text(PROGRAM)
    git = ["git", "-C", str(place), "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True, stdout=subprocess.DEVNULL)


def work(place: Path) -> dict[str, list[str]]:
    """Name to command."""
    return {
        "git status": ["git", "status", "--porcelain"],
        "import storm": [sys.executable, "-B", "-c", IMPORTS],
        "gcc -O2 -c": ["gcc", "-O2", "-c", "big.c", "-o", str(place / "big.o")],
    }


def policies() -> dict[str, sandbox.SandboxPolicy]:
    """The two policies, writable in the workspace."""
    denied = sandbox.workspace_write()
    return {"all reads": denied.allow_secret("*"), "secrets denied": denied}


def measure(rounds: int) -> list[Figure]:
    """Ratios to the same command outside, run by `subprocess` with the same environment."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        make_tree(place)
        for title, command in work(place).items():
            found += _one(place, title, command, rounds)
    return found


def _one(place: Path, title: str, command: list[str], rounds: int) -> list[Figure]:
    def outside() -> None:
        subprocess.run(
            command,
            cwd=place,
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(place)},
        )

    def confined(policy: sandbox.SandboxPolicy) -> None:
        sandbox.run(command, policy, cwd=place).check()

    cases = {
        f"{title}, {kind}": (lambda policy=policy: confined(policy))
        for kind, policy in policies().items()
    }
    targets = {f"{title}, {kind}": TARGETS[kind] for kind in TARGETS}
    return compare(
        lambda count: times(outside, count),
        cases,
        rounds=rounds,
        count=2,
        targets=targets,
        progress=title,
    )
