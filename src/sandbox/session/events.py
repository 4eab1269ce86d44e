"""The records of a session: a closed list of kinds, each one line of JSON. Pure.

The classes are the truth: what a log may hold, what readers are given and what is documented comes
of them. No class has a place for the value of a variable, for input or for output: of those there
are names, sizes and digests. Lists that a command can lengthen are cut at a stated number.
"""

from __future__ import annotations

import builtins
import time
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import Struct

from sandbox.denial import Denial
from sandbox.profile.values import ApprovalMode, Mode

__all__ = [
    "GENESIS",
    "KINDS",
    "ApprovalRecord",
    "AssessmentRecord",
    "CauseRow",
    "DenialRow",
    "EditRecord",
    "EndRecord",
    "EscalationRecord",
    "ExitRecord",
    "FileRow",
    "FilesRecord",
    "OutputRow",
    "PathList",
    "ProfileRow",
    "Record",
    "RecoveredRecord",
    "SessionRecord",
    "SpawnRecord",
    "UsageRow",
]

GENESIS = "0" * 64  # what the first record has for the digest of the one before
_PATHS_MAX = 1000
_CHARACTERS_MAX = 256 << 10  # of all paths of a list together


class Record(Struct, frozen=True, kw_only=True, tag_field="event"):
    """What every record has.

    - ``seq``: its number, from 1 over the whole log. ``prev``: SHA-256, in hexadecimal digits, of
      the line before with its newline; 64 zeros in the first. Both are the log's to fill in.
    - ``time``: when it was made, in seconds of UTC since 1970. ``session``: of which session.
    - ``mode``: the session's, as a person knows it; in ``spawn`` that of the command. Empty where
      there is no session behind it.
    - ``call``: which tool call of the session, from 1; 0 for none.
    - ``escaped``: whether the texts of the line are (``session.lines``); false in what was read.
    """

    seq: int = 0
    prev: str = ""
    time: float = msgspec.field(default_factory=time.time)
    session: str
    mode: Mode | Literal[""] = ""
    call: int = 0
    escaped: bool = False


class _Row(Struct, frozen=True, kw_only=True):
    """A part of a record."""


class ProfileRow(_Row, frozen=True, kw_only=True):
    """A file that the profile came of: its layer, its name, its SHA-256."""

    layer: str
    file: str
    sha256: str


class SessionRecord(Record, frozen=True, kw_only=True, tag="session"):
    """A session began.

    ``user``: number and name. ``policy``: digest of the policy. ``trusted``: whether the user has
    trusted the project. ``version``: of this package.
    """

    pid: int
    uid: int
    user: str
    workspace: str
    mode: Mode
    approval: ApprovalMode
    policy: str
    profiles: list[ProfileRow]
    trusted: bool
    version: str


class EndRecord(Record, frozen=True, kw_only=True, tag="end"):
    """A session ended: after how many calls, and why."""

    calls: int
    why: str


class CauseRow(_Row, frozen=True, kw_only=True):
    """Why a command was judged as it was: ``command[start:end]`` caused it."""

    reason: str
    start: int
    end: int
    detail: str = ""


class AssessmentRecord(Record, frozen=True, kw_only=True, tag="assessment"):
    """What a tool call asked for, and what was decided.

    ``command``: as the caller gave it, shell text or argv. ``grounds``: why that decision, each in
    a sentence. ``enforcement``: which class of enforcement the decision counted on.
    """

    command: str | list[str]
    cwd: str
    verdict: str
    reasons: list[CauseRow]
    decision: Literal["allow", "ask", "deny"]
    grounds: list[str]
    enforcement: str


class ApprovalRecord(Record, frozen=True, kw_only=True, tag="approval"):
    """Somebody was asked and answered.

    ``who`` answered, ``why``, after how many ``seconds``. Asked for were the ``reasons`` and, where
    it would widen the policy, the ``grant``. ``prefix``: what the answer goes for beside this call.
    """

    who: str
    answer: Literal["once", "session", "prefix", "always", "weaker", "deny"]
    why: str = ""
    seconds: float
    reasons: list[str]
    grant: str = ""
    prefix: list[str] = []


class SpawnRecord(Record, frozen=True, kw_only=True, tag="spawn"):
    """A command is about to be started.

    An exit record follows, unless whoever waits stops for good: a process that is killed, an event
    loop that is closed.

    ``argv``: as run. ``environment``: names of its variables, in order. ``weaker``: names of the
    parts of the policy that are not enforced in full. ``attempt``: 2 is a retry after an approval.
    """

    argv: list[str]
    cwd: str
    policy: str
    mode: Mode
    isolation: str
    weaker: list[str]
    environment: list[str]
    attempt: Literal[1, 2]
    permissions: Literal["sandboxed", "wider", "unsandboxed"]


