"""`sandbox.subprocess`: the standard library's face, with the kernel's refusals behind it."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import inspect
import os
import signal
import socket
import subprocess as plain
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import AsUser
from lanekit import exists, wait_for

import sandbox
from sandbox import subprocess

pytestmark = pytest.mark.filterwarnings("ignore::sandbox.SandboxWeakened")

DENIED = "Permission denied"


@pytest.fixture
def policy(workspace: Path) -> sandbox.SandboxPolicy:
    return sandbox.workspace_write(workspace)


def shell(text: str, **how: Any) -> plain.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", text], capture_output=True, text=True, timeout=60, **how
    )


def test_a_command_writes_its_workspace_and_nothing_else(
    policy: sandbox.SandboxPolicy, workspace: Path, outside: Path
) -> None:
    done = shell(f"echo in > {workspace}/file; echo out > {outside}/file", policy=policy)
    assert (workspace / "file").read_text() == "in\n"
    assert (outside / "file").read_text() == "outside\n"
    assert DENIED in done.stderr
    control = shell(f"echo out > {outside}/file", policy=sandbox.full_access())
    assert (control.returncode, (outside / "file").read_text()) == (0, "out\n")


def test_the_default_is_confined_to_the_working_directory(workspace: Path, outside: Path) -> None:
    done = shell(f"echo in > file; echo out > {outside}/file", cwd=workspace)
    assert (workspace / "file").read_text() == "in\n"
    assert DENIED in done.stderr


def test_secrets_cannot_be_read_and_the_network_is_closed(
    policy: sandbox.SandboxPolicy, outside: Path
) -> None:
    hidden = policy.with_deny(outside)
    assert DENIED in shell(f"cat {outside}/file", policy=hidden).stderr
    assert shell(f"cat {outside}/file", policy=policy).stdout == "outside\n"
    program = "import socket; socket.socket()"
    words = ["/usr/bin/python3", "-c", program]
    done = subprocess.run(words, policy=policy, stderr=plain.PIPE, text=True)
    assert "PermissionError" in done.stderr
    assert subprocess.call(words, policy=policy.with_network("full")) == 0


def test_an_ordinary_user_is_confined_too(as_user: AsUser, workspace: Path, outside: Path) -> None:
    as_user.give(workspace, outside)
    program = """
        import sys, sandbox
        from sandbox import subprocess
        policy = sandbox.workspace_write(sys.argv[1])
        for place in sys.argv[1:]:
            words = ["/bin/sh", "-c", f"echo x > {place}/new"]
            print(*(subprocess.call(words, policy=p) for p in (policy, sandbox.full_access())))
    """
    done = as_user(textwrap.dedent(program), str(workspace), str(outside))
    assert done.stdout.split() == ["0", "0", "2", "0"], done.stderr


def test_the_child_is_the_callers_and_stays_in_its_session(policy: sandbox.SandboxPolicy) -> None:
    text = "echo $$ $PPID $(ps -o pgid=,sid= -p $$)"
    with subprocess.Popen(text, shell=True, stdout=plain.PIPE, policy=policy) as child:
        assert child.stdout is not None
        pid, parent, group, session = map(int, child.stdout.read().split())
    assert (pid, parent) == (child.pid, os.getpid())
    assert (group, session) == (os.getpgrp(), os.getsid(0))


@pytest.mark.parametrize("how", [{"process_group": 0}, {"start_new_session": True}])
def test_a_group_or_session_of_its_own(policy: sandbox.SandboxPolicy, how: dict[str, Any]) -> None:
    pid, group, session = map(
        int, shell("echo $$ $(ps -o pgid=,sid= -p $$)", policy=policy, **how).stdout.split()
    )
    assert group == pid
    assert session == (pid if "start_new_session" in how else os.getsid(0))


def test_a_group_that_is_there_is_joined(policy: sandbox.SandboxPolicy) -> None:
    with subprocess.Popen(["sleep", "60"], process_group=0, policy=policy) as first:
        done = shell("ps -o pgid= -p $$", process_group=first.pid, policy=policy)
        first.kill()
    assert int(done.stdout) == first.pid


def test_fds_are_passed_under_their_numbers_and_no_others(policy: sandbox.SandboxPolicy) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    high = fcntl.fcntl(reading, fcntl.F_DUPFD_CLOEXEC, 77)
    os.set_inheritable(high, True)
    try:
        words = ["/bin/ls", "/proc/self/fd"]
        for how, kept in (
            ({"pass_fds": (high, writing)}, {writing, high}),
            ({"pass_fds": (high,)}, {high}),
            ({"close_fds": False}, {writing, high}),
            ({}, set()),
        ):
            said = subprocess.check_output(words, policy=policy, **how)
            assert said == plain.check_output(words, **how)  # with the one that ls itself opens
            assert set(map(int, said.split())) >= {0, 1, 2} | kept
    finally:
        for fd in (reading, writing, high):
            os.close(fd)


def test_a_passed_fd_takes_the_place_of_none_that_is_still_needed(
    policy: sandbox.SandboxPolicy,
) -> None:
    pipes = [os.pipe() for _ in range(4)]
    numbers = [fd for pair in pipes for fd in pair]
    try:
        text = "".join(f"readlink /proc/self/fd/{fd};" for fd in numbers)
        done = shell(text, policy=policy, pass_fds=numbers)
        assert done.stdout.split() == [os.readlink(f"/proc/self/fd/{fd}") for fd in numbers]
    finally:
        for fd in numbers:
            os.close(fd)


@pytest.mark.parametrize(
    "how",
    [
        {"preexec_fn": int},
        {"user": 1},
        {"group": 1},
        {"extra_groups": [1]},
        {"restore_signals": False},
        {"pass_fds": range(100, 120)},
    ],
    ids=lambda how: next(iter(how)),
)
def test_what_cannot_be_had_is_refused_and_nothing_runs(
    policy: sandbox.SandboxPolicy, workspace: Path, how: dict[str, Any]
) -> None:
    with pytest.raises(sandbox.InvalidArgument) as caught:
        shell(f"touch {workspace}/ran", policy=policy, **how)
    assert caught.value.name == next(iter(how))
    assert list(workspace.iterdir()) == []


def test_policies_that_take_namespaces_or_a_watch_are_refused(
    policy: sandbox.SandboxPolicy, workspace: Path
) -> None:
    for wrong in (
        policy.with_require("namespaces"),
        policy.with_network("loopback"),
        policy.with_limits(sandbox.Limits(wall=5)),
    ):
        with pytest.raises(sandbox.Unenforceable) as caught:
            shell(f"touch {workspace}/ran", policy=wrong)
        assert ("sandbox=" in caught.value.mend) == (caught.value.part != "limits.wall")
        with pytest.raises(sandbox.Unenforceable), subprocess.installed(wrong):
            raise AssertionError("not reached")
    assert list(workspace.iterdir()) == []
    assert shell("echo ran", policy=policy.with_limits(sandbox.Limits(wall=None))).stdout == "ran\n"


def test_what_is_weaker_is_said(policy: sandbox.SandboxPolicy) -> None:
    with subprocess.Popen(["true"], policy=policy) as child:
        pass
    assert child.enforcement.isolation == "landlock"
    assert {"tree-kill", "restore", "namespaces"} <= {p.part for p in child.enforcement.weaker}
    with subprocess.Popen(["true"], policy=sandbox.full_access()) as child:
        pass
    assert child.enforcement == sandbox.Enforcement("none")


def test_the_environment_is_the_policys_whatever_way_the_callers_is_handed_over(
    policy: sandbox.SandboxPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "secret")
    monkeypatch.setenv("LD_PRELOAD", "")
    for env in (None, {**os.environ, "OWN": "1"}, {**os.environb, b"OWN": b"1"}):
        said = subprocess.check_output(["env"], policy=policy, env=env, text=True)
        assert "secret" not in said
        assert "LD_PRELOAD" not in said
        assert f"PATH={os.environ['PATH']}\n" in said
        assert ("OWN=1\n" in said) == (env is not None)
        assert "SANDBOX=landlock\n" in said
    said = subprocess.check_output(
        ["/usr/bin/env"], policy=policy, env={"API_TOKEN": "another", "TMPDIR": "/x"}, text=True
    )
    assert "API_TOKEN=another\n" in said
    assert "TMPDIR=/x\n" in said
    assert "\nHOME=" not in said
    with pytest.raises(ValueError, match="illegal environment variable name"):
        subprocess.call(["env"], policy=policy, env={"A=B": "1"})


@pytest.mark.parametrize(
    "environment",
    [sandbox.Environment(inherit="none"), sandbox.Environment(exclude=("USER", "LC_*"))],
)
def test_what_the_policy_does_not_inherit_is_not_handed_over_by_a_copy(
    policy: sandbox.SandboxPolicy,
    monkeypatch: pytest.MonkeyPatch,
    environment: sandbox.Environment,
) -> None:
    for name in ("USER", "LC_NAME"):  # the core's names are no exception
        monkeypatch.setenv(name, "callers")
    how: dict[str, Any] = {"env": {**os.environ}, "text": True}
    assert "callers" in subprocess.check_output(["env"], policy=policy, **how)
    confined = policy.with_environment(environment)
    assert "callers" not in subprocess.check_output(["/usr/bin/env"], policy=confined, **how)
    how["env"]["USER"] = "another"
    assert "USER=another" in subprocess.check_output(["/usr/bin/env"], policy=confined, **how)


def test_errors_are_those_of_the_standard_library(policy: sandbox.SandboxPolicy) -> None:
    for how in (
        {"args": ["/nowhere/program"]},
        {"args": ["no-such-program"]},
        {"args": ["true"], "cwd": "/nowhere"},
        {"args": ["/etc/passwd"]},
        {"args": ["true\0"]},
        {"args": [1]},
        {"args": ["true"], "env": {"A": 1}},
    ):
        with pytest.raises(Exception) as expected:
            plain.Popen(**how)
        with pytest.raises(expected.type) as caught:
            subprocess.Popen(**how, policy=policy)
        for name in ("errno", "filename"):
            assert getattr(caught.value, name, None) == getattr(expected.value, name, None)


@pytest.mark.parametrize("how", ["stdin", "stderr", "pass_fds"])
def test_a_datagram_socket_of_the_host_is_not_handed_over(
    policy: sandbox.SandboxPolicy, how: str
) -> None:
    """No filter sees the address of a `sendmsg`, and the socket is of the host's network."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as host,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as given,
    ):
        host.bind(("127.0.0.1", 0))
        host.settimeout(10)
        number = {"stdin": 0, "stderr": 2, "pass_fds": given.fileno()}[how]
        made, there = f"socket.socket(fileno={number})", host.getsockname()
        code = f"import socket; given = {made}; given.sendto(b'x', {there})"
        handed: dict[str, Any] = {how: (given.fileno(),) if how == "pass_fds" else given}
        words = ["/usr/bin/python3", "-c", code]
        with pytest.raises(sandbox.InvalidArgument) as caught:
            subprocess.call(words, policy=policy, **handed)
        assert caught.value.name == how
        assert plain.call(words, **handed) == 0
        assert host.recv(2) == b"x"
        host.setblocking(False)
        with pytest.raises(BlockingIOError):
            host.recv(2)


