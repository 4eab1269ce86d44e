"""What isolation `namespaces` promises, tried as root and as an ordinary user.

The bodies are functions in `tests/spaces/` whose names are the promises. Each runs in a process of
its own, with a workspace and a directory outside, neither of them in `/tmp` (which is private).
"""

from __future__ import annotations

import os
from pathlib import Path

import casekit
import pytest
from conftest import TESTS, AsUser, bodies
from test_cases import RUNNER, run_as_root

SPACE = {"SANDBOX_ISOLATION": "auto"}


@pytest.mark.parametrize("who", ["root", "user"])
@pytest.mark.parametrize(
    ("module", "name"), tuple(bodies("spaces")), ids=lambda one: one.rpartition(".")[2]
)
def test_in_namespaces(module: str, name: str, who: str, far: Path) -> None:
    w, o = far / "work", far / "outside"
    for path in (w, o):
        path.mkdir()
    (o / "file").write_text("outside\n")
    words = [module, name, str(w), str(o)]
    home = far / "home"
    home.mkdir()
    if who == "root":
        done = run_as_root(words, home, SPACE)
    else:
        user = AsUser(home)
        user.give(home, w, o, o / "file")
        done = user(RUNNER, *words, timeout=120, env=SPACE)
    if done.returncode == casekit.SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_there_are_bodies() -> None:
    assert len(list(bodies("spaces"))) > 30 and os.path.isdir(TESTS / "spaces")
