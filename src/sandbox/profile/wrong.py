"""How a mistake in a profile is told: file, line, the key as it is written, a suggestion."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sandbox.errors import InvalidProfile
from sandbox.profile.locate import line_of
from sandbox.profile.values import Source

__all__ = ["At", "brief", "invalid", "near", "shown"]

At = tuple[str | int, ...]

_SHOWN_MAX = 100  # characters of a value in an error


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


def near(wrong: str, names: Sequence[str]) -> str:
    """A suggestion: what is spelled nearly so, else all there is."""
    from difflib import get_close_matches  # only who mistyped pays for it

    for spelled in (wrong.replace("-", "_"), wrong.replace("_", "-")):
        for close in get_close_matches(spelled, names, n=1):
            return f"did you mean {close!r}?"
    return f"one of {', '.join(names)}"
