"""macOS: policies become Seatbelt profiles, and commands run under ``/usr/bin/sandbox-exec``.

Nothing here is compiled. Each seat is a small Python process that keeps one command at a time
(``keeper``). Whether a profile can be had is found out by having it, once for each sandbox: what
``sandbox-exec`` says of a program that is known is certain, while what a command prints is its own.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar, cast

from sandbox.backends.base import (
    ConfinementLost,
    Direct,
    FileKind,
    Joint,
    Outcome,
    Question,
    Request,
)
from sandbox.backends.enforceable import weaker_program
from sandbox.backends.jobs import Engine, Job
from sandbox.backends.kept import Flying, KeptLane, KeptRunning, not_started
from sandbox.backends.rlimits import hard_limits, rlimits
from sandbox.backends.scratch import empty, private_directory, remove
from sandbox.backends.seatbelt import SANDBOX_EXEC, Profile, compile_profile
from sandbox.backends.searched import resolve_patterns
from sandbox.backends.threads import ThreadEngine, ThreadJob
from sandbox.backends.unenforced import check_seatbelt, weaker_seatbelt, weaker_seatbelt_limits
from sandbox.denial import Denial
from sandbox.docks import Workspace
from sandbox.entries import Access
from sandbox.environ import account_homes
from sandbox.errors import SandboxLost, Unenforceable
from sandbox.limits import Limits
from sandbox.locks import ForkLock
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy, resolve
from sandbox.result import Enforcement

__all__ = ["MacBackend", "MacConfinement", "MacSeat"]

T = TypeVar("T")

_TRUE = b"/usr/bin/true"
_APPLIED_NOT = 71  # EX_OSERR: sandbox-exec could not confine itself, or not execute the program
_TRIAL_SECONDS = 10.0
_NESTED = "this process is confined already, and macOS takes no second profile"
_FILES_MEND = "run(['cat', PATH]), run(['tee', PATH], input=...)"


class MacBackend:
    """Seatbelt. ``program`` is another ``sandbox-exec``, for tests; nothing else sets it."""

    def __init__(self, program: str = SANDBOX_EXEC) -> None:
        self._program = program

    def engine(self) -> Engine:
        """See ``Backend.engine``."""
        return cast(Engine, ThreadEngine())

    def isolations(self, policy: SandboxPolicy) -> Sequence[str]:
        """See ``Backend.isolations``."""
        if policy.unconfined:
            return ("none",)
        check_seatbelt(policy, os.path.exists(self._program))
        return ("seatbelt",)

    def resolve(self, question: Question, isolation: str) -> ResolvedPolicy:
        """See ``Backend.resolve``."""
        return resolve(*question.asked) if isolation == "none" else resolve_patterns(question)

    def start(self, resolved: ResolvedPolicy, isolation: str) -> MacConfinement:
        """See ``Backend.start``."""
        return MacConfinement(resolved, isolation, self._program)

    def direct(self, resolved: ResolvedPolicy) -> Direct:
        """See ``Backend.direct``: there is none here."""
        raise Unenforceable("sandbox.subprocess", _NO_CHILDREN, "sandbox.run, Sandbox.popen")


_NO_CHILDREN = "children of the caller's own cannot be ended with their trees on macOS"


class MacConfinement:
    """A profile, and the keepers of its commands. See ``Confinement``."""

    def __init__(self, resolved: ResolvedPolicy, isolation: str, program: str) -> None:
        self._owner = (os.getpid(), os.getuid(), os.getgid())
        self.resolved = resolved
        self.isolation = isolation
        self._program = program
        self._lock = ForkLock()
        self._idle: list[MacSeat] = []
        self._taken = 0
        self._closed = self._retired = False
        self._links = _links(resolved)
        self.hard_limits = hard_limits()
        self.enforcement = self.enforcement_of(resolved.policy.limits)
        if isolation == "seatbelt":
            seat = self.seat(resolved.policy.limits)
            try:
                seat.check_profile()
            finally:
                seat.leave()

    def enforcement_of(self, limits: Limits) -> Enforcement:
        """What is enforced where a command has these limits."""
        parts = tuple(weaker_seatbelt_limits(limits))
        if self.isolation == "seatbelt":
            own = weaker_program(self.resolved, __file__)
            parts = (*weaker_seatbelt(self.resolved), *own, *parts)
        return Enforcement(self.isolation, parts)

    def profile(self, mark: str) -> Profile | None:
        """What a seat's commands run under; None: nothing."""
        if self.isolation == "none":
            return None
        return compile_profile(self.resolved, mark, account_homes())

    def command(self, profile: Profile | None, words: Sequence[bytes]) -> list[bytes]:
        """The command line for words, the first of which is a path."""
        if profile is None:
            return list(words)
        argv = profile.argv([os.fsdecode(word) for word in words], self._program)
        return [word.encode("utf-8", "surrogateescape") for word in argv]

    def is_current(self) -> bool:
        """See ``Confinement.is_current``: same process and user, no link where none was."""
        same = self._owner == (os.getpid(), os.getuid(), os.getgid())
        return not self._closed and same and self._links == _links(self.resolved)

    def seat(self, limits: Limits) -> MacSeat:
        """See ``Confinement.seat``."""
        with self._lock.held:
            if self._closed:
                raise ConfinementLost("it was closed")
            usable = [seat for seat in self._idle if seat.lane.usable]
            self._idle = usable[:-1]
            self._taken += 1
        try:
            seat = usable[-1] if usable else MacSeat(self)
            seat.prepare(limits)
        except BaseException:
            self._left()
            raise
        return seat

    def _left(self) -> None:
        with self._lock.held:
            self._taken -= 1

    def give_back(self, seat: MacSeat) -> None:
        """Keeps a seat for the next command, unless this is over."""
        self._left()
        with self._lock.held:
            if not self._closed and not self._retired and seat.lane.usable:
                self._idle.append(seat)
                return
        seat.close()

    def joint(self) -> Joint:
        """See ``Confinement.joint``: there is none here."""
        raise Unenforceable("sandbox=", _NO_CHILDREN, "sandbox.run, Sandbox.popen")

    @property
    def closed(self) -> bool:
        """See ``Confinement.closed``."""
        return self._closed

    @property
    def busy(self) -> bool:
        """See ``Confinement.busy``."""
        return self._taken > 0

    @property
    def lying(self) -> Workspace | None:
        """See ``Confinement.lying``: nothing is moved here."""
        return None

    def dock(self, base: ResolvedPolicy, workspace: str) -> None:
        """See ``Confinement.dock``: who has namespaces only gets that far."""
        raise ConfinementLost("macOS has no docks")

    def settle(self) -> None:
        """See ``Confinement.settle``: nothing is on its way."""

    def clear(self) -> None:
        """See ``Confinement.clear``: each command had a directory of its own."""

    def retire(self) -> None:
        """See ``Confinement.retire``."""
        with self._lock.held:
            self._retired = True
            idle, self._idle = self._idle, []
        for seat in idle:
            seat.close()

    def close(self) -> None:
        """See ``Confinement.close``."""
        with self._lock.held:
            self._closed = True
        self.retire()


