"""The standard streams of a command that goes on, at both ends.

The numbers of ``PIPE``, ``STDOUT`` and ``DEVNULL`` are those of ``subprocess``, so that either
module's serve.
"""

from __future__ import annotations

import errno
import io
import os
import termios
from types import TracebackType
from typing import IO, Any, Final

from sandbox.errors import InvalidArgument, Unavailable
from sandbox.request import PopenOptions, check_given

__all__ = ["DEVNULL", "PIPE", "STDOUT", "Streams", "Terminal", "window"]

PIPE: Final = -1
STDOUT: Final = -2
DEVNULL: Final = -3

_NAMES = ("stdin", "stdout", "stderr")
_WINDOW = (24, 80)


class Terminal(io.FileIO):
    """The side of a pseudo terminal where a person would sit: what is written are key presses.

    Reading is at its end (``b""``) when nobody has the other side open any more.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        """What came to the screen and was not read yet, at most ``size`` bytes."""
        if size is None or size < 0:
            return self.readall()
        try:
            return super().read(size) or b""
        except OSError as error:
            if error.errno != errno.EIO:  # that is how a terminal ends
                raise
            return b""

    def readinto(self, buffer: Any, /) -> int:
        """As ``read``, into a buffer; the number of bytes."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        """All until the end."""
        return b"".join(iter(lambda: self.read(65536), b""))


def window(rows: object, cols: object) -> tuple[int, int]:
    """A size for a terminal. Raises ``InvalidArgument``."""
    for name, value in (("rows", rows), ("cols", cols)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**16:
            raise InvalidArgument(name, value, "is no number from 1 to 65535")
    return (rows, cols)  # type: ignore[return-value]


class Streams:
    """Both ends of a command's streams, as ``Sandbox.popen`` was asked for them.

    ``command`` are the three fds to hand over, and the rest is the caller's: files, or None where
    there is none. As a context manager it closes what was made for the command, which by then has
    it; and all of it, if that failed. Raises ``InvalidArgument``, ``Unavailable``.
    """

    def __init__(self, how: PopenOptions, text: bool) -> None:
        wanted = {name: _wanted(name, how.get(name)) for name in _NAMES}
        size = _size(how, text)
        self._text = text
        self._made: list[int] = []  # the command's ends
        self.stdin: IO[Any] | None = None
        self.stdout: IO[Any] | None = None
        self.stderr: IO[Any] | None = None
        self.pty: Terminal | None = None
        try:
            if size is not None:
                self.command = self._terminal(size)
            else:
                stdin, stdout = self._stdin(wanted["stdin"]), self._output("stdout", wanted)
                merged = wanted["stderr"] == STDOUT
                self.command = (stdin, stdout, stdout if merged else self._output("stderr", wanted))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Streams:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close_made()
        if error is not None:
            self.close()

    def close(self) -> None:
        """Closes all that was made here. What could not be written any more is lost."""
        self._close_made()
        for file in (self.stdin, self.stdout, self.stderr, self.pty):
            try:
                if file is not None:
                    file.close()
            except OSError:  # nobody reads what is still in its buffer
                continue

    def _close_made(self) -> None:
        while self._made:
            os.close(self._made.pop())

    def _stdin(self, wanted: int) -> int:
        if wanted != PIPE:
            return self._given(wanted)
        theirs, ours = os.pipe()
        self._made.append(theirs)
        self.stdin = os.fdopen(ours, "wb")
        if self._text:
            # A line that was written is on its way: a dialogue must not wait for a buffer to fill.
            self.stdin = io.TextIOWrapper(
                self.stdin, encoding="utf-8", newline="\n", line_buffering=True
            )
        return theirs

    def _output(self, name: str, wanted: dict[str, int]) -> int:
        if wanted[name] != PIPE:
            return self._given(wanted[name])
        ours, theirs = os.pipe()
        self._made.append(theirs)
        file: IO[Any] = os.fdopen(ours, "rb")
        if self._text:
            file = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="\n")
        setattr(self, name, file)
        return theirs

    def _given(self, wanted: int) -> int:
        if wanted != DEVNULL:
            return wanted
        self._made.append(os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC))
        return self._made[-1]

    def _terminal(self, size: tuple[int, int]) -> tuple[int, int, int]:
        try:
            ours, theirs = os.openpty()
        except OSError as error:
            mend = "mount a devpts on /dev/pts"
            raise Unavailable("a pseudo terminal", error.strerror or "", mend) from None
        self._made.append(theirs)
        self.pty = Terminal(ours, "r+")
        termios.tcsetwinsize(theirs, size)
        return theirs, theirs, theirs


def _size(how: PopenOptions, text: bool) -> tuple[int, int] | None:
    """The size of the terminal that was asked for; None without one."""
    asked = how.get("pty")
    if asked is None or asked is False:
        return None
    if text:
        raise InvalidArgument("text", text, "goes with no pty", "decode what it gives")
    for name in _NAMES:
        if how.get(name) is not None:
            raise InvalidArgument(name, how.get(name), "goes with no pty, which is all three")
    if asked is True:
        return _WINDOW
    if not isinstance(asked, tuple) or len(asked) != 2:
        raise InvalidArgument("pty", asked, "is no size", "True, or (rows, columns)")
    return window(*asked)


def _wanted(name: str, value: Any) -> int:
    """What a stream is to be: a fd, or one of the three constants."""
    mend = "a fd, a file, PIPE, DEVNULL, or STDOUT for stderr"
    if value is None:
        return DEVNULL
    if not isinstance(value, int):
        try:
            value = value.fileno()
        except (AttributeError, OSError, ValueError) as error:
            raise InvalidArgument(name, value, f"has no fd ({error})", mend) from None
    named = (PIPE, DEVNULL, STDOUT) if name == "stderr" else (PIPE, DEVNULL)
    if isinstance(value, bool) or not isinstance(value, int) or (value < 0 and value not in named):
        raise InvalidArgument(name, value, "is no stream", mend)
    if value >= 0:
        check_given(name, value)
    return value
