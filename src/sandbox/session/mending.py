"""What a writer leaves that was killed, or that a power failure ended: head and segment disagree.

To be called with the head locked: then nobody is in the middle of a write.
"""

from __future__ import annotations

import os
from hashlib import sha256

from sandbox.session.lines import LINE_MAX, decode
from sandbox.session.segments import Head, segment_name

__all__ = ["Wrong", "count_behind", "go_on_after_gap"]

_BEHIND_MAX = 2 * LINE_MAX


class Wrong(Exception):
    """The log is not as its head says, and no writer leaves it so; the text says what."""


def _follows(line: bytes, number: int, last: bytes) -> bool:
    """Whether a line is the record with this number, behind the line with that digest."""
    record = decode(line)
    return record is not None and (record.seq, record.prev) == (number, last.decode())


def count_behind(segment: int, head: Head, size: int) -> tuple[Head, int, bytes]:
    """Counts the whole records behind the head and takes away the half one behind those.

    ``size`` is that of the open ``segment``. Returns the head as it should be, how many records it
    did not count, and what was taken away. A whole line that does not continue the chain is no
    writer's: ``Wrong``, and nothing is changed.
    """
    if size - head.size > _BEHIND_MAX:
        raise Wrong("more stands behind its head than a writer leaves there")
    whole, newline, half = os.pread(segment, size - head.size, head.size).rpartition(b"\n")
    count, last = head.records, head.last
    for line in (whole + newline).split(b"\n")[:-1]:
        count += 1
        if not _follows(line + b"\n", count, last):
            raise Wrong(f"somebody else's line stands in {segment_name(head.segment)}")
        last = sha256(line + b"\n").hexdigest().encode()
    if half:
        os.ftruncate(segment, size - len(half))
    return Head(count, head.segment, size - len(half), last), count - head.records, half


def go_on_after_gap(segment: int, head: Head, size: int) -> Head:
    """Where the head came to the disk and records that it counts did not.

    The next record gets the number and the digest that the head gives, so the gap stays visible in
    the chain; half a record at the end is left as a line by itself.
    """
    if size and os.pread(segment, 1, size - 1) != b"\n":
        size += os.write(segment, b"\n")
    return head._replace(size=size)
