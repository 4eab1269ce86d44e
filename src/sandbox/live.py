"""Sandboxes that stay: a policy, enforced and ready, and the commands that run in it.

Starting one costs a few commands' time, a command in it hardly more than itself: it is kept.
A sandbox resolves its policy once, when it is made. When the host changes under it (a new
directory beside a denied one, another user), it is confined anew: what was granted stays what it
was; what is denied and protected is resolved again and comes on top. Nothing that a command did
can move the boundary outwards.
"""

from __future__ import annotations

import os
import weakref
from functools import lru_cache
from types import TracebackType
from typing import Any, Literal, Unpack, overload

from sandbox.backends.base import (
    Backend,
    Confinement,
    ConfinementLost,
    IsolationRefused,
    Question,
    Request,
    Seat,
)
from sandbox.backends.choose import choose
from sandbox.backends.scratch import clean_up, own_directory
from sandbox.denials import Asked
from sandbox.diagnose import explain_start
from sandbox.environ import Plan, account_homes
from sandbox.errors import InvalidArgument, SandboxLost, Unenforceable
from sandbox.files import Files
from sandbox.limits import Limits
from sandbox.locks import ForkLock
from sandbox.narrow import narrowed
from sandbox.notice import warn_once
from sandbox.policy import SandboxPolicy
from sandbox.presets import workspace_write
from sandbox.process import Attendant, Process, check_started
from sandbox.request import (
    Args,
    PopenOptions,
    RunOptions,
    candidates,
    check_options,
    check_popen,
    encode_words,
    result_of,
    set_options,
    working_directory,
)
from sandbox.resolve import ResolvedPolicy
from sandbox.result import Enforcement, Result, TextResult
from sandbox.streams import Streams

__all__ = ["Sandbox", "checked", "needs_workspace"]


@lru_cache(maxsize=64)
def _plan_of(policy: SandboxPolicy) -> Plan:
    """Its environment made ready, once for all sandboxes of a policy."""
    return Plan(policy.environment)


@lru_cache(maxsize=64)
def needs_workspace(policy: SandboxPolicy) -> bool:
    """Whether the policy has a workspace that it does not name itself."""
    return any(
        entry.special == "workspace" and not entry.path
        for layer in policy.layers
        for entry in layer
    )


