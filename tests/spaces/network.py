"""A loopback of its own, and nothing of the host's."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

from casekit import listening
from spacekit import all_of, inside, outside, program, space

from sandbox import workspace_write

SERVER = """
import os, socket
family = getattr(socket, os.sys.argv[1])
sock = socket.socket(family)
sock.bind((os.sys.argv[2], int(os.sys.argv[3])))
sock.listen()
open("port", "w").write(str(sock.getsockname()[1]))
peer = sock.accept()[0]
peer.sendall(b"greeting")
peer.close()
"""
CLIENT = """
import os, socket
sock = socket.create_connection((os.sys.argv[1], int(os.sys.argv[2])), 5)
print(sock.recv(99).decode())
"""


def a_program_reaches_its_own_servers(w: Path, o: Path) -> None:
    code = """
import socket
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    server = socket.socket(family)
    server.bind((address, 0))
    server.listen()
    client = socket.create_connection(server.getsockname()[:2], 5)
    client.sendall(b"x")
    print(server.accept()[0].recv(1))
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(("127.0.0.1", 0))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"y", one.getsockname())
print(one.recv(1), sorted(name for _, name in socket.if_nameindex()))
"""
    with space(w) as box:
        lines = box.run(program(code)).check().out.splitlines()
    assert lines[:2] == ["b'x'", "b'x'"] and lines[2].startswith("b'y'") and "'lo'" in lines[2]
    assert "eth" not in lines[2] and "ens" not in lines[2]


def two_lanes_reach_each_other(w: Path, o: Path) -> None:
    kept = []
    with space(w) as box:
        server = program(SERVER, "AF_INET", "127.0.0.1", 0)
        thread = threading.Thread(target=lambda: kept.append(box.run(server, timeout=30)))
        thread.start()
        end = time.monotonic() + 20
        while not (w / "port").exists() or not (w / "port").read_text():
            assert time.monotonic() < end
            time.sleep(0.01)
        port = (w / "port").read_text()
        # Nobody else does: neither the host nor another sandbox.
        connect = {"connect": "socket.create_connection(('127.0.0.1', int(A[0])), 5)"}
        assert outside(connect, port) == {"connect": "ECONNREFUSED"}
        other = w / "other"
        other.mkdir()
        with space(other) as second:
            assert inside(second, connect, port) == {"connect": "ECONNREFUSED"}
        assert box.run(program(CLIENT, "127.0.0.1", port)).check().out == "greeting\n"
        thread.join()
    assert kept[0].ok


CONNECTS = {
    "tcp": "socket.create_connection(('127.0.0.1', int(A[0])), 5).close()",
    "mapped": "socket.create_connection(('::ffff:127.0.0.1', int(A[0])), 5).close()",
    "fast": "(lambda s: s.sendto(b'x', 0x20000000, ('127.0.0.1', int(A[0]))))(socket.socket())",
    "host": "socket.create_connection((A[1], int(A[0])), 5).close()",
}


def _address() -> str:
    """An address of this machine on a real interface, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(sock.getsockname()[0])


def no_listener_of_the_host_is_reached(w: Path, o: Path) -> None:
    with listening(("0.0.0.0", 0)) as host, space(w) as box:
        port = host.socket.getsockname()[1]
        assert outside(CONNECTS, port, _address()) == all_of(CONNECTS, "ok")
        assert host.greeted() == len(CONNECTS)
        found = inside(box, CONNECTS, port, _address())
        assert set(found.values()) <= {"ECONNREFUSED", "ENETUNREACH", "EPERM"}, found
        assert host.greeted() == 0


def no_datagram_leaves(w: Path, o: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as host, space(w) as box:
        host.bind(("127.0.0.1", 0))
        host.settimeout(0.3)
        act = {
            "send": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1',"
            " int(A[0])))"
        }
        port = host.getsockname()[1]
        assert outside(act, port) == {"send": "ok"} and host.recv(1) == b"x"
        assert inside(box, act, port) == {"send": "ok"}  # into its own loopback
        try:
            raise AssertionError(host.recv(1))
        except TimeoutError:
            pass
        away = {"away": act["send"].replace("127.0.0.1", "192.0.2.1")}
        assert inside(box, away, port) == {"away": "ENETUNREACH"}


def sockets_of_the_host_are_out_of_reach(w: Path, o: Path) -> None:
    """By abstract name, by path outside, and by path in the workspace."""
    name = f"sandcore-{os.getpid()}"
    acts = {
        "abstract": "socket.socket(socket.AF_UNIX).connect(chr(0) + A[0])",
        "outside": "socket.socket(socket.AF_UNIX).connect(A[1])",
        "workspace": "socket.socket(socket.AF_UNIX).connect(A[2])",
        "pair": "socket.socketpair()[0].connect(A[1])",
    }
    paths = [str(o / "s.sock"), str(w / "s.sock")]
    with (
        listening("\0" + name, socket.AF_UNIX) as abstract,
        listening(paths[0], socket.AF_UNIX) as there,
        listening(paths[1], socket.AF_UNIX) as here,
        space(w) as box,
    ):
        bare = outside({k: v for k, v in acts.items() if k != "pair"}, name, *paths)
        assert bare == {"abstract": "ok", "outside": "ok", "workspace": "ok"}
        assert [s.greeted() for s in (abstract, there, here)] == [1, 1, 1]
        found = inside(box, acts, name, *paths)
        assert found.pop("pair") in ("EISCONN", "EPERM")
        # The abstract name is one of another network: there is nobody of that name in this one.
        assert found == {"abstract": "ECONNREFUSED", "outside": "EPERM", "workspace": "EPERM"}
        assert [s.greeted() for s in (abstract, there, here)] == [0, 0, 0]


def with_the_network_it_is_the_host_s_and_sockets_are_not(w: Path, o: Path) -> None:
    name = f"sandcore-full-{os.getpid()}"
    policy = workspace_write(w, network="full")
    with (
        listening() as host,
        listening("\0" + name, socket.AF_UNIX) as abstract,
        space(w, policy) as box,
    ):
        acts = {
            "tcp": "socket.create_connection(('127.0.0.1', int(A[0])), 5)",
            "abstract": "socket.socket(socket.AF_UNIX).connect(chr(0) + A[1])",
        }
        found = inside(box, acts, host.socket.getsockname()[1], name)
        assert found == {"tcp": "ok", "abstract": "EPERM"}
        assert (host.greeted(), abstract.greeted()) == (1, 0)
