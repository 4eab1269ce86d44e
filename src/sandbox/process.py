"""Commands that go on while the caller does other things: servers, dialogues, terminals.

Two objects stand for one command. The ``Process`` is what the caller holds, and may forget. The
``Attendant`` sees that the command ends and gives its seat back, once, whatever comes first: its
end and somebody who asks, a lost sandbox, one that is closed, a ``Process`` that was dropped, the
end of the interpreter. Nobody has to watch: the time limit and the end of the tree are the lane's.
"""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import termios
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import IO, AnyStr, Generic, Self

from sandbox.backends.base import ConfinementLost, Outcome, Request, Running, Seat
from sandbox.communicate import Exchange
from sandbox.denial import Denial
from sandbox.denials import Asked
from sandbox.diagnose import explain_start
from sandbox.errors import InvalidArgument, SandboxLost, StillRunning
from sandbox.limits import check_seconds
from sandbox.request import Args, result_of
from sandbox.result import Enforcement, Result
from sandbox.streams import Streams, window

__all__ = ["Attendant", "Process", "check_started"]

_CLOSED = "it was closed while the command ran"
_FORKED = "the command belongs to the process that this one was forked from"


class Attendant:
    """Sees one command to its end, in a seat that it gives back. Knows nothing of its ``Process``.

    ``everyone`` are those of the same sandbox: it takes itself out. As a context manager it ends
    the command when something goes wrong before there is a ``Process``.
    """

    def __init__(self, seat: Seat, everyone: set[Attendant]) -> None:
        self.seat = seat
        self._everyone = everyone
        self._owner = os.getpid()
        self._turn = threading.Lock()  # one thread at a time waits; the others wait for it
        self._telling = threading.Lock()  # a seat that was given back has somebody else's command
        self._running: Running | None = None
        self.pid = 0
        self.over = False
        self.outcome: Outcome | None = None  # None when it is over: the sandbox was lost
        self.denials: tuple[Denial, ...] = ()
        self.cause = ""
        self._doomed = False
        everyone.add(self)
        atexit.register(self.end)

    def __enter__(self) -> Attendant:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.end()

    @property
    def owned(self) -> bool:
        """Whether this process started it; a forked copy leaves it alone."""
        return self._owner == os.getpid()

    def start(self, request: Request, owns_terminal: bool) -> None:
        """Starts it; when it did not start, or the sandbox was lost, it is over."""
        try:
            self._running = self.seat.start(request, owns_terminal=owns_terminal)
        except ConfinementLost as lost:
            self._finish(None, lost.denials, str(lost))
            return
        self.pid = self._running.pid
        if not self.pid:
            self.settle(0)

    def settle(self, timeout: float | None) -> bool:
        """Waits for its end; whether it is over. Not in a forked copy."""
        began = time.monotonic()
        if self.over:
            return True
        if not self._turn.acquire(timeout=-1 if timeout is None else timeout):
            return self.over
        try:
            if not self.over:
                spent = time.monotonic() - began
                self._look(None if timeout is None else max(0.0, timeout - spent))
        finally:
            self._turn.release()
        return self.over

    def fileno(self) -> int:
        """Readable when it may be over; -1 when it is."""
        return -1 if self.over or self._running is None else self._running.fileno()

    def kill(self) -> None:
        """Ends its whole tree. Does not wait."""
        self._tell(lambda running: running.kill())

    def signal(self, number: int) -> None:
        """Sends it a signal, unless it is over."""
        self._tell(lambda running: running.signal(number))

    def end(self) -> None:
        """Kills it and waits for that. Idempotent; nothing in a forked copy."""
        if self.owned and not self.over:
            self.kill()
            self.settle(None)

    def doom(self) -> None:
        """Says that its sandbox is about to be closed. What is over by then has its result."""
        if self.owned and not self.settle(0):
            self._doomed = True

    def abandon(self) -> None:
        """As ``end``, for finalisers.

        These come at any moment, also while this thread holds a lock that the end needs: so nothing
        is waited for here.
        """
        if not self.owned or self.over:
            return
        if self._telling.acquire(blocking=False):
            try:
                if self._running is not None and not self.over:
                    self._running.kill()
            finally:
                self._telling.release()
        with suppress(RuntimeError):  # no thread to be had: whoever closes the sandbox does it
            _thread.start_new_thread(self.end, ())

    def _tell(self, say: Callable[[Running], None]) -> None:
        with self._telling:
            if self._running is not None and not self.over:
                say(self._running)

    def _look(self, timeout: float | None) -> None:
        if self._running is None:
            self._finish(None, (), "it was not started")
            return
        try:
            done = self._running.wait(timeout)
        except ConfinementLost as lost:
            self._finish(None, lost.denials, str(lost))
        else:
            if done is not None:
                self._finish(*done, "")

    def _finish(self, outcome: Outcome | None, denials: tuple[Denial, ...], cause: str) -> None:
        self.outcome, self.denials, self.cause = outcome, denials, cause
        if self._doomed:
            self.outcome, self.cause = None, _CLOSED
        with self._telling:
            self.over = True
        atexit.unregister(self.end)
        self._everyone.discard(self)
        self.seat.leave()


