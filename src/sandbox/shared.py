"""``run``: a command without a sandbox at hand.

It keeps the sandboxes that it made, by policy and workspace, because a started one is what makes a
command cheap. They are few (the least recently used goes first), none is closed while a command
runs in it, and all end with the process.
"""

from __future__ import annotations

import atexit
import os
from collections import OrderedDict
from typing import Any, Literal, Unpack, overload

from sandbox.environ import home
from sandbox.live import Sandbox, checked, needs_workspace
from sandbox.locks import ForkLock
from sandbox.policy import SandboxPolicy
from sandbox.presets import workspace_write
from sandbox.request import Args, RunOptions, existing_directory, working_directory
from sandbox.result import Result, TextResult

__all__ = ["Shelf", "Slot", "run"]

_KEPT = 32  # sandboxes: each is two small processes and one more per command at a time


class Slot:
    """A kept sandbox and how many commands use it."""

    __slots__ = ("sandbox", "users")

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.users = 0


class Shelf:
    """Sandboxes by policy and workspace, at most so many that nobody uses."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._lock = ForkLock()
        self._slots: OrderedDict[tuple[Any, ...], Slot] = OrderedDict()
        self._owner = os.getpid()

    def borrow(self, policy: SandboxPolicy, workspace: str | None) -> Slot:
        """The sandbox for a policy and a workspace, made when there is none; to be given back.

        Raises what ``Sandbox`` does, and ``WorkingDirectoryError`` for a workspace that is missing.
        """
        key = (policy, workspace, home())
        with self._lock.held:
            self._after_fork()
            slot = self._slots.get(key)
            if slot is not None:
                self._slots.move_to_end(key)
                slot.users += 1
                return slot
        if workspace is not None:
            existing_directory(workspace)
        made = Slot(Sandbox(policy, workspace=workspace))
        made.users = 1
        with self._lock.held:
            slot = self._slots.setdefault(key, made)
            if slot is not made:
                slot.users += 1  # another thread was quicker
            surplus = [made] if slot is not made else self._surplus()
        for old in surplus:
            old.sandbox.close()
        return slot

    def give_back(self, slot: Slot) -> None:
        """Says that a command is done with a sandbox."""
        with self._lock.held:
            slot.users -= 1

    def _surplus(self) -> list[Slot]:
        """Takes out the oldest unused slots beyond what is kept."""
        excess = len(self._slots) - self._kept
        idle = [key for key, slot in self._slots.items() if slot.users == 0]
        return [self._slots.pop(key) for key in idle[: max(excess, 0)]]

    def _after_fork(self) -> None:
        """A forked copy leaves its parent's sandboxes alone and starts empty."""
        if self._owner != os.getpid():
            self._owner = os.getpid()
            self._slots.clear()

    def close(self) -> None:
        """Closes all of them."""
        with self._lock.held:
            self._after_fork()
            slots, self._slots = list(self._slots.values()), OrderedDict()
        for slot in slots:
            slot.sandbox.close()


_shelf = Shelf()  # the one state of the module: what makes `run` cheap the second time
_default = workspace_write()
atexit.register(_shelf.close)


@overload
def run(
    args: Args,
    policy: SandboxPolicy | None = None,
    *,
    text: Literal[True],
    **how: Unpack[RunOptions],
) -> TextResult: ...
@overload
def run(
    args: Args,
    policy: SandboxPolicy | None = None,
    *,
    text: Literal[False] = False,
    **how: Unpack[RunOptions],
) -> Result: ...
def run(
    args: Args,
    policy: SandboxPolicy | None = None,
    *,
    text: bool = False,
    **how: Unpack[RunOptions],
) -> Result | TextResult:
    """Runs one command, confined by default, and returns when its whole process tree is gone.

    ``policy`` is ``workspace_write()`` unless given. Where it does not name its workspace itself,
    ``cwd`` (default: the caller's directory) is the workspace, and is refused when that would make
    HOME, the whole machine or a place of secrets writable. All else as ``Sandbox.run``: ``cwd``,
    ``env``, ``input``, ``timeout``, ``limits``, ``text``, ``check``, ``stdin``, ``stdout``,
    ``stderr``, ``terminal``.
    """
    chosen = _default if policy is None else checked(policy)
    place = how["cwd"] = working_directory(how.get("cwd"))
    slot = _shelf.borrow(chosen, place if needs_workspace(chosen) else None)
    try:
        return slot.sandbox.run(args, text=True, **how) if text else slot.sandbox.run(args, **how)
    finally:
        _shelf.give_back(slot)
