"""What a policy becomes, as values that can be read, and commands under one mechanism alone.

For `sandbox debug` and `sandbox --version`. What is explained is made by the same functions of the
backend as what is enforced.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import _sandcore
from sandbox.backends.base import Backend
from sandbox.backends.enforceable import check_host
from sandbox.backends.ground import (
    compile_blob,
    filter_options,
    handle_of,
    rule_parts,
)
from sandbox.backends.linux import LinuxBackend
from sandbox.backends.namespaces import ACCESS, layout_with_basis, try_namespaces
from sandbox.backends.rules import ABI_LEAST, Rules, compile_rules
from sandbox.diagnose import explain_start
from sandbox.errors import SandboxBug
from sandbox.policy import SandboxPolicy
from sandbox.request import candidates
from sandbox.resolve import ResolvedPolicy
from sandbox.result import Enforcement, Weaker

__all__ = [
    "Instruction",
    "LandlockView",
    "Mechanism",
    "MountView",
    "Process",
    "RuleView",
    "SeccompView",
    "SyscallView",
    "explain_landlock",
    "explain_mounts",
    "explain_seccomp",
    "host_isolation",
    "host_probe",
    "landlock_backend",
    "start_under",
]

Mechanism = Literal["landlock", "seccomp"]
Instruction = tuple[int, int, int, int]  # code, jt, jf, k


@dataclass(frozen=True, slots=True)
class RuleView:
    """One thing that Landlock allows: a path, its class, and the rights that the class gives."""

    path: str
    access: str
    directory: bool
    rights: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MountView:
    """One exception of the file tree: a path, its kind, and its size where that is limited."""

    path: str
    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class LandlockView:
    """What Landlock is told: what is handled (restricted unless a rule allows it), and the rules.

    ``weaker`` is what is not enforced of the policy. Without confinement all is empty.
    """

    abi: int
    handled: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    rules: tuple[RuleView, ...] = ()
    weaker: tuple[Weaker, ...] = ()


@dataclass(frozen=True, slots=True)
class SyscallView:
    """One reviewed system call.

    ``action`` is "allow", "EPERM", "ENOSYS" or "rule"; of a rule, ``rule`` says which arguments
    pass. ``number`` is -1 where this architecture has no such call.
    """

    name: str
    number: int
    action: str
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class SeccompView:
    """The filter: what it does with each call, and the program that does it."""

    network: str
    calls: tuple[SyscallView, ...]
    program: tuple[Instruction, ...]


def host_probe() -> _sandcore.Probe:
    """What the kernel offers to this process. Raises ``OSError`` when it cannot be asked."""
    return _sandcore.probe()


def host_isolation() -> tuple[str, int, str]:
    """The isolation that commands get here, the Landlock ABI, the kernel's release."""
    probe = _sandcore.probe()
    isolation = "none"
    if probe.seccomp_filter and probe.landlock_abi >= ABI_LEAST:
        isolation = "landlock"
    wanted = os.environ.get("SANDBOX_ISOLATION") != "landlock"
    if probe.seccomp_filter and wanted and try_namespaces() is None:
        isolation = "namespaces"
    return isolation, probe.landlock_abi, probe.release


def landlock_backend() -> Backend:
    """The backend that confines without namespaces."""
    return LinuxBackend(namespaces=False)


def explain_mounts(resolved: ResolvedPolicy) -> list[MountView]:
    """What namespaces change of the file tree; nothing for a policy that confines nothing."""
    if resolved.policy.unconfined:
        return []
    return [
        MountView(mount.path.decode("utf-8", "backslashreplace"), mount.kind, mount.size)
        for mount in layout_with_basis(resolved)[0].mounts
        if mount.kind not in ("later", "absent")
    ]


