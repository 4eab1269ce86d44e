"""Edits of files as they are asked for, and what each will make of which file. Pure.

All of it is known before anything is done, so that whoever approves sees it; doing it is
``perform``'s.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from sandbox.errors import InvalidArgument
from sandbox.session.drafts import Change, Draft, Read, Source, named, refusal, shown
from sandbox.session.envelope import apply_envelope, is_envelope
from sandbox.session.patch import apply_patch

__all__ = ["Action", "Edit", "planned"]

_SHOWN_MAX = 5


class Action(StrEnum):
    """What an edit does."""

    CREATE = "create"
    REPLACE = "replace"
    REPLACE_TEXT = "replace-text"
    DELETE = "delete"
    PATCH = "patch"


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit as it was asked for; made by the functions below.

    ``path``: relative to the working directory, or absolute; empty for a patch, which names its
    own. ``text``: the new content, the new text, or the patch. ``old`` and ``count``: the text to
    be replaced, and how often it is there. Raises ``InvalidArgument``.
    """

    action: Action
    path: str = ""
    text: bytes = b""
    old: bytes = b""
    count: int = 1

    @classmethod
    def create(cls, path: str, content: bytes | str) -> Edit:
        """A new file, with the directories above it; nothing may be there."""
        return cls(Action.CREATE, _path(path), _bytes(content, "content"))

    @classmethod
    def replace(cls, path: str, content: bytes | str) -> Edit:
        """Another content for a file that is there."""
        return cls(Action.REPLACE, _path(path), _bytes(content, "content"))

    @classmethod
    def replace_text(cls, path: str, old: bytes | str, new: bytes | str, *, count: int = 1) -> Edit:
        """Another text in the place of one that is there exactly ``count`` times."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidArgument("count", count, "is no number from 1 on")
        before = _bytes(old, "old")
        if not before:
            raise InvalidArgument("old", old, "is empty")
        return cls(Action.REPLACE_TEXT, _path(path), _bytes(new, "new"), before, count)

    @classmethod
    def delete(cls, path: str) -> Edit:
        """No such file: not a directory, nor a link."""
        return cls(Action.DELETE, _path(path))

    @classmethod
    def patch(cls, text: bytes | str) -> Edit:
        """What a unified diff says, or a patch in the envelope ``*** Begin Patch``."""
        return cls(Action.PATCH, text=_bytes(text, "patch"))


def _path(path: str) -> str:
    if not isinstance(path, str):
        raise InvalidArgument("path", path, "is no text")
    try:
        return named(os.fsencode(path))
    except UnicodeError:
        raise InvalidArgument("path", "...", "contains a surrogate") from None


def _bytes(data: bytes | str, name: str) -> bytes:
    if not isinstance(data, (bytes, str)):
        raise InvalidArgument(name, data, "is neither text nor bytes")
    try:
        return data.encode() if isinstance(data, str) else data
    except UnicodeError:
        raise InvalidArgument(name, "...", "contains a surrogate") from None


# What it will do.


def planned(edit: Edit, read: Read) -> tuple[Change, ...]:
    """What an edit makes of files, in order; empty if that changes nothing.

    ``read`` gives a file's content by its path, and raises FileNotFoundError where there is none.
    Raises ``InvalidArgument`` where the edit does not fit what is there, whose author can mend it,
    and what ``read`` raises.
    """
    if edit.action is Action.PATCH:
        return (apply_envelope if is_envelope(edit.text) else apply_patch)(edit.text, read)
    draft = Draft(read)
    if edit.action is Action.CREATE:
        draft.create(edit.path, edit.text)
    else:
        draft.existing(edit.path)
        draft.put(edit.path, _MADE[edit.action](edit, draft))
    return draft.changes()


def _replaced(edit: Edit, draft: Draft) -> bytes:
    source = draft.source(edit.path)
    for old, new in source.spellings(edit.old, edit.text):
        count = source.content.count(old)
        if count == 1 and source.content.find(old) != source.content.rfind(old):
            count = 2  # over each other
        if count == edit.count:
            return source.content.replace(old, new)
        if count:
            where = _places(source.content, old, count)
            cause = f"the old text is there {count} times, not {edit.count} ({where})"
            raise refusal(edit.path, cause, "more of what stands around it, or another count")
    raise refusal(edit.path, f"the old text is not there: {_nearest(edit.old, source)}")


def _places(content: bytes, old: bytes, count: int) -> str:
    lines, at = [], -1
    for _ in range(min(count, _SHOWN_MAX)):
        at = content.find(old, at + 1)
        lines.append(str(content.count(b"\n", 0, at) + 1))
    return f"line {', '.join(lines)}{', ...' if count > _SHOWN_MAX else ''}"


def _nearest(old: bytes, source: Source) -> str:
    """How far the text is there, and what stands there instead of the rest."""
    lines = old.splitlines(keepends=True)
    most = bisect_right(
        range(1, len(lines) + 1), 0, key=lambda n: b"".join(lines[:n]) not in source.content
    )
    if not most:
        return f"{shown(lines[0])} is nowhere"
    start = b"".join(lines[:most])
    at = source.content.find(start) + len(start)
    there = source.content[at:].partition(b"\n")[0]
    line = source.content.count(b"\n", 0, at) + 1
    return f"{shown(lines[most])} is expected at line {line}, and {shown(there)} is there"


_MADE: dict[Action, Callable[[Edit, Draft], bytes | None]] = {
    Action.REPLACE: lambda edit, draft: edit.text,
    Action.REPLACE_TEXT: _replaced,
    Action.DELETE: lambda edit, draft: None,
}
