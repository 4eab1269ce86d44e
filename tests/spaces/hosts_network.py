"""The host's network, in which the supervisor connects as the kernel would."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from casekit import Listener, listening, until
from spacekit import helpers, inside, outside, program, space

from sandbox import workspace_write

NON_BLOCKING = """
import errno, select, socket, sys
client = socket.socket()
client.setblocking(False)
print(errno.errorcode[client.connect_ex(("127.0.0.1", int(sys.argv[1])))])
print(len(select.select([], [client], [], 9)[1]))
print(client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
print(client.recv(9) if select.select([client], [], [], 9)[0] else None)
"""


def connects_over_the_wire_are_the_kernel_s(w: Path, o: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = unused.getsockname()[1]
        acts = {
            "refused": "socket.socket().connect(('127.0.0.1', int(A[0])))",
            "six": "socket.socket(socket.AF_INET6).connect(('::1', int(A[0])))",
            "udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))",
            "family": "socket.socket().connect(('255.255.255.255', 9))",
        }
        with listening() as host, space(w, workspace_write(w, network="full")) as box:
            assert inside(box, acts, closed) == outside(acts, closed)
            result = box.run(program(NON_BLOCKING, host.socket.getsockname()[1]), timeout=20)
            assert result.denials == ()
            refused = box.run(
                program(f"import socket; socket.socket().connect(('127.0.0.1', {closed}))")
            )
            assert refused.returncode == 1 and refused.denials == ()  # the world's answer
        assert result.out.splitlines()[:3] == ["EINPROGRESS", "1", "0"], result.text


PENDING = """
import socket, sys, threading, time
address = ("127.0.0.1", int(sys.argv[1]))
def wait():
    try:
        socket.socket().connect(address)
    except OSError:
        pass
for _ in range(int(sys.argv[2])):
    threading.Thread(target=wait, daemon=True).start()
time.sleep(1)
open("ready", "w").close()
time.sleep(99)
"""


def _seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def many_that_wait_for_the_wire_cost_little_and_hold_up_nobody(w: Path, o: Path) -> None:
    """Whose backlog is full does not answer, as a host that is not there."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(0)
    port = server.getsockname()[1]
    fill = [socket.socket() for _ in range(4)]
    for one in fill:
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
    act = {"tcp": "socket.create_connection(('127.0.0.1', int(A[0])), 5)"}
    with (
        listening() as host,
        space(w, workspace_write(w, network="full")) as box,
        box.popen(program(PENDING, port, 100), cwd=w) as waiting,
    ):
        assert until((w / "ready").exists, 20)
        time.sleep(1)
        supervisor = helpers()[1]
        before = _seconds(supervisor)
        time.sleep(2)
        used = (_seconds(supervisor) - before) / 2
        assert used < 0.15, used
        began = time.monotonic()
        assert inside(box, act, host.socket.getsockname()[1]) == {"tcp": "ok"}
        assert time.monotonic() - began < 3
        waiting.kill()
    for one in (server, *fill):
        one.close()


LATE = """
import signal, socket, sys, time
address = ("127.0.0.1", int(sys.argv[1]))
class Rung(Exception):
    pass
def ring(*ignored):
    raise Rung
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.3)
began = time.monotonic()
try:
    socket.socket().connect(address)
except Rung:
    print("rung", time.monotonic() - began < 2)
import struct
limited = socket.socket()
limited.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 300000))
try:
    limited.connect(address)
except BlockingIOError:
    print("time is up")
"""


def a_connect_that_waits_ends_by_a_signal_and_by_its_time(w: Path, o: Path) -> None:
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(0)
    fill = [socket.socket() for _ in range(4)]
    for one in fill:
        one.setblocking(False)
        one.connect_ex(server.getsockname())
    with space(w, workspace_write(w, network="full")) as box:
        result = box.run(program(LATE, server.getsockname()[1]), timeout=30)
        assert result.out == "rung True\ntime is up\n", result.text
    for one in (server, *fill):
        one.close()


HOLD = """
import ctypes, os, socket
server = socket.socket(socket.AF_UNIX)
server.bind("own")
server.listen()
ctypes.CDLL(None).prctl(4, 0)  # not dumpable: who looks at its fds needs more rights
open("ready", "w").close()
server.accept()[0].sendall(b"own")
"""


def who_does_not_want_to_be_looked_at_is_found(w: Path, o: Path) -> None:
    ask = "import socket; c = socket.socket(socket.AF_UNIX); c.connect('own'); print(c.recv(9))"
    with space(w, workspace_write(w, network="full")) as box, box.popen(program(HOLD), cwd=w):
        assert until((w / "ready").exists)
        result = box.run(program(ask), cwd=w)
        assert result.out == "b'own'\n", result.text


def a_server_of_the_caller_s_that_a_command_holds_is_still_the_host_s(w: Path, o: Path) -> None:
    """It may be knocked at, for it is open inside; who listens is of the host."""
    act = {"connect": "socket.socket(socket.AF_UNIX).connect(A[0])"}
    host = Listener(socket.AF_UNIX, str(w / "s"))
    code = "import socket, sys; c = socket.socket(socket.AF_UNIX); c.connect(sys.argv[1])"
    with space(w, workspace_write(w, network="full")) as box:
        result = box.run(program(code, w / "s"), stdin=host.socket.fileno())
        assert "Operation not permitted" in result.err, result.text
        assert inside(box, act, w / "s") == {"connect": "EPERM"}
    host.socket.close()
