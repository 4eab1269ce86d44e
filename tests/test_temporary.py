"""Temporary directories of a sandbox: private, emptied, and never led anywhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import sandbox
from _sandcore import Stamps
from sandbox.backends import scratch
from sandbox.backends.temporary import Scratch, Temporary


@pytest.fixture
def box(workspace: Path) -> sandbox.Sandbox:
    return sandbox.Sandbox(workspace=workspace)


@pytest.mark.filterwarnings("ignore::sandbox.SandboxWeakened")
@pytest.mark.parametrize(
    "left",
    [
        "touch $TMPDIR/a $TMPDIR/../b",
        "mkdir -p $TMPDIR/d/e $TMPDIR/../d/e; touch $TMPDIR/../d/e/f",
        "mkdir $TMPDIR/../d; chmod 000 $TMPDIR/.. $TMPDIR",
        "rm -rf $TMPDIR; ln -s / $TMPDIR",
        "rm -rf $TMPDIR/..",
    ],
)
def test_nothing_that_a_command_leaves_there_is_found_by_the_next(
    box: sandbox.Sandbox, left: str
) -> None:
    assert box.run(f"touch $TMPDIR/works; {left}").timed_out is False
    found = box.run("set -e; cd $TMPDIR; touch works; rm works; ls -A . ; ls -A .. | wc -l")
    assert (found.out.split(), found.returncode) == (["1"], 0)
    box.close()


def test_the_directories_of_other_seats_are_left_alone(tmp_path: Path) -> None:
    places = Temporary(str(tmp_path), Stamps)
    mine, other = places.take(), places.take()
    (Path(other) / "in-use").touch()
    (tmp_path / "stray").touch()
    assert places.tidy(mine) == mine
    assert (Path(other) / "in-use").exists() and not (tmp_path / "stray").exists()
    places.drop(other)
    assert not Path(other).exists()


def test_directories_of_processes_that_were_killed_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    abandoned, in_use, young, foreign = (
        tmp_path / f"sandbox-{mark * 18}" for mark in ("a", "b", "c", "z")
    )
    for path in (abandoned, in_use, young, foreign):
        (path / "inner").mkdir(parents=True)
        os.utime(path, (1, 1))
    os.utime(young)
    lock = scratch.claim(str(in_use))
    scratch.remove_abandoned(str(tmp_path))
    os.close(lock)
    assert sorted(path.name[-1] for path in tmp_path.iterdir()) == ["b", "c", "z"]


@pytest.mark.filterwarnings("ignore::sandbox.SandboxWeakened")
def test_the_directory_of_a_live_sandbox_is_claimed(box: sandbox.Sandbox) -> None:
    with pytest.raises(BlockingIOError):
        scratch.claim(box.resolved.tmp)
    box.close()
    assert not Path(box.resolved.tmp).exists()


@pytest.mark.filterwarnings("ignore::sandbox.SandboxWeakened")
def test_clearing_after_the_helper_has_gone_touches_nobody_elses_directory(
    workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is whose a number is now: others open directories all the time."""
    monkeypatch.setenv("SANDBOX_ISOLATION", "auto")
    box = sandbox.Sandbox(workspace=workspace)
    confinement: Any = box._boundary._confinement
    if box.isolation != "namespaces":
        pytest.skip("needs namespaces: only there a sandbox has directories of its own")
    for end in (confinement._helper.close, confinement.close):
        end()
        others = [os.open(outside, os.O_RDONLY) for _ in range(20)]
        confinement.clear()
        for fd in others:
            os.close(fd)
        assert (outside / "file").read_text() == "outside\n"
    box.close()


def test_names_of_ours_that_a_command_took_keep_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be removed is no empty directory: the sandbox is given up then."""
    monkeypatch.setattr(scratch.os, "urandom", lambda count: bytes(count))
    for path in (tmp_path / "A" / "c" / "message", tmp_path / f".sandbox-{'00' * 9}" / "x" / "y"):
        path.mkdir(parents=True)
    places = Scratch([os.open(tmp_path, os.O_RDONLY)], [frozenset()])
    (tmp_path / "new").touch()
    with pytest.raises(OSError, match="not empty"):
        places.clear()
    monkeypatch.undo()
    (tmp_path / "newer").touch()
    places.clear()
    assert list(tmp_path.iterdir()) == []
    places.close()


def test_a_directory_that_another_process_holds_costs_no_descriptor(place: Path) -> None:
    """Each sandbox looks at all of this user's that are older than a minute."""
    held = scratch.claim(str(place))
    before = os.listdir("/dev/fd")
    for _ in range(3):
        with pytest.raises(BlockingIOError):
            scratch.claim(str(place))
    assert len(os.listdir("/dev/fd")) == len(before)
    os.close(held)


def test_without_handles_on_paths_a_directory_is_emptied_too(
    place: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS: no O_PATH, and a chmod that follows no link."""
    monkeypatch.delattr(os, "O_PATH")
    chmod, told = os.chmod, []

    def as_there(name: str, mode: int, *, dir_fd: int | None, follow_symlinks: bool) -> None:
        told.append(follow_symlinks)
        if os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode & 0o170000 != 0o120000:
            chmod(name, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "chmod", as_there)
    top = place / "top"
    (top / "deep" / "deeper").mkdir(parents=True)
    (top / "deep" / "deeper" / "file").touch()
    (top / "link").symlink_to(outside)
    chmod(top / "deep", 0o000)
    scratch.empty(str(top))
    assert list(top.iterdir()) == [] and (outside / "file").exists()
    assert told and not any(told)
