"""Text that others chose, as it may stand on a terminal."""

from __future__ import annotations

__all__ = ["escaped", "printable"]


def printable(text: str) -> str:
    """``text`` in one line, unprintable characters escaped: file names are a command's choice."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else escaped(c) for c in text])


def escaped(character: str) -> str:
    """One character, by its number."""
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
