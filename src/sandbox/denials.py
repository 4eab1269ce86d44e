"""What a command that failed was refused, as far as that is known.

Asked only when it failed. Exactly known is what the kernel, the lane and the supervisor tell; the
rest is combined from what the command printed (``messages``) and what the policy says of it
(``refused``), is marked so, and is never enough to decide anything by.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sandbox.backends.base import Outcome, Told
from sandbox.denial import Denial, DenialKind, Evidence, Grant
from sandbox.docks import Workspace, docked
from sandbox.errors import InvalidLimit
from sandbox.limits import Limits
from sandbox.messages import Act, Cause, Claim, claims
from sandbox.paths import ancestors
from sandbox.protected import leads_to
from sandbox.refused import Judge
from sandbox.resolve import ResolvedPolicy

__all__ = [
    "DENIALS_MAX",
    "Asked",
    "denials_of",
    "from_kernel",
    "from_supervisor",
    "guesses",
    "untold",
]

DENIALS_MAX = 16
_WORDS_MAX = 256  # of a command, that are looked at as paths
_SOME_NETWORK = "the network"  # where a message names no host
_LOOPBACK = re.compile(r"localhost|127\.[\d.]+|::1", re.IGNORECASE)
# Programs of one system call, by the name that their messages begin with.
_SYSCALLS = {
    "unshare": "unshare",
    "mount": "mount",
    "umount": "umount2",
    "chroot": "chroot",
    "nsenter": "setns",
    "swapon": "swapon",
    "keyctl": "keyctl",
}
_PROGRAM = re.compile(rf"(?:\S*/)?({'|'.join(_SYSCALLS)}): ")
_BY_CAUSE: dict[Cause, str] = {
    "EAGAIN": "processes",
    "EMFILE": "open_files",
    "ENOMEM": "memory",
    "EFBIG": "file_size",
    "ENOSPC": "tmp",
}
# Rights of Landlock, as the kernel's audit names them.
_READ_RIGHTS = frozenset(("fs.execute", "fs.read_file", "fs.read_dir"))
_SOCKET_RIGHTS = frozenset(("fs.resolve_unix", "scope.abstract_unix_socket"))
_CALL_RIGHTS = {"fs.change_topology": "mount", "scope.signal": "kill", "ptrace": "ptrace"}
_OWN_TMP = ("/tmp/", "/dev/shm/")
_NOT_EXECUTABLE = 126  # as shells say it
# Commands of git that write into the repository.
_GIT_WRITES = frozenset(
    (
        *("add", "am", "branch", "checkout", "cherry-pick", "clean", "commit", "config", "fetch"),
        *("gc", "init", "merge", "mv", "notes", "pull", "push", "rebase", "remote", "reset"),
        *("restore", "revert", "rm", "stash", "submodule", "switch", "tag", "update-ref"),
        "worktree",
    )
)


class Asked(NamedTuple):
    """What a command was run with: the policy, where it started, and its limits.

    ``workspace``: the one that lay in the dock of the policy, if it has one.
    """

    base: ResolvedPolicy
    cwd: str
    limits: Limits
    timeout: float | None
    workspace: Workspace | None = None

    @property
    def resolved(self) -> ResolvedPolicy:
        """The policy with real paths; made when something was refused."""
        return self.base if self.workspace is None else docked(self.base, self.workspace)


def denials_of(
    outcome: Outcome, asked: Asked, isolation: str, output: Sequence[bytes]
) -> tuple[Denial, ...]:
    """What is known of a command that failed; at most ``DENIALS_MAX``, what is certain first.

    ``output``: the streams that it printed to, as far as they were kept.
    """
    found: dict[tuple[str, str], Denial] = {}
    for denial in (*_ends(outcome, asked), *_claimed(outcome, asked, isolation, output)):
        known = found.get((denial.kind, denial.what))
        if known is None or (known.grant is None and denial.grant is not None):
            found[denial.kind, denial.what] = denial
        if len(found) == DENIALS_MAX:
            break
    return tuple(found.values())


def from_supervisor(refused: Sequence[tuple[str, str, int]], asked: Asked) -> tuple[Denial, ...]:
    """The connections that the supervisor refused: ``network`` or ``socket``, where to, errno."""
    return tuple(_connection(kind, what, Evidence.FILTER, asked) for kind, what, _ in refused)


def from_kernel(told: Sequence[Told], asked: Asked, isolation: str) -> tuple[Denial, ...]:
    """What the kernel's audit told of, and which entry of the policy is behind it."""
    judge = Judge(asked.resolved, isolation, asked.cwd)
    found = dict.fromkeys(_from_kernel(one, asked, judge) for one in told)
    return tuple(denial for denial in found if denial is not None)[:DENIALS_MAX]


