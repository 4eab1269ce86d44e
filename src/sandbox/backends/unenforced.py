"""What Seatbelt cannot do of a policy: what stops everything, and what is enforced less."""

from __future__ import annotations

import os
from collections.abc import Iterator

from sandbox.backends.enforceable import why_uncounted
from sandbox.entries import Access
from sandbox.errors import Unenforceable
from sandbox.limits import Limits
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy
from sandbox.result import Weaker

__all__ = ["check_seatbelt", "weaker_seatbelt", "weaker_seatbelt_limits"]

_LINUX = "Linux"


def check_seatbelt(policy: SandboxPolicy, has_program: bool) -> None:
    """Raises ``Unenforceable`` for what is never weakened and cannot be had."""
    if policy.require is not None:
        cause = "macOS has Seatbelt, and neither namespaces nor Landlock"
        raise Unenforceable(f"isolation {policy.require!r}", cause, "require=None, or Linux")
    if policy.extra_filter is not None:
        raise Unenforceable("extra_filter", "macOS has no seccomp", _LINUX)
    if not has_program:
        cause = "/usr/bin/sandbox-exec is not there: this macOS confines by it no more"
        raise Unenforceable("isolation 'seatbelt'", cause, "see `sandbox doctor`")


def weaker_seatbelt(resolved: ResolvedPolicy, marked: bool) -> Iterator[Weaker]:
    """What profiles leave open whatever they say.

    ``marked``: macOS tells which process runs under which profile.
    """
    cause = "its processes are looked for afterwards, and ended until there are none"
    if not marked:
        cause = "what leaves its session and its parent at once is not found: no sandbox_check"
    yield Weaker("tree-kill", cause, _LINUX)
    cause = "who kills the caller and the process that keeps its commands leaves these running"
    yield Weaker("parent-death", cause, _LINUX)
    cause = "/tmp is the host's: only TMPDIR is the command's own"
    yield Weaker("tmp", cause, "deny /private/tmp")
    if resolved.policy.network == "loopback":
        cause = "servers of this machine on its loopback can be reached, and reach the command's"
        yield Weaker("loopback", cause, "network 'none'")
    cause = "a command that is given your terminal may type into it (TIOCSTI)"
    yield Weaker("terminal", cause, "capture its output, or give it a terminal of its own")
    above = {path: os.path.dirname(path) for path in resolved.sockets}
    loose = [path for path in above if resolved.access(above[path]) is Access.WRITE]
    if loose:
        cause = f"a command may put another socket of its directory in the place of {loose[0]}"
        yield Weaker("unix-sockets", cause, "name sockets outside of what may be written")
    if resolved.access("/") is not Access.WRITE:
        cause = "a hard link that was there before gives a file another name, where more is allowed"
        yield Weaker("hard-links", cause, "find WORKSPACE -type f -links +1", everywhere=True)
        cause = "a file that may be read may be locked, and who waits for the lock waits"
        yield Weaker("locks", cause, "deny what others lock", everywhere=True)
    if resolved.protected:
        cause = "a new repository in a writable directory, or one that was not found, has hooks"
        mend = "git -c core.hooksPath=/dev/null -c core.fsmonitor=false in what a command made"
        yield Weaker("repositories", cause, mend, everywhere=True)


def weaker_seatbelt_limits(limits: Limits) -> Iterator[Weaker]:
    """Limits that are enforced less than they say."""
    if limits.memory is not None:
        cause = "it is looked at every 100 ms; pages that processes share count for each"
        yield Weaker("memory", cause, _LINUX)
    if limits.processes is not None:
        yield Weaker("processes", why_uncounted(), _LINUX)
