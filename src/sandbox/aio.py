"""``sandbox`` for programs that await: on asyncio, uvloop and trio.

``aio.run`` is ``sandbox.run``, ``aio.run_many`` is ``sandbox.run_many``, ``aio.Sandbox`` is
``sandbox.Sandbox``, and what takes time is awaited. No thread waits for a command, no signal
handler or child watcher is set: all commands of an event loop are behind one fd. Who is cancelled
while a command runs has it ended, and goes on when it is dead. Starting a sandbox takes a few
milliseconds, in which the loop stands still.
"""

from __future__ import annotations

import atexit
import os
from types import TracebackType
from typing import Any, Literal, Self, Unpack, overload

from sandbox import live
from sandbox.aio_batch import run_many
from sandbox.backends.base import Backend
from sandbox.errors import InvalidArgument
from sandbox.live import checked
from sandbox.loops import Moment, current
from sandbox.pipes import Reader, Writer
from sandbox.policy import SandboxPolicy
from sandbox.presets import workspace_write
from sandbox.process import Process as BlockingProcess
from sandbox.request import Args, PopenOptions, RunOptions, working_directory
from sandbox.result import Enforcement, Result, TextResult
from sandbox.shared import Shelf
from sandbox.streams import DEVNULL, PIPE, STDOUT
from sandbox.towers import tower_of

__all__ = [
    "DEVNULL",
    "PIPE",
    "STDOUT",
    "Process",
    "Reader",
    "Sandbox",
    "Writer",
    "popen_in",
    "run",
    "run_in",
    "run_many",
]


_shelf = Shelf()
atexit.register(_shelf.close)


@overload
async def run(
    args: Args,
    policy: SandboxPolicy | None = None,
    *,
    text: Literal[True],
    workspaces: Any = None,
    **how: Unpack[RunOptions],
) -> TextResult: ...
@overload
async def run(
    args: Args,
    policy: SandboxPolicy | None = None,
    *,
    text: Literal[False] = False,
    workspaces: Any = None,
    **how: Unpack[RunOptions],
) -> Result: ...
async def run(
    args: Args,
    policy: SandboxPolicy | None = None,
    *,
    text: bool = False,
    workspaces: Any = None,
    **how: Unpack[RunOptions],
) -> Result | TextResult:
    """As ``sandbox.run``: one command, confined, in a sandbox of its own."""
    chosen = workspace_write() if policy is None else checked(policy)
    place = how["cwd"] = working_directory(how.get("cwd"))
    slot = _shelf.borrow_for(chosen, place, workspaces)
    loop = current()
    started = False

    def give_back() -> None:
        nonlocal started
        started = True
        _shelf.give_back(slot)

    try:
        result = await tower_of(loop).fly(loop, slot.sandbox, args, how, give_back)
    except BaseException:
        if not started:
            give_back()
        raise
    return result.as_text() if text else result


class Process:
    """A command that goes on: see ``sandbox.Process``. ``Sandbox.popen`` makes it.

    ``stdin`` is a ``Writer``, ``stdout`` and ``stderr`` are ``Reader``, where ``PIPE`` was asked
    for. As an async context manager it is killed in the end.
    """

    def __init__(
        self, process: BlockingProcess[bytes], stdin: int, stdout: int, stderr: int
    ) -> None:
        self._process = process
        self._watched = False
        self._waiting: list[Moment] = []
        self.args, self.pid = process.args, process.pid
        self.stdin = Writer(stdin) if stdin >= 0 else None
        self.stdout = Reader(stdout) if stdout >= 0 else None
        self.stderr = Reader(stderr) if stderr >= 0 else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._process:  # its tree is killed: milliseconds
            for one in (self.stdin, self.stdout, self.stderr):
                if one is not None:
                    one.close()

    async def wait(self) -> Result:
        """What came of it, when its whole tree is gone. Who is cancelled leaves it running."""
        loop = current()
        while (found := self._process.poll()) is None:
            if self._watched:  # one task waits for the fd, and wakes the others
                moment = loop.moment()
                self._waiting.append(moment)
                await moment.wait()
                continue
            self._watched = True
            try:
                await loop.readable(self._process.fileno())
            finally:
                self._watched = False
                while self._waiting:
                    self._waiting.pop().come()
        return found

    def heard(self, *outputs: bytes) -> None:
        """See ``sandbox.Process.heard``."""
        self._process.heard(*outputs)

    def kill(self) -> None:
        """Ends its whole tree."""
        self._process.kill()

    def terminate(self) -> None:
        """Asks it to end: SIGTERM."""
        self._process.terminate()

    def send_signal(self, number: int) -> None:
        """Sends a signal to the command."""
        self._process.send_signal(number)


async def run_in(box: live.Sandbox, args: Args, how: RunOptions) -> Result:
    """Runs one command in a sandbox that is there: see ``sandbox.Sandbox.run``."""
    loop = current()
    return await tower_of(loop).fly(loop, box, args, how, None)


def popen_in(box: live.Sandbox, args: Args, how: PopenOptions) -> Process:
    """Starts a command in a sandbox that is there. Its pipes are read by the loop."""
    for name in ("pty", "text"):
        if how.get(name):
            raise InvalidArgument(name, True, "is not awaited", "sandbox.Sandbox.popen")
    ours, theirs = {"stdin": -1, "stdout": -1, "stderr": -1}, []
    try:
        for name in ours:
            if how.get(name) == PIPE:
                read, write = os.pipe()
                ours[name], end = (write, read) if name == "stdin" else (read, write)
                theirs.append(end)
                how[name] = end  # type: ignore[literal-required]
        return Process(box.popen(args, **how), **ours)
    except BaseException:
        for fd in ours.values():
            if fd >= 0:
                os.close(fd)
        raise
    finally:
        for fd in theirs:
            os.close(fd)


class Sandbox:
    """As ``sandbox.Sandbox``; an async context manager."""

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        *,
        workspace: Any = None,
        workspaces: Any = None,
        place: Any = None,
        backend: Backend | None = None,
    ) -> None:
        self._box = live.Sandbox(
            policy, workspace=workspace, workspaces=workspaces, place=place, backend=backend
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def sandbox(self) -> live.Sandbox:
        """The same one, for what is not awaited."""
        return self._box

    @property
    def enforcement(self) -> Enforcement:
        """What is enforced, and what of the policy is weaker here."""
        return self._box.enforcement

    def move(self, workspace: Any) -> None:
        """See ``sandbox.Sandbox.move``: half a millisecond."""
        self._box.move(workspace)

    def close(self) -> None:
        """Ends all that runs in it. Idempotent."""
        self._box.close()

    @overload
    async def run(
        self, args: Args, *, text: Literal[True], **how: Unpack[RunOptions]
    ) -> TextResult: ...
    @overload
    async def run(
        self, args: Args, *, text: Literal[False] = False, **how: Unpack[RunOptions]
    ) -> Result: ...
    async def run(
        self, args: Args, *, text: bool = False, **how: Unpack[RunOptions]
    ) -> Result | TextResult:
        """Runs one command: see ``sandbox.Sandbox.run``. Who is cancelled ends it."""
        result = await run_in(self._box, args, how)
        return result.as_text() if text else result

    async def popen(self, args: Args, **how: Unpack[PopenOptions]) -> Process:
        """Starts a command that goes on: see ``sandbox.Sandbox.popen``. Streams are of bytes."""
        return popen_in(self._box, args, how)
