"""Sockets of the file system: those of the sandbox's own commands, and none of the host's."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from casekit import Listener, cc, listening, mount, private_mounts, skip, until
from spacekit import helpers, inside, outside, program, space, words

import sandbox
from sandbox import Sandbox, SandboxPolicy, workspace_write
from sandbox.backends.linux import LinuxBackend

SERVE = """
import os, socket, sys
kind, place = getattr(socket, sys.argv[1]), sys.argv[2].replace("@", chr(0))
server = socket.socket(socket.AF_UNIX, kind)
server.bind(place)
server.listen()
open("ready", "w").close()
peer = server.accept()[0]
peer.sendall(b"own")
peer.close()
"""
ASK = """
import socket, sys
kind, place = getattr(socket, sys.argv[1]), sys.argv[2].replace("@", chr(0))
client = socket.socket(socket.AF_UNIX, kind)
client.settimeout(9)
client.connect(place)
print(client.recv(9).decode(), client.get_inheritable(), client.getpeername() != "")
"""


def both(w: Path, policy: SandboxPolicy | None = None) -> Iterator[Sandbox]:
    """A sandbox with a network of its own, and then one with the host's."""
    for network in ("none", "full"):
        with space(w, (policy or workspace_write(w)).with_network(network)) as box:
            yield box


def _serve(box: Sandbox, w: Path, *words: str) -> threading.Thread:
    (w / "ready").unlink(missing_ok=True)
    thread = threading.Thread(target=lambda: box.run(program(SERVE, *words), timeout=20).check())
    thread.start()
    assert until((w / "ready").exists)
    return thread


def lanes_reach_each_other_by_path_and_by_abstract_name(w: Path, o: Path) -> None:
    for box in both(w):
        for kind in ("SOCK_STREAM", "SOCK_SEQPACKET"):
            for place in (f"/tmp/{kind}", f"{w}/{kind}", kind, f"@{kind}"):
                thread = _serve(box, w, kind, place)
                result = box.run(program(ASK, kind, place), timeout=20)
                assert result.out == "own False True\n", (place, result.text)
                assert result.denials == ()
                thread.join()
                (w / kind).unlink(missing_ok=True)


def another_sandbox_is_outside(w: Path, o: Path) -> None:
    other = w / "other"
    other.mkdir()
    connect = "(c := socket.socket(socket.AF_UNIX)).connect(A[0].replace('@', chr(0))), c.recv(9)"
    act = {"connect": connect}
    for box in both(w):
        near = workspace_write(other, network=box.policy.network).with_read(w)
        with space(other, near) as second:
            for place in (f"{w}/s", f"@{w}"):
                thread = _serve(box, w, "SOCK_STREAM", place)
                refused = {"EPERM", "ECONNREFUSED"}  # the latter: no such name in another network
                assert inside(second, act, place)["connect"] in refused
                assert inside(box, act, place) == {"connect": "ok"}
                thread.join()
        (w / "s").unlink()


COMMON = """
import asyncio, multiprocessing, os, signal, socket, sys, threading, time
sys.stdout.reconfigure(line_buffering=True)
with multiprocessing.Manager() as manager:
    shared = manager.dict()
    shared["a"] = 1
    print(dict(shared))
async def hello(reader, writer):
    writer.write(b"hello")
    writer.close()
async def loop():
    await asyncio.start_unix_server(hello, "/tmp/loop")
    print(await (await asyncio.open_unix_connection("/tmp/loop"))[0].read())
    for address in ("127.0.0.1", "::1"):
        server = await asyncio.start_server(hello, address, 0)
        where = server.sockets[0].getsockname()[:2]
        print(await (await asyncio.open_connection(*where))[0].read())
asyncio.run(loop())
if os.fork() == 0:  # a daemon: who called listen() is gone
    server = socket.socket(socket.AF_UNIX)
    server.bind("/tmp/daemon")
    server.listen()
    if os.fork() == 0:
        print(server.accept()[0].recv(9), flush=True)
    os._exit(0)
os.wait()
client = socket.socket(socket.AF_UNIX)
client.setblocking(False)
client.connect("/tmp/daemon")
client.send(b"daemon")
print(client.getblocking(), os.get_blocking(client.fileno()))
full = socket.socket(socket.AF_UNIX)
full.bind("/tmp/full")
full.listen(0)
first, second, third = (socket.socket(socket.AF_UNIX) for _ in range(3))
first.connect("/tmp/full")
second.setblocking(False)
try:
    second.connect("/tmp/full")
except BlockingIOError:
    print("full")
threading.Timer(0.2, full.accept).start()
third.connect("/tmp/full")
class Rung(Exception):
    pass
def ring(*ignored):
    raise Rung
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    socket.socket(socket.AF_UNIX).connect("/tmp/full")
except Rung:
    print("rung")
"""


