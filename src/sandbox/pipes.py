"""The caller's ends of a command's streams, awaited: see ``aio``."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from sandbox.errors import InvalidArgument
from sandbox.loops import current

__all__ = ["Reader", "Writer"]

_CHUNK = 64 * 1024
_LINE_MAX = 1 << 20  # bytes of a line that are kept before its end is seen


class Reader:
    """The end of a command's output that is read: bytes as they come. By one task at a time."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        os.set_blocking(fd, False)
        self._rest = b""

    def fileno(self) -> int:
        """For an event loop to watch; -1 when it is closed."""
        return self._fd

    async def read(self, size: int = _CHUNK) -> bytes:
        """What has come, at most ``size`` bytes; b"" at the end."""
        if self._rest:
            found, self._rest = self._rest[:size], self._rest[size:]
            return found
        while self._fd >= 0:
            try:
                return os.read(self._fd, size)
            except BlockingIOError:
                await current().readable(self._fd)
        return b""

    async def read_all(self) -> bytes:
        """All until the end."""
        return b"".join([chunk async for chunk in self])

    async def read_line(self) -> bytes:
        """One line with its end, or what there is at the end of the output; b"" after that.

        One longer than a MiB comes in pieces.
        """
        found = self._rest
        while b"\n" not in found and len(found) < _LINE_MAX:
            self._rest = b""
            try:
                chunk = await self.read()
            except BaseException:
                self._rest = found  # it is there for who asks again
                raise
            if not chunk:
                return found
            found += chunk
        end = found.find(b"\n", 0, _LINE_MAX)
        cut = end + 1 if end >= 0 else _LINE_MAX
        self._rest = found[cut:]
        return found[:cut]

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines, as they come."""
        while line := await self.read_line():
            yield line

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The bytes, as they come."""
        while chunk := await self.read():
            yield chunk

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Reads no more. Idempotent; not while a task reads."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Writer:
    """The end of a command's input that is written to. By one task at a time."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        os.set_blocking(fd, False)

    async def write(self, data: bytes) -> None:
        """Writes all of it. ``BrokenPipeError`` when nobody reads it any more."""
        view = memoryview(data)
        while view:
            if self._fd < 0:
                raise InvalidArgument("stdin", "...", "was closed")
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:
                await current().writable(self._fd)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """The command sees the end of its input. Idempotent; not while a task writes."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
