"""Bodies of tests of limits; each runs in a process of its own, as one user, in one isolation.

SANDBOX_ISOLATION says which isolation is wanted: `landlock`, or `auto` for namespaces.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

from casekit import errno_of
from lanekit import MARK, alive, children, gone, new_mark

import _sandcore as core
import sandbox
from sandbox.limits import Limits

PYTHON = "/usr/bin/python3"
NAMESPACES = os.environ.get("SANDBOX_ISOLATION") == "auto"


def parts(result: sandbox.Result) -> dict[str, str]:
    """What the result says is weaker: part -> cause."""
    return {part.part: part.cause for part in result.enforcement.weaker}


def a_sandbox(w: Path, limits: Limits) -> sandbox.Sandbox:
    """A sandbox in the isolation that is asked for."""
    box = sandbox.Sandbox(sandbox.workspace_write(w).with_limits(limits))
    assert box.enforcement.isolation == ("namespaces" if NAMESPACES else "landlock")
    return box


# Forks, or starts threads, until the kernel refuses; says how many there were, and the errno.
FILL = """
import errno, os, signal, threading, time
made = []
try:
    while len(made) < 3000:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        made.append(pid)
except OSError as error:
    print(len(made), errno.errorcode[error.errno])
for pid in made:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
"""
THREADS = """
import threading
stop, made = threading.Event(), 0
try:
    while made < 3000:
        threading.Thread(target=stop.wait).start()
        made += 1
except RuntimeError:
    print(made)
stop.set()
"""


def processes_are_counted_exactly(w: Path) -> None:
    with a_sandbox(w, Limits(processes=5)) as box:
        for limits, most in (
            (None, 5),
            (None, 5),
            (Limits(processes=1), 1),
            (Limits(processes=40), 40),
            (Limits(processes=400), 400),
            (None, 5),
        ):
            result = box.run([PYTHON, "-c", FILL], limits=limits)
            assert result.out == f"{most - 1} EAGAIN\n", (most, result.text)
            assert "processes" not in parts(result)
        assert box.run([PYTHON, "-c", THREADS]).out == "4\n"
        free = box.run([PYTHON, "-c", FILL.replace("3000", "600")], limits=Limits())
        assert free.ok and free.out == "", "without a limit nothing is refused"


def without_a_count_it_is_the_users(w: Path) -> None:
    mine = int(subprocess.run(
        ["sh", "-c", "ps -L --no-headers -u $(id -u) | wc -l"], capture_output=True, text=True
    ).stdout)  # fmt: skip
    with a_sandbox(w, Limits(processes=mine + 30)) as box:
        result = box.run([PYTHON, "-c", FILL.replace("3000", "300")])
        assert "RLIMIT_NPROC" in parts(result)["processes"]
        if os.getuid() == 0:
            assert result.out == "", "root is not bound, and the result says so"
            assert "root" in parts(result)["processes"]
        else:
            made, code = result.out.split()
            assert code == "EAGAIN" and int(made) <= mine + 30


BOMB = "f() { f | f & }; f; sleep 60"
OLD_KERNEL = 0x0020000  # personality(2): uname says 2.6


def a_fork_bomb_is_held_and_gone(w: Path) -> None:
    most, seen, stop = 60, [0], threading.Event()
    mark = new_mark()

    def look() -> None:
        while not stop.is_set():
            seen.append(len(alive(mark)))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        with a_sandbox(w, Limits(processes=most)) as box:
            timer = threading.Timer(1, lambda: seen.append(-usable()))
            timer.start()
            result = box.run(BOMB, timeout=3, env={MARK: mark})
            assert result.timed_out and result.duration < 8
            assert gone(mark, 0) == [], "nothing of it is there when the call returns"
            timer.join()
            assert box.run("echo next").out == "next\n"
    finally:
        stop.set()
        watcher.join()
    assert min(seen) == -1, "the host could not start a process meanwhile"
    assert most // 2 < max(seen) <= most, max(seen)


def usable() -> int:
    """1 when the host starts a process in time."""
    return int(subprocess.run(["true"], timeout=2).returncode == 0)


def a_fork_bomb_of_a_user_is_held_by_the_users_number(w: Path) -> None:
    mark = new_mark()
    with a_sandbox(w, Limits(processes=120)) as box:
        result = box.run(BOMB, timeout=2, env={MARK: mark})
        assert result.timed_out and gone(mark, 0) == []


def numbers_wrap_around(w: Path) -> None:
    with a_sandbox(w, Limits(processes=3)) as box:
        script = "for i in $(seq 300); do /bin/true || echo no; done; (exec /bin/true) && echo $$"
        numbers = {int(box.run(script).out) for _ in range(4)}
        assert all(300 <= number < 303 for number in numbers), numbers


def the_number_cannot_be_raised_from_below(w: Path) -> None:
    before = Path("/proc/sys/kernel/pid_max").read_text()
    policy = sandbox.workspace_write(w).with_limits(Limits(processes=5))
    inside = errno_of("print(open('/proc/sys/kernel/pid_max').read().strip())", w, policy=policy)
    assert inside == "305"
    for name in ("pid_max", "ns_last_pid"):
        code = f"os.open('/proc/sys/kernel/{name}', os.O_WRONLY)"
        assert errno_of(code, w, policy=policy) in ("EROFS", "EACCES")
    assert Path("/proc/sys/kernel/pid_max").read_text() == before


def lanes_of_other_numbers_do_not_pile_up(w: Path) -> None:
    with a_sandbox(w, Limits(processes=5)) as box:
        box.run("true")
        helper = box._boundary._confinement._helper.pid  # type: ignore[union-attr, attr-defined]
        for most in range(10, 30):
            box.run("true", limits=Limits(processes=most))
        assert len(children(helper)) <= 2


def an_old_kernel_is_left_alone(w: Path) -> None:
    before = Path("/proc/sys/kernel/pid_max").read_text()
    assert ctypes.CDLL(None).personality(OLD_KERNEL) >= 0
    assert os.uname().release.startswith("2.6.")
    with a_sandbox(w, Limits(processes=500)) as box:
        assert "RLIMIT_NPROC" in parts(box.run("true"))["processes"]
        helper = box._boundary._confinement._helper  # type: ignore[union-attr, attr-defined]
        try:
            helper.lane(500)
        except core.StageError as error:
            assert (error.stage, error.errno) == ("limits", errno.EOPNOTSUPP)
        else:
            raise AssertionError("a lane that counts, of a kernel that cannot")
    assert Path("/proc/sys/kernel/pid_max").read_text() == before


M = 1 << 20
TAKE = """
import os, sys, time
def take(mebibytes, seconds=30):
    held = bytearray(mebibytes << 20)
    time.sleep(seconds)
