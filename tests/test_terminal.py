"""`sandbox run` on a terminal: keys, job control, window size, as without it. On a pty."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from casekit import processes_with, until

SANDBOX = [sys.executable, "-m", "sandbox"]
RUN = shlex.join([*SANDBOX, "run", "--"])
PATIENCE = 30.0  # seconds; generous, because a loaded machine is no failure


class Terminal:
    """A process whose controlling terminal is a pty that the test holds the other end of."""

    def __init__(self, argv: list[str], cwd: Path) -> None:
        self.seen = b""
        self._status: int | None = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(argv[0], argv, {**os.environ, "PS1": "ready> ", "TERM": "dumb"})

    def send(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def expect(self, pattern: str) -> re.Match[bytes]:
        """Reads until the pattern is there; what came before it is done with."""
        wanted = re.compile(pattern.encode())
        deadline = time.monotonic() + PATIENCE
        while True:
            found = wanted.search(self.seen)
            if found:
                self.seen = self.seen[found.end() :]
                return found
            left = deadline - time.monotonic()
            assert left > 0, f"no {pattern!r} in {self.seen!r}"
            if select.select([self.fd], [], [], left)[0]:
                with contextlib.suppress(OSError):  # EIO: nobody has the terminal open
                    self.seen += os.read(self.fd, 65536)

    def shell(self, line: str) -> None:
        self.send(line + "\n")

    def status(self) -> int:
        """The exit status of the shell's last command."""
        self.expect("ready> ")
        self.shell("echo status=$?")
        found = int(self.expect(r"\nstatus=(\d+)")[1])
        self.expect("ready> ")
        return found

    def wait(self, flags: int = 0) -> int:
        """The wait status of the process itself."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG | flags)
            if pid:
                if not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
                    self._status = status
                return status
            time.sleep(0.01)
        raise AssertionError("it neither stopped nor ended")

    def hang_up(self) -> None:
        """Closes the terminal, as a window does."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def close(self) -> None:
        self.hang_up()
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


Open = Callable[..., Terminal]


@pytest.fixture(params=["landlock", "auto"])
def terminal(
    workspace: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Open]:
    """Opens a terminal with a command in the workspace, by default an interactive bash."""
    monkeypatch.setenv("SANDBOX_ISOLATION", request.param)
    opened: list[Terminal] = []

    def start(*argv: str) -> Terminal:
        chosen = list(argv) or ["bash", "--norc", "--noprofile", "-i"]
        opened.append(Terminal(chosen, workspace))
        if not argv:
            opened[-1].expect("ready> ")
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def command(script: str) -> str:
    """A line for a shell that runs a script confined."""
    return f"{RUN} sh -c {shlex.quote(script)}"


def test_ctrl_c_ends_the_command_and_the_status_is_130(terminal: Open) -> None:
    shell = terminal()
    shell.shell(command("echo up; exec sleep 1000"))
    shell.expect(r"\nup")
    shell.send("\x03")
    assert shell.status() == 130


def test_ctrl_c_ends_the_loop_that_runs_commands(terminal: Open) -> None:
    shell = terminal()
    shell.shell(f"for i in 1 2 3; do {command('echo up; exec sleep 1000')}; echo round=$i; done")
    shell.expect(r"\nup")
    shell.send("\x03")
    assert shell.status() == 130
    assert b"round=" not in shell.seen


def test_an_interrupt_that_the_command_handles_is_its_own_affair(terminal: Open) -> None:
    shell = terminal()
    loop = "while :; do sleep 0.1; done"
    shell.shell(command(f"trap 'echo caught; exit 5' INT; echo up; {loop}"))
    shell.expect(r"\nup")
    shell.send("\x03")
    shell.expect("caught\r\n")
    assert shell.status() == 5


