"""The caller's side of a ``keeper``: a lane in which one command at a time runs.

The keeper ends with its caller, and all of its command with it. What is lost when somebody kills
the keeper is its watch: then the command's session is ended from here.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import psutil

from sandbox.backends.base import ConfinementLost, Outcome, Request
from sandbox.backends.captured import Captured
from sandbox.backends.frames import decoded, receive, send
from sandbox.backends.keeper import BOOT, SOCKET
from sandbox.backends.settings import interpreter
from sandbox.denial import Denial
from sandbox.errors import Unavailable

__all__ = ["Flying", "KeptLane", "KeptRunning", "not_started"]

_UNUSED = 10  # fds below are where the keeper has its own


class KeptLane:
    """A keeper, started here. Threads may share it for ``kill``; else one at a time.

    ``mark``: by which the processes of its commands are known. Raises ``Unavailable``.
    """

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self._sending = threading.Lock()
        self.usable = True
        self.leader = 0  # of the command that runs
        ours, theirs = socket.socketpair()
        number = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, _UNUSED)
        theirs.close()
        try:
            self.pid = _spawned(number)
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(number)
        self.sock = ours

    def begin(
        self,
        argv: Sequence[bytes],
        request: Request,
        fds: tuple[int, int, int],
        *,
        session: bool = True,
        terminal: bool = False,
        waits: bool = False,
    ) -> tuple[str, int] | None:
        """Starts a command: None, or the stage that failed and its errno.

        ``waits``: it is not over before ``sweep`` is said. Raises ``ConfinementLost``.
        """
        items = request.env.split(b"\0")[:-1]
        message = {
            "do": "start",
            "argv": [decoded(word) for word in argv],
            "env": [decoded(item) for item in items],
            "cwd": decoded(request.cwd),
            "limits": [list(row) for row in request.limits],
            "memory": request.memory,
            "timeout": request.timeout,
            "mark": self.mark,
            "session": session,
            "terminal": terminal,
            "waits": waits,
        }
        self.tell(message, fds)
        found = self.hear()
        if "failed" in found:
            return found["failed"], found["errno"]
        self.leader = found["pid"]
        return None

    def tell(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Says something. Raises ``ConfinementLost``."""
        try:
            with self._sending:
                send(self.sock, message, fds)
        except OSError as error:
            self._lost(error.strerror or str(error))

    def hear(self) -> dict[str, Any]:
        """What is said next; waits for it. Raises ``ConfinementLost``."""
        try:
            found = receive(self.sock)
        except OSError as error:
            self._lost(error.strerror or str(error))
        if found is None:
            self._lost("it was ended")
        if "over" in found[0]:
            self.leader = 0
            if found[0]["left"]:
                count = found[0]["left"]
                self._lost(f"processes of it start others faster than they are ended: {count} left")
        return found[0]

    def is_free(self) -> bool:
        """Whether it takes a command: a keeper that has none says nothing, but at its end."""
        return self.usable and not _is_readable(self.sock, 0)

    def kill(self) -> None:
        """Ends the command and all below it. Does not wait."""
        if self.leader:
            with suppress(ConfinementLost):
                self.tell({"do": "kill", "pid": self.leader})

    def signal(self, number: int) -> None:
        """Sends the command a signal."""
        if self.leader:
            with suppress(ConfinementLost):
                self.tell({"do": "signal", "pid": self.leader, "number": number})

    def _lost(self, why: str) -> NoReturn:
        self.usable = False
        leader, self.leader = self.leader, 0
        if leader:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signal.SIGKILL)
        raise ConfinementLost(f"the process that kept the command: {why}") from None

    def abandon(self) -> None:
        """Ends the keeper, with what runs, and waits for that: also while a thread waits for it."""
        self.usable = False
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def close(self) -> None:
        """The same, while nobody waits. Idempotent."""
        if self.sock.fileno() >= 0:
            self.abandon()
            self.sock.close()


