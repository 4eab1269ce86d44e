"""Inputs to begin with, for each fuzz program: blobs of policies, requests of the binding, replies.

Requests are recorded: what the binding starts as its helper is a script that receives, notes, and
says that all went well.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import _sandcore as core
from sandbox.backends.basis import compile_with_basis
from sandbox.backends.compiled import compile_file
from sandbox.backends.ground import in_landlock, in_namespaces
from sandbox.policy import SandboxPolicy
from sandbox.presets import read_only, workspace_write
from sandbox.resolve import resolve

READY, FAILED, EXITED, DONE, STARTED = 16, 17, 18, 19, 20
LANE, KILL, DIRECT, CLOSE, JOIN, DOCK = 1, 3, 5, 6, 8, 9
REPLY = struct.Struct("<Iiiiii8I9Qq")
ATTEMPT = struct.Struct("<iHH112s")

RECORDER = """#!{python}
import os, pathlib, socket, sys
here, ready = pathlib.Path(__file__).parent, bytes.fromhex("{ready}")
def receive(end):
    packet, fds, _, _ = socket.recv_fds(end, 1 << 20, 20)
    return packet, fds
root = socket.socket(fileno=3)
root.send(ready)
while True:
    packet, fds = receive(root)
    if len(packet) != 8:
        break
    note = here / f"order-{{len(list(here.iterdir()))}}"
    note.write_bytes(bytes([len(fds)]) + packet)
    lane = socket.socket(fileno=fds[0])
    lane.send(ready)
    packet, fds = receive(lane)
    if not packet:
        continue
    data = bytes([len(fds)]) + packet
    if packet[4] & 1:
        data += os.pread(fds[-1], 1 << 27, 0)
    (here / f"request-{{len(list(here.iterdir()))}}").write_bytes(data)
    lane.send(bytes.fromhex("{done}"))
"""


def blobs(workspace: str) -> Iterator[core.Policy]:
    """Those of the presets, in each isolation, and one with a filter of the caller's own."""
    found = core.probe()
    policies: list[SandboxPolicy] = [
        read_only(),
        workspace_write(),
        workspace_write(network="full"),
    ]
    for policy in policies:
        resolved = resolve(policy, workspace, os.path.expanduser("~"), workspace)
        rules, basis = compile_with_basis(resolved, found.landlock_abi)
        yield in_landlock(resolved, rules, basis, found.landlock_abi, None).blob
        yield in_namespaces(resolved, found.landlock_abi, found.release).blob
    yield core.compile_policy(confined=False)
    allow = struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000)
    yield core.compile_policy(
        [(b"/usr", core.ACCESS_READ, False)], abi=1, network=core.NET_NONE, extra_filter=allow
    )


def requests(place: Path) -> None:
    """Has a helper that only notes run commands, orders and all."""
    helper = place / "recorder"
    done = reply(DONE, status=256)
    text = RECORDER.format(python=sys.executable, ready=reply(READY).hex(), done=done.hex())
    helper.write_text(text)
    helper.chmod(0o755)
    policy = core.compile_policy(confined=False)
    limits = [(7, 100, 200), (1, 10, 2**64 - 1)]
    commands = [
        ([b"/bin/true"], [b"true"], b"", 0, ()),
        ([b"/a/sh", b"/bin/sh"], [b"sh", b"-c", b"exit 3"], b"A=1\0HOME=/root\0", 2, limits),
        ([b"/bin/true"], [b"x" * 70_000], b"", 0, ()),
        ([b"/bin/true"], [b"a"] * 5_000, b"", 0, limits),
    ]
    null = os.open("/dev/null", os.O_RDWR)
    for programs, argv, env, count, bounds in commands:
        client = core.Helper(policy, os.fsencode(helper))
        lane = client.lane()
        lane.run(programs, argv, env, count, b"/", limits=bounds, memory=1 << 30)
        lane.close()
        lane = client.lane(100)
        with suppress(core.LaneLost):  # what runs in the background is answered otherwise
            lane.start(programs, argv, env, count, b"/", fds=[null] * 5, timeout=2.0)
        lane.close()
        client.close()
    os.close(null)


