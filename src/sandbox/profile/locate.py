"""The line of a key in a TOML file.

The parser of the standard library keeps no lines, and is the only one that decides what a file
means; so it is asked: a key stands in the first statement up to which the file, read from its
beginning, has that key. A beginning that ends within a statement is no TOML, and never mistaken.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

__all__ = ["line_of"]

_KEPT = 64  # beginnings of one file: those of a dozen steps are asked for again and again
_CLOSING = re.compile(r"""[]}]|\"{3}|'{3}""")  # one is in the last of the lines of a statement


def line_of(text: str, path: Sequence[str | int]) -> int:
    """The line, from 1, of the statement that brings a key, or of what it would be in; else 0.

    ``path``: names of tables and keys, numbers of items. ``text`` is a whole, valid file.
    """
    return _beginnings(text).line_of(path)


@lru_cache(maxsize=8)
def _beginnings(text: str) -> _Beginnings:
    return _Beginnings(text)


class _Beginnings:
    """A file read from its beginning up to each line: kept, as many keys ask for the same ones."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._ends: dict[int, int] = {}
        self._parsed = lru_cache(maxsize=_KEPT)(self._parse)

    def line_of(self, path: Sequence[str | int]) -> int:
        """See above."""
        lines = len(self._lines)
        for end in range(len(path), 0, -1):
            has = partial(self._has, path[:end])
            if has(lines):
                return bisect_left(range(lines + 1), True, key=has)
        return 0

    def _has(self, path: Sequence[str | int], count: int) -> bool:
        return _has(self._parsed(self._end(count)), path)

    def _end(self, count: int) -> int:
        """How many lines the file has up to the end of the statement in which so many end."""
        end = count
        while end not in self._ends and self._parsed(end) is None:
            end += 1
            while end < len(self._lines) and not _CLOSING.search(self._lines[end - 1]):
                end += 1
        end = self._ends.get(end, end)
        self._ends.update(dict.fromkeys(range(count, end + 1), end))
        return end

    def _parse(self, count: int) -> Any:
        try:
            return tomllib.loads("\n".join(self._lines[:count]) + "\n")
        except tomllib.TOMLDecodeError:
            return None


def _has(table: Any, path: Sequence[Any]) -> bool:
    for part in path:
        if (isinstance(table, list) and isinstance(part, int) and part < len(table)) or (
            isinstance(table, dict) and part in table
        ):
            table = table[part]
        else:
            return False
    return True
