"""What came of a command.

A result is made on every run, so it only holds what was measured; everything that takes work
(text, sums, words) is worked out when it is asked for.
"""

from __future__ import annotations

import signal as _signal
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Generic, Self, TypeVar

from sandbox.denial import Denial
from sandbox.errors import CommandFailed

__all__ = ["BaseResult", "Enforcement", "Result", "TextResult", "Usage", "Weaker"]

Output = TypeVar("Output", bytes, str)

_TIMED_OUT = 124  # as timeout(1)
_SIGNALLED = 128  # as shells: 128 and the number of the signal


@dataclass(frozen=True, slots=True)
class Weaker:
    """A part of the policy that was not enforced in full: which, why, and what would mend it.

    ``everywhere``: it is so on every host, so that no warning tells of it.
    """

    part: str
    cause: str
    mend: str = ""
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class Enforcement:
    """What the host enforced: the isolation, and the parts of the policy that are weaker."""

    isolation: str
    weaker: tuple[Weaker, ...] = ()

    @property
    def full(self) -> bool:
        """Whether every part of the policy was enforced."""
        return not self.weaker


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources of the command and of what it waited for: seconds, and bytes at the largest."""

    user: float = 0.0
    system: float = 0.0
    max_rss: int = 0

    @property
    def cpu(self) -> float:
        """Seconds of processor time."""
        return self.user + self.system


@dataclass(frozen=True, slots=True)
class BaseResult(Generic[Output]):
    """One command that ran; ``Result`` has its output as bytes, ``TextResult`` as text.

    - ``args``: what was run. ``returncode``: as ``subprocess`` has it, negative for a signal.
    - ``signal``: the signal that ended it, or None; an exit status of 137 is not a signal.
    - ``timed_out``: whether the wall time ran out, whatever the command answered to that.
    - ``memory_exceeded``: whether it was ended because it had more than ``Limits.memory``.
    - ``stdout``, ``stderr``: bytes as they came. Above the limit they are the beginning and the
      end; ``stdout_truncated`` and ``stderr_truncated`` say how many bytes are missing between,
      ``stdout_cut`` and ``stderr_cut`` at which place.
    - ``swept``: how many processes outlived the command and were ended with it: what it leaves in
      the background does not live on.
    - ``duration``: seconds of wall time. ``usage``, ``enforcement``, ``denials``: see there.
    """

    args: str | Sequence[str]
    returncode: int
    signal: int | None
    timed_out: bool
    stdout: Output
    stderr: Output
    stdout_truncated: int
    stderr_truncated: int
    duration: float
    usage: Usage
    enforcement: Enforcement = field(repr=False)
    denials: tuple[Denial, ...] = ()
    stdout_cut: int = field(default=0, repr=False)
    stderr_cut: int = field(default=0, repr=False)
    swept: int = 0
    memory_exceeded: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with status 0."""
        return self.returncode == 0 and not self.timed_out and not self.memory_exceeded

    @property
    def exit_status(self) -> int:
        """As shells and ``timeout`` do it: 124 time-out, 128+n signal, else the command's own.

        137 for what had too much memory, as if the kernel had ended it for that.
        """
        if self.timed_out:
            return _TIMED_OUT
        if self.memory_exceeded:
            return _SIGNALLED + _signal.SIGKILL
        return self.returncode if self.returncode >= 0 else _SIGNALLED - self.returncode

    @property
    def outcome(self) -> str:
        """How it ended, in words."""
        if self.timed_out:
            return f"was ended after {self.duration:.1f} s: its time was up"
        if self.memory_exceeded:
            return f"was ended after {self.duration:.1f} s: it had more memory than its limit"
        if self.signal is not None:
            return f"was ended by signal {self.signal} ({_signal_name(self.signal)})"
        return f"exited with status {self.returncode}"

    @property
    def out(self) -> str:
        """Standard output as text; what is not UTF-8 is replaced, what is missing is marked."""
        return _text(self.stdout, self.stdout_truncated, self.stdout_cut)

    @property
    def err(self) -> str:
        """Standard error as text, as ``out``."""
        return _text(self.stderr, self.stderr_truncated, self.stderr_cut)

    @property
    def text(self) -> str:
        """Both as text, standard output first."""
        return self.out + self.err

    def check(self) -> Self:
        """The result itself, or ``CommandFailed`` when the command did not end well."""
        if not self.ok:
            raise CommandFailed(self)
        return self


class Result(BaseResult[bytes]):
    """One command that ran, with its output as bytes, exactly as they came. See ``BaseResult``."""

    __slots__ = ()

    def as_text(self) -> TextResult:
        """The same with its output as text."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return TextResult(**{**values, "stdout": self.out, "stderr": self.err})


class TextResult(BaseResult[str]):
    """One command that ran, with its output as text. See ``BaseResult``."""

    __slots__ = ()


def _signal_name(number: int) -> str:
    try:
        return _signal.Signals(number).name
    except ValueError:
        return "real-time"


def _text(data: bytes | str, missing: int, cut: int) -> str:
    """Text of output, with a mark where bytes are missing and no half character beside it."""
    if isinstance(data, str):
        return data
    if not missing:
        return data.decode("utf-8", "replace")
    head, tail = data[:cut], data[cut:]
    head = head[: len(head) - _half_at_end(head)]
    tail = tail[_half_at_start(tail) :]
    mark = f"\n[... {missing} bytes of output not kept ...]\n"
    return head.decode("utf-8", "replace") + mark + tail.decode("utf-8", "replace")


def _half_at_end(data: bytes) -> int:
    """How many bytes at the end begin a character that is not complete."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:  # the first byte of a character, of 2, 3 or 4
            wanted = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < wanted else 0
        if byte < 0x80:
            return 0
    return 0


def _half_at_start(data: bytes) -> int:
    """How many bytes at the start are the rest of a character: three at most."""
    count = 0
    while count < min(3, len(data)) and 0x80 <= data[count] < 0xC0:
        count += 1
    return count