def _spawned(number: int) -> int:
    """The pid of a new keeper, with the socket ``number``."""
    python = interpreter()
    if not python:
        raise Unavailable("Python", "sys.executable is empty", "run in an interpreter of its own")
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    libraries = os.path.dirname(os.path.dirname(os.path.abspath(psutil.__file__)))
    options = ["-I", "-S", "-X", "utf8", "-c", BOOT]
    words = [python, *options, ours, libraries, str(os.getpid())]
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, 0, 1),
        (os.POSIX_SPAWN_DUP2, 0, 2),
        (os.POSIX_SPAWN_DUP2, number, SOCKET),
    ]
    # Not by subprocess: where `sandbox.subprocess` is installed, that is confined itself.
    return os.posix_spawn(
        python, words, {}, file_actions=actions, setsigmask=[], setsigdef=[signal.SIGPIPE]
    )


def not_started(stage: str, errno: int, detail: int = -1) -> Outcome:
    """What became of a request of which nothing ran."""
    nothing = (0.0, 0.0, 0, 0, 0, 0, 0, 0, 0)
    return Outcome(
        False, 0, False, stage, errno, detail, b"", 0, 0, b"", 0, 0, 0, False, False, nothing, 0.0
    )


class Flying:
    """A command that was started, and its captured streams, in the caller."""

    def __init__(self, lane: KeptLane, argv: Sequence[bytes], request: Request) -> None:
        self._lane = lane
        self._began = time.monotonic()
        streams = (request.stdin, request.stdout, request.stderr)
        self._captured = Captured(streams, request.input, request.cap)
        try:
            self._failed = lane.begin(
                argv, request, self._captured.child, session=not request.terminal, waits=True
            )
            self._captured.started()
        except BaseException:
            self._captured.close()
            raise

    def finish(self) -> Outcome:
        """Waits for its end. What interrupts that ends it, and goes on when it is dead."""
        if self._failed is not None:
            self._captured.close()
            return not_started(*self._failed)
        try:
            try:
                return self._finish()
            except BaseException:
                if self._lane.usable:
                    self._lane.kill()
                    self._finish()
                raise
        finally:
            self._captured.close()

    def _finish(self) -> Outcome:
        self._captured.pump(self._lane.sock, ended=False)
        found = self._lane.hear()
        if "over" not in found:
            self._captured.pump(self._lane.sock, ended=True)
            self._lane.tell({"do": "sweep", "pid": self._lane.leader})
            found = self._lane.hear()
        self._captured.close()
        return outcome_of(found, self._captured, time.monotonic() - self._began)


def outcome_of(found: dict[str, Any], captured: Captured | None, duration: float) -> Outcome:
    """The keeper's last word on a command, with what was captured."""
    kept = captured.outputs if captured is not None else ()
    outputs: list[tuple[bytes, int, int]] = [(*one.result(), one.total) for one in kept]
    outputs = outputs or [(b"", 0, 0)] * 2
    return Outcome(
        True,
        found["over"],
        found["timed_out"],
        "",
        0,
        -1,
        *outputs[0],
        *outputs[1],
        found["swept"],
        captured is not None and captured.drained_early,
        found["over_memory"],
        tuple(found["usage"]),
        duration,
    )


class KeptRunning:
    """A command that goes on. See ``Running``."""

    def __init__(
        self,
        lane: KeptLane,
        argv: Sequence[bytes],
        request: Request,
        owns_terminal: bool,
        refused: Outcome | None,
    ) -> None:
        self._lane = lane
        self._began = time.monotonic()
        self._outcome = refused
        self.pid = 0
        if refused is None:
            fds = (request.stdin, request.stdout, request.stderr)
            failed = lane.begin(argv, request, fds, terminal=owns_terminal)
            self.pid = lane.leader
            self._outcome = not_started(*failed) if failed is not None else None

    def wait(self, timeout: float | None) -> tuple[Outcome, tuple[Denial, ...]] | None:
        """See ``Running.wait``."""
        if self._outcome is None:
            if not _is_readable(self._lane.sock, timeout):
                return None
            found = self._lane.hear()
            self._outcome = outcome_of(found, None, time.monotonic() - self._began)
        return self._outcome, ()

    def fileno(self) -> int:
        """See ``Running.fileno``."""
        return self._lane.sock.fileno()

    def kill(self) -> None:
        """See ``Running.kill``."""
        self._lane.kill()

    def signal(self, number: int) -> None:
        """See ``Running.signal``."""
        self._lane.signal(number)


def _is_readable(sock: socket.socket, timeout: float | None) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(timeout))
