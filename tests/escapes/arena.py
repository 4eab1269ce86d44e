"""Runs every probe outside and inside sandboxes, and looks from outside at what each one did.

Runs by itself (`arena.py PLACE`), as root or as an ordinary user; prints one JSON object. What a
probe says of itself is not believed: each run is followed by a look at files, listeners and the
victim, made and held by this process. All probes of a policy are tried below one command, a process
each: starting an interpreter for every one took most of the time.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import hashlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import sandbox
from sandbox import Sandbox, SandboxPolicy, read_only, workspace_write

PROBES = Path(__file__).with_name("probes.py")
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
PYTHON = next(p for p in ("/usr/bin/python3", "/usr/local/bin/python3") if os.access(p, os.X_OK))

VICTIM = """
import ctypes, os, signal, sys, time
held = os.open(sys.argv[1], os.O_RDONLY)
secret = ctypes.create_string_buffer(b"in-memory-secret")
def note(number, frame):
    with open(sys.argv[2], "a") as file:
        file.write(f"{number}\\n")
signal.signal(signal.SIGUSR1, note)
signal.signal(signal.SIGIO, note)
os.chdir(sys.argv[3])
print(held, ctypes.addressof(secret), flush=True)
while True:
    time.sleep(1)
"""


class Listeners:
    """What is there to be reached on this machine; counts who came."""

    def __init__(self, place: Path, outside: Path) -> None:
        self.count = 0
        self.handed = place / "handed-out"
        self.handed.write_bytes(b"")
        self.name = f"sandbox-escape-{os.getpid()}"
        self._sockets: list[socket.socket] = []
        self.tcp = self._stream(socket.AF_INET6, ("::", 0)) or self._stream(
            socket.AF_INET, ("127.0.0.1", 0)
        )
        self.udp = self._datagram(socket.AF_INET, ("127.0.0.1", 0))
        self._stream(socket.AF_UNIX, f"{outside}/srv.sock")
        self._datagram(socket.AF_UNIX, f"{outside}/dg.sock")
        self._stream(socket.AF_UNIX, "\0" + self.name)
        self._datagram(socket.AF_UNIX, "\0" + self.name + "-d")

    def _stream(self, family: int, address: Any) -> int:
        sock = socket.socket(family)
        try:
            sock.bind(address)
        except OSError:
            return 0
        sock.listen()
        self._keep(sock, self._accept)
        return sock.getsockname()[1] if family != socket.AF_UNIX else 1

    def _datagram(self, family: int, address: Any) -> int:
        sock = socket.socket(family, socket.SOCK_DGRAM)
        sock.bind(address)
        self._keep(sock, self._receive)
        return sock.getsockname()[1] if family != socket.AF_UNIX else 1

    def _keep(self, sock: socket.socket, work: Any) -> None:
        self._sockets.append(sock)
        threading.Thread(target=work, args=(sock,), daemon=True).start()

    def _accept(self, sock: socket.socket) -> None:
        while True:
            peer = sock.accept()[0]
            self.count += 1
            if sock.family == socket.AF_UNIX:
                with open(self.handed, "r+b") as file:
                    fds = array.array("i", [file.fileno()])
                    with contextlib.suppress(OSError):
                        peer.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
            peer.close()

    def _receive(self, sock: socket.socket) -> None:
        while True:
            sock.recv(100)
            self.count += 1


def _flags(path: str) -> int:
    import fcntl

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(fd, 0x80086601, bytes(8)), "little")
    except OSError:
        return 0
    finally:
        os.close(fd)


def _look(path: Path) -> tuple[Any, ...]:
    found = path.lstat()
    content, flags = "", 0
    if path.is_file() and not path.is_symlink():
        content, flags = hashlib.sha256(path.read_bytes()).hexdigest()[:12], _flags(str(path))
    marks = (
        {name: os.getxattr(path, name) for name in os.listxattr(path, follow_symlinks=False)}
        if not path.is_symlink()
        else {}
    )
    return (
        found.st_mode,
        found.st_uid,
        found.st_gid,
        found.st_nlink if path.is_file() else 0,
        found.st_mtime_ns if path.is_file() else 0,
        content,
        flags,
        str(sorted(marks.items())),
    )


class Arena:
    """A workspace, what lies outside of it, and the looks from outside."""

    other = ""  # a file of another sandbox

    def __init__(self, place: Path) -> None:
        self.place = place
        self.workspace, self.outside = place / "workspace", place / "outside"
        self.home = Path.home()
        self.secrets = self.home / ".ssh"
        self.signals = place / "signals"
        self.signals.write_text("")
        self.last: dict[str, str] = {}
        self.felt: set[str] = set()  # what had an effect on a process or a listener, outside
        self.reset()
        self.listeners = Listeners(place, self.outside)
        self.keep = os.open(self.outside / "fifo", os.O_RDWR)  # so that writing does not fail
        self.full = os.open(self.outside / "full", os.O_RDWR | os.O_NONBLOCK)
        self.victim = self._start_victim()
        self.key = 0x5A000000 + os.getpid()
        LIBC.syscall(68, self.key, 0o1600)
        LIBC.syscall(29, self.key, 4096, 0o1600)
        self.queue = f"sandbox-escape-{os.getpid()}"
        LIBC.syscall(240, self.queue.encode(), os.O_CREAT | os.O_RDWR, 0o600, 0)
        self.keyring = LIBC.syscall(248, b"user", b"sandbox-escape", b"kept", 4, -4)
        self.inherited = self._inheritance()

    def reset(self) -> None:
        """Makes the files as they are to be found."""
        for path in (self.workspace, self.outside, self.secrets):
            path.mkdir(exist_ok=True)
        outside = self.outside
        kept = {"srv.sock", "dg.sock", "fifo", "full"}
        for path in (*outside.iterdir(), *self.secrets.iterdir(), *self.workspace.iterdir()):
            if path.name not in kept:
                is_dir = path.is_dir() and not path.is_symlink()
                shutil.rmtree(path) if is_dir else path.unlink()
        (self.workspace / "f").write_text("workspace\n")
        (outside / "f").write_text("outside\n")
        (outside / "empty").mkdir()
        for name in ("fifo", "full"):
            if not (outside / name).exists():
                os.mkfifo(outside / name)
        (self.secrets / "key").write_text("SECRET-KEY\n")
        (self.secrets / "lone").write_text("SECRET-KEY\n")
        (self.secrets / "tool").write_text("#!/bin/sh\necho SECRET-KEY\n")
        (self.secrets / "tool").chmod(0o700)
        (self.secrets / "ln").symlink_to("where")
        os.link(self.secrets / "key", self.workspace / "alias_key")
        (self.workspace / "link_out").symlink_to(outside / "f")
        (self.workspace / "link_secret").symlink_to(self.secrets / "key")

    def _start_victim(self) -> subprocess.Popen[str]:
        held = self.place / "held"
        held.write_text("held open\n")
        env = {"VICTIM_TOKEN": "victim-secret", "PATH": "/usr/bin:/bin"}
        command = [PYTHON, "-c", VICTIM, str(held), str(self.signals), str(self.secrets)]
        victim = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        assert victim.stdout is not None
        self.held, self.address = map(int, victim.stdout.readline().split())
        return victim

    def _inheritance(self) -> list[int]:
        """Files that a careless caller leaves open for its children."""
        key = os.open(self.secrets / "key", os.O_RDONLY)
        log = os.open(self.place / "log", os.O_RDWR | os.O_CREAT, 0o600)
        os.write(log, b"a line of the audit log\n")
        peer = socket.create_connection(("127.0.0.1", self.listeners.tcp))
        fds = [key, log, peer.detach()]
        for fd in fds:
            os.set_inheritable(fd, True)
        return fds

    def files(self) -> dict[str, str]:
        """The files that an escape could have changed."""
        found = {}
        for top in (self.outside, self.secrets, self.place / "log", self.listeners.handed):
            for path in (top, *sorted(top.rglob("*"))) if top.is_dir() else (top,):
                if not os.path.lexists(path):
                    continue
                found[str(path)] = str(_look(path))
        return found

    def effects(self) -> dict[str, str]:
        """All else: processes, listeners, queues."""
        pid = self.victim.pid
        found = {"signals": self.signals.read_text()}
        found["victim"] = str(
            (
                [resource.prlimit(pid, kind) for kind in (4, 7)],
                os.getpriority(os.PRIO_PROCESS, pid),
                LIBC.syscall(252, 1, pid),
                Path(f"/proc/{pid}/oom_score_adj").read_text(),
                self.victim.poll(),
            )
        )
        found["reached"] = str(self.listeners.count)
        found["queues"] = _queues()
        return found

    def context(self, isolation: str, network: str) -> Path:
        """What a probe has to know, as a file in the workspace."""
        names = {
            "W": str(self.workspace), "O": str(self.outside), "S": str(self.secrets),
            "V": self.victim.pid, "held": self.held, "address": self.address,
            "caller": os.getpid(), "tcp": self.listeners.tcp, "tcp6": self.listeners.tcp,
            "udp": self.listeners.udp, "abstract": self.listeners.name, "key": self.key,
            "queue": self.queue, "keyring": self.keyring, "fds": self.inherited,
            "inside": bool(isolation), "other": self.other,
            # Families of sockets that may be made: those that stay in a network of its own.
            "families": [2, 10, 16] if "full" in network or isolation == "namespaces" else [],
        }  # fmt: skip
        path = self.place / "context.json"
        path.write_text(json.dumps(names))
        return path

    def run(self, name: str, bench: Bench) -> dict[str, Any]:
        """One probe, and what it changed outside."""
        self.reset()
        os.pwrite(self.inherited[1], b"a line of the audit log\n", 0)
        os.write(self.full, b"message")
        before = self.files() | self.last
        result = bench.ask(name)
        # Signals, datagrams and connections arrive later; where they did outside, they are awaited.
        patience = 0.3 if bench.slow else 1.0 if name in self.felt else 0.0
        end = time.monotonic() + patience
        last, self.last = self.last, self.effects()
        while result["verdict"] == "allowed" and name.startswith(("PRC", "IPC", "NET")):
            if self.last != last or time.monotonic() > end:
                break
            time.sleep(0.01)
            self.last = self.effects()
        if bench.slow and self.last != last:
            self.felt.add(name)
        after = self.files() | self.last
        changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
        result["changed"] = changed
        return result

    def run_all(self, names: list[str], box: Sandbox | None, network: str) -> dict[str, Any]:
        """All of these, outside or in a sandbox.

        What comes late is found with the next one, or at the end.
        """
        self.reset()
        isolation = "" if box is None else box.enforcement.isolation
        context = self.context(isolation, network)
        program = shutil.copy(PROBES, self.place)  # ours may lie in a /tmp that is not there inside
        bench = Bench(self, [PYTHON, "-I", "-S", program, str(context)], box)
        self.last = self.effects()
        found = {name: self.run(name, bench) for name in names}
        bench.close()
        time.sleep(0.3)
        late = self.effects()
        changed = [key for key in late if late[key] != self.last[key]]
        found[names[-1]]["changed"] += changed
        return found


class Bench:
    """The process that tries one probe after the other, outside or in a sandbox."""

    def __init__(self, arena: Arena, command: list[str], box: Sandbox | None) -> None:
        self.slow = box is None  # outside there are effects to wait for
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self._read = b""
        self._output = open(arena.place / "output", "w+b")  # noqa: SIM115
        self._done: list[str] = []

        def work() -> None:
            try:
                if box is None:
                    subprocess.run(
                        command, stdin=orders, stdout=self._output, stderr=answers,
                        close_fds=False, cwd=arena.workspace,
                    )  # fmt: skip
                else:
                    where = str(arena.workspace)
                    done = box.run(command, cwd=where, timeout=120, stdin=orders, stderr=answers)
                    self._done.append(done.text)
            except Exception as error:
                self._done.append(repr(error))
            finally:
                os.close(orders)
                os.close(answers)

        self._thread = threading.Thread(target=work)
        self._thread.start()

    def ask(self, name: str) -> dict[str, Any]:
        """Has a probe tried, and waits until its process has ended."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._orders, name.encode() + b"\n")
        while b"\nend " not in self._read or not self._read.endswith(b"\n"):
            part = os.read(self._answers, 1 << 16)
            if not part:
                return {"verdict": "broken", "errno": "", "note": f"it is gone: {self._done}"}
            self._read += part
        output, _, status = self._read.rpartition(b"\nend ")
        self._read = b""
        return _parse(output, int(status))

    def close(self) -> None:
        """Lets it end."""
        os.close(self._orders)
        self._thread.join()
        os.close(self._answers)
        self._output.close()


