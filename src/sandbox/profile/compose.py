"""Settings put together: the last one of each key counts, and the preset is below all of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from sandbox.entries import Access, Special
from sandbox.environ import Environment
from sandbox.errors import InvalidProfile
from sandbox.limits import Limits
from sandbox.policy import SandboxPolicy
from sandbox.presets import MODES, preset
from sandbox.profile.settings import built_in, entry_of
from sandbox.profile.values import ApprovalMode, Mode, Setting

if TYPE_CHECKING:
    from sandbox.command.rules import Rule

__all__ = ["Composed", "compose", "mode_of"]

Key = tuple[str, ...]
Settings = dict[Key, Setting]


class Composed(NamedTuple):
    """What settings come to. ``found``: those that count."""

    policy: SandboxPolicy
    mode: Mode
    approval: ApprovalMode
    unsandboxed: bool
    rules: tuple[Rule, ...]
    found: Settings


def compose(settings: Iterable[Setting], workspace: str) -> Composed:
    """A policy and what goes with it, from the settings of all layers, the lowest first.

    The mode that is said last chooses the preset; all else is said on top of that.
    Raises ``PolicyError``; ``InvalidProfile`` for full access by any other name.
    """
    given = list(settings)
    modes: list[Mode] = [one.value for one in given if one.key == ("mode",)]
    chosen = modes[-1] if modes else "auto"
    found: Settings = {}
    for one in (*built_in(preset(chosen), chosen, workspace), *given):
        found[one.key] = one
    policy = _policy(found, workspace)
    if policy.unconfined and chosen != "full-access":
        last = given[-1].source
        cause = "all of it together confines nothing, and the mode does not say so"
        raise InvalidProfile(last.file or last.layer, 0, "mode", cause, 'mode = "full-access"')
    return Composed(
        policy,
        mode_of(policy, chosen, workspace),
        found["approval", "mode"].value,
        found["approval", "unsandboxed"].value,
        tuple(one.value for key, one in found.items() if key[0] == "rules"),
        found,
    )


def mode_of(policy: SandboxPolicy, said: Mode, workspace: str) -> Mode:
    """The mode that was said, or the wider one that a policy comes to."""
    comes_to: Mode = "full-access" if policy.unconfined else "read-only"
    places = {Special.WORKSPACE: workspace}
    writes = [
        entry
        for entry in chain(*policy.layers)
        if entry.access is Access.WRITE and entry.special is not Special.TMP
        if not entry.path or policy.access(entry.path, places) is Access.WRITE
    ]
    if writes and not policy.unconfined:
        comes_to = "auto"
    return max(said, comes_to, key=list(MODES).index)


def _policy(found: Settings, workspace: str) -> SandboxPolicy:
    return SandboxPolicy(
        entries=tuple(
            entry_of(key[1], one.value, workspace)
            for key, one in found.items()
            if key[0] == "filesystem"
        ),
        network=found["network", "access"].value,
        environment=Environment(
            inherit=found["environment", "inherit"].value,
            include=_items(found, "environment", "include"),
            exclude=_items(found, "environment", "exclude"),
            only=_value(found, (), "environment", "only"),
            allow=_items(found, "environment", "allow"),
            set=tuple((key[2], found[key].value) for key in _keys(found, "environment", "set")),
        ),
        limits=Limits(**{name: found["limits", name].value for name in Limits.__slots__}),
        require=_value(found, None, "isolation", "minimum"),
        protected=_items(found, "protected"),
        allow_secrets=_items(found, "allow_secrets"),
        unix_sockets=_items(found, "network", "unix_sockets"),
        accept=_value(found, None, "isolation", "accept"),
    )


def _keys(found: Settings, *table: str) -> list[Key]:
    return [key for key in found if key[:-1] == table]


def _items(found: Settings, *table: str) -> tuple[str, ...]:
    return tuple(key[-1] for key in _keys(found, *table))


def _value(found: Settings, default: Any, *key: str) -> Any:
    return found[key].value if key in found else default
