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
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import casekit
import pytest
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
        for isolation in ("landlock", "namespaces"):
            for who in ("root", "user"):
                yield pytest.param(case, who, isolation, id=f"{case.name}-{isolation}-{who}")


class Runs:
    """The cases that are wanted, a few at a time: most of what one takes is waiting.

    Those of one case run one after the other: each looks for its own processes by their arguments.
    """

    def __init__(
        self,
        wanted: Iterable[tuple[Case, str, str]],
        run: Callable[..., subprocess.CompletedProcess[str]],
    ) -> None:
        self._run = run
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1)
        self._futures = {one: Future[subprocess.CompletedProcess[str]]() for one in wanted}
        for _, group in groupby(self._futures, key=lambda one: one[0]):
            self._pool.submit(self._run_all, list(group))

    def _run_all(self, group: list[tuple[Case, str, str]]) -> None:
        for one in group:
            try:
                self._futures[one].set_result(self._run(*one))
            except BaseException as error:
                self._futures[one].set_exception(error)

    def of(self, case: Case, who: str, isolation: str) -> subprocess.CompletedProcess[str]:
        return self._futures[case, who, isolation].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Iterator[Runs]:
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    names = ("case", "who", "isolation")
    wanted = [call.params for call in calls if call is not None and {*names} <= {*call.params}]
    made = Runs((tuple(params[name] for name in names) for params in wanted), run_in_a_place)
    yield made
    made.close()


@pytest.mark.parametrize(("case", "who", "isolation"), tuple(parameters()))
def test_a_case(case: Case, who: str, isolation: str, runs: Runs) -> None:
    done = runs.of(case, who, isolation)
    if done.returncode == casekit.SKIPPED:
        pytest.skip(done.stdout.strip())
    if done.returncode != 0:
        raise CaseFailed(f"status {done.returncode}\n{done.stdout}{done.stderr}")


def run_in_a_place(case: Case, who: str, isolation: str) -> subprocess.CompletedProcess[str]:
    """Runs a case in directories of its own.

    They are not in `/tmp`, which is private in namespaces: what is outside is to be there, and
    refused.
    """
    place = Path(tempfile.mkdtemp(prefix="sandcore-", dir="/var/tmp"))
    try:
        place.chmod(0o755)
        w, o, home = place / "workspace", place / "outside", place / "home"
        for path in (w, o, home):
            path.mkdir()
        (o / "file").write_text("outside\n")
        words = [case.module, case.name, str(w), str(o)]
        more = {"SANDBOX_ISOLATION": "auto" if isolation == "namespaces" else isolation}
        if who == "root":
            return run_as_root(words, home, more)
        user = AsUser(home)
        user.give(home, w, o, o / "file")
        return user(RUNNER, *words, timeout=120, env=more)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def run_as_root(
    words: list[str], home: Path, more: Mapping[str, str] | None = None, runner: str = RUNNER
) -> subprocess.CompletedProcess[str]:
    if os.getuid() != 0:
        pytest.skip("needs root")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(TESTS)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        **(more or {}),
    }
    return subprocess.run(
        [sys.executable, "-c", runner, *words],
        capture_output=True,
        text=True,
        env=env,
        cwd=home,
        stdin=subprocess.DEVNULL,
        timeout=200,
    )


def told_elsewhere() -> set[int]:
    """The cases that tests of other files are named after."""
    found = set()
    for path in TESTS.glob("test_*.py"):
        found |= {number(name) for name in _TEST.findall(path.read_text())}
    return found


def test_every_case_is_tried() -> None:
    tried = {case.id for case in CASES} | told_elsewhere()
    assert tried - set(IDS) == set(), "not a case that there is"
    assert set(IDS) - tried == set(), "forgotten"


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
