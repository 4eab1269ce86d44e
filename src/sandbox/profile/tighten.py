"""What a project's file may change while the user does not trust the project: only take away.

The policy is the intersection of what the layers below allow and of what it would be with the
file, worked out on real paths when it is resolved: no entry, link or mode of the file can widen it.
Which settings have no effect by that is told with the reason; nothing is decided by the telling.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox.policy import SandboxPolicy
from sandbox.presets import MODES
from sandbox.profile.compose import Composed, Settings, compose, mode_of
from sandbox.profile.values import ApprovalMode, Setting
from sandbox.profile.widths import STRICTER, basis_of, is_allowing, is_wider, said

if TYPE_CHECKING:
    from sandbox.command.rules import Rule

__all__ = ["tightened"]


def tightened(below: Composed, settings: list[Setting], workspace: str) -> Composed:
    """What the layers below come to, less what the settings of a project's file take away.

    ``found`` of the result says what is in force. Raises as ``compose``.
    """
    before = [one for one in below.found.values() if one.source.layer != "built-in"]
    above = compose([*before, *settings], workspace)
    policy = below.policy.narrow(above.policy)
    # Values are no names of the caller's, so narrowing keeps those of both: not those of the file.
    own = replace(policy.environment, set=below.policy.environment.set)
    policy = policy.with_environment(own)
    found = _in_force(below, above, policy, workspace)
    mode = mode_of(policy, found["mode",].value, workspace)
    return Composed(
        policy,
        min(mode, below.mode, key=list(MODES).index),  # it allows no more than the layers below
        _approval(below, above),
        below.unsandboxed and above.unsandboxed,
        _rules(below, above),
        found,
    )


def _approval(below: Composed, above: Composed) -> ApprovalMode:
    stricter = (below.approval, above.approval) in STRICTER
    return above.approval if stricter else below.approval


def _rules(below: Composed, above: Composed) -> tuple[Rule, ...]:
    """Those of the layers below, and what the file says that allows nothing."""
    more = [rule for rule in above.rules if rule.decision != "allow" and rule not in below.rules]
    return (*below.rules, *more)


def _in_force(below: Composed, above: Composed, policy: SandboxPolicy, workspace: str) -> Settings:
    """Of each key the setting that decides."""
    found: Settings = {}
    before = basis_of(below.found, below.policy, workspace)
    now = basis_of(above.found, policy, workspace)
    for key in dict.fromkeys([*below.found, *above.found]):
        mine, theirs = below.found.get(key), above.found.get(key)
        if theirs is not None:
            wider = is_wider(theirs, before)
            chosen = mine if wider else theirs
        elif key[0] == "filesystem" and mine is not None:  # a narrower mode takes it away
            access = said(key[1], now)
            mode = above.found["mode",]
            chosen = replace(mode, key=key, value=access.value) if access != mine.value else mine
        else:
            chosen = None if is_allowing(key) else mine
        if chosen is not None:
            found[key] = chosen
    accept = ("isolation", "accept")
    if accept in found:  # of two lists what is in both
        found[accept] = replace(found[accept], value=policy.accept)
    return found
