"""Isolation ``namespaces``: the blob of a layout, and when a layout has had its day.

A mask lies on a file, and the host may replace that: the kernel then drops the mask with the old
file. What is masked, what is protected and what was named is therefore looked at again before a
command: a sandbox whose layout does not fit any more is made anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence

import _sandcore
from sandbox.backends.layout import Layout, compile_layout, denied_paths
from sandbox.backends.refusals import LANE_STAGES, Refusal, explain_refusal
from sandbox.backends.search import Lister, search
from sandbox.locks import ForkLock
from sandbox.paths import ancestors
from sandbox.policy import SandboxPolicy
from sandbox.protected import GUARDED_MAX
from sandbox.resolve import ResolvedPolicy

__all__ = ["ACCESS", "LayoutBasis", "compile_namespaces", "layout_with_basis", "try_namespaces"]

ACCESS = {
    "": 0,
    "read": _sandcore.ACCESS_READ,
    "write": _sandcore.ACCESS_WRITE,
    "device": _sandcore.ACCESS_DEVICE,
    "names": _sandcore.ACCESS_NAMES,
}
_LOOK = 0.05  # seconds between two looks at what rests
_SHARE = 20  # looking at hundreds of writable directories takes one part of so many of the time
_UNKNOWN = b"-"  # equal to the state of no path list: look closer
_KINDS = {
    "write": _sandcore.MOUNT_WRITE,
    "read": _sandcore.MOUNT_READ,
    "socket": _sandcore.MOUNT_READ,
    "pin": _sandcore.MOUNT_PIN,
    "mask": _sandcore.MOUNT_MASK,
    "later": _sandcore.MOUNT_MASK,
    "absent": _sandcore.MOUNT_ABSENT,
    "hollow": _sandcore.MOUNT_HOLLOW,
    "scratch": _sandcore.MOUNT_SCRATCH,
    "devices": _sandcore.MOUNT_DEVICES,
    "proc": _sandcore.MOUNT_PROC,
}


class LayoutBasis:
    """The state of the disk that a layout was made from: which files lie at the paths in it.

    A file at each path, or none: that is what counts, and is a look at each, hundreds where secrets
    are denied. None is replaced or comes into being without a change of the directory that it is
    in: a look at those is enough while they rest. Outside of what commands can write one every
    ``_LOOK`` seconds will do: while the helper is alive it mends masks by itself. The first
    writable directory does not rest, so what is named directly in it is looked at itself. Of
    hundreds only ``GUARDED_MAX`` are looked at for each command.
    ``missing``: those of the paths at which nothing was.
    """

    def __init__(self, resolved: ResolvedPolicy, masked: Sequence[str]) -> None:
        protected = resolved.all_protected
        self._patterns = _Patterns(resolved)
        denied = [place.path for place in resolved.denied]
        paths = dict.fromkeys([*protected, *masked, *resolved.links, *denied, *resolved.sockets])
        # What a pointer says is part of the layout; of the rest only which file it is.
        pointers = {path for path in protected if _is_pointer(path)}
        roots = frozenset(resolved.writable)
        few = resolved.writable[:GUARDED_MAX]
        top, busy, calm, many = [*few[:1]], [*few[1:]], list[str](), [*roots.difference(few)]
        inside: dict[str, str | None] = {}  # of each directory the writable one that it is in
        for path in paths:
            above = _above(path)
            if above not in inside:
                inside[above] = next((one for one in ancestors(above) if one in roots), None)
            root = path if path in roots else inside[above]
            if root in few[:1] and above == root:
                top += [] if path in pointers else [path]  # what a pointer says is looked at
            else:
                (calm if root is None else busy if root in few else many).append(path)
        self._top = _stamps(pointers, top)
        self._state = self._top.take()
        resting = [_Resting(some) for some in (busy, calm, many)]
        self._busy = resting[0]
        self._calm, self._many = _Paused(resting[1]), _Paused(resting[2], _SHARE)
        self.missing = {path for one in resting for path in one.missing()}
        self.missing.update(_missing(top, self._state[len(pointers) * _sandcore.Stamps.SIZE :]))

    def holds(self) -> bool:
        """Whether the layout still is what the policy says."""
        return (
            self._top.same(self._state)
            and self._busy.holds()
            and self._patterns.holds()
            and self._calm.holds()
            and self._many.holds()
        )

    def holds_now(self) -> bool:
        """As ``holds``, without a pause for what rests."""
        return self._calm.look() and self._many.look() and self.holds()


class _Resting:
    """Paths in directories that rest most of the time."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._all, self._quick = _stamps((), paths), _stamps(_directories(paths), ())
        self._state, self._quick_state = self._all.take(), _UNKNOWN

    def missing(self) -> Iterator[str]:
        """Those at which nothing was."""
        return _missing(self._paths, self._state)

    def holds(self) -> bool:
        """Whether each is the file that it was."""
        if self._quick.same(self._quick_state):
            return True
        quick = self._quick.take()  # first: what changes meanwhile differs from it
        if not self._all.same(self._state):
            return False
        # A clock that stands still between two changes would hide the second one.
        self._quick_state = quick if self._quick.settled(quick) else _UNKNOWN
        return True


class _Paused:
    """Looks every ``_LOOK`` seconds only, and for at most one part of ``share`` of the time."""

    def __init__(self, paths: _Resting, share: int = 1) -> None:
        self._paths, self._share, self._look_at = paths, share, 0.0

    def look(self) -> bool:
        """Whether nothing has changed until now."""
        return self._paths.holds()

    def holds(self) -> bool:
        """Whether nothing has changed, as of the last look."""
        now = time.monotonic()
        if now < self._look_at:
            return True
        if not self.look():
            return False  # and so says who asks again at once
        then = time.monotonic()
        self._look_at = max(now + _LOOK, then + self._share * (then - now))
        return True


class _Patterns:
    """What matches the patterns of a policy: nothing more than what was known."""

    def __init__(self, resolved: ResolvedPolicy) -> None:
        self._patterns, self._known = resolved.patterns, frozenset(resolved.matched)
        self._lister, self._lock = Lister(), ForkLock()
        self._looked: tuple[str, ...] = ()
        self._directories, self._state = _stamps((), ()), _UNKNOWN

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
                self._looked, self._state = looked, _UNKNOWN
                self._directories = _stamps(looked, ())
            elif self._directories.settled(state):
                self._state = state
        return True


def _stamps(exact: Iterable[str], identities: Iterable[str]) -> _sandcore.Stamps:
    encode = os.fsencode
    return _sandcore.Stamps([encode(path) for path in exact], [encode(p) for p in identities])


def _missing(paths: Sequence[str], state: bytes) -> Iterator[str]:
    """Those without a file in their stamps, whose second number is the inode's."""
    size, none = _sandcore.Stamps.SIZE, bytes(8)
    for index, path in enumerate(paths):
        if state[index * size + 8 : index * size + 16] == none:
            yield path


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _directories(paths: Iterable[str]) -> Iterable[str]:
    """The directories that change when one of these paths comes into being."""
    found: dict[str, None] = {}
    for above in dict.fromkeys(map(_above, paths)):
        while above != "/" and not os.path.lexists(above):
            above = _above(above)
        found.setdefault(above)
    return found


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
            | (_sandcore.MOUNT_SOCKET if mount.kind == "socket" else 0),
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
