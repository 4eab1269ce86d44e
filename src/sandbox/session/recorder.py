"""What happened to one call, as records: gathered, and written together before it goes on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from sandbox.command.verdict import Assessment
from sandbox.errors import SandboxException
from sandbox.live import Sandbox
from sandbox.request import encode_words
from sandbox.result import Result
from sandbox.session.approval import Answer, ApprovalRequest
from sandbox.session.decide import Decision
from sandbox.session.events import (
    ApprovalRecord,
    AssessmentRecord,
    CauseRow,
    DenialRow,
    EditRecord,
    EscalationRecord,
    ExitRecord,
    FilesRecord,
    OutputRow,
    PathList,
    Record,
    SpawnRecord,
    UsageRow,
)
from sandbox.session.keys import NO_SANDBOX

if TYPE_CHECKING:
    from sandbox.session.session import Session

__all__ = ["Recorder"]

_DENIALS_MAX = 100


class Recorder:
    """The records of one call; without a log it gathers none."""

    def __init__(self, session: Session, call: int) -> None:
        self._session, self.call = session, call
        self._about: dict[str, Any] = {"session": session.id, "call": call}
        self._gathered: list[Record] = []

    def flush(self) -> None:
        """Writes what was gathered. Raises ``RecordsLost``: then nothing more is to happen."""
        gathered, self._gathered = self._gathered, []
        if self._session.log is not None:
            self._session.log.append(*gathered)

    def assessment(
        self, command: str | Sequence[str], cwd: str, found: Assessment, decision: Decision
    ) -> None:
        """What was asked for, and what was decided."""
        if self._session.log is None:
            return
        rows = [CauseRow(reason=str(r), start=s, end=e, detail=d) for r, s, e, d in found.causes]
        self._gathered.append(
            AssessmentRecord(
                **self._about,
                command=command if isinstance(command, str) else [*map(_text, command)],
                cwd=cwd,
                verdict=str(found.verdict),
                reasons=rows,
                decision=decision.action.value,
                grounds=[str(ground) for ground in decision.grounds],
                enforcement=str(decision.enforced),
            )
        )

    def approval(self, request: ApprovalRequest, answer: Answer, seconds: float) -> None:
        """Somebody was asked and answered."""
        self._gathered.append(
            ApprovalRecord(
                **self._about,
                who=answer.who,
                answer=answer.choice.value,
                why=answer.why,
                seconds=seconds,
                reasons=[str(ground) for ground in request.grounds],
                grant="; ".join(request.allows),
                prefix=list(answer.prefix),
            )
        )

    def escalation(self, step: Mapping[str, Any], difference: Sequence[str]) -> None:
        """A step on the way to a retry."""
        self._gathered.append(EscalationRecord(**self._about, **step, difference=list(difference)))

    def spawn(
        self,
        command: str | Sequence[str],
        cwd: str,
        box: Sandbox,
        names: Sequence[str],
        attempt: Literal[1, 2],
        permissions: Sequence[str],
    ) -> None:
        """A command is about to be started."""
        session = self._session
        if session.log is None:
            return
        wider = box.policy != session.policy
        rights: Literal["sandboxed", "wider", "unsandboxed"] = "wider" if wider else "sandboxed"
        if NO_SANDBOX in permissions:
            rights = "unsandboxed"
        enforcement = box.enforcement
        self._gathered.append(
            SpawnRecord(
                **self._about,
                argv=[os.fsdecode(word) for word in encode_words(command)],
                cwd=cwd,
                policy=session.digest(box.policy),
                mode=session.mode_of(box.policy),
                isolation=enforcement.isolation,
                weaker=[one.part for one in enforcement.weaker],
                environment=list(names),
                attempt=attempt,
                permissions=rights,
            )
        )

    def exit(self, result: Result | None, error: SandboxException | None) -> None:
        """A command ended, or did not start."""
        if self._session.log is None:
            return
        if result is None:
            denials = getattr(error, "denials", ())
            self._gathered.append(
                ExitRecord(
                    **self._about,
                    returncode=None,
                    error=f"{type(error).__name__}: {error}",
                    denied=len(denials),
                    denials=[DenialRow.of(one) for one in denials[:_DENIALS_MAX]],
                )
            )
            return
        usage = result.usage
        self._gathered.append(
            ExitRecord(
                **self._about,
                returncode=result.returncode,
                signal=result.signal,
                timed_out=result.timed_out,
                memory_exceeded=result.memory_exceeded,
                duration=result.duration,
                usage=UsageRow(user=usage.user, system=usage.system, max_rss=usage.max_rss),
                stdout=OutputRow.of(result.stdout, result.stdout_truncated),
                stderr=OutputRow.of(result.stderr, result.stderr_truncated),
                swept=result.swept,
                denied=len(result.denials),
                denials=[DenialRow.of(one) for one in result.denials[:_DENIALS_MAX]],
            )
        )

    def files(self, found: Any) -> None:
        """What a command created, changed and deleted below the roots."""
        self._gathered.append(
            FilesRecord(
                **self._about,
                created=PathList.of(list(found.created)),
                changed=PathList.of(list(found.changed)),
                deleted=PathList.of(list(found.deleted)),
                complete=found.complete,
                why=found.why,
            )
        )

    def edit(self, **said: Any) -> None:
        """One file was edited, or was not to be."""
        self._gathered.append(EditRecord(**self._about, **said))


def _text(word: Any) -> str:
    return os.fsdecode(word)