"""
SEVERAL = """
print("before", flush=True)
for _ in range(5):
    if os.fork() == 0:
        take(50)
        os._exit(0)
time.sleep(SECONDS)
"""


def memory(box: sandbox.Sandbox, code: str, most: int, **more: object) -> sandbox.Result:
    """A Python program under a limit of memory, in MiB."""
    limits = Limits(memory=most * M)
    return box.run([PYTHON, "-c", TAKE + code], limits=limits, timeout=60, **more)  # type: ignore[arg-type]


def memory_is_that_of_all_processes_together(w: Path) -> None:
    mark = new_mark()
    with a_sandbox(w, Limits()) as box:
        result = memory(box, SEVERAL.replace("SECONDS", "30"), 150, env={MARK: mark})
        assert result.memory_exceeded and not result.ok and not result.timed_out
        assert (result.signal, result.exit_status) == (9, 137)
        assert "memory" in result.outcome and result.out == "before\n"
        assert gone(mark, 0) == []
        assert "20 ms" in parts(result)["memory"]
        enough = memory(box, SEVERAL.replace("SECONDS", "1") + "os._exit(0)", 900)
        assert enough.ok and not enough.memory_exceeded, enough.text
        assert "memory" not in parts(box.run("true"))


def memory_of_others_is_not_counted(w: Path) -> None:
    mine = bytearray(300 * M)
    with a_sandbox(w, Limits()) as box:
        other = threading.Thread(target=lambda: box.run([PYTHON, "-c", TAKE + "take(300, 2)"]))
        other.start()
        time.sleep(0.5)
        assert memory(box, "take(50, 1)", 150).ok
        other.join()
    assert len(mine) == 300 * M


def memory_that_is_shared_counts_once(w: Path) -> None:
    forks = """
