"""What a host must be able to do for a policy, and what may be weaker.

Some parts of a policy stop everything where they cannot be had; others are enforced less, and then
said (the design's table).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from typing import Protocol

from sandbox.backends.refusals import Refusal
from sandbox.backends.rules import ABI_LEAST
from sandbox.entries import Access
from sandbox.errors import InvalidPath, Unenforceable, WorkspaceRefused
from sandbox.limits import Limits
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy
from sandbox.result import Weaker

__all__ = [
    "ABI_SCOPES",
    "KernelFacts",
    "check_filters",
    "check_host",
    "check_owner",
    "check_ownership",
    "counts_processes",
    "weaker_host",
    "weaker_layout",
    "weaker_limits",
    "weaker_program",
    "why_uncounted",
    "why_unsampled",
]

ABI_SCOPES = 6  # of Landlock, for signals
_ABSTRACT = "a command may take the name of an abstract socket that a program outside asks for"
_NAMESPACES = "namespaces: see `sandbox doctor`"


class KernelFacts(Protocol):
    """What is asked of a kernel; ``_sandcore.Probe`` is one."""

    @property
    def landlock_abi(self) -> int:
        """0 for no Landlock."""

    @property
    def seccomp_filter(self) -> bool:
        """Whether filters can be installed."""

    @property
    def release(self) -> str:
        """As ``uname -r``."""


def check_filters(probe: KernelFacts) -> None:
    """Raises ``Unenforceable`` where there are no filters: no isolation does without."""
    if not probe.seccomp_filter:
        raise Unenforceable(
            "network", "this kernel or container has no seccomp filters", "see `sandbox doctor`"
        )


def check_host(policy: SandboxPolicy, probe: KernelFacts, refusal: Refusal | None = None) -> None:
    """Raises ``Unenforceable`` for what is never weakened and cannot be had without namespaces.

    ``refusal`` says why there are none, if that is known.
    """
    cause = refusal.cause if refusal is not None else "namespaces were left out"
    mend = refusal.mend if refusal is not None else "SANDBOX_ISOLATION=auto"
    if policy.require == "namespaces":
        raise Unenforceable("isolation 'namespaces'", cause, mend)
    if policy.unconfined:
        return
    if policy.unix_sockets:
        what = f"the Unix socket {policy.unix_sockets[0]}"
        raise Unenforceable(what, f"naming sockets takes namespaces, and {cause}", mend)
    if policy.network == "loopback":
        raise Unenforceable("network 'loopback'", f"it takes namespaces, and {cause}", mend)
    if probe.landlock_abi < ABI_LEAST:
        found = f"ABI {probe.landlock_abi}" if probe.landlock_abi > 0 else "no Landlock"
        raise Unenforceable(
            "writes",
            f"this kernel ({probe.release}) has {found}; ABI {ABI_LEAST} is needed, because before "
            "it a file outside can still be truncated",
            "Linux 6.2 or newer, with landlock in the boot parameter lsm=; see `sandbox doctor`",
        )
    check_filters(probe)


def check_ownership(resolved: ResolvedPolicy) -> None:
    """Raises for what the policy makes writable and root, without capabilities, could not write.

    Usual in containers: the workspace belongs to an ordinary user and the caller is root. Every
    write in it would fail with a "permission denied" that no policy explains.
    """
    for path in resolved.writable:
        try:
            check_owner(path, os.stat(path), path == resolved.workspace)
        except OSError:
            continue  # it is gone: making its rule says so


def check_owner(path: str, found: os.stat_result, is_workspace: bool) -> None:
    """The same for one path."""
    if found.st_uid == 0:
        may = 0o200
    else:
        may = 0o020 if found.st_gid in {os.getegid(), *os.getgroups()} else 0o002
    if found.st_mode & may:
        return
    cause = (
        f"it belongs to uid {found.st_uid}; root has no capabilities inside and could not "
        "write there"
    )
    mend = f"setpriv --reuid {found.st_uid} --regid {found.st_gid} --clear-groups ..., or chown"
    if is_workspace:
        raise WorkspaceRefused(path, cause, mend)
    raise InvalidPath(path, cause, mend)


def weaker_host(resolved: ResolvedPolicy, abi: int, refusal: Refusal | None) -> Iterator[Weaker]:
    """What Landlock and the filter leave open whatever the rules say."""
    if refusal is not None:
        yield Weaker("namespaces", refusal.cause, refusal.mend)
    cause = "/proc shows the names and arguments of the host's processes"
    yield Weaker("process-names", cause, _NAMESPACES)
    cause = "no sockets of the internet, nor Unix sockets but pairs: a program cannot have servers"
    if resolved.policy.network == "full":
        cause = "no Unix sockets but pairs: a program cannot have servers on them"
    yield Weaker("loopback", cause, _NAMESPACES)
    if resolved.policy.network != "full":  # with it there is no AF_UNIX at all
        yield Weaker("abstract-names", _ABSTRACT, _NAMESPACES)
    if abi < ABI_SCOPES:
        cause = f"Landlock has signal scopes from ABI {ABI_SCOPES}, this kernel has {abi}"
        yield Weaker("signals", cause, "Linux 6.12 or newer")
        yield Weaker("tree-kill", cause, "Linux 6.12 or newer")


def weaker_layout(resolved: ResolvedPolicy) -> Iterator[Weaker]:
    """What mounts leave open."""
    if resolved.policy.network == "full":
        yield Weaker("abstract-names", _ABSTRACT, "network 'none' or 'loopback'")
    above = {path: path.rpartition("/")[0] or "/" for path in resolved.sockets}
    loose = [path for path in above if resolved.access(above[path]) is Access.WRITE]
    if loose:
        cause = f"a command may put another socket of its directory in the place of {loose[0]}"
        yield Weaker("unix-sockets", cause, "name sockets outside of what may be written")
    if resolved.access("/") is not Access.WRITE:
        cause = (
            "a hard link that was there before gives a file outside a name where more is allowed"
        )
        yield Weaker("hard-links", cause, "find WORKSPACE -type f -links +1", everywhere=True)
        cause = "a file that may be read may be locked, and who waits for the lock waits"
        yield Weaker("locks", cause, "deny what others lock", everywhere=True)
    if resolved.protected or resolved.dock:
        cause = "a new repository in a writable directory, or one that was not found, has hooks"
        mend = "git -c core.hooksPath=/dev/null -c core.fsmonitor=false in what a command made"
        yield Weaker("repositories", cause, mend, everywhere=True)


def weaker_program(resolved: ResolvedPolicy, helper: str) -> Iterator[Weaker]:
    """``helper`` is our own program, which the caller runs unconfined."""
    helper = os.path.realpath(helper)
    if resolved.access(helper) is Access.WRITE:
        cause = f"the sandbox's own program is in a writable directory: {helper}"
        yield Weaker("own-program", cause, "install sandcore outside the workspace")


def weaker_masks(unwatched: int) -> Iterator[Weaker]:
    """What it means that the host tells of no changes in so many directories."""
    if unwatched:
        cause = (
            f"changes in {unwatched} directories on the way to denied or protected files are not "
            "told: one that the host replaces while commands run stays open to them"
        )
        yield Weaker("masks", cause, "make them readable; sysctl fs.dir-notify-enable=1")


def counts_processes(release: str) -> bool:
    """Whether a pid namespace can be told how many processes it holds: from Linux 6.14 on.

    Before, the number that is written for that is the whole machine's.
    """
    found = re.match(r"(\d+)\.(\d+)", release)
    new_enough = found is not None and (int(found[1]), int(found[2])) >= (6, 14)
    return new_enough and os.path.exists("/proc/sys/kernel/ns_last_pid")


def why_unsampled(resolved: ResolvedPolicy, isolation: str, abi: int) -> str:
    """Why a lane cannot look at the memory of its command's processes; empty: it can."""
    if resolved.access("/proc") is Access.DENY:
        return "the policy denies /proc, where the lane would look"
    if isolation == "landlock" and abi < ABI_SCOPES:
        return (
            f"without signal scopes (Landlock ABI {ABI_SCOPES}) a lane cannot tell whose they are"
        )
    return ""


