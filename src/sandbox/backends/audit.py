"""What Landlock refused, as the kernel's audit tells it.

From ABI 7 on the kernel tells its audit which access a domain was refused, of what, and how the
domain began: in which process. In ``landlock`` isolation that is a lane, where one command at a
time runs. Only root may listen, on the host, and the kernel is silent unless audit is on, which is
for the administrator to decide: nothing is switched on here.

The kernel sends these messages some time after the access. Whoever asks for those of a command that
failed therefore waits a little; and what was recorded before a command began is not told as its.
Source: Linux, Documentation/admin-guide/LSM/landlock.rst and include/uapi/linux/audit.h.
"""

from __future__ import annotations

import binascii
import errno
import os
import re
import select
import socket
import struct
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from sandbox.backends.base import Outcome, Told

__all__ = ["ABI_AUDIT", "Audit", "Hearing", "Record", "heard", "read_record"]

ABI_AUDIT = 7
_NETLINK_AUDIT = 9
_READERS = 1  # AUDIT_NLGRP_READLOG
_GET_STATUS = 1000
_ACCESS, _DOMAIN = 1423, 1424
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_ENABLED = struct.Struct("=II")  # the start of struct audit_status: mask, enabled
_REQUEST = 1  # NLM_F_REQUEST
_PACKET = 16 * 1024
_COARSE = 5  # CLOCK_REALTIME_COARSE, by which the kernel dates its records
_DOMAINS_MAX = 4096
_REFUSALS_MAX = 64  # of a domain, that nobody has asked for
_FIRST_MS, _NEXT_MS = 20, 2  # how long the first message may take, and one more
_MOST_S = 0.1  # that is waited for in all
_ANSWER_MS = 200  # of the kernel, to what it is asked
_OTHERS_MAX = 1024  # messages that may come before

_RECORD = re.compile(r"audit\((\d+)\.(\d{3}):\d+\): (?:.*? )?domain=([0-9a-f]+) (.*)", re.DOTALL)
_FIELD = re.compile(r'(\w+)=("[^"]*"|\S+)')


class Record(NamedTuple):
    """One message: when (milliseconds), of which domain; its process, or what it was refused."""

    when: int
    domain: str
    pid: int
    told: Told | None


def read_record(text: str) -> Record | None:
    """A message of the two kinds; None for one that is not worded as the kernel words it."""
    found = _RECORD.match(text)
    if found is None:
        return None
    fields = dict(_FIELD.findall(found[4]))
    when = int(found[1]) * 1000 + int(found[2])
    if "blockers" not in fields:
        pid = fields.get("pid", "")
        return Record(when, found[3], int(pid) if pid.isdecimal() else 0, None)
    rights = tuple(fields["blockers"].split(","))
    return Record(when, found[3], 0, Told(rights, _object(fields)))


def _object(fields: dict[str, str]) -> str:
    if "path" in fields:
        path = _text(fields["path"])
        return f"@{path[1:]}" if path.startswith("\0") else path
    if "dest" in fields or "src" in fields:
        return fields.get("dest", fields.get("src", ""))
    if "opid" in fields:
        return f"process {fields['opid']}"
    return ""


def _text(word: str) -> str:
    """A text as audit writes it: in quotes, or in hexadecimal digits if it has odd characters."""
    if word.startswith('"'):
        return word[1:-1]
    try:
        return os.fsdecode(binascii.unhexlify(word))
    except (binascii.Error, ValueError):
        return word