def test_ctrl_backslash_quits_the_command_with_131(terminal: Open) -> None:
    shell = terminal()
    shell.shell(command("echo up; exec sleep 1000"))
    shell.expect(r"\nup")
    shell.send("\x1c")
    assert shell.status() == 131


def stop_a_job(shell: Terminal, line_of: Callable[[str], str]) -> None:
    """Ctrl-Z and ``fg``; ``line_of`` makes the line that runs a script confined."""
    nap = f"1.{os.getpid()}"
    shell.shell(line_of(f"echo up; sleep {nap}; echo over; exit 9"))
    shell.expect(r"\nup")
    # Not before it sleeps: `sh` starts it by vfork, and cannot stop while a stopped child has not
    # executed yet. So it is without a sandbox.
    assert until(lambda: processes_with(nap), PATIENCE)
    shell.send("\x1a")
    shell.expect("Stopped")
    shell.expect("ready> ")
    time.sleep(2.2)
    shell.shell("jobs")
    shell.expect("Stopped")
    assert b"\nover" not in shell.seen
    shell.shell("fg")
    shell.expect(r"\nover")
    assert shell.status() == 9


def test_ctrl_z_stops_the_job_and_fg_goes_on(terminal: Open) -> None:
    stop_a_job(terminal(), command)


def test_being_stopped_and_continued_loses_nothing(terminal: Open) -> None:
    job = terminal(*SANDBOX, "run", "--", "sh", "-c", "echo up; read x; echo got $x; exit 3")
    job.expect("up")
    os.kill(job.pid, signal.SIGSTOP)
    assert os.WIFSTOPPED(job.wait(os.WUNTRACED))
    os.kill(job.pid, signal.SIGCONT)
    job.send("word\n")
    job.expect("got word")
    assert os.waitstatus_to_exitcode(job.wait()) == 3


@pytest.mark.parametrize("how", ["kill -TSTP 0", "kill -STOP $$", "kill -TSTP $$"])
def test_a_command_that_stops_itself_gives_the_prompt_back(terminal: Open, how: str) -> None:
    """As vim and less do on Ctrl-Z, which they read as a key."""
    shell = terminal()
    shell.shell(command(f"echo up; {how}; echo back; exit 6"))
    shell.expect(r"\nup")
    shell.expect("Stopped")
    shell.expect("ready> ")
    shell.shell("fg")
    shell.expect(r"\nback")
    assert shell.status() == 6


def suspend_a_shell(outer: Terminal, line: str) -> None:
    """What a shell does with its jobs inside; the line starts it with the prompt ``inner> ``."""
    outer.shell(line.replace("inner> ", "in''ner> "))  # no match in the echo
    outer.expect("inner> ")
    outer.shell("sleep 1000")
    time.sleep(0.5)
    outer.send("\x1a")
    outer.expect("Stopped")
    outer.expect("inner> ")
    outer.shell('kill -KILL %1; until [ -z "$(jobs -s)" ]; do sleep 0.1; done')
    outer.expect("inner> ")
    outer.shell("suspend")
    outer.expect("Stopped")
    outer.expect("ready> ")
    outer.shell("fg")
    outer.expect("inner> ")
    outer.shell("exit 4")
    assert outer.status() == 4


def test_a_shell_inside_has_job_control_and_can_be_suspended(terminal: Open) -> None:
    suspend_a_shell(terminal(), f"{RUN} env 'PS1=inner> ' bash --norc --noprofile -i")


def test_a_background_job_can_be_stopped_and_continued_by_the_shell(terminal: Open) -> None:
    shell = terminal()
    shell.shell(f"{command('echo up; sleep 1; exit 9')} &")
    shell.expect("up\r\n")
    shell.shell("kill -STOP %1; sleep 0.3; jobs")
    shell.expect("Stopped")
    shell.shell("kill -CONT %1; wait %1; echo status=$?")
    assert shell.expect(r"\nstatus=(\d+)")[1] == b"9"


