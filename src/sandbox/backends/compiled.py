"""Policies compiled to a file, for ``sandcore-exec``: see ``launcher/file.h`` for what is in one.

The launcher asks nobody and makes nothing anew. What a sandbox would notice before a command (a
link that leads elsewhere, another directory at a granted path) is therefore written down with the
policy, and the launcher refuses where it does not hold any more.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import _sandcore
from sandbox.backends.base import Question
from sandbox.backends.basis import compile_with_basis
from sandbox.backends.enforceable import check_ownership
from sandbox.backends.ground import Ground, in_landlock, in_namespaces
from sandbox.backends.linux import LinuxBackend
from sandbox.backends.rlimits import hard_limits, rlimits
from sandbox.entries import Access
from sandbox.environ import CORE, Plan, account_homes, markers
from sandbox.errors import InvalidPath, Unenforceable
from sandbox.notice import check_accepted
from sandbox.paths import has_pattern
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy
from sandbox.result import Enforcement

__all__ = ["Compiled", "compile_file", "launcher_path"]

_VERSION = 1
_HEADER = struct.Struct("<4sIIIQ")
_PART = struct.Struct("<IIQ14I")
_LIMIT = struct.Struct("<IIQQ")
_NUMBERS = {"namespaces": 1, "landlock": 2}


class Compiled(NamedTuple):
    """What was written: what each isolation in the file enforces, and the directory for TMPDIR."""

    enforcements: tuple[Enforcement, ...]
    tmp: str


@dataclass(frozen=True, slots=True)
class _Part:
    """One isolation's part of a file; texts as the launcher reads them."""

    isolation: str
    processes: int
    memory: int
    spans: tuple[bytes, ...]


def launcher_path() -> str:
    """Where ``sandcore-exec`` is."""
    return os.fsdecode(_sandcore.LAUNCHER_PATH)


def compile_file(policy: SandboxPolicy, target: str, workspace: str) -> Compiled:
    """Compiles a policy for the isolations that it accepts here, and writes ``target``.

    ``workspace``: the directory that it makes writable, where it does not name one. In `landlock`
    commands have a temporary directory beside the file, which is made here and emptied by nobody.
    Raises ``PolicyError`` and ``HostError`` and their kinds; OSError where it cannot be written.
    """
    if policy.unconfined:
        raise Unenforceable("the policy", "it confines nothing", "run the command itself")
    backend = LinuxBackend()
    target = os.path.join(
        os.path.realpath(os.path.dirname(target) or "."), os.path.basename(target)
    )
    environ = Plan(policy.environment)
    parts, enforcements, tmp = [], [], ""
    for isolation in backend.isolations(policy):
        own = _own_directory(f"{target}.tmp") if isolation == "landlock" else ""
        question = Question(
            policy, workspace, os.path.expanduser("~"), own, account_homes(), workspace
        )
        resolved = backend.resolve(question, isolation)
        _check(resolved, target)
        ground, anchors = _ground(backend, resolved, isolation)
        parts.append(_part(resolved, ground, anchors, environ))
        enforcements.append(Enforcement(isolation, ground.weaker))
        check_accepted(policy, enforcements[-1])
        tmp = own or tmp
    _write(target, _pack(parts))
    return Compiled(tuple(enforcements), tmp)


def _check(resolved: ResolvedPolicy, target: str) -> None:
    if os.geteuid() == 0:
        check_ownership(resolved)
    if resolved.access(os.path.dirname(target)) is Access.WRITE:
        cause = "its own commands could write it: the next one would run under their policy"
        raise InvalidPath(target, cause, "a file outside of what the policy makes writable")
    if resolved.patterns:
        cause = "a pattern is matched when the policy is compiled, and what comes later is not"
        raise Unenforceable("denied reads", cause, "name the files, or `sandbox run`")


