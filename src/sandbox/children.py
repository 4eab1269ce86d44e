"""Policies made ready for children of the caller's own, and kept: what makes the next one cheap.

As a ``Sandbox`` this resolves its policy once; when the host has changed under it, what forbids is
resolved again and comes on top. Its temporary directory is shared by all commands of the policy.
"""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sandbox.backends.base import Direct, Question
from sandbox.backends.choose import choose
from sandbox.backends.scratch import clean_up, own_directory
from sandbox.environ import PATH_DEFAULT, Plan, account_homes, home, markers
from sandbox.handed import given_environment
from sandbox.live import Sandbox, needs_workspace, plan_of
from sandbox.locks import ForkLock
from sandbox.narrow import narrowed
from sandbox.notice import check_accepted, warn_once
from sandbox.policy import SandboxPolicy
from sandbox.request import working_directory
from sandbox.resolve import ResolvedPolicy

__all__ = ["Joiner", "Spawner", "Spawners"]

_KEPT = 32  # policies: each is a small process or two


class Ready(NamedTuple):
    """What spawns a child, and the child's ``NAME=value`` items and PATH."""

    direct: Direct
    env: Sequence[bytes]
    path: str


class Spawner:
    """A policy that children of the caller's own are put under. Threads may share it.

    ``workspace`` is the directory that the policy makes writable where it names none itself.
    Raises what ``Sandbox`` raises, and ``Unenforceable`` for what takes namespaces.
    """

    def __init__(self, policy: SandboxPolicy, workspace: str | None) -> None:
        self.policy = policy
        self._backend = choose()
        self._lock = ForkLock()
        self._plan = plan_of(policy)
        self._isolation = "none" if policy.unconfined else "landlock"
        named = workspace if needs_workspace(policy) else None
        self._enter()
        try:
            user, more = os.path.expanduser("~"), account_homes()
            self._question = Question(policy, named, user, self._tmp, more, "/")
            self._resolved: ResolvedPolicy = self._backend.resolve(self._question, self._isolation)
            self._direct: Direct = self._backend.direct(self._resolved)
            check_accepted(policy, self._direct.enforcement)
        except BaseException:
            self._cleanup()
            raise
        warn_once(self._direct.enforcement)

    def _current(self) -> Direct:
        """What spawns; made anew when the host has changed under it."""
        with self._lock.held:
            if self._owner != os.getpid():  # after a fork: the directory is the parent's
                self._enter()
                if self._tmp:
                    self._resolved = self._resolved.with_tmp(self._tmp)
            if not self._direct.is_current():
                place = self._resolved.workspace or None
                now = self._question._replace(tmp=self._tmp, workspace=place)
                later = self._backend.resolve(now, self._isolation)
                self._direct = self._backend.direct(narrowed(self._resolved, later))
            return self._direct

    def ready(self, env: Mapping[Any, Any] | None) -> Ready:
        """What a child takes, with the environment of the policy, or what the caller hands over."""
        direct = self._current()
        where = (self._isolation, self._tmp)
        return Ready(direct, *_environment(self._plan, self.policy, where, env))

    def _enter(self) -> None:
        self._owner = os.getpid()
        self._tmp, lock = own_directory() if self._isolation == "landlock" else ("", -1)
        self._cleanup = weakref.finalize(self, clean_up, self._tmp, lock, self._owner)


class Joiner:
    """A live sandbox that children of the caller's own join. Threads may share it."""

    def __init__(self, box: Sandbox) -> None:
        self._box = box
        self._plan = plan_of(box.policy)

    def ready(self, env: Mapping[Any, Any] | None) -> Ready:
        """See ``Spawner.ready``. Raises what ``Sandbox.joint`` raises."""
        joint = self._box.joint()
        where = (joint.enforcement.isolation, joint.tmp)
        return Ready(joint, *_environment(self._plan, self._box.policy, where, env))


def _environment(
    plan: Plan, policy: SandboxPolicy, where: tuple[str, str], env: Mapping[Any, Any] | None
) -> tuple[Sequence[bytes], str]:
    """``where``: the isolation, and the temporary directory."""
    isolation, tmp = where
    if env is None:
        packed = plan.packed(isolation, policy.network, tmp)
        return _items(packed.block), packed.path
    marks = markers(isolation, policy.network, tmp) | dict(policy.environment.set)
    items = given_environment(plan, env, marks)
    path = next((item[5:] for item in items if item.startswith(b"PATH=")), None)
    return items, PATH_DEFAULT if path is None else os.fsdecode(path)


@lru_cache(maxsize=64)
def _items(block: bytes) -> tuple[bytes, ...]:
    return tuple(block.split(b"\0")[:-1])


class Spawners:
    """The latest ones, by policy and workspace. One is kept by its commands beyond that."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._kept: OrderedDict[tuple[Any, ...], Spawner] = OrderedDict()

    def get(self, policy: SandboxPolicy, cwd: Any) -> Spawner:
        """The one for a policy, and for ``cwd`` where that is to be its workspace."""
        workspace = working_directory(cwd) if needs_workspace(policy) else None
        key = (policy, workspace, home())
        with self._lock.held:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        made = Spawner(policy, workspace)
        with self._lock.held:
            found = self._kept.setdefault(key, made)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found
