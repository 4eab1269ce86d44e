"""What the tests of sandcore-exec share: a policy compiled to a file, and commands under it.

`policy_at` is also called by programs that tests start as an ordinary user: no pytest here.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.backends.compiled import compile_file, launcher_path
from sandbox.policy import SandboxPolicy
from sandbox.presets import workspace_write

ISOLATIONS = ("landlock", "namespaces")
LAUNCHER = launcher_path()


@dataclass
class Launch:
    """A compiled policy, its workspace, and how it is run."""

    file: Path
    workspace: Path
    isolation: str = "auto"

    def words(self, *command: str) -> list[str]:
        """The argv of a command under the policy."""
        return [LAUNCHER, f"--policy={self.file}", "--isolation", self.isolation, "--", *command]

    def __call__(self, *command: str, **how: Any) -> subprocess.CompletedProcess[str]:
        """Runs it to its end, in the workspace; output is text."""
        how = {"cwd": self.workspace, "capture_output": True, "text": True, "timeout": 60} | how
        return subprocess.run(self.words(*command), **how)

    def shell(self, script: str, **how: Any) -> subprocess.CompletedProcess[str]:
        """Runs a script of sh."""
        return self("sh", "-c", script, **how)


def policy_at(
    place: Path, workspace: Path, isolation: str, policy: SandboxPolicy | None = None
) -> Launch:
    """Compiles for both isolations, whatever the tests' default is; run in the given one."""
    before = os.environ.pop("SANDBOX_ISOLATION", None)
    try:
        file = place / "policy.scx"
        compile_file(policy or workspace_write(), str(file), str(workspace))
    finally:
        if before is not None:
            os.environ["SANDBOX_ISOLATION"] = before
    return Launch(file, workspace, isolation)


def ours(word: str) -> Sequence[int]:
    """Living processes with this word on their command line."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if word.encode() in words:
            found.append(int(name))
    return found
