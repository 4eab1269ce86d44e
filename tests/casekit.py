"""What the bodies of cases share; also what runs one of them in its own process.

A body gets the workspace `w` and the directory outside `o`. It states what is right with `assert`,
and proves each denial by the errno that only the refusal gives, beside the same act where it is
allowed.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import sandbox

__all__ = [
    "NAMESPACES",
    "NO_WRITE",
    "NO_WRITE_TEXT",
    "Listener",
    "Skipped",
    "alive",
    "cc",
    "confined",
    "errno_of",
    "git",
    "listening",
    "need",
    "processes_with",
    "python",
    "replaced_environ",
    "says",
    "skip",
    "until",
    "weaker",
]

SKIPPED = 77
# The isolation that a case is run in; what a write that is refused says there.
NAMESPACES = os.environ.get("SANDBOX_ISOLATION", "landlock") != "landlock"
NO_WRITE = "EROFS" if NAMESPACES else "EACCES"
NO_WRITE_TEXT = "Read-only file system" if NAMESPACES else "Permission denied"
_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 0x4000, 0x40000


class Skipped(Exception):
    """The host lacks something that a case needs; the text says what, and what to install."""


def skip(reason: str) -> NoReturn:
    """Ends a case that cannot be tried here."""
    raise Skipped(reason)


def need(tool: str, package: str) -> str:
    """The path of a tool that the case runs; skips with the package to install."""
    found = shutil.which(tool)
    if found is None:
        skip(f"needs {tool}: install {package}")
    return found


def python() -> str:
    """An interpreter for inside: the system's, as our own may lie in a home that is denied."""
    return "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable


def confined(args: Any, w: Path, **options: Any) -> sandbox.Result:
    """Runs a command with the default policy and `w` as the workspace."""
    policy = options.pop("policy", None)
    return sandbox.run(args, policy, cwd=options.pop("cwd", w), **options)


def errno_of(code: str, w: Path, *arguments: Any, **options: Any) -> str:
    """The errno's name with which Python code (`os`, `sys` imported) fails inside; "" for none.

    The code's own output goes before it, so that a body may look at both.
    """
    body = "\n    ".join(code.strip().splitlines())
    program = (
        "import os, sys, errno\ntry:\n    " + body + "\nexcept OSError as error:\n"
        "    print(errno.errorcode.get(error.errno, error.errno))\n"
    )
    result = confined([python(), "-c", program, *map(str, arguments)], w, **options)
    assert result.ok, (result.outcome, result.text)
    return result.out.strip()


def weaker(result: sandbox.Result | sandbox.Sandbox) -> set[str]:
    """The parts of the policy that the result says are weaker."""
    return {part.part for part in result.enforcement.weaker}


def says(document: str, *words: str) -> bool:
    """Whether a document of the project has all these words in one paragraph."""
    text = (Path(__file__).resolve().parent.parent / document).read_text().lower()
    return any(all(word in part for word in words) for part in text.split("\n\n"))


def git(place: Path, *words: str, check: bool = True) -> str:
    """Runs git on the host; what it printed."""
    done = subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words],
        cwd=place,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def repository(place: Path) -> None:
    """Makes a repository with one commit of one file `f`."""
    need("git", "git")
    place.mkdir(exist_ok=True)
    git(place, "init", "-q", "-b", "main")
    (place / "f").write_text("one\n")
    git(place, "add", "f")
    git(place, "commit", "-q", "-m", "first")


def cc(source: str, target: Path) -> Path:
    """Compiles a C program on the host."""
    compiler = need("cc", "gcc libc6-dev")
    done = subprocess.run(
        [compiler, "-x", "c", "-O1", "-pthread", "-o", str(target), "-"],
        input=source,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    return target


class Listener:
    """A socket of the host that greets whoever connects."""

    def __init__(self, family: int, address: Any) -> None:
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.bind(address)
        self.socket.listen(16)
        self.socket.settimeout(0.2)

    def greeted(self, seconds: float = 0.2) -> int:
        """How many connections were waiting, each of which is answered."""
        count = 0
        self.socket.settimeout(seconds)
        try:
            while True:
                peer, _ = self.socket.accept()
                with peer, suppress(OSError):  # it may have gone by now
                    peer.sendall(b"HOST")
                count += 1
        except TimeoutError:
            return count


@contextmanager
def listening(address: Any = ("127.0.0.1", 0), family: int = socket.AF_INET) -> Iterator[Listener]:
    """A listener for the time of a block."""
    made = Listener(family, address)
    try:
        yield made
    finally:
        made.socket.close()


@contextmanager
def replaced_environ(**values: str) -> Iterator[None]:
    """Sets variables of the caller for the time of a block."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def processes_with(word: str) -> list[int]:
    """The host's processes that have exactly this argument."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and word.encode() in Path(f"/proc/{name}/cmdline").read_bytes().split(
                b"\0"
            ):
                found.append(int(name))
        except OSError:
            continue
    return found


def until(what: Callable[[], Any], seconds: float = 5) -> bool:
    """Whether something becomes true within the time."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def private_mounts() -> None:
    """Gives this process mounts of its own, as root of a user namespace where it must."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if uid != 0:
        if libc.unshare(0x10000000) != 0:
            skip(f"needs a user namespace ({errno.errorcode[ctypes.get_errno()]})")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    if libc.unshare(_NEWNS) != 0:
        skip(f"needs a mount namespace ({errno.errorcode[ctypes.get_errno()]})")
    mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE)


def mount(source: bytes, target: bytes, kind: bytes | None, flags: int = 0) -> None:
    """Mounts something, after `private_mounts`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source, target, kind, ctypes.c_ulong(flags), None) != 0:
        raise OSError(ctypes.get_errno(), "mount")


def children() -> list[int]:
    """The living and dead children of this process."""
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children") as file:
            found += map(int, file.read().split())
    return found


def main(module: str, function: str, w: str, o: str) -> int:
    """Runs one case; prints what went wrong or what is missing."""
    signal.alarm(110)
    warnings.simplefilter("error", ResourceWarning)
    warnings.simplefilter("ignore", sandbox.SandboxWeakened)
    body = getattr(importlib.import_module(module), function)
    try:
        body(Path(w), Path(o))
    except Skipped as reason:
        print(reason)
        return SKIPPED
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