def explain_landlock(resolved: ResolvedPolicy, enforcement: Enforcement) -> LandlockView:
    """What Landlock is told for a policy on this host; ``enforcement`` is that of its sandbox.

    Raises ``Unenforceable`` as running does.
    """
    probe = _sandcore.probe()
    check_host(resolved.policy, probe)
    abi = probe.landlock_abi
    if resolved.policy.unconfined:
        return LandlockView(abi)
    rules = compile_rules(resolved, abi)
    handle = handle_of(resolved.policy, rules, abi)
    handled, network, scopes = _sandcore.landlock_rights(abi, handle)
    views = []
    for rule in rules.rules:
        rights = _sandcore.landlock_grants(abi, ACCESS[rule.access], rule.is_dir, handle)
        path = rule.path.decode("utf-8", "backslashreplace")
        views.append(RuleView(path, rule.access, rule.is_dir, tuple(rights)))
    views.sort(key=lambda view: (view.path, view.access))
    return LandlockView(
        abi, tuple(handled), tuple(network), tuple(scopes), tuple(views), enforcement.weaker
    )


def explain_seccomp(policy: SandboxPolicy) -> SeccompView:
    """The filter of a policy on this host. Raises ``Unenforceable`` as running does."""
    probe = _sandcore.probe()
    check_host(policy, probe)
    if policy.unconfined:
        return SeccompView(policy.network, (), ())
    network, flags = filter_options(policy, probe.landlock_abi)
    rows = _sandcore.syscall_rows(network=network, flags=flags)
    calls = [SyscallView(*row) for row in rows]
    calls.sort(key=lambda call: call.name)
    program = compile_blob(policy, _NO_RULES, probe.landlock_abi).filter
    return SeccompView(policy.network, tuple(calls), tuple(program))


_NO_RULES = Rules(rules=(), handle_read=False, handle_names=False, weaker=())


@dataclass(frozen=True, slots=True)
class Process:
    """A command that was started under one mechanism, in this process's session and group."""

    pid: int
    pidfd: int

    def wait(self) -> int:
        """Its wait status, once it has ended."""
        ended = _sandcore.wait(self.pidfd)
        if ended is None:
            raise SandboxBug("a wait without a limit came to its end")
        return ended.status

    def kill(self) -> None:
        """Ends it; not what it started."""
        try:
            _sandcore.kill(self.pid, self.pidfd)
        except ProcessLookupError:
            return


def start_under(
    mechanism: Mechanism,
    resolved: ResolvedPolicy,
    words: Sequence[bytes],
    env: Mapping[str, str],
    cwd: str,
) -> Process:
    """Starts a command under Landlock alone or the filter alone, with our standard streams.

    Privileges are dropped as always. Raises ``StartError`` and its kind when it did not start.
    """
    policy = _under(mechanism, resolved)
    programs = candidates(words[0], env.get("PATH", ""))
    block = [f"{name}={value}".encode("utf-8", "surrogateescape") for name, value in env.items()]
    plan = _sandcore.Plan(
        words,
        block,
        programs=programs,
        policy=policy,
        cwd=cwd.encode("utf-8", "surrogateescape"),
        new_session=False,
        inline=True,  # nothing else of ours between the command and what is shown
        die_with_thread=True,
    )
    try:
        return Process(*_sandcore.spawn(plan))
    except _sandcore.StageError as error:
        name = words[0].decode("utf-8", "backslashreplace")
        raise explain_start(
            error.stage, error.errno or 0, error.detail, programs, name, cwd
        ) from None


def _under(mechanism: Mechanism, resolved: ResolvedPolicy) -> _sandcore.Policy:
    """A blob of which only one mechanism is left."""
    probe = _sandcore.probe()
    policy, abi = resolved.policy, probe.landlock_abi
    check_host(policy, probe)
    if policy.unconfined:
        return compile_blob(policy, None, 0)
    if mechanism == "landlock":
        rules = compile_rules(resolved, abi)
        return _sandcore.compile_policy(
            rule_parts(rules), abi=abi, handle=handle_of(policy, rules, abi)
        )
    network, flags = filter_options(policy, abi)
    return _sandcore.compile_policy(
        network=network, filter_flags=flags, extra_filter=policy.extra_filter or b""
    )
