"""Tool calls for programs that await: ``process_exec_tool_call`` on asyncio, uvloop and trio.

The steps are those of callers that block (``pipeline``); commands are run by ``sandbox.aio``. An
approver may be asynchronous; one that is not is called in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, TypeVar

from sandbox.aio import popen_in, run_in
from sandbox.live import Sandbox
from sandbox.loops import Loop, Moment, current, in_thread
from sandbox.pipes import Reader
from sandbox.request import Args, RunOptions, input_bytes
from sandbox.result import Result
from sandbox.session.approvers import ask_async
from sandbox.session.calls import call_of
from sandbox.session.deltas import Kept, popen_options, with_output
from sandbox.session.edit import Edit
from sandbox.session.editing import EditResult, edit_flow
from sandbox.session.pipeline import Ask, Do, Flow, Run, flow
from sandbox.session.session import Session
from sandbox.session.values import Delta, OnDelta, ToolCall, ToolResult

__all__ = ["apply_edit", "process_exec_tool_call"]

T = TypeVar("T")
_CHUNK = 65536


async def process_exec_tool_call(
    call: ToolCall | str, session: Session, *, on_delta: OnDelta | None = None
) -> ToolResult:
    """As ``sandbox.session.process_exec_tool_call``. Who is cancelled ends the command."""
    return await _drive(flow(session, call_of(call)), session, on_delta)


async def apply_edit(edit: Edit, session: Session) -> EditResult:
    """As ``sandbox.session.apply_edit``; who is asked is awaited."""
    return await _drive(edit_flow(session, edit), session)


async def _drive(steps: Flow[T], session: Session, on_delta: OnDelta | None = None) -> T:
    """Does what the steps yield, and awaits it."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            todo = steps.throw(error) if error is not None else steps.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value
        answer = error = None
        try:
            answer = await _done(todo, session, on_delta)
        except BaseException as raised:
            error = raised


async def _done(todo: Ask | Run | Do, session: Session, on_delta: OnDelta | None) -> Any:
    if isinstance(todo, Ask):
        return await ask_async(session.approver, todo.request)
    if isinstance(todo, Do):
        return await in_thread(todo.act)
    if on_delta is None:
        return await run_in(todo.box, todo.args, todo.how)
    return await _streamed(todo.box, todo.args, todo.how, on_delta)


async def _streamed(box: Sandbox, args: Args, how: RunOptions, on_delta: OnDelta) -> Result:
    """As ``deltas.streamed``."""
    loop = current()
    data = input_bytes(how.get("input")) or b""
    out, err = Kept(box.policy.limits.output), Kept(box.policy.limits.output)
    async with popen_in(box, args, popen_options(how)) as process:
        assert process.stdout is not None and process.stderr is not None
        ends = _Ends(loop, on_delta, process.kill)
        ends.read(process.stdout, "stdout", out)
        ends.read(process.stderr, "stderr", err)
        try:
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    await process.stdin.write(data)
                process.stdin.close()
            await ends.over.wait()
        except GeneratorExit:  # its loop has ended: there is nothing that could be awaited
            ends.leave()
            raise
        except BaseException:
            process.kill()
            await ends.over.outlast()
            raise
        if ends.error is not None:
            raise ends.error
        process.heard(err.result()[0], out.result()[0])
        result = await process.wait()
    return with_output(result, out, err)


class _Ends:
    """The ends of a command's pipes, read by the loop until all that writes to them is dead."""

    def __init__(self, loop: Loop, on_delta: OnDelta, kill: Callable[[], None]) -> None:
        self.over: Moment = loop.moment()  # all of them are at their end
        self.error: BaseException | None = None
        self._loop, self._on_delta, self._kill = loop, on_delta, kill
        self._open: set[int] = set()

    def read(self, reader: Reader, stream: Literal["stdout", "stderr"], kept: Kept) -> None:
        """One more that is read."""
        fd = reader.fileno()
        self._open.add(fd)
        self._loop.watch(fd, lambda: self._take(fd, stream, kept))

    def leave(self) -> None:
        """Reads no more of any."""
        for fd in self._open:
            self._loop.unwatch(fd)

    def _take(self, fd: int, stream: Literal["stdout", "stderr"], kept: Kept) -> bool:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            self._open.discard(fd)
            if not self._open:
                self.over.come()
            return False
        kept.add(data)
        if self.error is None:
            try:
                self._on_delta(Delta(stream, data))
            except BaseException as error:
                self.error = error  # raised by who waits: here it would be the loop's
                self._kill()
        return True