def test_the_window_size_and_its_changes_arrive(terminal: Open) -> None:
    child = terminal(
        *SANDBOX, "run", "--", "sh", "-c",
        "trap 'stty size; exit 0' WINCH; echo up; while :; do sleep 0.1; done",
    )  # fmt: skip
    child.expect("up")
    fcntl.ioctl(child.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    child.expect("33 77")
    assert os.waitstatus_to_exitcode(child.wait()) == 0


def test_a_command_may_ask_at_the_terminal_whatever_its_stdin_is(terminal: Open) -> None:
    shell = terminal()
    shell.shell(command("echo up; read x < /dev/tty; echo got $x") + " < /dev/null")
    shell.expect(r"\nup")
    shell.shell("word")
    shell.expect(r"\ngot word")


def test_pipes_end_as_without_us(terminal: Open) -> None:
    shell = terminal()
    shell.shell(f"{RUN} yes | head -1; echo ends=${{PIPESTATUS[@]}}")
    assert shell.expect(r"\nends=([\d ]+)")[1].split() == [b"141", b"0"]


def test_a_closed_window_ends_the_command_and_us(terminal: Open) -> None:
    seconds = str(1000 + os.getpid())
    child = terminal(*SANDBOX, "run", "--", "sh", "-c", f"echo here; exec sleep {seconds}")
    child.expect("here")
    assert until(lambda: processes_with(seconds))
    child.hang_up()
    assert os.waitstatus_to_exitcode(child.wait()) == -signal.SIGHUP
    assert until(lambda: not processes_with(seconds), PATIENCE)


INJECT = """
import ctypes, errno, fcntl, sys, termios
libc = ctypes.CDLL(None, use_errno=True)
def attempt(request, argument):
    done = libc.syscall(ctypes.c_long(16), ctypes.c_long(0), ctypes.c_ulong(request), argument)
    return 0 if done >= 0 else ctypes.get_errno()
found = [attempt(termios.TIOCSTI, b"i"), attempt(0x1_0000_0000 | termios.TIOCSTI, b"i")]
found.append(attempt(0x541C, bytes([3])))
fcntl.ioctl(0, termios.TIOCGWINSZ, b"12345678")  # the allowed twin: others pass
print("errnos", *found, "end")
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="ioctl is called by its number there")
def test_case_152_a_command_cannot_type_into_its_terminal(terminal: Open) -> None:
    """TIOCSTI, also with high bits set, and TIOCLINUX: EPERM, and nothing is in the queue."""
    child = terminal(*SANDBOX, "run", "--", sys.executable, "-c", INJECT)
    found = child.expect(r"errnos ([\d ]+) end")[1].split()
    assert [int(number) for number in found] == [errno.EPERM] * 3
    assert os.waitstatus_to_exitcode(child.wait()) == 0


def test_case_111_the_caller_is_not_stopped_and_keeps_its_terminal_modes(terminal: Open) -> None:
    shell = terminal()
    shell.shell("stty sane; before=$(stty -g)")
    shell.expect("ready> ")
    for _ in range(2):
        shell.shell(f"{RUN} true")
        assert shell.status() == 0
    run = shlex.join([*SANDBOX, "run", "--timeout", "0.5", "--"])
    shell.shell(f"{run} sh -c 'stty sane; cat < /dev/tty'")
    assert shell.status() == 124
    shell.shell('test "$(stty -g)" = "$before"')
    assert shell.status() == 0


def test_a_command_that_kills_its_process_group_kills_nobody_else(terminal: Open) -> None:
    """It is in the group of `sandbox run`, and of what a shell pipes that to."""
    shell = terminal()
    shell.shell(f"{RUN} sh -c 'kill -KILL 0' | {{ cat; echo neighbour-lives; }}")
    shell.expect("neighbour-lives\r")
    shell.shell(f"{RUN} sh -c 'kill -KILL 0'; echo status=$?.")
    shell.expect(r"status=137\.\r")