def what_programs_do_with_sockets_works(w: Path, o: Path) -> None:
    for box in both(w):
        result = box.run(program(COMMON), timeout=60)
        hello = ["b'hello'"] * 3
        assert result.ok, result.text
        found = result.out.splitlines()
        expected = ["{'a': 1}", *hello, "b'daemon'", "False False", "full", "rung"]
        assert sorted(found) == sorted(expected), result.text


def the_host_is_out_of_reach_and_notices_nothing(w: Path, o: Path) -> None:
    acts = {
        "path": "socket.socket(socket.AF_UNIX).connect(A[0])",
        "relative": "socket.socket(socket.AF_UNIX).connect(os.path.relpath(A[0]))",
        "seqpacket": "socket.socket(socket.AF_UNIX, 5).connect(A[1])",
        "link": "(os.path.lexists('l') or os.symlink(A[0], 'l'),"
        " socket.socket(socket.AF_UNIX).connect('l'))",
        "again": "[socket.socket(socket.AF_UNIX).connect(A[0]) for _ in range(3)]",
        "thread": "socket.socket(socket.AF_UNIX).connect(f'/proc/{os.getpid()}/cwd/s')",
    }
    datagrams = {
        "datagram": "socket.socket(socket.AF_UNIX, 2).connect(A[0])",
        "addressed": "socket.socket(socket.AF_UNIX, 2).sendto(b'x', A[0])",
        "pair": "socket.socketpair(socket.AF_UNIX, 2)[0].connect(A[0])",
        "pair, sendto": "socket.socketpair(socket.AF_UNIX, 2)[0].sendto(b'x', A[0])",
        "pair, sendmsg": "socket.socketpair(socket.AF_UNIX, 2)[0].sendmsg([b'x'], [], 0, A[0])",
    }
    refused = {"EPERM", "EISCONN", "EOPNOTSUPP"}
    stream = Listener(socket.AF_UNIX, str(w / "s"))
    packets = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    packets.bind(str(w / "p"))
    packets.listen(9)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as host:
        host.bind(str(w / "d"))
        host.setblocking(False)
        os.chdir(w)
        assert set(outside(acts, w / "s", w / "p").values()) == {"ok"}
        assert set(outside(datagrams, w / "d").values()) == {"ok"}
        (w / "l").unlink()
        assert stream.greeted() == 7 and packets.accept() and len(host.recv(9)) == 1
        while True:
            try:
                host.recv(9)
            except BlockingIOError:
                break
        for box in both(w, workspace_write(w).with_write("/tmp")):
            assert set(inside(box, acts, w / "s", w / "p").values()) == {"EPERM"}
            assert set(inside(box, datagrams, w / "d").values()) <= refused
        packets.settimeout(0.1)
        assert stream.greeted() == 0
        for nothing in (host.recv, packets.accept):
            try:
                raise AssertionError(nothing(*[9] * (nothing == host.recv)))
            except (BlockingIOError, TimeoutError):
                pass
    stream.socket.close()
    packets.close()


NUMBERED = """
import os, socket, sys
path, number = sys.argv[1], int(sys.argv[2])
os.chdir("/tmp")
while True:
    fd = os.open("f", os.O_CREAT, 0o600)
    found = os.fstat(fd).st_ino
    os.close(fd)
    os.unlink("f")
    if found >= number - 1:
        break
own = socket.socket(1)
own.bind("own")
own.listen()
print(os.stat("own").st_ino == number)
try:
    socket.socket(1).connect(path)
except PermissionError:
    print("refused")
"""


