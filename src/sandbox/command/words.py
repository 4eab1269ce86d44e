"""One word of shell text, and what a program gets for it.

Read from the word's own characters, so that nothing depends on how a parser split it: a word is
known if its pieces are plain, quoted or escaped, and bash, sh and zsh change nothing in it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Word", "value_of"]

_PLAIN = re.compile(r"[\w@%+:,./-]+")  # as it stands
# Pieces of a word; what begins with none of them is changed by the shell.
_PIECE = re.compile(r"""'([^']*)'|"((?:[^"\\$`]|\\.)*)"|\\([^\n])|([\w@%+:,./=!^~#{}-]+)""", re.S)
_IN_QUOTES = re.compile(r'\\([$`"\\\n])')
_TILDE = re.compile(r"^[~=#]|[=:]~")  # of bash; a leading = or # of zsh


class Word(NamedTuple):
    """A word: ``text`` as the program gets it, None where only the shell will know it."""

    text: str | None
    raw: str
    start: int
    end: int


def value_of(raw: str) -> str | None:
    """What a word is after the shell has removed its quotes; None if it does more than that."""
    if _PLAIN.fullmatch(raw):
        return raw
    parts: list[str] = []
    bare: list[str] = []  # the same with what is quoted blanked, for what counts only unquoted
    at = 0
    while at < len(raw):
        piece = _PIECE.match(raw, at)
        if piece is None:
            return None
        single, double, escaped, plain = piece.groups()
        if plain is not None:
            parts.append(plain)
        elif double is not None:
            unfolded = _IN_QUOTES.sub(lambda one: one[1] if one[1] != "\n" else "", double)
            parts.append(unfolded)
        else:
            parts.append(single if single is not None else escaped)
        bare.append(plain if plain is not None else "'")
        at = piece.end()
    shape = "".join(bare)
    if not shape or _TILDE.search(shape) or _has_braces(shape):
        return None
    return "".join(parts)


def _has_braces(shape: str) -> bool:
    """Whether a shell may make several words of one: of braces in each other too, ``{{},b}``."""
    start = shape.find("{")
    return start >= 0 and ("," in shape[start:] or ".." in shape[start:])
