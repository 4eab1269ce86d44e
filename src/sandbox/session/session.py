"""An agent's session: what all its tool calls have in common.

A session is a policy with its sandboxes, who is asked, what was approved, and the log. What happens
to one call stands in ``pipeline``, for an edit in ``editing``; here is what they need. What a
session keeps for itself, its log and the file of approvals, is denied to
every command: neither may be read or written from inside.
"""

from __future__ import annotations

import hmac
import os
import pwd
import secrets
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Any, Self

from sandbox.command.context import Context
from sandbox.command.rules import Rules
from sandbox.entries import Access, Entry
from sandbox.errors import InvalidArgument, SandboxException
from sandbox.live import Sandbox
from sandbox.locks import ForkLock
from sandbox.policy import SandboxPolicy
from sandbox.presets import MODES
from sandbox.profile.load import check_paths, load
from sandbox.profile.values import ApprovalMode, Mode, Profile
from sandbox.request import existing_directory, input_bytes, working_directory
from sandbox.result import Enforcement, Weaker
from sandbox.session.approval import Answer, ApprovalRequest, Choice
from sandbox.session.approvers import Approver, AsyncApprover, approver_of
from sandbox.session.boxes import Boxes
from sandbox.session.decide import (
    Enforced,
    Ground,
    enforced_of,
    not_accepted,
)
from sandbox.session.events import EndRecord, ProfileRow, SessionRecord
from sandbox.session.keys import Key, digest_of
from sandbox.session.log import Log
from sandbox.session.recorder import Recorder, digest_in_records, mode_in
from sandbox.session.trust import Trust
from sandbox.session.trustfile import TrustFile
from sandbox.session.values import ToolCall
from sandbox.session.watching import Look, Watching, roots_of
from sandbox.version import __version__

__all__ = ["Session"]

_KEPT = 64
_MODES = list(MODES)