def a_socket_of_the_same_number_elsewhere_gets_no_knock_through(w: Path, o: Path) -> None:
    """In a tmpfs numbers can be chosen, by making files until the right one is next."""
    private_mounts()
    mount(b"none", os.fsencode(o), b"tmpfs")
    for n in range(500):
        (o / str(n)).touch()
    with listening(str(o / "s"), socket.AF_UNIX) as host, space(w) as box:
        result = box.run(program(NUMBERED, o / "s", (o / "s").stat().st_ino))
        assert result.out == "True\nrefused\n", result.text
        assert host.greeted() == 0


def sockets_on_an_overlay_of_several_file_systems_are_reached(w: Path, o: Path) -> None:
    """There stat says another device for a file than the kernel's list of sockets."""
    private_mounts()
    mount(b"none", os.fsencode(o), b"tmpfs")
    for name in ("lower", "upper"):
        (o / name).mkdir()
        mount(b"none", os.fsencode(o / name), b"tmpfs")
    for name in ("data", "work"):
        (o / "upper" / name).mkdir()
    how = f"xino=off,lowerdir={o}/lower,upperdir={o}/upper/data,workdir={o}/upper/work"
    done = subprocess.run(["mount", "-t", "overlay", "none", "-o", how, str(w)])
    if done.returncode:
        skip("needs overlays")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.bind(str(w / "probe"))
        assert (w / "probe").stat().st_dev != w.stat().st_dev
    with space(w) as box:
        inside(box, {"server": f"exec({LISTEN.replace('/tmp', str(w))!r})"})
        code = f"c = socket.socket(1); c.connect({str(w / 's')!r})"
        (w / "s").unlink()
        assert box.run(program(LISTEN.replace("/tmp", str(w)) + code)).ok


RACE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
static struct sockaddr_un own = {AF_UNIX}, host = {AF_UNIX}, used;
static volatile int over, fd;
static char what;
static void *swap(void *ignored) {
    for (unsigned i = 0; !over; i++) {
        const struct sockaddr_un *next = i & 1 ? &own : &host;
        if (what == 'a') memcpy(&used, next, sizeof used);
        if (what == 'l') { unlink("n"); symlink(next->sun_path, "n"); rename("n", "l"); }
        if (what == 'd') { unlink("n"); symlink(i & 1 ? "mine" : "theirs", "n"); rename("n", "l"); }
        if (what == 'f') { int s = socket(AF_UNIX, SOCK_STREAM, 0); dup2(s, fd); close(s); }
    }
    return NULL;
}
static void *serve(void *at) {
    int server = *(int *)at;
    for (;;) {
        int peer = accept(server, 0, 0);
        if (peer >= 0) { write(peer, "own", 3); close(peer); }
    }
}
int main(int argc, char **argv) {
    what = argv[1][0];
    strcpy(own.sun_path, argv[2]);
    strcpy(host.sun_path, argv[3]);
    unlink(own.sun_path);
    int server = socket(AF_UNIX, SOCK_STREAM, 0), reached = 0, refused = 0, leaked = 0;
    if (bind(server, (void *)&own, sizeof own) || listen(server, 99)) return 1;
    used = what == 'f' ? host : own;
    if (what == 'l') strcpy(used.sun_path, "l");
    if (what == 'd') strcpy(used.sun_path, "l/s");
    pthread_t one, two;
    pthread_create(&one, NULL, serve, &server);
    pthread_create(&two, NULL, swap, NULL);
    int most = atoi(argv[4]); /* tries, and more until both have come often enough */
    for (int i = 0; i < most || refused <= 20 || (what != 'f' && reached <= 20); i++) {
        char answer[8] = {0};
        int mine = fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(mine, (void *)&used, sizeof used)) refused++;
        else if (what != 'f' && read(mine, answer, 7) > 0) {
            reached += answer[0] == 'o';
            leaked += answer[0] != 'o';
        }
        close(mine);
    }
    over = 1;
    pthread_join(two, NULL);
    printf("%d %d %d\n", reached > 20, refused > 20, leaked);
    return 0;
}
"""


def _race(w: Path, what: str) -> None:
    """A second thread changes what a connect is about while it is under way."""
    race = cc(RACE, w / "race")
    for name in ("mine", "theirs"):
        (w / name).mkdir()
    paths = [str(w / "mine" / "s"), str(w / "theirs" / "s")]
    reached = "0" if what == "f" else "1"
    with listening(paths[1], socket.AF_UNIX) as host:
        for box in both(w):
            result = box.run([str(race), what, *paths, "1000"], timeout=60)
            assert result.out == f"{reached} 1 0\n", result.text
            assert host.greeted() == 0


def the_address_may_be_swapped_in_memory(w: Path, o: Path) -> None:
    _race(w, "a")


def the_path_may_be_swapped_by_links(w: Path, o: Path) -> None:
    _race(w, "l")


def a_directory_in_the_path_may_be_swapped(w: Path, o: Path) -> None:
    _race(w, "d")


def the_fd_may_be_swapped(w: Path, o: Path) -> None:
    _race(w, "f")


def sockets_that_the_caller_gave_are_not_connected_anew(w: Path, o: Path) -> None:
    """A socket keeps the network that it was made in: connected elsewhere it would be a way out."""
    code = """
