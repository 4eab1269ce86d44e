"""What is said of a command before it runs: a verdict, and the causes of it.

Both lists are closed, so that a program may decide by them. The verdict of a command is the
strictest of its causes', and there is always a cause: what is safe says why as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

__all__ = ["Assessment", "Cause", "Reason", "Verdict"]


class Verdict(StrEnum):
    """What a command is, the mildest first.

    ``SAFE``: run as it stands it changes nothing, starts nothing of the workspace and sends
    nothing. What it may *read* is the policy's to say.
    """

    SAFE = "safe"
    UNKNOWN = "unknown"  # nothing is known for or against it
    UNSANDBOXED = "unsandboxed"  # it cannot do its work inside a sandbox
    DANGEROUS = "dangerous"  # a form that destroys, or gives away, what cannot be had back
    FORBIDDEN = "forbidden"  # a rule of the user forbids it


_ORDER = {verdict: rank for rank, verdict in enumerate(Verdict)}


class Reason(StrEnum):
    """Why: each with the verdict that it leads to and a sentence for people."""

    verdict: Verdict
    why: str
    rank: int  # of the verdict: the stricter the higher

    def __new__(cls, value: str, verdict: Verdict, why: str) -> Reason:
        """A member of three parts; as text it is its first."""
        self = str.__new__(cls, value)
        self._value_ = value
        self.verdict = verdict
        self.rank = _ORDER[verdict]
        self.why = self.__doc__ = why
        return self

    READS = "reads", Verdict.SAFE, "the program only reads, with these options"
    RULE_ALLOWS = "rule-allows", Verdict.SAFE, "a rule of the user allows it"

    EMPTY = "empty", Verdict.UNKNOWN, "there is no command"
    SIZE = "size", Verdict.UNKNOWN, "too long, too deep or too involved to be looked at"
    CHARACTERS = "characters", Verdict.UNKNOWN, "a control, invisible or invalid character"
    SYNTAX = "syntax", Verdict.UNKNOWN, "shell syntax beyond plain commands, lists and pipes"
    EXPANSION = "expansion", Verdict.UNKNOWN, "a word that is known only when it runs"
    REDIRECTION = "redirection", Verdict.UNKNOWN, "a redirection to or from a file"
    ASSIGNMENT = "assignment", Verdict.UNKNOWN, "a variable that may change what programs do"
    ENVIRONMENT = "environment", Verdict.UNKNOWN, "the environment may change what programs do"
    UNTRUSTED_PROGRAM = (
        "untrusted-program",
        Verdict.UNKNOWN,
        "the program may be one that a command put there",
    )
    PROGRAM = "program", Verdict.UNKNOWN, "a program of which nothing is known"
    OPTION = "option", Verdict.UNKNOWN, "an option or operand not known to be harmless"
    WRAPPER = "wrapper", Verdict.UNKNOWN, "what starts the program changes how it runs"
    EDITS = "edits", Verdict.UNKNOWN, "it changes files by itself, and not by a command"
    GIT_HELPERS = "git-helpers", Verdict.UNKNOWN, "the repository may name helpers that git runs"

    PRIVILEGES = "privileges", Verdict.UNSANDBOXED, "it wants the rights of another user"
    DAEMON = "daemon", Verdict.UNSANDBOXED, "a daemon outside the sandbox does the work"
    SYSTEM_PACKAGES = "system-packages", Verdict.UNSANDBOXED, "it changes the system's packages"

    REMOVAL = "removal", Verdict.DANGEROUS, "it removes files without asking"
    DISCARD = "discard", Verdict.DANGEROUS, "it throws away work that is not committed"
    HISTORY = "history", Verdict.DANGEROUS, "it rewrites or drops history"
    DISK = "disk", Verdict.DANGEROUS, "it writes to a disk past its file system"
    MACHINE = "machine", Verdict.DANGEROUS, "it stops or upsets the whole machine"
    PIPE_TO_SHELL = "pipe-to-shell", Verdict.DANGEROUS, "an interpreter runs what it is sent"
    CREDENTIALS = "credentials", Verdict.DANGEROUS, "it reads or gives out keys or passwords"
    RULE_ASKS = "rule-asks", Verdict.DANGEROUS, "a rule of the user wants to be asked"

    RULE_FORBIDS = "rule-forbids", Verdict.FORBIDDEN, "a rule of the user forbids it"


class Cause(NamedTuple):
    """One reason, with ``command[start:end]``, the part of the command that caused it.

    ``detail``: what the table's entry or the rule says of it; may be empty. ``start`` and ``end``
    count the characters of shell text (bytes if it was given as bytes) and the words of an argv.
    What stands in the text of an inner shell is shown by the word that holds that text.
    """

    reason: Reason
    start: int
    end: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Assessment:
    """The verdict on a command and all that led to it, the strictest first."""

    verdict: Verdict
    causes: tuple[Cause, ...]

    @classmethod
    def of(cls, causes: list[Cause]) -> Assessment:
        """The assessment that some causes, at least one, lead to."""
        if len(causes) > 1:
            causes = sorted(causes, key=lambda cause: -cause.reason.rank)
        return cls(causes[0].reason.verdict, tuple(causes))

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons, each once."""
        return tuple(dict.fromkeys(cause.reason for cause in self.causes))
