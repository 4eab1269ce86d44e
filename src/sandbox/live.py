"""Sandboxes that stay: a policy, enforced and ready, and the commands that run in it.

Starting a sandbox costs a few commands' time, running a command in one that is there costs hardly
more than the command: so a sandbox is kept and reused.
A sandbox resolves its policy once, when it is made. When the host changes under it (a new
directory beside a denied one, another user), it is confined anew from the same resolved paths;
nothing that a command did can move the boundary.
"""

from __future__ import annotations

import os
import pwd
import threading
import warnings
import weakref
from collections.abc import Mapping
from functools import lru_cache
from types import TracebackType
from typing import Any, Final

from sandbox.backends.base import Backend, Confinement, ConfinementLost, Outcome, Request, Seat
from sandbox.backends.choose import choose
from sandbox.backends.rlimits import rlimits
from sandbox.backends.scratch import private_directory, remove
from sandbox.diagnose import explain_start
from sandbox.environ import Plan, block, markers
from sandbox.errors import InvalidArgument, SandboxLost, SandboxWeakened
from sandbox.limits import Limits, check_seconds
from sandbox.policy import SandboxPolicy
from sandbox.presets import workspace_write
from sandbox.request import Args, candidates, encode_words, working_directory
from sandbox.resolve import ResolvedPolicy, resolve
from sandbox.result import Denial, Enforcement, Result, Usage

__all__ = ["POLICY_LIMIT", "Sandbox", "needs_workspace"]


class _PolicyLimit:
    """The type of ``POLICY_LIMIT``."""

    def __repr__(self) -> str:
        return "POLICY_LIMIT"


POLICY_LIMIT: Final = _PolicyLimit()  # "as the policy's limits say": None means no limit at all

_warned = threading.Event()  # a process is told once what is weaker, not at each command


@lru_cache(maxsize=64)
def needs_workspace(policy: SandboxPolicy) -> bool:
    """Whether the policy has a workspace that it does not name itself."""
    return any(
        entry.special == "workspace" and not entry.path
        for layer in policy.layers
        for entry in layer
    )


