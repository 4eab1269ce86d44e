"""``run``: a command without a sandbox at hand.

It keeps the sandboxes that it made, by policy and workspace, because a started one is what makes a
command cheap. Few are kept that nobody uses (the least recently used goes first), none is closed
while a command runs in it, and all end with the process.
"""

from __future__ import annotations

import atexit
import os
import stat
from collections import OrderedDict
from typing import Any, Literal, Unpack, overload

from sandbox.docks import NotDocked, named
from sandbox.environ import home
from sandbox.errors import PolicyError, SandboxException, Unenforceable
from sandbox.live import Sandbox, checked, needs_workspace
from sandbox.locks import ForkLock
from sandbox.policy import SandboxPolicy
from sandbox.presets import workspace_write
from sandbox.request import Args, RunOptions, existing_directory, working_directory
from sandbox.result import Result, TextResult

__all__ = ["Shelf", "Slot", "run"]

_KEPT = 32  # sandboxes: each is two small processes and one more per command at a time


class Slot:
    """A kept sandbox, what it is for, and how many commands use it.

    ``exclusive``: one at a time.
    """

    __slots__ = ("exclusive", "key", "sandbox", "users")

    def __init__(self, key: tuple[Any, ...], sandbox: Sandbox) -> None:
        self.key = key
        self.sandbox = sandbox
        self.users = 1
        self.exclusive = sandbox.isolation == "namespaces"


class Shelf:
    """Sandboxes by policy and workspace, at most so many that nobody uses.

    Calls have nothing to do with each other. In namespaces a sandbox has a /tmp, shared memory and
    a network that its commands share: there each call has a sandbox for itself, and what it left
    is removed before the next one gets it.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._lock = ForkLock()
        self._slots: dict[tuple[Any, ...], list[Slot]] = {}
        self._idle: OrderedDict[Slot, None] = OrderedDict()  # the oldest first
        self._owner = os.getpid()

    def borrow(self, policy: SandboxPolicy, workspace: str | None, place: str = "/") -> Slot:
        """A sandbox for a policy and a workspace, made when none is free; to be given back.

        ``place`` is as for ``Sandbox``.

        Raises what ``Sandbox`` does, and ``WorkingDirectoryError`` for a workspace that is missing.
        """
        key = (policy, workspace, place, home())
        slot = self._free_slot(key)
        if slot is not None:
            return slot
        if workspace is not None:
            existing_directory(workspace)
        return self._keep(Slot(key, Sandbox(policy, workspace=workspace, place=place)))

    def borrow_for(self, policy: SandboxPolicy, place: str, workspaces: Any = None) -> Slot:
        """As ``borrow``, for a command that starts in a place: that is the workspace, if any.

        ``workspaces``: a directory that the workspace lies in, of which nothing else is seen.
        """
        if workspaces is not None:
            return self._borrow_moved(policy, place, working_directory(workspaces))
        if needs_workspace(policy):
            return self.borrow(policy, place)
        return self.borrow(policy, None, place if place.startswith("/tmp/") else "/")

    def _borrow_moved(self, policy: SandboxPolicy, place: str, dock: str) -> Slot:
        workspace = _workspace_in(dock, place)
        which = _stat(dock)
        if which is None or not stat.S_ISDIR(which.st_mode):
            which = os.stat(existing_directory(dock))
        key = (policy, dock, (which.st_dev, which.st_ino), home())
        slot = self._free_slot(key)
        try:
            if slot is None:
                slot = self._keep(Slot(key, Sandbox(policy, workspaces=dock)))
            slot.sandbox.lend(workspace)
            return slot
        except Unenforceable as refused:
            if refused.part != "workspaces=":
                raise
            self._discard(slot)
        except NotDocked:
            self._discard(slot)
        except PolicyError:
            if slot is not None:
                self.give_back(slot)
            raise
        except BaseException:
            self._discard(slot)
            raise
        named(os.path.realpath(dock), workspace)
        return self.borrow(policy.with_deny(dock), workspace)

    def _free_slot(self, key: tuple[Any, ...]) -> Slot | None:
        with self._lock.held:
            if self._owner != os.getpid():
                self._after_fork()
            for slot in self._slots.get(key, ()):
                if slot.users == 0 or not slot.exclusive:
                    slot.users += 1
                    self._idle.pop(slot, None)
                    return slot
        return None

    def _keep(self, slot: Slot) -> Slot:
        with self._lock.held:
            self._slots.setdefault(slot.key, []).append(slot)
        return slot

    def _discard(self, slot: Slot | None) -> None:
        if slot is not None:
            with self._lock.held:
                self._remove(slot)
            slot.sandbox.close()

    def give_back(self, slot: Slot) -> None:
        """Says that a command is done with a sandbox."""
        spoiled = False
        if slot.exclusive:
            try:
                slot.sandbox.clear()  # an idle one holds no file system of a workspace, either
            except SandboxException:
                spoiled = True
        with self._lock.held:
            slot.users -= 1
            if slot.users == 0:
                self._idle[slot] = None
            surplus = [slot] if spoiled else []
            surplus += list(self._idle)[: max(len(self._idle) - self._kept, 0)]
            for old in surplus:
                self._remove(old)
        for old in surplus:
            old.sandbox.close()

    def _remove(self, slot: Slot) -> None:
        self._idle.pop(slot, None)
        rest = [other for other in self._slots.get(slot.key, ()) if other is not slot]
        self._slots[slot.key] = rest
        if not rest:
            del self._slots[slot.key]

    def _after_fork(self) -> None:
        """A forked copy leaves its parent's sandboxes alone and starts empty."""
        if self._owner != os.getpid():
            self._owner = os.getpid()
            self._slots, self._idle = {}, OrderedDict()

    def close(self) -> None:
        """Closes all of them."""
        with self._lock.held:
            self._after_fork()
            slots = [slot for same in self._slots.values() for slot in same]
            self._slots, self._idle = {}, OrderedDict()
        for slot in slots:
            slot.sandbox.close()


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _workspace_in(dock: str, place: str) -> str:
    """The directory right in a dock that a place is, or is in; else the place."""
    for resolves in (False, True):
        above = os.path.realpath(dock) if resolves else dock
        start = above.rstrip("/") + "/"
        if place.startswith(start):
            return start + place[len(start) :].partition("/")[0]
    return place


