"""Section D: the network, sockets of services, io_uring."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import time
from pathlib import Path

import failing
from casekit import (
    NAMESPACES,
    cc,
    confined,
    errno_of,
    listening,
    need,
    python,
    replaced_environ,
    skip,
    weaker,
)

import sandbox

_REFUSED = {"EACCES", "EPERM", "ENETUNREACH", "EAFNOSUPPORT", "ECONNREFUSED"}
_CONNECT = """
import socket
s = socket.socket(getattr(socket, sys.argv[1]))
s.settimeout(3)
s.connect(sys.argv[2] if len(sys.argv) == 3 else (sys.argv[2], int(sys.argv[3])))
print(s.recv(9).decode())
"""


def case_50_a_socket_of_the_host_cannot_be_reached(w: Path, o: Path) -> None:
    for place in (o / "s.sock", w / "s.sock"):
        with listening(str(place), socket.AF_UNIX) as listener:
            place.chmod(0o777)
            assert errno_of(_CONNECT, w, "AF_UNIX", place) in _REFUSED
            assert listener.greeted() == 0
            twin = socket.socket(socket.AF_UNIX)
            twin.connect(str(place))
            assert listener.greeted() == 1
            twin.close()


def case_50_nor_by_its_abstract_name_or_by_datagrams(w: Path, o: Path) -> None:
    name = f"\0sandcore-{os.getpid()}"
    with listening(name, socket.AF_UNIX) as listener:
        code = _CONNECT.replace("sys.argv[2] if", "'\\0' + sys.argv[2] if")
        assert errno_of(code, w, "AF_UNIX", name[1:]) in _REFUSED
        assert listener.greeted() == 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as host:
        host.bind(str(o / "d.sock"))
        host.settimeout(0.2)
        code = (
            "import socket\n"
            "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
            "a.sendto(b'x', sys.argv[1])\n"
        )
        assert errno_of(code, w, o / "d.sock") in _REFUSED
        try:
            raise AssertionError(f"the host got {host.recv(9)!r}")
        except TimeoutError:
            pass


def case_51_the_session_bus_cannot_be_reached(w: Path, o: Path) -> None:
    need("busctl", "systemd")
    with listening(str(o / "bus"), socket.AF_UNIX) as listener:
        address = f"unix:path={o}/bus"
        env = {"DBUS_SESSION_BUS_ADDRESS": address}
        result = confined(["busctl", "--user", "list"], w, env=env, timeout=20)
        assert result.returncode != 0
        assert not result.timed_out
        assert listener.greeted() == 0


_WAKE = """
import asyncio, threading
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
print(asyncio.run_coroutine_threadsafe(asyncio.sleep(0, 42), loop).result(3))
"""


def case_53_an_event_loop_is_woken_from_another_thread(w: Path, o: Path) -> None:
    result = confined([python(), "-c", _WAKE], w)
    assert result.out == "42\n", result.text


def case_54_socket_pairs_work(w: Path, o: Path) -> None:
    code = "import asyncio; asyncio.run(asyncio.sleep(0)); print('ok')"
    result = confined([python(), "-c", code], w)
    assert result.out == "ok\n", result.text
    code = "import socket\nfor k in (1, 5):\n a, b = socket.socketpair(1, k)\n a.send(b'x')\n"
    assert errno_of(code, w) == ""


_SERVER = """
import os, socket
place = os.environ["TMPDIR"] + "/x.sock"
s = socket.socket(socket.AF_UNIX)
s.settimeout(3)
s.bind(place)
s.listen()
if os.fork() == 0:
    c = socket.socket(socket.AF_UNIX)
    c.connect(place)
    c.sendall(b"ok")
    os._exit(0)
