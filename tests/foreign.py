"""`make foreign`: the test suites of others, with the drop-in in the place of what they test.

    tests/foreign.py [--short] [PYTHON ...]

CPython's own come with an interpreter. They run as they are, then with `sandbox.subprocess` in
place under a policy that changes nothing: whoever passes, fails or is skipped must be the same.
Then confined by `workspace_write` on a scratch directory: what fails there must be what
foreign_confined.txt lists. For the version that runs this the checkout itself is tested, for others
it is built below build/foreign. Then likewise those of anyio, trio and psutil, by this version
alone (foreign_suites.py). `--short`: half of CPython's, for CI.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import foreign_suites

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SHORT = (
    "test.test_subprocess.POSIXProcessTestCase",
    "test.test_subprocess.RunFuncTestCase",
    "test.test_asyncio.test_subprocess.SubprocessThreadedWatcherTests",
    "test.test_posix.TestPosixSpawn",
)
WHOLE = (
    "test.test_subprocess",
    "test.test_asyncio.test_subprocess",
    "test.test_posix.TestPosixSpawn",
    "test.test_posix.TestPosixSpawnP",
)
# Runs in the interpreter that is tested, and says of each test what came of it.
INSIDE = """
import os, sys, unittest, warnings
said, place, how, *names = sys.argv[1:]
sys.argv[1:] = []
said = open(said, "w", buffering=1)

class Told(unittest.TextTestResult):
    def addSuccess(self, test):
        super().addSuccess(test); print("pass", test.id(), file=said)
    def addSkip(self, test, why):
        super().addSkip(test, why); print("skip", test.id(), file=said)
    def addFailure(self, test, error):
        super().addFailure(test, error); print("fail", test.id(), file=said)
    def addError(self, test, error):
        super().addError(test, error); print("fail", test.id(), file=said)
    def addSubTest(self, test, part, error):
        super().addSubTest(test, part, error)
        if error is not None:
            print("fail", test.id(), file=said)

def run():
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    unittest.TextTestRunner(sys.stderr, resultclass=Told, verbosity=0).run(suite)

if how == "plain":
    run()
else:
    import sandbox
    from sandbox import subprocess
    warnings.filterwarnings("ignore", category=sandbox.SandboxWeakened)
    with subprocess.installed(
        sandbox.workspace_write(place) if how == "confined" else sandbox.full_access()
    ):
        run()
"""


def outcomes(python: str, sources: Path, how: str, names: tuple[str, ...]) -> dict[str, str]:
    """What came of each test in an interpreter, by name: pass, fail or skip."""
    with tempfile.TemporaryDirectory(prefix="sandcore-foreign-") as place:
        said = Path(place, "said")
        work = Path(place, "work")
        work.mkdir()
        env = {**os.environ, "PYTHONPATH": str(sources), "TMPDIR": str(work)}
        words = [python, "-c", INSIDE, str(said), str(work), how, *names]
        log = ROOT / "build" / f"foreign-{how}.log"
        with open(log, "w") as file:
            subprocess.run(words, cwd=work, env=env, stdout=file, stderr=file, timeout=1200)
        return foreign_suites.noted(said)


# Runs tests (plain, unchanged or confined; these names, or all) and says what came of each.
Run = Callable[[str, tuple[str, ...]], dict[str, str]]


def differing(run: Run, how: str, plain: dict[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Tests of which something else came than in the plain run, twice: some depend on the clock."""
    found = run(how, names)
    once = tuple(name for name in plain if found.get(name) != plain[name])
    again = run(how, once) if once else {}
    return {name: again.get(name, "lost") for name in once if again.get(name) != plain[name]}


def compared(title: str, run: Run, names: tuple[str, ...]) -> list[str]:
    """Runs suites three times; what is wrong."""
    plain = run("plain", names)
    wrong = [] if plain else [f"{title} plain: nothing ran"]
    unchanged = differing(run, "unchanged", plain, names)
    wrong += [f"{title} unchanged: {name}: {what}" for name, what in unchanged.items()]
    confined = differing(run, "confined", plain, names)
    known = listed()
    wrong += [f"{title} confined: {n}: {what}" for n, what in confined.items() if n not in known]
    ran = {name for name in known if plain.get(name) == "pass"}
    wrong += [f"{title} confined: {name} passes: strike it" for name in ran - set(confined)]
    skipped = sum(what == "skip" for what in plain.values())
    failed = sum(what == "fail" for what in plain.values())
    counts = f"{len(plain)} tests, {skipped} skipped, {failed} failed"
    print(f"{title}: {counts}; {len(confined)} differ confined", flush=True)
    return wrong


def listed() -> set[str]:
    """What is known to fail when it is confined."""
    lines = (HERE / "foreign_confined.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def sources_for(python: str, version: str) -> Path:
    """Where this interpreter finds the package; built there first unless it is our own version."""
    if version == "{}.{}".format(*sys.version_info):
        return ROOT / "src"
    place = ROOT / "build" / "foreign" / version
    if not (place / "bin" / "python").exists():
        subprocess.run([python, "-m", "venv", place], check=True)
        pip = [place / "bin" / "python", "-m", "pip", "install", "-q"]
        subprocess.run([*pip, "setuptools>=77", "cython>=3.1"], check=True)
    words = [place / "bin" / "python", "setup.py", "-q", "build"]
    options = ["--build-base", place / "base", "--build-lib", place / "package"]
    subprocess.run([*words, *options], cwd=ROOT, check=True)
    return place / "package"


def check(python: str, names: tuple[str, ...]) -> list[str]:
    """Runs the suites of one interpreter; what is wrong."""
    ask = "import sys, test.test_subprocess; print(*sys.version_info[:2], sep='.')"
    asked = subprocess.run([python, "-c", ask], capture_output=True, text=True)
    if asked.returncode != 0:
        return [f"{python}: has no tests: apt-get install libpython3.N-testsuite, or use pyenv"]
    version = asked.stdout.strip()
    return compared(version, partial(outcomes, python, sources_for(python, version)), names)


def interpreters() -> list[str]:
    """Those that are on this machine, one of each version, this one first."""
    found = [sys.executable]
    for minor in (11, 12, 13):
        places = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        python = str(places[-1]) if places else shutil.which(f"python3.{minor}")
        if python is not None and minor != sys.version_info.minor:
            found.append(python)
    return found


def main() -> int:
    """Checks each interpreter; 1 when anything is wrong."""
    parser = argparse.ArgumentParser(description="the test suites of others, with the drop-in")
    parser.add_argument("--short", action="store_true", help="half of them, for CI")
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    given = parser.parse_args()
    found = interpreters()[:1] if given.short else interpreters()
    pythons = [os.path.abspath(one) for one in given.pythons] or found
    wrong = [line for one in pythons for line in check(one, SHORT if given.short else WHOLE)]
    if not given.short and not given.pythons:
        foreign_suites.prepare()
        for suite in foreign_suites.SUITES:
            wrong += compared(suite.name, suite.outcomes, ())
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
