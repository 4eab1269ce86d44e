"""Records for tests, and the files of a log."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from sandbox.session.events import (
    AssessmentRecord,
    CauseRow,
    ExitRecord,
    OutputRow,
    SpawnRecord,
    UsageRow,
)
from sandbox.session.log import Log

SESSION = "0f3a9c21b7d4"


def assessment(command: str | list[str] = "make", **more: Any) -> AssessmentRecord:
    return AssessmentRecord(
        session=SESSION,
        call=more.pop("call", 1),
        command=command,
        cwd=more.pop("cwd", "/project"),
        verdict="unknown",
        reasons=[CauseRow(reason="program", start=0, end=4)],
        decision="allow",
        grounds=["it is fully confined"],
        enforcement="full",
        **more,
    )


def spawn(argv: list[str] | None = None, **more: Any) -> SpawnRecord:
    return SpawnRecord(
        session=SESSION,
        call=more.pop("call", 1),
        argv=argv or ["/bin/sh", "-c", "make"],
        cwd="/project",
        policy="ab" * 32,
        mode="auto",
        isolation="namespaces",
        weaker=[],
        environment=["HOME", "PATH"],
        attempt=1,
        permissions="sandboxed",
        **more,
    )


def ended(**more: Any) -> ExitRecord:
    output = OutputRow.of(b"made\n", 0)
    usage = UsageRow(user=0.1, system=0.01, max_rss=1 << 20)
    return ExitRecord(
        session=SESSION,
        call=more.pop("call", 1),
        returncode=more.pop("returncode", 0),
        usage=usage,
        stdout=output,
        stderr=output,
        **more,
    )


def filled(directory: Path, calls: int = 3, **options: Any) -> Path:
    """A log of this many calls, three records each, in this directory."""
    with Log(str(directory), **options) as log:
        for call in range(1, calls + 1):
            log.append(assessment(call=call), spawn(call=call))
            log.append(ended(call=call))
    return directory


def segment(directory: Path, number: int = 1) -> Path:
    return directory / f"{number:06d}.jsonl"


def rewrite(path: Path, content: bytes) -> None:
    """Other content in the same file, never emptied: ext4 brings what was emptied to the disk."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


def documents(directory: Path) -> list[dict[str, Any]]:
    """All records, read without any code of the package."""
    files = sorted(directory.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


def open_files() -> set[str]:
    """What this process has open."""
    return set(os.listdir("/proc/self/fd"))
