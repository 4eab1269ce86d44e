"""The filter in the kernel answers what the simulator says, as root and as an ordinary user.

Every attempt runs in a process of its own (trysyscall.c), and once more without a filter as its
control: what the filter allows must give the control's result, and what it refuses must not have
given the filter's errno by itself (looked at as root, where no capability is missing).
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from bpfsim import ALLOW, ASK, KILL_PROCESS
from conftest import AsUser
from seccomp_facts import (
    AARCH64,
    ABSENT,
    CLOEXEC,
    DENIED,
    DENY,
    FASTOPEN,
    FULL,
    IPC_CALLS,
    JUNK,
    MISSING,
    NONE,
    PTRACE,
    REFUSED_IOCTLS,
    SUPERVISED,
    X86_64,
    Variant,
    numbers,
)

SOURCE = Path(__file__).parent / "trysyscall.c"
ARCH = {"x86_64": X86_64, "aarch64": AARCH64}[os.uname().machine]
NUMBERS = numbers(ARCH)
VARIANTS = [Variant(ARCH, network, flags) for network in (NONE, FULL) for flags in (0, 7)]
VARIANTS += [Variant(ARCH, FULL, PTRACE | SUPERVISED)]
each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)
only_x86_64 = pytest.mark.skipif(ARCH != X86_64, reason="i386 and x32 exist on x86_64 only")
BEYOND = (337, 400, 423, 470, 471, 600, 9999, -1)  # numbers that have no row
X32_NUMBERS = (39, 41, 59, 547)
FOREIGN = (20, 359, 102)  # of i386
NOBODY = 987654321  # as a pid, a user or a group of processes

Attempt = tuple[str, tuple[int | str, ...]]
Runner = Callable[..., subprocess.CompletedProcess[str]]

# Refused whatever the arguments: such that the kernel itself would find fault with them.
NONSENSE: list[Attempt] = [
    (name, {"msgget": (0x7F3A1100, 0), "sysfs": (0, 0, 0)}.get(name, (-1,) * 6))
    for name in (*DENIED, *MISSING, *IPC_CALLS)
    if name in NUMBERS
]

RULED: list[Attempt] = [
    *(("socket", (1 | high, kind, 0)) for kind in (1, 2, 3, 5, 1 | CLOEXEC) for high in (0, JUNK)),
    *(("socket", (family, kind, 0)) for family in (2, 10) for kind in (1, 2 | CLOEXEC, 3)),
    *(("socket", (2, kind, protocol)) for kind, protocol in ((1, 6), (2, 17), (1, 262), (2, 1))),
    *(("socket", (16, kind, protocol)) for kind in (2, 3) for protocol in (0, 4, 15)),
    *(("socket", (family, 3, 0)) for family in (17, 29, 31, 38, 40, 44)),
    *(("socketpair", (1, kind, 0, "P")) for kind in (1, 5, 2, 3, 1 | CLOEXEC, 2 | JUNK)),
    ("connect", (-1, "P", 16)),
    ("sendto", (10, "P", 1, 0x4000, 0, 0)),
    ("sendto", (10, "P", 1, 0x4000, "P", 2)),
    ("sendto", (10, "P", 1, 0x4000, 1 << 32, 2)),
    ("sendto", (10, "P", 1, 0x4000 | FASTOPEN, 0, 0)),
    ("sendmsg", (10, "P", 0x4000)),
    ("sendmsg", (10, "P", FASTOPEN)),
    ("sendmmsg", (10, "P", 1, 0x4000)),
    ("sendmmsg", (10, "P", 1, FASTOPEN | JUNK)),
    *(("shutdown", (10, how)) for how in (0, 1, 2)),
    ("getsockopt", (10, 1, 4, "P", "P")),
    *(("clone", (flag | signal.SIGCHLD,)) for flag in (0, 1 << 15, 1 << 17, 1 << 27, 1 << 30)),
    ("clone", (1 << 28 | signal.SIGCHLD | JUNK,)),
    *(("ioctl", (12, 0x5412 | high, "P")) for high in (0, 1 << 32, JUNK)),
    *(("ioctl", (12, request, "P")) for request in (0x5423, 0x5401, 0x5413)),
    *(("ioctl", (-1, request, "P")) for request in (0x541C, 0x541D, 0x401C5820, 0x40806685)),
    *(("ioctl", (-1, request, "P")) for request in (0x80045200, 0x80045200 | JUNK)),
    *(("ioctl", (13, request, "P")) for request in (0x40086602, 0x40086602 | JUNK, 0x800C6613)),
    *(("fcntl", (13, command, 0)) for command in (3, 1024, 1024 | JUNK, 1025, 1026, 1040)),
    *(("fcntl", (10, command, "P")) for command in (15, 15 | JUNK, 16)),
    *(("fcntl", (10, 8, pid)) for pid in ("SELF", 0)),
    ("fcntl", (10, 10, 0)),
    *(("prctl", args) for args in ((35, 1), (35 | JUNK, 1), (1, 9), (36, 1), (15, "P"), (22, 2))),
    *(("personality", (persona,)) for persona in (0xFFFFFFFF, -1, 0, JUNK, 0x40000, 0x0400000, 8)),
    *(("prlimit64", (pid, 7, 0, "P")) for pid in (0, 1 << 32, "OTHER", "SELF")),
    *(("sched_setaffinity", (pid, 8, "P")) for pid in (0, "OTHER")),
    *(("sched_setscheduler", (pid, 0, "P")) for pid in (0, "OTHER")),
    *(("sched_setparam", (pid, "P")) for pid in (0, "OTHER")),
    *(("sched_setattr", (pid, "P", 0)) for pid in (0, "OTHER")),
    *(("setpriority", (0, who, 5)) for who in (0, "OTHER")),
    *(("setpriority", (which, NOBODY, 0)) for which in (1, 2)),
    *(("ioprio_set", (1, who, 0)) for who in (0, "OTHER")),
    *(("ioprio_set", (which, NOBODY, 0)) for which in (2, 3)),
    *(("seccomp", args) for args in ((2, 0, "P"), (1, 0, "P"), (1, 8, "P"), (1, 8 | JUNK, "P"))),
    ("ptrace", (0x4206, NOBODY, 0, 0)),
    ("kill", ("OTHER", 0)),
    ("getpid", ()),
    # Each is the only one that notices when some branch of the filter goes the wrong way.
    *((name, (0,) * 6) for name in ("getpmsg", "name_to_handle_at", "kcmp") if name in NUMBERS),
    ("ioprio_set", (0, 0, 0)),
    ("setpriority", (1, 0, 0)),
    *(("ioctl", (-1, request, "P")) for request in REFUSED_IOCTLS),
    *(("socketpair", (family, 1, 0, "P")) for family in (0, 2)),
    ("socket", (16, 1, 0)),
    ("sendto", (10, "P", 1, 0x4000, 1, 2)),
]  # fmt: skip


@pytest.fixture(scope="module")
def program() -> Iterator[str]:
    """The compiled trysyscall, where every user can execute it."""
    with tempfile.TemporaryDirectory(prefix="sandcore-try-") as place:
        Path(place).chmod(0o755)
        target = f"{place}/trysyscall"
        subprocess.run(["gcc", "-O1", "-Wall", "-Werror", SOURCE, "-o", target], check=True)
        yield target


@pytest.fixture(params=["root", "user"])
def run(request: pytest.FixtureRequest, as_user: AsUser) -> Runner:
    """Runs a command as who runs the tests, and as an ordinary user."""
    if request.param == "user":
        return as_user

    def as_caller(command: Sequence[str], input: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, input=input, capture_output=True, text=True, timeout=60)

    return as_caller


def all_powerful() -> bool:
    status = Path("/proc/self/status").read_text()
    effective = int(re.findall(r"CapEff:\s*(\w+)", status)[0], 16)
    return effective & (1 << 38) - 1 == (1 << 38) - 1


def save(place: Path, variant: Variant) -> str:
    path = place / f"{variant}.bpf"
    path.write_bytes(variant.compile().pack())
    path.chmod(0o644)
    return str(path)


def tried(run: Runner, program: str, filter: str, kind: str, calls: Sequence[Attempt]) -> list[str]:
    """The result of each call, whose name may also be a number."""
    lines = []
    for name, args in calls:
        number = NUMBERS.get(name, name)
        lines.append(" ".join(map(str, (kind, number, *args, *[0] * (6 - len(args))))))
    done = run([program, filter], input="\n".join(lines) + "\n")
    assert (done.returncode, done.stderr) == (0, "")
    results = done.stdout.splitlines()
    assert len(results) == len(calls)
    return results


def resolved(args: Sequence[int | str]) -> tuple[int, ...]:
    """Arguments with any address or pid standing for those of the process."""
    return tuple(0x7F5500001000 if a == "P" else 4242 if isinstance(a, str) else a for a in args)


def simulated(variant: Variant, call: Attempt) -> int:
    """What the program answers."""
    name, args = call
    return variant.compile().run(NUMBERS[name], resolved(args), ARCH)


RESULTS = {
    DENY: str(errno.EPERM),
    ABSENT: str(errno.ENOSYS),
    ASK: str(errno.ENOSYS),  # nobody listens: the kernel refuses
    KILL_PROCESS: f"signal {int(signal.SIGSYS)}",
}


def compare(run: Runner, program: str, place: Path, variant: Variant, calls: list[Attempt]) -> None:
    filtered = tried(run, program, save(place, variant), "native", calls)
    control = tried(run, program, "-", "native", calls)
    wrong = []
    for call, got, without in zip(calls, filtered, control, strict=True):
        answer = simulated(variant, call)
        expected = without if answer == ALLOW else RESULTS[answer]
        if got != expected:
            wrong.append((call, f"filtered {got}, expected {expected}, without {without}"))
        vacuous = answer == DENY and without == RESULTS[DENY]
        if vacuous and not isinstance(run, AsUser) and all_powerful():
            wrong.append((call, "refused without a filter too"))
    assert wrong == []


@each_variant
def test_calls_that_are_refused_by_name(
    run: Runner, program: str, place: Path, variant: Variant
) -> None:
    compare(run, program, place, variant, NONSENSE)


@each_variant
def test_calls_that_are_decided_by_their_arguments(
    run: Runner, program: str, place: Path, variant: Variant
) -> None:
    compare(run, program, place, variant, RULED)


def test_what_is_said_not_to_exist_does_exist_without_the_filter(
    program: str, place: Path, run: Runner
) -> None:
    """Else ENOSYS would prove nothing. Kernels differ, so these two stand for the rest."""
    calls = [(name, args) for name, args in NONSENSE if name in ("clone3", "setxattrat")]
    here = [c for c in calls if tried(run, program, "-", "native", [c]) != [RESULTS[ABSENT]]]
    assert "clone3" in dict(here)
    filtered = tried(run, program, save(place, VARIANTS[0]), "native", here)
    assert set(filtered) == {RESULTS[ABSENT]}


@only_x86_64
@pytest.mark.parametrize("number", [*map(str, FOREIGN)], ids=["getpid", "socket", "socketcall"])
def test_case_59_an_i386_call_by_int_0x80_is_killed(
    run: Runner, program: str, place: Path, number: str
) -> None:
    control = tried(run, program, "-", "i386", [(number, ())])
    if control[0].startswith("signal"):
        pytest.skip("the kernel has no IA32 emulation (CONFIG_IA32_EMULATION, ia32_emulation=)")
    filtered = tried(run, program, save(place, VARIANTS[0]), "i386", [(number, ())])
    assert filtered == [RESULTS[KILL_PROCESS]]


@only_x86_64
@pytest.mark.parametrize("number", X32_NUMBERS)
def test_case_59_an_x32_call_is_killed(run: Runner, program: str, place: Path, number: int) -> None:
    """Also where the kernel has no x32, whose answer to it would be ENOSYS."""
    calls: list[Attempt] = [(str(0x40000000 | number), ())]
    assert tried(run, program, "-", "native", calls)[0] in ("ok", "14", "22", RESULTS[ABSENT])
    filtered = tried(run, program, save(place, VARIANTS[0]), "native", calls)
    assert filtered == [RESULTS[KILL_PROCESS]]


@each_variant
def test_numbers_beyond_the_table_and_in_its_gaps_do_not_exist(
    run: Runner, program: str, place: Path, variant: Variant
) -> None:
    calls: list[Attempt] = [(str(n), (-1,) * 6) for n in BEYOND]
    filtered = tried(run, program, save(place, variant), "native", calls)
    assert filtered == [RESULTS[ABSENT]] * len(calls)


def test_a_second_filter_can_be_installed_under_the_first(
    run: Runner, program: str, place: Path
) -> None:
    """Nested use: the sandbox inside a sandbox."""
    first, second = (save(place, Variant(ARCH, network, 0)) for network in (FULL, NONE))
    done = run([program, first, program, second], input="native 39 0 0 0 0 0 0\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


EVENT_LOOP = """
import asyncio, subprocess, sys, threading
async def main():
    loop = asyncio.get_running_loop()
    assert await loop.run_in_executor(None, lambda: 7) == 7
    loop.call_soon_threadsafe(lambda: None)
    child = await asyncio.create_subprocess_exec("/bin/echo", "hello", stdout=subprocess.PIPE)
    out, _ = await child.communicate()
    assert out == b"hello\\n" and child.returncode == 0
