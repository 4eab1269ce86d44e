"""Options of a program as a table has them, and the first word that it does not have.

Only whole names count: an abbreviation, an unknown letter in a cluster or an operand too many is
"not in the table", whatever the program at hand would make of it. What stands behind ``--`` must
begin with no dash either: the word before may have taken the ``--`` as its value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["ANY", "Options", "first_strange", "letters_of", "names", "options"]


class Options(NamedTuple):
    """What may stand behind a program's name.

    ``letters`` are options without a value, ``valued`` take one, in the same word or the next;
    ``long`` are whole names, with or without ``=value``. ``operands``: at most so many, None for
    any number. ``any``: every option is harmless, and of the operands only the number counts.
    ``apart``: a value never stands in the same word, so what follows a valued letter there is
    options again (``tree -Po x P`` writes P).
    """

    letters: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    operands: int | None = None
    any: bool = False
    apart: bool = False


ANY = Options(any=True)


def names(text: str) -> frozenset[str]:
    """The words of a text, as rows of tables have them."""
    return frozenset(text.split())


def options(
    letters: str = "", valued: str = "", long: str = "", operands: int | None = None
) -> Options:
    """A row of a table; ``long`` are names with blanks between them, without their dashes."""
    whole = frozenset(f"--{name}" for name in long.split())
    return Options(letters, valued, whole, operands)


def first_strange(words: Sequence[str], table: Options) -> int | None:
    """The index of the first of ``words`` (options and operands) that the table does not have."""
    if table.any:
        return None
    operands = 0
    for index, word in enumerate(words):
        # Where operands are counted, each word behind the first is one: not all sort them out.
        is_option = word.startswith("-") and word != "-" and not (operands and table.operands)
        if word == "--" and is_option:
            continue
        if not is_option:
            operands += 1
            if table.operands is not None and operands > table.operands:
                return index
        elif word.startswith("--"):
            if word.partition("=")[0] not in table.long:
                return index
        elif not _is_cluster(word, table):
            return index
    return None


def _is_cluster(word: str, table: Options) -> bool:
    for at, letter in enumerate(word[1:], 2):
        if letter in table.valued:
            return at == len(word) or not table.apart
        if letter not in table.letters:
            return False
    return True


def letters_of(words: Sequence[str]) -> set[str]:
    """All letters that may be options in the clusters of ``words``: more rather than fewer."""
    return {letter for word in words if word[:1] == "-" and word[:2] != "--" for letter in word[1:]}