held = bytearray(100 << 20)
for _ in range(6):
    if os.fork() == 0:
        time.sleep(1)
        os._exit(0)
time.sleep(1.2)
"""
    spawns = """
import subprocess
held = bytearray(150 << 20)
for _ in range(1000):
    subprocess.run(["/bin/true"])
"""
    with open(w / "big", "wb") as file:
        file.write(b"x" * (200 * M))
    file_pages = """
import mmap
with open("big", "rb") as file:
    view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
assert sum(view[::4096])
time.sleep(0.3)
"""
    with a_sandbox(w, Limits()) as box:
        for code in (forks, spawns, file_pages):
            result = memory(box, code, 190 if code != file_pages else 100)
            assert result.ok, (code, result.outcome, result.text)


# Each has more than it may, in a way that does not show in the usual place.
HIDING = {
    "closed to others": "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); take(300)",
    "first thread gone": "threading.Thread(target=take, args=(300,)).start()\n"
    "ctypes.CDLL(None).pthread_exit(None)",
    "shared": "held = mmap.mmap(-1, 300 << 20)\nheld.write(b'x' * (300 << 20)); time.sleep(30)",
    "daemon": "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        take(300)\n"
    "    os._exit(0)\ntime.sleep(30)",
    "like its parent": "held = bytearray(b'x') * (130 << 20)\nif os.fork() == 0:\n"
    "    held[::4096] = b'y' * len(held[::4096])\ntime.sleep(30)",
}


def no_way_of_having_memory_is_overlooked(w: Path) -> None:
    with a_sandbox(w, Limits()) as box:
        for name, code in HIDING.items():
            result = memory(box, "import ctypes, mmap, threading\n" + code, 150)
            assert result.memory_exceeded and result.duration < 20, (name, result.text)
        left = "if os.fork() == 0:\n    time.sleep(0.2); take(300)\nos._exit(0)"
        result = memory(box, left, 150)
        assert result.memory_exceeded and result.returncode == 0, "what outlives the command"
        assert (result.ok, result.exit_status) == (False, 137)


def one_process_cannot_map_much_more(w: Path) -> None:
    room = max(1 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 16)
    code = f"import mmap; mmap.mmap(-1, {room + 200 * M}, flags=mmap.MAP_PRIVATE)"
    with a_sandbox(w, Limits()) as box:
        refused = memory(box, code, 100)
        assert refused.returncode == 1 and "Cannot allocate memory" in refused.err
        assert memory(box, code, 300).ok, "mapped and not used: that is no memory"


def memory_that_cannot_be_looked_at_is_reported(w: Path) -> None:
    limits = Limits(memory=150 * M)
    closed = sandbox.workspace_write(w).with_deny("/proc").with_limits(limits)
    for policy, why in ((closed, "denies /proc"), (sandbox.full_access(), "nothing tells")):
        result = sandbox.run([PYTHON, "-c", TAKE + "take(200, 0.1)"], policy, cwd=w, limits=limits)
        assert why in parts(result)["memory"] and "RLIMIT_DATA" in parts(result)["memory"]
        assert not result.memory_exceeded and result.ok, result.text


def limits_hold_for_commands_that_go_on(w: Path) -> None:
    with a_sandbox(w, Limits(processes=200)) as box:
        words = [PYTHON, "-c", TAKE + SEVERAL.replace("SECONDS", "30")]
        going_on = box.popen(words, limits=Limits(memory=150 * M), timeout=60)
        result = going_on.wait()
        assert result.memory_exceeded and result.exit_status == 137 and not result.timed_out
        assert "memory" in parts(result)
        late = box.popen([PYTHON, "-c", TAKE + "take(50)"], limits=Limits(memory=150 * M, wall=1))
        ended = late.wait()
        assert (ended.timed_out, ended.memory_exceeded) == (True, False)
        if NAMESPACES:
            output = os.memfd_create("output")
            filled = box.popen([PYTHON, "-c", FILL], limits=Limits(processes=7), stdout=output)
            assert filled.wait().ok
            assert os.pread(output, 100, 0) == b"6 EAGAIN\n"


FULL = """
import errno, os, sys
place, block, written = sys.argv[1], b"x" * (1 << 20), 0
try:
    with open(f"{place}/full", "wb", buffering=0) as file:
        while written < 200 << 20:
            written += file.write(block)