def _queues() -> str:
    try:
        with open("/proc/sysvipc/msg") as file:
            return file.read()
    except OSError:
        return ""


def _parse(output: bytes, status: int) -> dict[str, Any]:
    for line in reversed(output.split(b"\n")):
        if line.strip(b"\0").startswith(b"{"):
            parsed: dict[str, Any] = json.loads(line.strip(b"\0"))
            return parsed
    if b"SECRET-KEY" in output:
        return {"verdict": "allowed", "errno": "", "note": "ran what is denied"}
    if status == -signal.SIGSYS:
        return {"verdict": "blocked", "errno": "SIGSYS", "note": "killed by the filter"}
    return {"verdict": "broken", "errno": "", "note": f"{status} {output[-300:]!r}"}


def _policies(names: list[str]) -> dict[str, tuple[SandboxPolicy, str, list[str]]]:
    files = [name for name in names if name[:3] in ("FSW", "FSM", "FSR", "OWN")]
    roads = [name for name in names if name[:3] in ("IPC", "NET", "OWN", "SYS")]
    return {
        "workspace": (workspace_write(), "none", names),
        "readonly": (read_only(), "none", files),
        "network": (workspace_write(network="full"), "full", roads),
    }


def _inside(arena: Arena, names: list[str], isolation: str) -> dict[str, Any]:
    """What every policy of one isolation made of them."""
    results: dict[str, Any] = {}
    os.environ["SANDBOX_ISOLATION"] = "auto" if isolation == "namespaces" else isolation
    for title, (policy, network, some) in _policies(names).items():
        place = str(arena.workspace) if title != "readonly" else None
        policy = policy.with_require("namespaces") if isolation == "namespaces" else policy
        with Sandbox(policy, workspace=place) as box:
            results[title] = arena.run_all(some, box, network)
            results[title]["weaker"] = [item.part for item in box.enforcement.weaker]
            results[title]["isolation"] = box.enforcement.isolation
    return results


