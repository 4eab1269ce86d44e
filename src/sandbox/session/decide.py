"""When a command runs at once, when a person is asked, and when it is refused: one table.

What is decided by: what a command is (``Verdict``), what would be enforced while it runs
(``Enforced``), and the approval mode. The table is all of it; the rest of this file says why, from
a closed list. What a person approved before turns "ask" into "allow", and "deny" into nothing else.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from sandbox.command.verdict import Assessment, Reason, Verdict
from sandbox.errors import InvalidArgument
from sandbox.policy import SandboxPolicy
from sandbox.profile.values import APPROVALS, ApprovalMode
from sandbox.result import Enforcement, Weaker

__all__ = ["TABLE", "Action", "Because", "Decision", "Enforced", "Ground", "decide", "enforced_of",
           "not_accepted"]  # fmt: skip


class Enforced(StrEnum):
    """What would be enforced while a command runs, the most first.

    ``FULL``: every part of the policy, or all but parts that the user accepts weaker, or that are
    weaker on every host. A policy that confines nothing, which a user has to say, is always so.
    """

    FULL = "full"
    WEAKER = "weaker"  # a part is weaker here, and nobody said that this is acceptable
    OUTSIDE = "outside"  # the call asks for more than the policy: a wider one, or no sandbox


class Action(StrEnum):
    """What is done about a command, the mildest first."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Ground(StrEnum):
    """Why something was decided: a sentence for people, and what would change it (or nothing)."""

    why: str
    mend: str

    def __new__(cls, value: str, why: str, mend: str = "") -> Ground:
        """A member of three parts; as text it is its first."""
        self = str.__new__(cls, value)
        self._value_ = value
        self.why = self.__doc__ = why
        self.mend = mend
        return self

    SAFE = "safe", "it is known to change nothing"
    CONFINED = "confined", "all that the policy says is enforced while it runs"
    TRUSTED_EXACT = "trusted-exact", "exactly this was approved before"
    TRUSTED_PREFIX = "trusted-prefix", "commands that begin so were approved before"

    FORBIDDEN = "forbidden", "a rule of the user forbids it", "the rule"
    RULE_ASKS = "rule-asks", "a rule of the user wants to be asked", "the rule"
    DANGEROUS = "dangerous", "it is a dangerous form", "a form that is not"
    OUTSIDE = "outside", "it asks for more than the policy allows", "a policy that allows it"
    UNSANDBOXED = (
        "unsandboxed",
        "it cannot do its work inside a sandbox",
        "approval.unsandboxed = false, to try it confined",
    )
    WEAKER = (
        "weaker",
        "this host does not enforce all of the policy",
        "isolation.accept with these parts",
    )
    NOT_SAFE = (
        "not-safe",
        "the approval mode `untrusted` asks for all that is not known to be safe",
        'approval.mode = "on-escape"',
    )
    NEVER = (
        "never",
        "the approval mode `never` refuses what others ask about",
        'approval.mode = "on-escape", and somebody to ask',
    )

    APPROVED = "approved", "whoever was asked allowed it"
    REFUSED = "refused", "whoever was asked refused it"
    NO_APPROVER = (
        "no-approver",
        "it has to be approved, and there is nobody to ask",
        "an approver for the session",
    )
    APPROVER_FAILED = "approver-failed", "whoever was asked gave no answer that can be used"


class Because(NamedTuple):
    """A ground, and what it is about: the rule, the reason, the parts."""

    ground: Ground
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.ground.why} ({self.detail})" if self.detail else self.ground.why


@dataclass(frozen=True, slots=True)
class Decision:
    """What is done about a command, and why; there is always a ground.

    ``enforced``: what was decided about. With ``OUTSIDE`` it is allowed, or asked for, as a call
    that gets more than the policy; with another one it runs under the policy.
    """

    action: Action
    grounds: tuple[Because, ...]
    enforced: Enforced

    def __str__(self) -> str:
        """One line: what, why, and for a denial what would change it."""
        text = f"{self.action}: {'; '.join(str(one) for one in self.grounds)}"
        mends = [one.ground.mend for one in self.grounds if one.ground.mend]
        if self.action is Action.DENY and mends:
            text += f"; to change it: {'; '.join(dict.fromkeys(mends))}"
        return text


_RUNS = (Action.ALLOW, Action.ALLOW, Action.ALLOW)
_RUNS_CONFINED = (Action.ASK, Action.ALLOW, Action.ALLOW)
_ASKS = (Action.ASK, Action.ASK, Action.DENY)
_NEVER = (Action.DENY, Action.DENY, Action.DENY)
_MODES: dict[str, int] = {mode: at for at, mode in enumerate(APPROVALS)}

# What is enforced, and what the command is -> untrusted, on-escape, never.
TABLE: dict[tuple[Enforced, Verdict], tuple[Action, Action, Action]] = {
    (Enforced.FULL, Verdict.SAFE): _RUNS,
    (Enforced.FULL, Verdict.UNKNOWN): _RUNS_CONFINED,
    # It is refused inside what it needs; where it may leave, it is a case of OUTSIDE.
    (Enforced.FULL, Verdict.UNSANDBOXED): _RUNS_CONFINED,
    (Enforced.FULL, Verdict.DANGEROUS): _ASKS,
    (Enforced.FULL, Verdict.FORBIDDEN): _NEVER,
    # Or an agent in a container would be stopped at each `ls`.
    (Enforced.WEAKER, Verdict.SAFE): _RUNS,
    (Enforced.WEAKER, Verdict.UNKNOWN): _ASKS,
    (Enforced.WEAKER, Verdict.UNSANDBOXED): _ASKS,
    (Enforced.WEAKER, Verdict.DANGEROUS): _ASKS,
    (Enforced.WEAKER, Verdict.FORBIDDEN): _NEVER,
    # Safe is what changes nothing; what it reads and reaches is the policy's to say.
    (Enforced.OUTSIDE, Verdict.SAFE): _ASKS,
    (Enforced.OUTSIDE, Verdict.UNKNOWN): _ASKS,
    (Enforced.OUTSIDE, Verdict.UNSANDBOXED): _ASKS,
    (Enforced.OUTSIDE, Verdict.DANGEROUS): _ASKS,
    (Enforced.OUTSIDE, Verdict.FORBIDDEN): _NEVER,
}