def reply(kind: int, *, pid: int = 7, stage: int = 0, status: int = 0, attempts: int = 0) -> bytes:
    more = [*[0] * 5, attempts, 0, 0]
    head = REPLY.pack(kind, pid, stage, 2 * (stage > 0), -1, status, *more, *range(9), 5)
    return head + ATTEMPT.pack(1, 1, 16, b"\2\0") * attempts


def replies() -> Iterator[bytes]:
    """What a caller can hear, in the order of usual conversations."""
    talks: list[tuple[int, list[tuple[int, bytes]]]] = [
        (0, [(2, reply(READY))]),
        (0, [(0, reply(READY, stage=15))]),
        (1, [(0, reply(DONE))]),
        (1, [(0, reply(FAILED, stage=14))]),
        (1, [(0, reply(EXITED)), (0, reply(DONE, status=9))]),
        (1, [(0, reply(DONE, attempts=3))]),
        (2, [(1, reply(STARTED))]),
        (2, [(0, reply(FAILED, stage=7))]),
        (3, [(1, reply(STARTED))]),
        (3, [(0, reply(FAILED, stage=7))]),
    ]
    for listener, packets in talks:
        yield bytes([listener]) + b"".join(bytes([n, len(one) // 2]) + one for n, one in packets)


def layouts(policies: list[core.Policy]) -> Iterator[bytes]:
    """Their mounts, without answers and with some."""
    for policy in policies:
        rows = b"".join(
            bytes([kind - 1, flags]) + path + b"\0"
            for path, kind, flags, _, _ in policy.mounts[-60:]
        )
        if rows:
            yield b"\0\0" + rows
            dock, work = b"/srv", b"/srv/one"  # and in it a workspace with a name to protect
            more = bytes([4, 4]) + dock + b"\0" + bytes([0, 0]) + work + b"\0"
            yield b"\0\0" + bytes([0, 0]) + work + b"\0" + more + rows
            yield struct.pack("<H", 600) + bytes(range(200)) * 3 + rows


def processes() -> Iterator[bytes]:
    """A /proc with two processes: it opens, lists, and each has a status and shares."""
    for file in ("status", "smaps_rollup"):
        text = Path(f"/proc/self/{file}").read_bytes()[:1000]
        one = b"\0" * 2 + bytes([len(text) // 4, 0]) + text[: len(text) // 4 * 4]
        for names in ((b"12",), (b"1234", b"77")):
            yield b"\0\0" + b"".join(bytes([len(name)]) + name + one * 2 for name in names)


def files(place: Path) -> Iterator[bytes]:
    """Compiled policies, each for all isolations that there are."""
    work = place / "work"
    work.mkdir()
    for policy in (read_only(), workspace_write(), workspace_write(str(work), network="full")):
        compile_file(policy, str(place / "file"), str(work))
        yield (place / "file").read_bytes()


def orders() -> Iterator[bytes]:
    yield b"\1" + struct.pack("<II", LANE, 100)
    yield b"\0" + struct.pack("<IIQ", DIRECT, 0, 2**63 + 1)
    yield b"\1" + struct.pack("<II", JOIN, 100)
    yield b"\x08" + struct.pack("<IIQ", DIRECT, 1, 2**63 + 1)
    yield b"\0" + struct.pack("<I", CLOSE)
    yield b"\0" + struct.pack("<IIIIQ", DOCK, 0, 0, 0, 0)


def write_all(out: Path) -> None:
    """One directory for each fuzz program, below `out`."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        requests(place)
        policies = list(blobs(scratch))
        compiled = list(files(place))
        recorded = {
            name: [path.read_bytes() for path in sorted(place.glob(f"{name}-*"))]
            for name in ("request", "order")
        }
    short = struct.pack("<I", KILL)
    seeds: dict[str, list[bytes]] = {
        "blob": [policy.blob for policy in policies],
        "request": [*recorded["request"], b"\0" + short],
        "order": [*recorded["order"], *orders()],
        "reply": list(replies()),
        "layout": list(layouts(policies)),
        "proc": list(processes()),
        "file": compiled,
    }
    for name, inputs in seeds.items():
        home = out / name
        home.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(dict.fromkeys(inputs)):
            (home / f"{number:02}").write_bytes(data)


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
