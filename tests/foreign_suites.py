"""The process tests of anyio, trio and psutil for foreign.py, in pinned versions.

Each comes from its package of the index, is unpacked below build/foreign/suites, and runs by pytest
in an environment of its own there, with the checkout's `sandbox` and foreign_plugin.py. psutil's
take seven minutes when they are confined: they wait in vain for what foreign_confined.txt says.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
HOME = ROOT / "build" / "foreign" / "suites"
# Without uvloop, which spawns in a library of its own: its share of anyio's tests is skipped.
PACKAGES = (
    "anyio==4.16.0",
    "trio==0.35.0",
    "psutil==7.2.2",
    "hypothesis==6.170.17",
    "pytest==9.2.0",
    "pytest-mock==3.17.0",
    "pytest-timeout==2.4.0",
    "trustme==1.2.1",
)
SOURCES = ("anyio==4.16.0", "psutil==7.2.2")  # whose tests are not in their wheels
TRIO_PLUGIN = "trio._tests.pytest_plugin"


def noted(said: Path) -> dict[str, str]:
    """What stands in a file of notes: of each test pass, fail or skip, of several a failure."""
    found: dict[str, str] = {}
    for line in said.read_text().splitlines():
        what, name = line.split(" ", 1)
        if found.get(name) != "fail":
            found[name] = what
    return found


@dataclass(frozen=True)
class Suite:
    """Tests of one package: where pytest starts, below HOME, and with what arguments."""

    name: str
    place: str
    words: tuple[str, ...]

    def outcomes(self, how: str, only: tuple[str, ...] = ()) -> dict[str, str]:
        """What came of each test (or of some), by name: pass, fail or skip."""
        with tempfile.TemporaryDirectory(prefix="sandcore-foreign-") as scratch:
            place = Path(scratch, "work")
            shutil.copytree(HOME / self.place, place)
            said = Path(scratch, "said")
            said.touch()
            env = {
                **os.environ,
                "PYTHONPATH": f"{ROOT / 'src'}:{HERE}",
                "PYTHONDONTWRITEBYTECODE": "1",
                "TMPDIR": str(place),
                "FOREIGN_SAID": str(said),
                "FOREIGN_HOW": how,
                "FOREIGN_PLACE": str(place),
            }
            if only:
                Path(scratch, "only").write_text("\n".join(only))
                env["FOREIGN_ONLY"] = str(Path(scratch, "only"))
            words = [HOME / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
            words += ["-p", "foreign_plugin", "-o", "addopts=", *self.words]
            with open(ROOT / "build" / f"foreign-{self.name}-{how}.log", "w") as log:
                subprocess.run(words, cwd=place, env=env, stdout=log, stderr=log, timeout=1200)
            return noted(said)


SUITES = (
    Suite("anyio", "anyio-4.16.0", ("tests/test_subprocesses.py", "tests/test_to_process.py")),
    Suite(
        "trio",
        "empty",
        ("-p", TRIO_PLUGIN, "--run-slow", "--pyargs", "trio._tests.test_subprocess"),
    ),
    Suite("psutil", "psutil", ("tests/test_process.py",)),
)


def prepare() -> None:
    """Downloads and installs what is missing, by pip."""
    stamp = HOME / "packages"
    if stamp.exists() and stamp.read_text() == repr(PACKAGES):
        return
    shutil.rmtree(HOME, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", HOME], check=True)
    pip = [HOME / "bin" / "python", "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *PACKAGES], check=True)
    source = ["download", "--no-deps", "--no-binary", ":all:", "-d", HOME, *SOURCES]
    subprocess.run([*pip, *source], check=True)
    for archive in HOME.glob("*.tar.gz"):
        with tarfile.open(archive) as file:
            file.extractall(HOME, filter="data")
    # Without the package beside them, which is not compiled there.
    shutil.copytree(HOME / "psutil-7.2.2" / "tests", HOME / "psutil" / "tests")
    (HOME / "empty").mkdir()
    stamp.write_text(repr(PACKAGES))
