"""What happens to a tool call, from the words of an agent to the last record.

``flow`` is all of it and does nothing by itself: it yields what is to be done, an ``Ask`` or a
``Run``, and is sent what came of that. So the same steps serve callers that block and callers that
await, and a test can be either. Records are written before anything is yielded: what happened is
on record when somebody is asked, and a command before it runs.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from sandbox.command.assess import assess_command_safety
from sandbox.command.git import HELPERS_OFF
from sandbox.command.verdict import Verdict
from sandbox.denial import Denial, Grant
from sandbox.errors import SandboxException
from sandbox.live import Sandbox
from sandbox.policy import SandboxPolicy
from sandbox.request import RunOptions
from sandbox.result import Result
from sandbox.session.approval import Answer, ApprovalRequest, request_of
from sandbox.session.decide import Action, Because, Decision, Enforced, Ground, decide
from sandbox.session.escalation import (
    Event,
    Offer,
    State,
    denied_steps,
    next_state,
    offer,
    unsandboxed,
    widened,
)
from sandbox.session.keys import NO_SANDBOX, Key, key_of
from sandbox.session.values import ToolCall, ToolResult

if TYPE_CHECKING:
    from sandbox.session.session import Session

__all__ = ["Ask", "Flow", "Run", "flow", "grant_lines"]

_MESSAGE_ONLY = (
    "That it was refused is known only from what the command printed, which it can make up."
)
_QUOTES = str.maketrans("", "", "'\"\\\n")
_AGAIN = "It has run once already, up to where it was refused, and would begin anew."


class Ask(NamedTuple):
    """Somebody is to be asked; the answer is to be sent."""

    request: ApprovalRequest


class Run(NamedTuple):
    """A command is to be run; its result is to be sent, or what ``Sandbox.run`` raises thrown."""

    box: Sandbox
    args: str | Sequence[str]
    how: RunOptions


T = TypeVar("T")
Flow = Generator[Ask | Run, Any, T]


def flow(session: Session, call: ToolCall) -> Flow[ToolResult]:
    """The steps of one call. Raises as ``process_exec_tool_call``."""
    turn = _Turn(session, call)
    state = next_state(State.ASSESSED, Event(turn.decision.action))
    if state is State.ASKING:
        answer = yield from turn.asked(turn.decision, turn.permissions, turn.allows())
        state = next_state(state, Event.APPROVED if answer.allows else Event.REFUSED)
    if state is State.DENIED:
        return turn.denied()
    event = yield from turn.run(turn.policy, 1)
    state = next_state(state, event)
    if state is State.OFFERING:
        approved = yield from turn.offered()
        state = next_state(state, Event.APPROVED if approved else Event.REFUSED)
    if state is State.RETRYING:
        assert turn.offer is not None
        event = yield from turn.run(turn.offer.policy, 2)
        next_state(state, event)
    return turn.ended()


class _Turn:
    """One call on its way. Made, it is assessed and decided about."""

    def __init__(self, session: Session, call: ToolCall) -> None:
        self._session, self._call = session, call
        self._records = session.recorder()
        self._cwd = session.directory(call.cwd)
        self._env: dict[str, str] = dict(call.env or {})
        self.policy = session.policy
        self._enforcement = session.boxes.base.enforcement
        self._weaker = session.weaker(self._enforcement)
        self.permissions: tuple[str, ...] = ()
        self._refused = ""  # of what the call asks for beyond the policy, why nobody can allow it
        self._ask_more()
        self.offer: Offer | None = None
        self._result: Result | None = None
        self._error: SandboxException | None = None
        self._attempts = 0
        self._why = self._not_retried = ""
        self._assess()
        self._records.assessment(call.command, self._cwd, self.assessment, self.decision)

    def _ask_more(self) -> None:
        """The policy and permissions of a call that asks for more than the session's."""
        session, grant = self._session, self._call.grant
        if self._call.unsandboxed:
            self._leave()
            if not session.may_leave and not session.policy.unconfined:
                self._refused = "the profile has no approval.unsandboxed = true"
        elif grant is not None:
            self.policy = widened(self.policy, grant)
            self.permissions = grant_lines(grant)
            denied = denied_steps(grant, session.boxes.base.resolved)
            if denied:
                which = ", ".join(grant_lines(Grant(denied)))
                self._refused = f"what is denied by name, or a secret, is not given: {which}"

    def _leave(self) -> None:
        self.policy = unsandboxed(self._session.policy)
        self.permissions = (NO_SANDBOX,)

    def _assess(self) -> None:
        session, call = self._session, self._call
        asks_more = bool(self.permissions)
        enforced = session.enforced(self._enforcement, asks_more)
        confined = enforced is Enforced.FULL and not session.policy.unconfined
        context = session.context(self._env, helpers_off=confined)
        self.assessment = assess_command_safety(call.command, context)
        self._context = context
        if self.assessment.verdict is Verdict.UNSANDBOXED and session.may_leave and not asks_more:
            self._leave()
        self.decision = self._decided(enforced, self.permissions)
        if self._refused:
            because = Because(Ground.OUTSIDE, self._refused)
            self.decision = Decision(Action.DENY, (because,), self.decision.enforced)
        if confined and self._is_safe_in_part() and _may_start_git(call.command):
            self._env.update(HELPERS_OFF)  # what the promise of the context rests on

    def _is_safe_in_part(self) -> bool:
        """Whether it runs because it, or what stands beside a prefix, is known to be safe."""
        grounds = {one.ground for one in self.decision.grounds}
        return self.assessment.verdict is Verdict.SAFE or Ground.TRUSTED_PREFIX in grounds

    def _decided(
        self, enforced: Enforced, permissions: Sequence[str], *, memory: bool = True
    ) -> Decision:
        """The decision; what was approved before is looked at only where somebody would be asked.

        ``memory``: whether it counts at all.
        """
        session = self._session

        def decided(trusted: Ground | None) -> Decision:
            return decide(
                self.assessment,
                enforced,
                session.approval,
                may_leave=session.may_leave,
                trusted=trusted,
                weaker=[one.part for one in self._weaker],
                asked_for=", ".join(permissions),
            )

        first = decided(None)
        if first.action is not Action.ASK or not memory:
            return first
        found = session.trust.find(self._key(permissions), self.assessment, self._context)
        return first if found is None else decided(found.ground)

    def _key(self, permissions: Sequence[str]) -> Key:
        """What an answer would be remembered for: variables of the call are part of it."""
        session = self._session
        return key_of(
            self._call.command,
            self._context,
            cwd=self._cwd,
            policy=session.key_digest,
            permissions=(*permissions, *session.marks(self._call.env)),
        )

    # Asking.

    def allows(self) -> list[str]:
        """What would be allowed beside the command itself, a line each."""
        if self.decision.enforced is Enforced.OUTSIDE:
            return list(self.permissions)
        if self.decision.enforced is Enforced.WEAKER:
            return [f"{one.part} is not enforced: {one.cause}" for one in self._weaker]
        return []

    def asked(
        self,
        decision: Decision,
        permissions: Sequence[str],
        allows: Sequence[str],
        evidence: str = "",
    ) -> Flow[Answer]:
        """Somebody's answer to a decision that asks; it is remembered and on record."""
        session, key = self._session, self._key(permissions)
        request = request_of(
            self._call.command,
            self.assessment,
            decision,
            key,
            allows=allows,
            evidence=" ".join(filter(None, (evidence, self._justified()))),
            persistent=session.trust_file is not None,
        )
        self._records.flush()
        began = time.monotonic()
        try:
            answer: Answer = yield Ask(request)
        except BaseException as error:  # nobody waits for it any more
            self._records.unanswered(request, error, time.monotonic() - began)
            raise
        self._records.approval(request, answer, time.monotonic() - began)
        answer = session.remember(key, answer, decision, self._weaker)
        if not answer.allows:
            self._why = answer.reason
        return answer

    def _justified(self) -> str:
        said = self._call.justification
        return f"The agent says: {said}" if said else ""

    def offered(self) -> Flow[bool]:
        """Whether the command may be retried with what it was refused."""
        found = self.offer
        assert found is not None
        more = grant_lines(found.grant) if found.grant is not None else (NO_SANDBOX,)
        lines = tuple(dict.fromkeys((*self.permissions, *more)))  # what the call has it keeps
        # No rule and no memory answers for what a command can have made up.
        decision = self._decided(Enforced.OUTSIDE, lines, memory=found.certain)
        self._records.escalation(Event.DENIAL, found, lines)
        approved = decision.action is Action.ALLOW
        if decision.action is Action.ASK:
            evidence = _AGAIN if found.certain else f"{_MESSAGE_ONLY} {_AGAIN}"
            answer = yield from self.asked(decision, lines, lines, evidence)
            approved, self._not_retried = answer.allows, self._why
        elif not approved:
            self._not_retried = str(decision)
        self.permissions = lines
        event = Event.APPROVED if approved else Event.REFUSED
        self._records.escalation(event, found, lines)
        return approved

    # Running.

    def run(self, policy: SandboxPolicy, attempt: Literal[1, 2]) -> Flow[Event]:
        """Runs it once; what came of it as an event."""
        session, call = self._session, self._call
        self._attempts = attempt
        how: RunOptions = {"cwd": self._cwd, "timeout": call.timeout}
        if self._env:
            how["env"] = self._env
        if call.input is not None:
            how["input"] = call.input
        try:
            box = session.boxes.take(policy)
        except SandboxException as error:
            return self._over(None, error)
        seen = None
        try:
            seen = session.look(box)
            names, _ = box.variables(self._env or None)
            known = self._enforcement if box is session.boxes.base else box.enforcement
            self._records.spawn(
                call.command, self._cwd, box, known, names, attempt, self.permissions
            )
            self._records.flush()
            try:
                result = yield Run(box, call.command, how)
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
            session.boxes.give_back(box)
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
        session = self._session
        left = NO_SANDBOX in self.permissions
        may_leave = session.may_leave and not left
        self.offer = offer(result.denials, box.policy, box.resolved, may_leave=may_leave)
        return Event.DENIAL if self.offer is not None else Event.END

    # What came of it.

    def denied(self) -> ToolResult:
        """It did not run."""
        self._records.flush()
        why = self._why or str(self.decision)
        return self._told("denied", why)

    def ended(self) -> ToolResult:
        """It ran, or was to."""
        self._records.flush()
        if self._error is not None and self._result is None:
            return self._told("not-started", str(self._error))
        return self._told("ran")

    def _told(self, status: Any, why: str = "") -> ToolResult:
        result = self._result
        return ToolResult(
            call=self._records.call,
            status=status,
            decision=self.decision,
            assessment=self.assessment,
            result=result,
            error=self._error,
            why=why,
            attempts=self._attempts,
            denials=_known(result, self._error),
            not_retried=self._not_retried,
        )


def _may_start_git(command: str | Sequence[str]) -> bool:
    """Whether git may be among its programs, however it is quoted."""
    return "git" in str(command).translate(_QUOTES)


def grant_lines(grant: Grant) -> tuple[str, ...]:
    """Each step of a grant in words: what approvals are remembered by and people are shown."""
    return tuple(f"{word} {value}" for word, value in grant.steps)


def _known(result: Result | None, error: SandboxException | None) -> tuple[Denial, ...]:
    if result is not None:
        return result.denials
    found: tuple[Denial, ...] = getattr(error, "denials", ())
    return found
