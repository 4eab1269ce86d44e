"""The doors of a session for callers that block; ``aio`` has them for those that await."""

from __future__ import annotations

from typing import Any, TypeVar

from sandbox.session.approvers import ask
from sandbox.session.deltas import streamed
from sandbox.session.edit import Edit
from sandbox.session.editing import EditResult, edit_flow
from sandbox.session.pipeline import Ask, Do, Flow, Run, flow
from sandbox.session.session import Session
from sandbox.session.values import OnDelta, ToolCall, ToolResult

__all__ = ["apply_edit", "call_of", "process_exec_tool_call"]

T = TypeVar("T")


def process_exec_tool_call(
    call: ToolCall | str, session: Session, *, on_delta: OnDelta | None = None
) -> ToolResult:
    """One tool call of an agent: assessed, decided about, approved, run, retried, recorded.

    ``call``: a ``ToolCall``, or its command alone as shell text. ``on_delta`` is handed each piece
    of output as it comes. Returns what came of it, also where it was denied or did not start.
    Raises ``PolicyError`` for a call that means nothing and ``RecordsLost`` when what happens
    cannot be recorded any more: then the session is over.
    """
    return _drive(flow(session, call_of(call)), session, on_delta)


def apply_edit(edit: Edit, session: Session) -> EditResult:
    """One edit of files, on the way of commands: decided about, approved, done, recorded.

    It is done with the rights that a command would have. Raises ``InvalidArgument`` for an edit
    that does not fit what is there, ``RecordsLost`` as ``process_exec_tool_call``.
    """
    return _drive(edit_flow(session, edit), session)


def call_of(given: ToolCall | str) -> ToolCall:
    """A call, of a command alone where that is what was given."""
    return given if isinstance(given, ToolCall) else ToolCall(given)


def _drive(steps: Flow[T], session: Session, on_delta: OnDelta | None = None) -> T:
    """Does what the steps yield, and blocks meanwhile."""
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
            answer = _done(todo, session, on_delta)
        except BaseException as raised:
            error = raised


def _done(todo: Ask | Run | Do, session: Session, on_delta: OnDelta | None) -> Any:
    if isinstance(todo, Ask):
        return ask(session.approver, todo.request)
    if isinstance(todo, Do):
        return todo.act()
    if on_delta is None:
        return todo.box.run(todo.args, **todo.how)
    return streamed(todo.box, todo.args, todo.how, on_delta)
