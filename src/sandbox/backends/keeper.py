"""The process that starts commands where there is no compiled helper, and outlives none of them.

A program of its own, started by ``BOOT`` with the directories of this package and of psutil and the
caller's pid, with one socket, fd 3, to its caller. It runs one command at a time, has one thread,
and so may fork. It sees to what somebody must see to while the caller does other things, or is
dead: the clock, memory, and the end of all processes of the command.

What belongs to a command is known by three signs: its session and its descendants, as far as they
were seen; the process that the system holds responsible for it; and, exactly, a word in the
profile that it runs under, which no process gets rid of (``Marks``).
"""

from __future__ import annotations

import fcntl
import importlib.machinery
import importlib.util
import os
import resource
import select
import signal
import socket
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from sandbox.backends.apple import Marks, death_of, execute
from sandbox.backends.frames import encoded, receive, send

__all__ = ["BOOT", "SOCKET", "main"]

SOCKET = 3
# The package itself is not imported: it is much, and a keeper needs three modules of it.
BOOT = """
import sys, types
for name, path in (("sandbox", sys.argv[1]), ("sandbox.backends", sys.argv[1] + "/backends")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from sandbox.backends.keeper import main
main(sys.argv[2:])
"""
_SAMPLE = 0.1  # seconds between looks at memory and descendants
# What forks and ends at once, again and again, is seldom met alive: one look at nothing is no end.
_QUIET_LOOKS = 5  # in a row without anything, and
_PAUSE = 0.01  # seconds between two
_UNMET = 0.5  # seconds: whoever vanished meanwhile, one of the command's would have been met
_SWEEPING = 2.0  # seconds until the caller is told that something is left
_IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class Command:
    """One that runs, or whose processes are still to be ended."""

    def __init__(self, pid: int, asked: dict[str, Any]) -> None:
        self.pid = pid
        self.mark: str = asked["mark"]
        self.own_session: bool = asked["session"]
        self.memory: int = asked["memory"]
        self.waits: bool = asked["waits"]  # for who reads its output, before what is left is ended
        timeout = asked["timeout"]
        self.deadline = None if timeout is None else time.monotonic() + timeout
        self.seen: dict[tuple[int, float], Any] = {}
        self.ended: set[tuple[int, float]] = set()
        self.gone: set[int] = set()  # listed in the last look, and not there when asked
        self.groups: set[int] = set()  # of the members in the last look
        self.met = 0.0  # when one was there when asked
        self.ending = False
        self.told = False  # the caller knows its end, and that something is left
        self.status: int | None = None
        self.usage: list[float] = []
        self.timed_out = self.over_memory = self.killed = False


