"""What happens to a tool call, from the words of an agent to the last record.

``flow`` is all of it and does nothing by itself: it yields what is to be done, an ``Ask`` or a
``Run``, and is sent what came of that. So the same steps serve callers that block and callers that
await, and a test can be either. Records are written before anything is yielded: what happened is
on record when somebody is asked, and a command before it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from sandbox.denial import Denial, Grant
from sandbox.errors import SandboxException, SandboxLost
from sandbox.live import Sandbox
from sandbox.policy import SandboxPolicy
from sandbox.request import RunOptions
from sandbox.result import Result
from sandbox.session.approval import Answer, ApprovalRequest
from sandbox.session.decide import Action, Decision, Enforced
from sandbox.session.escalation import Event, Offer, State, next_state, offer
from sandbox.session.judging import Judged, grant_lines
from sandbox.session.keys import NO_SANDBOX
from sandbox.session.recorder import Recorder
from sandbox.session.values import Status, ToolCall, ToolResult

if TYPE_CHECKING:
    from sandbox.session.session import Session

__all__ = ["Ask", "Do", "Flow", "Run", "answered", "flow"]

_MESSAGE_ONLY = (
    "That it was refused is known only from what the command printed, which it can make up."
)
_AGAIN = "It has run once already, up to where it was refused, and would begin anew."


class Ask(NamedTuple):
    """Somebody is to be asked; the answer is to be sent."""

    request: ApprovalRequest


class Run(NamedTuple):
    """A command is to be run; its result is to be sent, or what ``Sandbox.run`` raises thrown."""

    box: Sandbox
    args: str | Sequence[str]
    how: RunOptions


class Do(NamedTuple):
    """Something that takes a while without waiting for a command; what it returns is to be sent."""

    act: Callable[[], Any]


T = TypeVar("T")
Flow = Generator[Ask | Run | Do, Any, T]


def flow(session: Session, call: ToolCall) -> Flow[ToolResult]:
    """The steps of one call. Raises as ``process_exec_tool_call``."""
    turn = _Turn(session, call)
    judged = turn.judged
    state = next_state(State.ASSESSED, Event(judged.decision.action))
    if state is State.ASKING:
        answer = yield from turn.asked(judged.decision, judged.permissions, judged.allows())
        state = next_state(state, Event.APPROVED if answer.allows else Event.REFUSED)
    if state is State.DENIED:
        return turn.denied()
    event = yield from turn.run(judged.policy, judged.grant, 1)
    state = next_state(state, event)
    if state is State.OFFERING:
        approved = yield from turn.offered()
        state = next_state(state, Event.APPROVED if approved else Event.REFUSED)
    if state is State.RETRYING:
        assert turn.offer is not None
        event = yield from turn.run(turn.offer.policy, turn.offer.grant, 2)
        next_state(state, event)
    return turn.ended()


def answered(request: ApprovalRequest, records: Recorder) -> Flow[Answer]:
    """Somebody's answer to a request, on record; also that nobody waited for one."""
    records.flush()
    began = time.monotonic()
    try:
        answer: Answer = yield Ask(request)
    except BaseException as error:
        records.unanswered(request, error, time.monotonic() - began)
        raise
    records.approval(request, answer, time.monotonic() - began)
    return answer


