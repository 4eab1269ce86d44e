"""Commands whose output is handed on as it comes, and kept as ``Sandbox.run`` keeps it.

Beyond the policy's limit of output the head and the tail of each stream are kept; what is handed on
is all of it. Whoever takes the pieces is called between two reads, so who is slow slows the command
down, and nothing piles up.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import fields
from typing import IO, Any

from sandbox.communicate import Exchange
from sandbox.live import Sandbox
from sandbox.process import Process
from sandbox.request import Args, PopenOptions, RunOptions, input_bytes
from sandbox.result import Result
from sandbox.session.values import Delta, OnDelta
from sandbox.streams import DEVNULL, PIPE

__all__ = ["Kept", "popen_options", "streamed", "with_output"]

_CHUNK = 65536


class Kept:
    """The head and the tail of a stream, at most ``most`` bytes (None: all)."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._in_tail = 0
        self.total = 0

    def add(self, data: bytes) -> None:
        """One more piece."""
        self.total += len(data)
        if self._most is None:
            self._head += data
            return
        room = self._most // 2 - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._in_tail += len(data)
        most = self._most - self._most // 2
        while self._tail and self._in_tail - len(self._tail[0]) >= most:
            self._in_tail -= len(self._tail.popleft())

    def result(self) -> tuple[bytes, int, int]:
        """What is kept, how many bytes are missing, and where they would stand."""
        head, tail = bytes(self._head), b"".join(self._tail)
        if self._most is not None:
            most = self._most - self._most // 2
            tail = tail[max(0, len(tail) - most) :]
        missing = self.total - len(head) - len(tail)
        return head + tail, missing, len(head)


def popen_options(how: RunOptions) -> PopenOptions:
    """The options of ``Sandbox.popen`` for a command with pipes."""
    options: PopenOptions = {"stdout": PIPE, "stderr": PIPE}
    options["stdin"] = PIPE if how.get("input") is not None else DEVNULL
    for name in ("cwd", "env", "timeout"):
        if name in how:
            options[name] = how[name]
    return options


def with_output(result: Result, out: Kept, err: Kept) -> Result:
    """A result with output that was read here."""
    stdout, out_missing, out_cut = out.result()
    stderr, err_missing, err_cut = err.result()
    values = {item.name: getattr(result, item.name) for item in fields(result)}
    read = {
        "stdout": stdout,
        "stderr": stderr,
        "stdout_truncated": out_missing,
        "stderr_truncated": err_missing,
        "stdout_cut": out_cut,
        "stderr_cut": err_cut,
    }
    return Result(**{**values, **read})


def streamed(box: Sandbox, args: Args, how: RunOptions, on_delta: OnDelta) -> Result:
    """As ``Sandbox.run``, with each piece of output handed to ``on_delta``.

    Raises as ``Sandbox.run``, and what ``on_delta`` raises: then the command was ended.
    """
    out, err = Kept(box.policy.limits.output), Kept(box.policy.limits.output)
    with box.popen(args, **popen_options(how)) as process:
        _Pump(process, input_bytes(how.get("input")), out, err, on_delta).go_on(None)
        process.heard(err.result()[0], out.result()[0])
        result = process.wait()
    return with_output(result, out, err)


class _Pump(Exchange):
    """Moves bytes as they come, until both outputs are at their end: then the tree is dead."""

    def __init__(
        self,
        process: Process[bytes],
        given: bytes | None,
        out: Kept,
        err: Kept,
        on_delta: OnDelta,
    ) -> None:
        super().__init__(process.stdin, process.stdout, process.stderr, given)
        self._kept = {process.stdout: out, process.stderr: err}
        self._out = process.stdout
        self._on_delta = on_delta

    def _take(self, file: IO[Any]) -> None:
        data = os.read(file.fileno(), _CHUNK)
        if not data:
            self._outputs.remove(file)
            file.close()
            return
        self._kept[file].add(data)
        self._on_delta(Delta("stdout" if file is self._out else "stderr", data))