def untold(claimed: Sequence[Denial], told: Sequence[Denial]) -> tuple[Denial, ...]:
    """What is claimed less what is known for certain: the same in the command's words.

    A host's name stays: the supervisor saw only that its address was asked for. Of a name that was
    not to be made or removed the kernel tells the directory.
    """
    known = {(denial.kind, denial.what) for denial in told}
    addresses = [what for kind, what in known if kind is DenialKind.NETWORK]

    def is_known(denial: Denial) -> bool:
        kind, what = denial.kind, denial.what
        if denial.certain or not known:
            return False
        if kind is DenialKind.NETWORK and addresses:
            hosts = (f"{what}:", f"[{what}]:")
            return what == _SOME_NETWORK or any(one.startswith(hosts) for one in addresses)
        above = what.rpartition("/")[0] or "/"
        return (kind, what) in known or (kind is DenialKind.WRITE and (kind, above) in known)

    return tuple(denial for denial in claimed if not is_known(denial))


def guesses(words: Sequence[str], asked: Asked, isolation: str) -> tuple[Denial, ...]:
    """What a command may have been refused, from its words alone: its output was not seen.

    A git command that writes, where the repository is read-only, and paths that may not be read.
    """
    judge = Judge(asked.resolved, isolation, asked.cwd)
    made: list[Claim] = [_worded("EACCES", "read", word) for word in words[1:] if word[:1] != "-"]
    if words[0].rpartition("/")[2] == "git" and not _GIT_WRITES.isdisjoint(words[1:]):
        protected = set(asked.resolved.all_protected)
        roots = [
            above for above in ancestors(asked.cwd) if f"{above.rstrip('/')}/.git" in protected
        ]
        for root in roots[:1]:  # a linked worktree's is a file, and written is what it leads to
            repository = [f"{root.rstrip('/')}/.git", *leads_to(root, ".git")][-1]
            made += [_worded("EROFS", "write", repository)] if repository in protected else []
    found = [judge.denial(claim) for claim in made[-_WORDS_MAX:]]
    once = dict.fromkeys(denial for denial in found if denial is not None)
    return tuple(once)[-DENIALS_MAX:]


def _worded(cause: Cause, act: Any, path: str) -> Claim:
    return Claim(cause, act, (path,), "", "", "")


# What the kernel told.


def _from_kernel(told: Told, asked: Asked, judge: Judge) -> Denial | None:
    right = told.rights[0]
    rule = f"landlock: {', '.join(told.rights)}"
    if right.startswith("net."):
        return _connection("network", f"port {told.what}", Evidence.KERNEL, asked)
    if right in _SOCKET_RIGHTS:
        return _connection("socket", told.what or "a Unix socket", Evidence.KERNEL, asked)
    if not right.startswith("fs.") or right in _CALL_RIGHTS:
        what = _CALL_RIGHTS.get(right, right)
        return Denial(DenialKind.SYSCALL, what, Evidence.KERNEL, rule, detail=told.what)
    act: Act = "read" if _READ_RIGHTS.issuperset(told.rights) else "write"
    denial = judge.denial(_worded("EACCES", act, told.what))
    if denial is not None:
        return replace(denial, evidence=Evidence.KERNEL)
    if len(told.rights) > 1:
        return None  # of a rename both directories are told of; this one allows it
    return Denial(DenialKind(act), told.what, Evidence.KERNEL, rule)


# How it ended.


def _ends(outcome: Outcome, asked: Asked) -> Iterator[Denial]:
    """The limits that ended it."""
    if outcome.timed_out and asked.timeout is not None:
        yield _limit("wall", asked.timeout, Evidence.KERNEL, asked)
    if outcome.over_memory and asked.limits.memory is not None:
        yield _limit("memory", asked.limits.memory, Evidence.KERNEL, asked)
    number = _signal_of(outcome.status)
    cpu, size = asked.limits.cpu, asked.limits.file_size
    if cpu is not None and number in (signal.SIGXCPU, signal.SIGKILL):
        # It can send itself any signal. The kernel's limit counts ticks, and so may be passed when
        # a sixth is missing from what was really used; with less than half it was something else.
        used = sum(outcome.usage[:2])
        if used >= cpu / 2:
            yield _limit("cpu", cpu, Evidence.KERNEL if used >= cpu else Evidence.MESSAGE, asked)
    if number == signal.SIGXFSZ and size is not None:
        yield _limit("file_size", size, Evidence.MESSAGE, asked)
    if number == signal.SIGSYS:
        text = "ended by SIGSYS: a filter refused a system call"
        yield Denial(DenialKind.SYSCALL, "", Evidence.MESSAGE, "system calls", detail=text)
    if max(outcome.stdout_total - len(outcome.stdout), outcome.stderr_total - len(outcome.stderr)):
        yield _limit("output", asked.limits.output, Evidence.KERNEL, asked)


