"""The cases from the field: each in a process of its own, as root and as an ordinary user.

A case is a function `case_NN_what_is_right` in `tests/cases/`. Its process has a scratch HOME, no
threads, no descriptors and no warnings of other tests.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import casekit
import pytest
from beyond import BEYOND, NOT_APPLICABLE
from conftest import ROOT, TESTS, AsUser

# The ids of the cases that concern Linux and are not about judging commands by their text.
IDS = (
    *(1, 2, 3, 4, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 20, 23, 25),  # files
    *(27, 28, 30, 31, 32, 33, 37, 39),  # git
    *(41, 43, 45, 47, 49),  # temporary directories, devices
    *(50, 51, 53, 54, 56, 58, 59, 61, 62, 64, 66, 67),  # network, sockets, io_uring
    *(68, 69, 70, 71, 74, 75, 77, 79, 81),  # tool chains
    *(82, 83, 84, 85, 86, 88, 90),  # environment
    *(92, 93, 94, 95, 97, 98, 100, 102, 103, 105, 106, 107, 108, 109, 110, 111, 113, 115, 116, 117),
    *(118, 120, 122, 123, 124, 125, 127, 128, 130),  # output, status, stdin
    *(132, 133, 135, 137, 138),  # concurrency, performance
    *(152, 153, 156, 157, 159, 160),  # escapes
)
RUNNER = "import casekit, sys; sys.exit(casekit.main(*sys.argv[1:]))"
_NAME = re.compile(r"case_(\d+)_\w+")
_TEST = re.compile(r"^ *def test_(case_\d+_\w+)\(", re.MULTILINE)


class CaseFailed(AssertionError):
    """What came out of a case is not what is right."""


@dataclass(frozen=True)
class Case:
    module: str
    name: str

    @property
    def id(self) -> int:
        return number(self.name)


def number(name: str) -> int:
    found = _NAME.fullmatch(name)
    assert found, f"{name} is not named after a case"
    return int(found[1])


def all_cases() -> Iterator[Case]:
    for path in sorted((TESTS / "cases").glob("[a-z]*.py")):
        module = importlib.import_module(f"cases.{path.stem}")
        for name in vars(module):
            if name.startswith("case_"):
                yield Case(module.__name__, name)


CASES = tuple(all_cases())


def parameters() -> Iterator[object]:
    for case in CASES:
        marks = []
        if case.name in BEYOND:
            marks.append(
                pytest.mark.xfail(reason=BEYOND[case.name], raises=CaseFailed, strict=True)
            )
        for who in ("root", "user"):
            yield pytest.param(case, who, id=f"{case.name}-{who}", marks=marks)


@pytest.mark.parametrize(("case", "who"), tuple(parameters()))
def test_a_case(
    case: Case, who: str, workspace: Path, outside: Path, request: pytest.FixtureRequest
) -> None:
    words = [case.module, case.name, str(workspace), str(outside)]
    if who == "root":
        done = run_as_root(words, workspace.parent / "home-of-root")
    else:
        as_user: AsUser = request.getfixturevalue("as_user")
        as_user.give(workspace, outside, outside / "file")
        done = as_user(RUNNER, *words, timeout=120)
    if done.returncode == casekit.SKIPPED:
        pytest.skip(done.stdout.strip())
    if done.returncode != 0:
        raise CaseFailed(f"status {done.returncode}\n{done.stdout}{done.stderr}")


def run_as_root(
    words: list[str], home: Path, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    if os.getuid() != 0:
        pytest.skip("needs root")
    home.mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(TESTS)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        **(more or {}),
    }
    return subprocess.run(
        [sys.executable, "-c", RUNNER, *words],
        capture_output=True,
        text=True,
        env=env,
        cwd=home,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )


def tests_elsewhere() -> set[int]:
    """The cases that tests of other files are named after."""
    found = set()
    for path in TESTS.glob("test_*.py"):
        found |= {number(name) for name in _TEST.findall(path.read_text())}
    return found


def test_every_case_is_tried_or_has_a_reason_why_not() -> None:
    tried = {case.id for case in CASES} | tests_elsewhere()
    assert tried - set(IDS) == set(), "not a case that there is"
    assert tried & set(NOT_APPLICABLE) == set(), "tried, and said not to be applicable"
    assert set(IDS) - tried - set(NOT_APPLICABLE) == set(), "forgotten"


def test_what_is_said_to_be_beyond_is_a_case() -> None:
    assert set(BEYOND) <= {case.name for case in CASES}
    assert all(BEYOND.values())
    assert all(NOT_APPLICABLE.values())


def test_a_case_name_is_used_once() -> None:
    names = [case.name for case in CASES]
    assert sorted(set(names)) == sorted(names)


def test_a_failing_case_fails(tmp_path: Path) -> None:
    """The runner tells a right outcome, a wrong one, and a missing tool apart."""
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases/sample.py").write_text(
        "import casekit\n"
        "def right(w, o): assert w != o\n"
        "def wrong(w, o): assert w == o\n"
        "def missing(w, o): casekit.need('no-such-tool', 'no-such-package')\n"
    )
    shutil.copy(TESTS / "casekit.py", tmp_path)
    paths = [str(tmp_path), str(ROOT / "src"), sysconfig.get_path("purelib")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    seen = {}
    for name in ("right", "wrong", "missing"):
        command = [sys.executable, "-c", RUNNER, "cases.sample", name, "w", "o"]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
        seen[name] = done.returncode
        if name == "missing":
            assert "install no-such-package" in done.stdout
    assert seen == {"right": 0, "wrong": 1, "missing": casekit.SKIPPED}
