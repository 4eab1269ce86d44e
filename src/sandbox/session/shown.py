"""What a model is told of a tool call: short, whole in what counts, and harmless on a terminal.

Output is the command's, so it may hold sequences that move a cursor, change a title or make text
look like ours: what is not printable is written out. Of long output the head and the tail are
kept, as what a command says last is mostly why it failed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandbox.denial import Denial

if TYPE_CHECKING:
    from sandbox.session.values import ToolResult

__all__ = ["OUTPUT_MAX", "denial_text", "for_model", "harmless", "refusal_lines", "shortened"]

OUTPUT_MAX = 40_000  # characters of each call's output: about ten thousand tokens
_DENIALS_MAX = 8
# Colours and cursor movements: nothing is lost with them. Strings (titles, links) end at BEL or ST.
_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])"
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
    return "".join([c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text])


def _is_plain(text: str) -> bool:
    return text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable()


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def shortened(text: str, most: int) -> str:
    """At most ``most`` characters: the head and the tail, and between them how many are missing."""
    if len(text) <= most:
        return text
    head = most // 2
    tail = most - head
    missing = len(text) - head - tail
    end = text[len(text) - tail :] if tail else ""
    return f"{text[:head]}\n[... {missing} characters left out ...]\n{end}"


def for_model(result: ToolResult, most: int = OUTPUT_MAX) -> str:
    """A tool call as text for a model; ``most`` characters of output at the most."""
    lines = [*_head(result), *_refusals(result)]
    ran = result.result
    if ran is None:
        return "\n".join(lines)
    output = shortened(harmless(ran.text), most)
    if not output:
        return "\n".join([*lines, "Output: none"])
    return "\n".join([*lines, "Output:", output])


def _head(result: ToolResult) -> list[str]:
    ran = result.result
    if ran is None:
        why = result.why or "it did not run"
        return [f"{'Denied' if result.status == 'denied' else 'Not run'}: {harmless(why)}"]
    lines = [f"Exit code: {ran.exit_status}"]
    if ran.signal is not None or ran.timed_out or ran.memory_exceeded:
        lines.append(f"The command {ran.outcome}")
    lines.append(f"Duration: {ran.duration:.1f} s")
    if ran.swept:
        lines.append(f"Ended with it, as nothing stays in the background: {ran.swept} processes")
    if result.error is not None:
        lines.append(
            f"It was to be run again with more, and was not: {harmless(str(result.error))}"
        )
    elif result.attempts > 1:
        lines.append("It was run twice: the second time it was allowed more, after approval")
    return lines


def refusal_lines(result: ToolResult) -> list[str]:
    """What was refused, a line each; what did not run says why."""
    lines = _head(result) if result.result is None else []
    return [*lines, *_refusals(result)]


def _refusals(result: ToolResult) -> list[str]:
    told = [denial_text(one) for one in result.denials[:_DENIALS_MAX]]
    if len(result.denials) > _DENIALS_MAX:
        told.append(f"... and {len(result.denials) - _DENIALS_MAX} more")
    if result.not_retried:
        told.append(f"Not retried with more: {harmless(result.not_retried)}")
    return told


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
    return harmless("; ".join(parts)).replace("\n", " ")
