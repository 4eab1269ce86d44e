"""Who dies with whom, and what a command can do to those that watch over it.

Each attack runs as this process's user and as an ordinary one. What is refused inside is proved by
its errno, and by the same act working on a process outside.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import AsUser
from lanekit import (
    DAEMON,
    alive,
    children,
    exists,
    gone,
    helper,
    kill_all,
    lane,
    new_mark,
    py,
    run,
    settled,
    sh,
    wait_for,
)

import _sandcore as core

TESTS = Path(__file__).resolve().parent


def python_path() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([*sys.path, str(TESTS)])}


class Caller:
    """Runs a program in a caller of its own: as we are, or as an ordinary user."""

    def __init__(self, who: str, as_user: AsUser) -> None:
        self.who = who
        self.as_user = as_user
        self.home = as_user.home

    def __call__(self, program: str, *arguments: object) -> str:
        """Its output. It finds its arguments in sys.argv[1:], and HOME is writable for it."""
        text, words = textwrap.dedent(program), [str(one) for one in arguments]
        if self.who == "user":
            done = self.as_user(text, *words, timeout=300)
        else:
            env = {**os.environ, **python_path(), "HOME": str(self.home)}
            done = subprocess.run(
                [sys.executable, "-c", text, *words],
                env=env,
                capture_output=True,
                text=True,
                timeout=300,
            )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(params=["self", "user"])
def caller(request: pytest.FixtureRequest, as_user: AsUser) -> Caller:
    """Both kinds of caller."""
    if request.param == "user" and os.getuid() != 0:
        pytest.skip("runs as an ordinary user already")
    return Caller(request.param, as_user)


@pytest.fixture
def mark() -> Iterator[str]:
    """A mark whose processes are gone in the end, whatever the test found."""
    word = new_mark()
    yield word
    kill_all(alive(word))


def in_session(session: int) -> list[int]:
    """Living processes of a session: a caller's, which its helper and lanes stay in."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(name))
    return found


# The death of the caller.

# A caller that has loaded everything, and forks one that starts and runs for each line it reads.
NURSERY = """
    import os, sys
    from lanekit import DAEMON, MARK, PYTHON, lane, policy, py
    from pathlib import Path
    import _sandcore as core
    home = Path(os.environ["HOME"])
    program = DAEMON + "daemon(); daemon(); time.sleep(300)"
    def by_lane(mark):
        with lane(home) as one:
            py(one, program, mark=mark, timeout=None)
    def by_start(mark):
        with lane(home) as one:
            null = os.open("/dev/null", os.O_RDWR)
            one.start([PYTHON.encode()], [PYTHON.encode(), b"-Ic", program.encode()],
                      f"{MARK}={mark}\\0".encode(), 1, b"/", fds=(null, null, null))
            one.wait()
    def by_spawn(mark):
        plan = core.Plan([PYTHON.encode(), b"-Ic", program.encode()],
                         [f"{MARK}={mark}".encode()], policy=policy(home))
        core.wait(core.spawn(plan)[1])
    for line in sys.stdin:
        how, mark = line.split()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            {"lane": by_lane, "start": by_start, "spawn": by_spawn}[how](mark)
            os._exit(0)
        print(pid, flush=True)
        os.waitpid(pid, 0)
"""


