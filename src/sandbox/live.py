"""Sandboxes that stay: a policy, enforced and ready, and the commands that run in it.

Starting one costs a few commands' time, a command in it hardly more than itself: it is kept. What
confines its commands, and stays the same boundary whatever happens to the host, is in ``boundary``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from types import TracebackType
from typing import Any, Literal, NamedTuple, Unpack, overload

from sandbox.backends.base import Backend, ConfinementLost, Joint, Outcome, Request, Seat
from sandbox.backends.choose import choose
from sandbox.boundary import Boundary
from sandbox.denial import Denial
from sandbox.denials import Asked
from sandbox.diagnose import explain_start
from sandbox.docks import Workspace
from sandbox.environ import Plan
from sandbox.errors import InvalidArgument, SandboxLost
from sandbox.files import Files
from sandbox.limits import Limits
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

__all__ = ["Ready", "Sandbox", "checked", "needs_workspace", "plan_of"]


@lru_cache(maxsize=64)
def plan_of(policy: SandboxPolicy) -> Plan:
    """Its environment made ready, once for all sandboxes of a policy."""
    return Plan(policy.environment)


@lru_cache(maxsize=64)
def names_in(block: bytes) -> tuple[str, ...]:
    """The names in an environment as the kernel takes it, in order."""
    items = [os.fsdecode(item.partition(b"=")[0]) for item in block.split(b"\0") if item]
    return tuple(sorted(items))


@lru_cache(maxsize=64)
def needs_workspace(policy: SandboxPolicy) -> bool:
    """Whether the policy has a workspace that it does not name itself."""
    return any(
        entry.special == "workspace" and not entry.path
        for layer in policy.layers
        for entry in layer
    )


class Ready(NamedTuple):
    """A command that is ready to run: its program, where it starts, its limits and its seat.

    ``policy``: with real paths, and the workspace that lies in its dock.
    """

    args: Args
    name: bytes
    place: str
    limits: Limits
    seat: Seat
    request: Request
    policy: tuple[ResolvedPolicy, Workspace | None]


class Sandbox(Files):
    """A policy, enforced, in which any number of commands run, also at the same time.

    Parameters: ``policy`` (default: ``workspace_write()``), and ``workspace``, the directory that
    it makes writable, where it does not name one itself (default: the caller's working directory).
    ``workspaces`` instead is a directory that holds workspaces, of which commands see one at a time
    and no other: ``move`` says which, and costs less than a command. Takes namespaces.
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
        workspaces: Any = None,
        place: Any = None,
        backend: Backend | None = None,
    ) -> None:
        self.policy = checked(policy) if policy is not None else workspace_write()
        named = working_directory(workspace) if needs_workspace(self.policy) else None
        if workspaces is not None:
            if named is None or workspace is not None:
                cause = "the policy has its workspace" if named is None else "both were given"
                raise InvalidArgument("workspaces", workspaces, cause, "workspace= or workspaces=")
            named = working_directory(workspaces)
        place = named or os.path.realpath(working_directory(place))
        self._plan = plan_of(self.policy)
        self._attendants: set[Attendant] = set()
        docks = workspaces is not None
        self._boundary = Boundary(self.policy, backend or choose(), named, place, docks)

    @property
    def enforcement(self) -> Enforcement:
        """What is enforced, and what of the policy is weaker here."""
        return self._boundary.enforcement

    @property
    def resolved(self) -> ResolvedPolicy:
        """The policy with real paths."""
        return self._boundary.resolved

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
        confinement = self._boundary.shut()
        going_on = list(self._attendants)
        for attendant in going_on:
            attendant.doom()
        if confinement is not None:
            confinement.close()
        for attendant in going_on:
            attendant.end()
        self._boundary.clean_up()

    @property
    def isolation(self) -> str:
        """``namespaces``, ``landlock`` or ``seatbelt``; ``none``: without confinement."""
        return self._boundary.isolation

    def move(self, workspace: Any, *, wait: bool = True) -> None:
        """Takes another workspace, one of those in ``workspaces``, in the place of the last.

        None: no other; what lies there leaves.
        What commands left in /tmp and /dev/shm is removed, so that the next ones find nothing of
        the last workspace's. Raises ``InvalidArgument`` while a command runs (or goes on) and in a
        sandbox without ``workspaces``, ``WorkspaceRefused`` for what is none of them, or cannot be
        had here; then there is none until the next move. ``SandboxLost`` when it was lost.
        ``wait``: until it is there; else the next command waits, and raises what is found out then.
        """
        self._boundary.dock(working_directory(workspace) if workspace is not None else "", wait)

    def lend(self, workspace: str) -> None:
        """``move`` for one command, and without waiting: for who keeps sandboxes (``shared``).

        The workspace leaves by itself when that has ended; then ``clear``.
        """
        self._boundary.dock(workspace, wait=False, once=True)

    def clear(self) -> None:
        """Removes what commands have left in /tmp and /dev/shm, where these are the sandbox's own.

        Not while a command runs. Raises ``SandboxLost`` when that cannot be done.
        """
        self._boundary.clear()

    def variables(self, env: Mapping[str, str] | None = None) -> tuple[tuple[str, ...], str]:
        """The names of the variables that a command has, in order, and its PATH.

        ``env`` as for ``run``.
        """
        packed = self._plan.packed(self.isolation, self.policy.network, "/tmp", env)
        return names_in(packed.block), packed.path

    def joint(self) -> Joint:
        """What ``sandbox.subprocess`` has children of the caller's own join this sandbox by.

        Raises ``Unenforceable`` outside of namespaces, ``InvalidArgument`` when it was closed or
        made before a fork, and ``SandboxLost``.
        """
        return self._boundary.joint()

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
        ready = self.ready(args, how)
        seat = ready.seat
        try:
            outcome, denials = seat.run(ready.request)
            enforcement = seat.enforcement
        except ConfinementLost as lost:
            raise self.lost(lost) from None
        finally:
            seat.leave()
        result = self.result(ready, outcome, denials, enforcement)
        final = result.as_text() if text else result
        return final.check() if how.get("check") else final

    def ready(self, args: Args, how: RunOptions) -> Ready:
        """A command that is ready to run in its seat, which is then to be left.

        For who runs many at a time (``flights``). Raises as ``run``.
        """
        given = how.pop("cwd", None)
        if how:
            check_options(how)
        words = encode_words(args)
        place = self._directory(given)
        limits = how.get("limits") or self.policy.limits
        seat = self._boundary.seat(limits)
        try:
            request = self._request(words, place, seat, limits, how)
        except BaseException:
            seat.leave()
            raise
        return Ready(args, words[0], place, limits, seat, request, self._boundary.policy)

    def result(
        self,
        ready: Ready,
        outcome: Outcome,
        denials: tuple[Denial, ...],
        enforcement: Enforcement,
    ) -> Result:
        """What came of a command that was made ready. Raises ``StartError`` and its kind."""
        if not outcome.started:
            name = os.fsdecode(ready.name)
            programs = ready.request.programs
            raise explain_start(
                outcome.stage, outcome.errno, outcome.detail, programs, name, ready.place
            )
        base, lying = ready.policy
        asked = Asked(base, ready.place, ready.limits, ready.request.timeout, lying)
        return result_of(ready.args, outcome, denials, enforcement, asked)

    def lost(self, lost: ConfinementLost) -> SandboxLost:
        """What is raised when its confinement was lost under a command."""
        why = "it was closed while the command ran" if self._boundary.closed else str(lost)
        return SandboxLost(why, lost.denials)

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
            Attendant(self._boundary.seat(limits), self._attendants) as attendant,
        ):
            request = self._request(words, place, attendant.seat, limits, common)
            request.stdin, request.stdout, request.stderr = streams.command
            attendant.start(request, owns_terminal=streams.pty is not None)
            check_started(attendant, request, os.fsdecode(words[0]), place)
            base, lying = self._boundary.policy
            asked = Asked(base, place, limits, request.timeout, lying)
            return Process(args, attendant, streams, attendant.seat.enforcement, self, asked)

    def _directory(self, given: Any) -> str:
        """Where a command starts. In a /tmp of the sandbox's own the host's links are not there."""
        own = self._boundary.workspace
        place = working_directory(given if given is not None else own or None)
        if place == own or self.isolation != "namespaces":
            return place
        if place.startswith("/tmp/") and place != self._boundary.policy[0].place:
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


def checked(policy: object) -> SandboxPolicy:
    """The policy; ``InvalidArgument`` for what is none."""
    if not isinstance(policy, SandboxPolicy):
        raise InvalidArgument("policy", policy, "is no SandboxPolicy", "workspace_write(PATH), ...")
    return policy
