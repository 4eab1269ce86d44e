"""Isolation ``namespaces``: the blob of a layout, and when a layout has had its day.

A mask lies on a file, and the host may replace that: the kernel then drops the mask with the old
file. What is masked, what is protected and what was named is therefore looked at again before a
command: a sandbox whose layout does not fit any more is made anew.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import _sandcore
from sandbox.backends.layout import Layout, compile_layout, denied_paths
from sandbox.backends.refusals import LANE_STAGES, Refusal, explain_refusal
from sandbox.backends.resting import UNKNOWN, Resting, stamps
from sandbox.backends.search import Lister, search
from sandbox.locks import ForkLock
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy

__all__ = ["ACCESS", "LayoutBasis", "compile_namespaces", "layout_with_basis", "try_namespaces"]

ACCESS = {
    "": 0,
    "read": _sandcore.ACCESS_READ,
    "write": _sandcore.ACCESS_WRITE,
    "device": _sandcore.ACCESS_DEVICE,
    "names": _sandcore.ACCESS_NAMES,
}
_KINDS = {
    "write": _sandcore.MOUNT_WRITE,
    "read": _sandcore.MOUNT_READ,
    "socket": _sandcore.MOUNT_READ,
    "pin": _sandcore.MOUNT_PIN,
    "mask": _sandcore.MOUNT_MASK,
    "later": _sandcore.MOUNT_MASK,
    "absent": _sandcore.MOUNT_ABSENT,
    "hollow": _sandcore.MOUNT_HOLLOW,
    "dock": _sandcore.MOUNT_HOLLOW,
    "scratch": _sandcore.MOUNT_SCRATCH,
    "devices": _sandcore.MOUNT_DEVICES,
    "proc": _sandcore.MOUNT_PROC,
}


class LayoutBasis:
    """The state of the disk that a layout was made from: which files lie at the paths in it.

    A file at each path, or none: that is what counts, before each command. While the helper is
    alive it mends masks by itself, but nobody knows how soon it is given time to. What a harness
    mounts over its workspace is told by nobody, so that is looked at itself.
    ``missing``: those of the paths at which nothing was.
    """

    def __init__(self, resolved: ResolvedPolicy, masked: Sequence[str]) -> None:
        protected = resolved.all_protected
        self._patterns = _Patterns(resolved)
        denied = [place.path for place in resolved.denied]
        paths = dict.fromkeys([*protected, *masked, *resolved.links, *denied, *resolved.sockets])
        # What a pointer says is part of the layout; of the rest only which file it is.
        pointers = {path for path in protected if _is_pointer(path)}
        self._read = stamps(pointers, resolved.writable[:1])
        self._state = self._read.take()
        self._resting = Resting(
            [*resolved.writable, *(path for path in paths if path not in pointers)]
        )
        self.missing = self._resting.missing

    def holds(self) -> bool:
        """Whether the layout still is what the policy says."""
        return self._read.same(self._state) and self._resting.holds() and self._patterns.holds()

    def holds_now(self) -> bool:
        """The same where changes are told of by nobody."""
        return self._resting.holds_now() and self.holds()


class _Patterns:
    """What matches the patterns of a policy: nothing more than what was known."""

    def __init__(self, resolved: ResolvedPolicy) -> None:
        self._patterns, self._known = resolved.patterns, frozenset(resolved.matched)
        self._lister, self._lock = Lister(), ForkLock()
        self._looked: tuple[str, ...] = ()
        self._directories, self._state = stamps((), ()), UNKNOWN

    def holds(self) -> bool:
        """Whether nothing has come to match."""
        if not self._patterns or self._directories.same(self._state):
            return True
        with self._lock.held:
            state = self._directories.take()  # first: what changes meanwhile differs from it
            found = [search(one, lister=self._lister) for one in self._patterns]
            if any(not (one.complete and self._known.issuperset(one.paths)) for one in found):
                return False
            looked = tuple(dict.fromkeys(path for one in found for path in one.directories))
            if looked != self._looked:
                self._looked, self._state = looked, UNKNOWN
                self._directories = stamps(looked, ())
            elif self._directories.settled(state):
                self._state = state
        return True


def _is_pointer(path: str) -> bool:
    """Whether this is a ``.git`` that may say where the git directory is."""
    return path.endswith("/.git") and os.path.isfile(path)


def try_namespaces() -> Refusal | None:
    """Makes the smallest sandbox of namespaces that there is; why that is refused, or None."""
    mounts = [
        (b"/dev", _sandcore.MOUNT_DEVICES, 0, 0, 0),
        (b"/proc", _sandcore.MOUNT_PROC, 0, 0, 0),
    ]
    blob = _sandcore.compile_policy(mounts=mounts, own_network=True, read_only=True)
    try:
        helper = _sandcore.Helper(blob, _sandcore.HELPER_PATH)
    except _sandcore.StageError as error:
        return explain_refusal(error.stage, error.errno or 0)
    try:
        helper.lane().close()
    except _sandcore.StageError as error:
        return explain_refusal(LANE_STAGES.get(error.stage, error.stage), error.errno or 0)
    finally:
        helper.close()
    return None


def layout_with_basis(resolved: ResolvedPolicy) -> tuple[Layout, LayoutBasis]:
    """A layout, and the state of the disk from before it was made. Raises ``Unenforceable``."""
    denied = denied_paths(resolved)
    basis = LayoutBasis(resolved, denied)
    return compile_layout(resolved, denied, basis.missing), basis


def compile_namespaces(policy: SandboxPolicy, layout: Layout, abi: int) -> _sandcore.Policy:
    """The blob of a policy with this layout; ``abi`` 0: without Landlock.

    A supervisor makes each connect: it reaches the network, which is the sandbox's own or the
    host's, and the Unix sockets of the sandbox's commands, but of the host's only named ones.
    Where Landlock has it, signals end at the sandbox also where a command stays in the caller's
    process group, which a pid namespace does not hide (``kill -KILL 0``).
    """
    rules = [(rule.path, ACCESS[rule.access], not rule.named) for rule in layout.rules]
    handle = _sandcore.HANDLE_WRITE | _sandcore.HANDLE_MOUNTED | _sandcore.HANDLE_SCOPES
    handle |= _sandcore.HANDLE_READ | _sandcore.HANDLE_NAMES if layout.handle_read else 0
    mounts = [
        (
            mount.path,
            _KINDS[mount.kind],
            (_sandcore.MOUNT_OPTIONAL if mount.optional else 0)
            | (_sandcore.MOUNT_MAKE if mount.made else 0)
            | (_sandcore.MOUNT_LATER if mount.kind == "later" else 0)
            | (_sandcore.MOUNT_SOCKET if mount.kind == "socket" else 0)
            | (_sandcore.MOUNT_DOCK if mount.kind == "dock" else 0),
            ACCESS[mount.access],
            mount.size,
        )
        for mount in layout.mounts
    ]
    flags = _sandcore.FILTER_ALLOW_PTRACE | _sandcore.FILTER_PRIVATE_IPC
    flags |= _sandcore.FILTER_SUPERVISED
    return _sandcore.compile_policy(
        rules if abi else (),
        abi=abi,
        handle=handle if abi else 0,
        network=_sandcore.NET_FULL,
        filter_flags=flags,
        extra_filter=policy.extra_filter or b"",
        mounts=mounts,
        own_network=policy.network != "full",
        read_only=layout.read_only,
    )
