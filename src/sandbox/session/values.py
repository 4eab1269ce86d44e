"""A tool call and what came of it: what an agent's program hands over and gets back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sandbox.command.verdict import Assessment
from sandbox.denial import Denial, Grant
from sandbox.errors import InvalidArgument, SandboxException
from sandbox.printed import printable
from sandbox.request import POLICY_LIMIT, PolicyLimit, encode_words
from sandbox.result import Result
from sandbox.session.decide import Decision
from sandbox.session.shown import OUTPUT_MAX, denial_text, harmless, shortened

__all__ = ["Delta", "OnDelta", "Status", "ToolCall", "ToolResult", "refusal_lines"]

Status = Literal["ran", "denied", "not-started", "lost"]


class Delta(NamedTuple):
    """A piece of output as it came, for a user interface; it may be half a character."""

    stream: Literal["stdout", "stderr"]
    data: bytes


_DENIALS_MAX = 8
_COMMAND_MAX = 256 << 10  # no system takes more than half of it in one word
_WORDS: dict[Status, str] = {
    "denied": "Denied",
    "not-started": "Not run",
    "lost": "Ended with its sandbox, and what it did before stays",
    "ran": "Run",
}

OnDelta = Callable[[Delta], object]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One command that an agent wants to have run.

    - ``command``: text for a shell, or the words of an argv.
    - ``cwd``: where (a path as text); default: the session's directory. It grants nothing.
    - ``env``, ``input``, ``timeout`` (seconds; None: no limit; default: the policy's): as for
      ``sandbox.run``.
    - ``unsandboxed``, ``grant``: asks for a run without a sandbox, or with more than the policy
      allows. Both are asked about, and what the policy denies stays denied.
    - ``justification``: the agent's words for that; shown as such, and nothing is decided by them.

    Raises ``InvalidArgument``: the caller's fault.
    """

    command: str | Sequence[str]
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    input: bytes | str | None = None
    timeout: float | PolicyLimit | None = POLICY_LIMIT
    unsandboxed: bool = False
    grant: Grant | None = None
    justification: str = ""

    def __post_init__(self) -> None:
        if sum(map(len, encode_words(self.command))) > _COMMAND_MAX:
            raise InvalidArgument("command", "...", f"is longer than {_COMMAND_MAX} bytes")
        if not isinstance(self.command, str):  # nobody changes what was approved
            object.__setattr__(self, "command", tuple(self.command))
        if self.cwd is not None:
            encode_words([self.cwd])
            object.__setattr__(self, "cwd", os.fspath(self.cwd))
        if self.unsandboxed and self.grant is not None:
            raise InvalidArgument("grant", self.grant, "goes with a sandbox, and there is none")
        if not isinstance(self.justification, str):
            raise InvalidArgument("justification", self.justification, "is no text")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of a tool call.

    - ``status``: ``ran``, whatever came of it; ``denied``; ``not-started``: allowed, and then it
      could not be (``error``); ``lost``: it ended with its sandbox, and what it did stays.
    - ``decision``, ``assessment``: why. ``why``: of what did not run, in a sentence.
    - ``result``: of the last attempt. ``attempts``: 2 when it was retried with more. ``denials``:
      of the last attempt. ``not_retried``: why it was not, where it could have been.
    - ``call``: its number in the session, from 1.
    """

    call: int
    status: Status
    decision: Decision
    assessment: Assessment
    result: Result | None = None
    error: SandboxException | None = None
    why: str = ""
    attempts: int = 0
    denials: tuple[Denial, ...] = ()
    not_retried: str = ""

    @property
    def ok(self) -> bool:
        """Whether it ran and ended well."""
        return self.result is not None and self.result.ok

    @property
    def exit_status(self) -> int:
        """As ``Result.exit_status``; 126 for what was denied, else the error's."""
        if self.result is not None:
            return self.result.exit_status
        return self.error.exit_status if self.error is not None else 126

    @property
    def text(self) -> str:
        """For a model: see ``for_model``."""
        return self.for_model()

    def for_model(self, output: int = OUTPUT_MAX) -> str:
        """Exit code, duration, what was refused and what would allow it, and the output.

        ``output``: characters of output at the most: its head and its tail are kept. Nothing in it
        does anything to a terminal.
        """
        return _for_model(self, output)


def _for_model(told: ToolResult, most: int) -> str:
    lines = [*_head(told), *_refusals(told)]
    ran = told.result
    if ran is None:
        return "\n".join(lines)
    missing = ran.stdout_truncated + ran.stderr_truncated
    if missing:  # where it says so in the output may be left out here
        lines.append(f"Longer than the limit of output, not kept: {missing} bytes of it")
    output = shortened(harmless(ran.text), most)
    if not output:
        return "\n".join([*lines, "Output: none"])
    return "\n".join([*lines, "Output:", output])


def _head(told: ToolResult) -> list[str]:
    ran = told.result
    if ran is None:
        return [f"{_WORDS[told.status]}: {printable(told.why or 'it did not run')}"]
    lines = [f"Exit code: {ran.exit_status}"]
    if ran.signal is not None or ran.timed_out or ran.memory_exceeded:
        lines.append(f"The command {ran.outcome}")
    lines.append(f"Duration: {ran.duration:.1f} s")
    if ran.swept:
        lines.append(f"Ended with it, as nothing stays in the background: {ran.swept} processes")
    if told.error is not None:
        lines.append(f"It was to be run again with more, and was not: {printable(str(told.error))}")
    elif told.attempts > 1:
        lines.append("It was run twice: the second time it was allowed more, after approval")
    return lines


def refusal_lines(told: ToolResult) -> list[str]:
    """What was refused, a line each; what did not run says why."""
    lines = _head(told) if told.result is None else []
    return [*lines, *_refusals(told)]


def _refusals(told: ToolResult) -> list[str]:
    lines = [denial_text(one) for one in told.denials[:_DENIALS_MAX]]
    if len(told.denials) > _DENIALS_MAX:
        lines.append(f"... and {len(told.denials) - _DENIALS_MAX} more")
    if told.not_retried:
        lines.append(f"Not retried with more: {printable(told.not_retried)}")
    return lines
