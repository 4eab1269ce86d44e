"""Asks at the terminal.

What a command's author wrote, an agent, stands behind a bar in every line, cut at the terminal's
width: so none of it can look like a line of ours, or push the question out of sight. What was typed
before the question is thrown away, and only a key that is offered, with Enter, is an answer.
"""

from __future__ import annotations

import os
import pwd
import shutil
import threading
from collections.abc import Iterator
from typing import IO

from sandbox.session.approval import Answer, ApprovalRequest, Choice

__all__ = ["TerminalApprover", "user"]

_TRIES = 3
_LINES_MAX = 100  # of a question: what a person has not read, nobody approved
_REASONS_MAX = 8
_PART_MAX = 160  # characters of a part, which stands in the command, too
_BAR = "  | "
_QUESTIONS = {"command": "may this command run?", "edit": "may this edit be made?"}
_KEYS = {
    Choice.ONCE: ("y", "yes, this once"),
    Choice.SESSION: ("s", "yes, and exactly this until the session ends"),
    Choice.PREFIX: ("p", "yes, and all that begins with it, until the session ends: "),
    Choice.ALWAYS: ("a", "yes, and exactly this in later sessions, too"),
    Choice.WEAKER: ("w", "yes, and until the session ends whatever it asks about for this reason"),
    Choice.DENY: ("n", "no"),
}


class TerminalApprover:
    """Asks the person at the terminal; one key and Enter answer.

    ``input``, ``output``: text streams; by default the terminal of this process, ``/dev/tty``.
    The end of the input, Ctrl-C, three answers that are none, and what is too long to be shown
    whole are denials.
    """

    def __init__(self, input: IO[str] | None = None, output: IO[str] | None = None) -> None:
        self._input = input
        self._output = output
        self._turn = threading.Lock()

    def ask(self, request: ApprovalRequest) -> Answer:
        """The answer. Raises ``OSError`` where there is no terminal.

        Of calls that run at the same time one is asked about after the other: or what is typed for
        one would answer the other.
        """
        with self._turn:
            return self._ask(request)

    def _ask(self, request: ApprovalRequest) -> Answer:
        if self._input is not None and self._output is not None:
            return _asked(request, self._input, self._output)
        # No buffer: what is typed too early must stay where it can be thrown away.
        with open("/dev/tty", "r+b", buffering=0) as terminal:
            _settle(terminal.fileno())
            with (
                open(terminal.fileno(), closefd=False, errors="replace") as keys,
                open(terminal.fileno(), "w", closefd=False, errors="replace") as screen,
            ):
                return _asked(request, keys, screen)


def _settle(terminal: int) -> None:
    """Throws away what was typed. Raises ``OSError`` in the background, where reading stops us."""
    import termios

    if os.tcgetpgrp(terminal) != os.getpgrp():
        raise OSError("this process is in the background of its terminal")
    termios.tcflush(terminal, termios.TCIFLUSH)


def _asked(request: ApprovalRequest, keys: IO[str], screen: IO[str]) -> Answer:
    who = user()
    width = max(shutil.get_terminal_size().columns, 20)
    lines = list(_question(request, width))
    if len(lines) > _LINES_MAX:
        why = f"the question has {len(lines)} lines at this width: too long to be read and approved"
        screen.write(f"\nsandbox: denied: {why}\n")
        screen.flush()
        return Answer(Choice.DENY, "nobody", why)
    screen.write("\n".join(["", *lines, ""]))
    choices = {_KEYS[one][0]: one for one in request.offers}
    prompt = f"sandbox: {'/'.join(choices)}? "
    try:
        for _ in range(_TRIES):
            screen.write(prompt)
            screen.flush()
            line = keys.readline()
            if not line:
                return Answer(Choice.DENY, who, "the input ended")
            choice = choices.get(line.strip().lower())
            if choice is not None:
                return Answer(choice, who)
    except KeyboardInterrupt:
        return Answer(Choice.DENY, who, "interrupted")
    return Answer(Choice.DENY, who, f"none of {_TRIES} answers was one of those offered")


def _question(request: ApprovalRequest, width: int) -> Iterator[str]:
    """All that a person has to know, in lines."""
    yield f"sandbox: {_QUESTIONS[request.subject]}"
    yield from _folded(request.command, width)
    for what, text in request.details:
        yield f"sandbox: {what}"
        yield from _folded(text, width)
    yield "sandbox: in"
    yield from _folded(request.cwd, width)
    yield "sandbox: it is asked about because"
    for ground in request.grounds:
        yield from _folded(str(ground), width)
    yield f"sandbox: the {request.subject} is {request.verdict}"
    for one in request.reasons[:_REASONS_MAX]:  # the strictest come first
        part = one.part if len(one.part) <= _PART_MAX else f"{one.part[:_PART_MAX]}..."
        yield from _folded(f"{one.why}: {part}", width)
    yield "sandbox: allowed would be"
    for line in request.allows or (f"this {request.subject}, confined by the policy",):
        yield from _folded(line, width)
    if request.evidence:
        yield "sandbox: of this is known"
        yield from _folded(request.evidence, width)
    if request.justification:
        yield "sandbox: the agent says"
        yield from _folded(request.justification, width)
    for choice in request.offers:
        key, meaning = _KEYS[choice]
        yield f"  {key}  {meaning}"
        if choice is Choice.PREFIX:
            yield from _folded(" ".join(request.prefix), width)


def _folded(text: str, width: int) -> Iterator[str]:
    """Lines of a text, each behind the bar and no wider than the terminal."""
    room = width - len(_BAR) - 1
    for line in text.split("\n"):
        start = used = 0
        for at, character in enumerate(line):
            # Terminals disagree on how wide what is not ASCII is: never wider than this.
            size = 1 if character.isascii() else 2
            if used + size > room:
                yield _BAR + line[start:at]
                start, used = at, 0
            used += size
        yield _BAR + line[start:]


def user() -> str:
    """Who sits at the terminal, as far as the system knows; no variable is asked."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