class MacSeat:
    """A keeper with its profile and its temporary directory. See ``Seat``."""

    def __init__(self, confinement: MacConfinement) -> None:
        self._confinement = confinement
        self.rlimits: Sequence[tuple[int, int, int]] = ()
        self.memory = 0
        self.enforcement = confinement.enforcement
        self.tmp = self._new_tmp()
        mark = f"sandcore.{secrets.token_hex(16)}" if confinement.isolation == "seatbelt" else ""
        self._profile = confinement.profile(mark)
        self.lane = KeptLane(mark)

    def _new_tmp(self) -> str:
        root = self._confinement.resolved.tmp
        try:
            return private_directory(root) if root else ""
        except OSError as error:
            cause = f"its directory for temporary files is gone: {root} ({error.strerror})"
            raise SandboxLost(cause) from None

    def prepare(self, limits: Limits) -> None:
        """Takes the limits of the next command."""
        self.rlimits = rlimits(limits, self._confinement.hard_limits)
        self.memory = limits.memory or 0
        self.enforcement = self._confinement.enforcement_of(limits)

    def check_profile(self) -> None:
        """Tries the profile on a program that does nothing. Raises ``Unenforceable``."""
        refused = self._refusal()
        if refused is not None:
            raise Unenforceable("isolation 'seatbelt'", *refused)

    def _refusal(self) -> tuple[str, str] | None:
        """Why this cannot be confined here, and what mends it; None where it can."""
        limits = self.rlimits
        argv = self._confinement.command(self._profile, [_TRUE])
        request = Request((_TRUE,), argv, b"", 0, b"/", limits, 0, 4096, _TRIAL_SECONDS)
        outcome = Flying(self.lane, argv, request).finish()
        said = outcome.stderr.decode("utf-8", "replace").strip()
        if outcome.started and outcome.status == 0:
            return None
        if outcome.status >> 8 == _APPLIED_NOT and "execvp" in said:
            return None  # it was confined, and by its policy may not execute that
        if outcome.status >> 8 == _APPLIED_NOT:
            return _NESTED, f"run it outside of that sandbox ({said})"
        cause = said or f"sandbox-exec: stage {outcome.stage}, status {outcome.status}"
        return f"this macOS does not take the profile: {cause}", "sandbox debug seatbelt"

    def _ready(self, request: Request) -> tuple[list[bytes], Outcome | None]:
        """The command line, or why there is none."""
        at, number = _found(request.programs, request.cwd, self._confinement.resolved)
        if number:
            return [], not_started("exec", number, at)
        program = os.path.join(request.cwd, request.programs[at])
        return self._confinement.command(self._profile, [program, *request.argv[1:]]), None

    def run(self, request: Request) -> tuple[Outcome, tuple[Denial, ...]]:
        """See ``Seat.run``."""
        argv, refused = self._ready(request)
        if refused is not None:
            return refused, ()
        return self._checked(Flying(self.lane, argv, request).finish()), ()

    def _checked(self, outcome: Outcome) -> Outcome:
        """Tells a sandbox that could not be had from a command that exits like that.

        By asking again: the command can print what it likes.
        """
        is_doubtful = outcome.started and outcome.status >> 8 == _APPLIED_NOT
        if is_doubtful and self._profile is not None and self._refusal() is not None:
            return not_started("seatbelt", errno.EPERM)
        return outcome

    def submit(self, engine: Engine, request: Request, token: object) -> Job:
        """See ``Seat.submit``."""
        running = cast(ThreadEngine, engine)
        argv, refused = self._ready(request)
        if refused is not None:
            return cast(Job, running.start(lambda: refused, lambda: None, token))
        flying = Flying(self.lane, argv, request)
        finish = lambda: self._checked(flying.finish())  # noqa: E731
        return cast(Job, running.start(finish, self.lane.kill, token))

    def settle(self, job: Job) -> tuple[Outcome, tuple[Denial, ...]]:
        """See ``Seat.settle``."""
        found = cast(ThreadJob, job)
        if found.error is not None:
            raise found.error
        if found.lost is not None or found.outcome is None:
            raise ConfinementLost(found.lost or "")
        return found.outcome, ()

    def start(self, request: Request, *, owns_terminal: bool) -> KeptRunning:
        """See ``Seat.start``."""
        argv, refused = self._ready(request)
        return KeptRunning(self.lane, argv, request, owns_terminal, refused)

    def file(
        self,
        what: FileKind,
        path: bytes,
        *,
        directory: int = -1,
        mode: int = 0,
        follow: bool = True,
    ) -> int:
        """See ``Seat.file``: nothing here opens files with a command's rights."""
        cause = "Seatbelt confines processes: a file cannot be opened as a command would"
        raise Unenforceable("files of a sandbox", cause, _FILES_MEND)

    def watched(self, act: Callable[[], T]) -> tuple[T, tuple[Denial, ...]]:
        """See ``Seat.watched``: what is protected cannot be written, so nothing is put back."""
        return act(), ()

    def leave(self) -> None:
        """See ``Seat.leave``."""
        if self.tmp:
            try:
                empty(self.tmp)
            except OSError:  # the command removed it, or put something else in its place
                try:
                    self.tmp = self._new_tmp()
                except SandboxLost:
                    self.lane.usable = False
        self._confinement.give_back(self)

    def close(self) -> None:
        """Ends the keeper and removes the directory."""
        self.lane.close()
        if self.tmp:
            remove(self.tmp)


def _links(resolved: ResolvedPolicy) -> tuple[str, ...]:
    """Which of the paths that a profile excepts are links now: it would except the wrong ones."""
    found = []
    for path in (*(place.path for place in resolved.denied), *resolved.all_protected):
        with suppress(OSError):
            if stat.S_ISLNK(os.lstat(path).st_mode):
                found.append(path)
    return tuple(found)


def _found(
    programs: Sequence[bytes], cwd: bytes, resolved: ResolvedPolicy
) -> tuple[int, int]:
    """Which candidate is to be executed; or the last that failed and its errno, as execve says it.

    ``sandbox-exec`` would say it on the command's standard error.
    """
    failed = (len(programs) - 1, errno.ENOENT)
    for at, program in enumerate(programs):
        path = os.path.join(cwd, program)
        if not os.path.exists(path):
            continue
        real = os.fsdecode(os.path.realpath(path))
        unconfined = resolved.policy.unconfined
        may = os.path.isfile(path) and os.access(path, os.X_OK)
        if may and (unconfined or resolved.access(real) is not Access.DENY):
            return at, 0
        failed = (at, errno.EACCES)
    return failed