class Sandbox(Files):
    """A policy, enforced, in which any number of commands run, also at the same time.

    Parameters: ``policy`` (default: ``workspace_write()``), and ``workspace``, the directory that
    it makes writable, where it does not name one itself (default: the caller's working directory).
    ``place`` is the directory outside of the workspace in which commands start, if they do (default
    as before): one in /tmp can be seen in the sandbox's own /tmp then. It grants nothing.
    Raises ``PolicyError`` and its kind when the policy means nothing here, ``HostError`` and its
    kind when this machine cannot enforce it; then nothing was run.
    A context manager; ``close`` ends what runs in it. Threads may share it; a fork starts its own.
    """

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        *,
        workspace: Any = None,
        place: Any = None,
        backend: Backend | None = None,
    ) -> None:
        self.policy = checked(policy) if policy is not None else workspace_write()
        self._backend = backend if backend is not None else choose()
        named = working_directory(workspace) if needs_workspace(self.policy) else None
        place = named or os.path.realpath(working_directory(place))
        self._owner = os.getpid()
        self._lock = ForkLock()
        self._plan = _plan_of(self.policy)
        self._closed = False
        self._attendants: set[Attendant] = set()
        self._confinement: Confinement | None = None
        self._confinement = self._first(named, place)
        warn_once(self._confinement.enforcement)

    def _first(self, workspace: str | None, place: str) -> Confinement:
        """The confinement in the strongest isolation that this host gives."""
        refused = IsolationRefused("", "")
        for isolation in self._backend.isolations(self.policy):
            self._isolation = isolation
            # In namespaces /tmp is the sandbox's own; where nothing is confined there is none.
            self._tmp, lock = own_directory() if isolation == "landlock" else ("", -1)
            self._cleanup = weakref.finalize(self, clean_up, self._tmp, lock, self._owner)
            try:
                home, more = os.path.expanduser("~"), account_homes()
                self._question = Question(self.policy, workspace, home, self._tmp, more, place)
                self._resolved: ResolvedPolicy = self._backend.resolve(self._question, isolation)
                return self._backend.start(self._resolved, isolation)
            except IsolationRefused as error:
                refused = error
                self._cleanup()
            except BaseException:
                self._cleanup()
                raise
        raise Unenforceable(f"isolation {self._isolation!r}", refused.cause, refused.mend)

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
        with self._lock.held:
            self._closed = True
            confinement, self._confinement = self._confinement, None
        going_on = list(self._attendants)
        for attendant in going_on:
            attendant.doom()
        if confinement is not None and self._owner == os.getpid():
            confinement.close()
        for attendant in going_on:
            attendant.end()
        self._cleanup()

    @property
    def isolation(self) -> str:
        """``namespaces``, ``landlock``, or ``none`` for a policy without confinement."""
        return self._isolation

    def clear(self) -> None:
        """Removes what commands have left in /tmp and /dev/shm, where these are the sandbox's own.

        Not while a command runs. Raises ``SandboxLost`` when that cannot be done.
        """
        confinement = self._confinement
        if confinement is not None and self._owner == os.getpid():
            try:
                confinement.clear()
            except ConfinementLost as lost:
                raise SandboxLost(str(lost)) from None

    @overload
    def run(self, args: Args, *, text: Literal[True], **how: Unpack[RunOptions]) -> TextResult: ...
    @overload
    def run(
        self, args: Args, *, text: Literal[False] = False, **how: Unpack[RunOptions]
    ) -> Result: ...
    def run(
        self, args: Args, *, text: bool = False, **how: Unpack[RunOptions]
    ) -> Result | TextResult:
        """Runs one command, confined, and returns when its whole process tree is gone.

        ``args``: words, or text for ``bash -c`` (``sh -c`` where there is no bash). ``text``: give
        the output as text, with replacement for what is not UTF-8. All else is optional:

        - ``cwd``: where it runs; default: the workspace, or the caller's directory without one. It
          grants nothing.
        - ``env``: variables for this command beside those that the policy lets through.
        - ``input``: what it reads from stdin; default: nothing, stdin is at its end.
        - ``timeout``: seconds of wall time, None for no limit; default: the policy's limit.
        - ``limits``: instead of the policy's. Its ``wall`` counts unless ``timeout`` is given.
        - ``check``: raise ``CommandFailed`` unless it ends with status 0.
        - ``stdin``, ``stdout``, ``stderr``: fds of the caller to hand over; default: nothing is
          read, and both outputs are captured.
        - ``terminal``: stay in the caller's session and process group, so that a terminal's
          Ctrl-C, Ctrl-Z and size changes reach the command.

        Returns what came of it, whatever the command did. Raises ``StartError`` and its kind when
        it could not be started (nothing of it ran), ``InvalidArgument`` for what makes no sense,
        ``SandboxLost`` when it ended its own sandbox. What the command leaves behind, in the
        background too, is ended with it.
        """
        given = how.pop("cwd", None)
        if how:
            check_options(how)
        words = encode_words(args)
        place = self._directory(given)
        limits = how.get("limits") or self.policy.limits
        seat = self._seat(limits)
        try:
            request = self._request(words, place, seat, limits, how)
            outcome, denials = seat.run(request)
            enforcement = seat.enforcement
        except ConfinementLost as lost:
            why = "it was closed while the command ran" if self._closed else str(lost)
            raise SandboxLost(why, lost.denials) from None
        finally:
            seat.leave()
        if not outcome.started:
            name = os.fsdecode(words[0])
            raise explain_start(
                outcome.stage, outcome.errno, outcome.detail, request.programs, name, place
            )
        asked = Asked(self._resolved, place, limits, request.timeout)
        result = result_of(args, outcome, denials, enforcement, asked)
        final = result.as_text() if text else result
        return final.check() if how.get("check") else final

    @overload
    def popen(
        self, args: Args, *, text: Literal[True], **how: Unpack[PopenOptions]
    ) -> Process[str]: ...
    @overload
    def popen(
        self, args: Args, *, text: Literal[False] = False, **how: Unpack[PopenOptions]
    ) -> Process[bytes]: ...
    def popen(self, args: Args, *, text: bool = False, **how: Unpack[PopenOptions]) -> Process[Any]:
        """Starts a command that goes on, confined, and returns at once: see ``Process``.

        ``args``, ``cwd``, ``env``, ``limits`` and ``timeout`` as for ``run``. So the policy's time
        limit holds, whether anybody waits or not: a server wants ``timeout=None``. And:

        - ``stdin``, ``stdout``, ``stderr``: ``PIPE``, a fd or a file of the caller, ``DEVNULL``
          (also by default), and for ``stderr`` ``STDOUT``. ``text``: pipes are of text.
        - ``pty``: True, or (rows, columns): a terminal of its own instead of the three.

        Raises as ``run`` does.
        """
        common, words = check_popen(how), encode_words(args)
        given = how.get("cwd")
        place = self._directory(given)
        limits = how.get("limits") or self.policy.limits
        with (
            Streams(how, text) as streams,
            Attendant(self._seat(limits), self._attendants) as attendant,
        ):
            request = self._request(words, place, attendant.seat, limits, common)
            request.stdin, request.stdout, request.stderr = streams.command
            attendant.start(request, owns_terminal=streams.pty is not None)
            check_started(attendant, request, os.fsdecode(words[0]), place)
            asked = Asked(self._resolved, place, limits, request.timeout)
            return Process(args, attendant, streams, attendant.seat.enforcement, self, asked)

    def _directory(self, given: Any) -> str:
        """Where a command starts. In a /tmp of the sandbox's own the host's links are not there."""
        place = working_directory(given if given is not None else self._resolved.workspace or None)
        shown = (self._resolved.workspace, self._resolved.place)
        if self._isolation == "namespaces" and place not in shown and place.startswith("/tmp/"):
            return os.path.realpath(place)
        return place

    def _request(
        self, words: list[bytes], place: str, seat: Seat, limits: Limits, how: RunOptions
    ) -> Request:
        env = self._plan.packed(
            seat.enforcement.isolation, self.policy.network, seat.tmp, how.get("env")
        )
        request = Request(
            programs=candidates(words[0], env.path),
            argv=words,
            env=env.block,
            env_count=env.variables,
            cwd=os.fsencode(place),
            limits=seat.rlimits,
            memory=seat.memory,
            cap=limits.output,
            timeout=limits.wall,
        )
        if how:
            set_options(request, how)
        return request

    def _current(self) -> Confinement:
        """The confinement, made anew when the host has changed under it."""
        with self._lock.held:
            if self._closed:
                raise InvalidArgument("sandbox", self, "is closed")
            confinement = self._confinement
            if self._owner != os.getpid():
                self._move_in()
            if confinement is None or not confinement.is_current():
                old, confinement = confinement, self._again()
                self._confinement = confinement
                if old is not None:
                    old.retire()  # commands that run in it end there
            return confinement

    def _again(self) -> Confinement:
        """A confinement like the first. What was given once and is refused now ends the sandbox."""
        place = self._resolved.workspace or None
        now = self._question._replace(tmp=self._tmp, workspace=place)
        later = self._backend.resolve(now, self._isolation)
        try:
            return self._backend.start(narrowed(self._resolved, later), self._isolation)
        except IsolationRefused as refused:
            part = f"isolation {self._isolation!r}"
            raise Unenforceable(part, refused.cause, refused.mend) from None

    def _move_in(self) -> None:
        """After a fork: the temporary directory is the parent's, which empties and removes it.

        Nothing is resolved again: the boundary is the one that was.
        """
        lock = -1
        if self._tmp:
            self._tmp, lock = own_directory()
            self._resolved = self._resolved.with_tmp(self._tmp)
        self._owner = os.getpid()
        self._cleanup = weakref.finalize(self, clean_up, self._tmp, lock, self._owner)

    def _seat(self, limits: Limits) -> Seat:
        """A place in the current confinement; one whose helper was killed is replaced, once."""
        confinement = self._confinement
        if confinement is None or not confinement.is_current():
            confinement = self._current()
        try:
            return confinement.seat(limits)
        except ConfinementLost:
            confinement.close()
        try:
            return self._current().seat(limits)
        except ConfinementLost as lost:
            raise SandboxLost(str(lost)) from None


def checked(policy: object) -> SandboxPolicy:
    """The policy; ``InvalidArgument`` for what is none."""
    if not isinstance(policy, SandboxPolicy):
        raise InvalidArgument("policy", policy, "is no SandboxPolicy", "workspace_write(PATH), ...")
    return policy
