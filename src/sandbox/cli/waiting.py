"""Signals while a command runs in the place of the command line.

The terminal sends Ctrl-C, Ctrl-\\ and Ctrl-Z to its whole foreground process group: to us and to
the command. Whether an interrupt ends the command is the command's decision (an editor stays), so
we only take note and wait on, as shells do. If the command did die of it, we die of it too: only
then does a shell know that its loop was interrupted. SIGTERM and SIGHUP come to us alone as a rule:
they end the tree, then us. What was ignored when we came (`nohup`, background jobs) stays ignored.
Window changes need nothing, the kernel tells both; for Ctrl-Z see `stops`.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from types import FrameType
from typing import NoReturn

__all__ = ["Ended", "Waiting", "die_of", "flush_output"]

_NOTED = (signal.SIGINT, signal.SIGQUIT)
_ENDING = (signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """A signal is to end this process, once its command is gone. Not an error of anything."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Waiting:
    """Context in which a sandbox is made, runs a command, and is closed.

    Until `leave_to_command` is called every signal raises `Ended`. `noted` holds the numbers of
    those that were left to the command. `keys`: whether those that a terminal sends are meant, too.
    """

    def __init__(self, *, keys: bool = True) -> None:
        self._numbers = (*_NOTED, *_ENDING) if keys else _ENDING
        self.noted: set[int] = set()
        self._left = False
        self._ending = False

    def __enter__(self) -> Waiting:
        for number in self._numbers:
            if signal.getsignal(number) is signal.SIG_IGN:
                continue
            signal.signal(number, self._come)
        return self

    def leave_to_command(self) -> None:
        """From now on the command has the terminal: interrupts are its own affair."""
        self._left = True

    def __exit__(self, *_: object) -> None:
        # The handlers stay: what comes now, while things are cleaned up, must not tear that apart.
        self._ending = True

    def _come(self, number: int, _frame: FrameType | None) -> None:
        if self._left and number in _NOTED:
            self.noted.add(number)
        elif not self._ending:
            self._ending = True
            raise Ended(number)


def flush_output() -> None:
    """Writes out what is still to be printed. Python has no stdout where it came closed."""
    if sys.stdout is not None:
        sys.stdout.flush()


def die_of(number: int) -> NoReturn:
    """Ends this process by a signal, as if it had never been caught."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    try:
        flush_output()
    finally:
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
        os._exit(128 + number)  # only if it has no effect on us, as SIGCONT
