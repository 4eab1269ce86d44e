"""One attempt to escape, by its number in the catalogue; says what came of it as JSON.

Runs by itself (`probes.py CONTEXT`) with nothing but the standard library, the same inside a
sandbox and outside it: reads ids from its input, and tries each in a process of its own. A probe
returns what it got hold of (the attempt succeeded) or raises OSError (it was refused). All of them
are bounded, and aim only at what the runner made for them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import stat
import struct
import sys
import threading
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
AT_FDCWD = -100
NEWUSER, NEWNS = 0x10000000, 0x00020000


class Won(Exception):
    """It worked."""


class NotHere(Exception):
    """There is nothing to attack here."""


def call(number: int, *args: Any) -> int:
    """A raw system call; integers are passed as 64-bit words."""
    words = [ctypes.c_ulong(a & (2**64 - 1)) if isinstance(a, int) else a for a in args]
    result = int(LIBC.syscall(ctypes.c_long(number), *words))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def write(path: str, text: str = "x", flags: int = os.O_CREAT) -> str:
    fd = os.open(path, os.O_WRONLY | flags, 0o644)
    os.write(fd, text.encode())
    os.close(fd)
    return f"wrote {path}"


def read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(300).decode("utf-8", "replace")


class Probes:
    """The attempts, on W (the workspace), O (outside), S (secrets), V (a victim process)."""

    def __init__(self, context: dict[str, Any]) -> None:
        self.context = context
        self.W, self.O, self.S = context["W"], context["O"], context["S"]
        self.V: int = context["V"]
        self.lane: int = context["lane"]

    # FSW: writes outside.

    def FSW01(self) -> str:
        return write(f"{self.O}/new")

    def FSW02(self) -> str:
        return write(f"{self.O}/f", flags=0)

    def FSW04(self) -> str:
        os.close(os.open(f"{self.O}/f", os.O_RDONLY | os.O_TRUNC))
        return "truncated"

    def FSW05(self) -> str:
        os.unlink(f"{self.O}/f")
        return "unlinked"

    def FSW06(self) -> str:
        os.mkdir(f"{self.O}/d")
        os.rmdir(f"{self.O}/d")
        return "made and removed"

    def FSW06b(self) -> str:
        os.rmdir(f"{self.O}/empty")
        return "removed"

    def FSW08(self) -> str:
        os.mknod(f"{self.O}/n", stat.S_IFREG | 0o600)
        return "made"

    def FSW08b(self) -> str:
        os.mkfifo(f"{self.O}/p")
        return "made"

    def FSW09(self) -> str:
        os.rename(f"{self.W}/f", f"{self.O}/f")
        return "moved out"

    def FSW09b(self) -> str:
        os.link(f"{self.O}/f", f"{self.W}/linked")
        return "linked in"

    def FSW09c(self) -> str:
        os.rename(f"{self.O}/f", f"{self.W}/moved")
        return "moved in"

    def FSW10(self) -> str:
        call(316, AT_FDCWD, f"{self.W}/f".encode(), AT_FDCWD, f"{self.O}/f".encode(), 2)
        return "exchanged"

    def FSW12(self) -> str:
        return write(f"{self.W}/link_out", flags=os.O_APPEND)

    def FSW13(self) -> str:
        return write(f"/proc/self/root{self.O}/f", flags=0)

    def FSW13b(self) -> str:
        os.chdir(self.W)
        return write(f"/proc/self/cwd/../{os.path.basename(self.O)}/f", flags=0)

    def FSW14(self) -> str:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(f"{self.O}/s")
        return "made"

    def FSW16(self) -> str:
        fd = os.open(f"{self.O}/f", os.O_RDONLY)
        return write(f"/proc/self/fd/{fd}", flags=0)

    def _by_handle(self, path: str, flags: int) -> int:
        handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
        mount = ctypes.c_int()
        call(303, AT_FDCWD, path.encode(), handle, ctypes.byref(mount), 0)
        top = os.open(os.path.dirname(path), os.O_RDONLY)
        return call(304, top, handle, flags)

    def FSW17(self) -> str:
        os.write(self._by_handle(f"{self.O}/f", os.O_RDWR), b"x")
        return "wrote"

    def FSW18(self) -> str:
        for _ in range(20):  # until both paths were seen
            last = self._race()
            if last:
                raise OSError(last, os.strerror(last))
        raise NotHere("the flips were not seen")

    def _race(self) -> int:
        """Opens what is flipped between a path inside and one outside; how it is refused."""
        inner, outer = f"{self.W}/f".encode(), f"{self.O}/f".encode()
        size = max(len(inner), len(outer)) + 1
        shared = mmap.mmap(-1, 4096)
        address = ctypes.addressof(ctypes.c_char.from_buffer(shared))
        child = os.fork()
        if child == 0:
            for _ in range(60_000):
                shared[:size] = inner.ljust(size, b"\0")
                shared[:size] = outer.ljust(size, b"\0")
            os._exit(0)
        wanted, last = os.stat(outer).st_ino, 0
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            try:
                fd = call(257, AT_FDCWD, ctypes.c_void_p(address), os.O_WRONLY, 0)
            except OSError as error:
                last = last if error.errno == errno.ENOENT else error.errno or 0
                continue
            found = os.fstat(fd).st_ino
            os.close(fd)
            if found == wanted:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise Won("won the race")
        return last

    # FSM: metadata and locks outside.

    def FSM01(self) -> str:
        os.chmod(f"{self.O}/f", 0o600)
        return "chmod"

    def FSM02(self) -> str:
        os.fchmod(os.open(f"{self.O}/f", os.O_RDONLY), 0o640)
        return "fchmod"

    def FSM04(self) -> str:
        group = next((g for g in os.getgroups() if g != os.getgid()), os.getgid())
        os.chown(f"{self.O}/f", -1, 12345 if os.getuid() == 0 else group)
        if group == os.getgid() and os.getuid() != 0:
            raise NotHere("the user has one group only")
        return "chown"

    def FSM05(self) -> str:
        os.utime(f"{self.O}/f", (1, 1))
        return "utime"

    def FSM06(self) -> str:
        os.setxattr(f"{self.O}/f", "user.x", b"1")
        return "setxattr"

    def FSM08(self) -> str:
        fcntl.flock(os.open(f"{self.O}/f", os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        return "locked"

    def FSM09(self) -> str:
        fd = os.open(f"{self.O}/f", os.O_RDONLY)
        flags = bytearray(fcntl.ioctl(fd, 0x80086601, bytes(8)))
        flags[0] ^= 0x40  # FS_NODUMP_FL
        fcntl.ioctl(fd, 0x40086602, bytes(flags))
        return "set an inode flag"

    def FSM10(self) -> str:
        fd = os.open(f"{self.O}/f", os.O_RDONLY)
        fcntl.ioctl(fd, 0x40806685, struct.pack("IIII", 1, 1, 4096, 0).ljust(128, b"\0"))
        return "sealed by verity"

    def FSM12(self) -> str:
        old = ctypes.create_string_buffer(24)
        call(468, AT_FDCWD, f"{self.O}/f".encode(), old, 24, 0)
        flags = struct.unpack("Q", old.raw[:8])[0] ^ 0x80  # FS_XFLAG_NODUMP
        call(469, AT_FDCWD, f"{self.O}/f".encode(), struct.pack("Q", flags) + old.raw[8:], 24, 0)
        return "set an inode flag"

    def FSM13(self) -> str:
        fd = os.open(f"{self.O}/f", os.O_RDONLY)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        return "leased"

    def FSM14(self) -> str:
        os.write(os.open(f"{self.O}/fifo", os.O_WRONLY | os.O_NONBLOCK), b"cmd")
        return "written"

    # FSR: reading what is denied.

    def FSR01(self) -> str:
        return read(f"{self.S}/key")

    def FSR02(self) -> str:
        return read(f"{self.W}/link_secret")

    def FSR04(self) -> str:
        return read(f"{self.W}/alias_key")

    def FSR05(self) -> str:
        return str(os.listdir(self.S))

    def FSR06(self) -> str:
        return str(os.stat(f"{self.S}/key").st_size)

    def FSR08(self) -> str:
        return os.readlink(f"{self.S}/ln")

    def FSR09(self) -> str:
        return read(f"/proc/self/fd/{os.open(f'{self.S}/key', os.O_PATH)}")

    def FSR09b(self) -> str:
        return read(f"/proc/self/root{self.S}/key")

    def FSR09c(self) -> str:
        os.chdir(self.S)
        return read("key")

    def FSR09d(self) -> str:
        fd = os.open(self.S, os.O_PATH | os.O_DIRECTORY)
        return os.read(os.open("key", os.O_RDONLY, dir_fd=fd), 100).decode()

    def FSR09e(self) -> str:
        os.link(f"{self.S}/lone", f"{self.W}/stolen")
        return read(f"{self.W}/stolen")

    def FSR09g(self) -> str:
        os.dup2(2, 1)  # where the answers go
        os.execv(f"{self.S}/tool", ["tool"])

    def FSR09h(self) -> str:
        return read(f"/proc/{self.V}/root{self.S}/key")

    def FSR09i(self) -> str:
        return read(f"/proc/{self.V}/cwd/key")

    def FSR10(self) -> str:
        return os.read(self._by_handle(f"{self.S}/key", os.O_RDONLY), 100).decode()

    def FSR14(self) -> str:
        group = call(300, 0x200, os.O_RDONLY)  # FAN_REPORT_FID
        call(301, group, 1, 0x20, AT_FDCWD, self.S.encode())
        return "watches"

    def FSR16(self) -> str:
        return read(f"{self.S}/key")

    # PRC: other processes.

    def PRC01(self) -> str:
        return read(f"/proc/{self.V}/environ")

    def PRC02(self) -> str:
        fd = os.open(f"/proc/{self.V}/mem", os.O_RDONLY)
        return os.pread(fd, 4, self.context["address"]).hex()

    def PRC04(self) -> str:
        return read(f"/proc/{self.V}/fd/{self.context['held']}")

    def PRC05(self) -> str:
        call(101, 0x4206, self.V, 0, 0)  # PTRACE_SEIZE
        return "traces"

    def PRC06(self) -> str:
        here = ctypes.create_string_buffer(4)
        mine = struct.pack("QQ", ctypes.addressof(here), 4)
        call(310, self.V, mine, 1, struct.pack("QQ", self.context["address"], 4), 1, 0)
        return here.raw.hex()

    def PRC08(self) -> str:
        fd = call(438, os.pidfd_open(self.V), self.context["held"], 0)
        return os.pread(fd, 50, 0).decode()

    def PRC09(self) -> str:
        os.kill(self.V, signal.SIGUSR1)
        return "sent"

    def PRC10(self) -> str:
        signal.pidfd_send_signal(os.pidfd_open(self.V), signal.SIGUSR1)
        return "sent"

    def PRC10b(self) -> str:
        """SIGIO to an outsider, by the owner of a socket."""
        one, other = socket.socketpair()
        fcntl.fcntl(one, fcntl.F_SETOWN, self.V)
        fcntl.fcntl(one, 10, signal.SIGUSR1)  # F_SETSIG
        fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        other.send(b"x")
        return "sent, if the victim noticed"

    def PRC10c(self) -> str:
        call(
            129, self.V, signal.SIGUSR1, struct.pack("iii", signal.SIGUSR1, 0, -1).ljust(128, b"\0")
        )
        return "queued"

    def PRC10d(self) -> str:
        call(234, self.V, self.V, signal.SIGUSR1)
        return "sent to a thread"

    def PRC12(self) -> str:
        resource.prlimit(self.V, resource.RLIMIT_CORE, (0, resource.prlimit(self.V, 4)[1]))
        return "limited"

    def PRC13(self) -> str:
        os.sched_setaffinity(self.V, os.sched_getaffinity(self.V))
        return "bound to processors"

    def PRC13b(self) -> str:
        os.setpriority(os.PRIO_PROCESS, self.V, 5)
        return "reniced"

    def PRC13c(self) -> str:
        call(251, 1, self.V, (2 << 13) | 6)
        return "its input and output slowed"

    def PRC14(self) -> str:
        return read(f"/proc/{self.V}/cmdline")

    def PRC16(self) -> str:
        return read(f"/proc/{self.context['caller']}/environ")

    def PRC16b(self) -> str:
        """Of all processes that can be read, the first that holds the caller's secret."""
        mine = {os.getpid()}
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in mine:
                try:
                    if "ESCAPE_TOKEN" in read(f"/proc/{name}/environ"):
                        return f"in {name}"
                except OSError:
                    continue
        raise PermissionError(errno.EACCES, "none")

    def PRC17(self) -> str:
        return write(f"/proc/{self.V}/oom_score_adj", "10", 0)

    def PRC17b(self) -> str:
        """The process above: a lane, whose memory and files commands must not have."""
        parent = self.lane
        got = []
        for name, flags in (("mem", os.O_RDWR), ("environ", os.O_RDONLY), ("maps", os.O_RDONLY)):
            try:
                os.close(os.open(f"/proc/{parent}/{name}", flags))
                got.append(name)
            except OSError:
                continue
        with contextlib.suppress(OSError):
            got.append(os.readlink(f"/proc/{parent}/fd/0"))
        if not got:
            raise PermissionError(errno.EACCES, "nothing")
        return str(got)

    def PRC17c(self) -> str:
        call(101, 0x4206, self.lane, 0, 0)
        return "traces its parent"

    def PRC17d(self) -> str:
        resource.prlimit(
            self.lane, resource.RLIMIT_NPROC, resource.getrlimit(resource.RLIMIT_NPROC)
        )
        return "limited its parent"

    def PRC18(self) -> str:
        child = os.fork()
        if child == 0:
            signal.pause()
        try:
            call(101, 0x4206, child, 0, 0)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        return "traces its own child"

    # IPC.

    def IPC01(self) -> str:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(f"{self.O}/srv.sock")
            _, fds, _, _ = socket.recv_fds(sock, 10, 1)
        os.write(fds[0], b"stolen")
        return "wrote by a file that was handed out"

    def IPC01b(self) -> str:
        """One end of a pair, aimed anew."""
        one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        one.connect(f"{self.O}/srv.sock")
        return "connected"

    def IPC01c(self) -> str:
        one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        one.sendmsg([b"x"], [], 0, f"{self.O}/dg.sock")
        return "sent"

    def IPC02(self) -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendmsg([b"x"], [], 0, f"{self.O}/dg.sock")
        return "sent"

    def IPC02b(self) -> str:
        """SOCK_RAW, which the kernel takes for datagrams."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_RAW) as sock:
            sock.sendmsg([b"x"], [], 0, f"{self.O}/dg.sock")
        return "sent"

    def IPC04(self) -> str:
        one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        one.sendmsg([b"x"], [], 0, f"{self.O}/dg.sock")
        return "sent"

    def IPC05(self) -> str:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect("\0" + self.context["abstract"])
        return "connected"

    def IPC06(self) -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendmsg([b"x"], [], 0, "\0" + self.context["abstract"] + "-d")
        return "sent"

    def IPC07(self) -> str:
        return str(call(29, self.context["key"], 4096, 0o600))

    def IPC08(self) -> str:
        queue = call(68, self.context["key"], 0)
        call(69, queue, struct.pack("q", 1) + b"x", 1, 0o4000)
        return "sent"

    def IPC09(self) -> str:
        call(240, self.context["queue"].encode(), os.O_WRONLY, 0, 0)
        return "opened"

    def IPC09b(self) -> str:
        call(240, b"sandbox-escape-new", os.O_WRONLY | os.O_CREAT, 0o600, 0)
        call(241, b"sandbox-escape-new")
        return "made"

    def IPC09c(self) -> str:
        call(241, self.context["queue"].encode())
        return "unlinked"

    def IPC10(self) -> str:
        buffer = ctypes.create_string_buffer(64)
        size = call(250, 11, self.context["keyring"], buffer, 64, 0)
        return buffer.raw[:size].decode()

    def IPC13(self) -> str:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as sock:
            sock.send(struct.pack("IHHIIB3x", 20, 18, 0x301, 1, 0, 0))
            return sock.recv(4096)[:4].hex()

    def IPC14(self) -> str:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4):
            return "opened"

    # NET.

    def NET01(self) -> str:
        socket.create_connection(("127.0.0.1", self.context["tcp"]), 5).close()
        return "connected"

    def NET02(self) -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"x", ("127.0.0.1", self.context["udp"]))
        return "sent"

    def NET04(self) -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as sock:
            sock.connect(("127.0.0.1", self.context["tcp"]))
        return "connected"

    def NET05(self) -> str:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            sock.listen()
        return "listens"

    def NET06(self) -> str:
        with socket.socket() as sock:
            sock.listen()
        return "listens"

    def NET08(self) -> str:
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
        return "made"

    def NET09(self) -> str:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).close()
        return "made"

    def NET10(self) -> str:
        if not self.context["tcp6"]:
            raise NotHere("no IPv6 here")
        socket.create_connection(("::1", self.context["tcp6"]), 5).close()
        return "connected"

    def NET10b(self) -> str:
        socket.create_connection(("::ffff:127.0.0.1", self.context["tcp"]), 5).close()
        return "connected"

    def NET12(self) -> str:
        call(425, 4, bytes(120))
        return "has a ring"

    def NET13(self) -> str:
        """socket(2) of i386, by int 0x80."""
        code = bytes.fromhex("53b867010000bb02000000b901000000ba00000000cd805bc3")
        return f"fd {_machine(code)}"

    def NET14(self) -> str:
        return f"fd {call(41 | 0x40000000, 2, 1, 0)}"

    def NET16(self) -> str:
        made = []
        for family in range(2, 46):
            for kind in (1, 2, 3, 5):
                try:
                    os.close(call(41, family, kind, 0))
                    made.append(family)
                except OSError:
                    continue
        if set(made) <= {*self.context["families"]} and self.context["inside"]:
            raise PermissionError(errno.EPERM, "none")
        return f"families {sorted(set(made))}"

    def NET16b(self) -> str:
        made = []
        for protocol in range(1, 23):
            try:
                os.close(call(41, 16, 3, protocol))
                made.append(protocol)
            except OSError:
                continue
        if not made:
            raise PermissionError(errno.EPERM, "none")
        return f"netlink {made}"

    def NET16c(self) -> str:
        """Interfaces of the machine, asked of a socket that has nothing to do with them."""
        one, _ = socket.socketpair()
        return str(len(fcntl.ioctl(one, 0x8912, struct.pack("iP", 0, 0).ljust(40, b"\0"))))

    # SYS.

    def SYS01(self) -> str:
        return self.NET12()

    def SYS02(self) -> str:
        call(272, NEWUSER)
        return "unshared"

    def SYS03(self) -> str:
        return _reap(call(56, NEWUSER | signal.SIGCHLD, 0, 0, 0, 0))

    def SYS04(self) -> str:
        return _reap(call(435, struct.pack("8Q", NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0), 64))

    def SYS05(self) -> str:
        call(308, os.open(f"/proc/{self.V}/ns/net", os.O_RDONLY), 0)
        return "entered"

    def SYS06(self) -> str:
        if os.getuid() != 0 or self.context["inside"]:
            _ignoring(lambda: call(272, NEWUSER | NEWNS))
        else:
            call(272, NEWNS)
        os.makedirs(f"{self.W}/m", exist_ok=True)
        call(165, b"tmpfs", f"{self.W}/m".encode(), b"tmpfs", 0, None)
        return "mounted"

    def SYS08(self) -> str:
        _ignoring(lambda: call(272, NEWUSER | NEWNS))
        call(165, self.W.encode(), self.O.encode(), None, 0x1000, None)
        return "bound"

    def SYS08b(self) -> str:
        """Mounting without mount(2)."""
        return str(call(428, AT_FDCWD, self.W.encode(), 1))

    def SYS09(self) -> str:
        return str(call(321, 0, struct.pack("5I", 2, 4, 4, 1, 0).ljust(72, b"\0"), 72))

    def SYS10(self) -> str:
        attr = struct.pack("IIQQQQQ", 1, 120, 0, 0, 0, 0, 0x63).ljust(120, b"\0")
        return str(call(298, attr, 0, -1, -1, 0))

    def SYS11(self) -> str:
        return str(call(323, 1))

    def SYS12(self) -> str:
        call(135, 0x0040000)
        return "no randomisation"

    def SYS13(self) -> str:
        fd = os.memfd_create("x")
        with open("/bin/true", "rb") as file:
            os.write(fd, file.read())
        child = os.fork()
        if child == 0:
            try:
                call(322, fd, b"", (ctypes.c_char_p * 2)(b"true", None), None, 0x1000)
            finally:
                os._exit(1)
        if os.waitpid(child, 0)[1] != 0:
            raise PermissionError(errno.EPERM, "did not run")
        return "ran without a path"

    def SYS16(self) -> str:
        return str(call(39 | 0x40000000))

    def SYS17(self) -> str:
        return str(call(154, 0, ctypes.create_string_buffer(64), 64))

    def SYS18(self) -> str:
        return str(call(103, 10, None, 0))

    def SYS20(self) -> str:
        # The bounding set gives nothing by itself; exec as uid 0 takes all that is in it.
        sets = ("CapEff", "CapPrm", "CapAmb", *(["CapBnd"] if os.getuid() == 0 else []))
        for line in _status().splitlines():
            name, _, value = line.partition(":\t")
            if name in sets and int(value, 16):
                return line
        raise PermissionError(errno.EPERM, "no capability")

    def SYS21(self) -> str:
        facts = dict(line.split(":\t", 1) for line in _status().splitlines() if ":\t" in line)
        if facts["NoNewPrivs"].strip() == "1" and facts["Seccomp"].strip() == "2":
            raise PermissionError(errno.EPERM, "both are there")
        return "not both"

    def SYS22(self) -> str:
        harmless = {"null", "zero", "full", "random", "urandom", "tty"}
        opened = []
        for name in sorted(os.listdir("/dev")):
            found = os.lstat(f"/dev/{name}").st_mode
            if name in harmless or not (stat.S_ISCHR(found) or stat.S_ISBLK(found)):
                continue
            try:
                os.close(os.open(f"/dev/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY))
                opened.append(name)
            except OSError:
                continue
        if not opened:
            raise PermissionError(errno.EACCES, "none")
        return str(opened)

    def SYS22b(self) -> str:
        """Terminals of others."""
        opened = []
        for name in filter(str.isdigit, os.listdir("/dev/pts")):
            try:
                os.close(os.open(f"/dev/pts/{name}", os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY))
                opened.append(name)
            except OSError:
                continue
        if not opened:
            raise PermissionError(errno.EACCES, "none")
        return str(opened)

    def SYS23(self) -> str:
        """The kernel's own memory and log, and what changes the kernel."""
        opened = []
        for name, flags in (
            ("/proc/kcore", os.O_RDONLY),
            ("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK),
            ("/proc/sys/kernel/core_pattern", os.O_WRONLY),
            ("/proc/sys/kernel/modprobe", os.O_WRONLY),
            ("/proc/sysrq-trigger", os.O_WRONLY),
            ("/sys/kernel/debug", os.O_WRONLY | os.O_TMPFILE),
            ("/sys/kernel/tracing/trace", os.O_RDONLY),
            ("/sys/kernel/debug/tracing/trace", os.O_RDONLY),
            ("/sys/power/state", os.O_WRONLY),
            ("/sys/fs/cgroup/cgroup.procs", os.O_WRONLY),
            ("/sys/fs/cgroup/unified/cgroup.procs", os.O_WRONLY),
        ):
            try:
                os.close(os.open(name, flags))
                opened.append(name)
            except OSError:
                continue
        if not opened:
            raise PermissionError(errno.EACCES, "none")
        return str(opened)

    def SYS24(self) -> str:
        return read("/proc/self/mountinfo")[:20]

    def SYS24b(self) -> str:
        return str(
            call(458, struct.pack("IIQQQ", 24, 0, 2**64 - 1, 0, 0), bytearray_of(800), 100, 0)
        )

    def SYS25(self) -> str:
        if LIBC.prctl(1, 0, 0, 0, 0) or LIBC.prctl(36, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")
        return "no death signal, a reaper of its own"

    def SYS26(self) -> str:
        if LIBC.prctl(39, 0, 0, 0, 0) == 1:
            raise PermissionError(errno.EPERM, "no_new_privs")
        return "set-id programs work"

    def SYS27(self) -> str:
        program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
        LIBC.prctl(38, 1, 0, 0, 0)
        call(317, 1, 8, struct.pack("HxxxxxxP", 1, ctypes.addressof(program)))
        return "listens to its own calls"

    def SYS28(self) -> str:
        return fcntl.ioctl(os.open("/dev/urandom", os.O_RDONLY), 0x80045200, bytes(4)).hex()

    def SYS29(self) -> str:
        if os.getuid() != 0 or self.context["inside"]:
            _ignoring(lambda: call(272, NEWUSER))
        os.chroot(self.W)
        return "chroot"

    def SYS30(self) -> str:
        """Layers of Landlock of its own are only narrower."""
        for _ in range(20):
            fd = call(444, struct.pack("QQQ", 1 << 9, 0, 0), 24, 0)
            LIBC.prctl(38, 1, 0, 0, 0)
            try:
                call(446, fd, 0)
            except OSError:
                break
            os.close(fd)
        return write(f"{self.O}/f", flags=0)

    # FDH, ENV, RES.

    def FDH01(self) -> str:
        fds = [int(name) for name in os.listdir("/proc/self/fd")]
        more = [fd for fd in fds if fd > 2 and _is_open(fd)]
        if not more:
            raise OSError(errno.EBADF, "none")
        return str([os.readlink(f"/proc/self/fd/{fd}") for fd in more])

    def FDH02(self) -> str:
        return os.pread(self.context["fds"][0], 100, 0).decode()

    def FDH04(self) -> str:
        os.ftruncate(self.context["fds"][1], 1)
        return "truncated"

    def FDH05(self) -> str:
        os.write(self.context["fds"][2], b"secret")
        return "sent"

    def FDH06(self) -> str:
        os.ftruncate(1, 0)
        return "its own output rewritten"

    def ENV01(self) -> str:
        found = [name for name in os.environ if "TOKEN" in name or "DATABASE" in name]
        if not found:
            raise OSError(errno.ENOENT, "unset")
        return str(found)

    def ENV02(self) -> str:
        hooks = ("BASH_ENV", "PYTHONSTARTUP", "NODE_OPTIONS", "GIT_SSH_COMMAND", "PERL5OPT")
        found = [name for name in hooks if name in os.environ]
        if not found:
            raise OSError(errno.ENOENT, "unset")
        return str(found)

    def RES02(self) -> str:
        mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000).close()
        return "64 GiB of addresses"

    def RES04(self) -> str:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(8300, hard), hard))
        for _ in range(8192):
            os.open("/dev/null", os.O_RDONLY)
        return "8192 files"

    def RES05(self) -> str:
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        if 0 <= hard < 4096:
            raise OSError(errno.EPERM, "above the hard limit")
        resource.setrlimit(resource.RLIMIT_CORE, (4096, hard))
        return "cores"

    # TTY: a terminal of its own.

    def TTY04(self) -> str:
        os.openpty()
        return "a terminal"

    # Beyond the catalogue.

    def OWN01(self) -> str:
        """A service's name among the abstract ones, taken before it starts."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind("\0" + self.context["abstract"] + "-free")
            sock.listen()
        return "listens"

    def OWN02(self) -> str:
        """A FIFO outside, whose message another program waits for."""
        return os.read(os.open(f"{self.O}/full", os.O_RDONLY | os.O_NONBLOCK), 10).decode()

    def OWN03(self) -> str:
        """Files that another sandbox of the same user holds."""
        return read(self.context["other"])

    def OWN04(self) -> str:
        return write(self.context["other"], flags=0)

    def OWN05(self) -> str:
        """What an own thread may that was there before."""
        result: list[Any] = []
        worker = threading.Thread(target=lambda: result.append(_outcome(self.FSW02)))
        worker.start()
        worker.join()
        if result[0]["verdict"] != "allowed":
            raise OSError(getattr(errno, result[0]["errno"]), "in a thread")
        return "a thread wrote"

    def OWN06(self) -> str:
        """A snapshot: an ioctl that makes names without the hooks that see paths."""
        fd = os.open(self.W, os.O_RDONLY)
        fcntl.ioctl(fd, 0x50009417, bytearray(4096))
        return "taken"

    def OWN07(self) -> str:
        call(72, os.open(self.O, os.O_RDONLY), 1026, 0x2)  # F_NOTIFY
        return "is told what changes"

    def OWN08(self) -> str:
        return str(call(447, 0))

    def OWN09(self) -> str:
        """Links that the kernel walks: none of them is a way round."""
        os.symlink("/proc/self/root", f"{self.W}/r")
        return write(f"{self.W}/r{self.O}/f", flags=0)

    def FSR09z(self) -> str:
        """Last, because outside it succeeds and takes the victim's directory away."""
        os.rename(self.S, f"{self.W}/stolen")
        return read(f"{self.W}/stolen/key")