print(s.accept()[0].recv(9).decode())
"""


def case_18_a_supervisor_that_cannot_decide_refuses(w: Path, o: Path) -> None:
    """Without fds, stopped, or dead. In Landlock none decides: such a socket cannot be had."""
    if NAMESPACES:
        from spaces import connects  # needs namespaces, and makes its own

        connects.a_supervisor_without_fds_refuses(w, o)
        connects.a_supervisor_that_is_stopped_or_dead_ends_the_sandbox(w, o)
    else:
        code = "import socket; socket.socket(socket.AF_UNIX).connect('no-such')"
        assert errno_of(code, w) == "EPERM"


def case_56_a_server_in_the_temporary_directory_works(w: Path, o: Path) -> None:
    result = confined([python(), "-c", _SERVER], w)
    if NAMESPACES:
        assert result.out == "ok\n", result.text
    else:
        assert "PermissionError" in result.err and "loopback" in weaker(result)


def case_56_the_temporary_directory_leaves_room_for_socket_names(w: Path, o: Path) -> None:
    path = confined("echo $TMPDIR", w).out.strip()
    assert len(path) < 80, path  # 108 are all there are


def case_58_io_uring_is_not_there(w: Path, o: Path) -> None:
    for number in (425, 426, 427):
        code = (
            "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\n"
            "b = ctypes.create_string_buffer(120)\n"
            "if c.syscall(int(sys.argv[1]), 4, b, 0, 0, 0, 0) < 0:\n"
            "    raise OSError(ctypes.get_errno(), '')\n"
        )
        assert errno_of(code, w, number) == "ENOSYS", number


_FOREIGN = """
#include <stdio.h>
#include <stdlib.h>
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
    long r;
    if (argc > 1) {
        r = syscall(41 | 0x40000000, 2, 1, 0);
        if (r < 0) r = -errno;
    } else {
        __asm__ volatile("int $0x80" : "=a"(r) : "a"(359L), "b"(2L), "c"(1L), "d"(0L) : "memory");
    }
    printf("%ld\\n", r);
    return 0;
}
"""


def case_59_system_calls_of_other_architectures_are_closed(w: Path, o: Path) -> None:
    if os.uname().machine != "x86_64":
        skip("needs x86_64")
    program = cc(_FOREIGN, w / "foreign")
    for words in ([program], [program, "x32"]):
        result = confined(words, w)
        refused = (-errno.EPERM, -errno.ENOSYS)
        assert result.signal == 31 or int(result.out) in refused, (words, result.outcome)
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        assert box.run(["true"]).ok  # only the program was killed


_LOOPBACK = """
import socket
s = socket.socket(getattr(socket, sys.argv[1]))
s.bind((sys.argv[2], 0))
s.listen()
socket.create_connection(s.getsockname()[:2], 3)
print(socket.gethostbyname("localhost"))
"""


def case_61_a_program_reaches_its_own_listener(w: Path, o: Path) -> None:
    if not NAMESPACES:
        assert "loopback" in weaker(confined("true", w))
    for words in (("AF_INET", "127.0.0.1"), ("AF_INET6", "::1")):
        assert errno_of(_LOOPBACK, w, *words) == ("127.0.0.1" if NAMESPACES else "EPERM")


def case_61_who_asks_for_a_loopback_is_not_given_another_network(w: Path, o: Path) -> None:
    try:
        result = confined(["true"], w, policy=sandbox.workspace_write(network="loopback"))
    except sandbox.Unenforceable as error:
        assert "loopback" in error.part
    else:
        assert result.enforcement.isolation == "namespaces"


def case_62_the_hosts_listeners_stay_out_of_reach(w: Path, o: Path) -> None:
    with listening() as listener:
        port = listener.socket.getsockname()[1]
        lan = socket.gethostbyname(socket.gethostname())
        for family, address in (
            ("AF_INET", "127.0.0.1"),
            ("AF_INET", "0.0.0.0"),
            ("AF_INET", lan),
            ("AF_INET", "169.254.169.254"),
            ("AF_INET6", "::1"),
            ("AF_INET6", "::ffff:127.0.0.1"),
        ):
            start = time.monotonic()
            assert errno_of(_CONNECT, w, family, address, port) in _REFUSED, address
            assert time.monotonic() - start < 3, address
        assert listener.greeted() == 0
        with socket.create_connection(("127.0.0.1", port)):
            assert listener.greeted() == 1
        allowed = sandbox.workspace_write(network="full")
        pid = os.fork()
        if pid == 0:
            listener.greeted(5)
            os._exit(0)
        assert errno_of(_CONNECT, w, "AF_INET", "127.0.0.1", port, policy=allowed) == "HOST"
        os.waitpid(pid, 0)


def case_62_names_fail_fast(w: Path, o: Path) -> None:
    code = "import socket\nsocket.getaddrinfo('example.org', 80)"
    start = time.monotonic()
    result = confined([python(), "-c", code], w, timeout=20)
    assert result.returncode != 0
    assert "gaierror" in result.err
    assert time.monotonic() - start < 5


def case_64_a_connected_socket_of_the_caller_is_closed(w: Path, o: Path) -> None:
    with (
        listening() as listener,
        socket.create_connection(listener.socket.getsockname()) as client,
    ):
        os.dup2(client.fileno(), 9, inheritable=True)
        peer, _ = listener.socket.accept()
        result = confined("echo GET / >&9", w)
        assert "Bad file descriptor" in result.err
        peer.settimeout(0.3)
        try:
            raise AssertionError(f"the peer got {peer.recv(9)!r}")
        except TimeoutError:
            pass
        done = subprocess.run("echo GET / >&9", shell=True, close_fds=False)
        assert done.returncode == 0
        assert peer.recv(9) == b"GET /\n"
        peer.close()
        os.close(9)


def case_66_without_a_proxy_no_variable_names_one(w: Path, o: Path) -> None:
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy")
    with replaced_environ(**dict.fromkeys(names, "http://proxy.invalid:1")):
        assert "proxy" not in confined("env", w).out.lower()


def case_67_the_network_stays_closed_where_namespaces_cannot_be_had(w: Path, o: Path) -> None:
    failing.fail("unshare", errno.EPERM)
    with listening() as listener:
        port = listener.socket.getsockname()[1]
        assert errno_of(_CONNECT, w, "AF_INET", "127.0.0.1", port) in _REFUSED
        assert listener.greeted() == 0
    pid = os.fork()
    if pid == 0:
        failing.fail("seccomp", errno.EINVAL)
        try:
            sandbox.Sandbox(sandbox.workspace_write(w)).run(["true"])
        except (sandbox.HostError, sandbox.StartError):
            os._exit(0)
        except BaseException:
            os._exit(1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
