"""What a command tried to connect to and did not reach."""

from __future__ import annotations

import os
import socket
import struct

from sandbox.backends.base import Outcome

__all__ = ["refused_connects"]

_PROTOCOLS: dict[int, str] = {socket.SOCK_STREAM: "tcp", socket.SOCK_DGRAM: "udp"}


def refused_connects(outcome: Outcome) -> tuple[tuple[str, str, int], ...]:
    """``network`` or ``socket``, the address and the errno of each connect to what is outside.

    The last one says how many there were besides, if there was no room for all.
    """
    found = [(*_read(kind, address), number) for number, kind, address in outcome.attempts]
    if outcome.attempts_missed:
        found.append(("network", f"{outcome.attempts_missed} more", 0))
    return tuple(found)


def _read(kind: int, address: bytes) -> tuple[str, str]:
    """What an address is of, and its text: `address:port/protocol`, a path, `@name`."""
    family = int.from_bytes(address[:2], "little")
    protocol = _PROTOCOLS.get(kind, str(kind))
    if family == socket.AF_INET and len(address) >= 8:
        (port,) = struct.unpack_from("!H", address, 2)
        return "network", f"{socket.inet_ntop(family, address[4:8])}:{port}/{protocol}"
    if family == socket.AF_INET6 and len(address) >= 24:
        (port,) = struct.unpack_from("!H", address, 2)
        return "network", f"[{socket.inet_ntop(family, address[8:24])}]:{port}/{protocol}"
    if family == socket.AF_UNIX:
        name = address[2:]
        if name[:1] == b"\0":
            return "socket", "@" + os.fsdecode(name[1:])
        return "socket", os.fsdecode(name.split(b"\0", 1)[0])
    return "network", f"family {family}/{protocol}"
