"""What confines the commands of one sandbox, from its making to its end.

It resolves the policy once. When the host changes under it (a new directory beside a denied one,
another user), it is confined anew: what was granted stays what it was; what is denied and protected
is resolved again and comes on top. Nothing that a command did can move it outwards.
"""

from __future__ import annotations

import os
import weakref

from sandbox.backends.base import (
    Backend,
    Confinement,
    ConfinementLost,
    IsolationRefused,
    Joint,
    Question,
    Seat,
)
from sandbox.backends.scratch import clean_up, own_directory
from sandbox.docks import Workspace, docked
from sandbox.environ import account_homes
from sandbox.errors import InvalidArgument, SandboxLost, Unenforceable
from sandbox.limits import Limits
from sandbox.locks import ForkLock
from sandbox.narrow import narrowed
from sandbox.notice import check_accepted, warn_once
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy
from sandbox.result import Enforcement

__all__ = ["Boundary"]

_SHARED_TMP = ("landlock", "seatbelt")  # the host's /tmp is seen: each sandbox has a directory


class Boundary:
    """A policy, enforced in the strongest isolation that this host gives.

    ``workspace`` is for a policy that does not name its own; ``place`` is where commands start, and
    grants nothing. Raises ``PolicyError``, ``HostError`` and their kinds; then nothing was run.
    Threads may share it. A fork's copy makes itself a confinement, with nothing resolved again.
    """

    isolation: str
    _base: ResolvedPolicy

    def __init__(
        self,
        policy: SandboxPolicy,
        backend: Backend,
        workspace: str | None,
        place: str,
        docks: bool = False,
    ) -> None:
        self._backend = backend
        self._owner = os.getpid()
        self._lock = ForkLock()
        self.closed = False
        self._joints: weakref.WeakSet[Joint] = weakref.WeakSet()
        self._confinement: Confinement | None = None
        self._retired: weakref.WeakSet[Confinement] = weakref.WeakSet()
        self._once = False  # what was docked last is for one command
        self._confinement = self._first(policy, workspace, place, docks)
        warn_once(self._confinement.enforcement)

    def _first(
        self, policy: SandboxPolicy, workspace: str | None, place: str, docks: bool
    ) -> Confinement:
        refused = IsolationRefused("", "")
        for isolation in self._backend.isolations(policy):
            self.isolation = isolation
            if docks and isolation != "namespaces":
                cause = refused.cause or f"it takes namespaces, and isolation is {isolation!r}"
                raise Unenforceable("workspaces=", cause, "a sandbox for each workspace")
            # In namespaces /tmp is the sandbox's own; where nothing is confined there is none.
            self._tmp, lock = own_directory() if isolation in _SHARED_TMP else ("", -1)
            self.clean_up = weakref.finalize(self, clean_up, self._tmp, lock, self._owner)
            try:
                home, more = os.path.expanduser("~"), account_homes()
                self._question = Question(policy, workspace, home, self._tmp, more, place, docks)
                self._base = self._backend.resolve(self._question, isolation)
                self._dock = _identity(self._base.dock)
                return _accepted(policy, self._backend.start(self._base, isolation))
            except IsolationRefused as error:
                refused = error
                self.clean_up()
            except BaseException:
                self.clean_up()
                raise
        raise Unenforceable(f"isolation {self.isolation!r}", refused.cause, refused.mend)

    @property
    def resolved(self) -> ResolvedPolicy:
        """The policy with real paths."""
        base, lying = self.policy
        return docked(base, lying) if lying is not None else base

    @property
    def policy(self) -> tuple[ResolvedPolicy, Workspace | None]:
        """The policy with real paths, without the workspace that lies in its dock; and that."""
        confinement = self._confinement
        return self._base, confinement.lying if confinement is not None else None

    @property
    def workspace(self) -> str:
        """That of the policy, or the one that lies in the dock; the dock where none does."""
        base, lying = self.policy
        return lying.path if lying is not None else base.workspace or base.dock

    @property
    def enforcement(self) -> Enforcement:
        """What is enforced now."""
        return self.current().enforcement

    def current(self) -> Confinement:
        """The confinement, made anew when the host has changed under it."""
        with self._lock.held:
            return self._current()

    def _current(self) -> Confinement:
        if self.closed:
            raise InvalidArgument("sandbox", "...", "is closed", "a new Sandbox(policy)")
        confinement = self._confinement
        if self._owner != os.getpid():
            self._move_in()
        if confinement is None or not confinement.is_current():
            old, confinement = confinement, self._again()
            self._confinement = confinement
            if old is not None:
                self._retired.add(old)
                old.retire()  # commands that run in it end there
        return confinement

    def _again(self) -> Confinement:
        """A confinement like the first. What was given once and is refused now ends the sandbox."""
        place = self._base.workspace or self._base.dock or None
        now = self._question._replace(tmp=self._tmp, workspace=place)
        later = self._backend.resolve(now, self.isolation)
        self._check_dock()
        try:
            made = self._backend.start(narrowed(self._base, later), self.isolation)
        except IsolationRefused as refused:
            part = f"isolation {self.isolation!r}"
            raise Unenforceable(part, refused.cause, refused.mend) from None
        _accepted(self._base.policy, made)
        lying = self.policy[1]
        if lying is not None:
            try:
                made.dock(self._base, lying.path, self._once)
            except BaseException:
                made.close()
                raise
        return made

    def dock(self, workspace: str, wait: bool, once: bool = False) -> None:
        """Another workspace in the dock, empty: none; see ``Sandbox.move`` and ``lend``."""
        self._once = once
        if not self._base.dock:
            raise InvalidArgument("workspace", workspace, "the sandbox has its own", "workspaces=")
        why = ""
        for _ in range(2):
            confinement: Confinement | None = None
            try:
                with self._lock.held:
                    confinement = self._free(workspace)
                    confinement.dock(self._base, workspace, once)
                if wait:  # without the lock, or who closes this would wait, too
                    confinement.settle()
                return
            except ConfinementLost as lost:
                why = str(lost)
                if confinement is not None:
                    confinement.close()
        raise SandboxLost(why)

    def _free(self, workspace: str) -> Confinement:
        """The confinement as it is, when no command runs in it; made anew when it was lost."""
        self._check_dock()
        if len(self._retired) and any(old.busy for old in list(self._retired)):
            raise InvalidArgument("workspace", workspace, "a command is in another")
        confinement = self._confinement
        if confinement is None or confinement.closed or self._owner != os.getpid():
            confinement = self._current()
        return confinement

    def _check_dock(self) -> None:
        if _identity(self._base.dock) != self._dock:
            cause = "another directory is where the workspaces were"
            raise Unenforceable("workspaces=", cause, "a new sandbox")

    def _move_in(self) -> None:
        """After a fork: the temporary directory is the parent's, which empties and removes it.

        Nothing is resolved again: the boundary is the one that was.
        """
        lock = -1
        if self._tmp:
            self._tmp, lock = own_directory()
            self._base = self._base.with_tmp(self._tmp)
        self._owner = os.getpid()
        self.clean_up = weakref.finalize(self, clean_up, self._tmp, lock, self._owner)

    def seat(self, limits: Limits) -> Seat:
        """A place in the current confinement; one whose helper was killed is replaced, once."""
        confinement = self._confinement
        if confinement is None or not confinement.is_current():
            confinement = self.current()
        try:
            return confinement.seat(limits)
        except ConfinementLost:
            confinement.close()
        try:
            return self.current().seat(limits)
        except ConfinementLost as lost:
            raise SandboxLost(str(lost)) from None

    def joint(self) -> Joint:
        """Where children of the caller's own join, as ``seat``. A fork's copy is not joined."""
        why = ""
        for _ in range(2):
            if self._owner != os.getpid():
                cause = "was made before a fork, by its parent"
                raise InvalidArgument("sandbox", "...", cause, "a new Sandbox(policy)")
            confinement = self.current()
            try:
                made = confinement.joint()
            except ConfinementLost as lost:
                confinement.close()
                why = str(lost)
                continue
            self._joints.add(made)
            return made
        raise SandboxLost(why)

    def clear(self) -> None:
        """Empties the temporary directories, while no command runs. Raises ``SandboxLost``."""
        confinement = self._confinement
        if confinement is not None and self._owner == os.getpid():
            try:
                confinement.clear()
            except ConfinementLost as lost:
                raise SandboxLost(str(lost)) from None

    def shut(self) -> Confinement | None:
        """From here on nothing begins in it; what is to be closed, which a fork leaves alone.

        ``clean_up`` comes last, when all that ran there has ended.
        """
        with self._lock.held:
            self.closed = True
            confinement, self._confinement = self._confinement, None
        for joint in list(self._joints):
            joint.close()
        return confinement if self._owner == os.getpid() else None


def _accepted(policy: SandboxPolicy, made: Confinement) -> Confinement:
    """The confinement, unless it does less than its policy accepts: then it is closed."""
    try:
        check_accepted(policy, made.enforcement)
    except BaseException:
        made.close()
        raise
    return made


def _identity(path: str) -> tuple[int, int]:
    """Which directory a path is; a path that is empty is none."""
    try:
        found = os.lstat(path) if path else None
    except OSError:
        return (0, 0)
    return (found.st_dev, found.st_ino) if found is not None else (0, 0)
