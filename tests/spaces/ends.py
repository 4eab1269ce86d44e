"""How commands end, and that their whole tree is gone before the call returns."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from spacekit import MARK, marked, new_mark, program, space

import sandbox

# Those whose default is not to end a process.
_HARMLESS = (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH)
_STOPPING = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def an_exit_status_is_the_command_s(w: Path, o: Path) -> None:
    with space(w) as box:
        for number in range(256):
            result = box.run(["sh", "-c", f"exit {number}"])
            assert (result.returncode, result.timed_out) == (number, False)


def a_death_by_signal_is_the_command_s(w: Path, o: Path) -> None:
    """Each signal that ends a process, from itself, from its child, and in a shell below."""
    with space(w) as box:
        for number in range(1, 65):
            if number in (*_HARMLESS, *_STOPPING, 32, 33):
                continue
            assert box.run(["sh", "-c", f"kill -{number} $$"]).returncode == -number, number
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP):
            child = f"sh -c 'kill -{number.value} $PPID; sleep 5'; echo no"
            assert box.run(["sh", "-c", child]).returncode == -number
            below = f"sh -c 'kill -{number.value} $$'; exit $?"
            assert box.run(["sh", "-c", below]).returncode == 128 + number


def abort_is_sigabrt_and_a_crash_is_a_crash(w: Path, o: Path) -> None:
    with space(w) as box:
        abort = box.run(program("import os; os.abort()"))
        assert (abort.returncode, abort.signal) == (-signal.SIGABRT, signal.SIGABRT), abort
        crash = box.run(program("import ctypes; ctypes.string_at(8)"))
        assert crash.returncode == -signal.SIGSEGV
        divide = "kill -FPE $$"
        assert box.run(["sh", "-c", divide]).returncode == -signal.SIGFPE
        assert box.run("kill -9 $$").returncode == -signal.SIGKILL
        assert box.run("kill -TERM $$").returncode == -signal.SIGTERM
        assert box.run("true").returncode == 0


def signals_that_end_nobody_end_nobody(w: Path, o: Path) -> None:
    with space(w) as box:
        for number in _HARMLESS:
            assert box.run(["sh", "-c", f"kill -{number.value} $$; exit 7"]).returncode == 7
        caught = (
            "import os, signal; signal.signal(15, lambda *a: os._exit(9)); os.kill(os.getpid(), 15)"
        )
        assert box.run(program(caught)).returncode == 9
        ignored = "trap '' TERM INT HUP; kill -TERM $$; kill -INT $$; kill -HUP $$; exit 8"
        assert box.run(["sh", "-c", ignored]).returncode == 8


def a_stopped_command_is_ended_in_time(w: Path, o: Path) -> None:
    with space(w) as box:
        began = time.monotonic()
        result = box.run("kill -STOP $$", timeout=0.4)
        assert result.timed_out and 0.3 < time.monotonic() - began < 3
        assert box.run("echo next").out == "next\n"


TRICKS = {
    "session": "setsid sh -c 'while :; do sleep 1; done' & exit 0",
    "daemon": "(setsid setsid sleep 300 >/dev/null 2>&1 </dev/null &) & exit 0",
    "deaf": "(trap '' TERM HUP INT QUIT; sleep 300 & sleep 300) & exit 0",
    "stopped": "sleep 300 & kill -STOP $!; sh -c 'kill -STOP $$' & exit 0",
    "bomb": "bomb() { bomb | bomb & }; bomb; sleep 300",
    "hop": "hop() { hop & }; hop; sleep 300",
}
_TRACED = """
import ctypes, os, signal, time
c = ctypes.CDLL(None)
child = os.fork()
if child == 0:
    os.setsid()
    c.ptrace(0, 0, 0, 0)
    if os.fork() == 0:
        c.ptrace(0, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)
if os.fork() == 0:
    os.setsid()
    victim = os.fork()
    if victim == 0:
        while 1: time.sleep(1)
    c.ptrace(0x4206, victim, 0, 0x100000)
    while 1: time.sleep(1)
time.sleep(0.2)
"""
_THREADS = """
import os, threading, time
def work():
    while 1: time.sleep(1)
if os.fork() == 0:
    for _ in range(50): threading.Thread(target=work).start()
    import ctypes; ctypes.CDLL(None).syscall(60, 0)  # the leader ends, its threads do not
time.sleep(0.3)
"""
_VFORK = """
import ctypes, os, time
if os.fork() == 0:
    if ctypes.CDLL(None).vfork() == 0:
        time.sleep(300)
time.sleep(0.2)
"""


def the_tree_is_gone_when_the_call_returns(w: Path, o: Path) -> None:
    """At once, not soon: nothing is waited for between the return and the look."""
    commands = {name: ["sh", "-c", script] for name, script in TRICKS.items()}
    commands |= {"traced": program(_TRACED), "threads": program(_THREADS), "vfork": program(_VFORK)}
    # It must be possible to find them at all.
    mark = new_mark()
    limits = sandbox.Limits(open_files=256, processes=2000)  # the bomb is to leave others room
    with space(w) as box:
        for name, command in commands.items():
            result = box.run(command, env={MARK: mark}, timeout=0.6, limits=limits)
            assert marked(mark) == [], name
            assert box.run("echo next").out == "next\n", (name, result.text)
        box.run("(sleep 300 &) ; exit 0", env={MARK: mark})
        assert marked(mark) == []


def what_is_looked_for_is_found_while_it_runs(w: Path, o: Path) -> None:
    """The control of the one before."""
    import threading

    mark = new_mark()
    with space(w) as box:
        how = {"env": {MARK: mark}, "timeout": 20.0}
        thread = threading.Thread(target=lambda: box.run("sleep 300 & sleep 1.5", **how))
        thread.start()
        end = time.monotonic() + 10
        while len(marked(mark)) < 2 and time.monotonic() < end:
            time.sleep(0.02)
        assert len(marked(mark)) >= 2
        thread.join()
        assert marked(mark) == []


def a_timeout_and_a_close_end_the_tree(w: Path, o: Path) -> None:
    import contextlib
    import threading

    mark = new_mark()
    with space(w) as box:
        result = box.run("sleep 300 & setsid sleep 300", timeout=0.3, env={MARK: mark})
        assert result.timed_out and marked(mark) == []
        kept: list[BaseException] = []

        def run() -> None:
            try:
                box.run("sleep 300 & setsid sleep 300", env={MARK: mark}, timeout=30)
            except sandbox.SandboxLost as lost:
                kept.append(lost)

        thread = threading.Thread(target=run)
        thread.start()
        while len(marked(mark)) < 2:
            time.sleep(0.01)
        box.close()
        assert marked(mark) == []
        thread.join(10)
        assert kept and not thread.is_alive()
    with contextlib.suppress(ChildProcessError):
        assert os.waitpid(-1, os.WNOHANG) == (0, 0), "a zombie"