import errno, socket, struct, sys
sock = socket.socket(fileno=0)
unspec = struct.pack("H14x", 0)
import ctypes
print(ctypes.CDLL(None, use_errno=True).connect(0, unspec, 16), end=" ")
try:
    sock.connect(eval(sys.argv[1]))
    print("ok")
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    with listening() as host, space(w) as box:
        for confined in (False, True):
            with socket.socket() as given:
                words = program(code, repr(host.socket.getsockname()))
                if confined:
                    out = box.run(words, stdin=given.fileno()).out
                else:
                    done = subprocess.run(words, stdin=given, capture_output=True)
                    out = done.stdout.decode()
                assert out == ("-1 EPERM\n" if confined else "0 ok\n"), (confined, out)


def datagram_sockets_of_the_caller_are_not_given(w: Path, o: Path) -> None:
    """No filter sees where a sendmsg goes, and the socket is of the host's network."""
    code = "import socket, sys; socket.socket(fileno=0).sendmsg([b'x'], [], 0, eval(sys.argv[1]))"
    for family, address in ((socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, str(w / "d"))):
        with (
            socket.socket(family, socket.SOCK_DGRAM) as host,
            socket.socket(family, socket.SOCK_DGRAM) as given,
            space(w) as box,
            Sandbox(workspace_write(w), workspace=w, backend=LinuxBackend(namespaces=False)) as two,
        ):
            host.bind(address)
            host.settimeout(0.2)
            words = program(code, repr(host.getsockname()))
            subprocess.run(words, stdin=given, check=True)
            assert host.recv(9) == b"x"
            for call, how in (
                (box.run, {"stdin": given.fileno()}),
                (two.run, {"stdin": given.fileno()}),
                (box.popen, {"stdin": given}),
                (box.popen, {"stderr": given.fileno()}),
            ):
                try:
                    raise AssertionError(call(words, **how))
                except sandbox.InvalidArgument:
                    pass
            try:
                raise AssertionError(host.recv(9))
            except TimeoutError:
                pass
            left, right = socket.socketpair()
            with left, right:
                assert box.run(["echo", "stream"], stdout=left.fileno()).ok
                assert right.recv(9) == b"stream\n"


TRY = {
    "unix": "socket.socket(socket.AF_UNIX).connect('/tmp/s')",
    "udp": "socket.socket(2, 2).connect(('127.0.0.1', 9))",
}
LISTEN = "import socket; s = socket.socket(1); s.bind('/tmp/s'); s.listen(99)\n"


def a_supervisor_without_fds_refuses(w: Path, o: Path) -> None:
    with space(w) as box:
        run = [f"{LISTEN}import time; open('ready', 'w').close(); time.sleep(99)"]
        with box.popen(program(*run)) as server:
            assert until((w / "ready").exists)
            assert inside(box, TRY) == {"unix": "ok", "udp": "ok"}
            supervisor = helpers()[1]
            before = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
            seen = []
            for most in range(8, 40):
                resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (most, before[1]))
                found = inside(box, TRY)
                assert set(found.values()) <= {"ok", "EPERM"}, (most, found)
                seen.append(found["unix"])
            assert seen == sorted(seen, key=["EPERM", "ok"].index) and len(set(seen)) == 2
            resource.prlimit(supervisor, resource.RLIMIT_NOFILE, before)
            assert inside(box, TRY) == {"unix": "ok", "udp": "ok"}
            server.kill()


