"""What the tests of helpers and lanes share: a policy, a command in a lane, and who is still alive.

Also imported by programs that tests start as an ordinary user, so it needs no pytest.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import _sandcore as core

ABI = min(core.probe().landlock_abi, 10)
MARK = "SANDCORE_TEST_MARK"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PYTHON = "/usr/bin/python3"  # one that an ordinary user can execute too


def policy(*writable: Path, network: int = core.NET_NONE) -> core.Policy:
    """What `workspace_write` compiles to, in small: everything readable, these paths writable."""
    rules = [(bytes(path), core.ACCESS_WRITE, False) for path in writable]
    return core.compile_policy(
        [(b"/dev/null", core.ACCESS_DEVICE, False), *rules],
        abi=ABI,
        handle=core.HANDLE_WRITE | core.HANDLE_SCOPES | core.HANDLE_TCP,
        network=network,
        filter_flags=core.FILTER_ALLOW_PTRACE,
    )


def unconfined() -> core.Policy:
    """What `full_access` compiles to."""
    return core.compile_policy(confined=False)


@contextmanager
def helper(*writable: Path, given: core.Policy | None = None) -> Iterator[core.Helper]:
    """A helper that is closed at the end."""
    made = core.Helper(given if given is not None else policy(*writable), core.HELPER_PATH)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def lane(*writable: Path, given: core.Policy | None = None) -> Iterator[core.Lane]:
    """A lane of a helper of its own."""
    with helper(*writable, given=given) as made:
        one = made.lane()
        try:
            yield one
        finally:
            one.close()


def new_mark() -> str:
    """A word that no other process has in its environment."""
    return uuid.uuid4().hex


def run(
    place: core.Lane,
    words: Sequence[str | bytes],
    *,
    mark: str = "",
    env: Sequence[str] = (),
    cwd: str | Path = "/",
    timeout: float | None = 30,
    cap: int = 1 << 20,
    **more: object,
) -> core.Outcome:
    """Runs words in a lane. `mark` is what `alive` finds its processes by."""
    argv = [word if isinstance(word, bytes) else os.fsencode(word) for word in words]
    variables = [f"PATH={PATH}", *([f"{MARK}={mark}"] if mark else []), *env]
    block = b"".join(os.fsencode(one) + b"\0" for one in variables)
    if "stdin" not in more:
        more.setdefault("input", b"")
    return place.run(
        [argv[0]],
        argv,
        block,
        len(variables),
        os.fsencode(cwd),
        timeout=timeout,
        out_cap=cap,
        err_cap=cap,
        **more,  # type: ignore[arg-type]
    )


def sh(place: core.Lane, script: str, **more: object) -> core.Outcome:
    """Runs a shell script in a lane."""
    return run(place, ["/bin/bash", "-c", script], **more)  # type: ignore[arg-type]


def py(place: core.Lane, script: str, *arguments: object, **more: object) -> core.Outcome:
    """Runs a Python program in a lane."""
    words = [PYTHON, "-Ic", script, *map(str, arguments)]
    return run(place, words, **more)  # type: ignore[arg-type]


def alive(mark: str) -> list[int]:
    """Living processes (no zombies) whose environment has the mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(int(name))
        except OSError:
            continue
    return found


def gone(mark: str, within: float = 5.0) -> list[int]:
    """Who has the mark and is still alive after that time: [] when nobody."""
    return settled(lambda: alive(mark), within)


def children(pid: int) -> list[int]:
    """The pids of a process's children; none when it is not there."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def exists(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def settled(ask: object, within: float = 5.0) -> list[int]:
    """Asks until the answer is empty or the time is over; the last answer."""
    end = time.monotonic() + within
    while True:
        answer = ask()  # type: ignore[operator]
        if not answer or time.monotonic() > end:
            return answer  # type: ignore[no-any-return]
        time.sleep(0.01)


def wait_for(ask: object, within: float = 10.0) -> None:
    """Asks until the answer is true."""
    end = time.monotonic() + within
    while not ask():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError("it did not come about")
        time.sleep(0.005)


def kill_all(pids: Sequence[int]) -> None:
    """Ends leftovers of a failed test."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def timed_spawn(kind: str, confinement: core.Policy, rounds: int = 25) -> Callable[[], float]:
    """What a direct spawn of /bin/true costs, lower quartile in seconds.

    With our own streams, or (`pipes`) with a pipe that has the next free numbers.
    """

    def once() -> float:
        began = time.perf_counter()
        ends = os.pipe() if kind == "pipes" else ()
        fds = (0, ends[1], 2) if ends else (0, 1, 2)
        inline = kind != "nursery"
        plan = core.Plan([b"/bin/true"], [], fds=fds, policy=confinement, inline=inline)
        _, pidfd = core.spawn(plan)
        core.wait(pidfd)
        for fd in (pidfd, *ends):
            os.close(fd)
        return time.perf_counter() - began

    once()
    return lambda: statistics.quantiles([once() for _ in range(rounds)], n=4)[0]


# A daemon by the book: out of the session, of the parent, of every pipe; deaf to polite signals.
DAEMON = """
import ctypes, os, signal, sys, time
def daemon(seconds=300):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # PR_SET_PDEATHSIG: none
            for number in range(1, 32):
                if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
                    signal.signal(number, signal.SIG_IGN)
            os.chdir("/")
            os.closerange(0, 64)
            time.sleep(seconds)
        os._exit(0)
    os.wait()
"""
