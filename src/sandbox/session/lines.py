"""A record as a line of JSON, and back. Pure.

Text that is not UTF-8 (a file name of other bytes, as ``os.fsdecode`` gives it) is kept: where a
record has any, ``escaped`` is true and all of its texts are written with ``\\\\`` for a backslash
and ``\\udcXX`` for the byte XX, which ``decode`` turns back. What could move a cursor is written as
``\\uXXXX`` of JSON, so a log is harmless to print as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Union

import msgspec

from sandbox.errors import InvalidArgument
from sandbox.session.events import KINDS, Record

__all__ = ["LINE_MAX", "decode", "encode"]

LINE_MAX = 64 << 20  # bytes of one record: a reader never needs more memory

_STARTS = {kind: b'{"event":"%b","seq":' % tag.encode() for tag, kind in KINDS.items()}
# What msgspec writes for a record that no log has numbered yet.
_CUTS = {kind: len(start + b'0,"prev":"",') for kind, start in _STARTS.items()}

_encoder = msgspec.json.Encoder()
_ANY: Any = Union[tuple(KINDS.values())]  # noqa: UP007
_decoder = msgspec.json.Decoder(_ANY)


def encode(record: Record) -> tuple[bytes, bytes]:
    """The line of a record in two parts: between them belong its number and ``,"prev":"...",``.

    Raises ``InvalidArgument`` for a record that has a number already, or is too long.
    """
    if record.seq or record.prev or record.escaped:
        raise InvalidArgument("record", record.seq, "it is in a log already")
    try:
        body = _encoder.encode(record)
    except UnicodeEncodeError:
        body = _encoder.encode({**_mapped(msgspec.to_builtins(record), _escape), "escaped": True})
    if b"\x7f" in body or not body.isascii():  # JSON escapes the other control characters itself
        text = body.decode()
        if not text.isprintable():
            body = "".join([c if c.isprintable() else _unit(c) for c in text]).encode()
    if len(body) > LINE_MAX - 128:  # the number and the digest are still to come
        raise InvalidArgument("record", len(body), f"more than {LINE_MAX} bytes")
    kind = type(record)
    return _STARTS[kind], body[_CUTS[kind] :]


def decode(line: bytes) -> Record | None:
    """The record of a line; None for what is none, whatever it is."""
    try:
        record: Record = _decoder.decode(line)
        if record.escaped:
            plain = _mapped(msgspec.to_builtins(record), _unescape)
            record = msgspec.convert({**plain, "escaped": False}, _ANY)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # the last for a deep nesting
        return None
    return record


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The same with all of its texts changed; keys are ours."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(item, change) for item in value]
    return value


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").encode("utf-8", "backslashreplace").decode()


def _unescape(text: str) -> str:
    return re.sub(r"\\(\\|u[0-9a-f]{4})", _unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    found = match[1]
    return found if found == "\\" else chr(int(found[1:], 16))


def _unit(character: str) -> str:
    """A character as JSON escapes it."""
    data = character.encode("utf-16-be")
    return "".join(f"\\u{data[i : i + 2].hex()}" for i in range(0, len(data), 2))
