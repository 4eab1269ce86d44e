"""What each sandbox refuses, found by trying: the row of a table that tells like from unlike.

A small program tries each thing once, first without a sandbox (all of it must succeed there), then
in each. Whether a datagram came, or a process survived its command, is seen from here.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["PROBES", "Range"]

HERE = Path(__file__).resolve().parent
# What is tried, in the order of the columns.
PROBES = {
    "write": "writing a file outside",
    "metadata": "its mode",
    "secret": "reading /etc/shadow",
    "tcp": "TCP to the host's loopback",
    "udp": "UDP to it",
    "unix": "a Unix socket of the host, by path",
    "abstract": "one by an abstract name",
    "signal": "a signal to a process of the host",
    "env": "a variable of the caller",
    "fd": "a fd that was open in the caller",
    "git": "hooks of the workspace's repository",
    "userns": "a user namespace of its own",
    "tree": "a process that outlives its command",
}


class Range:
    """Targets outside, and a workspace inside. A context manager."""

    def __init__(self, work: str) -> None:
        self.work = Path(work)
        self._outside = Path(tempfile.mkdtemp(prefix="outside-", dir=self.work.parent))
        self._git = self.work / ".git" / "hooks"
        self._numbers = itertools.count()
        self._git.mkdir(parents=True, exist_ok=True)
        (self._outside / "file").write_text("x")
        self.program = Path(tempfile.mkdtemp(prefix="program-", dir=self.work.parent)) / "probe"
        subprocess.run(["cc", "-O2", "-o", self.program, HERE / "probe.c"], check=True)
        os.chmod(self.program.parent, 0o755)
        self._tcp, self._udp = socket.create_server(("127.0.0.1", 0)), socket.socket(type=2)
        self._udp.bind(("127.0.0.1", 0))
        self._udp.setblocking(False)
        self._unix = socket.socket(socket.AF_UNIX)
        self._unix.bind(str(self._outside / "socket"))
        self._unix.listen(64)
        self._abstract = socket.socket(socket.AF_UNIX)
        self._name = f"sandcore-bench-{os.getpid()}"
        self._abstract.bind(f"\0{self._name}")
        self._abstract.listen(64)
        for one in (self._tcp, self._unix, self._abstract):
            threading.Thread(target=self._accept, args=(one,), daemon=True).start()

    @staticmethod
    def _accept(listener: socket.socket) -> None:
        while True:
            try:
                listener.accept()[0].close()
            except OSError:
                return

    @property
    def words(self) -> list[str]:
        """The command to be tried."""
        ports = [str(one.getsockname()[1]) for one in (self._tcp, self._udp)]
        names = [str(self._outside / "socket"), self._name]
        return [
            str(self.program),
            str(self._outside),
            *ports,
            *names,
            str(os.getpid()),
            str(self._git),
        ]

    def refused(self, run: Callable[[Sequence[str]], str]) -> dict[str, bool] | str:
        """What ``run`` refused of it; or what it said instead."""
        survived = self.work / f"survived-{next(self._numbers)}"
        (self._git / "planted").unlink(missing_ok=True)
        (self._outside / "file").chmod(0o644)
        while self._datagram():
            pass
        output = run([*self.words, str(survived)])
        found = {
            line.split()[0]: line.endswith(" 1")
            for line in output.splitlines()
            if line.split()[:1] and line.split()[0] in PROBES
        }
        if len(found) < len(PROBES) - 2:
            return output.strip()[-200:] or "it printed nothing"
        found["udp"] = not self._datagram()
        time.sleep(2)
        found["tree"] = not survived.exists()
        found["git"] &= not (self._git / "planted").exists()
        return {name: found[name] for name in PROBES}

    def _datagram(self) -> bool:
        try:
            return bool(self._udp.recv(16))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Lets go of all."""
        for one in (self._tcp, self._udp, self._unix, self._abstract):
            one.close()
