"""What a confinement stands on: a policy compiled for an isolation, and when that is outdated.

Rules and a filter are all there is in ``landlock``; in ``namespaces`` a layout of mounts takes the
place of most rules. What is compiled here is what ``sandbox debug`` explains.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import _sandcore
from sandbox.backends.basis import Basis
from sandbox.backends.enforceable import (
    counts_processes,
    weaker_host,
    weaker_program,
    why_unsampled,
)
from sandbox.backends.layout import TMP, has_tmp
from sandbox.backends.namespaces import (
    ACCESS,
    LayoutBasis,
    compile_namespaces,
    layout_with_basis,
)
from sandbox.backends.refusals import Refusal
from sandbox.backends.rules import ABI_LEAST, Rules
from sandbox.backends.searched import weaker_searched
from sandbox.limits import Limits
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy
from sandbox.result import Weaker

__all__ = [
    "Ground",
    "compile_blob",
    "filter_options",
    "handle_of",
    "in_landlock",
    "in_namespaces",
    "rule_parts",
    "unconfined",
]

_ABSENT_MAX = 256  # paths: as many directories as a guard watches, with more names than usual
_ABI_TCP = 4
_ABI_UNIX = 9
_ABI_UDP = 10


def handle_of(policy: SandboxPolicy, rules: Rules, abi: int) -> int:
    """What Landlock restricts for this policy: HANDLE_* or'ed."""
    handle = _sandcore.HANDLE_WRITE | _sandcore.HANDLE_SCOPES
    for wanted, one in (
        (rules.handle_read, _sandcore.HANDLE_READ),
        (rules.handle_names, _sandcore.HANDLE_NAMES),
        (policy.network == "none" and abi >= _ABI_TCP, _sandcore.HANDLE_TCP),
        (policy.network == "none" and abi >= _ABI_UDP, _sandcore.HANDLE_UDP),
        (abi >= _ABI_UNIX, _sandcore.HANDLE_UNIX),
    ):
        handle |= one if wanted else 0
    return handle


def filter_options(policy: SandboxPolicy, abi: int) -> tuple[int, int]:
    """The network mode and the flags of this policy's filter."""
    flags = _sandcore.FILTER_ALLOW_PTRACE  # of its own children: the domain keeps others safe
    if abi >= _ABI_UNIX:
        flags |= _sandcore.FILTER_UNIX_SCOPED
    network = _sandcore.NET_FULL if policy.network == "full" else _sandcore.NET_NONE
    return network, flags


def rule_parts(rules: Rules) -> list[tuple[bytes, int, bool]]:
    """Rules as the core takes them."""
    return [(rule.path, ACCESS[rule.access], not rule.named) for rule in rules.rules]


def compile_blob(
    policy: SandboxPolicy,
    rules: Rules | None,
    abi: int,
    absent: Sequence[str] = (),
    tell: bool = False,
) -> _sandcore.Policy:
    """The blob of a policy with these rules; without rules one that enforces nothing.

    ``absent``: protected names that are missing, those of one directory after each other.
    ``tell``: the kernel's audit of what is refused.
    """
    if rules is None:
        return _sandcore.compile_policy(confined=False)
    network, flags = filter_options(policy, abi)
    return _sandcore.compile_policy(
        rule_parts(rules),
        abi=abi,
        handle=handle_of(policy, rules, abi),
        network=network,
        filter_flags=flags,
        extra_filter=policy.extra_filter or b"",
        mounts=[(os.fsencode(path), _sandcore.MOUNT_ABSENT, 0, 0, 0) for path in absent],
        tell=tell,
    )


@dataclass(frozen=True, slots=True)
class Ground:
    """What a confinement stands on: its blob, when that is outdated, and what it does not enforce.

    ``tmp``: the temporary directory that commands see, where that is the sandbox's own.
    ``counted``: whether a lane can be told how many processes its command may have;
    ``unsampled``: why it cannot look at the memory of them all, empty: it can.
    ``scratch``: what stays in each directory of its own when it is cleared. ``guarded``: protected
    paths that nothing holds, so that they have to be looked after; ``guarded_later``: what came to
    them since the first confinement. ``absent``: names that count as planted when they come, and
    whose coming ``basis`` does not see.
    """

    blob: _sandcore.Policy
    basis: Basis | LayoutBasis
    isolation: str
    weaker: tuple[Weaker, ...] = ()
    tmp: str = ""
    counted: bool = False
    unsampled: str = ""
    scratch: tuple[frozenset[str], ...] = ()
    guarded: tuple[str, ...] = ()
    guarded_later: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    def processes(self, limits: Limits) -> int:
        """How many a lane for these limits lets its command have; 0: any number."""
        return limits.processes or 0 if self.counted else 0


def in_landlock(
    resolved: ResolvedPolicy,
    rules: Rules,
    basis: Basis,
    abi: int,
    refusal: Refusal | None,
    tell: bool = False,
) -> Ground:
    """The ground of rules. Raises ``Unenforceable``."""
    helper = os.fsdecode(_sandcore.HELPER_PATH)
    weaker = (
        *rules.weaker,
        *weaker_host(resolved, abi, refusal),
        *weaker_program(resolved, helper),
    )
    writable = frozenset(resolved.writable)
    protected = sorted(path for path in resolved.all_protected if os.path.dirname(path) in writable)
    absent = tuple(path for path in protected[:_ABSENT_MAX] if not os.path.lexists(path))
    blob = compile_blob(resolved.policy, rules, abi, absent, tell)
    return Ground(
        blob,
        basis,
        "landlock",
        weaker,
        guarded=resolved.protected,
        guarded_later=resolved.more_protected,
        absent=absent,
        unsampled=why_unsampled(resolved, "landlock", abi),
    )


def in_namespaces(resolved: ResolvedPolicy, abi: int, release: str) -> Ground:
    """The ground of a layout. Raises ``Unenforceable``."""
    layout, basis = layout_with_basis(resolved)
    abi = abi if abi >= ABI_LEAST else 0
    program = weaker_program(resolved, os.fsdecode(_sandcore.HELPER_PATH))
    weaker = (*layout.weaker, *weaker_searched(resolved), *program)
    if os.geteuid() != 0:  # who may map one number only: its own
        cause = "files of others belong to nobody inside: ssh refuses what is in /etc/ssh"
        mend = "ssh -F FILE, with a configuration of one's own"
        weaker = (*weaker, Weaker("owners", cause, mend))
    if abi == 0:
        cause = "this kernel has none: a FIFO outside can be written into"
        weaker = (*weaker, Weaker("landlock", cause, "Linux 6.2 or newer"))
    blob = compile_namespaces(resolved.policy, layout, abi)
    tmp = TMP if has_tmp(resolved.policy) else ""
    held = {os.fsdecode(mount.path) for mount in layout.mounts if mount.kind == "read"}
    return Ground(
        blob,
        basis,
        "namespaces",
        weaker,
        tmp,
        counted=counts_processes(release),
        unsampled=why_unsampled(resolved, "namespaces", abi),
        scratch=layout.scratch,
        guarded=tuple(path for path in resolved.all_protected if path not in held),
    )


def unconfined(policy: SandboxPolicy) -> Ground:
    """The ground of a policy that enforces nothing."""
    unsampled = "nothing tells the command's processes from others"
    return Ground(compile_blob(policy, None, 0), Basis.nothing(), "none", unsampled=unsampled)
