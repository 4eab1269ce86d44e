"""Section G: lifetimes, signals, time-outs."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from casekit import (
    alive,
    children,
    confined,
    errno_of,
    need,
    processes_with,
    python,
    skip,
    until,
)

import sandbox


@contextmanager
def _faster_than(seconds: float) -> Iterator[None]:
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    assert took < seconds, f"{took:.2f} s"


def case_92_a_background_process_does_not_delay_the_end(w: Path, o: Path) -> None:
    for timeout in (None, 20):
        with _faster_than(5):
            result = confined("sleep 30.0092 & echo hi", w, timeout=timeout)
        assert (result.out, result.timed_out, result.returncode) == ("hi\n", False, 0)
        assert result.swept >= 1
        assert processes_with("30.0092") == []
    with _faster_than(5):
        result = confined("sleep 30.0092 & sleep 30.0092", w, timeout=1)
    assert result.timed_out
    assert processes_with("30.0092") == []


def case_93_output_after_the_leaders_end_arrives(w: Path, o: Path) -> None:
    result = confined("exec > >(sleep 0.4; cat); echo important", w)
    assert result.out == "important\n"


def case_94_a_time_out_ends_the_whole_tree(w: Path, o: Path) -> None:
    command = "mkfifo p; (while :; do echo c; sleep 1.0094; done) >p & cat p"
    with _faster_than(6):
        result = confined(command, w, timeout=2)
    assert result.timed_out
    assert "c" in result.out
    assert [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _in(pid, w)] == []


def _in(pid: int, place: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(place)
    except OSError:
        return False


_DAEMON = """
import os, sys
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.chdir("/")
for fd in range(3): os.close(fd)
os.execvp("sleep", ["sleep", "77.0096"])
"""


def case_95_no_session_of_its_own_saves_a_process(w: Path, o: Path) -> None:
    result = confined("setsid sh -c 'exec sleep 77.0095' & sleep 78.0095", w, timeout=1)
    assert result.timed_out
    assert processes_with("77.0095") == []
    assert processes_with("78.0095") == []
    confined([python(), "-c", _DAEMON], w)
    assert processes_with("77.0096") == []


def case_97_the_end_of_the_thread_that_started_it_is_no_end_of_a_command(w: Path, o: Path) -> None:
    policy = sandbox.workspace_write(w)
    with sandbox.Sandbox(policy) as box:
        # The sandbox's helper and its lanes are born in threads that end.
        for _ in range(2):
            thread = threading.Thread(target=box.run, args=(["true"],))
            thread.start()
            thread.join()
        results: list[sandbox.Result] = []
        thread = threading.Thread(target=lambda: results.append(box.run("sleep 1; echo on")))
        thread.start()
        other = threading.Thread(target=box.run, args=(["true"],))
        other.start()
        other.join()
        thread.join()
        assert results[0].out == "on\n"
    with ThreadPoolExecutor(2) as pool:
        future = pool.submit(sandbox.run, "sleep 0.5; echo on", policy)
    assert future.result().out == "on\n"
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(sandbox.Sandbox, policy).result()
    with made:
        time.sleep(0.3)
        assert made.run(["echo", "on"]).out == "on\n"

    async def in_a_thread() -> sandbox.Result:
        return await asyncio.to_thread(sandbox.run, "sleep 0.5; echo on", policy)

    assert asyncio.run(in_a_thread()).out == "on\n"


_CALLER = """
import sandbox, sys
sandbox.run("trap '' TERM HUP INT; exec sleep " + sys.argv[1], cwd=".", timeout=None)
"""


def _caller(w: Path, seconds: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-W", "ignore", "-c", _CALLER, seconds]
    return subprocess.Popen(command, cwd=w, stdin=subprocess.DEVNULL)


def case_98_a_caller_that_is_killed_while_it_starts_leaves_nothing(w: Path, o: Path) -> None:
    program = (
        "import os, sandbox, sys\n"
        "box = sandbox.Sandbox(sandbox.workspace_write('.'))\n"
        "box.run(['true'])\n"
        "while True:\n"
        "    if os.fork() == 0:\n"
        "        sandbox.run(['sleep', '500.0098'], cwd='.')\n"
        "        os._exit(0)\n"
        "    if not sys.stdin.read(1):\n"
        "        break\n"
    ).replace("'.'", "os.getcwd()")
    for _ in range(20):
        child = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", program],
            cwd=w,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        assert child.stdin is not None
        time.sleep(0.4 + random.random() * 0.4)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdin.close()
    assert until(lambda: processes_with("500.0098") == [])


def case_100_the_end_of_the_caller_ends_what_ignores_signals(w: Path, o: Path) -> None:
    child = _caller(w, "500.0100")
    assert until(lambda: processes_with("500.0100"), 20)
    child.kill()
    child.wait()
    assert until(lambda: processes_with("500.0100") == [])


# By a name that no other process of the machine has: without a pid namespace all are seen.
_ORPHANS = (
    "cp /bin/sleep orphan102; for i in $(seq 300); do (./orphan102 0.01 &) ; done; sleep 0.5; "
    "for i in $(seq 100); do left=$(ps -eo comm= | grep -c orphan102); "
    "[ $left = 0 ] && break; sleep 0.1; done; echo $left"
)


def case_102_orphans_are_reaped(w: Path, o: Path) -> None:
    need("ps", "procps")
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        result = box.run(_ORPHANS)
        assert result.out == "0\n", result.text
        for _ in range(50):
            box.run("(sleep 0.01 &); true")
        assert len(children()) <= 1  # the helper
    for pid in children():
        assert alive(pid), "a zombie of the caller"


def case_103_a_time_out_ends_what_traps_signals_and_a_signal_what_does_not(
    w: Path, o: Path
) -> None:
    for command in ("sleep 50.0103; :", "trap '' TERM INT HUP; sleep 50.0103"):
        with _faster_than(5):
            assert confined(command, w, timeout=1).timed_out
        assert processes_with("50.0103") == []
    assert confined("kill -TERM $$; echo survived", w).signal == signal.SIGTERM


def case_105_an_ignored_sigchld_of_the_caller_changes_no_status(w: Path, o: Path) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert confined("exit 3", w).returncode == 3
        assert confined(["true"], w).returncode == 0
        assert confined("kill -9 $$", w).signal == 9
    finally:
        signal.signal(signal.SIGCHLD, before)
    program = "import sandbox, sys\nsys.exit(sandbox.run('exit 3', cwd=sys.argv[1]).returncode)\n"
    done = subprocess.run(
        [
            "sh",
            "-c",
            "trap '' CHLD; exec \"$@\"",
            "sh",
            sys.executable,
            "-W",
            "ignore",
            "-c",
            program,
            str(w),
        ],
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 3


def case_106_masks_and_ignored_signals_are_not_inherited(w: Path, o: Path) -> None:
    numbers = (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGPIPE,
        signal.SIGXFSZ,
    )
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGRTMIN}
    )
    look = ["grep", "-E", "SigIgn|SigBlk", "/proc/self/status"]
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        lines = box.run(look).out.splitlines()
        assert [line.split()[1] for line in lines] == ["0" * 16] * 2
        outside = subprocess.run(look, capture_output=True, text=True).stdout
        assert outside.split()[1] != "0" * 16
        result = box.run(["sh", "-c", "yes | head -1; kill -TERM $$; echo survived"])
        assert (result.text, result.signal) == ("y\n", signal.SIGTERM)


_SMALL = r"""
import os, random, subprocess, sys, threading, time
open("/proc/sys/kernel/pid_max", "w").write("400")
import sandbox
canaries = [subprocess.Popen(["sleep", "600"]) for _ in range(8)]
end = time.monotonic() + 6
box = sandbox.Sandbox(sandbox.workspace_write(sys.argv[1]))
counts = [0, 0]
def work():
    while time.monotonic() < end:
        result = box.run("sleep 0.02 & sleep 0.02", timeout=random.uniform(0.005, 0.06))
        counts[result.timed_out] += 1
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
while any(t.is_alive() for t in threads):
    for index, one in enumerate(canaries):
        assert one.poll() is None, one.returncode
        if index % 2:  # a canary with a new number, the old one is free again
            one.kill(); one.wait(); canaries[index] = subprocess.Popen(["sleep", "600"])
    time.sleep(0.01)