class Sandbox:
    """A policy, enforced, in which any number of commands run, also at the same time.

    Parameters: ``policy`` (default: ``workspace_write()``), and ``workspace``, the directory that
    it makes writable, where it does not name one itself (default: the caller's working directory).
    Raises ``PolicyError`` and its kind when the policy means nothing here, ``HostError`` and its
    kind when this machine cannot enforce it; then nothing was run.
    A context manager; ``close`` ends what runs in it. Threads may share it. After a fork the
    child's copy starts a sandbox of its own when it is first used.
    """

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        *,
        workspace: Any = None,
        backend: Backend | None = None,
    ) -> None:
        self.policy = policy if policy is not None else workspace_write()
        self._backend = backend if backend is not None else choose()
        named = working_directory(workspace) if needs_workspace(self.policy) else None
        self._tmp = "" if self.policy.unconfined else private_directory()
        self._owner = os.getpid()
        self._cleanup = weakref.finalize(self, _clean_up, self._tmp, self._owner)
        self._lock = threading.Lock()
        self._confinement: Confinement | None = None
        self._plan = Plan(self.policy.environment)
        self._closed = False
        try:
            self._resolved: ResolvedPolicy = resolve(
                self.policy, named, os.path.expanduser("~"), self._tmp, _account_homes()
            )
            self._confinement = self._backend.start(self._resolved)
        except BaseException:
            self._cleanup()
            raise
        _warn_once(self._confinement.enforcement)

    @property
    def enforcement(self) -> Enforcement:
        """What is enforced, and what of the policy is weaker here."""
        return self._current().enforcement

    @property
    def resolved(self) -> ResolvedPolicy:
        """The policy with real paths."""
        return self._resolved

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all that runs in it and removes its temporary directory. Idempotent."""
        with self._lock:
            self._closed = True
            confinement, self._confinement = self._confinement, None
        if confinement is not None and self._owner == os.getpid():
            confinement.close()
        self._cleanup()

    def run(
        self,
        args: Args,
        *,
        cwd: Any = None,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        timeout: float | _PolicyLimit | None = POLICY_LIMIT,
        limits: Limits | None = None,
        check: bool = False,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        terminal: bool = False,
    ) -> Result:
        """Runs one command, confined, and returns when its whole process tree is gone.

        Parameters
        ----------
            args: words, or text for ``bash -c`` (``sh -c`` where there is no bash).
            cwd: where it runs; default: the workspace, or the caller's directory without one. It
                grants nothing.
            env: variables for this command beside those the policy lets through.
            input: what it reads from stdin; default: nothing, stdin is at its end.
            timeout: seconds of wall time, None for no limit; default: the policy's limit.
            limits: instead of the policy's. Its ``wall`` counts unless ``timeout`` is given.
            check: raise ``CommandFailed`` unless it ends with status 0.
            stdin, stdout, stderr: fds of the caller to hand over; default: nothing is read, and
                both outputs are captured.
            terminal: stay in the caller's session and process group, so that a terminal's Ctrl-C,
                Ctrl-Z and size changes reach the command.

        Returns a ``Result``, whatever the command did. Raises ``StartError`` and its kind when it
        could not be started (nothing of it ran), ``InvalidArgument`` for what makes no sense,
        ``SandboxLost`` when it ended its own sandbox. What leaves the command behind, in the
        background too, is ended with it.
        """
        limits = self.policy.limits if limits is None else limits
        if not isinstance(limits, Limits):
            raise InvalidArgument("limits", limits, "is no Limits")
        seconds = limits.wall if isinstance(timeout, _PolicyLimit) else timeout
        if seconds is not None:
            seconds = check_seconds("timeout", seconds)
        words = encode_words(args)
        place = working_directory(cwd if cwd is not None else self._resolved.workspace or None)
        seat = self._seat()
        try:
            marks = markers(seat.enforcement.isolation, self.policy.network, seat.tmp)
            variables = self._plan.build(os.environ, marks, env)
            request = Request(
                programs=candidates(words[0], variables),
                argv=words,
                env=block(variables),
                env_count=len(variables),
                cwd=os.fsencode(place),
                limits=rlimits(limits),
                input=_input_bytes(input, stdin),
                stdin=-1 if stdin is None else stdin,
                stdout=-1 if stdout is None else stdout,
                stderr=-1 if stderr is None else stderr,
                cap=limits.output,
                timeout=seconds,
                terminal=terminal,
            )
            outcome, denials = seat.run(request)
            enforcement = seat.enforcement
        except ConfinementLost as lost:
            raise SandboxLost(str(lost)) from None
        finally:
            seat.leave()
        if not outcome.started:
            name = os.fsdecode(words[0])
            raise explain_start(
                outcome.stage, outcome.errno, outcome.detail, request.programs, name, place
            )
        result = _result(args, outcome, denials, enforcement)
        return result.check() if check else result

    def _current(self) -> Confinement:
        """The confinement, made anew when the host has changed under it."""
        confinement = self._confinement
        if confinement is not None and confinement.is_current():
            return confinement
        with self._lock:
            if self._closed:
                raise InvalidArgument("sandbox", self, "is closed")
            confinement = self._confinement
            if confinement is None or not confinement.is_current():
                # Commands that still run in the old one end there; it goes with the last of them.
                confinement = self._confinement = self._backend.start(self._resolved)
            return confinement

    def _seat(self) -> Seat:
        """A place in the current confinement; one whose helper was killed is replaced, once."""
        confinement = self._current()
        try:
            return confinement.seat()
        except ConfinementLost:
            confinement.close()
        try:
            return self._current().seat()
        except ConfinementLost as lost:
            raise SandboxLost(str(lost)) from None


def _account_homes() -> list[str]:
    """The home that the system has for this user, whatever HOME says."""
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return []
    return [home] if home.startswith("/") else []


def _clean_up(tmp: str, owner: int) -> None:
    if tmp and owner == os.getpid():
        remove(tmp)


def _warn_once(enforcement: Enforcement) -> None:
    if enforcement.full or _warned.is_set():
        return
    _warned.set()
    parts = "; ".join(f"{part.part}: {part.cause}" for part in enforcement.weaker)
    text = f"isolation {enforcement.isolation!r} does not enforce all of the policy ({parts})"
    warnings.warn(SandboxWeakened(text), stacklevel=4)


def _input_bytes(given: bytes | str | None, stdin: int | None) -> bytes | None:
    if given is None:
        return None
    if stdin is not None:
        raise InvalidArgument("input", "...", "goes with no stdin")
    if isinstance(given, str):
        return given.encode()
    try:
        return bytes(memoryview(given))
    except TypeError:
        raise InvalidArgument("input", type(given).__name__, "is neither bytes nor text") from None


def _result(
    args: Args, outcome: Outcome, denials: tuple[Denial, ...], enforcement: Enforcement
) -> Result:
    code = os.waitstatus_to_exitcode(outcome.status)
    usage = outcome.usage
    return Result(
        args=args,
        returncode=code,
        signal=-code if code < 0 else None,
        timed_out=outcome.timed_out,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        stdout_truncated=outcome.stdout_total - len(outcome.stdout),
        stderr_truncated=outcome.stderr_total - len(outcome.stderr),
        duration=outcome.duration,
        usage=Usage(usage[0], usage[1], usage[2] * 1024),
        enforcement=enforcement,
        denials=denials,
        stdout_cut=outcome.stdout_head,
        stderr_cut=outcome.stderr_head,
        swept=outcome.swept,
    )
