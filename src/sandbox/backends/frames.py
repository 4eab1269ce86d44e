"""Messages between a keeper and its caller: JSON behind four bytes of length, and fds beside them.

Text in them is UTF-8 with surrogates for other bytes.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any

__all__ = ["decoded", "encoded", "receive", "send"]

_LENGTH = struct.Struct("!I")
_LARGEST = 1 << 26


def send(sock: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Sends one message. Raises ``OSError`` when nobody is there."""
    data = json.dumps(message).encode()
    head = _LENGTH.pack(len(data))
    if fds:
        socket.send_fds(sock, [head], list(fds))
    sock.sendall(data if fds else head + data)


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message and its fds; None at the end."""
    head, fds, _, _ = socket.recv_fds(sock, _LENGTH.size, 3)
    for fd in fds:
        os.set_inheritable(fd, False)
    while 0 < len(head) < _LENGTH.size:
        head += sock.recv(_LENGTH.size - len(head)) or b"\0" * _LENGTH.size
    if not head:
        return None
    left = _LENGTH.unpack(head[: _LENGTH.size])[0]
    parts = []
    while 0 < left <= _LARGEST:
        part = sock.recv(min(left, 1 << 20))
        if not part:
            return None
        parts.append(part)
        left -= len(part)
    return json.loads(b"".join(parts)), fds


def encoded(text: str) -> bytes:
    """Text of a message as the bytes that it stands for."""
    return text.encode("utf-8", "surrogateescape")


def decoded(data: bytes) -> str:
    """Bytes as text for a message."""
    return data.decode("utf-8", "surrogateescape")
