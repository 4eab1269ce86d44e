"""`sandcore-exec` on a terminal, as the command itself would be there; and as an ordinary user."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import signal
import struct
import subprocess
import termios
import time
import uuid
from functools import partial
from pathlib import Path

import pytest
from casekit import until
from conftest import AsUser
from launchkit import ISOLATIONS, Launch, policy_at
from test_terminal import INJECT, PATIENCE, Open, stop_a_job, suspend_a_shell, terminal

__all__ = ["terminal"]  # the fixture


@pytest.fixture(params=ISOLATIONS)
def launch(request: pytest.FixtureRequest, place: Path, workspace: Path) -> Launch:
    return policy_at(place, workspace, request.param)


def command(launch: Launch, script: str) -> str:
    """A line for a shell that runs a script confined."""
    return shlex.join(launch.words("sh", "-c", script))


@pytest.mark.parametrize(("key", "status"), [("\x03", 130), ("\x1c", 131)])
def test_keys_end_the_command_once(terminal: Open, launch: Launch, key: str, status: int) -> None:
    shell = terminal()
    shell.shell("for i in 1 2; do " + command(launch, "echo up; exec sleep 1000") + "; done")
    shell.expect(r"\nup")
    shell.send(key)
    if key == "\x1c":  # a shell's loop goes on after that one
        shell.expect(r"\nup")
        shell.send(key)
    assert shell.status() == status


def test_an_interrupt_comes_once_and_may_be_handled(terminal: Open, launch: Launch) -> None:
    shell = terminal()
    loop = "n=0; trap 'n=$((n+1))' INT; echo up; for i in 1 2 3 4 5; do sleep 0.1; done"
    shell.shell(command(launch, f"{loop}; echo caught=$n; exit 5"))
    shell.expect(r"\nup")
    shell.send("\x03")
    assert shell.expect(r"caught=(\d+)\r")[1] == b"1"
    assert shell.status() == 5


def test_ctrl_z_stops_the_job_and_fg_goes_on(terminal: Open, launch: Launch) -> None:
    stop_a_job(terminal(), partial(command, launch))


@pytest.mark.parametrize("how", ["kill -TSTP 0", "kill -STOP $$"])
def test_a_command_that_stops_itself_gives_the_prompt_back(
    terminal: Open, launch: Launch, how: str
) -> None:
    shell = terminal()
    shell.shell(command(launch, f"echo up; {how}; echo back; exit 6"))
    shell.expect(r"\nup")
    shell.expect("Stopped")
    shell.expect("ready> ")
    shell.shell("fg")
    shell.expect(r"\nback")
    assert shell.status() == 6


def test_a_shell_inside_has_job_control_and_can_be_suspended(
    terminal: Open, launch: Launch
) -> None:
    inner = launch.words("env", "PS1=inner> ", "bash", "--norc", "--noprofile", "-i")
    suspend_a_shell(terminal(), shlex.join(inner))


def test_the_window_size_and_its_changes_arrive(terminal: Open, launch: Launch) -> None:
    script = "trap 'stty size; exit 0' WINCH; echo up; while :; do sleep 0.1; done"
    child = terminal(*launch.words("sh", "-c", script))
    child.expect("up")
    fcntl.ioctl(child.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    child.expect("33 77")
    assert os.waitstatus_to_exitcode(child.wait()) == 0


def test_a_closed_window_ends_the_command_and_us(terminal: Open, launch: Launch) -> None:
    child = terminal(*launch.words("sh", "-c", "echo up; exec sleep 1000"))
    child.expect("up")
    child.hang_up()
    assert os.waitstatus_to_exitcode(child.wait()) == -signal.SIGHUP
    assert until(lambda: not Path(f"/proc/{child.pid}").exists(), PATIENCE)


def test_pipes_end_as_without_us(terminal: Open, launch: Launch) -> None:
    shell = terminal()
    found = []
    for words in (["yes"], launch.words("yes")):
        shell.shell(shlex.join(words) + " | head -1; echo ends=${PIPESTATUS[@]}")
        found.append(shell.expect(r"\nends=([\d ]+)")[1].split())
    assert found[0] == found[1]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="ioctl is called by its number there")
def test_case_152_a_command_cannot_type_into_its_terminal(terminal: Open, launch: Launch) -> None:
    child = terminal(*launch.words("/usr/bin/python3", "-c", INJECT))
    assert child.expect(r"errnos ([\d ]+) end")[1].split() == [b"1"] * 3


@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux")
def test_tmux_has_a_confined_window(launch: Launch, place: Path, outside: Path) -> None:
    socket = ["tmux", "-S", str(place / "tmux"), "-f", "/dev/null"]
    script = f"echo out > {outside}/file; stty size > size; echo over > done"
    words = launch.words("sh", "-c", script)
    env = {**os.environ, "TERM": "xterm"}
    name = f"w{uuid.uuid4().hex}"
    start = [*socket, "new-session", "-d", "-s", name, "-x", "91", "-y", "31", shlex.join(words)]
    subprocess.run(start, cwd=launch.workspace, check=True, env=env)
    deadline = time.monotonic() + 30
    while not (launch.workspace / "done").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    subprocess.run([*socket, "kill-server"], capture_output=True, env=env)
    assert (launch.workspace / "size").read_text().split()[1] == "91"
    assert (outside / "file").read_text() == "outside\n"


AS_USER = """
import json, os, sys
from pathlib import Path
from launchkit import ISOLATIONS, policy_at
place, outside = Path(sys.argv[1]), sys.argv[2]
workspace = place / "workspace"
workspace.mkdir()
found = {}
for isolation in ISOLATIONS:
    launch = policy_at(place, workspace, isolation)
    done = launch.shell(f"echo in > {isolation}; echo x > {outside}/file; id -u; exit 7")
    killed = launch.shell("kill -TERM $$").returncode
    found[isolation] = [done.returncode, done.stdout.strip(), killed, sorted(os.listdir(workspace))]
print(json.dumps(found))
"""


def test_an_ordinary_user_needs_no_privilege(as_user: AsUser, outside: Path) -> None:
    (outside / "file").chmod(0o666)  # the kernel alone would let it
    done = as_user(AS_USER, str(as_user.home), str(outside))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    uid = "1000" if os.getuid() == 0 else str(os.getuid())
    assert found["landlock"] == [7, uid, -signal.SIGTERM, ["landlock"]]
    assert found["namespaces"] == [7, uid, -signal.SIGTERM, ["landlock", "namespaces"]]
    assert (outside / "file").read_text() == "outside\n"