[t.join() for t in threads]
assert all(one.poll() is None for one in canaries)
assert counts[0] > 5 and counts[1] > 5, counts
[(one.kill(), one.wait()) for one in canaries]
box.close()
"""


def case_107_a_number_that_is_used_again_is_not_killed(w: Path, o: Path) -> None:
    need("unshare", "util-linux")
    if os.getuid() != 0:
        skip("needs root: pid_max of a new pid namespace")
    enter = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    can = subprocess.run(
        [*enter, "sh", "-c", "echo 400 >/proc/sys/kernel/pid_max"], capture_output=True, text=True
    )
    limit = Path("/proc/sys/kernel/pid_max").read_text()
    if can.returncode != 0 or int(limit) <= 400:
        Path("/proc/sys/kernel/pid_max").write_text("4194304" if int(limit) <= 400 else limit)
        skip("needs Linux 6.14: pid_max of a pid namespace of its own")
    done = subprocess.run(
        [*enter, sys.executable, "-W", "ignore", "-c", _SMALL, str(w)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=90,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert Path("/proc/sys/kernel/pid_max").read_text() == limit


def _descendants(pid: int) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = Path(f"/proc/{name}/stat").read_text()
        except OSError:
            continue
        if int(text.rpartition(")")[2].split()[1]) == pid:
            found += [int(name), *_descendants(int(name))]
    return found


def case_108_other_threads_go_on_while_a_program_is_started(w: Path, o: Path) -> None:
    """A stopped helper stands for an execve on a slow disk."""
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        box.run(["true"])
        helpers = _descendants(os.getpid())
        for pid in helpers:
            os.kill(pid, signal.SIGSTOP)
        results: list[sandbox.Result] = []
        thread = threading.Thread(target=lambda: results.append(box.run(["echo", "on"])))
        last = time.monotonic()
        thread.start()
        gap, end = 0.0, last + 1
        while (now := time.monotonic()) < end:
            gap, last = max(gap, now - last), now
            time.sleep(0.001)
        for pid in reversed(helpers):
            os.kill(pid, signal.SIGCONT)
        thread.join()
        assert gap < 0.5, gap  # a held lock would make it one second
        assert results[0].out == "on\n"


def case_109_locks_of_other_threads_do_not_stop_a_start(w: Path, o: Path) -> None:
    log = logging.getLogger("case")
    log.addHandler(logging.StreamHandler(open(os.devnull, "w")))  # noqa: SIM115
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            log.warning("x")
            sys.modules.pop("this", None)
            bytearray(1 << 16)

    noise = [threading.Thread(target=busy) for _ in range(3)]
    for thread in noise:
        thread.start()
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box, ThreadPoolExecutor(8) as pool:
        handler = log.handlers[0]
        done = list(pool.map(lambda _: box.run(["true"], timeout=30).returncode, range(200)))
        handler.acquire()
        try:
            assert box.run(["true"], timeout=30).ok
        finally:
            handler.release()
    stop.set()
    for thread in noise:
        thread.join()
    log.handlers[0].stream.close()  # type: ignore[attr-defined]
    assert set(done) == {0}


_OUTSIDE = """
import resource, signal
pid = int(sys.argv[2])
match sys.argv[1]:
    case "zero": os.kill(pid, 0)
    case "term": os.kill(pid, signal.SIGTERM)
    case "kill": os.kill(pid, signal.SIGKILL)
    case "pidfd": signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGKILL)
    case "prlimit": resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, 1))
    case "renice": os.setpriority(os.PRIO_PROCESS, pid, 19)
    case "affinity": os.sched_setaffinity(pid, {0})
    case "scheduler": os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))
