"""Who answers requests: a function, a fixed answer, nobody; and how any of them is asked.

Whoever answers is not trusted to answer well: an exception, nonsense, or an answer that was not
offered is a denial that says so. Nothing but an answer that was offered allows anything.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from sandbox.session.approval import Answer, ApprovalRequest, Choice, visible
from sandbox.session.decide import Ground

__all__ = [
    "Approver",
    "AsyncApprover",
    "CallbackApprover",
    "FixedApprover",
    "approver_of",
    "ask",
    "ask_async",
]

_WHY_MAX = 1000  # characters of what an approver says, which is kept


@runtime_checkable
class Approver(Protocol):
    """Whoever answers requests, and blocks until it has."""

    def ask(self, request: ApprovalRequest) -> Answer:
        """The answer to one request."""
        ...


@runtime_checkable
class AsyncApprover(Protocol):
    """Whoever answers requests without blocking."""

    async def ask(self, request: ApprovalRequest) -> Answer:
        """The answer to one request."""
        ...


class CallbackApprover:
    """Asks a function of a program, which may be asynchronous where the session is.

    It returns an ``Answer``, or only a ``Choice``, which is then ``who``'s.
    """

    def __init__(self, call: Callable[[ApprovalRequest], Any], who: str = "the program") -> None:
        self.call = call
        self.who = who

    def ask(self, request: ApprovalRequest) -> Any:
        """What the function says."""
        return self.call(request)


class FixedApprover:
    """Answers every request alike: with ``choice`` where it is offered, else with a denial."""

    def __init__(self, choice: Choice | str, who: str = "a fixed answer") -> None:
        self._answer = Answer(Choice(choice), who)

    def ask(self, request: ApprovalRequest) -> Answer:
        """The answer."""
        return self._answer


def approver_of(
    given: Approver | AsyncApprover | Callable[[ApprovalRequest], Any] | None,
) -> Approver | AsyncApprover | None:
    """An approver: itself, or one that asks a function; None for nobody.

    Raises ``TypeError`` for anything else: the caller's fault.
    """
    if given is None or isinstance(given, Approver):
        return given
    if callable(given):
        return CallbackApprover(given)
    raise TypeError(f"{given!r} is no approver: it has no ask(request), and cannot be called")


def ask(approver: Approver | AsyncApprover | None, request: ApprovalRequest) -> Answer:
    """The answer of an approver, or a denial that says why there is none. Raises nothing of it."""
    if approver is None:
        return _no_approver()
    try:
        said: Any = approver.ask(request)
        if inspect.iscoroutine(said):
            said.close()
        if inspect.isawaitable(said):
            return _failed("the approver is asynchronous, and the session is not")
        return _checked(said, request, approver)
    except Exception as error:
        return _raised(error)


async def ask_async(approver: Approver | AsyncApprover | None, request: ApprovalRequest) -> Answer:
    """As ``ask``. One that is no coroutine function is called in a thread, which it may block.

    Who is cancelled goes on at once; a thread that blocks is left to itself, and what it answers
    later counts for nothing.
    """
    if approver is None:
        return _no_approver()
    try:
        is_async = inspect.iscoroutinefunction(_called(approver))
        said: Any = approver.ask(request) if is_async else await _in_thread(approver, request)
        if inspect.isawaitable(said):
            said = await said
        return _checked(said, request, approver)
    except Exception as error:
        return _raised(error)


def _called(approver: Approver | AsyncApprover) -> Callable[..., Any]:
    """What is called in the end."""
    return approver.call if isinstance(approver, CallbackApprover) else approver.ask


async def _in_thread(approver: Approver | AsyncApprover, request: ApprovalRequest) -> Any:
    from sandbox.loops import in_thread

    return await in_thread(lambda: approver.ask(request))


def _no_approver() -> Answer:
    return Answer(Choice.DENY, "nobody", Ground.NO_APPROVER.why, failed=Ground.NO_APPROVER)


def _failed(why: str) -> Answer:
    return Answer(Choice.DENY, "nobody", visible(why)[:_WHY_MAX], failed=Ground.APPROVER_FAILED)


def _raised(error: Exception) -> Answer:
    return _failed(f"the approver raised {type(error).__name__}: {error}")


def _checked(said: Any, request: ApprovalRequest, approver: Any) -> Answer:
    """An answer if it is one, and was offered; else a denial."""
    if isinstance(said, str):
        said = Answer(Choice(said), getattr(approver, "who", "the approver"))
    if not isinstance(said, Answer) or not isinstance(said.choice, Choice):
        return _failed(f"the approver answered {type(said).__name__}, which is no answer")
    if not isinstance(said.who, str) or not isinstance(said.why, str):
        return _failed("the approver did not say in words who answered, and why")
    prefix = request.prefix if said.choice is Choice.PREFIX else ()
    if said.choice is not Choice.DENY:
        if said.failed is not None:
            return _failed("the approver allowed it, and says that it failed")
        if said.choice not in request.offers:
            return _failed(f"the approver answered {said.choice}, which was not offered")
        if tuple(said.prefix) not in ((), prefix):
            return _failed(f"the approver allowed a prefix that was not offered: {said.prefix!r}")
    why = visible(said.why)[:_WHY_MAX]
    return Answer(said.choice, visible(said.who)[:_WHY_MAX], why, prefix, said.failed)
