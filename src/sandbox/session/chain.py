"""Reading a log, and telling whether it is as it was written. Needs memory for one record.

What the chain proves: each line fixes all before it, so an edit, a deletion, a line put in or moved
breaks it at that place, and the head fixes the last line and their number. Who may write to the
directory can forge lines and head together; a digest of the head that was kept elsewhere shows it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple, Self

from sandbox.errors import Unavailable
from sandbox.session.events import GENESIS, Record, RecoveredRecord
from sandbox.session.lines import LINE_MAX, decode
from sandbox.session.segments import (
    HEAD,
    HEAD_SIZE,
    Head,
    default_directory,
    lock,
    open_reading,
    parse_head,
    segment_name,
    segments,
)

__all__ = ["Line", "Problem", "Reader", "Verified", "verify"]

_PROBLEMS_MAX = 100


class Line(NamedTuple):
    """A line of a log: in which segment, which of its lines, its bytes, and the record.

    ``record`` is None for what is no record of this version.
    """

    segment: int
    number: int
    raw: bytes
    record: Record | None


class State(NamedTuple):
    """The head, None where it is damaged, and the size of each segment."""

    head: Head | None
    sizes: dict[int, int]


class Reader:
    """Reads a log from its beginning, and what is written later when it is asked again.

    ``directory`` is by default the user's own log. Raises ``Unavailable`` where there is none.
    """

    def __init__(self, directory: str | None = None) -> None:
        self.directory = os.path.abspath(directory or default_directory())
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            self._directory = os.open(self.directory, flags)
        except OSError as error:
            raise Unavailable(f"the log {self.directory!r}", error.strerror or "") from error
        self._file = -1
        self._segment = self._number = self._offset = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        for number in (self._file, self._directory):
            if number >= 0:
                os.close(number)
        self._file = self._directory = -1

    def lines(self) -> Iterator[Line]:
        """All lines from where the last call ended. Half a line at the end is left for later."""
        while True:
            later = [number for number in segments(self._directory) if number > self._segment]
            if self._file >= 0:
                yield from self._rest(last=not later)  # after the look: it grows no more
            if not later:
                return
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
            self._segment, self._number, self._offset = later[0], 0, 0
            try:
                self._file = open_reading(self._directory, segment_name(later[0]))
            except OSError as error:
                cause = f"{segment_name(later[0])}: {error.strerror}"
                raise Unavailable(f"the log {self.directory!r}", cause) from error

    def _rest(self, *, last: bool) -> Iterator[Line]:
        with open(self._file, "rb", closefd=False, buffering=1 << 20) as file:
            file.seek(self._offset)
            while raw := file.readline(LINE_MAX + 1):
                if last and not raw.endswith(b"\n") and len(raw) <= LINE_MAX:
                    return
                self._number += 1
                self._offset += len(raw)
                record = decode(raw) if raw.endswith(b"\n") else None
                yield Line(self._segment, self._number, raw, record)

    def state(self) -> State:
        """What the head says and which files there are, at one time.

        Waits for whoever is writing, ten seconds at most. Raises ``OSError``.
        """
        opened = open_reading(self._directory, HEAD)
        try:
            lock(opened, fcntl.LOCK_SH)
            sizes = {
                number: os.stat(segment_name(number), dir_fd=self._directory).st_size
                for number in self.segments()
            }
            return State(parse_head(os.pread(opened, HEAD_SIZE + 1, 0)), sizes)
        finally:
            os.close(opened)

    def segments(self) -> list[int]:
        """The numbers of the segments that are there."""
        return segments(self._directory)


class Problem(NamedTuple):
    """What is wrong, in which segment and line; line 0 is the segment as a whole."""

    segment: int
    line: int
    what: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of looking at a log.

    ``records`` that are there, ``segments`` they are in, the digest of the last one as the ``head``
    has it, how many times a writer has ``recovered`` the log, and the first 100 ``problems`` of
    ``wrong`` in all.
    """

    records: int
    segments: int
    head: str
    recovered: int
    wrong: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether the log is as it was written."""
        return not self.wrong


def verify(directory: str | None = None, expect: str | None = None) -> Verified:
    """Looks at every byte of a log. It may be written to meanwhile: that is not looked at.

    ``expect``: the digest of a head that was kept elsewhere, now or at any time before: the log
    must have a record with it. Raises ``Unavailable`` where there is no log.
    """
    with Reader(directory) as reader:
        check = _Check(expect)
        try:
            state = reader.state()
        except OSError as error:
            if not reader.segments():
                raise Unavailable(f"the log {reader.directory!r}", "there is none") from error
            check.wrong(0, 0, f"the head cannot be read: {error.strerror or error}")
            state = State(None, {})
        else:
            check.files(state)
        for line in _counted(reader, state.head):
            check.line(line)
        check.end(state.head)
        return check.result()


def _counted(reader: Reader, head: Head | None) -> Iterator[Line]:
    """The lines that the head counts; all of them where there is none."""
    segment = size = 0
    for line in reader.lines():
        size = size if line.segment == segment else 0
        segment = line.segment
        if head is not None and (segment, size) >= (head.segment, head.size):
            return
        yield line
        size += len(line.raw)


class _Check:
    """What was found so far."""

    def __init__(self, expect: str | None) -> None:
        self._expect = expect.lower() if expect else None
        self._segments: set[int] = set()
        self._records, self._last = 0, GENESIS
        self._number = 1  # of the record that is to come
        self._recovered = self._wrong = 0
        self._problems: list[Problem] = []

    def wrong(self, segment: int, line: int, what: str) -> None:
        """Keeps a problem, or its number where there are many."""
        self._wrong += 1
        if len(self._problems) < _PROBLEMS_MAX:
            self._problems.append(Problem(segment, line, what))

    def files(self, state: State) -> None:
        """Whether all segments are there, and nothing behind what the head counts."""
        head, sizes = state
        if head is None:
            self.wrong(0, 0, "the head is damaged")
            return
        for number in range(1, head.segment + 1):
            if number not in sizes:
                self.wrong(number, 0, "this segment is missing")
                break  # with the next one there may be a million
        size = sizes.get(head.segment, 0)
        if size < head.size:
            what = f"{size} bytes are there, the head counts {head.size}: cut off at the end"
            self.wrong(head.segment, 0, what)
        more = sum(size for number, size in sizes.items() if number > head.segment)
        more += max(0, size - head.size)
        if more:
            what = "that the head does not count: a writer was killed, or somebody else's"
            self.wrong(head.segment, 0, f"{more} bytes at the end {what}")

    def line(self, line: Line) -> None:
        """The next line: a record, with the right number, behind the right line."""
        self._records += 1
        self._segments.add(line.segment)
        record = line.record
        if record is None:
            self.wrong(line.segment, line.number, "this is no record")
            self._number += 1
        else:
            cause = self._misplaced(record)
            if cause:
                self.wrong(line.segment, line.number, cause)
            self._number = record.seq + 1
            self._recovered += isinstance(record, RecoveredRecord)
        self._last = sha256(line.raw).hexdigest()
        if self._last == self._expect:
            self._expect = None

    def _misplaced(self, record: Record) -> str:
        number, wanted = record.seq, self._number
        if number > wanted:
            return f"records {wanted} to {number - 1} are missing before this one"
        if number < wanted:
            return f"record {number} is not in its place, {wanted} should be here"
        if record.prev != self._last:
            return f"record {number} does not follow from the line before: one was changed"
        return ""

    def end(self, head: Head | None) -> None:
        """Whether the head agrees, and the digest that was expected was met."""
        if head is not None:
            if head.records != self._number - 1:
                what = f"the head counts {head.records} records, the last one is {self._number - 1}"
                self.wrong(head.segment, 0, f"{what}: some were taken away")
            elif head.last.decode() != self._last:
                self.wrong(head.segment, 0, "the last record or the head was changed")
        if self._expect not in (None, GENESIS):
            self.wrong(0, 0, f"no record has the digest {self._expect}: this is another log")

    def result(self) -> Verified:
        """All of it."""
        return Verified(
            records=self._records,
            segments=len(self._segments),
            head=self._last,
            recovered=self._recovered,
            wrong=self._wrong,
            problems=tuple(self._problems),
        )