asyncio.run(main())
done = subprocess.run(["/bin/sh", "-c", "echo a | cat; exit 3"], stdout=subprocess.PIPE)
assert (done.returncode, done.stdout) == (3, b"a\\n")
worker = threading.Thread(target=lambda: None)
worker.start(); worker.join()
print("fine")
"""

NETWORK = """
import ctypes, socket, threading
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].sendall(b"over tcp")).start()
client = socket.create_connection(server.getsockname())
assert client.recv(99) == b"over tcp"
one, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in "12")
one.bind(("127.0.0.1", 0))
other.sendto(b"over udp", one.getsockname())
assert one.recv(99) == b"over udp"
assert socket.getaddrinfo("localhost", 80)
assert "lo" in dict((name, i) for i, name in socket.if_nameindex())
head = ctypes.c_void_p()
assert ctypes.CDLL(None).getifaddrs(ctypes.byref(head)) == 0 and head.value
print("fine")
"""


def interpreter(run: Runner) -> list[str]:
    """The start of a command that runs a Python program: any version that the runner may execute.

    Asked through a shell: setpriv itself still passes directories that the user may not.
    """
    for candidate in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        done = run(["/bin/sh", "-c", 'exec "$0" -c "print(7)"', candidate])
        if done.stdout == "7\n":
            return [candidate, "-c"]
    pytest.skip("needs a Python that an ordinary user can execute, in /usr/bin")


@each_variant
def test_an_event_loop_with_threads_and_subprocesses_works_in_every_variant(
    run: Runner, program: str, place: Path, variant: Variant
) -> None:
    done = run([program, save(place, variant), *interpreter(run), EVENT_LOOP])
    assert (done.stdout, done.stderr) == ("fine\n", "")


def test_tcp_udp_and_interface_names_work_with_network_and_only_with_it(
    run: Runner, program: str, place: Path
) -> None:
    full, none = (save(place, Variant(ARCH, network, 0)) for network in (FULL, NONE))
    done = run([program, full, *interpreter(run), NETWORK])
    assert (done.stdout, done.stderr) == ("fine\n", "")
    done = run([program, none, *interpreter(run), NETWORK])
    assert "PermissionError: [Errno 1]" in done.stderr