except OSError as error:
    print(written >> 20, errno.errorcode[error.errno])
"""
FILES = """
import errno, os, sys
made = 0
try:
    while made < 50_000:
        os.mknod(f"{sys.argv[1]}/{made}")
        made += 1
except OSError as error:
    print(made // 1024, errno.errorcode[error.errno])
"""


def available() -> int:
    """MiB of the host's memory that are free, or can be made so."""
    text = Path("/proc/meminfo").read_text()
    return int(text.partition("MemAvailable:")[2].split()[0]) // 1024


def temporary_directories_are_full_at_their_size(w: Path) -> None:
    before = available()
    with a_sandbox(w, Limits(tmp=32 * M)) as box:
        for place in ("/tmp", "/dev/shm"):
            result = box.run([PYTHON, "-c", FULL, place])
            assert result.out == "32 ENOSPC\n", result.text
            assert before - available() < 32 * 2 + 300
            assert box.run(f"rm {place}/full && touch {place}/next").ok
            # A thousandth and the directory itself count as files.
            result = box.run([PYTHON, "-c", FILES, place])
            assert result.out in ("7 ENOSPC\n", "8 ENOSPC\n"), result.text
        assert parts(box.run("true")).get("tmp-size") is None
        said = parts(box.run("true", limits=Limits(tmp=16 * M)))
        assert str(32 * M) in said["tmp-size"]
    with a_sandbox(w, Limits()) as box:
        sizes = box.run("df -B1 --output=size /tmp /dev/shm").out.split()[1:]
        assert sizes == [str(2 << 30)] * 2, sizes
        assert box.run([PYTHON, "-c", FULL, "/tmp"]).out == "", "the twin: there is room"
    with a_sandbox(w, Limits(tmp=None)) as box:
        half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        size = int(box.run("df -B1 --output=size /tmp").out.split()[1])
        assert abs(size - half) < half // 4, (size, half)


GROW = """
import errno, os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for size in (1 << 20, (1 << 20) + 1):
    try:
        os.truncate(os.open("grown", os.O_CREAT | os.O_WRONLY), size)
        print("ok")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
OPEN = """
import errno, os
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    print(held[-1], errno.errorcode[error.errno])
"""
RAISE = """
import errno, resource
for kind in (resource.RLIMIT_CPU, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE):
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (hard, hard))  # the twin
    try:
        resource.setrlimit(kind, (hard + 1, hard + 1))
        print("raised")
    except ValueError as error:
        print("refused", error)
"""


def limits_of_the_kernel_hold(w: Path) -> None:
    limits = Limits(cpu=1, open_files=32, file_size=M, core=0)
    with a_sandbox(w, limits) as box:
        busy = "import os\nif os.fork() == 0:\n    while True: pass\nprint(os.wait()[1])"
        assert box.run([PYTHON, "-c", busy], timeout=60).out == "9\n", "each process its own"
        spent = box.run([PYTHON, "-c", "while True: pass"], timeout=60)
        assert spent.signal == 9 and not spent.timed_out and 0.8 < spent.usage.cpu < 3
        assert box.run([PYTHON, "-c", GROW]).out == "ok\nEFBIG\n"
        assert box.run("head -c 2M /dev/zero >flood").returncode == 128 + 25  # SIGXFSZ
        assert box.run([PYTHON, "-c", OPEN]).out == "31 EMFILE\n"
        refused = box.run([PYTHON, "-c", RAISE])
        assert refused.out.count("refused") == 3 and "raised" not in refused.out, refused.text
        free = box.run([PYTHON, "-c", GROW], limits=Limits())
        assert free.out == "ok\nok\n", "limits are those of the command"


# What would change what the next command of the lane inherits. Argument: the lane, or 0: oneself.
REACH = """
import ctypes, errno, json, os, resource, sys
LIBC = ctypes.CDLL(None, use_errno=True)
IOPRIO = 251 if os.uname().machine == "x86_64" else 30
def ioprio(which, who):
    if LIBC.syscall(IOPRIO, which, who, 2 << 13 | 6) < 0:
        raise OSError(ctypes.get_errno(), "ioprio_set")
