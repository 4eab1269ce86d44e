"""A file taken apart: one setting for each thing that it says, checked by itself.

Settings have keys, and the last one of a key counts. Of lists that grow from layer to layer each
item is a setting, so that a layer adds to what is below it, and so are the rows of tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from sandbox.entries import Access, Entry, Special
from sandbox.environ import Environment
from sandbox.errors import InvalidArgument, PolicyError
from sandbox.limits import Limits, size
from sandbox.paths import clean, has_pattern
from sandbox.policy import SandboxPolicy
from sandbox.profile.reading import decode
from sandbox.profile.values import Setting, Source
from sandbox.profile.wrong import At, brief, invalid

__all__ = ["built_in", "entry_of", "place_of", "settings_of"]

Found = tuple[tuple[str, ...], Any, At]

# Lists whose items add to those of the layers below; the other lists take their place.
GROWING = {
    ("allow_secrets",),
    ("protected",),
    ("network", "unix_sockets"),
    ("environment", "include"),
    ("environment", "exclude"),
    ("environment", "allow"),
    ("trust", "projects"),
}
_NOT_SETTINGS = ("description", "extends")
_SPECIALS = {":root": "/"} | {f":{special}": f":{special}" for special in Special}


def settings_of(source: Source, workspace: str) -> tuple[dict[str, Any], list[Setting]]:
    """What a file says, as a whole and taken apart. Raises ``InvalidProfile``."""
    raw = decode(source)
    found: dict[tuple[str, ...], Setting] = {}
    for name, value in raw.items():
        if name in _NOT_SETTINGS:
            continue
        for key, item, at in _taken_apart(source, workspace, (name,), value):
            if key in found and name in ("filesystem", "rules"):
                before, now = _by_workspace(found[key].at), _by_workspace(at)
                if before == now:
                    raise invalid(source, at, "the same is said twice", "leave one")
                if now:  # a path that is written out is meant more than the workspace it is
                    continue
            found[key] = Setting(key, item, source, at)
    return raw, list(found.values())


def _by_workspace(at: At) -> bool:
    return at[1] == f":{Special.WORKSPACE}"


def _taken_apart(source: Source, workspace: str, at: At, value: Any) -> Iterator[Found]:
    if at == ("filesystem",):
        yield from _entries(source, workspace, value)
    elif at == ("rules",):
        for number, rule in enumerate(value):
            yield _rule(source, (*at, number), rule)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _taken_apart(source, workspace, (*at, name), inner)
    else:
        yield from _list_or_value(source, at, value)


def _list_or_value(source: Source, at: At, value: Any) -> Iterator[Found]:
    key = tuple(map(str, at))
    if key not in GROWING:
        one = _checked(source, at, partial(_value, key, value))
        _checked(source, at, partial(check, key, one))
        yield key, one, at
        return
    for index, item in enumerate(value):
        place = (*at, index)
        text = _checked(source, place, partial(_text, key, item))
        _checked(source, place, partial(check, key, (text,)))
        yield (*key, text), True, place
    _checked(source, at, partial(check, key, tuple(value)))  # how many they are


def _text(key: tuple[str, ...], item: str) -> str:
    """An item in its normal form, where it is a path."""
    is_path = key in (("network", "unix_sockets"), ("trust", "projects"))
    return clean(item) if is_path else item


def _value(key: tuple[str, ...], value: Any) -> Any:
    """A value as policies have it."""
    if isinstance(value, list):
        return tuple(dict.fromkeys(value))
    if key[0] != "limits":
        return value
    if value == "none":
        return None
    return size(value) if isinstance(value, str) else value


def check(key: tuple[str, ...], value: Any) -> None:
    """Raises a ``PolicyError`` for what a policy cannot have. Lists come as tuples."""
    table, name = key[0], key[-1]
    if table == "limits":
        Limits(**{name: value})
    elif table == "environment":
        made: dict[str, Any] = {key[1]: ((key[2], value),) if key[1] == "set" else value}
        Environment(**made)
    elif key in (("allow_secrets",), ("protected",), ("network", "unix_sockets")):
        SandboxPolicy(**{name: value})


def _entries(source: Source, workspace: str, table: dict[str, Any]) -> Iterator[Found]:
    for place, value in table.items():
        at = ("filesystem", place)
        rows = value.items() if isinstance(value, dict) else [("", value)]
        for below, access in rows:
            here = (*at, below) if isinstance(value, dict) else at
            key = _checked(source, here, partial(_place, place, below, workspace))
            _checked(source, here, partial(entry_of, key, access, workspace))
            yield ("filesystem", key), access, here


def _place(place: str, below: str, workspace: str) -> str:
    """The key of a place: a special's name or an absolute path."""
    named = _SPECIALS.get(place, place)
    if below in ("", "."):
        return place_of(named, workspace)
    if named.startswith(":") and named != f":{Special.WORKSPACE}":
        raise ValueError(f"{place} is not known before a command runs, so nothing in it can be")
    top = workspace if named.startswith(":") else clean(named)
    return place_of(f"{top.rstrip('/')}/{below}", workspace)


def place_of(path: str, workspace: str) -> str:
    """A path in its normal form, or the name of a special place. Raises ``InvalidPath``."""
    if path.startswith(":"):
        return path
    text = clean(path)
    return f":{Special.WORKSPACE}" if text == workspace != "/" else text


def entry_of(place: str, access: str, workspace: str) -> Entry:
    """The entry of a policy for one place. Raises ``PolicyError`` or ``ValueError``."""
    if place == f":{Special.WORKSPACE}":
        return Entry(workspace, Access(access), Special.WORKSPACE)
    if place.startswith(":"):
        return Entry("", Access(access), Special(place[1:]))
    if has_pattern(place) and access != "deny" and not os.path.lexists(place):
        raise ValueError("a pattern can only be denied")
    return Entry(place, Access(access))


def _rule(source: Source, at: At, rule: dict[str, Any]) -> Found:
    from sandbox.command.rules import Rule  # with its parser: only who has rules pays for that

    try:
        made = Rule(**rule)
    except InvalidArgument as error:
        key = (*at, error.name) if error.name in rule else at
        raise invalid(source, key, f"{brief(error.value)} {error.cause}", error.mend) from None
    return ("rules", made.decision, made.shown), made, at


def _checked(source: Source, at: At, make: Callable[[], Any]) -> Any:
    """What ``make`` gives; what it raises is said of the key. Raises ``InvalidProfile``."""
    try:
        return make()
    except PolicyError as error:
        cause, mend = getattr(error, "cause", str(error)), getattr(error, "mend", "")
        value = getattr(error, "value", getattr(error, "path", ""))
        raise invalid(source, at, f"{brief(value)} {cause}", mend) from None
    except ValueError as error:
        raise invalid(source, at, str(error)) from None


def built_in(policy: SandboxPolicy, mode: str, workspace: str) -> list[Setting]:
    """A preset taken apart in the same way; what goes with it has its defaults here."""
    source = Source("built-in")
    found: dict[tuple[str, ...], Any] = {("mode",): mode}
    for entry in policy.entries:
        found["filesystem", place_of(entry.key, workspace)] = entry.access.value
    found["network", "access"] = policy.network
    found["environment", "inherit"] = policy.environment.inherit
    for name in Limits.__slots__:
        found["limits", name] = getattr(policy.limits, name)
    found |= {("protected", name): True for name in policy.protected}
    found |= {("allow_secrets", name): True for name in policy.allow_secrets}
    found |= {("approval", "mode"): "on-escape", ("approval", "unsandboxed"): False}
    return [Setting(key, value, source) for key, value in found.items()]
