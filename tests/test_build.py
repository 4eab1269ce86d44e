"""What a checkout, an sdist and a wheel hold, and what is said where something cannot be built."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import require
from setupkit import ROOT, setup_file

NOT_SOURCES = (".git", ".venv", "build", "dist", "*.egg-info", "*.so", "__pycache__", ".*_cache")
HELPER = "_sandcore/sandcore-helper"
# Whether it builds is asked here, not how fast the binding runs.
QUICK = {"CFLAGS": "-O0 -g0"}
PIP = ("-m", "pip", "--disable-pip-version-check", "-q")


def run(*command: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=cwd, env=clean | QUICK | env, capture_output=True, text=True)


def check(*command: str | Path, cwd: Path) -> str:
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def checkout(target: Path) -> Path:
    """A copy of the sources, as a fresh clone would have them."""
    ignore = shutil.ignore_patterns(*NOT_SOURCES, "sandcore-helper", "sandcore-exec")
    shutil.copytree(ROOT, target, ignore=ignore)
    return target


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist of the checkout, and the wheel made from that sdist."""
    out = tmp_path_factory.mktemp("dist")
    source = checkout(out / "checkout")
    check(sys.executable, "setup.py", "-q", "sdist", "-d", out, cwd=source)
    (sdist,) = out.glob("*.tar.gz")
    wheel = ("wheel", "--no-deps", "--no-build-isolation", "-w", out, sdist)
    check(sys.executable, *PIP, *wheel, cwd=out)
    return out


def pythons() -> dict[str, Path]:
    """Version -> interpreter, of those on this machine that a wheel built here is for."""
    found: dict[str, Path] = {}
    places = [Path(home) for home in os.environ.get("PATH", "").split(os.pathsep)]
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places += sorted(versions.glob("3.*/bin"))
    for place in places:
        for minor in range(sys.version_info.minor, 16):
            name = f"python3.{minor}"
            if name not in found and os.path.exists(place / name) and works(place / name, minor):
                found[name] = place / name
    return found


def works(candidate: Path, minor: int) -> bool:
    """Whether an interpreter starts (a pyenv shim may not) and can make an environment."""
    program = f"import sys, venv; sys.exit(sys.version_info[:2] != (3, {minor}))"
    return subprocess.run([candidate, "-c", program], capture_output=True).returncode == 0


PYTHONS = pythons()