class Nursery:
    """Starts callers quickly."""

    def __init__(self, caller: Caller) -> None:
        command = [sys.executable, "-c"]
        prefix: list[str] = []
        if caller.who == "user":
            prefix = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--"]
            command = caller.as_user.python()
        self.process = subprocess.Popen(
            [*prefix, *command, textwrap.dedent(NURSERY)],
            env={**os.environ, **python_path(), "HOME": str(caller.home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, how: str, mark: str) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{how} {mark}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


@pytest.fixture
def nursery(caller: Caller) -> Iterator[Nursery]:
    """A process that starts callers."""
    if caller.who == "user":
        caller.as_user.python()
    made = Nursery(caller)
    yield made
    made.close()


@pytest.mark.parametrize("how", ["lane", "start", "spawn"])
def test_case_98_a_caller_killed_at_any_moment_of_the_start_leaves_nobody(
    nursery: Nursery, mark: str, how: str
) -> None:
    chance = random.Random(98)
    started = 0
    for _ in range(100):
        pid = nursery.start(how, mark)
        time.sleep(chance.uniform(0, 0.02))
        started += len(in_session(pid)) > 1
        os.kill(pid, signal.SIGKILL)
        assert settled(lambda pid=pid: in_session(pid) + alive(mark)) == []
    assert started > 10  # often enough there was somebody to leave behind


@pytest.mark.parametrize("how", ["lane", "start", "spawn"])
def test_case_100_a_caller_killed_while_daemons_run_leaves_nobody(
    nursery: Nursery, mark: str, how: str
) -> None:
    for _ in range(8):
        pid = nursery.start(how, mark)
        wait_for(lambda: len(alive(mark)) == 3, 20)
        os.kill(pid, signal.SIGKILL)
        assert settled(lambda pid=pid: in_session(pid) + alive(mark)) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_case_100_killing_the_caller_s_whole_process_group_leaves_nobody(
    nursery: Nursery, mark: str, number: signal.Signals
) -> None:
    """The helper is the one who must not die with the caller, or nobody ends the daemons."""
    for how in ("lane", "start", "spawn"):
        pid = nursery.start(how, mark)
        wait_for(lambda: len(alive(mark)) == 3, 20)
        os.killpg(pid, number)
        assert settled(lambda pid=pid: in_session(pid) + alive(mark)) == []


def test_stopping_the_caller_s_process_group_does_not_cost_the_sandbox(
    nursery: Nursery, mark: str
) -> None:
    pid = nursery.start("lane", mark)
    wait_for(lambda: len(alive(mark)) == 3, 20)
    time.sleep(0.3)  # the daemons' parents have ended by now
    before = sorted(alive(mark))
    os.killpg(pid, signal.SIGSTOP)
    time.sleep(0.2)
    os.killpg(pid, signal.SIGCONT)
    time.sleep(0.2)
    assert sorted(alive(mark)) == before and len(in_session(pid)) >= 3
    os.kill(pid, signal.SIGKILL)
    assert gone(mark) == []


def test_case_97_a_thread_that_ends_takes_nothing_with_it(workspace: Path) -> None:
    """Made in one thread, opened in another, run in a third, which are all gone by then."""

    def elsewhere(what: Any, *arguments: Any, **more: Any) -> Any:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(what(*arguments, **more)))
        thread.start()
        thread.join()
        return found[0]

    made = elsewhere(helper, workspace)
    with made as one_helper:
        place = elsewhere(one_helper.lane)
        time.sleep(0.05)
        assert elsewhere(sh, place, "echo one").stdout == b"one\n"
        assert sh(place, "sleep 0.3; echo two").stdout == b"two\n"
    with ThreadPoolExecutor(1) as pool:
        kept = pool.submit(core.Helper, one_helper.policy, core.HELPER_PATH).result()
    assert sh(kept.lane(), "sleep 0.3; echo three").stdout == b"three\n"
    kept.close()


# The death of those between.


@pytest.mark.parametrize(
    ("who", "number"),
    [("root", signal.SIGKILL), ("lane", signal.SIGKILL), ("lane", signal.SIGSTOP)],
)
def test_a_helper_that_is_killed_from_outside_leaves_nobody(
    workspace: Path, mark: str, who: str, number: signal.Signals
) -> None:
    for _ in range(5):
        with helper(workspace) as made, ThreadPoolExecutor(2) as pool:
            program = DAEMON + "daemon(); daemon(); time.sleep(300)"
            running = [pool.submit(py, made.lane(), program, mark=mark) for _ in range(2)]
            wait_for(lambda: len(alive(mark)) == 6, 20)
            lanes = children(made.pid)
            os.kill(made.pid if who == "root" else lanes[0], number)
            for one in running:
                assert isinstance(one.exception(20), core.LaneLost)
            assert gone(mark) == []
            assert settled(lambda p=[made.pid, *lanes]: [pid for pid in p if exists(pid)]) == []
    with lane(workspace) as one_lane:
        assert sh(one_lane, "echo next").stdout == b"next\n"


def test_when_a_run_says_that_the_sandbox_is_lost_all_of_it_is_dead(
    workspace: Path, mark: str
) -> None:
    """At once, not soon: what is decided after it must not race with what is left."""
    program = DAEMON + "[daemon() for _ in range(8)]; os.kill(os.getppid(), 9); time.sleep(300)"
    for _ in range(10):
        with helper(workspace) as made:
            with pytest.raises(core.LaneLost):
                py(made.lane(), program, mark=mark)
            assert alive(mark) == [] and not exists(made.pid) and children(os.getpid()) == []


def test_a_stopped_root_is_ended_in_the_end(workspace: Path, mark: str) -> None:
    made = core.Helper(helper_policy(workspace), core.HELPER_PATH)
    place = made.lane()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(py, place, DAEMON + "daemon(); time.sleep(300)", mark=mark)
        wait_for(lambda: len(alive(mark)) == 2, 20)
        os.kill(made.pid, signal.SIGSTOP)
        made.close()
        assert not exists(made.pid) and gone(mark) == []
        assert isinstance(running.exception(20), core.LaneLost)


def helper_policy(workspace: Path) -> core.Policy:
    with helper(workspace) as made:
        return made.policy


def test_idle_lanes_of_a_dead_helper_say_so(workspace: Path) -> None:
    with helper(workspace) as made:
        first, second = made.lane(), made.lane()
        os.kill(made.pid, signal.SIGKILL)
        wait_for(lambda: not exists(made.pid))
        with pytest.raises(core.LaneLost):
            sh(first, "echo x")
        assert not second.usable  # one loss is known to all
        with pytest.raises(core.LaneLost):
            made.lane()


# A fork of the caller.

FORKS = """
    import gc, os, sys
    import _sandcore as core
    from lanekit import lane, policy, sh
    from pathlib import Path
    home = Path(os.environ["HOME"])
    made = core.Helper(policy(home), core.HELPER_PATH)
    one = made.lane()
    def child():
        found = [one.usable]
        for what in (lambda: sh(one, "echo stolen"), made.lane):
            try:
                what()
            except core.LaneLost:
                found.append("lost")
        with lane(home) as own:
            found.append(sh(own, "echo own").stdout)
        return found
    for ending in ("closes", "collects", "exits"):
        pipe, into = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(into, repr(child()).encode())
            if ending == "closes":
                one.close()
                made.close()
            elif ending == "collects":
                del one, made
                gc.collect()
            else:
                sys.exit(0)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        print(os.read(pipe, 1000).decode(), sh(one, "echo mine").stdout, one.usable, flush=True)
"""


def test_a_forked_caller_has_a_sandbox_of_its_own_and_spoils_none(caller: Caller) -> None:
    line = "[False, 'lost', 'lost', b'own\\n'] b'mine\\n' True"
    assert caller(FORKS).splitlines() == [line] * 3


def test_closing_works_though_a_forked_child_still_holds_copies(workspace: Path, mark: str) -> None:
    made = core.Helper(helper_policy(workspace), core.HELPER_PATH)
    place = made.lane()
    pipe, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(into)
        os.read(pipe, 1)
        os._exit(0)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(py, place, DAEMON + "daemon(); time.sleep(300)", mark=mark)
        wait_for(lambda: len(alive(mark)) == 2, 20)
        place.close()
        assert isinstance(running.exception(20), core.LaneLost) and gone(mark) == []
    assert sh(made.lane(), "echo next").stdout == b"next\n"
    made.close()
    assert not exists(made.pid)
    os.close(into)
    os.waitpid(pid, 0)
    os.close(pipe)


# What a command can do to its lane, the root and the caller.

ACTS = """
import ctypes, errno, json, os, resource, signal, struct, sys
LIBC = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"
NUMBER = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    "ioprio_set": (251, 30), "rt_sigqueueinfo": (129, 138), "tgkill": (234, 131),
    "process_madvise": (440, 440), "migrate_pages": (256, 238),
}
def call(name, *arguments):
    number = NUMBER[name][0 if X86 else 1]
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = LIBC.syscall(ctypes.c_long(number), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result
def opened(path, flags=os.O_RDONLY):
    fd = os.open(path, flags)
    try:
        os.read(fd, 1) if flags == os.O_RDONLY else None
    except OSError as error:
        if error.errno != errno.EIO:  # /proc/PID/mem at address 0
            raise
    finally:
        os.close(fd)
def vm(pid, name):
    room = ctypes.create_string_buffer(8)
    mine = struct.pack("PN", ctypes.addressof(room), 8)
    with open(f"/proc/{pid}/stat") as file:
        start = int(file.read().rpartition(")")[2].split()[25])  # its stack
    theirs = struct.pack("PN", start - 8 & ~7, 8)
    call(name, pid, ctypes.create_string_buffer(mine), 1, ctypes.create_string_buffer(theirs), 1, 0)
def seize(pid):
    call("ptrace", 0x4206, pid, 0, 0)
    LIBC.ptrace(17, pid, 0, 0)
def attach(pid):
    call("ptrace", 16, pid, 0, 0)
    os.waitpid(pid, 0x40000000)
    call("ptrace", 17, pid, 0, 0)
def getfd(pid):
    fd = call("pidfd_open", pid, 0)
    try:
        os.close(call("pidfd_getfd", fd, 0, 0))
    finally:
        os.close(fd)
LOOKS = {
    "mem": lambda p: opened(f"/proc/{p}/mem"),
    "mem of a thread": lambda p: opened(f"/proc/{p}/task/{p}/mem"),
    "mem to write": lambda p: opened(f"/proc/{p}/mem", os.O_RDWR),
    "environ": lambda p: opened(f"/proc/{p}/environ"),
    "maps": lambda p: opened(f"/proc/{p}/maps"),
    "smaps": lambda p: opened(f"/proc/{p}/smaps"),
    "auxv": lambda p: opened(f"/proc/{p}/auxv"),
    "fd 0": lambda p: os.readlink(f"/proc/{p}/fd/0"),
    "open fd 0": lambda p: opened(f"/proc/{p}/fd/0"),
    "fdinfo": lambda p: opened(f"/proc/{p}/fdinfo/0"),
    "root": lambda p: os.listdir(f"/proc/{p}/root"),
    "cwd": lambda p: os.listdir(f"/proc/{p}/cwd"),
    "exe": lambda p: os.readlink(f"/proc/{p}/exe"),
    "attach": attach,
    "seize": seize,
    "vm_readv": lambda p: vm(p, "process_vm_readv"),
    "vm_writev": lambda p: vm(p, "process_vm_writev"),
    "getfd": getfd,
    "kcmp": lambda p: call("kcmp", p, p, 0, 0, 0),
    "prlimit": lambda p: resource.prlimit(p, resource.RLIMIT_CORE, (0, 0)),
    "prlimit to read": lambda p: resource.prlimit(p, resource.RLIMIT_CORE),
    "affinity": lambda p: os.sched_setaffinity(p, os.sched_getaffinity(0)),
    "scheduler": lambda p: os.sched_setscheduler(p, os.SCHED_BATCH, os.sched_param(0)),
    "priority": lambda p: os.setpriority(os.PRIO_PROCESS, p, 1),
    "ioprio": lambda p: call("ioprio_set", 1, p, 2 << 13 | 5),
    "oom": lambda p: opened(f"/proc/{p}/oom_score_adj", os.O_WRONLY),
    "coredump": lambda p: opened(f"/proc/{p}/coredump_filter", os.O_WRONLY),
    "autogroup": lambda p: opened(f"/proc/{p}/comm", os.O_WRONLY),
}
def with_pidfd(pid, number):
    fd = call("pidfd_open", pid, 0)
    try:
        signal.pidfd_send_signal(fd, number)
    finally:
        os.close(fd)
def queued(pid, number):
    info = ctypes.create_string_buffer(struct.pack("iii", number, 0, -1), 128)
    call("rt_sigqueueinfo", pid, number, info)
SIGNALS = {
    f"{how} {number}": (lambda p, send=send, number=number: send(p, number))
    for number in (0, signal.SIGCONT, signal.SIGWINCH)
    for how, send in {
        "kill": os.kill, "pidfd": with_pidfd,
        "tgkill": lambda p, n: call("tgkill", p, p, n),
    }.items()
} | {"queue": lambda p: queued(p, signal.SIGCONT)}
def tried(acts, pid):
    found = {}
    for name, act in acts.items():
        try:
            act(pid)
            found[name] = "done"
        except OSError as error:
            found[name] = errno.errorcode[error.errno]
    return found
"""

OUTSIDE = (
    ACTS
    + """
import subprocess, time
quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
with subprocess.Popen(["/bin/sleep", "60"], **quiet) as child:
    time.sleep(0.1)
    print(json.dumps(tried(LOOKS | SIGNALS, child.pid)))
    os.kill(child.pid, 9)
"""
)

INSIDE = (
    ACTS
    + """
lane, (root, caller) = os.getppid(), map(int, sys.argv[1:])
print(json.dumps({
    "lane": tried(LOOKS, lane),
    "root": tried(LOOKS | SIGNALS, root),
    "caller": tried(LOOKS | SIGNALS, caller),
}))
"""
)

ATTACK = """
    import os, sys
    from lanekit import lane, py, sh
    from pathlib import Path
    with lane(Path(os.environ["HOME"])) as one:
        outcome = py(one, sys.argv[1], one.helper.pid, os.getpid())
        sys.stdout.write(outcome.stdout.decode())
        sys.stderr.write(outcome.stderr.decode())
        assert sh(one, "echo still").stdout == b"still\\n"
"""


def test_the_acts_that_are_refused_inside_work_outside(caller: Caller) -> None:
    """The control of the next test."""
    found = json.loads(caller(OUTSIDE))
    wrong = {name: what for name, what in found.items() if what != "done"}
    # An ordinary user may not raise its own rank in these ways; root may do all of them.
    assert wrong == {}


def test_case_110_lane_root_and_caller_are_out_of_a_command_s_reach(caller: Caller) -> None:
    found = json.loads(caller(ATTACK, INSIDE))
    assert {whom: len(acts) for whom, acts in found.items()} == {
        "lane": 28,
        "root": 38,
        "caller": 38,
    }
    for whom, acts in found.items():
        for act, what in acts.items():
            assert what in ("EPERM", "EACCES"), (whom, act, what)


def test_a_command_in_a_domain_of_its_own_may_still_look_at_its_children(caller: Caller) -> None:
    """The allowed twin: debuggers work inside."""
    found = json.loads(caller(ATTACK, OUTSIDE))
    looks = {"mem", "environ", "maps", "fd 0", "open fd 0", "root", "cwd", "exe", "attach", "seize"}
    assert {name for name in looks if found[name] != "done"} == set()
    assert {what for name, what in found.items() if name.startswith("kill")} == {"done"}


SURVIVES = """
    import os, sys
    import _sandcore as core
    from lanekit import alive, children, exists, lane, helper, py, sh, settled
    from pathlib import Path
    home = Path(os.environ["HOME"])
    program, mark = sys.argv[1:]
    with helper(home) as made:
        one = made.lane()
        lanes = children(made.pid)
        try:
            outcome = py(one, program, made.pid, os.getpid(), mark=mark, timeout=20)
            print("ended", outcome.status, outcome.timed_out, outcome.stdout.decode())
        except core.LaneLost:
            print("lost", [p for p in (made.pid, *lanes) if exists(p)])
        print(alive(mark))
    with lane(home) as one:
        print(sh(one, "echo next").stdout)
"""


@pytest.mark.parametrize("number", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize("daemons", [0, 3])
def test_a_command_that_turns_on_its_lane_ends_its_own_sandbox(
    caller: Caller, mark: str, number: str, daemons: int
) -> None:
    program = DAEMON + (
        f"[daemon() for _ in range({daemons})]\n"
        f"os.kill(os.getppid(), signal.{number}); time.sleep(60)"
    )
    assert caller(SURVIVES, program, mark).splitlines() == ["lost []", "[]", "b'next\\n'"]
    assert alive(mark) == []


def test_any_other_signal_to_the_lane_does_nothing(caller: Caller, mark: str) -> None:
    program = (
        "import os, signal, sys\n"
        "for number in range(1, 65):\n"
        "    if number not in (9, 19, 32, 33):\n"
        "        for _ in range(3): os.kill(os.getppid(), number)\n"
        "print('all sent')"
    )
    lines = caller(SURVIVES, program, mark).splitlines()
    assert lines == ["ended 0 False all sent", "", "[]", "b'next\\n'"]


TRICKS = {
    "cleared parent death": "ctypes.CDLL(None).prctl(1, 0, 0, 0, 0); daemon(); print('x')",
    "a subreaper": (
        "libc = ctypes.CDLL(None)\n"
        "libc.prctl(36, 1, 0, 0, 0)\n"
        "[daemon() for _ in range(4)]\n"
        "if os.fork() == 0:\n"
        "    libc.prctl(36, 1, 0, 0, 0); os.setsid(); [daemon() for _ in range(4)]\n"
        "    time.sleep(300)\n"
        "print('x')"
    ),
    "a stopped tree": (
        "daemon()\n"
        "for _ in range(5):\n"
        "    if os.fork() == 0:\n"
        "        os.kill(os.getpid(), signal.SIGSTOP); time.sleep(300)\n"
        "time.sleep(0.1); print('x')"
    ),
    "a leader that stops itself": "daemon(); os.kill(os.getpid(), signal.SIGSTOP)",
    "threads": (
        "import threading\n"
        "rest = {'target': time.sleep, 'args': (300,), 'daemon': True}\n"
        "for _ in range(20): threading.Thread(**rest).start()\n"
        "if os.fork() == 0: os.setsid(); time.sleep(300)\n"
        "daemon(); print('x'); os._exit(0)"
    ),
    "a tracer of its children": (
        "libc = ctypes.CDLL(None)\n"
        "for _ in range(4):\n"
        "    child = os.fork()\n"
        "    if child == 0: os.setsid(); time.sleep(300)\n"
        "    assert libc.ptrace(0x4206, child, 0, 0) == 0\n"
        "print('x')"
    ),
    "traced by the lane": (
        "libc = ctypes.CDLL(None)\n"
        "daemon(); libc.ptrace(0, 0, 0, 0); os.kill(os.getpid(), signal.SIGTRAP)"
    ),
    "a fork that outruns its parent": (
        "for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        while True:\n"
        "            if os.fork(): os._exit(0)\n"
        "time.sleep(300)"
    ),
}

ENDED = """
    import os, sys
    from lanekit import alive, lane, py, sh
    from pathlib import Path
    program, mark = sys.argv[1:]
    with lane(Path(os.environ["HOME"])) as one:
        outcome = py(one, program, mark=mark, timeout=2)
        print(alive(mark), outcome.duration < 6, sh(one, "echo next").stdout)
"""


@pytest.mark.parametrize("trick", TRICKS)
def test_case_95_no_trick_survives_the_sweep(caller: Caller, mark: str, trick: str) -> None:
    program = DAEMON + TRICKS[trick]
    assert caller(ENDED, program, mark) == "[] True b'next\\n'\n"
    assert alive(mark) == []


def test_clone_with_the_caller_as_parent_is_refused(caller: Caller) -> None:
    program = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
number = 56 if os.uname().machine == "x86_64" else 220
def clone(flags, tls=0):
    pid = libc.syscall(number, ctypes.c_long(flags | 17), 0, 0, 0, ctypes.c_long(tls))
    if pid == 0: os._exit(0)
    return pid if pid < 0 else os.waitpid(pid, 0)[1]
print(clone(0), clone(0x8000), ctypes.get_errno(), clone(0x8000, 1), ctypes.get_errno())
print(clone(0x10000000), ctypes.get_errno())
"""
    place = """
    import os, sys
    import _sandcore as core
    from lanekit import PYTHON, lane, policy, py
    from pathlib import Path
    home = Path(os.environ["HOME"])
    with lane(home) as one:
        sys.stdout.write(py(one, sys.argv[1]).stdout.decode())
    sys.stdout.flush()
    words = [PYTHON.encode(), b"-Ic", sys.argv[1].encode()]
    pid, pidfd = core.spawn(core.Plan(words, [], policy=policy(home)))
    core.wait(pidfd)
    """
    assert caller(place, program) == "0 -1 1 -1 1\n-1 1\n" * 2


def test_the_helper_s_own_program_run_inside_is_just_a_program(caller: Caller, mark: str) -> None:
    program = """
import os, socket, struct, subprocess, sys
path = sys.argv[1]
print(subprocess.run([path], timeout=10).returncode != 0)
for policy in (b"", b"junk" * 20, b"SCPB" + bytes(400)):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    blob = os.memfd_create("x"); os.write(blob, policy)
    me = os.pidfd_open(os.getpid())
    pid = os.fork()
    if pid == 0:
        for fd, number in ((theirs.fileno(), 103), (blob, 104), (me, 105), (blob, 106)):
            os.dup2(fd, number)
        for number in (3, 4, 5, 6):
            os.dup2(number + 100, number)
        os.execv(path, [path])
    theirs.close()
    for junk in (struct.pack("I", 1), b"", b"x" * 500, struct.pack("IIQ", 5, 0, 7)):
        try: ours.send(junk)
        except OSError: pass
    ours.settimeout(10)
    try: answer = ours.recv(4096)
    except ConnectionResetError: answer = ours.recv(4096)  # it left junk unread
    print(struct.unpack_from("<Iii", answer)[2] != 0, os.waitpid(pid, 0)[1] != 0)
"""
    driver = """
    import os, sys
    import _sandcore as core
    from lanekit import lane, py
    from pathlib import Path
    with lane(Path(os.environ["HOME"])) as one:
        outcome = py(one, sys.argv[1], os.fsdecode(core.HELPER_PATH))
        print(outcome.stdout.decode(), outcome.stderr.decode(), outcome.timed_out)
    """
    assert caller(driver, program).split() == ["True", *["True", "True"] * 3, "False"]


def test_case_77_a_sandbox_within_a_sandbox_works_and_ends_with_it(
    caller: Caller, mark: str
) -> None:
    inner = """
import os, sys
from lanekit import DAEMON, lane, py, sh
from pathlib import Path
with lane(Path(os.environ["HOME"])) as one:
    print(one.scoped, sh(one, "echo inner").stdout, flush=True)
    py(one, DAEMON + "daemon(); daemon(); time.sleep(300)", mark=sys.argv[1], timeout=None)
"""
    driver = """
    import os, sys
    from lanekit import MARK, alive, lane, run, sh
    from pathlib import Path
    mark = sys.argv[2]
    env = [f"{name}={os.environ[name]}" for name in ("HOME", "PYTHONPATH")]
    with lane(Path(os.environ["HOME"])) as one:
        words = [sys.executable, "-c", *sys.argv[1:]]
        outcome = run(one, words, env=env, mark=mark, timeout=4)
        print(outcome.stdout, outcome.timed_out, alive(mark), sh(one, "echo outer").stdout)
    """
    line = "b\"True b'inner\\\\n'\\n\" True [] b'outer\\n'\n"
    assert caller(driver, inner, mark) == line
    assert alive(mark) == []


def test_no_fd_of_the_lane_is_open_inside(caller: Caller) -> None:
    program = (
        "import os\n"
        "found = []\n"
        "for fd in range(3, 4096):\n"
        "    try: found.append((fd, os.fstat(fd)))\n"
        "    except OSError: pass\n"
        "print(found, sorted(os.listdir('/proc/self/fd')))"
    )
    assert caller(ATTACK, program) == "[] ['0', '1', '2', '3']\n"


def test_what_is_written_into_its_own_pipes_is_no_packet(caller: Caller) -> None:
    """A command's stdout is a pipe, never the socket: a forged reply is output."""
    program = (
        "import os, struct, sys\n"
        "forged = struct.pack('<Iiiii', 19, 1, 0, 0, 0) + bytes(100)\n"
        "for fd in (1, 2): os.write(fd, forged)\n"
        "print(os.path.basename(os.readlink('/proc/self/fd/1'))[:5], os.isatty(0))\n"
        "sys.exit(7)"
    )
    driver = """
    import os, sys
    from lanekit import lane, py
    from pathlib import Path
    with lane(Path(os.environ["HOME"])) as one:
        outcome = py(one, sys.argv[1])
        print(outcome.status >> 8, len(outcome.stdout), outcome.stdout[120:])
    """
    assert caller(driver, program) == "7 132 b'pipe: False\\n'\n"


def test_a_crash_writes_no_core_file(workspace: Path) -> None:
    import resource

    with lane(workspace) as place:
        outcome = sh(place, "ulimit -c unlimited; kill -SEGV $$", cwd=workspace)
        limit = [(resource.RLIMIT_CORE, 0, 0)]
        if not list(workspace.iterdir()):
            pytest.skip("this host writes no core files into the working directory")
        assert outcome.status & 0x80
        for one in workspace.iterdir():
            one.unlink()
        again = sh(place, "ulimit -c unlimited; kill -SEGV $$", cwd=workspace, limits=limit)
        assert again.status & 0x7F == signal.SIGSEGV and list(workspace.iterdir()) == []


def test_crashes_of_every_kind_are_results(workspace: Path) -> None:
    with lane(workspace) as place:
        for number in (4, 5, 6, 7, 8, 11, 24, 25, 31):
            outcome = run(place, ["/bin/sh", "-c", f"ulimit -c 0; kill -{number} $$"])
            assert outcome.started and outcome.status & 0x7F == number
