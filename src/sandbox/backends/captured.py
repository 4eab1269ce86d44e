"""A command's streams in the caller: input is fed, outputs are taken, head and tail kept."""

from __future__ import annotations

import os
import selectors
import time
from collections import deque
from contextlib import suppress
from typing import Any

__all__ = ["Captured", "Kept"]

_CHUNK = 1 << 16
_TAIL_MOST = 1 << 20  # as the compiled core keeps it
_SILENT = 1.0  # seconds without output after which a command that is over is not waited for
_DRAIN_MOST = 2.0


class Kept:
    """One output under a cap of bytes: all of it, or its beginning and its end."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._tail_cap = min(cap // 2, _TAIL_MOST)
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.total = 0

    def add(self, data: bytes) -> None:
        """Takes what was read."""
        self.total += len(data)
        self._head += data[: max(0, self._cap - len(self._head))]
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= self._tail_cap and len(self._tail) > 1:
            self._tail_size -= len(self._tail.popleft())

    def result(self) -> tuple[bytes, int]:
        """What is kept, and how much of that is the beginning."""
        if self.total <= self._cap:
            return bytes(self._head), len(self._head)
        size = self._cap - self._tail_cap
        tail = b"".join(self._tail)[-self._tail_cap :] if self._tail_cap else b""
        return bytes(self._head[:size]) + tail, size


class Captured:
    """The caller's ends of the pipes of one command; closed when it is over, or by ``close``.

    ``child`` are the three fds for the command. ``given``: what is written to its stdin.
    """

    def __init__(self, streams: tuple[int, int, int], given: bytes | None, cap: int) -> None:
        self._made: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._left = memoryview(given or b"")
        self.outputs = (Kept(cap), Kept(cap))
        self.drained_early = False
        try:
            stdin = streams[0] if given is None else self._input()
            stdin = stdin if stdin >= 0 else self._own(os.open(os.devnull, os.O_RDONLY))
            stdout = self._output(streams[1], self.outputs[0])
            self.child = (stdin, stdout, self._output(streams[2], self.outputs[1]))
        except BaseException:
            self.close()
            raise

    def _own(self, fd: int) -> int:
        self._made.append(fd)
        return fd

    def _input(self) -> int:
        theirs, ours = os.pipe()
        os.set_blocking(ours, False)
        self._selector.register(ours, selectors.EVENT_WRITE, self._feed)
        return self._own(theirs)

    def _output(self, fd: int, kept: Kept) -> int:
        if fd >= 0:
            return fd
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        self._selector.register(ours, selectors.EVENT_READ, kept)
        return self._own(theirs)

    def started(self) -> None:
        """Closes the command's ends, which it has by now."""
        while self._made:
            os.close(self._made.pop())

    def pump(self, sock: Any, ended: bool) -> None:
        """Moves bytes until something comes from ``sock``.

        ``ended``: the command is over, so only until all outputs are at their end, or silent.
        """
        began = heard = time.monotonic()
        self._selector.register(sock, selectors.EVENT_READ, None)
        try:
            while not ended or self._reading():
                now = time.monotonic()
                if ended and (now - heard >= _SILENT or now - began >= _DRAIN_MOST):
                    self.drained_early = True
                    return
                for key, _ in self._selector.select(0.1 if ended else None):
                    if key.data is None:
                        return
                    if isinstance(key.data, Kept):
                        self._take(key.fd, key.data)
                        heard = time.monotonic()
                    else:
                        self._feed(key.fd)
        finally:
            self._selector.unregister(sock)

    def _reading(self) -> bool:
        return any(isinstance(key.data, Kept) for key in self._selector.get_map().values())

    def _take(self, fd: int, kept: Kept) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        kept.add(data)
        if not data:
            self._drop(fd)

    def _feed(self, fd: int) -> None:
        try:
            self._left = self._left[os.write(fd, self._left[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # nobody reads it any more
            self._left = self._left[:0]
        if not self._left:
            self._drop(fd)

    def _drop(self, fd: int) -> None:
        self._selector.unregister(fd)
        os.close(fd)

    def close(self) -> None:
        """Closes all that is still open. Takes first what has come. Idempotent."""
        self.started()
        if self._selector.get_map() is None:
            return
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Kept):
                with suppress(OSError):
                    while data := os.read(key.fd, _CHUNK):
                        key.data.add(data)
            self._drop(key.fd)
        self._selector.close()
