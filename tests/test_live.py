"""Sandboxes that live beside each other, across a fork, and after what commands do to them."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sandbox

pytestmark = pytest.mark.filterwarnings("ignore::sandbox.SandboxWeakened")

PLANT = "mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit && touch {started}; sleep 1.2"


@contextmanager
def planting(box: sandbox.Sandbox, workspace: Path) -> Iterator[list[sandbox.Result]]:
    """A command that has planted a hook and goes on for a second; its result, once it is there."""
    started = workspace / "started"
    results: list[sandbox.Result] = []
    thread = threading.Thread(
        target=lambda: results.append(box.run(PLANT.format(started=started), cwd=workspace))
    )
    thread.start()
    while not started.exists():
        assert thread.is_alive()
        time.sleep(0.01)
    yield results
    thread.join()


def hook_of(workspace: Path) -> Path:
    (workspace / ".git" / "hooks").mkdir(parents=True)
    time.sleep(0.05)  # its change time then tells what it should
    return workspace / ".git" / "hooks" / "pre-commit"


def kinds(results: list[sandbox.Result]) -> list[str]:
    return [denial.change for result in results for denial in result.denials]


def test_what_one_sandbox_plants_is_not_put_back_by_another_that_began_meanwhile(
    workspace: Path,
) -> None:
    hook = hook_of(workspace)
    policy = sandbox.workspace_write(workspace)
    with sandbox.Sandbox(policy) as one:
        with planting(one, workspace) as results:
            other = sandbox.Sandbox(policy.with_limits(sandbox.Limits(wall=30)))
            late = other.run("sleep 2")
        assert kinds(results) == ["planted"]
        assert kinds([late]) == []
        assert not hook.exists()
        other.close()


def test_what_a_command_plants_is_not_put_back_when_its_sandbox_is_confined_anew_meanwhile(
    workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.backends.basis._LOOK", 0)
    hook = hook_of(workspace)
    key = outside / "key"
    key.touch()
    with sandbox.Sandbox(sandbox.workspace_write(workspace).with_deny(key)) as box:
        key_was = box._boundary._confinement
        with planting(box, workspace) as results:
            shutil.move(key, outside / "moved")  # a denied path is something else now
            late = box.run("sleep 2")
        assert box._boundary._confinement is not key_was
        assert kinds(results) == ["planted"]
        assert kinds([late]) == []
        assert not hook.exists()


def test_a_forked_copy_leaves_its_parents_temporary_directories_alone(workspace: Path) -> None:
    with sandbox.Sandbox(sandbox.workspace_write(workspace)) as box:
        tmp = box.run("echo $TMPDIR").out.strip()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                own = box.run("echo $TMPDIR; touch $TMPDIR/../beside").out.strip()
                box.close()
                status = int(os.path.dirname(own) == os.path.dirname(tmp) or os.path.exists(own))
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert os.path.isdir(tmp)
        assert box.run("echo x > $TMPDIR/file").returncode == 0


def test_a_command_keeps_its_result_when_the_temporary_directory_is_gone(workspace: Path) -> None:
    with sandbox.Sandbox(sandbox.workspace_write(workspace)) as box:
        started = workspace / "started"
        cleaner = threading.Thread(target=_remove_once, args=(started, box.resolved.tmp))
        cleaner.start()
        result = box.run(f"touch {started}; sleep 1; echo done")
        cleaner.join()
        assert (result.returncode, result.out) == (0, "done\n")
        with pytest.raises(sandbox.SandboxException):
            box.run(["true"])


def _remove_once(started: Path, tmp: str) -> None:
    while not started.exists():
        time.sleep(0.01)
    shutil.rmtree(tmp)


@pytest.mark.parametrize(
    ("args", "options", "culprit"),
    [
        (None, {}, "args"),
        (5, {}, "args"),
        (["true"], {"env": ["A=1"]}, "env"),
        (["true"], {"input": "\ud800"}, "input"),
        (["true"], {"policy": "read_only"}, "policy"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_named(
    args: Any, options: dict[str, Any], culprit: str, workspace: Path
) -> None:
    with pytest.raises(sandbox.InvalidArgument) as raised:
        sandbox.run(args, **{"cwd": workspace, **options})
    assert raised.value.name == culprit


def test_arguments_that_are_too_long_are_not_blamed_on_the_policy(workspace: Path) -> None:
    with pytest.raises(sandbox.ArgumentsTooLong) as raised:
        sandbox.run(["true", "x" * 3_000_000], cwd=workspace)
    assert "policy" not in raised.value.hint and "input" in raised.value.hint


@pytest.mark.parametrize("policy", [sandbox.workspace_write(), sandbox.full_access()])
def test_a_limit_that_does_not_bind_is_reported_wherever_it_was_said(
    policy: sandbox.SandboxPolicy, workspace: Path
) -> None:
    limits = sandbox.Limits(processes=1000)
    said = {"by the policy": (policy.with_limits(limits), None), "by the call": (policy, limits)}
    for own, given in said.values():
        result = sandbox.run(["true"], own, cwd=workspace, limits=given)
        assert [w.part for w in result.enforcement.weaker].count("processes") == 1
    plain = sandbox.run(["true"], policy, cwd=workspace)
    assert "processes" not in [w.part for w in plain.enforcement.weaker]


@pytest.mark.filterwarnings("default::sandbox.SandboxWeakened")
@pytest.mark.parametrize("call", ["sandbox.run('true')", "sandbox.Sandbox()"])
def test_what_is_weaker_is_said_once_and_at_the_caller_s_line(tmp_path: Path, call: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import sandbox\n\n{call}\n{call}\n")
    (tmp_path / "w").mkdir()
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path / "w", capture_output=True, text=True, check=True
    )
    assert done.stderr.count("SandboxWeakened") == 1
    assert done.stderr.startswith(f"{script}:3:")


@pytest.mark.filterwarnings("default::sandbox.SandboxWeakened")
def test_what_is_weaker_on_every_host_is_in_the_result_and_no_warning(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sandbox\n"
        "found = sandbox.run('true').enforcement.weaker\n"
        "print(sorted(part.part for part in found), all(part.everywhere for part in found))\n"
        "sandbox.run('true', sandbox.workspace_write().with_network('full'))\n"
    )
    (tmp_path / "w").mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "always", script],
        cwd=tmp_path / "w",
        env={**os.environ, "SANDBOX_ISOLATION": "auto"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['hard-links', 'locks', 'repositories'] True\n"
    assert done.stderr.startswith(f"{script}:4:")
    assert "abstract-names" in done.stderr and "hard-links" not in done.stderr


def test_what_a_command_planted_before_it_ended_its_sandbox_is_put_back_and_told(
    workspace: Path,
) -> None:
    with sandbox.Sandbox(sandbox.workspace_write(workspace)) as box:
        with pytest.raises(sandbox.SandboxLost) as raised:
            box.run("echo evil > .envrc; kill -9 $PPID; sleep 9")
        assert [denial.change for denial in raised.value.denials] == ["planted"]
        assert not (workspace / ".envrc").exists()
        assert box.run("echo again").out == "again\n"


def test_a_fork_while_another_thread_holds_a_lock_leaves_the_child_able_to_run(
    workspace: Path,
) -> None:
    with sandbox.Sandbox(sandbox.workspace_write(workspace)) as box:
        with box._boundary._lock.held:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    status = 0 if box.run("true").returncode == 0 else 2
                finally:
                    os._exit(status)
        deadline = time.monotonic() + 20
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.02)
        if ended == (0, 0):
            os.kill(child, 9)
            os.waitpid(child, 0)
        assert ended[1] == 0


def test_a_filter_of_the_caller_s_own_is_stacked_on_ours(workspace: Path, tmp_path: Path) -> None:
    pyseccomp = pytest.importorskip("pyseccomp", reason="needs pyseccomp and libseccomp2")
    wanted = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for call in ("mkdir", "mkdirat"):
        wanted.add_rule(pyseccomp.ERRNO(errno.EDOM), call)
    with (tmp_path / "filter").open("w+b") as file:
        wanted.export_bpf(file)
        file.seek(0)
        mine = replace(sandbox.workspace_write(workspace), extra_filter=file.read())
    script = ["python3", "-c", "import os; os.mkdir('d')"]
    assert sandbox.run(script, cwd=workspace).returncode == 0
    (workspace / "d").rmdir()
    refused = sandbox.run(script, mine, cwd=workspace)
    assert f"Errno {errno.EDOM}" in refused.err and not (workspace / "d").exists()
    outside = sandbox.run(["touch", str(tmp_path / "no")], mine, cwd=workspace)
    assert outside.returncode != 0, "ours holds as well"