def _signal_of(status: int) -> int:
    """The signal that ended a command, or one below a shell that says so; else 0."""
    return status & 0x7F or max(0, (status >> 8) - 128)


def _limit(name: str, value: Any, evidence: Evidence, asked: Asked) -> Denial:
    """How much it needs is not known: the grant is twice as much."""
    try:
        replace(asked.limits, **{name: value * 2})
        grant = Grant.one(name, value * 2)
    except InvalidLimit:
        grant = None
    return Denial(DenialKind.LIMIT, name, evidence, f"limit {name}: {value}", grant)


# What it printed.


def _claimed(
    outcome: Outcome, asked: Asked, isolation: str, output: Sequence[bytes]
) -> Iterator[Denial]:
    if isolation == "none":
        return
    judge: Judge | None = None
    is_first = True
    for stream in output:
        for claim in claims(stream):
            if is_first and not claim.act and outcome.status >> 8 == _NOT_EXECUTABLE:
                claim = claim._replace(act="run")
            is_first = False
            denial = _without_files(claim, asked, isolation)
            if denial is None:
                judge = judge or Judge(asked.resolved, isolation, asked.cwd)
                denial = judge.denial(claim)
            if denial is not None:
                yield denial


def _without_files(claim: Claim, asked: Asked, isolation: str) -> Denial | None:
    """A denial that is about no file: a limit, a system call, the network."""
    name = _BY_CAUSE.get(claim.cause)
    if name is not None:
        value = getattr(asked.limits, name)
        is_meant = value is not None and _is_meant(name, claim, isolation)
        return _limit(name, value, Evidence.MESSAGE, asked) if is_meant else None
    program = _PROGRAM.match(claim.text)
    if program is not None and claim.cause in ("EPERM", "EACCES"):
        what = _SYSCALLS[program[1]]
        return Denial(DenialKind.SYSCALL, what, Evidence.MESSAGE, "system calls")
    return _unreached(claim, asked, isolation)


def _is_meant(name: str, claim: Claim, isolation: str) -> bool:
    """Whether an errno that may have other causes is about this limit."""
    if name == "processes":
        return re.search("fork|thread|clone|vfork|spawn", claim.text, re.IGNORECASE) is not None
    if name == "tmp":
        return isolation == "namespaces" and any(p.startswith(_OWN_TMP) for p in claim.paths)
    return True


def _unreached(claim: Claim, asked: Asked, isolation: str) -> Denial | None:
    """A connection or socket, where the policy has no network for it."""
    if asked.resolved.policy.network == "full":
        return None
    text, around = claim.text.lower(), claim.around.lower()
    unix = [path for path in claim.paths if path.endswith((".sock", ".socket"))]
    if claim.cause in ("EPERM", "EACCES") and (unix or "unix" in text):
        what = unix[0] if unix else "a Unix socket"
        return _connection("socket", what, Evidence.MESSAGE, asked)
    is_socket = claim.cause == "EPERM" and (
        "socket" in around or "/dev/tcp/" in text or "dial tcp" in text
    )
    if claim.cause != "NET" and not (is_socket and isolation in ("landlock", "seatbelt")):
        return None
    if isolation == "namespaces" and _LOOPBACK.fullmatch(claim.host):
        return None  # its own, where nobody answered
    return _connection("network", claim.host or _SOME_NETWORK, Evidence.MESSAGE, asked)


def _connection(kind: str, what: str, evidence: Evidence, asked: Asked) -> Denial:
    if kind == "socket":
        named = asked.resolved.policy.unix_sockets
        rule = f"sockets of the host: {', '.join(named) or 'none'}"
        # An abstract one cannot be named, nor one of a relative path; and naming a daemon gives
        # its power away: never by what a command says.
        is_known = evidence is not Evidence.MESSAGE and what.startswith("/")
        grant = Grant.one("unix-socket", what) if is_known else None
        return Denial(DenialKind.SOCKET, what, evidence, rule, grant)
    rule = f"network: {asked.resolved.policy.network}"
    return Denial(DenialKind.NETWORK, what, evidence, rule, Grant.one("network", "full"))
