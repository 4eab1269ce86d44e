"""What a failed command says was refused: errno texts in its output, and the paths beside them.

Pure, and a guess: programs word the same errno in a hundred ways, and any of them may be printed by
a command to whom nothing happened. So what comes out are *claims*, which count for nothing until
the policy itself says that it refuses that path (``refused``).

Output may be hostile: only the end of it is read, keys are looked for by plain search, only so many
lines around them are looked at, each cut, and no pattern here can go back and forth over a line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

__all__ = ["CLAIMS_MAX", "TAIL", "Act", "Cause", "Claim", "claims"]

TAIL = 64 * 1024  # bytes at the end of a stream that are read
CLAIMS_MAX = 24  # of a stream, the last ones
_LINE = 512  # bytes of a line on either side of the key
_BEFORE = 5  # lines before it that may say what it is about
_PATHS_MAX = 6

Cause = Literal[
    "EACCES", "EROFS", "EPERM", "EXDEV", "EBUSY", "EAGAIN", "EMFILE", "ENOMEM", "EFBIG", "ENOSPC",
    "NET",
]  # fmt: skip
# What was to be done: "entry" makes or removes a name in a directory, "" is not said.
Act = Literal["", "read", "write", "entry", "run"]

_KEYS: dict[bytes, Cause] = {
    b"permission denied": "EACCES",
    b"permissiondenied": "EACCES",
    b"accessdenied": "EACCES",
    b"read-only file system": "EROFS",
    b"operation not permitted": "EPERM",
    b"cross-device link": "EXDEV",
    b"device or resource busy": "EBUSY",
    b"resource temporarily unavailable": "EAGAIN",
    b"can't start new thread": "EAGAIN",
    b"too many open files": "EMFILE",
    b"cannot allocate memory": "ENOMEM",
    b"memoryerror": "ENOMEM",
    b"file too large": "EFBIG",
    b"no space left on device": "ENOSPC",
    b"network is unreachable": "NET",
    b"enetunreach": "NET",
    b"name resolution": "NET",
    b"name or service not known": "NET",
    b"could not resolve host": "NET",
    b"eai_again": "NET",
    b"couldn't connect to server": "NET",
}

_ENTRY = re.compile(
    r"\b(?:remov|unlink|delet|renam|mov(?:e|ing)\b|rmdir|hard link|symlink|symbolic link)"
)
_WRITE = re.compile(
    r"\b(?:writ|creat|mkdir|lock\b|temporary file|touch|truncat|chmod|chown|changing|setting times"
    r"|output file|cop(?:y|ied)\b|sav|overwrit|failed to open|tee:)"
)
_READ = re.compile(
    r"\b(?:read(?!-only)|open(?:ing)? directory|access|stat\b|scandir|opendir)"
    r"|^(?:\S*/)?(?:cat|head|tail|less|grep|ls|find|diff|wc|file): "
)
_RUN = re.compile(r"\b(?:exec|spawn|cannot run|unable to run)")
# A word in quotes, of pieces as a shell writes them; each piece ends at the first closing quote.
_QUOTED = re.compile(r"""(?:\$?'[^'\n]+'|\\'|"[^"\n]+"|‘[^‘’\n]+’|`[^'`\n]+['`])+""")
_PIECE = re.compile(r"""(\$?)(?:'([^'\n]+)'|"([^"\n]+)"|‘([^‘’\n]+)’|`([^'`\n]+)['`])|\\(')""")
_ABSOLUTE = re.compile(r"(?<![\w./~-])/[^\s:'\"()<>|,;]+")
_BEHIND = re.compile(r"(?:Exception)?: (/[^\n]+)")
# Where in a program it happened: Python's and JavaScript's stacks, with files that nobody wrote to.
_FRAME = re.compile(r"\s*(?:File \"|at )")
_HOST = re.compile(
    r"(?:resolve host(?:name)?:?|lookup|eai_again|dial tcp|connect to(?! server)|host=)"
    r"\s*'?\[?([\w.-]*[\w]|[0-9a-f:]+)\]?"
)
# Words that begin a message and no file's name.
_VERBS = re.compile(
    r"(?:cannot|can't|could|couldn't|unable|failed|failure|error|open|mkdir|unlink|rename|remove"
    r"|create|stat|line|chmod|chown|lstat|readdir|changing|setting|access)\b",
    re.IGNORECASE,
)


class Claim(NamedTuple):
    """An errno that a line tells of, the paths in it (the likeliest first), and what was tried.

    ``text`` is the line, ``around`` that and those before it, ``host`` the name of one in it.
    """

    cause: Cause
    act: Act
    paths: tuple[str, ...]
    host: str
    text: str
    around: str