def are_gone(pids: list[int]) -> Callable[[], bool]:
    return lambda: set(pids).isdisjoint(helpers())


def a_supervisor_that_is_stopped_or_dead_ends_the_sandbox(w: Path, o: Path) -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):
        with space(w) as box:
            before = helpers()
            os.kill(before[1], number)
            # What comes before that is noticed is lost; what comes after it is in a new one.
            with contextlib.suppress(sandbox.SandboxLost):
                assert inside(box, TRY)["unix"] == "ENOENT"
            assert until(are_gone(before))


FLOOD = """
import os, resource, socket, sys, time
server = socket.socket(socket.AF_UNIX)
server.bind("/tmp/flood")
server.listen(0)
for i in range(int(sys.argv[1])):
    if os.fork() == 0:
        socket.socket(socket.AF_UNIX).connect("/tmp/flood")
        time.sleep(99)
open("ready", "w").close()
time.sleep(99)
"""


def _fds(pid: int) -> int:
    """How many fds a process has; nobody but root may see those of a helper."""
    return len(os.listdir(f"/proc/{pid}/fd")) if os.getuid() == 0 else 0


def a_flood_of_one_lane_does_not_starve_another(w: Path, o: Path) -> None:
    with space(w) as box:
        inside(box, {"server": f"exec({LISTEN!r})"})
        supervisor = helpers()[1]
        fds = _fds(supervisor)
        with box.popen(program(FLOOD, 400)) as flood:
            assert until((w / "ready").exists, 20)
            time.sleep(0.5)
            serve = f"{LISTEN.replace('/tmp/s', '/tmp/t')}c = socket.socket(1); c.connect('/tmp/t')"
            for _ in range(5):
                began = time.monotonic()
                assert box.run(program(serve + "; import os; os.unlink('/tmp/t')")).ok
                assert time.monotonic() - began < 3
            assert _fds(supervisor) <= fds + 8
            began = time.monotonic()
            flood.kill()
            flood.wait()
            assert time.monotonic() - began < 5
        assert inside(box, {"udp": TRY["udp"]}) == {"udp": "ok"}


MANY = """
import os, resource, socket, sys, threading, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
os.chdir("/tmp")
left, kept = 20000, []
while left > 0:
    count, ends = min(left, hard - 20), os.pipe()
    if os.fork() == 0:
        for i in range(count):
            kept.append(socket.socket(1))
            kept[-1].bind(f"\\0{left}-{i}")
            kept[-1].listen(0)
        os.write(ends[1], b"x")
        time.sleep(99)
    os.read(ends[0], 1)
    left -= count
def block(name):
    for sock in (socket.socket(1), socket.socket(1)):
        kept.append(sock)
        sock.connect(name)
for i in range(64):
    server = socket.socket(1)  # the threads put theirs into the same list
    kept.append(server)
    server.bind(f"full{i}")
    server.listen(0)
    threading.Thread(target=block, args=(f"full{i}",)).start()
open("ready", "w").close()
time.sleep(99)
"""