class OutputRow(_Row, frozen=True, kw_only=True):
    """What came out of one stream.

    ``bytes`` that were written, ``truncated`` of them not kept, ``sha256`` of those that were.
    """

    bytes: int
    sha256: str
    truncated: int

    @classmethod
    def of(cls, kept: builtins.bytes, truncated: int) -> OutputRow:
        """Of what was kept, and how many bytes were not."""
        digest = sha256(kept).hexdigest()
        return cls(bytes=len(kept) + truncated, sha256=digest, truncated=truncated)


class UsageRow(_Row, frozen=True, kw_only=True):
    """Seconds of processor time, and bytes at the largest."""

    user: float
    system: float
    max_rss: int


class DenialRow(_Row, frozen=True, kw_only=True):
    """An access that was refused or undone, as in ``sandbox.Denial``; ``grant`` as options."""

    kind: str
    what: str
    evidence: str
    rule: str
    grant: str = ""
    change: str = ""
    undo: str = ""

    @classmethod
    def of(cls, denial: Denial) -> DenialRow:
        """Of a denial of a result. Its ``detail`` is left out: it may hold what was printed."""
        grant = denial.grant
        return cls(
            kind=denial.kind,
            what=denial.what,
            evidence=denial.evidence,
            rule=denial.rule,
            grant=(grant.option or grant.call) if grant is not None else "",
            change=denial.change,
            undo=denial.undo,
        )


class ExitRecord(Record, frozen=True, kw_only=True, tag="exit"):
    """A command ended, or did not start.

    ``returncode`` is None and ``error`` says why where it did not start, or its end is not known,
    as it was ended with whoever waited for it; the rest is as in ``sandbox.Result``. ``denied``:
    how many denials there were, of which ``denials`` has the first 100.
    """

    returncode: int | None
    signal: int | None = None
    timed_out: bool = False
    memory_exceeded: bool = False
    duration: float = 0.0
    usage: UsageRow | None = None
    stdout: OutputRow | None = None
    stderr: OutputRow | None = None
    swept: int = 0
    denied: int = 0
    denials: list[DenialRow] = []
    error: str = ""


class EscalationRecord(Record, frozen=True, kw_only=True, tag="escalation"):
    """A step on the way to one retry under a wider policy: which, and what would change."""

    state: str
    cause: str
    grant: str = ""
    difference: list[str] = []
    old_policy: str = ""
    new_policy: str = ""


class FileRow(_Row, frozen=True, kw_only=True):
    """A file's size in bytes and its SHA-256."""

    size: int
    sha256: str


class EditRecord(Record, frozen=True, kw_only=True, tag="edit"):
    """A file was edited; ``before`` or ``after`` is None where there is none then."""

    action: Literal["create", "replace", "delete", "patch"]
    path: str
    before: FileRow | None
    after: FileRow | None
    error: str = ""


class PathList(_Row, frozen=True, kw_only=True):
    """Paths below the roots; ``total`` is how many there were, ``paths`` the first of them."""

    paths: list[str] = []
    total: int = 0

    @classmethod
    def of(cls, paths: list[str]) -> PathList:
        """In order; cut at 1000 paths or 256 Ki characters."""
        kept, room = [], _CHARACTERS_MAX
        for path in sorted(paths)[:_PATHS_MAX]:
            room -= len(path)
            if room < 0:
                break
            kept.append(path)
        return cls(paths=kept, total=len(paths))


class FilesRecord(Record, frozen=True, kw_only=True, tag="files"):
    """What a call changed below the roots, by the file system; not ``complete``: ``why`` not."""

    created: PathList
    changed: PathList
    deleted: PathList
    complete: bool
    why: str = ""


class RecoveredRecord(Record, frozen=True, kw_only=True, tag="recovered"):
    """The log was put right by this writer, after another one ended in the middle of a write.

    ``kept``: whole records that the head did not count yet. ``dropped``: bytes of half a record
    that were taken away, ``sha256`` theirs. ``missing``: bytes that the head counted and that are
    not there, as after a power failure: the numbers of the records show how many those were.
    """

    kept: int
    dropped: int
    sha256: str
    missing: int


KINDS: dict[str, type[Record]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        SessionRecord,
        EndRecord,
        AssessmentRecord,
        ApprovalRecord,
        SpawnRecord,
        ExitRecord,
        EscalationRecord,
        EditRecord,
        FilesRecord,
        RecoveredRecord,
    )
}