def test_the_sdist_holds_all_that_building_and_testing_needs(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = [
        *ROOT.glob("src/*/*/*.[ch]"),
        *ROOT.glob("src/**/*.p[xy]*"),
        *ROOT.glob("tests/**/*"),
    ]
    generated = ROOT / "src" / "_sandcore" / "binding"
    wanted = {
        path.relative_to(ROOT).as_posix()
        for path in tracked
        if path.is_file()
        and "__pycache__" not in path.parts
        and path.suffix not in (".pyc",)
        and not (path.parent == generated and path.suffix == ".c")
    }
    assert wanted <= names
    assert {"LICENSE", "README.md", "Makefile", "tools/require.py", "setup.py"} <= names
    assert not {
        name for name in names if name.endswith((".so", ".o", "sandcore-helper", "sandcore-exec"))
    }


def test_the_wheel_holds_the_extension_the_helper_and_no_sources(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        mode = archive.getinfo(HELPER).external_attr >> 16
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    assert mode & 0o111 == 0o111 and stat.S_ISREG(mode)
    tag = "cp{}{}".format(*sys.version_info)
    assert wheel.name.startswith("sandcore-") and f"-{tag}-abi3-linux_" in wheel.name
    assert [name for name in names if "_core" in name] == ["_sandcore/_core.abi3.so"]
    assert {"_sandcore/py.typed", "_sandcore/__init__.py", "_sandcore/__init__.pyi"} <= set(names)
    assert {"_sandcore/sandcore-exec", "sandbox/py.typed"} <= set(names)
    shipped = {f"sandbox/profiles/{path.name}" for path in ROOT.glob("src/sandbox/profiles/*")}
    shipped.add("sandbox/backends/seatbelt_base.sbpl")
    assert shipped and shipped <= set(names)
    public = {"_sandcore/include/sandcore.h", "_sandcore/include/sandcore.pxd"}
    assert {name for name in names if name.endswith((".c", ".h", ".pyx", ".pxd"))} == public
    assert [name for name in names if name.endswith(".data/data/bin/sandcore-exec")]
    assert {name.split("/")[0].split("-")[0] for name in names} == {
        "_sandcore",
        "sandbox",
        "sandcore",
    }
    assert "License-Expression: MIT" in metadata
    assert "License-File: LICENSE" in metadata


def test_the_helper_is_static_and_asks_for_no_executable_stack(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        helper = archive.extract(HELPER, tmp_path)
    text = check("readelf", "-lW", helper, cwd=tmp_path)
    assert "INTERP" not in text and "DYNAMIC" not in text
    (stack,) = [line for line in text.splitlines() if "GNU_STACK" in line]
    assert " RW " in stack


# In an environment: a command that may write in one place and in no other.
CONFINED = """
import os, sandbox, sys, warnings
warnings.simplefilter("ignore")
os.mkdir("work")
with sandbox.Sandbox(sandbox.workspace_write(), workspace="work") as box:
    tried = box.run(["sh", "-c", "touch mine; touch ../mine"])
print(sandbox.__file__, tried.returncode, os.listdir("work"), os.path.exists("mine"))
"""


@pytest.mark.parametrize("name", PYTHONS)
def test_one_wheel_is_installed_and_confines_in_each_version(
    name: str, built: Path, tmp_path: Path
) -> None:
    (wheel,) = built.glob("*.whl")
    check(PYTHONS[name], "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    own = tmp_path / "venv" / "bin"
    check(sys.executable, *PIP, "--python", own / "python", "install", wheel, cwd=tmp_path)
    home = check(own / "python", "-c", "import sandbox; print(sandbox.__file__)", cwd=tmp_path)
    assert home.startswith(str(tmp_path))
    for isolation in ("landlock", "auto"):
        place = tmp_path / isolation
        place.mkdir()
        tried = run(own / "python", "-c", CONFINED, cwd=place, SANDBOX_ISOLATION=isolation)
        assert (tried.stdout, tried.stderr) == (f"{home.strip()} 1 ['mine'] False\n", "")
    assert run(own / "sandcore-exec", "--help", cwd=tmp_path).stdout.startswith("usage: ")
    done = run(own / "sandbox", "--version", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0.1.0" in done.stdout


def test_an_editable_install_puts_the_compiled_parts_beside_the_sources(tmp_path: Path) -> None:
    source = checkout(tmp_path / "checkout")
    target = tmp_path / "site"
    install = ("install", "--no-deps", "--no-build-isolation", "-t", target, "-e", source)
    check(sys.executable, *PIP, *install, cwd=tmp_path)
    assert list(source.glob("src/_sandcore/_core.*.so"))
    assert os.access(source / "src" / HELPER, os.X_OK)


def test_an_unbuilt_checkout_says_how_to_build_it(tmp_path: Path) -> None:
    source = checkout(tmp_path / "checkout")
    done = run(sys.executable, "-S", "-c", "import _sandcore", cwd=source / "src")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: _sandcore is not compiled (it exists on Linux only): "
        "run `make build` in the checkout, or `pip install .`"
    )


def test_an_extension_that_does_not_load_is_not_called_missing(tmp_path: Path) -> None:
    source = checkout(tmp_path / "checkout")
    (source / "src" / "_sandcore" / "_core.py").write_text("import no_such_module\n")
    done = run(sys.executable, "-S", "-c", "import _sandcore", cwd=source / "src")
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'no_such_module'"


def test_on_macos_nothing_is_compiled() -> None:
    assert setup_file().extensions("darwin") == []
    names = [extension.name for extension in setup_file().extensions("linux")]
    assert names == ["_sandcore._core", "_sandcore.sandcore-helper", "_sandcore.sandcore-exec"]


def test_a_simulated_macos_makes_a_pure_wheel(tmp_path: Path) -> None:
    source = checkout(tmp_path / "checkout")
    text = (source / "setup.py").read_text()
    assert "extensions(sys.platform)" in text
    (source / "setup.py").write_text(
        text.replace("extensions(sys.platform)", 'extensions("darwin")')
    )
    wheel = ("wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, source)
    check(sys.executable, *PIP, *wheel, cwd=tmp_path)
    (made,) = tmp_path.glob("*.whl")
    assert made.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
    assert HELPER not in names and "sandbox/backends/seatbelt_base.sbpl" in names


def fake_compiler(home: Path, fails_on: str) -> str:
    """A compiler that refuses one header, as on a machine without the package that brings it."""
    path = home / "fake-cc"
    path.write_text(f"#!/bin/sh\n! grep -q '<{fails_on}>'\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("header", "package"),
    [
        ("stdint.h", "libc6-dev"),
        ("linux/seccomp.h", "linux-libc-dev"),
        ("linux/landlock.h", "linux-libc-dev"),
        ("Python.h", "python{}.{}-dev".format(*sys.version_info)),
    ],
)
def test_a_missing_header_is_named_in_one_line(
    header: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", fake_compiler(tmp_path, header))
    text = require.missing_for_build()
    assert text is not None and text.startswith("sandcore needs ")
    assert text.endswith(f": apt-get install {package}") and "\n" not in text


def test_nothing_is_missing_here() -> None:
    """The twin of the test above: the same checks with the real compiler."""
    assert require.missing_for_build() is None
    assert require.missing_python() is None


def test_without_a_compiler_make_and_setup_say_so_in_one_line(tmp_path: Path) -> None:
    source = checkout(tmp_path / "checkout")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "make", "mkdir", "touch", "grep"):
        found = shutil.which(name)
        assert found is not None, name
        (tools / name).symlink_to(found)
    (tools / "python3").symlink_to(sys.executable)
    line = "error: sandcore needs a C compiler: apt-get install gcc libc6-dev"
    made = run("make", "build", f"PYTHON={sys.executable}", cwd=source, PATH=str(tools), CC="")
    assert made.returncode != 0
    assert [text for text in made.stderr.splitlines() if "***" not in text] == [line]
    done = run(sys.executable, "setup.py", "-q", "build_ext", cwd=source, PATH=str(tools), CC="")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, line)


@pytest.mark.parametrize(
    ("abi", "words"),
    [(2, "Landlock ABI 3 (Linux 6.2)"), (-95, "lsm=landlock"), (-38, "seccomp profile")],
)
def test_a_kernel_that_cannot_confine_is_told_in_one_line(
    abi: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(require, "landlock_abi", lambda: abi)
    text = require.missing_in_kernel()
    assert text is not None and words in text and "\n" not in text
    monkeypatch.setattr(require, "landlock_abi", lambda: 3)
    assert require.missing_in_kernel() is None


def test_another_operating_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert require.missing_for_build() == "sandcore runs on Linux and macOS, not on win32"