def thousands_of_sockets_do_not_keep_the_supervisor_from_others(w: Path, o: Path) -> None:
    """Each of its connects that wait asks for the list of all; lanes are started in between."""
    with space(w) as box:
        ready = {"ready": "os.stat('/tmp/ready')"}
        with box.popen(program(MANY)) as many:
            assert until(lambda: inside(box, ready) == {"ready": "ok"}, 60)
            time.sleep(0.5)
            began = time.monotonic()
            threads = [threading.Thread(target=box.run, args=("sleep 1",)) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert time.monotonic() - began < 4  # each would wait a second for its lane
            many.kill()


def a_command_is_ended_while_it_connects(w: Path, o: Path) -> None:
    code = LISTEN.replace("99", "0") + (
        "a, b = socket.socket(1), socket.socket(1); a.connect('/tmp/s'); b.connect('/tmp/s')"
    )
    with space(w) as box:
        result = box.run(program(code), timeout=1)
        assert result.timed_out and result.duration < 3
        assert inside(box, {"udp": TRY["udp"]}) == {"udp": "ok"}


def attempts_come_with_the_result_of_their_command(w: Path, o: Path) -> None:
    acts = {
        "tcp": "[socket.socket().connect_ex(('192.0.2.1', 80)) for _ in range(9)]",
        "six": "socket.socket(10).connect(('2001:db8::1', 443))",
        "udp": "socket.socket(2, 2).connect(('192.0.2.1', 53))",
        "own": "socket.socket().connect(('127.0.0.1', 1))",
        "socket": "socket.socket(1).connect(A[0])",
        "nothing": "socket.socket(1).connect('/tmp/nothing')",
    }
    with listening(str(w / "s"), socket.AF_UNIX), space(w) as box:
        result = box.run(words(acts, w / "s"))
        assert [(one.kind, one.what) for one in result.denials] == [
            ("network", "192.0.2.1:80/tcp"),
            ("network", "[2001:db8::1]:443/tcp"),
            ("network", "192.0.2.1:53/udp"),
            ("socket", str(w / "s")),
        ], result.denials
        assert result.denials[0].evidence == "filter" and result.denials[0].certain
        assert box.run("true").denials == ()
        many = {"many": "[socket.socket().connect_ex(('192.0.2.1', 1 + n)) for n in range(40)]"}
        result = box.run(words(many))
        assert len(result.denials) == 33 and result.denials[-1].what == "8 more"
        process = box.popen(words({"tcp": acts["tcp"]}))
        assert [one.what for one in process.wait().denials] == ["192.0.2.1:80/tcp"]


def bad_addresses_and_fds_are_answered_as_by_the_kernel(w: Path, o: Path) -> None:
    acts = {
        "no fd": "call(CONNECT, 99, struct.pack('H14x', 2), 16)",
        "no socket": "call(CONNECT, os.open('/dev/null', 0), struct.pack('H14x', 2), 16)",
        "no memory": "(lambda s: call(CONNECT, s.fileno(), 8, 16))(socket.socket())",
        "long": "(lambda s: call(CONNECT, s.fileno(), bytes(200), 200))(socket.socket())",
        "negative": "(lambda s: call(CONNECT, s.fileno(), bytes(16), -1))(socket.socket())",
        "short": "(lambda s: call(CONNECT, s.fileno(), struct.pack('H', 1), 2))(socket.socket(1))",
        "family": "(lambda s: call(CONNECT, s.fileno(), struct.pack('H14x', 2), 16))"
        "(socket.socket(1))",
        "missing": "socket.socket(1).connect('/tmp/nothing')",
        "a file": "(open('f', 'w'), socket.socket(1).connect('f'))",
        "closed": "socket.socket().connect(('127.0.0.1', 1))",
    }
    with space(w) as box:
        (w / "f").unlink(missing_ok=True)
        number = str({"x86_64": 42, "aarch64": 203}[os.uname().machine])
        acts = {name: act.replace("CONNECT", number) for name, act in acts.items()}
        found = inside(box, acts)
        os.chdir(w)
        bare = outside(acts)
        assert found == bare, (found, bare)
        pair = {"pair": "socket.socketpair()[0].connect('/tmp/nothing')"}
        assert inside(box, pair) == {"pair": "EISCONN"}  # the kernel looks for the path first
        assert found["short"] == "EINVAL" and found["no memory"] == "EFAULT"


def a_process_has_one_listener_and_then_landlock_does(w: Path, o: Path) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("count", ctypes.c_ushort), ("code", ctypes.c_void_p))

    allow = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    number = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
    mine = Program(1, ctypes.addressof(allow))
    assert libc.syscall(number, 1, 8, ctypes.byref(mine)) >= 0
    with Sandbox(workspace_write(w), workspace=w) as box:
        assert box.enforcement.isolation == "landlock"
        cause = {part.part: part.cause for part in box.enforcement.weaker}["namespaces"]
        assert "supervisor" in cause and "busy" in cause, cause
        found = inside(box, {"unix": "socket.socket(1).connect('/tmp/nothing')"})
        assert found == {"unix": "EPERM"}
    try:
        with space(w):
            raise AssertionError("namespaces without a supervisor")
    except sandbox.Unenforceable as error:
        assert "supervisor" in str(error)
