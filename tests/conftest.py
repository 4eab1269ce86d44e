"""Fixtures that all tests share, and what the host is, in the header of the run."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import inspect
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
_found = importlib.util.find_spec("sandbox")
assert _found is not None and _found.origin is not None
SOURCES = Path(_found.origin).parent.parent  # another build than src/, in `make sanitize`
sys.path.insert(0, str(TESTS))
sys.path.insert(0, str(ROOT / "tools"))

import require  # noqa: E402

USER = 1000

# Most tests state what Landlock and the filter do by themselves; those of namespaces say so.
os.environ.setdefault("SANDBOX_ISOLATION", "landlock")

settings.register_profile("ci", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", parent=settings.get_profile("ci"), max_examples=3_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def user_namespaces() -> str:
    """Whether this process could make a user namespace: "yes", or the reason why not."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return "unknown (no unshare command)"
    done = subprocess.run([unshare, "-U", "true"], capture_output=True, text=True)
    return "yes" if done.returncode == 0 else f"no ({done.stderr.strip()})"


def pytest_report_header() -> str:
    """Says in the head of the run what the results depend on."""
    if sys.platform == "darwin":
        return f"host: macOS {platform.mac_ver()[0]}, {platform.machine()}, uid {os.getuid()}"
    return (
        f"host: Linux {os.uname().release}, Landlock ABI {require.landlock_abi()}, "
        f"uid {os.getuid()}, user namespaces: {user_namespaces()}"
    )


@pytest.fixture(autouse=True, scope="module")
def alone() -> Iterator[None]:
    """Closes the sandboxes that `sandbox.run` keeps: tests count children and fds."""
    yield
    shared = sys.modules.get("sandbox.shared")
    if shared is not None:
        shared._shelf.close()
    dropin = sys.modules.get("sandbox.subprocess")
    if dropin is not None:
        dropin._spawners._kept.clear()
    gc.collect()


@pytest.fixture
def far() -> Iterator[Path]:
    """A directory of the test's own that is not in /tmp, of which a sandbox has its own."""
    path = Path(tempfile.mkdtemp(prefix="sandcore-test-", dir="/var/tmp")).resolve()
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def bodies(package: str) -> Iterator[tuple[str, str]]:
    """Module and name of each function (w, o) in a directory here; to be run in a process each."""
    for path in sorted((TESTS / package).glob("[a-z]*.py")):
        module = importlib.import_module(f"{package}.{path.stem}")
        for name, body in inspect.getmembers(module, inspect.isfunction):
            words = list(inspect.signature(body).parameters)
            if body.__module__ == module.__name__ and words == ["w", "o"]:
                yield module.__name__, name


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of the test's own that every user can pass (pytest's tmp_path is 0700)."""
    path = Path(tempfile.mkdtemp(prefix="sandcore-test-")).resolve()
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def workspace(place: Path) -> Path:
    """An empty directory that a policy may make writable."""
    path = place / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def outside(place: Path) -> Path:
    """A directory beside the workspace, with one `file`, that no policy of a test names."""
    path = place / "outside"
    path.mkdir()
    (path / "file").write_text("outside\n")
    return path


def user_prefix() -> list[str]:
    """The command that turns root into the ordinary user; nothing for who already is one."""
    if os.getuid() != 0:
        return []
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--"]


@cache
def user_python() -> str | None:
    """An interpreter of our own version that an ordinary user can execute, or None."""
    name = "python{}.{}".format(*sys.version_info)
    for candidate in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        # By env: setpriv itself still has capabilities when it executes, and gets everywhere.
        code = "import sys; print(sys.version_info[:2])"
        command = [*user_prefix(), "env", candidate, "-c", code]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError:
            continue
        if done.returncode == 0 and done.stdout.strip() == str(sys.version_info[:2]):
            return candidate
    return None


class AsUser:
    """Runs commands as an ordinary user; `home` is the user's own HOME."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def give(self, *paths: Path) -> None:
        """Makes paths (not what is in them) the user's own."""
        if os.getuid() == 0:
            for path in paths:
                os.chown(path, USER, USER, follow_symlinks=False)

    def __call__(
        self,
        what: str | Sequence[str],
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        input: str = "",
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command (a sequence) or a Python program (a string, with `arguments`).

        A program has our sources, `tests/` and the installed packages importable. The working
        directory is HOME unless `cwd` says otherwise. Output is text, the status is not checked.
        """
        command = [*self.python(), what, *arguments] if isinstance(what, str) else [*what]
        packages = [str(SOURCES), str(TESTS), sysconfig.get_path("purelib")]
        own = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PYTHONPATH": os.pathsep.join(packages),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.run(
            [*user_prefix(), *command],
            capture_output=True,
            text=True,
            env=own | dict(env or {}),
            cwd=cwd or self.home,
            input=input,
            timeout=timeout,
        )

    def python(self) -> list[str]:
        """The start of a command that runs a Python program given as the next argument."""
        interpreter = user_python()
        if interpreter is None:
            version = "{}.{}".format(*sys.version_info)
            pytest.skip(f"needs a Python {version} that uid {USER} can execute, in /usr/bin")
        return [interpreter, "-c"]


@pytest.fixture
def as_user(place: Path) -> AsUser:
    """Runs a command or a Python program as an ordinary user: see AsUser."""
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("needs setpriv to become an ordinary user: apt-get install util-linux")
    user = AsUser(place / "home-of-user")
    user.home.mkdir()
    user.give(user.home)
    return user


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Any]], Any]:
    """Runs what is awaited, on each loop in turn: see ``loopkit``."""
    from loopkit import LOOPS

    return LOOPS[request.param]
