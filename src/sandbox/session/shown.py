"""What a model is told of a tool call: short, whole in what counts, and harmless on a terminal.

Output is the command's, so it may hold sequences that move a cursor, change a title or make text
look like ours: what is not printable is written out. Of long output the head and the tail are
kept, as what a command says last is mostly why it failed.
"""

from __future__ import annotations

import re

from sandbox.denial import Denial
from sandbox.printed import escaped, printable

__all__ = ["OUTPUT_MAX", "denial_text", "harmless", "shortened"]

_CHARACTERS_MAX = 4096  # that are kept in a table
OUTPUT_MAX = 40_000  # characters of each call's output: about ten thousand tokens
# Colours and cursor movements: nothing is lost with them. Strings (titles, links) end at BEL or ST;
# one that does not end in its line is none, or all that is printed after it would be lost.
_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-OQ-WYZ`-~\\])"
)


def harmless(text: str) -> str:
    """Text of which a terminal shows what stands in it, and does nothing else.

    Escape sequences are left out; other control, invisible and bidirectional characters are
    written out. Newlines and tabs stay; of a line that was overwritten (``\\r``) the last part.
    """
    if (
        text.isascii()
        and "\x1b" not in text
        and text.replace("\n", "").replace("\t", "").isprintable()
    ):
        return text
    text = _SEQUENCE.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    if _is_plain(text):
        return text
    return text.translate(_written)


def _is_plain(text: str) -> bool:
    return text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable()


class _Written(dict[int, str]):
    """Characters as they are shown; asked by ``str.translate``, for each of megabytes."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        is_plain = character.isprintable() or character in "\n\t"
        shown = character if is_plain else escaped(character)
        if len(self) < _CHARACTERS_MAX:
            self[code] = shown
        return shown


_written = _Written()


def shortened(text: str, most: int) -> str:
    """At most ``most`` characters: the head and the tail, and between them how many are missing."""
    if len(text) <= most:
        return text
    head = most // 2
    tail = most - head
    missing = len(text) - head - tail
    end = text[len(text) - tail :] if tail else ""
    return f"{text[:head]}\n[... {missing} characters left out ...]\n{end}"


def denial_text(denial: Denial) -> str:
    """A line about what was refused: the path, the rule, and what would allow it."""
    if denial.change:
        first = f"Put back by the sandbox: {denial.what} ({denial.change})"
    else:
        word = "Refused by the sandbox" if denial.certain else "Probably refused by the sandbox"
        first = f"{word}: {denial.kind} {denial.what}".rstrip()
    parts = [first]
    if denial.rule:
        parts.append(f"rule: {denial.rule}")
    if denial.grant is not None:
        parts.append(f"would be allowed by: {denial.grant.option or denial.grant.call}")
    return printable("; ".join(parts))
