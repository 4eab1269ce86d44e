"""A keeper with what belongs to it: a profile, a temporary directory, one command at a time."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar, cast

from sandbox.backends.base import ConfinementLost, FileKind, Outcome, Request
from sandbox.backends.frames import decoded, encoded
from sandbox.backends.jobs import Engine, Job
from sandbox.backends.kept import Flying, KeptLane, KeptRunning, not_started
from sandbox.backends.rlimits import rlimits
from sandbox.backends.scratch import empty, private_directory, remove
from sandbox.backends.seatbelt import Profile
from sandbox.backends.settings import profile_of
from sandbox.backends.threads import ThreadEngine, ThreadJob
from sandbox.denial import Denial
from sandbox.entries import Access
from sandbox.errors import SandboxLost, Unenforceable
from sandbox.limits import Limits
from sandbox.resolve import ResolvedPolicy
from sandbox.result import Enforcement

__all__ = ["House", "MacSeat"]

T = TypeVar("T")

_TRUE = b"/usr/bin/true"
_ENV = b"/usr/bin/env"
_APPLIED_NOT = 71  # EX_OSERR: sandbox-exec could not confine itself, or not execute the program
_TRIAL_SECONDS = 10.0
_NESTED = "this process is confined already, and macOS takes no second profile"
_FILES_MEND = "run(['cat', PATH]), run(['tee', PATH], input=...)"


class House(Protocol):
    """What a seat is in: a confinement."""

    enforcement: Enforcement
    hard_limits: dict[int, int]
    isolation: str
    program: str
    resolved: ResolvedPolicy

    def enforcement_of(self, limits: Limits) -> Enforcement:
        """What is enforced where a command has these limits."""

    def give_back(self, seat: MacSeat) -> None:
        """Takes a seat that is free."""


class MacSeat:
    """A keeper with its profile and its temporary directory. See ``Seat``."""

    def __init__(self, confinement: House) -> None:
        self._confinement = confinement
        self.rlimits: Sequence[tuple[int, int, int]] = ()
        self.memory = 0
        self.enforcement = confinement.enforcement
        self._is_confined = confinement.isolation == "seatbelt"
        # A word that no other process has: by it the seat's own are known.
        self._mark = f"sandcore.{secrets.token_hex(16)}" if self._is_confined else ""
        self._profile: Profile | None = None
        self.tmp = ""
        self._take_tmp()
        self.lane = KeptLane(self._mark)

    def _take_tmp(self) -> None:
        resolved = self._confinement.resolved
        try:
            self.tmp = private_directory(resolved.tmp) if resolved.tmp else ""
        except OSError as error:
            cause = f"its directory for temporary files is gone: {resolved.tmp} ({error.strerror})"
            raise SandboxLost(cause) from None
        if self._is_confined:
            self._profile = profile_of(resolved, self.tmp).with_mark(self._mark)

    def _command(self, words: Sequence[bytes]) -> list[bytes]:
        """The command line for words, the first of which is a path."""
        if self._profile is None:
            return list(words)
        argv = self._profile.argv([decoded(word) for word in words], self._confinement.program)
        return [encoded(word) for word in argv]

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
        argv = self._command([_TRUE])
        request = Request((_TRUE,), argv, b"", 0, b"/", self.rlimits, 0, 4096, _TRIAL_SECONDS)
        outcome = Flying(self.lane, argv, request).finish()
        said = outcome.stderr.decode("utf-8", "replace").strip()
        if outcome.started and outcome.status == 0:
            return None
        if outcome.status >> 8 == _APPLIED_NOT and "execvp" in said:
            return None  # it was confined, and by its policy may not execute that
        if outcome.status >> 8 == _APPLIED_NOT:
            return _NESTED, f"run it outside of that sandbox ({said})"
        if not outcome.started:
            said = f"sandbox-exec cannot be started: {os.strerror(outcome.errno)}"
        cause = said or f"sandbox-exec ended with status {outcome.status}"
        return f"this macOS does not take the profile: {cause}", "sandbox debug seatbelt"

    def _ready(self, request: Request) -> tuple[list[bytes], Request, Outcome | None]:
        """The command line and the request for it, or why there is none."""
        at, number = _found(request.programs, request.cwd, self._confinement.resolved)
        if number:
            return [], request, not_started("exec", number, at)
        program = os.path.join(request.cwd, request.programs[at])
        words = [program, *request.argv[1:]]
        if self._is_confined:
            # Of Apple's programs dyld takes these away, so they are set within, for the command's.
            request, loader = _without_loader(request)
            if loader and b"=" in program:  # env would take it for one more variable
                return [], request, not_started("exec", errno.EINVAL, at)
            words = [_ENV, *loader, *words] if loader else words
        return self._command(words), request, None

    def run(self, request: Request) -> tuple[Outcome, tuple[Denial, ...]]:
        """See ``Seat.run``."""
        argv, request, refused = self._ready(request)
        if refused is not None:
            return refused, ()
        return self._checked(Flying(self.lane, argv, request).finish()), ()

    def _checked(self, outcome: Outcome) -> Outcome:
        """Tells a sandbox that could not be had from a command that exits like that.

        By asking again: the command can print what it likes.
        """
        is_doubtful = outcome.started and outcome.status >> 8 == _APPLIED_NOT
        if is_doubtful and self._is_confined and self._refusal() is not None:
            return not_started("seatbelt", errno.EPERM)
        return outcome

    def submit(self, engine: Engine, request: Request, token: object) -> Job:
        """See ``Seat.submit``."""
        running = cast(ThreadEngine, engine)
        argv, request, refused = self._ready(request)
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
        argv, request, refused = self._ready(request)
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
        if self.tmp and not _is_emptied(self.tmp):
            try:
                self._take_tmp()
            except SandboxLost:
                self.lane.usable = False
        self._confinement.give_back(self)

    def close(self) -> None:
        """Ends the keeper and removes the directory."""
        self.lane.close()
        if self.tmp:
            remove(self.tmp)


def _without_loader(request: Request) -> tuple[Request, list[bytes]]:
    """A request without variables of the loader (``DYLD_*``), and these."""
    items = request.env.split(b"\0")[:-1]
    loader = [item for item in items if item.startswith(b"DYLD_")]
    rest = b"".join(item + b"\0" for item in items if item not in loader)
    if loader:
        request = replace(request, env=rest, env_count=len(items) - len(loader))
    return request, loader


def _is_emptied(tmp: str) -> bool:
    """Empties a directory; not where a command removed it, or made what cannot be removed."""
    try:
        empty(tmp)
        return not os.listdir(tmp)
    except OSError:
        return False


def _found(programs: Sequence[bytes], cwd: bytes, resolved: ResolvedPolicy) -> tuple[int, int]:
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
