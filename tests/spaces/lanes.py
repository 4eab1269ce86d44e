"""Lanes are out of reach of what runs below them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from spacekit import PROGRAM, PYTHON, all_of, helpers, inside, outside, program, space

# On a process A[0]. The last one stays, and changes what the others say.
ATTACKS = {
    "memory": "os.open(f'/proc/{A[0]}/mem', os.O_RDWR)",
    "environment": "read(f'/proc/{A[0]}/environ')",
    "map": "read(f'/proc/{A[0]}/maps')",
    "vector": "read(f'/proc/{A[0]}/auxv')",
    "traffic": "read(f'/proc/{A[0]}/io')",
    "stream": "os.readlink(f'/proc/{A[0]}/fd/0')",
    "stream, opened": "os.open(f'/proc/{A[0]}/fd/0', os.O_RDONLY)",
    "directory": "os.readlink(f'/proc/{A[0]}/cwd')",
    "top": "os.listdir(f'/proc/{A[0]}/root')",
    "program": "read(f'/proc/{A[0]}/exe')",
    "namespace": "os.readlink(f'/proc/{A[0]}/ns/pid')",
    "entering": "call(308, os.open(f'/proc/{A[0]}/ns/uts', os.O_RDONLY), 0)",
    "getfd": "call(438, os.pidfd_open(int(A[0])), 0, 0)",
    "reading": "call(310, int(A[0]), struct.pack('QQ', 4096, 1), 1, struct.pack('QQ', 0, 1), 1, 0)",
    "writing": "call(311, int(A[0]), struct.pack('QQ', 4096, 1), 1, struct.pack('QQ', 0, 1), 1, 0)",
    "comparing": "call(312, os.getpid(), int(A[0]), 1, 0, 0)",
    "limit": "resource.prlimit(int(A[0]), resource.RLIMIT_NOFILE, (99, 99))",
    "limit, asked": "resource.prlimit(int(A[0]), resource.RLIMIT_NOFILE)",
    "processors": "os.sched_setaffinity(int(A[0]), {0})",
    "scheduler": "os.sched_setscheduler(int(A[0]), os.SCHED_BATCH, os.sched_param(0))",
    "scheduler, new": "call(314, int(A[0]), struct.pack('IIQiIQQQ', 48, 3, 0, 9, 0, 0, 0, 0), 0)",
    "priority": "os.setpriority(os.PRIO_PROCESS, int(A[0]), 19)",
    "of the user": "os.setpriority(os.PRIO_USER, os.getuid(), 19)",
    "disk": "call(251, 1, int(A[0]), (2 << 13) | 7)",
    "victim": "write(f'/proc/{A[0]}/oom_score_adj', 0, b'999')",
    "trace": "call(101, 0x4206, int(A[0]), 0, 0)",
}
# Refused by the owner of its files, by the tracer's rules, or by the filter; by mounts.
_NO = {"EACCES", "EPERM", "EROFS"}
_UNLIKE = {
    "reading": {"EPERM"},
    "writing": {"EPERM"},
}


def a_lane_cannot_be_read_or_changed(w: Path, o: Path) -> None:
    # Outside in a user's session of its own: PRIO_USER is for all of the user's processes.
    acts = {name: act for name, act in ATTACKS.items() if name not in ("of the user", "entering")}
    target = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL)
    try:
        bare = outside(acts, target.pid)
    finally:
        target.kill()
        target.wait()
    # No address 0: what matters is that it was looked for.
    assert bare == all_of(acts, "ok") | {"reading": "EFAULT", "writing": "EFAULT"}, bare
    with space(w) as box:
        found = inside(box, ATTACKS, 1)
        wrong = {n: e for n, e in found.items() if e not in _UNLIKE.get(n, _NO)}
        assert not wrong, wrong
        own = "import os; print(os.getpriority(0, 0), len(os.sched_getaffinity(0)))"
        expected = f"{os.getpriority(0, 0)} {len(os.sched_getaffinity(0))}"
        assert box.run(program(own)).out.strip() == expected


def no_fd_of_a_lane_can_be_taken(w: Path, o: Path) -> None:
    acts = {}
    for number in range(32):
        acts[f"open {number}"] = f"os.open('/proc/1/fd/{number}', os.O_RDWR)"
        acts[f"path {number}"] = f"os.open('/proc/1/fd/{number}', os.O_PATH)"
        acts[f"take {number}"] = f"call(438, os.pidfd_open(1), {number}, 0)"
        acts[f"look {number}"] = f"os.stat('/proc/1/fd/{number}')"
    with space(w) as box:
        found = inside(box, acts)
        assert set(found.values()) <= {"EACCES", "EPERM", "ENOENT"}, found
        # The same calls on a process that may be asked: itself.
        own = {
            "open": "os.open('/proc/self/fd/0', os.O_RDONLY)",
            "look": "os.stat('/proc/self/fd/0')",
        }
        assert inside(box, own) == all_of(own, "ok")


SIGNALS = """
import ctypes, os, signal, struct, subprocess, sys, time
call = ctypes.CDLL(None, use_errno=True).syscall
def send(pid, number):
    info = struct.pack("iii", number, 0, -1).ljust(128, b"\\0")
    for act in (lambda: os.kill(pid, number), lambda: call(129, pid, number, info),
                lambda: call(234, pid, pid, number), lambda: call(200, pid, number),
                lambda: signal.pidfd_send_signal(os.pidfd_open(pid), number)):
        try: act()
        except OSError: pass