def _own_directory(path: str) -> str:
    """A directory that only this user enters, the same each time."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        found = os.lstat(path)
        if found.st_uid != os.geteuid() or found.st_mode & 0o170777 != 0o040700:
            raise InvalidPath(
                path, "is not a private directory of this user", "remove it"
            ) from None
    return path


def _ground(
    backend: LinuxBackend, resolved: ResolvedPolicy, isolation: str
) -> tuple[Ground, list[str]]:
    """What is enforced, and the paths at which the same file must be as now."""
    abi, release = backend.probe.landlock_abi, backend.probe.release
    # What is missing has neither a mask nor a gap in the rules; and where a protected name has come
    # since, the launcher would take it for a command's and move it aside.
    guarded = [place.path for place in resolved.denied]
    guarded += resolved.all_protected if isolation == "namespaces" else ()
    same = [*resolved.writable, *resolved.links]
    same += [path for path in guarded if not os.path.lexists(path)]
    if isolation == "namespaces":
        return in_namespaces(resolved, abi, release), same
    rules, basis = compile_with_basis(resolved, abi)
    same += [os.fsdecode(rule.path) for rule in rules.anchors]
    return in_landlock(resolved, rules, basis, abi, None), same


def _part(resolved: ResolvedPolicy, ground: Ground, anchors: Sequence[str], plan: Plan) -> _Part:
    policy = resolved.policy
    tmp = ground.tmp if ground.isolation == "namespaces" else resolved.tmp
    own = markers(ground.isolation, policy.network, tmp) | dict(policy.environment.set)
    processes = ground.processes(policy.limits)
    table = rlimits(policy.limits, hard_limits(), counted=processes > 0)
    same = [os.fsencode(path) for path in dict.fromkeys(anchors)]
    denied = [place.path for place in resolved.denied]
    return _Part(
        ground.isolation,
        processes,
        # In landlock nobody stays who could look at a tree.
        (policy.limits.memory or 0) if ground.isolation == "namespaces" else 0,
        (
            ground.blob.blob,
            b"".join(_LIMIT.pack(number, 0, soft, hard) for number, soft, hard in table),
            _texts(map(os.fsencode, _kept(policy, plan, os.environ))),
            _texts(os.fsencode(f"{name}={value}") for name, value in own.items()),
            _texts(os.fsencode(path) for path in dict.fromkeys(denied) if path not in anchors),
            _texts(same),
            _sandcore.Stamps((), same).take(),
        ),
    )


def _kept(policy: SandboxPolicy, plan: Plan, environ: Mapping[str, str]) -> list[str]:
    """Exact names: those of patterns are those that there are now."""
    environment = policy.environment
    named = [name for name in environment.include if not has_pattern(name)]
    names = dict.fromkeys([*CORE, *environment.allow, *named, *environ])
    return [name for name in names if plan.inherits(name)]


def _texts(items: Iterable[bytes]) -> bytes:
    return b"".join(item + b"\0" for item in items)


def _pack(parts: Sequence[_Part]) -> bytes:
    at = _HEADER.size + len(parts) * _PART.size
    heads, bodies = [], []
    for part in parts:
        places: list[int] = []
        for span in part.spans:
            places += (at, len(span))
            bodies.append(span + bytes(-len(span) % 8))
            at += len(bodies[-1])
        number = _NUMBERS[part.isolation]
        heads.append(_PART.pack(number, part.processes, part.memory, *places))
    rest = b"".join([*heads, *bodies])
    return _HEADER.pack(b"SCXP", _VERSION, at, len(parts), _checksum(rest)) + rest


def _checksum(data: bytes) -> int:
    """FNV-1a over words of 8 bytes."""
    found = 0xCBF29CE484222325
    for (word,) in struct.iter_unpack("<Q", data):
        found = (found ^ word) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return found


def _write(target: str, data: bytes) -> None:
    """In one step: a launcher that starts meanwhile reads the old file or the new one."""
    new = f"{target}.{os.urandom(6).hex()}"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
        os.rename(new, target)
    except BaseException:
        os.unlink(new)
        raise