class Audit:
    """A listener of the audit's messages for the lanes of one confinement."""

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening
        self._lock = threading.Lock()
        self._lanes: OrderedDict[str, int] = OrderedDict()  # the process of a domain
        self._untold: dict[str, deque[Record]] = {}  # by domain

    @classmethod
    def open(cls) -> Audit | None:
        """None where the audit is off, or is not for this process to read."""
        if os.geteuid() != 0:
            return None
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        try:
            listening = socket.socket(socket.AF_NETLINK, kind, _NETLINK_AUDIT)
        except OSError:
            return None
        try:
            listening.bind((0, 1 << (_READERS - 1)))
            if _is_on(listening):
                return cls(listening)
        except OSError:
            pass
        listening.close()
        return None

    def close(self) -> None:
        """Listens no more. Idempotent."""
        self._socket.close()

    def now(self, pid: int) -> int:
        """A moment for ``take``. What a lane was refused before it and has come is forgotten."""
        with self._lock:
            self._drain()
            for _ in self._of(pid):
                continue
        return time.clock_gettime_ns(_COARSE) // 1_000_000

    def take(self, pid: int, since: int, failed: bool) -> tuple[Told, ...]:
        """What was refused to the lane's commands since that moment; waits if one has failed."""
        found: dict[Told, None] = {}
        patience, end = _FIRST_MS, time.monotonic() + _MOST_S
        while True:
            with self._lock:
                self._drain()
                for record in self._of(pid):
                    if record.when >= since and record.told is not None:
                        found[record.told] = None
            if found:
                patience = _NEXT_MS
            is_late = not failed or time.monotonic() > end  # others may be told of for ever
            if is_late or not _await(self._socket, patience):
                return tuple(found)

    def _of(self, pid: int) -> Iterator[Record]:
        for domain, owner in self._lanes.items():
            records = self._untold.get(domain)
            while owner == pid and records:
                yield records.popleft()

    def _drain(self) -> None:
        while True:
            try:
                packet = self._socket.recv(_PACKET)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    continue  # some were lost: the rest is as good
                return
            kind = _HEADER.unpack_from(packet)[1]
            if kind in (_ACCESS, _DOMAIN):
                self._keep(packet[_HEADER.size :])

    def _keep(self, message: bytes) -> None:
        record = read_record(os.fsdecode(message.rstrip(b"\0\n")))
        if record is None:
            return
        if record.pid:
            self._lanes[record.domain] = record.pid
            while len(self._lanes) > _DOMAINS_MAX:
                self._untold.pop(self._lanes.popitem(last=False)[0], None)
        if record.told is not None:
            if len(self._untold) > _DOMAINS_MAX:
                self._untold.clear()
            self._untold.setdefault(record.domain, deque(maxlen=_REFUSALS_MAX)).append(record)


class Hearing:
    """What is heard of one command in a lane, from here on."""

    def __init__(self, audit: Audit, pid: int) -> None:
        self._audit = audit
        self._pid = pid
        self._since = audit.now(pid)

    def added(self, outcome: Outcome) -> Outcome:
        """The outcome with what was refused."""
        failed = outcome.status != 0 or outcome.timed_out
        refusals = self._audit.take(self._pid, self._since, failed)
        return outcome._replace(refusals=refusals) if refusals else outcome


def heard(hearing: Hearing | None, outcome: Any) -> Outcome:
    """The core's outcome, with what was refused where somebody listens."""
    found = cast(Outcome, outcome)
    return hearing.added(found) if hearing is not None else found


def _await(listening: socket.socket, patience_ms: int) -> bool:
    if listening.fileno() < 0:
        return False  # it was closed meanwhile
    poll = select.poll()  # fds may be beyond what select takes
    poll.register(listening, select.POLLIN)
    return bool(poll.poll(patience_ms))


def _is_on(listening: socket.socket) -> bool:
    """Whether the kernel records anything. Raises ``OSError`` where it does not answer."""
    listening.sendto(_HEADER.pack(_HEADER.size, _GET_STATUS, _REQUEST, 1, 0), (0, 0))
    for _ in range(_OTHERS_MAX):
        _await(listening, _ANSWER_MS)
        packet = listening.recv(_PACKET)
        if _HEADER.unpack_from(packet)[1] == _GET_STATUS:
            return bool(_ENABLED.unpack_from(packet, _HEADER.size)[1])
    return False