class Keeper:
    """The loop."""

    def __init__(self, sock: socket.socket, psutil: Any, caller: int) -> None:
        self._sock = sock
        self._psutil = psutil
        self._marks = Marks()
        self._command: Command | None = None
        self._wake, wake = os.pipe()
        for fd in (wake, self._wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (*_IGNORED, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        self._caller = death_of(caller)
        watched = (sock, self._wake, self._caller)
        self._watched = [one for one in watched if one is not None]

    def serve(self) -> None:
        """Until the caller is gone. Then nothing of the command is left."""
        try:
            while self._turn():
                continue
        finally:
            if self._command is not None:
                self._sweep(self._command)

    def _turn(self) -> bool:
        ready = select.select(self._watched, [], [], self._patience())[0]
        if self._caller is not None and self._caller in ready:
            return False
        if self._wake in ready:
            with suppress(BlockingIOError):
                os.read(self._wake, 4096)
        if self._sock in ready:
            found = receive(self._sock)
            if found is None:
                return False
            self._told(*found)
        if self._command is not None:
            self._look(self._command)
        return True

    def _patience(self) -> float | None:
        command = self._command
        if command is None or (command.status is not None and not command.told):
            return None
        if command.told:
            return _SAMPLE
        left = None if command.deadline is None else command.deadline - time.monotonic()
        look = _SAMPLE if self._looks(command) else None
        waits = [one for one in (left, look) if one is not None]
        return max(0.0, min(waits)) if waits else None

    def _looks(self, command: Command) -> bool:
        """Whether its processes are to be looked at while it runs."""
        return bool(command.memory) or not (self._marks.known and command.mark)

    def _told(self, message: dict[str, Any], fds: list[int]) -> None:
        what, command = message["do"], self._command
        if what == "start":
            self._start(message, fds)
        elif command is None or command.pid != message["pid"]:
            return  # it came too late: that one is over
        elif what == "kill":
            command.killed = True
        elif what == "sweep":
            command.waits = False
        elif command.status is None:
            os.kill(command.pid, message["number"])

    def _start(self, asked: dict[str, Any], fds: list[int]) -> None:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            become(asked, fds, write)
        for fd in (write, *fds):
            os.close(fd)
        with open(read, "rb") as file:
            failure = file.read()
        if failure:
            os.waitpid(pid, 0)
            stage, number = failure.decode().split()
            send(self._sock, {"failed": stage, "errno": int(number)})
            return
        self._command = Command(pid, asked)
        send(self._sock, {"pid": pid})

    def _look(self, command: Command) -> None:
        """Whether it is over, has too much of anything, or was asked to end."""
        if command.told:
            self._end_all(command)
            return
        if command.status is None:
            pid, status, used = os.wait4(command.pid, os.WNOHANG)
            if pid:
                self._ended(command, status, used)
        if command.status is None:
            late = command.deadline is not None and time.monotonic() >= command.deadline
            command.timed_out |= late
            members = list(self._members(command)) if self._looks(command) else []
            if command.memory:
                whole = resident(self._psutil.Process(command.pid)) + sum(map(resident, members))
                command.over_memory |= whole > command.memory
            if command.timed_out or command.over_memory or command.killed:
                self._sweep(command)
                _, status, used = os.wait4(command.pid, 0)
                self._ended(command, status, used)
        if command.status is not None and (command.killed or not command.waits):
            self._finish(command)

    def _ended(self, command: Command, status: int, used: resource.struct_rusage) -> None:
        command.status = status
        size = used.ru_maxrss // 1024 if sys.platform == "darwin" else used.ru_maxrss  # bytes there
        faults, blocks, switches = used[6:8], used[9:11], used[14:16]
        command.usage = [*used[:2], size, *faults, *blocks, *switches]
        if command.timed_out or command.over_memory:
            command.waits = False
        if command.waits:
            send(self._sock, {"ended": True})

    def _finish(self, command: Command) -> None:
        swept, left = self._sweep(command)
        command.told = bool(left)
        self._command = command if left else None
        ends = {"timed_out": command.timed_out, "over_memory": command.over_memory}
        told = {"over": command.status, "usage": command.usage, "swept": swept, "left": left}
        send(self._sock, told | ends)

    def _members(self, command: Command) -> Iterator[Any]:
        """The processes of a command that are known now, without itself; the newest first."""
        for pid in sorted(self._psutil.pids(), reverse=True):
            if pid in (0, 1, os.getpid(), command.pid) or not self._is_member(command, pid):
                continue
            command.met = time.monotonic()
            with suppress(OSError):
                if os.getsid(pid) != os.getsid(0):  # else the group may be the caller's
                    command.groups.add(os.getpgid(pid))
            try:
                found = self._psutil.Process(pid)
                if self._is_member(command, pid):  # the number may have been another's
                    command.seen[pid, found.create_time()] = found
            except self._psutil.Error:
                command.gone.add(pid)
        if command.ending:  # whole, and before anything slow: nothing forks its way out of a group
            signal_groups(command.groups, signal.SIGSTOP)
        above = [self._psutil.Process(command.pid)] if command.status is None else []
        for known in (*above, *command.seen.values()):
            with suppress(self._psutil.Error):
                for child in known.children(recursive=True):
                    command.seen[child.pid, child.create_time()] = child
        for key, known in list(command.seen.items()):
            with suppress(self._psutil.Error):
                if known.is_running() and known.status() != self._psutil.STATUS_ZOMBIE:
                    yield known
                    continue
            del command.seen[key]

    def _is_member(self, command: Command, pid: int) -> bool:
        try:
            if os.getsid(pid) == command.pid and command.own_session:
                return True
        except ProcessLookupError:
            command.gone.add(pid)
            return False
        except OSError:  # somebody else's
            return False
        marks = self._marks
        return marks.has(pid, command.mark) or marks.is_responsible(command.pid, pid)

    def _sweep(self, command: Command) -> tuple[int, int]:
        """Ends all that is left, again until there is nothing: how many those were, and are."""
        if command.status is None:
            list(self._members(command))  # while it is known whose children they are
            os.kill(command.pid, signal.SIGKILL)
        command.ending = True
        began = command.met = time.monotonic()
        quiet = left = 0
        while time.monotonic() - began < _SWEEPING:
            left = self._end_all(command)
            quiet = 0 if left else quiet + 1
            if quiet == _QUIET_LOOKS or time.monotonic() - command.met > _UNMET:
                return len(command.ended), 0
            time.sleep(_PAUSE)
        return len(command.ended), max(1, left)

    def _end_all(self, command: Command) -> int:
        """Ends what is there: how many those are, with those that vanished before they were asked.

        What has vanished twice is still listed: the end of somebody's child that he does not hear.
        """
        before, command.gone, command.groups = command.gone, set(), set()
        members = list(self._members(command))
        for one in members:
            command.ended.add((one.pid, one.create_time()))
            with suppress(self._psutil.Error):
                one.kill()
        signal_groups(command.groups, signal.SIGKILL)
        return len(members) + len(command.gone - before)


def signal_groups(groups: set[int], number: int) -> None:
    """A signal for all processes of these groups."""
    for group in groups:
        with suppress(OSError):
            os.killpg(group, number)


def resident(process: Any) -> int:
    """Bytes of memory of a process; 0 where they cannot be known."""
    try:
        return int(process.memory_info().rss)
    except Exception:  # gone, or not ours to ask
        return 0


def become(asked: dict[str, Any], fds: list[int], report: int) -> None:
    """In the child: the command, or a stage and an errno for the caller. Does not return."""
    stage = "session"
    try:
        for number in (*_IGNORED, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        if asked["session"]:
            os.setsid()
        stage = "streams"
        for target, fd in enumerate(fds):
            os.dup2(fd, target)
        if asked["terminal"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        stage = "cwd"
        os.chdir(encoded(asked["cwd"]))
        stage = "limits"
        for number, soft, hard in asked["limits"]:
            resource.setrlimit(number, (soft, hard))
        stage = "exec"
        argv = [encoded(word) for word in asked["argv"]]
        items = (encoded(item).partition(b"=") for item in asked["env"])
        execute(argv, {name: value for name, _, value in items})
    except OSError as error:
        os.write(report, f"{stage} {error.errno}".encode())
    except BaseException:
        os.write(report, f"{stage} 22".encode())
    finally:
        os._exit(127)


def _psutil(place: str) -> Any:
    """The psutil of that directory, and nothing else of it: that may be an environment's.

    On ``sys.path`` it would have what the standard library asks for and lacks: ``msvcrt``, which
    ``subprocess`` tries to import everywhere.
    """
    spec = importlib.machinery.PathFinder.find_spec("psutil", [place])
    assert spec is not None and spec.loader is not None
    module = sys.modules["psutil"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(arguments: list[str]) -> None:
    """Serves the socket at fd 3."""
    for fd in map(int, os.listdir("/dev/fd")):
        if fd > SOCKET:
            with suppress(OSError):  # the list's own is closed already
                os.close(fd)  # what the caller has left open for its own children
    os.chdir("/")
    psutil = _psutil(arguments[0])
    with socket.socket(fileno=SOCKET) as sock:
        sock.setblocking(True)
        os.set_inheritable(SOCKET, False)
        with suppress(ConnectionError):
            Keeper(sock, psutil, int(arguments[1])).serve()
