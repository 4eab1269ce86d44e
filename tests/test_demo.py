"""The demo: its archive and scene, its judges (which must be able to say no), and all of it."""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from casekit import until

import sandbox

pytestmark = pytest.mark.filterwarnings("ignore::sandbox.SandboxWeakened")

DEMO = Path(__file__).resolve().parent.parent / "demo"


@pytest.fixture(autouse=True, params=["auto", "landlock"])
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the host gives, and what it gives at the least."""
    monkeypatch.setenv("SANDBOX_ISOLATION", request.param)
    return str(request.param)


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The demo's own modules, which import each other as scripts do."""
    monkeypatch.syspath_prepend(str(DEMO))
    names = ("scene", "acts", "costs")
    yield {name: importlib.import_module(name) for name in names}
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def scene(modules: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    built = modules["scene"].build(tmp_path)
    monkeypatch.setenv("HOME", str(built.home))
    monkeypatch.setenv(modules["scene"].SECRET_NAME, built.mark)
    return built


def test_the_archive_is_the_one_it_says_and_its_licence_is_in_it(
    modules: dict[str, ModuleType], tmp_path: Path
) -> None:
    archive = modules["scene"].ARCHIVE
    assert archive.stat().st_size < 200_000
    assert modules["scene"].SHA256 in (DEMO / "README.md").read_text()
    with tarfile.open(archive) as tar:
        text = tar.extractfile(f"{archive.name.removesuffix('.tar.gz')}/LICENSE.txt")
        assert text is not None
        assert b"Redistribution and use" in text.read()
    other = tmp_path / archive.name
    other.write_bytes(archive.read_bytes() + b"x")
    with pytest.raises(SystemExit, match="not the file"):
        modules["scene"].unpack(other, tmp_path)


def test_the_scene_has_something_to_lose(modules: dict[str, ModuleType], scene: Any) -> None:
    files = modules["scene"].tree_files(scene.home)
    assert set(files) == {".bashrc", ".netrc", ".ssh/id_ed25519", "notes/thesis.txt"}
    assert scene.mark in (scene.home / ".ssh/id_ed25519").read_text()
    assert (scene.project / "toolz/tests").is_dir()
    spare = scene.spare_home()
    assert modules["scene"].tree_files(spare) == files


def test_the_listener_keeps_what_it_is_sent(modules: dict[str, ModuleType]) -> None:
    listener = modules["scene"].Listener()
    with socket.create_connection(("127.0.0.1", listener.port)) as sock:
        sock.sendall(b"hello")
    assert listener.close() == [b"hello"]
    assert modules["scene"].Listener().close() == []


def test_a_process_is_found_by_its_argument(modules: dict[str, ModuleType]) -> None:
    word = modules["acts"].unique_sleep()
    with subprocess.Popen(["sleep", word]) as child:
        # Its parent goes on when the program is on its way, a moment before it has its arguments.
        found = until(lambda: modules["scene"].processes_with(word) == [child.pid])
        child.kill()
    assert found
    assert modules["scene"].processes_with(word) == []


def unconfined(scene: Any, command: str, **options: Any) -> sandbox.Result:
    """What `sandbox.run` would return if it confined nothing."""
    timed_out, code, out, err = False, 0, b"", b""
    try:
        done = subprocess.run(
            command,
            shell=True,
            cwd=scene.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=options.get("timeout", 60),
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        timed_out, code = True, -9
    return sandbox.Result(
        args=command,
        returncode=code,
        signal=None,
        timed_out=timed_out,
        stdout=out,
        stderr=err,
        stdout_truncated=0,
        stderr_truncated=0,
        duration=0.0,
        usage=sandbox.Usage(),
        enforcement=sandbox.Enforcement("none"),
    )


TITLES = (
    "deletes the home directory",
    "plants a line in a dot file",
    "reads an ssh key",
    "reads a secret from its environment",
    "reads it from another process",
    "connects out",
    "leaves a daemon behind",
    "floods the output",
    "never ends",
)


def test_every_act_is_judged_below(modules: dict[str, ModuleType]) -> None:
    assert tuple(act.title for act in modules["acts"].ACTS) == TITLES


@pytest.mark.parametrize("title", TITLES)
def test_a_judge_says_so_when_nothing_was_confined(
    modules: dict[str, ModuleType], scene: Any, title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules["acts"], "inside", unconfined)
    act = next(act for act in modules["acts"].ACTS if act.title == title)
    seen = act.play(scene, act.command)
    assert (seen.held, seen.done) == (False, True), seen


@pytest.mark.parametrize("title", TITLES)
def test_each_act_is_held_inside(modules: dict[str, ModuleType], scene: Any, title: str) -> None:
    act = next(act for act in modules["acts"].ACTS if act.title == title)
    seen = act.play(scene, act.command)
    assert (seen.held, seen.done) == (True, True), seen


def test_the_demo_runs_from_end_to_end(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO / "run.py"), "--rounds", "1"],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "100"},
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    assert done.stdout.count("stopped by") == len(TITLES)
    assert "NOT STOPPED" not in done.stdout
    assert "ratio" in done.stdout
    assert list(tmp_path.iterdir()) == []
