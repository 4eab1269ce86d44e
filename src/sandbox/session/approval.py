"""What a person is asked, and what an answer may be.

A request says all that a decision needs: the command with nothing hidden in it, why it is asked
about, and exactly what would be allowed. Which answers are offered is settled here, and no other
one counts: what hands on what runs is never approved for longer than it was read.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sandbox.command.verdict import Assessment, Cause, Verdict
from sandbox.session.decide import Because, Decision, Ground
from sandbox.session.keys import NO_SANDBOX, Key
from sandbox.session.prefixes import banned, prefix_of

__all__ = [
    "Answer",
    "ApprovalRequest",
    "Choice",
    "Shown",
    "is_only_weaker",
    "may_last",
    "request_of",
    "visible",
]


_PREFIX_MAX = 200  # characters: to be taken in at a glance


class Choice(StrEnum):
    """What may be answered, the least first."""

    DENY = "deny"
    ONCE = "once"
    SESSION = "session"  # exactly this command, until the session ends
    PREFIX = "prefix"  # all commands that begin so, until the session ends
    ALWAYS = "always"  # exactly this command, in this and later sessions
    WEAKER = "weaker"  # this one, and all others may run where these parts are enforced less


@dataclass(frozen=True, slots=True)
class Shown:
    """One reason of the assessment, in words, with the part of the command that caused it."""

    reason: str
    why: str
    part: str


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What is asked. All texts are made visible: nothing in them moves a cursor or is unseen.

    - ``command``: all of it; newlines are kept, an argv is written as a shell reads it.
      ``cwd``: where it runs. ``verdict``, ``reasons``: what it is.
    - ``grounds``: why it is asked about.
    - ``allows``: exactly what would be allowed, a line each: grants, ``no sandbox``, changes of the
      policy, parts that are enforced less. Empty: the command itself, under the policy.
    - ``evidence``: what is to be known about that; where it is known only from the command's own
      output, that anybody can have written it. ``justification``: what the agent says to it.
    - ``subject``: what is to be done: ``command`` or ``edit``. ``details``: what goes with it, each
      with what it is: the input of a command, the text that an edit replaces.
    - ``offers``: the answers that count, ``DENY`` always among them. ``prefix``: what ``PREFIX``
      would allow.
    """

    command: str
    cwd: str
    verdict: Verdict
    reasons: tuple[Shown, ...]
    grounds: tuple[Because, ...]
    allows: tuple[str, ...]
    evidence: str
    offers: tuple[Choice, ...]
    prefix: tuple[str, ...] = ()
    justification: str = ""
    subject: str = "command"
    details: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered, by whom, and why if that was said.

    ``prefix``: of ``PREFIX``, what was offered; may be left out. ``failed``: the ground of a denial
    that nobody gave, as there was nobody, or no answer that can be used; ``ask`` fills it in.
    """

    choice: Choice
    who: str
    why: str = ""
    prefix: tuple[str, ...] = ()
    failed: Ground | None = None

    @property
    def allows(self) -> bool:
        """Whether the command may run."""
        return self.choice is not Choice.DENY

    @property
    def ground(self) -> Ground:
        """The answer as a ground of what comes of it."""
        if self.failed is not None:
            return self.failed
        return Ground.APPROVED if self.allows else Ground.REFUSED

    @property
    def reason(self) -> str:
        """The ground in a sentence, with what was said to it."""
        said = self.why if self.why != self.ground.why else ""
        return f"{self.ground.why}: {said}" if said else self.ground.why


def request_of(
    command: str | bytes | Sequence[str | bytes],
    assessment: Assessment,
    decision: Decision,
    key: Key,
    *,
    allows: Sequence[str] = (),
    evidence: str = "",
    justification: str = "",
    details: Sequence[tuple[str, str]] = (),
    persistent: bool = False,
) -> ApprovalRequest:
    """The request for a command that is to be asked about.

    ``persistent``: whether ``ALWAYS`` may be offered at all.
    """
    offers = [Choice.DENY, Choice.ONCE, Choice.SESSION]
    prefix = _prefix(assessment.verdict, key)
    if prefix:
        offers.append(Choice.PREFIX)
    if persistent and may_last(assessment.verdict, key):
        offers.append(Choice.ALWAYS)
    if is_only_weaker(decision):
        offers.append(Choice.WEAKER)
    return ApprovalRequest(
        visible(_as_text(command)),
        visible(key.cwd),
        assessment.verdict,
        tuple(_shown(command, cause) for cause in assessment.causes),
        tuple(Because(one.ground, visible(one.detail)) for one in decision.grounds),
        tuple(visible(line) for line in allows),
        visible(evidence),
        tuple(offers),
        prefix,
        visible(justification),
        details=tuple((what, visible(text)) for what, text in details),
    )


def is_only_weaker(decision: Decision) -> bool:
    """Whether nothing is asked about but that parts of the policy are enforced less."""
    grounds = {one.ground for one in decision.grounds}
    return grounds - {Ground.NOT_SAFE} == {Ground.WEAKER}


def may_last(verdict: Verdict, key: Key) -> bool:
    """Whether what was approved may be kept for later sessions.

    Only what is not dangerous, runs in the sandbox, is plain commands of programs that no command
    could have written, and begins with nothing that hands on what runs.
    """
    is_mild = verdict in (Verdict.SAFE, Verdict.UNKNOWN) and NO_SANDBOX not in key.permissions
    return is_mild and key.lasting and not any(banned(part.words) for part in key.parts)


def _prefix(verdict: Verdict, key: Key) -> tuple[str, ...]:
    """The prefix that is offered: of one plain command that is not dangerous, in the sandbox."""
    is_mild = verdict in (Verdict.SAFE, Verdict.UNKNOWN) and NO_SANDBOX not in key.permissions
    if not is_mild or len(key.parts) != 1:
        return ()
    prefix = prefix_of(key.parts[0].words) or ()
    text = " ".join(prefix)
    return prefix if text.isprintable() and len(text) <= _PREFIX_MAX else ()


def _as_text(command: str | bytes | Sequence[str | bytes]) -> str:
    """A command as a shell reads it."""
    if isinstance(command, (str, bytes)):
        return _decoded(command)
    return shlex.join(_decoded(word) for word in command)


def _decoded(text: str | bytes) -> str:
    return text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text


def _shown(command: str | bytes | Sequence[str | bytes], cause: Cause) -> Shown:
    part = visible(_as_text(command[cause.start : cause.end]))
    why = f"{cause.reason.why}: {cause.detail}" if cause.detail else cause.reason.why
    return Shown(cause.reason, visible(why), part)


# Printable, and yet nothing is seen of them.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def visible(text: str) -> str:
    """Text in which a person sees every character, in the order that they have; newlines stay.

    Control and format characters, blanks other than the space, and bytes that are no text are
    written as ``<U+202E>`` and ``<0xFF>``.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one == "\n" or _is_seen(one) else _written(one) for one in text)


def _is_seen(character: str) -> bool:
    if character in _BLANK or "\ufe00" <= character <= "\ufe0f":  # of variants
        return False
    return character.isprintable() and not 0xE0100 <= ord(character) <= 0xE01EF


def _written(character: str) -> str:
    code = ord(character)
    # What os.fsdecode makes of a byte that is not UTF-8.
    return f"<0x{code - 0xDC00:02X}>" if 0xDC80 <= code <= 0xDCFF else f"<U+{code:04X}>"
