"""One profile's file: read once, decoded, or refused with the line and the key that is wrong.

Nothing of a broken file is used: whoever cannot be understood is not obeyed in half.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect

from sandbox.errors import InvalidProfile
from sandbox.parts import PARTS
from sandbox.profile.document import PATTERNS, Document
from sandbox.profile.locate import line_of
from sandbox.profile.values import LayerName, Source

__all__ = ["brief", "decode", "invalid", "near", "read_source", "shown"]

At = tuple[str | int, ...]

_BYTES_MAX = 64 * 1024
_LINES_MAX = 2000
_SHOWN_MAX = 100  # characters of a value in an error
_ATTEMPTS = re.compile(r" - at (?:`key` in )?`(\$[^`]*)`$")
_TYPES = {"object": "a table", "array": "a list", "str": "text", "int": "a whole number"} | {
    "float": "a number",
    "bool": "true or false",
}


def read_source(file: str, layer: LayerName) -> Source:
    """Reads a file, once: what comes later to its place has no effect.

    A project's own file must be no link: what it leads to could be writable from inside. A user's
    must belong to the user or to root, and be writable by nobody else.
    Raises ``InvalidProfile``.
    """
    no_links = os.O_NOFOLLOW if layer == "project" else 0
    try:  # not to be blocked by a FIFO
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | no_links)
        with open(fd, "rb") as opened:
            found = os.fstat(fd)
            _check_file(file, found, layer)
            data = opened.read(_BYTES_MAX + 1)
    except OSError as error:
        if error.errno == errno.ELOOP and no_links:
            raise InvalidProfile(file, 0, "", "a project's profile must be no link") from None
        raise InvalidProfile(file, 0, "", (error.strerror or str(error)).lower()) from None
    if len(data) > _BYTES_MAX or data.count(b"\n") > _LINES_MAX:
        cause = f"has more than {_BYTES_MAX} bytes or {_LINES_MAX} lines"
        raise InvalidProfile(file, 0, "", cause, "extends, with a part of it in another file")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InvalidProfile(file, line, "", "is not UTF-8") from None
    return Source(layer, file, hashlib.sha256(data).hexdigest(), text)


def _check_file(file: str, found: os.stat_result, layer: LayerName) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise InvalidProfile(file, 0, "", "is no regular file")
    if layer == "project":  # whoever can write it may; it is for the user to trust it
        return
    if found.st_uid not in (os.getuid(), 0):
        raise InvalidProfile(file, 0, "", f"belongs to uid {found.st_uid}", "chown, or a copy")
    if found.st_mode & stat.S_IWOTH:
        raise InvalidProfile(file, 0, "", "can be written by everybody", f"chmod o-w {file}")


def decode(source: Source) -> dict[str, Any]:
    """What a file says, as tables and lists, all of it checked. Raises ``InvalidProfile``."""
    try:
        raw = tomllib.loads(source.text)
    except (ValueError, RecursionError) as error:
        said = re.sub(r" ?\(at .*\)$", "", str(error)).strip()
        at = re.search(r"\(at line (\d+)", str(error))
        last = source.text.rstrip().count("\n") + 1
        line = int(at[1]) if at else last if "end of document" in str(error) else 0
        raise InvalidProfile(
            source.file, line, "", f"is no TOML: {said[:1].lower()}{said[1:]}"
        ) from None
    known = list(Document.__struct_fields__)
    for name in raw:  # here, because what the decoder says of these ends with a name of anybody's
        if name not in known:
            raise invalid(source, (name,), "there is no such key", near(name, known))
    try:
        msgspec.convert(raw, Document)
    except msgspec.ValidationError as error:
        raise _explained(source, raw, str(error)) from None
    return raw


def invalid(source: Source, at: At, cause: str, mend: str = "") -> InvalidProfile:
    """What is wrong with a key of a file, where it stands."""
    line = line_of(source.text, at) if source.text else 0
    return InvalidProfile(source.file or source.layer, line, shown(at), cause, mend)


def brief(value: object) -> str:
    """A value of a file in a line of an error."""
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def shown(at: Sequence[str | int]) -> str:
    """A key as it would be written in the file."""
    text = ""
    for part in at:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = re.fullmatch(r"[A-Za-z0-9_-]+", part)
            text += ("." if text else "") + (part if bare else f'"{part}"')
    return text


def _explained(source: Source, raw: dict[str, Any], message: str) -> InvalidProfile:
    """The decoder's message in words of a person who writes profiles."""
    at = _place(raw, message)
    said = _ATTEMPTS.sub("", message)
    if found := re.search(r"unknown field `(.*)`$", said, re.DOTALL):
        names = [one.encode_name for one in _fields(at)]
        return invalid(source, (*at, found[1]), "there is no such key", near(found[1], names))
    if found := re.search(r"missing required field `(.*)`$", said):
        return invalid(source, at, f"{found[1]!r} is missing")
    value = _value(raw, at)
    if said.startswith("Invalid enum value"):
        return invalid(source, at, f"{brief(value)} is not known", near(str(value), _choices(at)))
    if found := re.search(r"matching regex (.*)$", said, re.DOTALL):
        wrong = at[-1] if "`key` in" in message else value
        pattern = next(one for one in PATTERNS if repr(one) == found[1])
        mend = near(str(wrong), list(PARTS)) if "hard-links" in pattern else ""
        return invalid(source, at, f"{brief(wrong)} {PATTERNS[pattern]}", mend)
    for name, words in _TYPES.items():
        said = said.replace(f"`{name}`", words)
    said = re.sub(r"`([^`]*)`", lambda union: _union(union[1]), said)
    return invalid(source, at, said[:1].lower() + said[1:])


def _union(names: str) -> str:
    return " or ".join(_TYPES.get(name, name) for name in names.split(" | "))


def _place(raw: dict[str, Any], message: str) -> At:
    """Where the decoder found a mistake. It does not name keys of free tables: they are tried."""
    found = _ATTEMPTS.search(message)
    parts = re.findall(r"\.([^.\[\]]+)|\[(\d+)\]|(\[\.\.\.\])", found[1]) if found else []
    at: At = ()
    for name, number, free in parts:
        at = (*at, _culprit(raw, at) if free else int(number) if number else name)
    return (*at, _culprit(raw, at)) if "`key` in" in message else at


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


def near(wrong: str, names: Sequence[str]) -> str:
    """A suggestion: what is spelled nearly so, else all there is."""
    near = get_close_matches(wrong.replace("-", "_"), names, n=1) or get_close_matches(
        wrong.replace("_", "-"), names, n=1
    )
    return f"did you mean {near[0]!r}?" if near else f"one of {', '.join(names)}"