_shelf = Shelf()  # the one state of the module: what makes `run` cheap the second time
_default = workspace_write()
atexit.register(_shelf.close)


@overload
def run(
    args: Args,
    policy: SandboxPolicy | None = None,
    *,
    text: Literal[True],
    workspaces: Any = None,
    **how: Unpack[RunOptions],
) -> TextResult: ...
@overload
def run(
    args: Args,
    policy: SandboxPolicy | None = None,
    *,
    text: Literal[False] = False,
    workspaces: Any = None,
    **how: Unpack[RunOptions],
) -> Result: ...
def run(
    args: Args,
    policy: SandboxPolicy | None = None,
    *,
    text: bool = False,
    workspaces: Any = None,
    **how: Unpack[RunOptions],
) -> Result | TextResult:
    """Runs one command, confined by default, and returns when its whole process tree is gone.

    ``policy`` is ``workspace_write()`` unless given. Where it does not name its workspace itself,
    ``cwd`` (default: the caller's directory) is the workspace, and is refused when that would make
    HOME, the whole machine or a place of secrets writable. All else as ``Sandbox.run``: ``cwd``,
    ``env``, ``input``, ``timeout``, ``limits``, ``text``, ``check``, ``stdin``, ``stdout``,
    ``stderr``, ``terminal``.

    ``workspaces`` is a directory that holds workspaces, one for each sample, say: the workspace is
    that one of them in which ``cwd`` lies, and of the others the command sees nothing. One sandbox
    serves all of them, one after another, where there are namespaces; elsewhere each has its own.
    """
    chosen = _default if policy is None else checked(policy)
    place = how["cwd"] = working_directory(how.get("cwd"))
    slot = _shelf.borrow_for(chosen, place, workspaces)
    try:
        return slot.sandbox.run(args, text=True, **how) if text else slot.sandbox.run(args, **how)
    finally:
        _shelf.give_back(slot)
