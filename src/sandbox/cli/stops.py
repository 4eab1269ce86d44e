"""Stopping with a command that stops itself.

On Ctrl-Z the terminal's driver stops us together with the command, and nothing is to be done here.
But full-screen programs (vim, less, a shell's `suspend`) take that key themselves and stop their
own process group, which their signal scope cuts off from us. The shell waits for us alone: it would
never give the prompt back. So while there is a terminal we look a few times a second whether our
command is stopped, stop too, and pass the continuing on.
The looking costs some small files of /proc; where the kernel has them not (CONFIG_PROC_CHILDREN),
nothing is found and nothing is done.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

__all__ = ["FollowStops", "leader_in_lane"]

_EVERY = 0.2  # seconds
_HELPER = b"sandcore-helper\n"
_DEEPEST = 4  # root, supervisor, lane, command


class FollowStops:
    """Context in which this process stops when its command has; only where there is a terminal.

    `leader` gives the pid of the command, or None while it is not known. Uses SIGALRM.
    """

    def __init__(self, leader: Callable[[], int | None]) -> None:
        self._leader = leader
        self._wanted = has_terminal()

    def __enter__(self) -> FollowStops:
        if self._wanted:
            signal.signal(signal.SIGALRM, self._look)
            signal.setitimer(signal.ITIMER_REAL, _EVERY, _EVERY)
        return self

    def __exit__(self, *_: object) -> None:
        if self._wanted:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_IGN)  # one may be on its way

    def _look(self, _number: int, _frame: FrameType | None) -> None:
        pid = self._leader()
        if pid is None or not is_stopped(pid):
            return
        os.kill(os.getpid(), signal.SIGSTOP)
        # Here again: somebody continued us. A shell continues our process group; a command that
        # has made its own would sleep on.
        try:
            os.kill(pid, signal.SIGCONT)
            group = os.getpgid(pid)
            if group != os.getpgrp():
                os.killpg(group, signal.SIGCONT)
        except (ProcessLookupError, PermissionError):
            return


def has_terminal() -> bool:
    """Whether this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"T"
    except (OSError, IndexError):
        return False


def leader_in_lane() -> int | None:
    """The command of the only lane below this process: below what runs the helper's program.

    The oldest child of a lane is its command; what the lane inherits comes after it.
    """
    pid = os.getpid()
    for _ in range(_DEEPEST):
        try:
            with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
                pid = int(file.read().split()[0])
            with open(f"/proc/{pid}/comm", "rb") as file:
                if file.read() != _HELPER:
                    return pid
        except (OSError, IndexError, ValueError):
            return None
    return None