"""


def case_110_processes_outside_are_out_of_reach(w: Path, o: Path) -> None:
    kinds = ("zero", "term", "kill", "pidfd", "prlimit", "renice", "affinity", "scheduler")
    sentinel = subprocess.Popen(["sleep", "600"])
    try:
        for target in (sentinel.pid, os.getpid()):
            for kind in kinds:
                found = errno_of(_OUTSIDE, w, kind, target)
                assert found in ("EPERM", "EACCES", "ESRCH"), (kind, found)
        assert sentinel.poll() is None
        before = Path(f"/proc/{sentinel.pid}/limits").read_text()
        assert "1                    1" not in before
        for kind in ("zero", "prlimit", "renice", "affinity"):
            # the twin: a child of its own
            code = "pid = os.fork()\nif pid == 0:\n    import time; time.sleep(60); os._exit(0)\n"
            code += f"sys.argv = ['', '{kind}', str(pid)]\n"
            code += _OUTSIDE + "\nos.kill(pid, 9)\n"
            if kind == "zero":
                assert errno_of(code, w) == ""
    finally:
        sentinel.kill()
        sentinel.wait()


def case_110_killing_the_parent_ends_the_sandbox_at_most(w: Path, o: Path) -> None:
    for command in ("kill -9 $PPID; sleep 1", "kill -STOP $PPID; sleep 1", "kill -9 -1; sleep 1"):
        with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
            try:
                result = box.run(command, timeout=20)
            except sandbox.SandboxLost:
                pass
            else:
                assert not result.timed_out, command
        assert until(lambda: not [pid for pid in children() if alive(pid)])
    assert confined(["true"], w).ok


def case_113_no_descriptor_of_the_caller_is_open_inside(w: Path, o: Path) -> None:
    leak = os.open(o / "leak", os.O_WRONLY | os.O_CREAT)
    place = os.open(o, os.O_RDONLY)
    for fd, number in ((leak, 9), (leak, 250), (place, 10), (place, 251)):
        os.dup2(fd, number, inheritable=True)
    result = confined("echo x >&9; echo x >&250; cat /proc/self/fd/10/file; ls /proc/self/fd", w)
    assert result.err.count("Bad file descriptor") == 2
    assert "No such file" in result.err
    assert set(result.out.split()) <= {"0", "1", "2", "3"}  # 3: the directory that ls reads
    assert (o / "leak").read_text() == ""
    code = "print(sorted(os.listdir('/proc/self/fd')))"
    assert errno_of(code, w) == "['0', '1', '2', '3']"
    subprocess.run(["bash", "-c", "echo x >&9"], close_fds=False, check=True)
    assert (o / "leak").read_text() == "x\n"


def case_115_what_is_left_in_the_background_is_ended_and_counted(w: Path, o: Path) -> None:
    command = "nohup sleep 115.0115 >/dev/null 2>&1 & echo $!"
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        result = box.run(command)
        assert result.swept >= 1
        assert processes_with("115.0115") == []
        assert box.run(f"kill -0 {result.out}").returncode != 0
        assert box.run(["true"]).swept == 0


_INTERRUPTED = """
import sandbox, sys, os
box = sandbox.Sandbox(sandbox.workspace_write(os.getcwd()))
before = os.listdir("/proc/self/fd")
box.run(["true"])
fds = len(os.listdir("/proc/self/fd"))
print("ready", flush=True)
try:
    box.run(["sleep", "66.0116"])
