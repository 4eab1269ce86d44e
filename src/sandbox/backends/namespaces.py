"""Isolation ``namespaces``: the blob of a layout, and when a layout has had its day.

A mask lies on a file, and the host may replace that: the kernel then drops the mask with the old
file. What is masked, what is protected and what was named is therefore looked at again before a
command: a sandbox whose layout does not fit any more is made anew.
"""

from __future__ import annotations

import os
import time

import _sandcore
from sandbox.backends.layout import Layout, compile_layout
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
_KINDS = {
    "write": _sandcore.MOUNT_WRITE,
    "read": _sandcore.MOUNT_READ,
    "pin": _sandcore.MOUNT_PIN,
    "mask": _sandcore.MOUNT_MASK,
    "hollow": _sandcore.MOUNT_HOLLOW,
    "scratch": _sandcore.MOUNT_SCRATCH,
    "devices": _sandcore.MOUNT_DEVICES,
    "proc": _sandcore.MOUNT_PROC,
}
_ALWAYS = 64  # paths that are looked at before every command; more than that every _LOOK seconds
_LOOK = 0.05


class LayoutBasis:
    """The state of the disk that a layout was made from: which files lie at the paths in it."""

    def __init__(self, resolved: ResolvedPolicy, layout: Layout) -> None:
        protected = (*resolved.protected, *resolved.more_protected)
        denied = [*layout.masked, *(place.path for place in resolved.denied)]
        denied.sort(key=os.path.lexists, reverse=True)  # what is missing may wait
        paths = [*layout.roots, *protected, *resolved.links, *denied]
        pointers = [path for path in protected if _is_pointer(path)]
        wanted = [os.fsencode(path) for path in dict.fromkeys(paths) if path not in pointers]
        # What a pointer says is part of the layout; of the rest only which file it is.
        self._often = _sandcore.Stamps(map(os.fsencode, pointers), wanted[:_ALWAYS])
        self._seldom = _sandcore.Stamps((), wanted[_ALWAYS:])
        self._states = (self._often.take(), self._seldom.take())
        self._look_at = 0.0

    def holds(self) -> bool:
        """Whether the layout still is what the policy says."""
        often, seldom = self._states
        if self._often.take() != often:
            return False
        if not seldom:
            return True
        now = time.monotonic()
        if now < self._look_at:
            return True
        self._look_at = now + _LOOK
        return self._seldom.take() == seldom


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
    handle = _sandcore.HANDLE_WRITE
    handle |= _sandcore.HANDLE_READ | _sandcore.HANDLE_NAMES if layout.handle_read else 0
    mounts = [
        (
            mount.path,
            _KINDS[mount.kind],
            (_sandcore.MOUNT_OPTIONAL if mount.optional else 0)
            | (_sandcore.MOUNT_MAKE if mount.made else 0),
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
