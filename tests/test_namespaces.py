"""What isolation `namespaces` promises, tried as root and as an ordinary user.

The bodies are functions in `tests/spaces/` whose names are the promises. Each runs in a process of
its own, with a workspace and a directory outside, neither of them in `/tmp` (which is private).
"""

from __future__ import annotations

import importlib
import inspect
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import casekit
import pytest
from conftest import TESTS, AsUser
from test_cases import RUNNER, run_as_root

SPACE = {"SANDBOX_ISOLATION": "auto"}


def bodies() -> Iterator[tuple[str, str]]:
    for path in sorted((TESTS / "spaces").glob("[a-z]*.py")):
        module = importlib.import_module(f"spaces.{path.stem}")
        for name, body in inspect.getmembers(module, inspect.isfunction):
            if body.__module__ == module.__name__ and list(inspect.signature(body).parameters) == [
                "w",
                "o",
            ]:
                yield module.__name__, name


@pytest.fixture
def far() -> Iterator[Path]:
    """A directory of the test's own that is not in `/tmp`."""
    path = Path(tempfile.mkdtemp(prefix="sandcore-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("who", ["root", "user"])
@pytest.mark.parametrize(
    ("module", "name"), tuple(bodies()), ids=lambda one: one.rpartition(".")[2]
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
    assert len(list(bodies())) > 30 and os.path.isdir(TESTS / "spaces")
