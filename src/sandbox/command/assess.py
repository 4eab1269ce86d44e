"""The assessment of a command: each simple command in it is judged, the strictest cause counts.

Nothing here runs anything, and only ``Context.resolve`` may look at a disk. Where something is not
understood the answer is "unknown": a command is safe if every part of it is known to be.
It is advice for whoever approves, and never the wall: what is safe still runs in the sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandbox.command.context import Context
from sandbox.command.judge import Judge
from sandbox.command.parse import TEXT_MAX
from sandbox.command.verdict import Assessment, Cause, Reason
from sandbox.errors import InvalidArgument

__all__ = ["assess_command_safety"]

_WORDS_MAX = 2000


def assess_command_safety(
    command: str | bytes | Sequence[str | bytes], context: Context
) -> Assessment:
    """What a command is: safe to run at once, unknown, unsandboxed, dangerous or forbidden.

    ``command``: text that ``bash -c`` or ``sh -c`` will be given, or the words of an argv, which
    no shell will see. ``context``: where it will run. Any text gets an answer, in time that grows
    with its length. Raises ``InvalidArgument`` if ``command`` is neither: the caller's fault.
    """
    if isinstance(command, (str, bytes)):
        return _of_text(command, context)
    if not isinstance(command, Sequence):
        raise InvalidArgument("command", command, "is neither text nor a list of words")
    return _of_words(command, context)


def _of_text(command: str | bytes, context: Context) -> Assessment:
    if len(command) > TEXT_MAX:
        return _unknown(Reason.SIZE, len(command))
    text = _printable(command)
    if text is None:
        return _unknown(Reason.CHARACTERS, len(command))
    if len(text) * 4 > TEXT_MAX and len(text.encode()) > TEXT_MAX:
        return _unknown(Reason.SIZE, len(command))
    judge = Judge(context)
    judge.text(text, None, 0)
    causes = judge.causes or [Cause(Reason.EMPTY, 0, len(command))]
    if isinstance(command, bytes) and not command.isascii():
        causes = [_in_bytes(cause, text) for cause in causes]
    return Assessment.of(causes)


def _of_words(command: Sequence[Any], context: Context) -> Assessment:
    if len(command) > _WORDS_MAX:
        return _unknown(Reason.SIZE, len(command))
    size = 0
    for word in command:
        if not isinstance(word, (str, bytes)):
            raise InvalidArgument("command", word, "is no word")
        size += len(word)
    if size > TEXT_MAX:
        return _unknown(Reason.SIZE, len(command))
    texts = []
    for at, word in enumerate(command):
        text = _printable(word)
        if text is None:
            return Assessment.of([Cause(Reason.CHARACTERS, at, at + 1)])
        texts.append(text)
    judge = Judge(context)
    judge.argv(texts)
    return Assessment.of(judge.causes or [Cause(Reason.EMPTY, 0, len(command))])


def _unknown(reason: Reason, length: int) -> Assessment:
    return Assessment.of([Cause(reason, 0, length)])


def _printable(text: str | bytes) -> str | None:
    """The text if a person sees all of it, in the order that it is in, and a shell sees no more.

    Newlines and tabs apart, that leaves out control and format characters (bidirectional ones,
    zero widths), blanks other than the space, and whatever is not UTF-8.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError:
            return None
    if text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return None


def _in_bytes(cause: Cause, text: str) -> Cause:
    start, end = (len(text[:at].encode()) for at in (cause.start, cause.end))
    return Cause(cause.reason, start, end, cause.detail)
