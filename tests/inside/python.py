"""Python: event loops, pools, sockets, servers."""

from __future__ import annotations

from insidekit import Fails, Row, script

_ASYNCIO = """
import asyncio, signal, sys, threading

async def main():
    loop = asyncio.get_running_loop()
    called = asyncio.Event()
    threading.Timer(0.05, loop.call_soon_threadsafe, [called.set]).start()
    await asyncio.wait_for(called.wait(), 10)
    assert await asyncio.to_thread(lambda: 42) == 42
    child = await asyncio.create_subprocess_exec(
        "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(child.communicate(b"x" * 300_000), 10)
    assert len(out) == 300_000 and child.returncode == 0
    many = [await asyncio.create_subprocess_shell(f"exit {i}") for i in range(8)]
    assert [await asyncio.wait_for(one.wait(), 10) for one in many] == list(range(8))
    signalled = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, signalled.set)
    await asyncio.create_subprocess_shell("kill -USR1 $PPID")
    await asyncio.wait_for(signalled.wait(), 10)

asyncio.run(main())
print("works")
"""

_POOLS = """
import multiprocessing as mp, os, sys
from concurrent.futures import ProcessPoolExecutor

def square(x):
    return x * x

def add(lock, value):
    for _ in range(100):
        with lock:
            value.value += 1

def pool(context):
    with context.Pool(2) as pool:
        assert pool.map(square, range(10)) == [x * x for x in range(10)]

def lock(context):
    lock, value = context.Lock(), context.Value("i", 0, lock=False)
    workers = [context.Process(target=add, args=(lock, value)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert value.value == 300

def manager(context):
    with context.Manager() as manager:
        shared = manager.dict()
        worker = context.Process(target=shared.update, args=({"a": 1},))
        worker.start()
        worker.join()
        assert dict(shared) == {"a": 1}

def executor(context):
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        assert sum(pool.map(square, range(10))) == 285

if __name__ == "__main__":
    globals()[sys.argv[1]](mp.get_context(sys.argv[2]))
    print("works")
"""

_SHARED = """
import mmap, os
from multiprocessing import shared_memory

block = shared_memory.SharedMemory(create=True, size=1 << 16)
other = shared_memory.SharedMemory(block.name)
block.buf[:5] = b"hello"
assert bytes(other.buf[:5]) == b"hello"
other.close(); block.close(); block.unlink()
fd = os.memfd_create("x")
os.truncate(fd, 4096)
mmap.mmap(fd, 4096)[:2] = b"ok"
assert os.pread(fd, 2, 0) == b"ok"
print("works")
"""

_SERVER = """
import http.server, socket, sys, threading, urllib.request

class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET

with Server((sys.argv[1], 0), http.server.SimpleHTTPRequestHandler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host = f"[{sys.argv[1]}]" if ":" in sys.argv[1] else sys.argv[1]
    url = f"http://{host}:{server.server_port}/program.py"
    assert b"SimpleHTTPRequestHandler" in urllib.request.urlopen(url, timeout=10).read()
    server.shutdown()
print("works")
"""

_PAIRS = """
import array, os, select, socket, threading

for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    a, b = socket.socketpair(type=kind)
    threading.Thread(target=a.sendall, args=(b"x" * 1000,)).start()
    assert len(b.recv(1000)) == 1000
    r, w = os.pipe()
    socket.send_fds(a, [b"fd"], [w])
    data, (fd,), _, _ = socket.recv_fds(b, 10, 1)
    os.write(fd, b"through")
    assert os.read(r, 10) == b"through"
    a.settimeout(0.05)
    try:
        a.recv(1)
        raise SystemExit("no time-out")
    except TimeoutError:
        pass
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
    assert b.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == kind
    a.shutdown(socket.SHUT_WR)
    assert select.select([b], [], [], 5)[0] and b.recv(1) == b""
print("works")
"""

_NO_INET = "without a network namespace there is no loopback of its own, and no inet socket"
_NO_SHM = "/dev/shm is the host's there, and not writable"
_UNIX = "a Unix socket cannot be told from a service's: connecting is refused"


def _pool(what: str, method: str) -> Row:
    landlock = {
        "pool": Fails("Permission denied", _NO_SHM),
        "lock": Fails("Permission denied", _NO_SHM),
        "executor": Fails("Permission denied", _NO_SHM),
        "manager": Fails("Operation not permitted", _UNIX),
    }
    return Row(**script(_POOLS, what, method), answers={"landlock": landlock[what]})


ROWS = {
    "asyncio": Row(**script(_ASYNCIO)),
    **{
        f"multiprocessing-{what}-{method}": _pool(what, method)
        for what in ("pool", "lock", "manager", "executor")
        for method in ("fork", "spawn", "forkserver")
    },
    "shared-memory": Row(
        **script(_SHARED), answers={"landlock": Fails("Permission denied", _NO_SHM)}
    ),
    "http-ipv4": Row(
        **script(_SERVER, "127.0.0.1"),
        answers={"landlock": Fails("Operation not permitted", _NO_INET)},
    ),
    "http-ipv6": Row(
        **script(_SERVER, "::1"), answers={"landlock": Fails("Operation not permitted", _NO_INET)}
    ),
    "socket-pairs": Row(**script(_PAIRS)),
}
