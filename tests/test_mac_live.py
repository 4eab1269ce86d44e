"""What only a Mac can say: see docs/macos.md. Skipped elsewhere."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import sandbox
from sandbox import workspace_write

pytestmark = [
    pytest.mark.skipif(sys.platform != "darwin", reason="needs a Mac"),
    pytest.mark.filterwarnings("ignore::sandbox.SandboxWeakened"),
]


@pytest.fixture
def box(workspace: Path) -> Iterator[sandbox.Sandbox]:
    with sandbox.Sandbox(workspace_write(), workspace=workspace) as made:
        yield made


@pytest.mark.parametrize("network", ["none", "loopback", "full"])
def test_this_release_takes_the_profile(network: str, workspace: Path, outside: Path) -> None:
    policy = workspace_write(
        deny=[outside, f"{workspace}/**/*.pem"], network=network, unix_sockets=["/var/run/x.sock"]
    )  # type: ignore[arg-type]
    with sandbox.Sandbox(policy, workspace=workspace) as box:
        assert box.run("echo ran").out == "ran\n"


def test_a_minimal_policy_runs_the_systems_programs(workspace: Path) -> None:
    entries = (
        sandbox.Entry("", sandbox.Access.READ, sandbox.Special.MINIMAL),
        sandbox.Entry("", sandbox.Access.WRITE, sandbox.Special.WORKSPACE),
    )
    with sandbox.Sandbox(sandbox.SandboxPolicy(entries=entries), workspace=workspace) as box:
        assert box.run("ls / && id -un").ok  # the names at the top, and nothing below them
        assert not box.run("ls /Users").ok


@pytest.mark.parametrize(
    "script",
    [
        "osascript -e 'tell application \"Finder\" to get name of home'",
        "open -g -a Calculator",
        "defaults write com.apple.Terminal sandcore-test 1",
        "security dump-keychain",
        "security list-keychains -s x",
        'echo x | pbcopy && test x = "$(pbpaste)"',
        "mdfind -onlyin ~ kMDItemContentType=public.text | grep .",
        "launchctl submit -l sandcore.test -- /usr/bin/true",
        "dscacheutil -q host -a name example.com | grep .",
        "ps eww -ax | grep .",
        "kill -0 $PPID",
        "hdiutil create -size 1m x.dmg && hdiutil attach x.dmg",
    ],
)
def test_no_deputy_acts_for_a_command(script: str, box: sandbox.Sandbox) -> None:
    """The rows MAC01 to MAC17 of the list of escapes."""
    assert not box.run(script, timeout=30).ok


def test_a_nested_profile_fails_with_the_commands_own_71(box: sandbox.Sandbox) -> None:
    found = box.run(["sandbox-exec", "-p", "(version 1)(allow default)", "/usr/bin/true"])
    assert found.returncode == 71 and "sandbox_apply" in found.err


def test_case_and_normal_forms_of_a_protected_name_are_the_same(
    box: sandbox.Sandbox, workspace: Path
) -> None:
    for name in (".GIT", ".Git", ".ENVRC"):
        assert not box.run(["mkdir", name]).ok, name
    assert list(workspace.iterdir()) == []


def test_each_spelling_of_a_path_is_the_same(workspace: Path, outside: Path) -> None:
    policy = workspace_write(deny=[outside])
    names = [f"{outside}/file", f"/System/Volumes/Data{outside}/file"]
    names += [one.replace("/private/", "/", 1) for one in names]
    names.append(f"/.vol/{outside.stat().st_dev}/{(outside / 'file').stat().st_ino}")
    with sandbox.Sandbox(policy, workspace=workspace) as box:
        for name in names:
            assert not box.run(["cat", name]).ok, name


def test_a_question_mark_of_a_pattern_is_one_sign(workspace: Path) -> None:
    for name in ("é", "a", "ab"):
        (workspace / name).write_text("x")
    with sandbox.Sandbox(workspace_write(deny=[f"{workspace}/?"]), workspace=workspace) as box:
        assert not box.run(["cat", "a"]).ok and box.run(["cat", "ab"]).ok
        assert not box.run(["cat", "é"]).ok


def test_moves_links_and_clones_lead_nowhere(workspace: Path, outside: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".git" / "config").write_text("x")
    (workspace / "in").mkdir()
    (workspace / "in" / "secret").write_text("x")
    policy = workspace_write(deny=[workspace / "in" / "secret"])
    with sandbox.Sandbox(policy, workspace=workspace) as box:
        for script in (
            "mv in out",
            "mv .git git",
            "ln .git/config c && echo y >> c",
            "ln in/secret s && cat s",
            "cp -c in/secret s && cat s",
            "mv in/secret s && cat s",
            "mkdir .claude",
            f"mv file {outside}/planted",
        ):
            assert not box.run(f"touch file; {script}").ok, script
        assert box.run("mkdir a && touch a/b && mv a c && rm -r c && cp file copy").ok


def test_no_fcntl_writes_into_what_is_open_for_reading(
    box: sandbox.Sandbox, workspace: Path, outside: Path
) -> None:
    """F_MAKECOMPRESSED and F_TRANSFEREXTENTS; EPERM is the profile's, all else the disk's."""
    code = (
        "import errno, fcntl, os, sys\n"
        "source, target = (os.open(path, os.O_RDONLY) for path in sys.argv[1:])\n"
        "for command, word in ((80, 0), (110, target)):\n"
        "    try:\n        fcntl.fcntl(source, command, word)\n"
        "    except OSError as error:\n        print(errno.errorcode[error.errno])\n"
        "    else:\n        print('done')\n"
        "print(fcntl.fcntl(source, fcntl.F_GETFL))\n"
    )
    (outside / "other").write_text("y")
    found = box.run([sys.executable, "-c", code, f"{outside}/file", f"{outside}/other"])
    assert found.out.split() == ["EPERM", "EPERM", "0"], found.text


def test_sockets_of_the_host_are_out_of_reach(workspace: Path, place: Path) -> None:
    path = str(place / "s")
    code = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        for policy, reached in (
            (workspace_write(), False),
            (workspace_write(network="full"), False),
            (workspace_write(unix_sockets=[path]), True),
        ):
            with sandbox.Sandbox(policy, workspace=workspace) as box:
                assert box.run([sys.executable, "-c", code, path]).ok is reached


def test_a_daemon_of_a_command_ends_with_it(box: sandbox.Sandbox) -> None:
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        print(os.getpid(), flush=True)\n"
        "        os.close(1); os.close(2)\n"
        "        time.sleep(600)\n"
    )
    found = box.run([sys.executable, "-c", code])
    pid = int(found.out)
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(pid) and found.swept == 1


@pytest.mark.parametrize(
    "script",
    [
        "script -q /dev/null true",
        "/usr/bin/python3 -V",
        "git --version",
        "python3 -c 'from concurrent.futures import ProcessPoolExecutor as P; print(P(1))'",
        "python3 -c 'import multiprocessing as m; m.Lock().acquire()'",
        "python3 -c 'from multiprocessing.shared_memory import SharedMemory as S;"
        " s = S(create=True, size=9); s.buf[0] = 1; s.unlink()'",
        "python3 -c 'import asyncio; asyncio.run(asyncio.sleep(0))'",
        "python3 -c 'import os; os.openpty()'",
        "id -un",
        "uname -a && sysctl -n hw.ncpu && getconf ARG_MAX",
        "cat <<END\nx\nEND",
    ],
)
def test_ordinary_work_goes_on(script: str, box: sandbox.Sandbox) -> None:
    """Cases 164, 165 and 167."""
    found = box.run(script, timeout=60)
    assert found.ok, found.text


def test_a_file_that_is_written_has_its_usual_owner(box: sandbox.Sandbox, workspace: Path) -> None:
    assert box.run("echo x > new").ok
    assert (workspace / "new").stat().st_uid == os.getuid()