def test_failures_leave_no_fd_and_no_child(policy: sandbox.SandboxPolicy) -> None:
    subprocess.call(["true"], policy=policy)
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            subprocess.Popen(["/nowhere"], stdin=-1, stdout=-1, stderr=-1, policy=policy)
        with pytest.raises(sandbox.InvalidArgument):
            subprocess.Popen(["true"], stdin=-1, stdout=-3, stderr=-1, user=1, policy=policy)
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("started_before", [False, True])
def test_nothing_of_ours_takes_the_place_of_a_closed_stream(
    workspace: Path, started_before: bool
) -> None:
    """The nursery's control socket would let a command spawn in its name."""
    program = """
        import os, sys, sandbox
        from sandbox import subprocess
        policy = sandbox.workspace_write(sys.argv[1])
        if sys.argv[2] == "True":
            subprocess.call(["true"], policy=policy)
        os.close(0)
        for _ in range(2):
            assert subprocess.call(["readlink", "/proc/self/fd/0"], policy=policy) == 0
        os.open("/etc/passwd", os.O_RDONLY)  # takes the number, for the caller alone
        assert subprocess.call(["readlink", "/proc/self/fd/0"], policy=policy) == 0
        sys.stdout.flush()
        try:
            subprocess.call(["true"], pass_fds=[99], policy=policy)
        except OSError as error:
            print(error.errno)
    """
    words = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), str(workspace)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = plain.check_output([*words, str(started_before)], text=True, env=env)
    assert said.split() == ["/dev/null"] * 3 + [str(errno.EBADF)]


