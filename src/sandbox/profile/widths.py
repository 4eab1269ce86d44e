"""Which of two things that settings say allows more, key by key."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sandbox.entries import Access, Special
from sandbox.policy import SandboxPolicy
from sandbox.presets import MODES
from sandbox.profile.grants import Grants, grants_of
from sandbox.profile.values import Setting
from sandbox.secrets import ALL

__all__ = ["STRICTER", "Basis", "basis_of", "is_allowing", "is_wider", "said"]

Key = tuple[str, ...]

# Of each scalar: its width. Approvals are not in one order, see STRICTER.
_WIDTHS: dict[Key, Callable[[Any], float]] = {
    ("mode",): list(MODES).index,
    ("network", "access"): ("none", "loopback", "full").index,
    ("environment", "inherit"): ("none", "core", "all").index,
    ("isolation", "minimum"): ("namespaces", "landlock", None).index,
    ("approval", "unsandboxed"): int,
}
_ACCESS = ("deny", "read", "write")
# Items that allow something by being there.
_ALLOWING = {
    ("allow_secrets",),
    ("network", "unix_sockets"),
    ("environment", "include"),
    ("environment", "allow"),
    ("environment", "set"),
    ("rules", "allow"),
    ("trust", "projects"),
}
# One that asks for more, and one that denies instead of asking: neither is stricter than the other.
STRICTER = {("on-escape", "untrusted"), ("on-escape", "never")}


def is_allowing(key: Key) -> bool:
    """Whether a setting of this key allows something by being there."""
    return key[:-1] in _ALLOWING


class Basis(NamedTuple):
    """What others are compared with: settings, the policy they come to, and what that grants."""

    found: Mapping[Key, Setting]
    policy: SandboxPolicy
    workspace: str
    grants: Grants


def basis_of(found: Mapping[Key, Setting], policy: SandboxPolicy, workspace: str) -> Basis:
    """For comparing with a policy, as the disk is now."""
    return Basis(found, policy, workspace, grants_of(policy, workspace))


def is_wider(one: Setting, basis: Basis) -> bool:
    """Whether a setting would allow more than other settings, which come to a policy, do."""
    found, policy = basis.found, basis.policy
    key = one.key
    if key[0] == "filesystem":
        before = said(key[1], basis)
        return _ACCESS.index(one.value) > _ACCESS.index(before)
    if is_allowing(key):
        if _has_all(key, found, policy):
            return False
        return key not in found or found[key].value != one.value
    now = found[key].value if key in found else None
    if key == ("approval", "mode"):
        return one.value != now and (now, one.value) not in STRICTER
    if key == ("isolation", "accept"):
        return now is not None and not set(one.value) <= set(now)
    if key == ("environment", "only"):
        return False  # names have to match both
    width = _limit if key[0] == "limits" else _WIDTHS.get(key)
    return width is not None and width(one.value) > width(now)


def _has_all(key: Key, found: Mapping[Key, Setting], policy: SandboxPolicy) -> bool:
    """Whether all items of a kind are allowed anyway."""
    if key[:-1] == ("environment", "include"):
        return bool(found["environment", "inherit"].value == "all")
    if key[:-1] == ("network", "unix_sockets"):
        return policy.unconfined
    return key[:-1] == ("allow_secrets",) and ALL in policy.allow_secrets


def _limit(value: float | None) -> float:
    return math.inf if value is None else value


def said(place: str, basis: Basis) -> Access:
    """What a policy says about a place; of a special, what is said of it, if anything.

    What is protected by name, or leads there, is not written as long as no entry says so.
    """
    if place == f":{Special.WORKSPACE}":
        place = basis.workspace
    elif place.startswith(":"):
        key = ("filesystem", place)
        if key in basis.found:
            return Access(basis.found[key].value)
        place = "/"  # it lies somewhere
    access = basis.policy.access(place, {Special.WORKSPACE: basis.workspace})
    if access is Access.WRITE and basis.grants.is_held(os.path.realpath(place)):
        return Access.READ
    return access