class _Turn:
    """One call on its way."""

    def __init__(self, session: Session, call: ToolCall) -> None:
        self._session, self._call = session, call
        self._records = session.recorder()
        self.judged = Judged(session, call)
        self.offer: Offer | None = None
        self._permissions = self.judged.permissions
        self._result: Result | None = None
        self._error: SandboxException | None = None
        self._attempts = 0
        self._why = self._not_retried = ""
        judged = self.judged
        self._records.assessment(call.command, judged.cwd, judged.assessment, judged.decision)

    # Asking.

    def asked(
        self,
        decision: Decision,
        permissions: Sequence[str],
        allows: Sequence[str],
        evidence: str = "",
    ) -> Flow[Answer]:
        """Somebody's answer to a decision that asks; it is remembered and on record."""
        key = self.judged.key(permissions)
        request = self.judged.request(decision, key, allows, evidence)
        answer = yield from answered(request, self._records)
        answer = self._session.remember(key, answer, self.judged.weaker)
        if not answer.allows:
            self._why = answer.reason
        return answer

    def offered(self) -> Flow[bool]:
        """Whether the command may be retried with what it was refused."""
        found = self.offer
        assert found is not None
        more = grant_lines(found.grant) if found.grant is not None else (NO_SANDBOX,)
        lines = tuple(dict.fromkeys((*self._permissions, *more)))  # what the call has it keeps
        # No rule and no memory answers for what a command can have made up.
        decision = self.judged.decided(Enforced.OUTSIDE, lines, memory=found.certain)
        self._records.escalation(Event.DENIAL, found, lines)
        approved = decision.action is Action.ALLOW
        if decision.action is Action.ASK:
            evidence = _AGAIN if found.certain else f"{_MESSAGE_ONLY} {_AGAIN}"
            answer = yield from self.asked(decision, lines, lines, evidence)
            approved, self._not_retried = answer.allows, self._why
        elif not approved:
            self._not_retried = str(decision)
        self._permissions = lines
        event = Event.APPROVED if approved else Event.REFUSED
        self._records.escalation(event, found, lines)
        return approved

    # Running.

    def run(
        self, policy: SandboxPolicy, grant: Grant | None, attempt: Literal[1, 2]
    ) -> Flow[Event]:
        """Runs it once, with a grant; what came of it as an event."""
        self._attempts = attempt
        boxes = self._session.boxes
        try:
            box = boxes.take(policy, grant)
        except SandboxException as error:
            return self._over(None, error)
        try:
            return (yield from self._run_in(box, attempt))
        finally:
            boxes.give_back(box)

    def _run_in(self, box: Sandbox, attempt: Literal[1, 2]) -> Flow[Event]:
        session, judged, command = self._session, self.judged, self._call.command
        seen = session.look(box)
        try:
            names, _ = box.variables(judged.env)
            known = judged.enforcement if box is session.boxes.base else box.enforcement
            self._records.spawn(command, judged.cwd, box, known, names, attempt, self._permissions)
            self._records.flush()
            try:
                result = yield Run(box, command, judged.how)
            except SandboxException as error:
                event = self._over(None, error)
            except BaseException as error:  # of the caller: it interrupts, or takes no output
                self._records.exit(None, error)
                raise
            else:
                self._over(result, None)
                event = self._may_go_on(box, result)
            finally:
                if seen is not None:
                    self._records.files(seen.changes())
                self._records.flush()
        finally:
            if seen is not None:
                seen.close()
        return event

    def _over(self, result: Result | None, error: SandboxException | None) -> Event:
        """Notes how an attempt ended."""
        self._error = error
        if result is not None:
            self._result = result
        self._records.exit(result, error)
        return Event.FAULT if result is None else Event.END

    def _may_go_on(self, box: Sandbox, result: Result) -> Event:
        """Whether it is over, or somebody could allow it more."""
        if result.ok or self._attempts > 1:
            return Event.END
        may_leave = self._session.may_leave and NO_SANDBOX not in self._permissions
        self.offer = offer(result.denials, box.policy, box.resolved, may_leave=may_leave)
        return Event.DENIAL if self.offer is not None else Event.END

    # What came of it.

    def denied(self) -> ToolResult:
        """It did not run."""
        self._records.flush()
        return self._told("denied", self._why or str(self.judged.decision))

    def ended(self) -> ToolResult:
        """It ran, or was to."""
        self._records.flush()
        if self._result is not None:
            return self._told("ran")
        status: Status = "lost" if isinstance(self._error, SandboxLost) else "not-started"
        return self._told(status, str(self._error))

    def _told(self, status: Status, why: str = "") -> ToolResult:
        result = self._result
        known: tuple[Denial, ...] = getattr(self._error, "denials", ())
        return ToolResult(
            call=self._records.call,
            status=status,
            decision=self.judged.decision,
            assessment=self.judged.assessment,
            result=result,
            error=self._error,
            why=why,
            attempts=self._attempts,
            denials=result.denials if result is not None else known,
            not_retried=self._not_retried,
        )