def test_the_core_keeps_the_numbers_of_streams_free(workspace: Path) -> None:
    program = """
        import os, sys, _sandcore
        from lanekit import policy
        from pathlib import Path
        os.close(0)
        plan = _sandcore.Plan([b"/bin/true"], [], fds=(1, 1, 2), policy=policy(Path(sys.argv[1])))
        _, pidfd = _sandcore.spawn(plan)
        print(pidfd if os.path.exists("/proc/self/fd/0") else 0)
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", textwrap.dedent(program), str(workspace)]
    assert plain.check_output(words, text=True, env=env) == "0\n"


def test_the_usual_faces(policy: sandbox.SandboxPolicy) -> None:
    assert subprocess.call("exit 3", shell=True, policy=policy) == 3
    with pytest.raises(plain.CalledProcessError):
        subprocess.check_call("exit 3", shell=True, policy=policy)
    assert subprocess.check_output("cat", shell=True, input=b"in", policy=policy) == b"in"
    with pytest.raises(plain.TimeoutExpired):
        subprocess.run(["sleep", "60"], timeout=0.1, policy=policy)
    assert subprocess.run(["sh", "-c", "kill -9 $$"], policy=policy).returncode == -9
    assert shell("umask", umask=0o77, policy=policy).stdout == "0077\n"
    assert shell("pwd", cwd="/usr/bin", policy=policy).stdout == "/usr/bin\n"
    assert subprocess.check_output(["x", "-c", "echo $0"], executable="/bin/sh", policy=policy)
    assert subprocess.getstatusoutput("echo out; exit 3") == (3, "out")
    for name in ("run", "call", "check_call", "check_output"):
        ours, theirs = getattr(subprocess, name), getattr(plain, name)
        assert inspect.signature(ours) == inspect.signature(theirs)
    assert issubclass(subprocess.Popen, plain.Popen)


def test_a_block_confines_what_was_imported_before_and_what_threads_do(
    policy: sandbox.SandboxPolicy, outside: Path
) -> None:
    early = plain.Popen
    words = ["/bin/sh", "-c", f"echo x >> {outside}/file"]

    async def through_asyncio() -> int:
        child = await asyncio.create_subprocess_exec(*words, stderr=plain.DEVNULL)
        return await child.wait()

    async def in_a_thread() -> int:
        return await asyncio.to_thread(plain.call, words, stderr=plain.DEVNULL)

    with subprocess.installed(policy):
        assert early(words, stderr=plain.DEVNULL).wait() == 2
        assert asyncio.run(through_asyncio()) == 2
        assert asyncio.run(in_a_thread()) == 2
        with pytest.raises(sandbox.InvalidArgument), subprocess.installed(policy):
            raise AssertionError("not reached")
        assert plain.call(words, stderr=plain.DEVNULL) == 2  # the inner block took nothing away
        assert subprocess.call(words, policy=sandbox.full_access()) == 0  # the explicit act
    assert asyncio.run(through_asyncio()) == 0
    assert (outside / "file").read_text() == "outside\nx\nx\n"


def test_a_block_ends_with_an_exception_too(policy: sandbox.SandboxPolicy, outside: Path) -> None:
    with pytest.raises(KeyError), subprocess.installed(policy):
        raise KeyError
    assert plain.call(["touch", f"{outside}/new"]) == 0


def test_commands_end_with_the_caller_and_not_with_the_thread_that_started_them(
    place: Path, workspace: Path
) -> None:
    program = """
        import os, sys, threading, time, sandbox
        from sandbox import subprocess
        policy = sandbox.workspace_write(sys.argv[1])
        children = []
        def start():
            words = ["/bin/sh", "-c", "sleep 600 & echo $!; wait"]
            children.append(subprocess.Popen(words, policy=policy))
        thread = threading.Thread(target=start)
        thread.start(); thread.join()
        # One write, as the shell's: unbuffered print makes two, and the lines would mix.
        os.write(1, b"%d\\n" % children[0].pid)  # it ends here where the thread has failed
        time.sleep(600)
    """
    words = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), str(workspace)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with plain.Popen(words, stdout=plain.PIPE, text=True, env=env) as caller:
        assert caller.stdout is not None
        pids = [int(caller.stdout.readline()) for _ in range(2)]
        time.sleep(0.2)
        for pid in pids:
            os.kill(pid, 0)
        caller.send_signal(signal.SIGKILL)
        wait_for(lambda: not any(exists(pid) for pid in pids))


def test_a_fork_starts_its_own(policy: sandbox.SandboxPolicy, workspace: Path) -> None:
    assert subprocess.call(["true"], policy=policy) == 0
    pid = os.fork()
    if pid == 0:
        code = 1
        signal.alarm(60)
        try:
            said = subprocess.check_output("echo $PPID $TMPDIR", shell=True, policy=policy)
            parent, tmp = said.split()
            code = 0 if int(parent) == os.getpid() and os.path.isdir(tmp) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
