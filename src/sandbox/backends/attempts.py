"""What a command tried to connect to and did not reach, as denials."""

from __future__ import annotations

import errno
import os
import socket
import struct

from sandbox.backends.base import Outcome
from sandbox.denial import Denial, DenialKind, Evidence, Grant

__all__ = ["refused_connects"]

_PROTOCOLS: dict[int, str] = {socket.SOCK_STREAM: "tcp", socket.SOCK_DGRAM: "udp"}


def refused_connects(outcome: Outcome) -> tuple[Denial, ...]:
    """A denial for each connect to what is outside: ``network`` or ``socket``, and its address.

    The last one says how many there were besides, if there was no room for all.
    """
    if not outcome.attempts:
        return ()
    found = []
    for number, kind, address in outcome.attempts:
        what, where = _read(kind, address)
        name = errno.errorcode.get(number, str(number))
        found.append(_denial(what, where, f"connect was refused ({name})"))
    if outcome.attempts_missed:
        text = f"{outcome.attempts_missed} more connects were refused"
        found.append(_denial(DenialKind.NETWORK, "", text))
    return tuple(found)


def _denial(kind: DenialKind, what: str, detail: str) -> Denial:
    grant = Grant.one("network", "full") if kind is DenialKind.NETWORK else None
    return Denial(kind, what, Evidence.FILTER, rule="network", grant=grant, detail=detail)


def _read(kind: int, address: bytes) -> tuple[DenialKind, str]:
    """What an address is of, and its text: `address:port/protocol`, a path, `@name`."""
    family = int.from_bytes(address[:2], "little")
    protocol = _PROTOCOLS.get(kind, str(kind))
    if family == socket.AF_INET and len(address) >= 8:
        (port,) = struct.unpack_from("!H", address, 2)
        return DenialKind.NETWORK, f"{socket.inet_ntop(family, address[4:8])}:{port}/{protocol}"
    if family == socket.AF_INET6 and len(address) >= 24:
        (port,) = struct.unpack_from("!H", address, 2)
        return DenialKind.NETWORK, f"[{socket.inet_ntop(family, address[8:24])}]:{port}/{protocol}"
    if family == socket.AF_UNIX:
        name = address[2:]
        if name[:1] == b"\0":
            return DenialKind.SOCKET, "@" + os.fsdecode(name[1:])
        return DenialKind.SOCKET, os.fsdecode(name.split(b"\0", 1)[0])
    return DenialKind.NETWORK, f"family {family}/{protocol}"