def main() -> None:
    warnings.simplefilter("ignore")
    assert "ESCAPE_TOKEN" in os.environ and "BASH_ENV" in os.environ
    sys.path.insert(0, str(PROBES.parent))
    from probes import Probes

    names = [name for name in vars(Probes) if name[:3].isupper() and name[3:5].isdigit()]
    if len(sys.argv) > 2:
        names = [name for name in names if name in sys.argv[2:]]
    arena = Arena(Path(sys.argv[1]))
    os.environ["SANDBOX_ISOLATION"] = "landlock"  # whose temporary files have a name outside
    other = Sandbox(workspace_write(), workspace=str(arena.workspace))
    seat_file = Path(other.resolved.tmp) / "note"
    seat_file.write_text("of another sandbox\n")
    arena.other = str(seat_file)
    results: dict[str, Any] = {"outside": arena.run_all(names, None, "none")}
    for isolation in ("landlock", "namespaces"):
        results[isolation] = _inside(arena, names, isolation)
    other.close()
    arena.victim.kill()
    LIBC.syscall(241, arena.queue.encode())
    for number, remove in ((68, 71), (29, 31)):
        LIBC.syscall(remove, LIBC.syscall(number, arena.key, 0), 0, None)
    LIBC.syscall(250, 9, arena.keyring, -4)
    print(json.dumps(results))


if __name__ == "__main__":
    assert sandbox.__version__
    main()
    sys.stdout.flush()
    os._exit(0)