def bytearray_of(size: int) -> Any:
    return ctypes.create_string_buffer(size)


def _status() -> str:
    with open("/proc/self/status") as file:
        return file.read()


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _ignoring(act: Any) -> None:
    try:
        act()
    except OSError:
        return


def _reap(child: int) -> str:
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "made"


def _machine(code: bytes) -> int:
    """Runs x86-64 instructions; a death by SIGSYS is a refusal."""
    child = os.fork()
    if child == 0:
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        made = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
        os._exit(0 if made >= 0 else 1)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSYS:
        raise OSError(errno.EPERM, "SIGSYS")
    if status != 0:
        raise NotHere("no 32-bit system calls here")
    return 0


def _outcome(attempt: Any) -> dict[str, Any]:
    try:
        return {"verdict": "allowed", "errno": "", "note": str(attempt())[:200]}
    except Won as found:
        return {"verdict": "allowed", "errno": "", "note": str(found)}
    except NotHere as reason:
        return {"verdict": "not here", "errno": "", "note": str(reason)}
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, str(error.errno))
        return {"verdict": "blocked", "errno": name, "note": str(error)[:200]}


def main() -> None:
    with open(sys.argv[1]) as file:
        context = json.load(file)
    context["lane"] = os.getppid()
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            answer = json.dumps(_outcome(getattr(Probes(context), line.strip())))
            os.write(2, answer.encode())
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(2, b"\nend %d\n" % status)


if __name__ == "__main__":
    main()
