"""Unified diffs, as git and diff write them: parsed, and applied to what ``read`` gives. Pure.

Of the libraries there are, unidiff parses only, patch-ng writes to the disk itself, and
whatthepatch (1.0.7, no maintainer) drops CRLF and missing newlines at the end: so this is our own.

A hunk stands at the line that it names (moved as far as the hunk before it was), else at the one
place where its old lines are; never nearly. Its counts are binding: without them a removed line
``-- x`` is a file's header. What cannot be done as it is said is refused, nothing is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sandbox.session.drafts import Change, Draft, Read, Source, checked, named, refusal, shown

__all__ = ["apply_patch"]

_HEADER = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_GIT_NAMES = re.compile(rb'a/(.+) b/\1|"a/(.+)" "b/\2"|(.+) \3')
_ESCAPE = re.compile(rb'\\([abtnvfr"\\]|[0-3][0-7]{2})')
_ESCAPES = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))
_NOWHERE = b"/dev/null"
_MODES = {b"100644": 0o644, b"100755": 0o755}
_SIGNATURE = b"-- "  # below it stands git's version, in a mail
# Lines of git's header that say what cannot be done here.
_REFUSED = {
    b"old mode ": "changes permissions: run chmod",
    b"copy from ": "copies a file: create it",
    b"GIT binary patch": "is binary",
    b"Binary files ": "is binary",
}


@dataclass(slots=True)
class _Hunk:
    """Old lines and what replaces them; ``start``, from 0, is where the header says they are."""

    text: str
    start: int
    old: list[bytes] = field(default_factory=list)
    new: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _Section:
    """One file of a patch: its name before and after, None where there is none."""

    old: str | None = None
    new: str | None = None
    is_git: bool = False
    is_named: bool = False  # by its own header lines: git's first line is ambiguous
    is_moved: bool = False
    mode: int = 0o644
    hunks: list[_Hunk] = field(default_factory=list)

    @property
    def path(self) -> str:
        return self.new or self.old or ""


def apply_patch(text: str | bytes, read: Read) -> tuple[Change, ...]:
    """What a unified diff makes of files.

    ``read`` gives a file's content by its path as the patch has it (without ``a/`` and ``b/``), and
    raises FileNotFoundError where there is none. Renames are a creation and a deletion. Raises
    ``InvalidArgument``, with what was expected and what stands there: the patch's author's fault;
    and what ``read`` raises. At most 1 MiB.
    """
    draft = Draft(read)
    sections = _Parser(checked(text)).sections()
    if not sections:
        raise refusal("", "names no file: there are no lines '--- a/path' and '+++ b/path'")
    for section in sections:
        _apply(section, draft)
    return draft.changes()


# Applying.


def _apply(section: _Section, draft: Draft) -> None:
    old, new = section.old, section.new
    if old is None:
        if new is None:
            raise refusal("", "a section names no file")
        _create(section, new, draft)
    elif new is None:
        if _patched(section, draft.source(old)):
            raise refusal(old, "is to be deleted, and the hunks leave lines in it")
        draft.put(old, None)
    elif section.is_moved:
        content = _patched(section, draft.source(old))
        draft.create(new, content, section.mode, old)
        draft.put(old, None)
    else:
        draft.put(new, _patched(section, draft.source(new)))


def _create(section: _Section, path: str, draft: Draft) -> None:
    if len(section.hunks) > 1 or any(hunk.old for hunk in section.hunks):
        raise refusal(path, "is to be created, and its hunk has old lines, or there are two")
    draft.create(path, b"".join(line for one in section.hunks for line in one.new), section.mode)


def _patched(section: _Section, source: Source) -> bytes:
    done: list[bytes] = []
    line = drift = 0
    for number, hunk in enumerate(section.hunks, 1):
        place, new = _locate(number, hunk, source, drift, line)
        drift = place - hunk.start
        done += [source.content[source.start(line) : source.start(place)], new]
        line = place + len(hunk.old)
    return b"".join([*done, source.content[source.start(line) :]])


def _locate(number: int, hunk: _Hunk, source: Source, drift: int, first: int) -> tuple[int, bytes]:
    """The line at which a hunk applies, not before ``first``, and its new lines."""
    place = hunk.start + drift
    what = f"hunk {number} ({hunk.text})"
    for old, new in source.spellings(b"".join(hunk.old), b"".join(hunk.new)):
        if place >= first and source.has(old, place):
            return place, new
        found = source.find(old, first)
        if len(found) > 1:
            here = " and ".join(str(line + 1) for line in found)
            cause = f"{what} does not match at line {place + 1}, and does at lines {here}"
            raise refusal(source.path, cause, "more lines around it")
        if found:
            return found[0], new
    if place < first:
        raise refusal(source.path, f"{what} stands before the end of the one before it, or over it")
    raise refusal(source.path, f"{what} matches nowhere: {source.difference(hunk.old, place)}")


# Parsing.


class _Parser:
    def __init__(self, lines: list[bytes]) -> None:
        self._lines, self._at = lines, 0
        self._found: list[_Section] = []

    def sections(self) -> list[_Section]:
        """All that a patch says, in its order. What stands around the diffs is passed over."""
        while self._at < len(self._lines):
            line = self._head(self._at)
            if line.startswith(b"diff --git "):
                self._begin_git(line)
            elif line.startswith(b"--- "):
                self._name(line)
            elif line.startswith(b"@@"):
                self._hunk(line)
            else:
                self._other(line)
            self._at += 1
        self._end()
        return self._found

    def _head(self, at: int) -> bytes:
        """A line of a header, without its end; empty behind the last."""
        return self._lines[at].rstrip(b"\r\n") if at < len(self._lines) else b""

    def _end(self) -> None:
        """A section is over: without hunks it must say something else."""
        if self._found and not self._found[-1].hunks:
            last = self._found[-1]
            is_whole = last.is_git and (last.is_moved or None in (last.old, last.new))
            if not is_whole:
                raise refusal(
                    last.path, "has no hunk: there is no line '@@ -line,count +line,count @@'"
                )

    def _begin_git(self, line: bytes) -> None:
        self._end()
        section = _Section(is_git=True)
        names = _GIT_NAMES.fullmatch(line.removeprefix(b"diff --git "))
        if names is not None:
            name = names[1] or names[3] or _unquoted(b'"%b"' % names[2])
            section.old = section.new = named(name)
        self._found.append(section)

    def _name(self, line: bytes) -> None:
        after = self._head(self._at + 1)
        if not after.startswith(b"+++ "):
            raise refusal(
                "", f"line {self._at + 1}: no line '+++ path' stands behind {shown(line)}"
            )
        old, new = _names(line[4:], after[4:])
        section = self._found[-1] if self._found else _Section()
        known = {section.old, section.new} - {None}
        is_its_own = section.is_git and not section.is_named
        if not is_its_own or (known and known.isdisjoint((old, new))):
            self._end()
            section = _Section()
            self._found.append(section)
        if section.is_moved and (old, new) != (section.old, section.new):
            raise refusal(section.path, "is renamed, and the lines '---' and '+++' say otherwise")
        if not section.is_moved and None not in (old, new) and old != new:
            cause = f"is {old!r} in the line '---'"
            raise refusal(new or "", cause, "the lines 'rename from' and 'rename to'")
        section.old, section.new, section.is_named = old, new, True
        self._at += 1

    def _other(self, line: bytes) -> None:
        section = self._found[-1] if self._found else None
        if section is None or not line:
            return
        if section.hunks:
            if line[:1] in b"+- " and line != _SIGNATURE:
                what = f"line {self._at + 1}, {shown(line)}, is more than the hunk's header says"
                raise refusal(section.path, what, "the numbers of lines in the header @@")
        elif section.is_git and not section.is_named:
            self._extended(section, line)

    def _extended(self, section: _Section, line: bytes) -> None:
        """A line of git's own header."""
        for start, cause in _REFUSED.items():
            if line.startswith(start):
                raise refusal(section.path, cause)
        word, _, value = line.rpartition(b" ")
        if line.startswith(b"rename from "):
            section.old, section.is_moved = named(_unquoted(line[len("rename from ") :])), True
        elif line.startswith(b"rename to "):
            section.new, section.is_moved = named(_unquoted(line[len("rename to ") :])), True
        elif word == b"new file mode":
            if value not in _MODES:
                raise refusal(
                    section.path, f"is to be created with mode {shown(value)}: no plain file"
                )
            section.old, section.mode = None, _MODES[value]
        elif word == b"deleted file mode":
            section.new = None

    def _hunk(self, line: bytes) -> None:
        if not self._found:
            raise refusal("", f"line {self._at + 1}: a hunk stands before any line '--- path'")
        section, header = self._found[-1], _HEADER.match(line)
        if header is None:
            what = f"line {self._at + 1}: {shown(line)} is no hunk header"
            raise refusal(section.path, what, "@@ -line,count +line,count @@")
        first, old, _, new = (1 if part is None else int(part) for part in header.groups())
        hunk = _Hunk(header[0].decode(), first if old == 0 else first - 1)
        lists = {b" ": (hunk.old, hunk.new), b"-": (hunk.old,), b"+": (hunk.new,)}
        last: tuple[list[bytes], ...] = ()
        while True:
            body = self._lines[self._at + 1] if self._at + 1 < len(self._lines) else b""
            is_full = len(hunk.old) >= old and len(hunk.new) >= new
            if body[:1] == b"\\" and last:
                for part in last:
                    part[-1] = part[-1].removesuffix(b"\n")
                last = ()
            elif is_full:
                break
            else:
                body = body if body.strip(b"\r\n") or not body else b" " + body
                last = lists.get(body[:1], ())
                for part in last:
                    part.append(body[1:])
                if not last or len(hunk.old) > old or len(hunk.new) > new:
                    self._misses(section, hunk, (old, new), body)
            self._at += 1
        section.hunks.append(hunk)

    def _misses(self, section: _Section, hunk: _Hunk, said: tuple[int, int], body: bytes) -> None:
        where = f"line {self._at + 2}, {shown(body)}" if body else "the end of the patch"
        counts = f"{said[0]} old and {said[1]} new lines"
        number = len(section.hunks) + 1
        cause = f"hunk {number} ({hunk.text}) does not have the {counts} of its header at {where}"
        raise refusal(section.path, cause, "count the lines that begin with ' ', '-' and '+'")


def _names(old: bytes, new: bytes) -> tuple[str | None, str | None]:
    """Both names, without ``a/`` and ``b/`` where they are there, and without times."""
    both = [_unquoted(one) if one[:1] == b'"' else one.partition(b"\t")[0] for one in (old, new)]
    starts = (b"a/", b"b/")
    is_git = all(one == _NOWHERE or one.startswith(s) for one, s in zip(both, starts, strict=True))
    first, second = (None if one == _NOWHERE else named(one[2:] if is_git else one) for one in both)
    return first, second


def _unquoted(name: bytes) -> bytes:
    """A name as git quotes it, where it does."""
    if name[:1] != b'"' or not name.rstrip().endswith(b'"'):
        return name
    inner = name.rstrip()[1:-1]
    return _ESCAPE.sub(
        lambda m: bytes([int(m[1], 8) if len(m[1]) == 3 else _ESCAPES[m[1][0]]]), inner
    )