class Session:
    """An agent's session. A context manager; ``close`` ends what runs in it.

    - ``profile``: a ``Profile``, a ``SandboxPolicy`` alone, or the name of a profile; None for what
      is in force in the workspace (``sandbox.load_profile``).
    - ``workspace``: the directory of the project; default: the working directory.
    - ``approver``: who is asked: a function, an object with ``ask(request)``, also asynchronous, or
      None for nobody: then what has to be asked about is denied.
    - ``approval``: when to ask, in the place of what the profile says.
    - ``log``: True for the user's log, a directory or a ``Log`` for another one, False for none.
    - ``trust_file``: where approvals may be kept for later sessions: True for the user's file, or a
      path. With None nothing outlives the session.
    - ``changes``: whether it is recorded which files each command created, changed and deleted.

    Threads may share a session, and its calls run at the same time; in a forked child it is one of
    its own, with what was approved before. Raises ``PolicyError`` and
    ``HostError`` as ``Sandbox`` does, ``Unavailable`` where there can be no log.
    """

    def __init__(
        self,
        profile: Profile | SandboxPolicy | str | None = None,
        *,
        workspace: str | os.PathLike[str] | None = None,
        approver: Approver | AsyncApprover | Callable[[ApprovalRequest], Any] | None = None,
        approval: ApprovalMode | None = None,
        log: Log | str | os.PathLike[str] | bool = True,
        trust_file: str | bool | None = None,
        changes: bool = True,
    ) -> None:
        self.workspace = os.path.realpath(existing_directory(working_directory(workspace)))
        self.profile = _profile(profile, self.workspace)
        self.approval = approval or self.profile.approval
        self.approver = approver_of(approver)
        self.id = secrets.token_hex(8)
        self.cwd = self.workspace
        self._closed = False
        self._calls = 0
        self._lock, self._pid = ForkLock(), os.getpid()
        self.trust_file = _trust_file(trust_file, self.workspace)
        self._secret = self.trust_file.secret if self.trust_file else secrets.token_bytes(32)
        self.trust = Trust(self.workspace, self.trust_file)
        self.log = _log(log)
        self.policy = self._kept_apart(self.profile.policy)
        self._contexts: dict[tuple[Any, ...], Context] = {}
        self._rules = Rules(self.profile.rules)
        self.boxes = Boxes(self.policy, self.workspace)
        # What changed is for the record alone.
        self._watching = Watching() if changes and self.log is not None else None
        self._finalizer = weakref.finalize(self, self.boxes.close)
        if self.log is not None:
            self.log.append(self._begun())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close("" if error is None else f"{type(error).__name__}: {error}")

    def close(self, why: str = "") -> None:
        """Ends what runs in it and forgets its approvals. Idempotent.

        ``why``: for the record. Raises ``RecordsLost``.
        """
        with self._lock.held:
            if self._closed:
                return
            self._closed = True
        self._finalizer()
        self.trust.clear()
        if self._watching is not None:
            self._watching.close()
        if self.log is not None and self._pid == os.getpid():
            self.log.append(EndRecord(session=self.id, mode=self.mode, calls=self._calls, why=why))
            self.log.sync()

    @property
    def is_over(self) -> bool:
        """Whether it was closed, or its records were lost."""
        return self._closed or (self.log is not None and self.log.is_lost)

    @cached_property
    def mode(self) -> Mode:
        """The mode as a person knows it; never less than the policy comes to."""
        return max(self.profile.mode, mode_in(self.policy, self.workspace), key=_MODES.index)

    @property
    def may_leave(self) -> bool:
        """Whether a run with no sandbox may be asked for."""
        return self.profile.unsandboxed and not self.policy.unconfined

    def change_directory(self, path: str | os.PathLike[str]) -> str:
        """Makes a directory that of all further calls that name none, and returns it.

        It grants nothing. Raises ``WorkingDirectoryError``.
        """
        self.cwd = existing_directory(os.path.realpath(os.path.join(self.cwd, path)))
        return self.cwd

    # What the steps of a call need.

    def recorder(self) -> Recorder:
        """For one call, which is counted. Raises ``InvalidArgument`` for a closed session."""
        with self._lock.held:
            if self._closed:
                raise InvalidArgument("session", self.id, "was closed")
            if self._pid != os.getpid():
                self._go_on_in_child()
            self._calls += 1
            return Recorder(self.log, self.id, self.mode, self._calls, self.policy, self.workspace)

    def _go_on_in_child(self) -> None:
        """After a fork it is a session of its own: numbers of calls are not given twice."""
        self.id, self._calls, self._pid = secrets.token_hex(8), 0, os.getpid()
        if self._watching is not None:
            self._watching = Watching()
        if self.log is not None:
            self.log.append(self._begun())

    def directory(self, cwd: str | None) -> str:
        """Where a call runs: without links, so that what was approved there stays there."""
        return self.cwd if cwd is None else _real(os.path.join(self.cwd, cwd))

    def weaker(self, enforcement: Enforcement) -> tuple[Weaker, ...]:
        """The parts that are weaker, and that nobody took so."""
        return not_accepted(self.policy, enforcement, self.trust.accepted)

    def enforced(self, enforcement: Enforcement, asks_more: bool = False) -> Enforced:
        """What would be enforced of a call."""
        accepted = self.trust.accepted
        return enforced_of(self.policy, enforcement, asks_more=asks_more, accepted=accepted)

    def context(self, env: dict[str, str], *, helpers_off: bool) -> Context:
        """What an assessment has to know about where a command will run."""
        box = self.boxes.base
        names, path = box.variables(env or None)
        key = (names, path, helpers_off)
        found = self._contexts.get(key)
        if found is None:
            if len(self._contexts) >= _KEPT:
                self._contexts.clear()
            found = self._contexts[key] = Context(
                path=tuple(filter(os.path.isabs, path.split(":"))),
                writable=box.resolved.writable,
                environment=names,
                rules=self._rules,
                git_helpers_off=helpers_off,
            )
        return found

    @cached_property
    def key_digest(self) -> str:
        """The session's policy in what approvals are remembered for."""
        return digest_of(self.profile.policy, self._secret)

    def marks(self, call: ToolCall, weaker: Sequence[Weaker]) -> list[str]:
        """What else an approval is of: a call's variables and input, and what is enforced less.

        Values cannot be read there.
        """
        found = [
            f"variable {name} {self._mark(os.fsencode(value))}"
            for name, value in (call.env or {}).items()
        ]
        given = input_bytes(call.input)
        if given is not None:
            found.append(f"input {self._mark(given)}")
        return found + [f"weaker {one.part}" for one in weaker]

    def _mark(self, value: bytes) -> str:
        return hmac.new(self._secret, value, "sha256").hexdigest()[:16]

    def remember(self, key: Key, answer: Answer, weaker: Sequence[Weaker]) -> Answer:
        """Remembers an answer, and the parts that were taken weaker for the session.

        What cannot be remembered as it was answered is not allowed: the answer is a denial then.
        """
        try:
            self.trust.add(key, answer)
        except (OSError, SandboxException) as error:
            failed = Ground.APPROVER_FAILED
            return Answer(Choice.DENY, answer.who, f"it cannot be kept: {error}", failed=failed)
        if answer.choice is Choice.WEAKER:
            self.trust.accept_weaker(one.part for one in weaker)
        return answer

    def look(self, box: Sandbox) -> Look | None:
        """A look at what commands in a sandbox may write, before one runs."""
        if self._watching is None or self.policy.unconfined:
            return None
        base = self.boxes.base.resolved
        writable = (*base.writable, *box.resolved.writable)
        own = {base.tmp, box.resolved.tmp} - {""}
        roots = roots_of(writable, {"/", *own})
        return self._watching.look(roots, own, whole="/" not in writable)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """While files are edited: what commands change meanwhile cannot be told from that."""
        if self._watching is None:
            yield
            return
        self._watching.enter()
        try:
            yield
        finally:
            self._watching.leave()

    def _kept_apart(self, policy: SandboxPolicy) -> SandboxPolicy:
        """The policy without the session's own files."""
        own = [self.log.directory] if self.log is not None else []
        if self.trust_file is not None:  # who holds its lock stops approvals
            own += [self.trust_file.path, f"{self.trust_file.path}.lock"]
        if policy.unconfined or not own:
            return policy
        # A list of its own: no entry of the policy gives back what lies below.
        apart = (Entry("/", Access.WRITE), *(Entry(path, Access.DENY) for path in own))
        return replace(policy, within=(*policy.within, apart))

    def _begun(self) -> SessionRecord:
        profile = self.profile
        files = [one for one in profile.sources if one.file]
        return SessionRecord(
            session=self.id,
            pid=os.getpid(),
            uid=os.getuid(),
            user=_user(),
            workspace=self.workspace,
            mode=self.mode,
            approval=self.approval,
            policy=digest_in_records(self.policy),
            profiles=[
                ProfileRow(layer=one.layer, file=one.file, sha256=one.digest) for one in files
            ],
            trusted=profile.trusted,
            version=__version__,
        )


def _profile(given: Profile | SandboxPolicy | str | None, workspace: str) -> Profile:
    """The profile that a session is given, with what the disk has to have."""
    if isinstance(given, Profile):
        found = given
    elif isinstance(given, SandboxPolicy):
        found = Profile(given, workspace, mode_in(given, workspace), "on-escape", False, (), (), ())
    elif given is None or isinstance(given, str):
        found = load(given, workspace)
    else:
        raise InvalidArgument("profile", given, "is no Profile, policy or name of a profile")
    check_paths(found)
    return found


def _log(given: Log | str | os.PathLike[str] | bool) -> Log | None:
    if isinstance(given, Log):
        return given
    if isinstance(given, bool):
        return Log() if given else None
    return Log(os.fspath(given))


def _trust_file(given: str | bool | None, workspace: str) -> TrustFile | None:
    if given is None or given is False:
        return None
    return TrustFile(None if given is True else given, workspace)


def _real(path: str) -> str:
    return path if "\0" in path else os.path.realpath(path)  # what means nothing is refused later


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""