def weaker_limits(
    limits: Limits, counted: bool, unsampled: str, shared: Limits
) -> Iterator[Weaker]:
    """Limits that are enforced less than they say.

    ``counted``: lanes count their processes. ``unsampled``: why they do not look at memory.
    ``shared``: the limits of the policy, for what all commands of a sandbox have in common.
    """
    if (limits.tmp or math.inf) < (shared.tmp or math.inf):
        size = f"{shared.tmp} bytes" if shared.tmp else "without a limit"
        yield Weaker("tmp-size", f"/tmp is the whole sandbox's, and {size}", "say it in the policy")
    if limits.memory is not None and unsampled:
        yield Weaker("memory", f"it binds single processes only (RLIMIT_DATA): {unsampled}")
    elif limits.memory is not None:
        cause = (
            "it is looked at every 20 ms and may be passed for that long; what no process maps "
            "(memory files, pipes) is not counted"
        )
        yield Weaker("memory", cause)
    if limits.processes is not None and not counted:
        yield Weaker("processes", why_uncounted(), "namespaces, on Linux 6.14 or newer")


def why_uncounted() -> str:
    """What a limit of processes means where nobody counts those of the sandbox."""
    who = "does not bind root" if os.getuid() == 0 else "counts all processes of the user"
    return f"RLIMIT_NPROC {who}"
