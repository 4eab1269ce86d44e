"""`sandcore-exec`: a command under a compiled policy, in both isolations."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from lanekit import PYTHON
from launchkit import ISOLATIONS, LAUNCHER, Launch, ours, policy_at

from sandbox.environ import Environment
from sandbox.errors import InvalidPath, Unenforceable
from sandbox.limits import Limits
from sandbox.presets import full_access, workspace_write

PATIENCE = 30.0


def wait_for(what: object, until: object = None) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


@pytest.fixture(params=ISOLATIONS)
def launch(request: pytest.FixtureRequest, place: Path, workspace: Path) -> Launch:
    return policy_at(place, workspace, request.param)


def test_the_status_is_the_commands(launch: Launch) -> None:
    done = launch.shell("cat; echo more >&2; exit 7", input="given\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, "given\n", "more\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_the_launcher_dies_as_the_command_did(launch: Launch, number: int) -> None:
    assert launch.shell(f"kill -{number} $$").returncode == -number


def test_what_cannot_be_executed_or_found_has_its_status(launch: Launch) -> None:
    missing, text = launch("no-such-program"), launch("/etc/passwd")
    assert (missing.returncode, text.returncode) == (127, 126)
    assert missing.stderr == "sandcore-exec: no-such-program: no such file or directory\n"


def test_the_isolation_is_the_one_asked_for_and_the_directory_stays(launch: Launch) -> None:
    done = launch.shell('echo "$SANDBOX"; pwd')
    assert done.stdout.split() == [launch.isolation, str(launch.workspace)]


def test_it_writes_in_the_workspace_and_nowhere_else(launch: Launch, outside: Path) -> None:
    done = launch.shell(f"echo a > in; echo a > {outside}/file; echo a > {outside}/new; true")
    assert (launch.workspace / "in").read_text() == "a\n"
    assert (outside / "file").read_text() == "outside\n"
    assert sorted(path.name for path in outside.iterdir()) == ["file"], done.stderr


def test_secrets_are_denied_and_their_neighbours_are_not(
    place: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = place / "home"
    (home / ".aws").mkdir(parents=True)
    (home / ".aws/credentials").write_text("key")
    (home / "plain").write_text("plain")
    monkeypatch.setenv("HOME", str(home))
    for isolation in ISOLATIONS:
        launch = policy_at(place, workspace, isolation)
        done = launch.shell(f"cat {home}/plain; cat {home}/.aws/credentials")
        assert (done.returncode != 0, done.stdout) == (True, "plain"), done


def test_of_the_environment_only_what_the_policy_names_passes(
    place: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = Environment(allow=("MY_TOKEN",), set=(("GIVEN", "1"), ("LANG", "xx")))
    policy = replace(workspace_write(), environment=environment)
    for isolation in ISOLATIONS:
        launch = policy_at(place, workspace, isolation, policy)
        given = {**os.environ, "MY_TOKEN": "t", "SECRET": "s", "LD_PRELOAD_": "x", "LANG": "C"}
        done = launch("env", "-0", env=given)
        found = dict(item.split("=", 1) for item in done.stdout.split("\0") if item)
        assert (found["MY_TOKEN"], found["GIVEN"], found["LANG"]) == ("t", "1", "xx")
        assert not {"SECRET", "LD_PRELOAD_", "PYTHONPATH"} & set(found)


def test_nothing_of_the_callers_is_in_a_process_that_stays(place: Path, workspace: Path) -> None:
    """The fork that becomes the sandbox's root has wiped the environment that it was born with."""
    launch = policy_at(place, workspace, "namespaces")
    secret = f"s{uuid.uuid4().hex}"
    child = subprocess.Popen(
        launch.words("sh", "-c", "echo up; exec sleep 1000"),
        cwd=workspace,
        env={**os.environ, "SECRET": secret},
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"up\n"
        others = [pid for pid in ours(f"--policy={launch.file}") if pid != child.pid]
        seen = Path(f"/proc/{child.pid}/environ").read_bytes()
        assert secret.encode() in seen  # the control: the launcher itself has it
        assert others
        for pid in others:
            try:
                assert secret.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
            except PermissionError:
                continue  # not dumpable: closed to this user
    finally:
        child.kill()
        child.communicate()


def test_descriptors_beyond_the_three_streams_are_closed(launch: Launch) -> None:
    leaked = os.open("/etc/hostname", os.O_RDONLY)
    try:
        done = launch("ls", "/proc/self/fd", pass_fds=[leaked])
        assert (
            str(leaked)
            in subprocess.run(
                ["ls", "/proc/self/fd"], pass_fds=[leaked], capture_output=True, text=True
            ).stdout.split()
        )
    finally:
        os.close(leaked)
    assert done.stdout.split()[:3] == ["0", "1", "2"]
    assert len(done.stdout.split()) == 4  # and the directory itself


def test_closed_streams_do_not_become_files_of_the_launcher(launch: Launch) -> None:
    words = " ".join(launch.words("sh", "-c", "'cat; readlink /proc/self/fd/0'"))
    done = subprocess.run(["sh", "-c", f"{words} <&-"], cwd=launch.workspace, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"/dev/null\n")


def test_what_the_caller_ignores_stays_ignored(launch: Launch) -> None:
    done = subprocess.run(
        ["nohup", *launch.words("sh", "-c", "kill -HUP $$; echo on")],
        cwd=launch.workspace, capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "on\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_to_the_launcher_is_one_to_the_command(launch: Launch, number: int) -> None:
    script = f"trap 'echo got; exit 3' {number}; echo up; while :; do sleep 0.05; done"
    child = subprocess.Popen(
        launch.words("sh", "-c", script), cwd=launch.workspace, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    child.send_signal(number)
    assert child.communicate(timeout=PATIENCE)[0] == b"got\n"
    assert child.returncode == 3


def test_in_namespaces_the_tree_ends_with_the_command(place: Path, workspace: Path) -> None:
    launch = policy_at(place, workspace, "namespaces")
    mark = f"1{uuid.uuid4().int % 10**9}"
    done = launch.shell(f"setsid sleep {mark} >/dev/null 2>&1 & sleep 0.1; echo over")
    assert done.stdout == "over\n"
    assert not ours(mark)


def test_in_namespaces_a_killed_launcher_takes_the_tree_along(place: Path, workspace: Path) -> None:
    launch = policy_at(place, workspace, "namespaces")
    mark = f"1{uuid.uuid4().int % 10**9}"
    child = subprocess.Popen(launch.words("sh", "-c", f"setsid sleep {mark}"), cwd=workspace)
    wait_for(lambda: ours(mark))
    child.kill()
    child.wait()
    wait_for(lambda: not ours(mark))


def test_in_namespaces_planted_names_are_moved_aside(place: Path, workspace: Path) -> None:
    launch = policy_at(place, workspace, "namespaces")
    assert launch.shell("mkdir .git; echo hook > .git/x; echo plain > kept").returncode == 0
    names = sorted(path.name for path in workspace.iterdir())
    assert names[1:] == ["kept"]
    assert names[0].startswith(".git.planted-")
    assert launch("true").returncode == 0  # it can be used on


def test_signals_of_a_command_end_at_the_sandbox(launch: Launch) -> None:
    """Its process group is the caller's, and `kill 0` is one to all of that."""
    neighbour = subprocess.Popen(["sleep", "1000"], process_group=0)
    try:
        done = launch.shell("kill -KILL 0", preexec_fn=lambda: os.setpgid(0, neighbour.pid))
        assert done.returncode == -signal.SIGKILL
        assert neighbour.poll() is None
        control = subprocess.run(
            ["sh", "-c", "kill -KILL 0"], preexec_fn=lambda: os.setpgid(0, neighbour.pid)
        )
        assert (control.returncode, neighbour.wait(PATIENCE)) == (-signal.SIGKILL,) * 2
    finally:
        neighbour.kill()
        neighbour.wait()


def test_a_limit_of_memory_is_of_the_tree_in_namespaces(place: Path, workspace: Path) -> None:
    policy = workspace_write().with_limits(Limits(memory=64 << 20))
    launch = policy_at(place, workspace, "namespaces", policy)
    done = launch(PYTHON, "-c", "x = b'1' * (256 << 20); import time; time.sleep(9)")
    assert done.returncode == -signal.SIGKILL
    assert "more memory than its policy allows" in done.stderr


def damages(data: bytes) -> dict[str, bytes]:
    found = {f"byte {at}": data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
             for at in range(0, len(data), max(1, len(data) // 60))}  # fmt: skip
    found |= {f"cut to {size}": data[:size] for size in (0, 10, 24, 100, len(data) - 8)}
    return found | {"longer": data + bytes(8)}


def test_a_damaged_file_runs_nothing(launch: Launch) -> None:
    data = launch.file.read_bytes()
    for name, bad in damages(data).items():
        launch.file.write_bytes(bad)
        done = launch.shell("echo ran")
        assert (done.returncode, done.stdout) == (125, ""), name
        assert "compile it again" in done.stderr, name
    launch.file.write_bytes(data)
    assert launch.shell("echo ran").stdout == "ran\n"


def test_a_file_that_others_could_have_written_runs_nothing(launch: Launch) -> None:
    launch.file.chmod(0o620)
    done = launch.shell("echo ran")
    assert (done.returncode, done.stdout) == (125, "")
    launch.file.chmod(0o600)
    if os.getuid() == 0:
        os.chown(launch.file, 1000, 1000)
        assert launch.shell("echo ran").returncode == 125


def test_where_paths_lead_elsewhere_it_is_to_be_compiled_again(
    launch: Launch, place: Path, workspace: Path
) -> None:
    workspace.rename(place / "old")
    workspace.mkdir()
    done = launch.shell("echo ran > here")
    assert (done.returncode, list(workspace.iterdir())) == (125, [])
    assert "compile it again" in done.stderr
    workspace.rmdir()
    workspace.symlink_to(place / "old")
    assert launch.shell("echo ran > here").returncode == 125
    assert sorted(path.name for path in (place / "old").iterdir()) == []


def test_a_secret_that_came_since_is_not_read(
    place: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = place / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    launches = [policy_at(place, workspace, isolation) for isolation in ISOLATIONS]
    (place / "elsewhere").mkdir()
    (place / "elsewhere/credentials").write_text("key")
    (home / ".aws").symlink_to(place / "elsewhere")
    for launch in launches:
        done = launch.shell(f"cat {home}/.aws/credentials")
        assert (done.returncode, done.stdout) == (125, ""), launch.isolation


def test_the_file_is_not_where_its_commands_could_write_it(workspace: Path) -> None:
    with pytest.raises(InvalidPath, match="its own commands could write it"):
        policy_at(workspace, workspace, "auto")


def test_what_a_file_cannot_hold_is_refused(place: Path, workspace: Path) -> None:
    with pytest.raises(Unenforceable, match="pattern"):
        policy_at(place, workspace, "auto", workspace_write().with_deny(f"{workspace}/*.pem"))
    with pytest.raises(Unenforceable, match="confines nothing"):
        policy_at(place, workspace, "auto", full_access())


def test_where_namespaces_are_refused_it_is_landlock_or_nothing(
    place: Path, workspace: Path
) -> None:
    """Inside of a sandbox there are no further namespaces."""
    outer, inner = place / "outer", place / "inner"
    outer.mkdir()
    inner.mkdir()
    around = policy_at(outer, workspace, "landlock")
    within = policy_at(inner, workspace, "auto")
    assert within("sh", "-c", "echo $SANDBOX").stdout == "namespaces\n"
    done = around(*within.words("sh", "-c", "echo $SANDBOX"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "landlock\n", "")
    told = around(LAUNCHER, "-v", "--policy", str(within.file), "--", "true")
    assert told.returncode == 0
    assert told.stderr.startswith("sandcore-exec: landlock, for there are no namespaces: ")
    within.isolation = "namespaces"
    refused = around(*within.words("echo", "ran"))
    assert (refused.returncode, refused.stdout) == (125, "")


@pytest.mark.parametrize("words", [[], ["--policy", "/nowhere", "--", "true"], ["--nonsense"]])
def test_bad_usage_is_125_with_one_line(words: list[str]) -> None:
    done = subprocess.run([LAUNCHER, *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (125, 1)
    assert done.stderr.startswith("sandcore-exec: ")


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_make_runs_its_recipes_confined(launch: Launch, outside: Path) -> None:
    wrapper = launch.file.parent / "shell"
    wrapper.write_text(f'#!/bin/sh\nexec {" ".join(launch.words("sh"))} "$@"\n')
    wrapper.chmod(0o755)
    recipe = f"all: a b\na b:\n\t@echo made > $@; echo x > {outside}/file || true\n"
    (launch.workspace / "Makefile").write_text(recipe)
    words = ["make", "-j2", f"SHELL={wrapper}"]
    done = subprocess.run(words, cwd=launch.workspace, capture_output=True, text=True)
    assert done.returncode == 0, done
    assert (launch.workspace / "b").read_text() == "made\n"
    assert (outside / "file").read_text() == "outside\n"


def test_asyncio_talks_to_a_server_on_stdin_and_stdout(launch: Launch) -> None:
    async def talk() -> tuple[bytes, int]:
        child = await asyncio.create_subprocess_exec(
            *launch.words("cat"), stdin=-1, stdout=-1, cwd=launch.workspace
        )
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(b"ping\n")
        line = await child.stdout.readline()
        child.stdin.close()
        return line, await child.wait()

    assert asyncio.run(talk()) == (b"ping\n", 0)


def test_it_is_an_ordinary_program(launch: Launch) -> None:
    mode = os.stat(LAUNCHER).st_mode
    assert not mode & (stat.S_ISUID | stat.S_ISGID)
    assert b"INTERP" not in subprocess.run(["readelf", "-lW", LAUNCHER], capture_output=True).stdout


def sandbox(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sandbox", *words]
    env = {**os.environ, "SANDBOX_ISOLATION": "auto"}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=60)


def test_the_command_line_compiles_and_says_where_the_launcher_is(
    place: Path, workspace: Path, outside: Path
) -> None:
    file = place / "policy.scx"
    done = sandbox("compile", "--write", str(outside), "-o", "../policy.scx", cwd=workspace)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = sandbox("exec-path", cwd=workspace)
    assert found.stdout == f"{LAUNCHER}\n"
    launch = Launch(file, workspace)
    assert launch.shell(f"echo in > {outside}/new; echo $SANDBOX").stdout == "namespaces\n"
    assert (outside / "new").read_text() == "in\n"


def test_the_command_line_keeps_to_one_isolation(place: Path, workspace: Path) -> None:
    words = ("compile", "--isolation", "landlock", "-o", "../policy.scx")
    assert sandbox(*words, cwd=workspace).returncode == 0
    launch = Launch(place / "policy.scx", workspace)
    assert launch.shell("echo $SANDBOX").stdout == "landlock\n"
    launch.isolation = "namespaces"
    refused = launch("echo", "ran")
    assert (refused.returncode, refused.stdout) == (125, "")


def test_the_command_line_refuses_a_file_in_the_workspace(workspace: Path) -> None:
    done = sandbox("compile", "-o", "policy.scx", cwd=workspace)
    assert (done.returncode, list(workspace.iterdir())) == (125, []), done.stderr
    assert "its own commands could write it" in done.stderr