def lower(pid):
    soft, hard = resource.prlimit(0, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard - 1, hard - 1))
lane, own = int(sys.argv[1]), {min(os.sched_getaffinity(0))}
param = os.sched_param(0)
ACTS = {
    "limit": lambda p: lower(p),
    "affinity": lambda p: os.sched_setaffinity(p, own),
    "scheduler": lambda p: os.sched_setscheduler(p, os.SCHED_BATCH, param),
    "parameter": lambda p: os.sched_setparam(p, param),
    "nice": lambda p: os.setpriority(os.PRIO_PROCESS, p, 7),
    "ioprio": lambda p: ioprio(1, p),
}
WIDE = {
    "nice of a group": lambda p: os.setpriority(os.PRIO_PGRP, os.getpgid(p), 7),
    "nice of the user": lambda p: os.setpriority(os.PRIO_USER, os.getuid(), 7),
    "ioprio of a group": lambda p: ioprio(2, os.getpgid(p)),
    "ioprio of the user": lambda p: ioprio(3, os.getuid()),
    "session": lambda p: open(f"/proc/{p}/autogroup", "w").write("7"),
    "oom": lambda p: open(f"/proc/{p}/oom_score_adj", "w").write("900"),
}
def tried(act, pid):
    try:
        act(pid)
        return ""
    except OSError as error:
        return errno.errorcode[error.errno]
print(json.dumps({
    "lane": {name: tried(act, lane) for name, act in (ACTS | WIDE).items()},
    "self": {name: tried(act, 0) for name, act in ACTS.items()},
}))
"""
SHOWN = "cut -d' ' -f18-19 /proc/self/stat; ulimit -n; nproc; taskset -p $$ | cut -d: -f2; ionice"


def state_of(pid: int) -> list[object]:
    """What a process hands on to its children, as the host sees it."""
    with open(f"/proc/{pid}/stat") as file:
        nice = file.read().rpartition(")")[2].split()[16]
    number = 252 if os.uname().machine == "x86_64" else 31
    ioprio = ctypes.CDLL(None).syscall(number, 1, pid)
    limits = Path(f"/proc/{pid}/limits").read_text()
    scheduler = os.sched_getscheduler(pid)
    score = Path(f"/proc/{pid}/oom_score_adj").read_text()
    return [limits, nice, os.sched_getaffinity(pid), scheduler, ioprio, score]


def what_a_lane_hands_on_cannot_be_changed_from_below(w: Path) -> None:
    with a_sandbox(w, Limits()) as box:
        before = box.run(SHOWN)
        helper = box._boundary._confinement._helper.pid  # type: ignore[union-attr, attr-defined]
        (lane,) = children(helper)
        kept = state_of(lane), state_of(helper)
        for target in ("1", "$PPID") if NAMESPACES else ("$PPID",):
            program = f'exec {PYTHON} -c "$PROGRAM" {target}'
            result = box.run(["/bin/sh", "-c", program], env={"PROGRAM": REACH})
            found = json.loads(result.out)
            assert set(found["self"].values()) == {""}, ("the twin", found)
            refusals = set(found["lane"].values())
            assert refusals <= {"EPERM", "EACCES", "EROFS", "ESRCH", "ENOENT"}, found
            assert {found["lane"][name] for name in found["self"]} == {"EPERM"}, found
        assert (state_of(lane), state_of(helper)) == kept
        assert children(helper) == [lane], "it is the same lane that serves the next one"
        assert box.run(SHOWN).out == before.out


def main(name: str, w: str) -> None:
    """Runs one body."""
    warnings.simplefilter("ignore", sandbox.SandboxWeakened)
    began = time.monotonic()
    globals()[name](Path(w))
    print(f"{name}: {time.monotonic() - began:.2f} s", file=sys.stderr)