for number in range(1, 65):
    send(1, number)
child = subprocess.Popen(["sleep", "60"])
send(child.pid, 9)
print(child.wait(), os.readlink("/proc/self/ns/pid"))
"""


def no_signal_reaches_a_lane(w: Path, o: Path) -> None:
    """SIGKILL and SIGSTOP neither; the same calls end a process of the command's own."""
    with space(w) as box:
        first = box.run(program(SIGNALS), timeout=20).check().out.split()
        assert first[0] == "-9"
        began = time.monotonic()
        again = box.run("readlink /proc/self/ns/pid", timeout=20).check().out.split()
        assert again == first[1:] and time.monotonic() - began < 5
        stopped = [Path(f"/proc/{pid}/stat").read_text().split()[2] for pid in helpers()]
        assert len(stopped) >= 2 and "T" not in stopped and "t" not in stopped


FLOOD = """
import ctypes, struct
call = ctypes.CDLL(None, use_errno=True).syscall
info = struct.pack("iii", 40, 0, -1).ljust(128, b"\\0")
print(sum(call(129, 1, 40, info) == 0 for _ in range(3000)))
print(*[line.split()[1].split("/")[0] for line in open("/proc/self/status") if "SigQ" in line])
"""


def signals_do_not_pile_up_at_a_lane(w: Path, o: Path) -> None:
    """Each that waits is at the charge of the user, outside too, for as long as the lane lives."""
    with space(w) as box:
        sent, waiting = map(int, box.run(program(FLOOD)).check().out.split())
        assert sent >= 1000 and waiting >= sent
        after = int(box.run("grep SigQ /proc/self/status").check().out.split()[1].split("/")[0])
        assert after < 100


FORGE = """
import os, socket, struct, sys
for size in (4, 40, 64, 88, 128, 200, 500):
    for kind in range(1, 9):
        packet = struct.pack("I", kind).ljust(size, b"\\0")
        for fd in range(64):
            try: os.write(fd, packet) if fd != 1 else None
            except OSError: pass
            try: socket.socket(fileno=os.dup(fd)).send(packet)
            except OSError: pass
        for fd in range(64):
            try: os.write(os.open(f"/proc/1/fd/{fd}", os.O_WRONLY), packet)
            except OSError: pass
sys.exit(3)
"""


def no_reply_can_be_forged(w: Path, o: Path) -> None:
    with space(w) as box:
        for _ in range(2):
            result = box.run(program(FORGE))
            assert (result.returncode, result.timed_out) == (3, False)
            assert box.run("exit 4").returncode == 4


def lanes_of_one_sandbox_do_not_see_each_other(w: Path, o: Path) -> None:
    import threading

    wait = "echo $$ > pid; touch started; until [ -e end ]; do sleep 0.02; done; echo unhurt"
    kept = []
    with space(w) as box:
        thread = threading.Thread(target=lambda: kept.append(box.run(wait, timeout=30)))
        thread.start()
        while not (w / "started").exists():
            time.sleep(0.01)
        code = "import json, os; print(json.dumps([n for n in os.listdir('/proc') if n.isdigit()]))"
        seen = json.loads(box.run(program(code)).check().out)
        assert len(seen) == 2, seen  # its lane, and itself
        everybody = (
            "import os, signal; signal.signal(15, signal.SIG_IGN); os.kill(-1, 9); print('no')"
        )
        try:
            box.run(program(everybody))
        finally:
            (w / "end").touch()
            thread.join()
        assert kept[0].out == "unhurt\n"


def a_debugger_works_on_children(w: Path, o: Path) -> None:
    """What is refused of the lane is allowed of what is one's own."""
    code = f"""
import subprocess
child = subprocess.Popen(["sleep", "60"])
acts = {{"trace": "call(101, 0x4206, int(A[0]), 0, 0)",
        "memory": "os.open(f'/proc/{{A[0]}}/mem', 0)"}}
import json, sys
program = sys.argv[1]
print(subprocess.run([{PYTHON!r}, "-I", "-S", "-c", program, json.dumps(acts), str(child.pid)],
                     capture_output=True, text=True).stdout)
child.kill()
"""
    with space(w) as box:
        found = json.loads(box.run(program(code, PROGRAM)).check().out)
        assert found == {"trace": "ok", "memory": "ok"}
