"""What `sandcore-exec` costs from its start to its end, around `/bin/true`.

Whoever takes it as a prefix pays it for each command: there is nothing that stays. With rules that
deny the secrets of HOME each file beside them has a rule of its own, which is most of the cost.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from measure import Figure, compare_programs, compile_floor

import sandbox
from sandbox.backends.compiled import compile_file, launcher_path

TRUE = "/bin/true"
TARGETS = {"landlock, all reads": 1.40, "namespaces, all reads": 4.0}


def measure(rounds: int) -> list[Figure]:
    """Ratios to the program without a launcher."""
    os.environ.pop("SANDBOX_ISOLATION", None)
    denied = sandbox.workspace_write()
    policies = {"all reads": denied.allow_secret("*"), "secrets denied": denied}
    with tempfile.TemporaryDirectory() as name:
        workspace = Path(name) / "workspace"
        workspace.mkdir()
        cases = {}
        for title, policy in policies.items():
            file = f"{name}/{title.replace(' ', '-')}.scx"
            compile_file(policy, file, str(workspace))
            for isolation in ("landlock", "namespaces"):
                words = [launcher_path(), "--policy", file, "--isolation", isolation, "--", TRUE]
                cases[f"{isolation}, {title}"] = words
        return compare_programs(
            compile_floor(), [TRUE], cases, rounds=rounds, count=20, targets=TARGETS
        )
