"""Ordinary work inside: it works, or fails as the table says, as root and as an ordinary user.

The rows are in `tests/inside/`; each runs in a process of its own, in both isolations. HOME holds
secrets, which are masked; rows that read HOME run once more without them, and say the same.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import ROOT, TESTS, AsUser
from insidekit import WORKS, Row
from test_cases import Runs, run_as_root

RUNNER = "import insidekit, sys; sys.exit(insidekit.main(*sys.argv[1:]))"
ISOLATIONS = {"namespaces": "auto", "landlock": "landlock"}
# The same tools for root and the ordinary user; PostgreSQL's and those of our own environment last.
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


class DidNotWork(AssertionError):
    """Something ordinary failed inside."""


class One(NamedTuple):
    """A row's place and name."""

    module: str
    name: str

    @property
    def row(self) -> Row:
        row: Row = importlib.import_module(self.module).ROWS[self.name]
        return row


def all_rows() -> Iterator[One]:
    for path in sorted((TESTS / "inside").glob("[a-z]*.py")):
        for name in importlib.import_module(f"inside.{path.stem}").ROWS:
            yield One(f"inside.{path.stem}", name)


def parameters() -> Iterator[object]:
    for one in all_rows():
        for isolation in ISOLATIONS:
            for who in ("root", "user"):
                name = f"{one.name}-{isolation}-{who}"
                yield pytest.param(one, isolation, who, id=name)


def find(tool: str) -> str | None:
    """The path of a program."""
    found = shutil.which(tool, path=f"{PATH}:{Path(sys.executable).parent}")
    servers = Path("/usr/lib/postgresql").glob(f"*/bin/{tool}")
    return found or next(map(str, sorted(servers)), None)


def run(one: One, isolation: str, who: str) -> subprocess.CompletedProcess[str]:
    """Runs a row in a directory of its own, which is not in the private `/tmp`."""
    tools = [os.path.realpath(os.path.dirname(find(tool) or "/bin")) for tool in one.row.needs]
    path = ":".join(dict.fromkeys([*PATH.split(":"), *tools]))
    more = {"SANDBOX_ISOLATION": ISOLATIONS[isolation], "PATH": path}
    place = Path(tempfile.mkdtemp(prefix="sandcore-", dir="/var/tmp"))
    try:
        place.chmod(0o755)
        words = [one.module, one.name, str(place)]
        if who == "root":
            return run_as_root(words, place, more, RUNNER)
        user = AsUser(place)
        user.give(place)
        return user(RUNNER, *words, timeout=200, env=more)
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Iterator[Runs]:
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    names = ("one", "isolation", "who")
    wanted = [call.params for call in calls if call is not None and {*names} <= {*call.params}]
    made = Runs((tuple(params[name] for name in names) for params in wanted), run)
    yield made
    made.close()


@pytest.mark.parametrize(("one", "isolation", "who"), tuple(parameters()))
def test_work(one: One, isolation: str, who: str, runs: Runs) -> None:
    row = one.row
    missing = [package for tool, package in row.needs.items() if find(tool) is None]
    if missing:
        text = f"needs what is not here: apt-get install {' '.join(missing)}"
        pytest.fail(text) if os.environ.get("CI") else pytest.skip(text)
    finished = runs.of(one, isolation, who)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    done = json.loads(finished.stdout.splitlines()[-1])
    assert done["isolation"] == (isolation if row.confined else "none")
    answer = row.answer(isolation, who)
    if done["works"] != (answer == WORKS):
        raise DidNotWork(f"{answer}\n{done['text']}")
    assert answer.says in done["text"]


def test_what_is_expected_to_fail_is_explained_to_the_reader() -> None:
    """Each kind of work has a line in the reference, with its answer in `landlock`."""
    text = (ROOT / "docs" / "inside.md").read_text()
    for one in all_rows():
        assert f"`{one.name}`" in text or f"`{one.name.partition('-')[0]}-*`" in text, one.name


def test_a_row_that_fails_is_told_from_one_that_works(tmp_path: Path) -> None:
    """The runner: what is printed last, and not the status alone, is the answer."""
    (tmp_path / "sample.py").write_text(
        "from insidekit import Row, bash\n"
        "ROWS = {'works': Row(bash('touch f')), 'fails': Row(bash('touch /usr/f')),\n"
        "        'stops': Row('true'), 'reads': Row('cat ~/.npmrc', home=True)}\n"
    )
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(TESTS), str(tmp_path)])}
    seen = {}
    for name in ("works", "fails", "stops", "reads"):
        place = tmp_path / name
        place.mkdir()
        command = [sys.executable, "-c", RUNNER, "sample", name, str(place)]
        done = subprocess.run(command, env=os.environ | path, capture_output=True, text=True)
        seen[name] = done.returncode == 0 and json.loads(done.stdout)["works"]
    assert seen == {"works": True, "fails": False, "stops": False, "reads": False}