except KeyboardInterrupt:
    print(len(os.listdir("/proc/self/fd")) - fds, box.run(["echo", "on"]).out.strip(), flush=True)
box.close()
"""


def case_116_an_interrupt_ends_the_tree(w: Path, o: Path) -> None:
    caller = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _INTERRUPTED],
        cwd=w,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert caller.stdout is not None
    assert caller.stdout.readline() == "ready\n"
    assert until(lambda: processes_with("66.0116"))
    caller.send_signal(signal.SIGINT)
    with _faster_than(10):
        out, err = caller.communicate(timeout=30)
    assert (out.split(), err, caller.returncode) == (["0", "on"], "", 0)
    assert processes_with("66.0116") == []


def case_117_a_time_out_that_means_nothing_is_refused(w: Path, o: Path) -> None:
    for value in (0, -1, float("inf"), float("nan"), 1e12, "1", True):
        try:
            sandbox.run(["true"], cwd=w, timeout=value)
        except sandbox.InvalidLimit as error:
            assert error.field == "timeout"
        else:
            raise AssertionError(f"{value!r} was taken")
    assert sandbox.run(["true"], cwd=w, timeout=None).ok


def case_117_a_time_out_fires_in_time_and_is_no_status(w: Path, o: Path) -> None:
    with _faster_than(2):
        assert confined(["sleep", "9"], w, timeout=0.001).timed_out
    limits = sandbox.Limits(output=1 << 16)
    result = confined(["yes"], w, timeout=1, limits=limits)
    assert result.timed_out
    assert 1 <= result.duration < 2.5, result.duration
    for status in (124, 137, 255):
        result = confined(f"exit {status}", w, timeout=60)
        assert (result.returncode, result.timed_out) == (status, False)
