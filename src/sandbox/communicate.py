"""Writing all of a command's input and reading all of its output, at the same time."""

from __future__ import annotations

import io
import os
import select
import time
from contextlib import suppress
from typing import IO, Any

__all__ = ["Exchange"]

_TURN = 1 << 16


class Exchange:
    """The files of one command (None: no pipe), and how far it has come with them.

    It may be left and gone on with. Each file is closed at its end.
    """

    def __init__(
        self, stdin: IO[Any] | None, stdout: IO[Any] | None, stderr: IO[Any] | None, given: Any
    ) -> None:
        self._stdin = stdin
        self._outputs = [file for file in (stdout, stderr) if file is not None]
        self._files = (stdout, stderr)
        self._read: dict[IO[Any], list[bytes]] = {file: [] for file in self._outputs}
        self._left = memoryview(given.encode() if isinstance(given, str) else given or b"")
        if stdin is not None:
            with suppress(BrokenPipeError):
                stdin.flush()
            if not self._left:
                self._close_stdin()

    def go_on(self, deadline: float | None) -> bool:
        """Moves bytes until all files are at their end; whether they are."""
        while waiting := self._waiting():
            poll = select.poll()
            for fd, event in waiting.items():
                poll.register(fd, event)
            left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            ready = [fd for fd, _ in poll.poll(left)]
            if not ready and left is not None:
                return False
            for file in [file for file in self._outputs if file.fileno() in ready]:
                self._take(file)
            if self._stdin is not None and self._stdin.fileno() in ready:
                self._feed(self._stdin.fileno())
        return True

    def outputs(self) -> tuple[Any, Any]:
        """What was read of each."""
        stdout, stderr = [None if file is None else self._all(file) for file in self._files]
        return stdout, stderr

    def _waiting(self) -> dict[int, int]:
        found = {file.fileno(): select.POLLIN for file in self._outputs}
        if self._stdin is not None:
            found[self._stdin.fileno()] = select.POLLOUT
        return found

    def _take(self, file: IO[Any]) -> None:
        # Below the text, or what was read ahead would be missing.
        below: Any = file.buffer if isinstance(file, io.TextIOWrapper) else file
        data = below.read1(_TURN)
        self._read[file].append(data)
        if not data:
            self._outputs.remove(file)
            file.close()

    def _feed(self, fd: int) -> None:
        try:
            # A pipe that is ready takes so much without blocking.
            self._left = self._left[os.write(fd, self._left[: select.PIPE_BUF]) :]
        except BrokenPipeError:
            self._left = self._left[:0]
        if not self._left:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin is not None:
            with suppress(BrokenPipeError):
                self._stdin.close()
            self._stdin = None

    def _all(self, file: IO[Any]) -> bytes | str:
        data = b"".join(self._read[file])
        return data.decode("utf-8", "replace") if isinstance(file, io.TextIOWrapper) else data
