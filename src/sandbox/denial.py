"""An access that was refused or undone: what it was, how that is known, and what would allow it.

The lists of words are closed, so that a program may decide by them. How it is known counts most:
what the kernel, the filter, a mount or a look at the disk said is certain; what stands in the
command's own output can be written there by anybody, so it is for people to read and for nothing
to be decided by.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Literal

from sandbox.errors import InvalidArgument
from sandbox.limits import Limits
from sandbox.paths import shell
from sandbox.policy import SandboxPolicy

__all__ = ["Change", "Denial", "DenialKind", "Evidence", "Grant"]


class DenialKind(StrEnum):
    """What was tried."""

    WRITE = "write"
    READ = "read"
    NETWORK = "network"
    SOCKET = "socket"
    SYSCALL = "syscall"
    PROTECTED = "protected"  # a change of a protected name
    LIMIT = "limit"


class Evidence(StrEnum):
    """How it is known."""

    KERNEL = "kernel"  # the kernel said so: a signal, a counter, its audit
    FILTER = "filter"  # the call was seen by the seccomp filter
    MOUNT = "mount"  # a mount of the sandbox refused it
    SWEEP = "sweep"  # the disk was looked at afterwards
    MESSAGE = "message"  # the command printed it: a guess, which a command can forge


# What was found, and done, after the command; nothing where the access was refused at once.
Change = Literal["", "planted", "changed", "removed", "moved", "lost", "unrestored"]

_PATHS: dict[str, tuple[str, Callable[[SandboxPolicy, str], SandboxPolicy]]] = {
    "write": ("with_write", SandboxPolicy.with_write),
    "read": ("with_read", SandboxPolicy.with_read),
    "allow-secret": ("allow_secret", SandboxPolicy.allow_secret),
    "unix-socket": ("with_unix_socket", SandboxPolicy.with_unix_socket),
    "network": ("with_network", lambda policy, word: replace(policy, network=word)),  # type: ignore[arg-type]
}
_LIMITS = frozenset(item.name for item in fields(Limits))
_LIMIT_OPTIONS = {"wall": "timeout", "memory": "memory", "processes": "processes", "tmp": "tmp"}


@dataclass(frozen=True, slots=True)
class Grant:
    """The narrowest change of a policy that allows what was refused.

    ``steps`` are pairs of a word and its value: ``write``, ``read``, ``allow-secret`` or
    ``unix-socket`` and a path, ``network`` and which, or the name of a limit and its number. All
    of them are needed.
    """

    steps: tuple[tuple[str, Any], ...]

    @classmethod
    def one(cls, word: str, value: Any) -> Grant:
        """A grant of one step."""
        return cls(((word, value),))

    @property
    def call(self) -> str:
        """As Python, to be written behind a policy: ``.with_write('/x')``."""
        return "".join(
            f".{_PATHS[word][0]}({value!r})"
            if word in _PATHS
            else f".with_limits(replace(policy.limits, {word}={value!r}))"
            for word, value in self.steps
        )

    @property
    def option(self) -> str:
        """As options of ``sandbox run``: ``--write /x``; empty where it has none for it."""
        words = [
            (word if word in _PATHS else _LIMIT_OPTIONS.get(word, ""), value)
            for word, value in self.steps
        ]
        if not all(word for word, _ in words):
            return ""
        written = [f"--{word} {shell(os.fsencode(_size(word, value)))}" for word, value in words]
        return " ".join(written)

    def apply(self, policy: SandboxPolicy) -> SandboxPolicy:
        """The policy with it. Raises what the policy's own functions raise."""
        for word, value in self.steps:
            if word in _PATHS:
                policy = _PATHS[word][1](policy, value)
            elif word not in _LIMITS:
                raise InvalidArgument("grant", word, "is nothing that a policy has")
            else:
                policy = policy.with_limits(replace(policy.limits, **{word: value}))
        return policy


def _size(word: str, value: Any) -> str:
    """The value of an option as a person writes it: a size as 512M, all else as it is."""
    whole = word in ("memory", "tmp") and value % (1 << 20) == 0
    return f"{value >> 20}M" if whole else str(value)


@dataclass(frozen=True, slots=True)
class Denial:
    """An access that was refused, or undone, as far as it is known.

    - ``kind``: what was tried. ``what``: the path, address, system call or limit.
    - ``evidence``: how it is known. ``certain``: not by a mere message.
    - ``rule``: what of the policy refused it. ``grant``: the narrowest change that allows it, None
      where there is none.
    - ``change``: what was found afterwards in a protected place, ``detail`` that in a sentence, and
      ``undo`` the line for a shell that takes back what was done about it.
    """

    kind: DenialKind
    what: str
    evidence: Evidence
    rule: str = ""
    grant: Grant | None = None
    change: Change = ""
    detail: str = ""
    undo: str = ""

    @property
    def certain(self) -> bool:
        """Whether something may be decided by it: no command can have made it up."""
        return self.evidence is not Evidence.MESSAGE
