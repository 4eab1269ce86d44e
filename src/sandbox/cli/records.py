"""A record in one line for a person."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from sandbox.printed import printable
from sandbox.session.chain import Line
from sandbox.session.events import (
    KINDS,
    ApprovalRecord,
    AssessmentRecord,
    EditRecord,
    EndRecord,
    EscalationRecord,
    ExitRecord,
    FilesRecord,
    PathList,
    Record,
    RecoveredRecord,
    SessionRecord,
    SpawnRecord,
)

__all__ = ["Shown", "shown"]

_WORDS_MAX = 300  # characters of a command, or of a text, in a line
_SESSION = 8  # characters of a session's id
_EVENT = max(map(len, KINDS))


class Shown(NamedTuple):
    """A line's parts: when and where, which event, what; ``bad``: refused, failed or not right."""

    where: str
    event: str
    what: str
    bad: bool


def shown(line: Line) -> Shown:
    """What a line of a log says. All of it is printable."""
    record = line.record
    if record is None:
        raw = line.raw[:_WORDS_MAX].decode("utf-8", "backslashreplace").rstrip("\n")
        where = f"segment {line.segment} line {line.number}"
        return Shown(where, "no record", printable(raw), True)
    clock = time.localtime(record.time)
    parts = round(record.time % 1 * 1000) % 1000
    where = f"{time.strftime('%Y-%m-%d %H:%M:%S', clock)}.{parts:03d}"
    call = f"#{record.call}" if record.call else "-"
    where = f"{where} {printable(record.session[:_SESSION])} {call:>4}"
    what, bad = _WHAT[type(record)](record)
    event = str(record.__struct_config__.tag)
    return Shown(where, event.ljust(_EVENT), printable(what), bad)


def _words(command: str | list[str]) -> str:
    text = command if isinstance(command, str) else shlex.join(command)
    return text if len(text) <= _WORDS_MAX else f"{text[:_WORDS_MAX]}..."


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _session(one: SessionRecord) -> tuple[str, bool]:
    trusted = "trusted" if one.trusted else "not trusted"
    what = f"{one.user} in {one.workspace} ({trusted})"
    return f"{what}, mode {one.mode}, approval {one.approval}, process {one.pid}", False


def _end(one: EndRecord) -> tuple[str, bool]:
    return f"after {one.calls} calls: {one.why}", False


def _assessment(one: AssessmentRecord) -> tuple[str, bool]:
    reasons = ", ".join(dict.fromkeys(cause.reason for cause in one.reasons))
    judged = f"{one.decision} ({one.verdict}: {reasons})"
    return f"{judged} {_words(one.command)}", one.decision == "deny"


def _approval(one: ApprovalRecord) -> tuple[str, bool]:
    grant = f"for {one.grant}" if one.grant else ""
    prefix = f"prefix {_words(one.prefix)}" if one.prefix else ""
    said = f"{one.answer} by {one.who} after {one.seconds:.1f} s"
    return _joined(said, one.why, grant, prefix), one.answer == "deny"


def _spawn(one: SpawnRecord) -> tuple[str, bool]:
    how = f"{one.isolation}, {one.mode}"
    if one.permissions != "sandboxed":
        how += f", {one.permissions}"
    if one.attempt > 1:
        how += f", attempt {one.attempt}"
    if one.weaker:
        how += f", not enforced: {' '.join(one.weaker)}"
    return f"{_words(one.argv)} in {one.cwd} ({how})", one.permissions == "unsandboxed"


def _exit(one: ExitRecord) -> tuple[str, bool]:
    if one.error:
        return f"no status: {one.error}", True
    ended = f"status {one.returncode}" if one.signal is None else f"signal {one.signal}"
    ended += " (its time was up)" if one.timed_out else ""
    ended += " (too much memory)" if one.memory_exceeded else ""
    swept = f"{one.swept} processes ended with it" if one.swept else ""
    refused = [
        f"{denial.change or 'refused'}: {denial.kind} {denial.what}" for denial in one.denials
    ]
    more = f"{one.denied} denials" if one.denied > len(one.denials) else ""
    took = f"{ended} after {one.duration:.3f} s"
    return _joined(took, swept, *refused, more), one.returncode != 0 or bool(refused)


def _escalation(one: EscalationRecord) -> tuple[str, bool]:
    return _joined(f"{one.state} ({one.cause})", one.grant, *one.difference), False


def _edit(one: EditRecord) -> tuple[str, bool]:
    sizes = " -> ".join(str(row.size) if row else "none" for row in (one.before, one.after))
    return _joined(f"{one.action} {one.path} ({sizes} bytes)", one.error), bool(one.error)


def _files(one: FilesRecord) -> tuple[str, bool]:
    lists = {"created": one.created, "changed": one.changed, "deleted": one.deleted}
    parts = [f"{name} {_paths(each)}" for name, each in lists.items() if each.total]
    incomplete = "" if one.complete else f"not complete: {one.why}"
    return _joined(*parts, incomplete) or "nothing changed", not one.complete


def _paths(each: PathList) -> str:
    text = " ".join(shlex.quote(path) for path in each.paths)
    text = text if len(text) <= _WORDS_MAX else f"{text[:_WORDS_MAX]}..."
    return f"{each.total}: {text}"


def _recovered(one: RecoveredRecord) -> tuple[str, bool]:
    kept = f"{one.kept} records of a writer that was killed" if one.kept else ""
    dropped = f"dropped {one.dropped} bytes of half a record" if one.dropped else ""
    missing = f"{one.missing} bytes of records are missing" if one.missing else ""
    return _joined(kept, dropped, missing), bool(one.missing)


_WHAT: dict[type[Record], Callable[[Any], tuple[str, bool]]] = {
    SessionRecord: _session,
    EndRecord: _end,
    AssessmentRecord: _assessment,
    ApprovalRecord: _approval,
    SpawnRecord: _spawn,
    ExitRecord: _exit,
    EscalationRecord: _escalation,
    EditRecord: _edit,
    FilesRecord: _files,
    RecoveredRecord: _recovered,
}
