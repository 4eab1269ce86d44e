"""What happened to one call, as records: gathered, and written together before it goes on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

from sandbox.command.verdict import Assessment
from sandbox.errors import SandboxException
from sandbox.live import Sandbox
from sandbox.policy import SandboxPolicy
from sandbox.profile.compose import mode_of
from sandbox.profile.values import Mode
from sandbox.request import encode_words
from sandbox.result import Enforcement, Result
from sandbox.session.approval import Answer, ApprovalRequest, Choice
from sandbox.session.changes import FileChanges
from sandbox.session.decide import Decision
from sandbox.session.edit import Action, Edit
from sandbox.session.escalation import Event, Offer, State
from sandbox.session.events import (
    ApprovalRecord,
    AssessmentRecord,
    CauseRow,
    DenialRow,
    EditRecord,
    EscalationRecord,
    ExitRecord,
    FileRow,
    FilesRecord,
    OutputRow,
    PathList,
    Record,
    SpawnRecord,
    UsageRow,
)
from sandbox.session.keys import NO_SANDBOX, digest_of
from sandbox.session.log import Log
from sandbox.session.perform import Failure, Written

__all__ = ["Recorder", "digest_in_records", "mode_in"]

_DENIALS_MAX = 100
_KEPT = 64
_ACTIONS: dict[Action, Literal["create", "replace", "delete", "patch"]] = {
    Action.CREATE: "create",
    Action.REPLACE: "replace",
    Action.REPLACE_TEXT: "replace",
    Action.DELETE: "delete",
    Action.PATCH: "patch",
}


@lru_cache(_KEPT)
def digest_in_records(policy: SandboxPolicy) -> str:
    """A policy in records: who reads them finds no value of a variable by trying."""
    return digest_of(policy)


@lru_cache(_KEPT)
def mode_in(policy: SandboxPolicy, workspace: str) -> Mode:
    """The mode that a policy comes to in a workspace."""
    return mode_of(policy, "read-only", workspace)


class Recorder:
    """The records of one call; without a log it gathers none.

    ``mode``, ``policy``, ``workspace``: of the session.
    """

    def __init__(
        self,
        log: Log | None,
        session: str,
        mode: Mode,
        call: int,
        policy: SandboxPolicy,
        workspace: str,
    ) -> None:
        self._log, self.call = log, call
        self._policy, self._workspace = policy, workspace
        self._about: dict[str, Any] = {"session": session, "mode": mode, "call": call}
        self._gathered: list[Record] = []

    def flush(self) -> None:
        """Writes what was gathered. Raises ``RecordsLost``: then nothing more is to happen."""
        gathered, self._gathered = self._gathered, []
        if self._log is not None:
            self._log.append(*gathered)

    def assessment(
        self, command: str | Sequence[str], cwd: str, found: Assessment, decision: Decision
    ) -> None:
        """What was asked for, and what was decided."""
        if self._log is None:
            return
        rows = [CauseRow(reason=str(r), start=s, end=e, detail=d) for r, s, e, d in found.causes]
        self._gathered.append(
            AssessmentRecord(
                **self._about,
                command=command if isinstance(command, str) else [*map(os.fsdecode, command)],
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

    def unanswered(self, request: ApprovalRequest, error: BaseException, seconds: float) -> None:
        """Somebody was asked, and whoever waited for the answer went away. Written at once."""
        answer = Answer(Choice.DENY, "nobody", f"nobody waits for an answer ({_said(error)})")
        self.approval(request, answer, seconds)
        self.flush()

    def escalation(self, event: Event, found: Offer, lines: Sequence[str]) -> None:
        """A step on the way to a retry: whence, by what, and how the policies differ."""
        state = State.RUNNING if event is Event.DENIAL else State.OFFERING
        self._gathered.append(
            EscalationRecord(
                **self._about,
                state=str(state),
                cause=str(event),
                grant="; ".join(lines),
                difference=[f"+ {line}" for line in lines],
                old_policy=digest_in_records(self._policy),
                new_policy=digest_in_records(found.policy),
            )
        )

    def spawn(
        self,
        command: str | Sequence[str],
        cwd: str,
        box: Sandbox,
        enforcement: Enforcement,
        names: Sequence[str],
        attempt: Literal[1, 2],
        permissions: Sequence[str],
    ) -> None:
        """A command is about to be started."""
        if self._log is None:
            return
        wider = box.policy != self._policy
        rights: Literal["sandboxed", "wider", "unsandboxed"] = "wider" if wider else "sandboxed"
        if NO_SANDBOX in permissions:
            rights = "unsandboxed"
        self._gathered.append(
            SpawnRecord(
                **{**self._about, "mode": mode_in(box.policy, self._workspace)},
                argv=[os.fsdecode(word) for word in encode_words(command)],
                cwd=cwd,
                policy=digest_in_records(box.policy),
                isolation=enforcement.isolation,
                weaker=[one.part for one in enforcement.weaker],
                environment=list(names),
                attempt=attempt,
                permissions=rights,
            )
        )

    def exit(self, result: Result | None, error: BaseException | None) -> None:
        """A command ended, did not start, or was ended as its caller raised something."""
        if self._log is None:
            return
        if result is None:
            denials = getattr(error, "denials", ())
            self._gathered.append(
                ExitRecord(
                    **self._about,
                    returncode=None,
                    error=_said(error),
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

    def files(self, found: FileChanges) -> None:
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

    def edit(self, edit: Edit, done: Written | None, failure: Failure | None) -> None:
        """One file was edited, or an edit failed before any was."""
        path = done.path if done is not None else failure.path if failure is not None else edit.path
        self._gathered.append(
            EditRecord(
                **self._about,
                action=_ACTIONS[edit.action],
                path=path,
                before=_file(done.size_before, done.sha256_before) if done is not None else None,
                after=_file(done.size_after, done.sha256_after) if done is not None else None,
                error=f"{failure.path}: {failure.cause}" if failure is not None else "",
            )
        )


def _said(error: BaseException | None) -> str:
    """What went wrong; of a caller's own exceptions only the kind: what they say may be data."""
    kind = type(error).__name__
    if isinstance(error, SandboxException):
        return f"{kind}: {error}"
    says = "" if isinstance(error, Exception) or not str(error) else f": {error}"
    return f"interrupted: {kind}{says}"


def _file(size: int | None, sha256: str) -> FileRow | None:
    return None if size is None else FileRow(size=size, sha256=sha256)
