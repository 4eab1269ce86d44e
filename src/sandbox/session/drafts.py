"""Where lines that a patch names stand in a file: what both forms of patches are applied by.

Lines match exactly or not at all; a guess edits the wrong place. Only the line ends of a file that
has CRLF throughout, which a model does not see, are lent to lines that came with LF, and the other
way round. All searches go by ``bytes.find``, which is linear, and are counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import PurePosixPath
from typing import NamedTuple

from sandbox.errors import InvalidArgument

__all__ = ["Change", "Draft", "Read", "Source", "checked", "named", "refusal", "shown"]

TEXT_MAX = 1 << 20  # bytes of a patch
PATCHED_MAX = 4 << 20  # of a file in which lines are looked for
LINES_MAX = 100_000
_SEARCH_MAX = 1 << 28  # bytes that are searched for the lines of one patch
_SHOWN_MAX = 80

Read = Callable[[str], bytes]


class Change(NamedTuple):
    """A file as it is and as it is to be; None where there is none.

    ``mode``: the permissions of a new file. ``moved_from``: the file whose permissions it takes.
    """

    path: str
    before: bytes | None
    after: bytes | None
    mode: int = 0o644
    moved_from: str = ""


def refusal(path: str, cause: str, mend: str = "") -> InvalidArgument:
    """The error for what a patch says of a path; the caller raises."""
    return InvalidArgument("edit", path or "...", cause, mend)


def checked(text: str | bytes) -> list[bytes]:
    """The lines of a patch, the last with a newline, too. Raises ``InvalidArgument``."""
    if not isinstance(text, (str, bytes)):
        raise InvalidArgument("edit", text, "is neither text nor bytes")
    try:
        data = text.encode() if isinstance(text, str) else text
    except UnicodeError:
        raise InvalidArgument("edit", "...", "contains a surrogate") from None
    if len(data) > TEXT_MAX:
        raise refusal("", f"is {len(data)} bytes long, more than {TEXT_MAX}", "several patches")
    return _lines_of(data if data.endswith(b"\n") else data + b"\n")


def _lines_of(data: bytes) -> list[bytes]:
    """The lines with their ends: newlines alone end one."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def named(raw: bytes) -> str:
    """A path that a patch names. ``..`` stays: what it leads to is the kernel's to say."""
    if not raw.strip() or b"\0" in raw or raw.endswith(b"/"):
        raise refusal(shown(raw), "is no path of a file")
    return str(PurePosixPath(raw.decode(errors="surrogateescape")))


def shown(line: bytes) -> str:
    """A line for an error: what a model wrote, cut."""
    text = line.removesuffix(b"\n").decode(errors="replace")
    return repr(text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}...")


