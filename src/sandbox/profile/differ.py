"""Two profiles side by side: what differs, and which allows more of it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from sandbox.profile.settings import GROWING
from sandbox.profile.values import Profile, Setting, Source
from sandbox.profile.widths import Basis, basis_of, is_allowing, is_wider, said
from sandbox.profile.wrong import shown

__all__ = ["Difference", "differences", "row_of"]

Key = tuple[str, ...]
Verdict = Literal["wider", "narrower", "other"]

_NOWHERE = Source("built-in")


class Difference(NamedTuple):
    """A key, what the first and what the second profile say, and what the second is beside it."""

    key: str
    first: str
    second: str
    verdict: Verdict


def differences(first: Profile, second: Profile) -> list[Difference]:
    """All keys in which two profiles of one workspace differ in effect, in their order."""
    one, other = _by_key(first), _by_key(second)
    before = basis_of(one, first.policy, first.workspace)
    after = basis_of(other, second.policy, second.workspace)
    found = []
    for key in dict.fromkeys([*one, *other]):
        mine, theirs = _effect(key, before), _effect(key, after)
        if mine == theirs:
            continue
        wider = theirs is not None and is_wider(theirs, before)
        narrower = mine is not None and is_wider(mine, after)
        if None in (mine, theirs) and not is_allowing(key):  # what is gone forbade something
            wider, narrower = theirs is None, mine is None
        verdict: Verdict = "other" if wider == narrower else "wider" if wider else "narrower"
        name = row_of(mine or theirs or one[key])[0]
        found.append(Difference(name, _value(mine), _value(theirs), verdict))
    return found


def row_of(one: Setting) -> tuple[str, str]:
    """A setting as key and value in words, as they would stand in a file."""
    key = one.key
    if key[:-1] in GROWING:
        return shown(key[:-1]), key[-1]
    if key[0] == "rules":
        return "rules", f"{one.value.decision}: {key[-1]} ({one.value.justification})"
    if key[:2] == ("environment", "set"):
        return shown(key), "(a value)"  # it may be a secret, and what is shown is kept
    return shown(key), _words(one.value)


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(value)
    return "none" if value is None else str(value)


def _value(one: Setting | None) -> str:
    return row_of(one)[1] if one is not None else "-"


def _by_key(profile: Profile) -> dict[Key, Setting]:
    return {one.key: one for one in profile.settings if not one.refused}


def _effect(key: Key, basis: Basis) -> Setting | None:
    """What a profile says, without where; of a path what comes to it from what is above."""
    if key[0] == "filesystem":
        return Setting(key, said(key[1], basis).value, _NOWHERE)
    return Setting(key, basis.found[key].value, _NOWHERE) if key in basis.found else None
