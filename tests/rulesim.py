"""A model of Landlock's rules for tests: what is covered by a path prefix is allowed."""

from __future__ import annotations

import os
from typing import Any

from sandbox.backends.rules import Rules
from sandbox.entries import Access, Entry
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy, resolve

READ, WRITE, DENY = Access.READ, Access.WRITE, Access.DENY
NOBODY = "/nonexistent-home"  # keeps the secrets of a real HOME out of a test about paths


def settle(*entries: tuple[Any, Access], home: str = NOBODY) -> ResolvedPolicy:
    policy = SandboxPolicy(
        entries=tuple(Entry(str(path), access) for path, access in entries),
        allow_secrets=("*",) if home == NOBODY else (),
    )
    return resolve(policy, None, home, "")


def covered(rules: Rules, path: str, kinds: set[str]) -> bool:
    """Whether a rule of these classes lies on a path or above it."""
    above = {os.fsencode(path)}
    while path != "/":
        path = os.path.dirname(path)
        above.add(os.fsencode(path))
    return any(rule.path in above and rule.access in kinds for rule in rules.rules)


def may_read(rules: Rules, path: str) -> bool:
    return not rules.handle_read or covered(rules, path, {"read", "write", "device"})


def may_write(rules: Rules, path: str) -> bool:
    return covered(rules, path, {"write"})
