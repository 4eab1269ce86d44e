"""A call before it runs: what it asks for, what it is, what is decided, and what would be asked.

Everything here looks at the session and changes nothing; nothing is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandbox.command.assess import assess_command_safety
from sandbox.command.git import HELPERS_OFF
from sandbox.command.verdict import Verdict
from sandbox.denial import Grant
from sandbox.policy import SandboxPolicy
from sandbox.request import RunOptions, input_bytes
from sandbox.result import Weaker
from sandbox.session.approval import ApprovalRequest, request_of
from sandbox.session.decide import Action, Because, Decision, Enforced, Ground, decide
from sandbox.session.escalation import denied_steps, settled, unsandboxed, widened
from sandbox.session.keys import NO_SANDBOX, Key, key_of
from sandbox.session.values import ToolCall

if TYPE_CHECKING:
    from sandbox.session.session import Session

__all__ = ["Judged", "grant_lines", "weaker_lines"]

_QUOTES = str.maketrans("", "", "'\"\\\n")
_INPUT_SHOWN = 2000  # bytes of input that whoever is asked is shown


class Judged:
    """One call, assessed and decided about.

    ``policy``, ``grant`` and ``permissions``: what it is to run under, and what of that is beyond
    the session's policy, a line each. ``cwd`` and ``how``: where and how it runs.
    """

    def __init__(self, session: Session, call: ToolCall) -> None:
        self._session, self.call = session, call
        self.cwd = session.directory(call.cwd)
        self._env: dict[str, str] = dict(call.env or {})
        self.policy: SandboxPolicy = session.policy
        self.grant: Grant | None = None
        self.permissions: tuple[str, ...] = ()
        self.enforcement = session.boxes.base.enforcement
        self.weaker = session.weaker(self.enforcement)
        self._refused = ""  # of what the call asks for beyond the policy, why nobody can allow it
        self._ask_more()
        self._assess()

    @property
    def env(self) -> dict[str, str] | None:
        """Variables beside those that the policy lets through."""
        return self._env or None

    @property
    def how(self) -> RunOptions:
        """The options of ``Sandbox.run``."""
        how: RunOptions = {"cwd": self.cwd, "timeout": self.call.timeout}
        if self._env:
            how["env"] = self._env
        if self.call.input is not None:
            how["input"] = self.call.input
        return how

    def _ask_more(self) -> None:
        """The policy and permissions of a call that asks for more than the session's."""
        session = self._session
        if self.call.unsandboxed:
            self._leave()
            if not session.may_leave and not session.policy.unconfined:
                self._refused = "the profile has no approval.unsandboxed = true"
        elif self.call.grant is not None:
            self.grant = grant = settled(self.call.grant)
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
        session, command = self._session, self.call.command
        asks_more = bool(self.permissions)
        enforced = session.enforced(self.enforcement, asks_more)
        confined = enforced is Enforced.FULL and not session.policy.unconfined
        self._context = session.context(self._env, helpers_off=confined)
        self.assessment = assess_command_safety(command, self._context)
        if self.assessment.verdict is Verdict.UNSANDBOXED and session.may_leave and not asks_more:
            self._leave()
        self.decision = self.decided(enforced, self.permissions)
        if self._refused:
            because = Because(Ground.OUTSIDE, self._refused)
            self.decision = Decision(Action.DENY, (because,), self.decision.enforced)
        if confined and self._is_safe_in_part() and _may_start_git(command):
            self._env.update(HELPERS_OFF)  # what the promise of the context rests on

    def _is_safe_in_part(self) -> bool:
        """Whether it runs because it, or what stands beside a prefix, is known to be safe."""
        grounds = {one.ground for one in self.decision.grounds}
        return self.assessment.verdict is Verdict.SAFE or Ground.TRUSTED_PREFIX in grounds

    def decided(
        self, enforced: Enforced, permissions: Sequence[str], *, memory: bool = True
    ) -> Decision:
        """The decision; what was approved before is looked at only where somebody would be asked.

        ``memory``: whether it counts at all.
        """
        session = self._session

        def by(trusted: Ground | None) -> Decision:
            return decide(
                self.assessment,
                enforced,
                session.approval,
                may_leave=session.may_leave,
                trusted=trusted,
                weaker=[one.part for one in self.weaker],
                asked_for=", ".join(permissions),
            )

        first = by(None)
        if first.action is not Action.ASK or not memory:
            return first
        found = session.trust.find(self.key(permissions), self.assessment, self._context)
        return first if found is None else by(found.ground)

    def key(self, permissions: Sequence[str]) -> Key:
        """What an answer would be remembered for."""
        session = self._session
        return key_of(
            self.call.command,
            self._context,
            cwd=self.cwd,
            policy=session.key_digest,
            permissions=(*permissions, *session.marks(self.call, self.weaker)),
        )

    def allows(self) -> list[str]:
        """What would be allowed beside the command itself, a line each."""
        if self.decision.enforced is Enforced.OUTSIDE:
            return list(self.permissions)
        if self.decision.enforced is Enforced.WEAKER:
            return list(weaker_lines(self.weaker))
        return []

    def request(
        self, decision: Decision, key: Key, allows: Sequence[str], evidence: str
    ) -> ApprovalRequest:
        """What somebody is asked."""
        return request_of(
            self.call.command,
            self.assessment,
            decision,
            key,
            allows=allows,
            evidence=evidence,
            justification=self.call.justification,
            details=self._details(),
            persistent=self._session.trust_file is not None,
        )

    def _details(self) -> list[tuple[str, str]]:
        names = ", ".join(f"{name}={value}" for name, value in (self.call.env or {}).items())
        found = [("with the variables", names)] if names else []
        given = input_bytes(self.call.input)
        if given is not None:
            head = given[:_INPUT_SHOWN].decode("utf-8", "surrogateescape")
            what = f"with {len(given)} bytes of input"
            more = len(given) - _INPUT_SHOWN
            found.append((f"{what}, {more} of them not shown" if more > 0 else what, head))
        return found


def _may_start_git(command: str | Sequence[str]) -> bool:
    """Whether git may be among its programs, however it is quoted."""
    return "git" in str(command).translate(_QUOTES)


def weaker_lines(weaker: Sequence[Weaker]) -> tuple[str, ...]:
    """Each part that is enforced less, and why."""
    return tuple(f"{one.part} is not enforced: {one.cause}" for one in weaker)


def grant_lines(grant: Grant) -> tuple[str, ...]:
    """Each step of a grant in words: what approvals are remembered by and people are shown."""
    return tuple(f"{word} {value}" for word, value in grant.steps)
