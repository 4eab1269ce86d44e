"""Isolation ``namespaces``: the blob of a layout, and when a layout has had its day.

A mask lies on a file, and the host may replace that: the kernel then drops the mask with the old
file. What is masked, what is protected and what was named is therefore looked at again before a
command: a sandbox whose layout does not fit any more is made anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

import _sandcore
from sandbox.backends.layout import Layout, compile_layout
from sandbox.paths import below
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy

__all__ = ["ACCESS", "LayoutBasis", "compile_namespaces", "layout_with_basis"]

ACCESS = {
    "": 0,
    "read": _sandcore.ACCESS_READ,
    "write": _sandcore.ACCESS_WRITE,
    "device": _sandcore.ACCESS_DEVICE,
    "names": _sandcore.ACCESS_NAMES,
}
_LOOK = 0.05
_UNKNOWN = b"-"  # equal to the state of no path list: look closer
_KINDS = {
    "write": _sandcore.MOUNT_WRITE,
    "read": _sandcore.MOUNT_READ,
    "pin": _sandcore.MOUNT_PIN,
    "mask": _sandcore.MOUNT_MASK,
    "later": _sandcore.MOUNT_MASK,
    "hollow": _sandcore.MOUNT_HOLLOW,
    "scratch": _sandcore.MOUNT_SCRATCH,
    "devices": _sandcore.MOUNT_DEVICES,
    "proc": _sandcore.MOUNT_PROC,
}


class LayoutBasis:
    """The state of the disk that a layout was made from: which files lie at the paths in it.

    A file at each path, or none: that is what counts, and is a look at each, hundreds where secrets
    are denied. Most are missing, and none comes into being without a change of the directory that
    it is in: a look at those directories is enough while they rest, and one every ``_LOOK``
    seconds will do: while the helper is alive it mends masks by itself. The workspace does not
    rest, so what lies in writable directories is looked at itself, before every command.
    """

    def __init__(self, resolved: ResolvedPolicy, layout: Layout) -> None:
        protected = (*resolved.protected, *resolved.more_protected)
        denied = [place.path for place in resolved.denied]
        paths = dict.fromkeys([*protected, *layout.masked, *resolved.links, *denied])
        # What a pointer says is part of the layout; of the rest only which file it is.
        pointers = [path for path in protected if _is_pointer(path)]
        busy = [path for path in paths if _is_in(path, layout.roots) and path not in pointers]
        calm = [path for path in paths if path not in {*busy, *pointers}]
        self._busy = _stamps(pointers, [*layout.roots, *busy])
        self._quick = _stamps(_directories(calm), [path for path in calm if os.path.lexists(path)])
        self._calm = _stamps((), calm)
        self._states = (self._busy.take(), self._calm.take())
        self._quick_state = _UNKNOWN
        self._look_at = 0.0

    def holds(self) -> bool:
        """Whether the layout still is what the policy says."""
        busy, calm = self._states
        if self._busy.take() != busy:
            return False
        now = time.monotonic()
        if now < self._look_at:
            return True
        self._look_at = now + _LOOK
        quick = self._quick.take()
        if quick == self._quick_state:
            return True
        if self._calm.take() != calm:
            return False
        # A clock that stands still between two changes would hide the second one.
        self._quick_state = quick if self._quick.settled(quick) else _UNKNOWN
        return True


def _stamps(exact: Iterable[str], identities: Iterable[str]) -> _sandcore.Stamps:
    encode = os.fsencode
    return _sandcore.Stamps([encode(path) for path in exact], [encode(p) for p in identities])


def _is_in(path: str, roots: Iterable[str]) -> bool:
    return any(below(path, root) for root in roots)


def _directories(paths: Iterable[str]) -> Iterable[str]:
    """The directories that change when one of these paths comes into being."""
    found: dict[str, None] = {}
    for path in paths:
        above = os.path.dirname(path)
        while above != "/" and not os.path.lexists(above):
            above = os.path.dirname(above)
        found.setdefault(above)
    return found


def _is_pointer(path: str) -> bool:
    """Whether this is a ``.git`` that may say where the git directory is."""
    return path.endswith("/.git") and not os.path.isdir(path)


def layout_with_basis(resolved: ResolvedPolicy) -> tuple[Layout, LayoutBasis]:
    """A layout, and the state of the disk from before it was made. Raises ``Unenforceable``."""
    basis = LayoutBasis(resolved, compile_layout(resolved))
    return compile_layout(resolved), basis


def compile_namespaces(policy: SandboxPolicy, layout: Layout, abi: int) -> _sandcore.Policy:
    """The blob of a policy with this layout; ``abi`` 0: without Landlock.

    Sockets of the internet's families reach the loopback of the sandbox's own network. Those of
    the host's file system are out of reach because there are none of that family but pairs.
    """
    rules = [(rule.path, ACCESS[rule.access], not rule.named) for rule in layout.rules]
    handle = _sandcore.HANDLE_WRITE | _sandcore.HANDLE_MOUNTED
    handle |= _sandcore.HANDLE_READ | _sandcore.HANDLE_NAMES if layout.handle_read else 0
    mounts = [
        (
            mount.path,
            _KINDS[mount.kind],
            (_sandcore.MOUNT_OPTIONAL if mount.optional else 0)
            | (_sandcore.MOUNT_MAKE if mount.made else 0)
            | (_sandcore.MOUNT_LATER if mount.kind == "later" else 0),
            ACCESS[mount.access],
            mount.size,
        )
        for mount in layout.mounts
    ]
    return _sandcore.compile_policy(
        rules if abi else (),
        abi=abi,
        handle=handle if abi else 0,
        network=_sandcore.NET_FULL,
        filter_flags=_sandcore.FILTER_ALLOW_PTRACE,
        extra_filter=policy.extra_filter or b"",
        mounts=mounts,
        own_network=policy.network != "full",
        read_only=layout.read_only,
    )