def claims(output: bytes) -> Iterator[Claim]:
    """The claims in a stream, the last first. Linear in ``TAIL``, however long the output is."""
    tail = output[-TAIL:]
    lower = tail.lower()
    found = [(at, key) for key in _KEYS if key in lower for at in _last(lower, key)]
    for at, key in sorted(found, reverse=True)[:CLAIMS_MAX]:
        start = tail.rfind(b"\n", 0, at) + 1
        yield _claim(tail, start, at, len(key), _KEYS[key])


def _last(text: bytes, key: bytes) -> Iterator[int]:
    """Where a key is, from the end; not more often than lines are looked at."""
    at = len(text)
    for _ in range(CLAIMS_MAX):
        at = text.rfind(key, 0, at)
        if at < 0:
            return
        yield at


def _claim(tail: bytes, start: int, at: int, length: int, cause: Cause) -> Claim:
    end = tail.find(b"\n", at, at + _LINE)
    before = os.fsdecode(tail[max(start, at - _LINE) : at])
    after = os.fsdecode(tail[at + length : end if end >= 0 else at + _LINE]).rstrip("\r")
    context = [os.fsdecode(line) for line in _lines_before(tail, start)]
    paths = _paths(before, after)
    if not paths and "Errno" not in before:  # cargo, Rust: the path is in a line of its own above
        above = [line for line in reversed(context) if not _FRAME.match(line)]
        paths = [path for line in above for path in _ABSOLUTE.findall(line)]
    line = before + os.fsdecode(tail[at : at + length]) + after
    around = "\n".join([*context, line])
    host = None
    if cause in ("NET", "EPERM"):
        host = _HOST.search(line.lower()) or _HOST.search(around.lower())
    return Claim(
        cause,
        _act(f"{before} {after}", paths),
        tuple(dict.fromkeys(paths))[:_PATHS_MAX],
        host[1] if host is not None else "",
        line,
        around,
    )


def _lines_before(tail: bytes, start: int) -> list[bytes]:
    lines: list[bytes] = []
    while start > 0 and len(lines) < _BEFORE:
        above = tail.rfind(b"\n", max(0, start - 1 - _LINE), start - 1) + 1
        lines.append(tail[max(above, start - 1 - _LINE) : start - 1])
        start = above
    return lines[::-1]


def _act(line: str, paths: list[str]) -> Act:
    """What was to be done, as far as the words say it; a file may have any name."""
    line = _QUOTED.sub("", line)
    for path in paths:
        line = line.replace(path, "") if "/" in path else line
    line = line.lower()
    if _ENTRY.search(line):
        return "entry"
    if _WRITE.search(line):
        return "write"
    if _RUN.search(line):
        return "run"
    return "read" if _READ.search(line) else ""


def _paths(before: str, after: str) -> list[str]:
    """The paths of a line: in quotes, before the errno's text, or as one word behind a slash."""
    is_python = "Errno" in before
    found = [*_named(before, is_python), *_named(after, is_python)]
    behind = _BEHIND.match(after)
    found += [behind[1]] if behind is not None else _bare(before)
    found += _ABSOLUTE.findall(after)[:_PATHS_MAX]
    return [path for path in found if path and "\0" not in path]


def _named(text: str, is_python: bool) -> list[str]:
    """What stands in quotes."""
    return [path for match in _QUOTED.finditer(text) for path in _unquoted(match[0], is_python)]


def _unquoted(text: str, is_python: bool) -> list[str]:
    """A quoted word as it was meant. Python escapes in plain quotes, coreutils only in ``$''``."""
    whole, escaped = "", False
    for mark, *pieces, quote in _PIECE.findall(text):
        piece = next((one for one in pieces if one), quote)
        escaped |= bool(mark) and "\\" in piece
        whole += _decoded(piece) if mark else piece
    return [_decoded(whole), whole] if not escaped and "\\" in whole and is_python else [whole]


def _decoded(text: str) -> str:
    r"""``\n``, ``\303`` and ``\x1b`` as the bytes that they stand for."""
    try:
        raw = text.encode("utf-8", "surrogateescape").decode("latin-1")
        return os.fsdecode(raw.encode("latin-1").decode("unicode_escape").encode("latin-1"))
    except (UnicodeError, ValueError):
        return text


def _bare(before: str) -> list[str]:
    """A path without quotes right before the errno's text: ``cat: a b: ``, ``open /x: ``."""
    if "Errno" in before:
        return []
    text = before.rstrip(" :(<[").rstrip()
    part = text.rpartition(": ")[2].strip()
    if not part:
        return []
    at = part.find(" /")
    found = [part[at + 1 :]] if at >= 0 and not part.startswith("/") else []
    found += [] if _VERBS.match(part) else [part]
    if " " in part:
        found += [part.rpartition(" ")[2]]
    return found
