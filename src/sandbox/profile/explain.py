"""The decoder's messages in words of a person who writes profiles. Imported where one is wrong."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import inspect

from sandbox.errors import InvalidProfile
from sandbox.parts import PARTS
from sandbox.profile.document import PART, PATTERNS, Document
from sandbox.profile.values import Source
from sandbox.profile.wrong import At, brief, invalid, near

__all__ = ["explained"]

# Where the decoder found something, at the end of what it says; first, whether it is a key.
_PLACE = re.compile(r" - at (`key` in )?`(\$[^`]*)`$")
_TYPES = {"object": "a table", "array": "a list", "str": "text", "int": "a whole number"} | {
    "float": "a number",
    "bool": "true or false",
}


def explained(source: Source, raw: dict[str, Any], message: str) -> InvalidProfile:
    """What is wrong with a document that the decoder refused with this message."""
    found = _PLACE.search(message)
    of_key = found is not None and bool(found[1])
    at = _place(raw, found[2], of_key) if found else ()
    said = _PLACE.sub("", message)
    if found := re.search(r"unknown field `(.*)`$", said, re.DOTALL):
        names = [one.encode_name for one in _fields(at)]
        return invalid(source, (*at, found[1]), "there is no such key", near(found[1], names))
    if found := re.search(r"missing required field `(.*)`$", said):
        return invalid(source, at, f"{found[1]!r} is missing")
    value = _value(raw, at)
    if said.startswith("Invalid enum value"):
        return invalid(source, at, f"{brief(value)} is not known", near(str(value), _choices(at)))
    if found := re.search(r"matching regex (.*)$", said, re.DOTALL):
        wrong = at[-1] if of_key else value
        pattern = next(one for one in PATTERNS if repr(one) == found[1])
        mend = near(str(wrong), list(PARTS)) if pattern == PART else ""
        return invalid(source, at, f"{brief(wrong)} {PATTERNS[pattern]}", mend)
    for name, words in _TYPES.items():
        said = said.replace(f"`{name}`", words)
    said = re.sub(r"`([^`]*)`", lambda union: _union(union[1]), said)
    return invalid(source, at, said[:1].lower() + said[1:])


def _union(names: str) -> str:
    return " or ".join(_TYPES.get(name, name) for name in names.split(" | "))


def _place(raw: dict[str, Any], path: str, of_key: bool) -> At:
    """Where the decoder found a mistake. It does not name keys of free tables: they are tried."""
    at: At = ()
    for name, number, free in re.findall(r"\.([^.\[\]]+)|\[(\d+)\]|(\[\.\.\.\])", path):
        at = (*at, _culprit(raw, at) if free else int(number) if number else name)
    return (*at, _culprit(raw, at)) if of_key else at


def _culprit(raw: dict[str, Any], at: At) -> str:
    """The first key of the table at a place with which alone there is a mistake."""
    table = _value(raw, at)
    for key in table:
        try:
            msgspec.convert(_with_only(raw, at, {key: table[key]}), Document)
        except msgspec.ValidationError:
            return str(key)
    return ""


def _with_only(raw: Any, at: At, table: dict[str, Any]) -> Any:
    """A document that has nothing but this table, at its place."""
    for part in reversed(at):
        table = {str(part): table}
    return table


def _value(raw: Any, at: At) -> Any:
    for part in at:
        raw = raw[part]
    return raw


def _type_at(at: At) -> list[inspect.Type]:
    """The types that a place may have."""
    types: list[inspect.Type] = [inspect.type_info(Document)]
    for part in at:
        types = [inner for one in types for inner in _inner(one, part)]
    return types


def _inner(one: inspect.Type, part: str | int) -> list[inspect.Type]:
    found: inspect.Type | None = None
    if isinstance(one, inspect.StructType):
        found = next((item.type for item in one.fields if item.encode_name == part), None)
    elif isinstance(one, inspect.DictType):
        found = one.value_type
    elif isinstance(one, inspect.VarTupleType):
        found = one.item_type
    if isinstance(found, inspect.UnionType):
        return list(found.types)
    return [found] if found is not None else []


def _fields(at: At) -> list[inspect.Field]:
    structs = [one for one in _type_at(at) if isinstance(one, inspect.StructType)]
    return [item for struct in structs for item in struct.fields]


def _choices(at: At) -> list[str]:
    literals = [one for one in _type_at(at) if isinstance(one, inspect.LiteralType)]
    return [str(value) for literal in literals for value in literal.values]
