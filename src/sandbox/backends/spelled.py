"""One path, many spellings: what the file systems of a Mac take for the same name.

The usual one compares names folded: in upper and lower case, and with signs that fold to others.
U+017F is an s to it, U+212A a k, and one sign may be two letters (Unicode, CaseFolding.txt).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sandbox.paths import below

__all__ = ["aliases", "any_case", "quote", "spellings"]

# The same directories under two names; the rules are asked for the real one.
_ALIASES = (("/private/etc", "/etc"), ("/private/tmp", "/tmp"), ("/private/var", "/var"))
_DATA = "/System/Volumes/Data"  # where the writable half of the root volume is mounted, too
_NOT_DATA = ("/System", *(alias for _, alias in _ALIASES))
# What folds to one letter, and to several.
_FOLDED = {"s": "\u017f", "k": "\u212a"}
_LIGATURES = {
    "ss": "\u00df\u1e9e",
    "st": "\ufb05\ufb06",
    "ff": "\ufb00",
    "fi": "\ufb01",
    "fl": "\ufb02",
    "ffi": "\ufb03",
    "ffl": "\ufb04",
}
_RUN = re.compile(r"(s+t|ss+|f+[il]|ff+)", re.IGNORECASE | re.ASCII)
_RUN_MAX = 8  # letters; of more there are too many ways to read them


def aliases(path: str) -> tuple[str, ...]:
    """A path, and its other name if one of its directories is a link of the system's."""
    for real, alias in _ALIASES:
        if below(path, real):
            return (path, alias + path[len(real) :])
        if below(path, alias):
            return (path, real + path[len(alias) :])
    return (path,)


def spellings(path: str) -> tuple[str, ...]:
    """All names of a path, for what is excepted; what is allowed has its real one (``aliases``)."""
    found = aliases(path)
    there = [one for one in found if one != "/" and not any(below(one, at) for at in _NOT_DATA)]
    return (*found, *(_DATA + one for one in there))


def quote(text: str) -> str:
    """Text as an expression that matches it alone."""
    return re.sub(r"([\\.^$|()\[\]{}*+?])", r"\\\1", text)


def any_case(text: str) -> str:
    """An expression for a text in any spelling that folds to the same.

    Signs that are several bytes stand in groups, not in ``[...]``, which may be of bytes.
    """
    parts = _RUN.split(text)
    found = "".join(map(_any_sign, parts[0]))
    for run, rest in zip(parts[1::2], parts[2::2], strict=True):
        if len(run) > _RUN_MAX:  # more than is meant: any of these signs
            signs = [*map(_any_sign, sorted(set(run))), *"".join(_LIGATURES.values())]
            found += f"({'|'.join(signs)})+"
        else:
            found += f"({'|'.join(_readings(run.lower()))})"
        found += "".join(map(_any_sign, rest))
    return found


def _any_sign(sign: str) -> str:
    if sign.isascii() and sign.isalpha():
        both = f"[{sign.lower()}{sign.upper()}]"
        folded = _FOLDED.get(sign.lower())
        return f"({both}|{folded})" if folded else both
    cases = sorted(one for one in {sign, sign.lower(), sign.upper()} if len(one) == 1)
    return quote(sign) if len(cases) == 1 else f"({'|'.join(cases)})"


def _readings(run: str) -> Iterator[str]:
    """Each way to write letters of which some are one sign together."""
    if not run:
        yield ""
        return
    for rest in _readings(run[1:]):
        yield _any_sign(run[0]) + rest
    for size in (2, 3):
        for sign in _LIGATURES.get(run[:size], "") if len(run) >= size else "":
            yield from (sign + rest for rest in _readings(run[size:]))
