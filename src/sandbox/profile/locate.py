"""The line of a key in a TOML file.

The parser of the standard library keeps no lines, and is the only one that decides what a file
means; so it is asked: a key stands in the first statement up to which the file, read from its
beginning, has that key. A beginning that ends within a statement is no TOML, and never mistaken.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from typing import Any

__all__ = ["line_of"]


def line_of(text: str, path: Sequence[str | int]) -> int:
    """The line, from 1, of the statement that brings a key, or of what it would be in; else 0.

    ``path``: names of tables and keys, numbers of items. ``text`` is a whole, valid file.
    """
    lines = text.split("\n")

    @cache
    def beginning(count: int) -> Any:
        """The file up to the end of the statement in which so many lines end."""
        try:
            return tomllib.loads("\n".join(lines[:count]) + "\n")
        except tomllib.TOMLDecodeError:
            return None

    def has(count: int) -> bool:
        while beginning(count) is None:
            count += 1
        return _has(beginning(count), wanted)

    for end in range(len(path), 0, -1):
        wanted = path[:end]
        if _has(beginning(len(lines)), wanted):
            return bisect_left(range(len(lines) + 1), True, key=has)
    return 0


def _has(table: Any, path: Sequence[Any]) -> bool:
    for part in path:
        if (isinstance(table, list) and isinstance(part, int) and part < len(table)) or (
            isinstance(table, dict) and part in table
        ):
            table = table[part]
        else:
            return False
    return True
