"""Scenes: what a host and a command do beside each other, each in a process of its own.

A scene is a function of `scenes/` that gets an empty workspace and a directory beside it, and
states what is right with `assert`. Isolation is `namespaces`: a host that gives none skips.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sandbox

__all__ = ["PYTHON", "Command", "errnos", "errors_of", "open_fds", "opened", "started", "until"]

PYTHON = "/usr/bin/python3"

# Opens files over and over until the file `stop` is there; each different answer once a run of it.
_WATCH = """
import os, sys, time
flags, names = getattr(os, sys.argv[1]), sys.argv[2:]
last = {}
while not os.path.exists("stop"):
    for name in names:
        try:
            fd = os.open(name, flags)
            answer = "open"
            os.close(fd)
        except OSError as error:
            answer = str(error.errno)
        if last.get(name) != answer:
            last[name] = answer
            print(time.monotonic_ns(), name, answer, flush=True)
    if not os.path.exists("ready"):
        open("ready", "w").close()
"""


def open_fds() -> list[str]:
    """The fds of this process, without the one that is for all sandboxes.

    At it the kernel tells of directories; it is made when it is wanted, and stays.
    """
    found = []
    for name in sorted(os.listdir("/proc/self/fd")):
        try:
            if os.readlink(f"/proc/self/fd/{name}") != "anon_inode:inotify":
                found.append(name)
        except FileNotFoundError:  # that of the listing itself
            continue
    return found


def until(what: Callable[[], Any], seconds: float = 5) -> None:
    """Waits until something is true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.005)


def errors_of(box: sandbox.Sandbox, *names: str, flags: str = "O_RDONLY") -> list[int]:
    """The errno with which each file opens in a new command; 0: it opened."""
    code = f"""
        import os, sys
        for name in sys.argv[1:]:
            try:
                os.close(os.open(name, os.{flags}))
                print(0)
            except OSError as error:
                print(error.errno)
    """
    result = box.run([PYTHON, "-c", textwrap.dedent(code), *names])
    assert result.ok and result.enforcement.isolation == "namespaces", result
    return [int(word) for word in result.out.split()]


class Command:
    """A command that runs in the background of a scene."""

    def __init__(self, box: sandbox.Sandbox, words: Sequence[str]) -> None:
        self.result: sandbox.Result | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(box, words))
        self._thread.start()

    def _run(self, box: sandbox.Sandbox, words: Sequence[str]) -> None:
        try:
            self.result = box.run(list(words), timeout=60)
        except BaseException as error:
            self.error = error

    def join(self) -> sandbox.Result:
        """What came of it."""
        self._thread.join()
        if self.error is not None:
            raise self.error
        assert self.result is not None and self.result.ok, self.result
        return self.result


@contextmanager
def started(box: sandbox.Sandbox, w: Path, *words: str) -> Iterator[Command]:
    """A command that makes `ready` and goes on until there is `stop`."""
    for name in ("ready", "stop"):
        (w / name).unlink(missing_ok=True)
    command = Command(box, words)
    try:
        until(lambda: (w / "ready").exists() or command.error)
        yield command
    finally:
        (w / "stop").touch()
        command._thread.join()


def opened(
    box: sandbox.Sandbox, w: Path, flags: str, *names: str
) -> Any:  # a context manager of a Command
    """A command that opens these files all the time; see `errnos`."""
    return started(box, w, PYTHON, "-c", _WATCH, flags, *names)


def errnos(result: sandbox.Result) -> dict[str, list[tuple[int, str]]]:
    """Of each file what `opened` saw: time in ns, and "open" or an errno, at each change."""
    found: dict[str, list[tuple[int, str]]] = {}
    for line in result.out.splitlines():
        at, name, answer = line.split()
        found.setdefault(name, []).append((int(at), answer))
    return found


def scenes(module: str) -> list[str]:
    """The scenes of a module that are played in two directories, by name."""
    text = Path(__file__).with_name("scenes").joinpath(f"{module}.py").read_text()
    return [
        line.removeprefix("def ").partition("(")[0]
        for line in text.splitlines()
        if line.startswith("def ") and "(w: Path, o: Path)" in line
    ]


def play(
    module: str, function: str, user: Any, place: Path, w: Path, o: Path, isolation: str = "auto"
) -> str:
    """Runs a scene in a process of its own, as `user` (an `AsUser`) or as we are (None).

    The directories are to be the user's own. What it printed is returned.
    """
    code = (
        "import importlib, sys; from pathlib import Path\n"
        "getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(*map(Path, sys.argv[3:]))\n"
    )
    arguments = [f"scenes.{module}", function, str(w), str(o)]
    more = {"SANDBOX_ISOLATION": isolation, "PYTHONWARNINGS": "ignore::sandbox.SandboxWeakened"}
    if user is not None:
        done = user(code, *arguments, env=more, cwd=place)
    else:
        home = place / "home"
        home.mkdir()
        paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=dict(os.environ) | more | {"PYTHONPATH": paths, "HOME": str(home)},
            cwd=place,
            capture_output=True,
            text=True,
            timeout=90,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
