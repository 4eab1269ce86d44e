"""Words on a terminal: one line each, with nothing in it that moves a cursor."""

from __future__ import annotations

import os

__all__ = ["complain", "printable"]


def printable(text: str) -> str:
    """`text` in one line, unprintable characters escaped: file names are a command's choice."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else _escaped(c) for c in text])


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def complain(text: str) -> None:
    """One line on standard error, marked as ours. Silent where nobody can read it."""
    line = f"sandbox: {printable(text)}\n"
    try:
        # One write, so that it is not torn apart by what the command or others print.
        os.write(2, line.encode("utf-8", "backslashreplace"))
    except OSError:
        return
