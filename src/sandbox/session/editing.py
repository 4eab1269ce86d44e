"""File edits on the way that commands take: planned, decided about, approved, done, recorded.

An edit is done with the rights that a command would have, so what the policy refuses is refused by
the same walls. What was refused may be done once more with the narrowest wider policy, after
approval, as a command is retried.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox.command.verdict import Assessment, Cause, Reason
from sandbox.denial import Denial
from sandbox.errors import SandboxException
from sandbox.live import Sandbox
from sandbox.printed import printable
from sandbox.session.approval import ApprovalRequest, Choice, is_only_weaker, visible
from sandbox.session.decide import Action as Act
from sandbox.session.decide import Decision, Enforced, decide
from sandbox.session.edit import Action, Edit, planned
from sandbox.session.escalation import Event, Offer, State, next_state, offer
from sandbox.session.judging import grant_lines, weaker_lines
from sandbox.session.perform import Failure, Performed, Written, denial_of, perform, reading
from sandbox.session.pipeline import Do, Flow, answered
from sandbox.session.shown import denial_text

if TYPE_CHECKING:
    from sandbox.session.session import Session

__all__ = ["EditResult", "edit_flow"]


@dataclass(frozen=True, slots=True)
class EditResult:
    """What came of an edit.

    - ``done``: the files that were created, changed and deleted. ``failure``: where it ended, else
      None; what was done before that was put back, but for the paths in ``left``.
    - ``why``: of an edit that was denied or does not fit what is there, in a sentence.
    - ``denials``: what the policy refused, and what would allow it. ``attempts``: 2 when it was
      tried again with more.
    """

    call: int
    decision: Decision
    done: tuple[Written, ...] = ()
    failure: Failure | None = None
    left: tuple[str, ...] = ()
    why: str = ""
    denials: tuple[Denial, ...] = ()
    attempts: int = 0

    @property
    def ok(self) -> bool:
        """Whether all of it was done."""
        return not self.why and self.failure is None

    @property
    def text(self) -> str:
        """For a model: what was done, or why it was not and what would allow it."""
        lines = [f"{one.change.capitalize()}: {printable(one.path)}" for one in self.done]
        if self.failure is not None:
            lines = [f"Not done: {printable(self.failure.path)}: {printable(self.failure.cause)}"]
            lines += [f"Could not be put back: {printable(path)}" for path in self.left]
        if self.why:
            lines.append(
                f"Denied: {printable(self.why)}" if not self.attempts else printable(self.why)
            )
        lines += [denial_text(one) for one in self.denials]
        return "\n".join(lines or ["Nothing to be done: that is what is there"])


def edit_flow(session: Session, edit: Edit) -> Flow[EditResult]:
    """The steps of one edit. Raises ``InvalidArgument`` for one that does not fit what is there."""
    turn = _EditTurn(session, edit)
    state = next_state(State.ASSESSED, Event(turn.decision.action))
    if state is State.ASKING:
        allowed = yield from turn.asked(turn.decision)
        state = next_state(state, Event.APPROVED if allowed else Event.REFUSED)
    if state is State.DENIED:
        return turn.ended()
    event = yield from turn.run(session.boxes.base)
    state = next_state(state, event)
    if state is State.OFFERING:
        allowed = yield from turn.offered()
        state = next_state(state, Event.APPROVED if allowed else Event.REFUSED)
    if state is State.RETRYING:
        yield from turn.run_again()
    return turn.ended()


class _EditTurn:
    """One edit on its way. Made, it is assessed and decided about."""

    def __init__(self, session: Session, edit: Edit) -> None:
        self._session, self._edit = session, edit
        self._records = session.recorder()
        self._cwd = session.cwd
        name = f"edit: {edit.action} {edit.path}".rstrip()
        self._assessment = Assessment.of([Cause(Reason.EDITS, 0, len(name))])
        self._performed: Performed | None = None
        self._offer: Offer | None = None
        self._denial: Denial | None = None
        self._why = ""
        self._attempts = 0
        enforcement = session.boxes.base.enforcement
        self._weaker = session.weaker(enforcement)
        self.decision = self._decided(session.enforced(enforcement))
        self._records.assessment(name, self._cwd, self._assessment, self.decision)

    def _decided(self, enforced: Enforced, lines: tuple[str, ...] = ()) -> Decision:
        """The decision. No edit is approved for longer than it was read."""
        return decide(
            self._assessment,
            enforced,
            self._session.approval,
            weaker=[one.part for one in self._weaker],
            asked_for=", ".join(lines),
        )

    # Asking.

    def asked(self, decision: Decision, lines: tuple[str, ...] = ()) -> Flow[bool]:
        """Whether somebody allows it; on record."""
        answer = yield from answered(self._request(decision, lines), self._records)
        if answer.choice is Choice.WEAKER:
            self._session.trust.accept_weaker(one.part for one in self._weaker)
        if not answer.allows:
            self._why = answer.reason
        return answer.allows

    def _request(self, decision: Decision, lines: tuple[str, ...]) -> ApprovalRequest:
        edit = self._edit
        offers: tuple[Choice, ...] = (Choice.DENY, Choice.ONCE)
        if is_only_weaker(decision):
            offers = (*offers, Choice.WEAKER)
            lines = weaker_lines(self._weaker)
        details = [] if edit.action is Action.PATCH else [("of the file", edit.path)]
        if edit.path and self._real() != os.path.join(self._cwd, edit.path):
            details.append(("which leads to", self._real()))
        if edit.action is Action.REPLACE_TEXT:
            details.append((f"the text, {edit.count} times in it", _text(edit.old)))
        if edit.action is not Action.DELETE:
            details.append(("with", _text(edit.text)))
        return ApprovalRequest(
            command=str(edit.action),
            cwd=visible(self._cwd),
            verdict=self._assessment.verdict,
            reasons=(),
            grounds=decision.grounds,
            allows=tuple(visible(line) for line in lines),
            evidence="",
            offers=offers,
            subject="edit",
            details=tuple((what, visible(text)) for what, text in details),
        )

    def _real(self) -> str:
        return os.path.realpath(os.path.join(self._cwd, self._edit.path))

    def offered(self) -> Flow[bool]:
        """Whether it may be tried again with what it was refused."""
        found = self._offer
        assert found is not None and found.grant is not None
        lines = grant_lines(found.grant)
        decision = self._decided(Enforced.OUTSIDE, lines)
        self._records.escalation(Event.DENIAL, found, lines)
        allowed = decision.action is Act.ALLOW
        if decision.action is Act.ASK:
            allowed = yield from self.asked(decision, lines)
        elif not allowed:
            self._why = str(decision)
        event = Event.APPROVED if allowed else Event.REFUSED
        self._records.escalation(event, found, lines)
        return allowed

    # Doing.

    def run(self, box: Sandbox) -> Flow[Event]:
        """Does it in a sandbox; what came of it as an event."""
        self._attempts += 1
        self._records.flush()
        self._denial = None
        with self._session.beside():
            yield Do(lambda: self._do(box))
        self._note()
        if self._denial is None or self._attempts > 1:
            return Event.END
        self._offer = offer((self._denial,), box.policy, box.resolved)
        return Event.DENIAL if self._offer is not None else Event.END

    def _do(self, box: Sandbox) -> None:
        try:
            changes = planned(self._edit, reading(box, self._cwd))
        except OSError as error:
            path = str(error.filename or self._edit.path)
            self._denial = denial_of(box, path, "read", error, self._cwd)
            cause = error.strerror or str(error)
            self._performed = Performed((), Failure(path, error.errno or 0, cause, self._denial))
        else:
            self._performed = perform(box, changes, self._cwd)
            failure = self._performed.failure
            self._denial = failure.denial if failure is not None else None

    def run_again(self) -> Flow[None]:
        """Does it under the wider policy."""
        assert self._offer is not None
        boxes = self._session.boxes
        try:
            box = boxes.take(self._offer.policy, self._offer.grant)
        except SandboxException as error:
            self._why = f"it could not be tried again: {error}"
            return
        try:
            event = yield from self.run(box)
            next_state(State.RETRYING, event)
        finally:
            boxes.give_back(box)

    def _note(self) -> None:
        performed = self._performed
        assert performed is not None
        for one in performed.done:
            self._records.edit(self._edit, one, performed.failure)
        if performed.failure is not None and not performed.done:
            self._records.edit(self._edit, None, performed.failure)

    def ended(self) -> EditResult:
        """What came of it."""
        self._records.flush()
        performed = self._performed or Performed(())
        why = self._why or (str(self.decision) if self._performed is None else "")
        return EditResult(
            call=self._records.call,
            decision=self.decision,
            done=performed.done if performed.failure is None else (),
            failure=performed.failure,
            left=performed.left,
            why=why,
            denials=(self._denial,) if self._denial is not None else (),
            attempts=self._attempts,
        )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