def not_accepted(
    policy: SandboxPolicy, enforcement: Enforcement, accepted: Collection[str] = ()
) -> tuple[Weaker, ...]:
    """The parts that are weaker without anybody having said that this is acceptable.

    ``accept=None`` of a policy lets a command run, and is nobody's word: these parts are asked
    about. ``accepted``: those that a person took weaker for the session.
    """
    if policy.unconfined:
        return ()
    known = {*(policy.accept or ()), *accepted}
    return tuple(one for one in enforcement.weaker if not one.everywhere and one.part not in known)


def enforced_of(
    policy: SandboxPolicy,
    enforcement: Enforcement,
    *,
    asks_more: bool = False,
    accepted: Collection[str] = (),
) -> Enforced:
    """What is enforced of a policy while a command of a call runs.

    ``asks_more``: whether the call asks for a grant, or for no sandbox. Nothing is more than a
    policy that confines nothing.
    """
    if asks_more and not policy.unconfined:
        return Enforced.OUTSIDE
    return Enforced.WEAKER if not_accepted(policy, enforcement, accepted) else Enforced.FULL


def decide(
    assessment: Assessment,
    enforced: Enforced,
    mode: ApprovalMode,
    *,
    may_leave: bool = False,
    trusted: Ground | None = None,
    weaker: Collection[str] = (),
    asked_for: str = "",
) -> Decision:
    """What is done about a command: by the table, and by what was approved before.

    - ``may_leave``: whether what cannot do its work inside a sandbox is asked for as a call without
      one (``Profile.unsandboxed``, of a policy that confines anything); else it runs confined.
    - ``trusted``: ``TRUSTED_EXACT`` or ``TRUSTED_PREFIX`` for what a person approved before. It
      answers "ask" only, and a prefix never answers for what is dangerous.
    - ``weaker``, ``asked_for``: names of the parts that are weaker, and what the call asks for, to
      be named in the grounds.

    Raises ``InvalidArgument`` for a mode or a trust that there is not: the caller's fault.
    """
    if mode not in _MODES:
        raise InvalidArgument("mode", mode, "is no approval mode", ", ".join(APPROVALS))
    verdict = assessment.verdict
    if may_leave and verdict is Verdict.UNSANDBOXED:
        enforced = Enforced.OUTSIDE
    action = TABLE[enforced, verdict][_MODES[mode]]
    if action is Action.ALLOW:
        ground = Ground.SAFE if verdict is Verdict.SAFE else Ground.CONFINED
        return Decision(action, (Because(ground),), enforced)
    if action is Action.ASK and trusted is not None and _answers(trusted, verdict):
        return Decision(Action.ALLOW, (Because(trusted),), enforced)
    grounds = _of_command(assessment, enforced)
    if verdict is not Verdict.FORBIDDEN:
        if enforced is Enforced.OUTSIDE:
            grounds.append(Because(Ground.OUTSIDE, asked_for))
        if enforced is Enforced.WEAKER:
            grounds.append(Because(Ground.WEAKER, ", ".join(weaker)))
        if mode == "untrusted" and verdict in (Verdict.UNKNOWN, Verdict.UNSANDBOXED):
            grounds.append(Because(Ground.NOT_SAFE))
        if mode == "never":
            grounds.append(Because(Ground.NEVER))
    return Decision(action, tuple(grounds), enforced)


def _answers(trusted: Ground, verdict: Verdict) -> bool:
    """Whether what was approved before answers for a command that is asked about."""
    if trusted not in (Ground.TRUSTED_EXACT, Ground.TRUSTED_PREFIX):
        raise InvalidArgument("trusted", trusted, "is no trust", "trusted-exact, trusted-prefix")
    return trusted is Ground.TRUSTED_EXACT or verdict in (Verdict.SAFE, Verdict.UNKNOWN)


_OF_VERDICT = {
    Verdict.FORBIDDEN: Ground.FORBIDDEN,
    Verdict.DANGEROUS: Ground.DANGEROUS,
    Verdict.UNSANDBOXED: Ground.UNSANDBOXED,
}


def _of_command(assessment: Assessment, enforced: Enforced) -> list[Because]:
    """What of the command itself is asked about or refused, each once."""
    verdict = assessment.verdict
    ground = _OF_VERDICT.get(verdict)
    if ground is None or (ground is Ground.UNSANDBOXED and enforced is not Enforced.OUTSIDE):
        return []
    found = []
    for reason, _, _, detail in assessment.causes:
        if reason is Reason.RULE_ASKS:
            found.append(Because(Ground.RULE_ASKS, detail))
        elif reason is Reason.RULE_FORBIDS:
            found.append(Because(Ground.FORBIDDEN, detail))
        elif reason.verdict is verdict:
            found.append(Because(ground, f"{reason}: {detail or reason.why}"))
    return list(dict.fromkeys(found))