class Process(Generic[AnyStr]):
    """A command that goes on; ``Sandbox.popen`` makes it.

    - ``args``: what was run. ``pid``: of the command, as the sandbox sees it.
    - ``stdin``, ``stdout``, ``stderr``: files where ``PIPE`` was asked for, else None.
    - ``pty``: the terminal's other side, a file of bytes, where one was asked for.

    When the command ends, all that it has started is ended with it. What it planted in protected
    places is put back when somebody asks for its result, closes the sandbox, or drops this object,
    which also kills it. As a context manager it is killed in the end. Threads may share it.
    In a forked copy of the caller its methods raise ``SandboxLost``.
    """

    def __init__(
        self,
        args: Args,
        attendant: Attendant,
        streams: Streams,
        enforcement: Enforcement,
        sandbox: object,
        asked: Asked,
    ) -> None:
        self.args = args
        self.pid = attendant.pid
        self.stdin: IO[AnyStr] | None = streams.stdin
        self.stdout: IO[AnyStr] | None = streams.stdout
        self.stderr: IO[AnyStr] | None = streams.stderr
        self.pty = streams.pty
        self._attendant = attendant
        self._streams = streams
        self._enforcement = enforcement
        self._sandbox = sandbox  # which lives as long as what runs in it
        self._asked = asked
        self._exchange: Exchange | None = None
        self._said: list[bytes] = []  # what it printed, if that was read here
        self._result: Result | None = None
        # At exit the attendant itself is asked, in the order of atexit.
        weakref.finalize(self, attendant.abandon).atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._attendant.end()
        self._streams.close()

    def __repr__(self) -> str:
        state = "over" if self._attendant.over else f"pid {self.pid}"
        return f"<Process {self.args!r} {state}>"

    def fileno(self) -> int:
        """A fd that is readable when it may be over, and ``poll`` is to be asked; -1 when it is.

        For event loops; nothing is to be done with it but to wait.
        """
        return self._mine().fileno()

    def poll(self) -> Result | None:
        """What came of it, None while it runs. Raises ``SandboxLost`` when the sandbox ended."""
        return self._outcome() if self._mine().settle(0) else None

    def wait(self, timeout: float | None = None) -> Result:
        """What came of it, when its whole tree is gone. It has no output: that went to the streams.

        Raises ``StillRunning`` when it is not over after ``timeout`` seconds, ``SandboxLost`` when
        the sandbox ended under it. A command that fills a pipe that nobody reads does not end.
        """
        seconds = None if timeout is None else _seconds(timeout)
        if not self._mine().settle(seconds):
            raise StillRunning(self.args, seconds or 0.0)
        return self._outcome()

    def kill(self) -> None:
        """Ends its whole tree, whatever it has started. ``wait`` tells when that is done."""
        self._mine().kill()

    def terminate(self) -> None:
        """Asks it to end: SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def send_signal(self, number: int) -> None:
        """Sends a signal to the command, not to what it has started. Nothing when it is over."""
        if isinstance(number, bool) or number not in signal.valid_signals():
            raise InvalidArgument("number", number, "is no signal")
        self._mine().signal(int(number))

    def resize(self, rows: int, cols: int) -> None:
        """Makes its terminal another size, which it is told (SIGWINCH)."""
        if self.pty is None:
            raise InvalidArgument("pty", None, "was not asked for")
        termios.tcsetwinsize(self.pty.fileno(), window(rows, cols))

    def communicate(
        self, input: AnyStr | None = None, timeout: float | None = None
    ) -> tuple[AnyStr | None, AnyStr | None]:
        """Writes ``input`` to its stdin, reads both outputs to their end, and waits.

        Returns stdout and stderr, None for what is no pipe. All of it is kept: for output of any
        size there is ``run``. After ``StillRunning`` it may be called again, without ``input``;
        nothing is lost.
        """
        deadline = None if timeout is None else time.monotonic() + _seconds(timeout)
        if self._exchange is None:
            self._exchange = Exchange(self.stdin, self.stdout, self.stderr, input)
        elif input is not None:
            raise InvalidArgument("input", "...", "was given before")
        if not self._exchange.go_on(deadline):
            raise StillRunning(self.args, timeout or 0.0)
        self._said = [_bytes(one) for one in self._exchange.outputs()[::-1] if one]
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return self._exchange.outputs()

    def heard(self, *outputs: bytes) -> None:
        """What it printed, for who reads the pipes: of a failure its words tell what was refused.

        Nothing is decided by them. To be said before its result is asked for.
        """
        self._said = [output for output in outputs if output]

    def _mine(self) -> Attendant:
        if not self._attendant.owned:
            raise SandboxLost(_FORKED)
        return self._attendant

    def _outcome(self) -> Result:
        attendant = self._attendant
        if attendant.outcome is None:
            raise SandboxLost(attendant.cause, attendant.denials)
        if self._result is None:
            self._result = result_of(
                self.args,
                attendant.outcome,
                attendant.denials,
                self._enforcement,
                self._asked,
                self._said,
            )
        return self._result


def check_started(attendant: Attendant, request: Request, name: str, cwd: str) -> None:
    """Raises why a command did not start: ``StartError`` and its kind, ``SandboxLost``."""
    outcome = attendant.outcome
    if attendant.over and outcome is None:
        raise SandboxLost(attendant.cause, attendant.denials)
    if outcome is not None and not outcome.started:
        raise explain_start(
            outcome.stage, outcome.errno, outcome.detail, request.programs, name, cwd
        )


def _bytes(output: str | bytes) -> bytes:
    return output.encode("utf-8", "replace") if isinstance(output, str) else output


def _seconds(timeout: object) -> float:
    """A time to wait; zero is none. Raises ``InvalidLimit``."""
    zero = isinstance(timeout, (int, float)) and not isinstance(timeout, bool) and timeout == 0
    return 0.0 if zero else check_seconds("timeout", timeout)
