"""Patches as many models write them: ``*** Begin Patch``, sections by path, hunks without numbers.

    *** Add File: PATH        each line begins with +
    *** Delete File: PATH
    *** Update File: PATH     then, if it moves, *** Move to: PATH, and hunks:
    @@ LINE                   a line above it, to find the place; may be repeated, or be empty
     kept, -old, +new         and *** End of File where that is what it ends with

A hunk's old lines must stand at one place only after the hunk before it; below a line that ``@@``
names it is the first place. Such a line, blanks around it apart, must itself be the only one; of
several, each is the first below the one before. Nothing else is matched nearly.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

from sandbox.session.drafts import Change, Draft, Read, Source, checked, named, refusal, shown

__all__ = ["apply_envelope", "is_envelope"]

_BEGIN, _END = b"*** Begin Patch", b"*** End Patch"
_ADD, _DELETE, _UPDATE = b"*** Add File: ", b"*** Delete File: ", b"*** Update File: "
_MOVE, _LAST = b"*** Move to: ", b"*** End of File"


def is_envelope(text: str | bytes) -> bool:
    """Whether a text is to be read so."""
    start = text[:1024].encode(errors="replace") if isinstance(text, str) else bytes(text[:1024])
    return start.lstrip().startswith(_BEGIN)


def apply_envelope(text: str | bytes, read: Read) -> tuple[Change, ...]:
    """What such a patch makes of files; as ``apply_patch``, and with the same errors."""
    lines = checked(text.strip())
    heads = [line.rstrip() for line in lines]
    if heads[0] != _BEGIN or heads[-1] != _END:
        raise refusal("", f"does not begin with {shown(_BEGIN)} and end with {shown(_END)}")
    draft = Draft(read)
    starts = [n for n, head in enumerate(heads) if head.startswith((_ADD, _DELETE, _UPDATE))]
    if starts[:1] != [1]:
        raise refusal("", f"line 2: {shown(heads[1])} begins no section")
    for at, end in pairwise([*starts, len(lines) - 1]):
        body = lines[at + 1 : end]
        while body and not body[-1].strip():
            body.pop()  # what stands between sections
        _section(heads[at], body, at + 2, draft)
    return draft.changes()


def _section(head: bytes, body: list[bytes], number: int, draft: Draft) -> None:
    """``number``: of the line in the patch at which the body begins, for errors."""
    path = named(head.partition(b": ")[2])
    if head.startswith(_UPDATE):
        _update(path, body, number, draft)
    elif head.startswith(_ADD):
        strange = next((line for line in body if line[:1] != b"+"), None)
        if strange is not None:
            raise refusal(path, f"is to be added, and {shown(strange)} does not begin with '+'")
        draft.create(path, b"".join(line[1:] for line in body))
    else:
        if body:
            raise refusal(path, f"is to be deleted, and {shown(body[0])} stands below")
        draft.existing(path)
        draft.put(path, None)


def _update(path: str, body: list[bytes], number: int, draft: Draft) -> None:
    target = ""
    if body and body[0].startswith(_MOVE):
        target, body, number = named(body[0].rstrip()[len(_MOVE) :]), body[1:], number + 1
    source = draft.source(path)
    done: list[bytes] = []
    line = at = count = 0
    while at < len(body):
        at, marks = _marks(body, at)
        end = at
        while end < len(body) and not body[end].startswith((b"@@", _LAST)):
            end += 1
        is_last = end < len(body) and body[end].startswith(_LAST)
        count += 1
        what = f"hunk {count} (line {number + at})"
        place, length, new = _locate(what, body[at:end], marks, is_last, source, line)
        done += [source.content[source.start(line) : source.start(place)], new]
        line, at = place + length, end + is_last
    if not count and not target:
        raise refusal(path, "is to be updated, and there is no hunk")
    content = b"".join([*done, source.content[source.start(line) :]])
    if target:
        draft.create(target, content, moved_from=path)
        draft.put(path, None)
    else:
        draft.put(path, content)


def _marks(body: list[bytes], at: int) -> tuple[int, list[bytes]]:
    """The lines that ``@@`` names before a hunk; one of numbers only is passed over."""
    marks = []
    while at < len(body) and body[at].startswith(b"@@"):
        mark = body[at][2:].strip()
        mark = mark.rpartition(b"@@")[2].strip() if mark.startswith(b"-") else mark
        marks += [mark] if mark else []
        at += 1
    return at, marks


def _locate(
    what: str, body: list[bytes], marks: list[bytes], is_last: bool, source: Source, first: int
) -> tuple[int, int, bytes]:
    """The line at which a hunk applies, how many lines it replaces, and what by."""
    body = [line if line.strip(b"\r\n") else b" " + line for line in body]
    strange = next((line for line in body if line[:1] not in (b" ", b"-", b"+")), None)
    if strange is not None:
        cause = f"{what}: {shown(strange)} does not begin with ' ', '-' or '+'"
        raise refusal(source.path, cause)
    old = [line[1:] for line in body if line[:1] != b"+"]
    new = [line[1:] for line in body if line[:1] != b"-"]
    if not old and not is_last:
        raise refusal(source.path, f"{what} only adds, and names no line that stands beside it")
    first = max(first, _marked(what, marks, source))
    pairs = [*source.spellings(b"".join(old), b"".join(new))]
    if not source.content.endswith(b"\n"):  # the lines here always do
        pairs += [(a.rstrip(b"\r\n"), b.rstrip(b"\r\n")) for a, b in pairs]
    for was, becomes in pairs:
        end = source.count - len(old)
        if is_last:
            found = [end] if end >= first and source.has(was, end) else []
        else:
            found = source.find(was, first, 1 if marks else 2)
        if len(found) > 1:
            here = " and ".join(str(line + 1) for line in found)
            cause = f"{what} matches at lines {here}"
            raise refusal(source.path, cause, "more lines around it, or @@ with a line above it")
        if found:
            return found[0], len(old), becomes
    where = "at the end of the file" if is_last else f"from line {first + 1} on"
    raise refusal(source.path, f"{what} matches nowhere {where}: {source.nearest(old, first)}")


def _marked(what: str, marks: list[bytes], source: Source) -> int:
    """The line that the last of these is; a hunk may begin with it."""
    at = 0
    for number, mark in enumerate(marks):
        places = source.like(mark)
        if not places or (number == 0 and len(places) > 1) or places[-1] < at:
            raise refusal(source.path, f"{what}: {shown(mark)} of @@ is there {len(places)} times")
        at = places[bisect_left(places, at)] + (number < len(marks) - 1)
    return at