class Draft:
    """Files as a patch leaves them, each read once: later parts of it see what earlier ones did."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._was: dict[str, bytes | None] = {}
        self._now: dict[str, bytes | None] = {}
        self._how: dict[str, tuple[int, str]] = {}
        self.searched = 0

    def content(self, path: str) -> bytes | None:
        """What is in a file now. Raises what reading raises, but for what is missing."""
        if path not in self._now:
            try:
                found: bytes | None = self._read(path)
            except FileNotFoundError:
                found = None
            self._was[path] = self._now[path] = found
        return self._now[path]

    def existing(self, path: str) -> bytes:
        """As ``content``, of a file that must be there."""
        found = self.content(path)
        if found is None:
            raise refusal(path, "is not there")
        return found

    def create(self, path: str, content: bytes, mode: int = 0o644, moved_from: str = "") -> None:
        """A file that must not be there yet."""
        if self.content(path) is not None:
            raise refusal(path, "is there already", "update it, or delete it first")
        self._now[path], self._how[path] = content, (mode, moved_from)

    def put(self, path: str, content: bytes | None) -> None:
        """Another content, or none, for a file that is there."""
        self._now[path] = content

    def source(self, path: str) -> Source:
        """A file that must be there, to find lines in."""
        found = self.existing(path)
        if len(found) > PATCHED_MAX or found.count(b"\n") > LINES_MAX:
            cause = f"has more than {PATCHED_MAX >> 20} MiB or {LINES_MAX} lines"
            raise refusal(path, cause, "another content for all of it")
        return Source(found, path, self)

    def changes(self) -> tuple[Change, ...]:
        """What is another than it was, in the order in which it was named."""
        return tuple(
            Change(path, self._was[path], now, *self._how.get(path, ()))
            for path, now in self._now.items()
            if self._was[path] != now
        )


class Source:
    """The lines of a file. Lines are counted from 0 here."""

    def __init__(self, content: bytes, path: str, draft: Draft) -> None:
        self.content, self.path, self._draft = content, path, draft
        self._framed = b"\n" + content  # so that a newline stands before each line
        self.lines = _lines_of(content)
        self.count = len(self.lines)
        self._ends = _ends(content)
        self._stripped: dict[bytes, list[int]] = {}
        self._starts = [*accumulate(map(len, self.lines), initial=0)]

    def start(self, line: int) -> int:
        """Where a line begins, in bytes; of the one after the last, the end."""
        return self._starts[line]

    def has(self, old: bytes, line: int) -> bool:
        """Whether these lines begin at that line. No lines do between any two."""
        if not 0 <= line <= self.count:
            return False
        at = self._starts[line]
        if not old:
            return at == 0 or self.content[at - 1 : at] == b"\n"
        is_whole = old.endswith(b"\n") or at + len(old) == len(self.content)
        return is_whole and self.content.startswith(old, at)

    def like(self, line: bytes) -> list[int]:
        """Where a line stands, blanks around it apart."""
        if not self._stripped:
            for number, there in enumerate(self.lines):
                self._stripped.setdefault(there.strip(), []).append(number)
        return self._stripped.get(line.strip(), [])

    def find(self, old: bytes, first: int, most: int = 2) -> list[int]:
        """Where these lines begin, from the first line on; so many places are enough."""
        found: list[int] = []
        at = self._starts[first] if old else -1
        while at >= 0 and len(found) < most:
            start, at = at, self._framed.find(b"\n" + old, at)
            self._draft.searched += (at if at >= 0 else len(self.content)) - start + len(old)
            if self._draft.searched > _SEARCH_MAX:
                raise refusal(self.path, "too many hunks are not at the lines that they name")
            if at >= 0:
                line = bisect_left(self._starts, at)
                if self.has(old, line):
                    found.append(line)
                at += 1
        return found

    def difference(self, old: list[bytes], first: int) -> str:
        """Why these lines do not begin at that line, for an error."""
        for line, want in enumerate(old, first):
            if not 0 <= line < self.count:
                return f"{shown(want)} is expected at line {line + 1}, the file has {self.count}"
            there = self.lines[line]
            if there.rstrip(b"\r\n") != want.rstrip(b"\r\n"):
                return f"{shown(want)} is expected at line {line + 1}, and {shown(there)} is there"
            if there != want and not there.endswith(b"\n"):
                return f"line {line + 1}, {shown(want)}, is the last and ends without a newline"
        return f"the file has {self.count} lines, and their ends are others"

    def nearest(self, old: list[bytes], first: int) -> str:
        """As ``difference``, at the first place from a line on where the first of them is."""
        places = range(first, self.count)
        at = next((n for n in places if old and self.lines[n] == old[0]), None)
        if at is None:
            return f"{shown(old[0]) if old else 'the end'} is not there"
        return self.difference(old, at)

    def spellings(self, old: bytes, new: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The lines as they are, then with the line ends of this file where they have others."""
        yield old, new
        mine, theirs = self._ends, _ends(old + new)
        if mine and theirs and mine != theirs:
            yield old.replace(theirs, mine), new.replace(theirs, mine)


def _ends(content: bytes) -> bytes:
    """The one form of line ends that there is; else nothing."""
    both, all_of_them = content.count(b"\r\n"), content.count(b"\n")
    if not all_of_them or both not in (0, all_of_them):
        return b""
    return b"\r\n" if both else b"\n"
