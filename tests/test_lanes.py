"""Commands in lanes: what goes in, what comes out, and how one ends."""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import gc
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
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
    policy,
    py,
    run,
    settled,
    sh,
    unconfined,
    wait_for,
)

import _sandcore as core

TESTS = Path(__file__).resolve().parent
MIB = 1 << 20


@pytest.fixture
def one(workspace: Path) -> Iterator[core.Lane]:
    """A lane in which `workspace` is writable."""
    with lane(workspace) as made:
        yield made


def fine(place: core.Lane) -> None:
    """The lane still does what it should."""
    assert sh(place, "echo fine").stdout == b"fine\n"


# What comes out.


@pytest.mark.parametrize("code", [0, 1, 7, 124, 125, 126, 127, 137, 255])
def test_case_125_an_exit_status_arrives_and_is_no_failure_of_ours(
    one: core.Lane, code: int
) -> None:
    outcome = sh(one, f"echo out; echo err >&2; exit {code}")
    assert (outcome.started, outcome.stage, outcome.errno) == (True, "none", 0)
    assert os.waitstatus_to_exitcode(outcome.status) == code
    assert (outcome.stdout, outcome.stderr) == (b"out\n", b"err\n")
    assert (outcome.timed_out, outcome.swept, outcome.drained_early) == (False, 0, False)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGPIPE])
def test_case_124_a_death_by_signal_is_told_from_an_exit_status(
    one: core.Lane, number: signal.Signals
) -> None:
    outcome = sh(one, f"kill -{number.value} $$")
    assert os.waitstatus_to_exitcode(outcome.status) == -number and not outcome.timed_out
    inner = sh(one, f"sh -c 'kill -{number.value} $$'; exit $?")
    assert os.waitstatus_to_exitcode(inner.status) == 128 + number


def test_case_118_bytes_are_kept_as_they_are(one: core.Lane) -> None:
    data = random.Random(1).randbytes(100_000)
    assert run(one, ["/bin/cat"], input=data).stdout == data
    assert sh(one, r"printf 'a\360\377\200b'").stdout == b"a\xf0\xff\x80b"


def test_case_120_a_flood_is_kept_as_head_and_tail_with_its_true_length(one: core.Lane) -> None:
    outcome = sh(one, "echo first; head -c 20000000 /dev/zero; echo last", cap=10_000)
    assert outcome.stdout_total == 20_000_000 + 11 and outcome.stdout_head == 5_000
    assert len(outcome.stdout) == 10_000
    assert outcome.stdout.startswith(b"first\n\0") and outcome.stdout.endswith(b"\0last\n")


@pytest.mark.parametrize("streams", ["1>&2", "2>&1"])
def test_case_122_a_flood_into_one_stream_does_not_hold_the_other(
    one: core.Lane, streams: str
) -> None:
    outcome = sh(one, f"(head -c 3M /dev/zero) {streams}; echo done; echo done >&2", cap=64)
    assert outcome.stdout.endswith(b"done\n") and outcome.stderr.endswith(b"done\n")
    assert outcome.stdout_total + outcome.stderr_total == 3 * MIB + 10


def test_output_goes_to_a_fd_of_ours_where_one_is_given(one: core.Lane, place: Path) -> None:
    with open(place / "out", "w+b") as out, open(place / "err", "w+b") as err:
        outcome = sh(one, "echo to out; echo to err >&2", stdout=out.fileno(), stderr=err.fileno())
        assert (outcome.stdout, outcome.stderr, outcome.stdout_total) == (b"", b"", 0)
        assert (out.seek(0), out.read(), err.seek(0), err.read()) == (
            0,
            b"to out\n",
            0,
            b"to err\n",
        )


def test_the_resource_use_is_that_of_the_whole_tree(one: core.Lane) -> None:
    busy = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"
    outcome = sh(one, f"({busy}) & ({busy}) & wait; {busy}")
    user, system, max_rss, *_ = outcome.usage
    assert 0.05 < user + system < 10 and max_rss > 500
    assert user + system < 2 * outcome.duration + 0.1


# What goes in.


def test_case_127_without_input_stdin_is_at_its_end(one: core.Lane) -> None:
    assert sh(one, "cat; read x; echo [$x]").stdout == b"[]\n"
    outcome = sh(one, "cat <<E | cat -\nhi\nE\ncat")
    assert outcome.stdout == b"hi\n" and outcome.duration < 5


def test_case_127_ten_mebibytes_for_a_command_that_never_reads_are_no_trouble(
    one: core.Lane,
) -> None:
    data = bytes(10 * MIB)
    began = time.monotonic()
    assert sh(one, "sleep 0.1; exit 3", input=data).status == 3 << 8
    assert sh(one, "exit 4", input=data).status == 4 << 8
    assert sh(one, "head -c 5 | wc -c; exit 5", input=data).stdout == b"5\n"
    assert sh(one, "sleep 60", input=data, timeout=0.2).timed_out
    assert time.monotonic() - began < 10
    fine(one)


def test_ten_mebibytes_through_a_command_come_back(one: core.Lane) -> None:
    data = random.Random(2).randbytes(10 * MIB)
    outcome = run(one, ["/bin/cat"], input=data, cap=11 * MIB)
    assert outcome.stdout == data and outcome.stdout_total == len(data)


def test_stdin_may_be_a_fd_of_ours_and_no_more_than_it_reads_is_taken(
    one: core.Lane, place: Path
) -> None:
    (place / "in").write_bytes(b"one\ntwo\nthree\n")
    with open(place / "in", "rb", buffering=0) as file:
        assert sh(one, "read a; echo $a", stdin=file.fileno()).stdout == b"one\n"
        assert file.tell() == 4


@pytest.mark.parametrize("size", [0, 1, 60_000, 65_000, 66_000, 120_000])
def test_a_request_of_any_size_arrives_in_a_packet_or_in_a_memory_file(
    one: core.Lane, size: int
) -> None:
    word = "x" * size
    assert run(one, ["/bin/echo", "-n", word]).stdout == word.encode()


def test_a_mebibyte_of_arguments_and_a_fifth_of_environment_arrive(one: core.Lane) -> None:
    words = [f"{i}" * 10_000 for i in range(1, 10)] * 12
    env = [f"V{i}={'e' * 20_000}" for i in range(10)]
    outcome = py(
        one,
        "import os, sys; print(sum(map(len, sys.argv[1:])), sum(map(len, os.environ.values())))",
        *words,
        env=env,
    )
    total, variables = map(int, outcome.stdout.split())
    assert total == sum(map(len, words)) > MIB and variables > 200_000


def test_a_hundred_thousand_arguments_arrive(one: core.Lane) -> None:
    words = ["sh", *["a"] * 99_999, "z"]
    outcome = run(one, ["/bin/sh", "-c", "echo $# $1; shift 99999; echo $1", *words])
    assert outcome.stdout == b"100000 a\nz\n"


def test_arguments_that_the_kernel_does_not_take_are_refused_and_the_lane_goes_on(
    one: core.Lane,
) -> None:
    for words in (["/bin/true", "x" * 140_000], ["/bin/true", *["x" * 100_000] * 80]):
        outcome = run(one, words)
        assert (outcome.started, outcome.stage, outcome.errno) == (False, "exec", errno.E2BIG)
    fine(one)


def test_a_request_beyond_all_bounds_is_refused_and_the_lane_goes_on(one: core.Lane) -> None:
    outcome = run(one, ["/bin/true", *["x" * MIB] * 65])
    assert (outcome.started, outcome.stage, outcome.errno) == (False, "request", errno.E2BIG)
    outcome = run(one, ["/bin/true", *[""] * (MIB + 1)])
    assert (outcome.started, outcome.stage, outcome.errno) == (False, "request", errno.E2BIG)
    fine(one)


@pytest.mark.parametrize(
    ("changes", "stage", "code"),
    [
        ({"cwd": "/no/such/place"}, "cwd", errno.ENOENT),
        ({"cwd": "/etc/passwd"}, "cwd", errno.ENOTDIR),
        ({"cwd": "relative"}, "request", errno.EINVAL),
        ({"limits": [(99, 1, 1)]}, "limits", errno.EINVAL),
        ({"limits": [(7, 10, 5)]}, "limits", errno.EINVAL),
        ({"stdout": 9999}, "request", errno.EBADF),
        ({"words": ["/no/such"]}, "exec", errno.ENOENT),
        ({"words": ["/etc/passwd"]}, "exec", errno.EACCES),
        ({"words": ["/etc"]}, "exec", errno.EACCES),
        ({"words": [""]}, "exec", errno.ENOENT),
    ],
)
def test_what_cannot_start_names_its_stage_and_the_lane_goes_on(
    one: core.Lane, changes: dict[str, Any], stage: str, code: int
) -> None:
    outcome = run(one, **{"words": ["/bin/true"]} | changes)
    assert (outcome.started, outcome.stage, outcome.errno) == (False, stage, code)
    fine(one)


@pytest.mark.parametrize(
    "wrong",
    [
        {"programs": []},
        {"argv": []},
        {"argv": [b"a\0b"]},
        {"env": b"A=1\0", "env_count": 2},
        {"env": b"A=1\0B=2\0", "env_count": 1},
        {"env": b"A=1", "env_count": 1},
        {"cwd": b"/\0x"},
        {"limits": [(7, 1, 1)] * 17},
        {"timeout": -1},
        {"timeout": float("nan")},
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused_before_anything_happens(
    one: core.Lane, wrong: dict[str, Any]
) -> None:
    right = {"programs": [b"/bin/true"], "argv": [b"true"], "env": b"", "env_count": 0, "cwd": b"/"}
    with pytest.raises(ValueError, match=r"."):
        one.run(**right | wrong)
    fine(one)


FEW_FDS = """
    import os, resource, sys
    from lanekit import lane, sh
    from pathlib import Path
    with lane(Path("/tmp")) as one:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        held, found = [], []
        try:
            while True:
                held.append(os.dup(0))
        except OSError:
            pass
        for _ in range(12):
            outcome = sh(one, "echo ok")
            found.append((outcome.started, outcome.stage, outcome.errno, outcome.stdout))
            os.close(held.pop())
        before = len(os.listdir("/proc/self/fd"))
        big = sh(one, "echo ok", env=["A=" + "x" * 100_000])
        print(len(os.listdir("/proc/self/fd")) == before)
        print(sorted(set(found)), big.started)
"""


def script(program: str, *arguments: object) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(TESTS)])}
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_case_135_a_caller_without_free_fds_is_told_so_and_keeps_its_sandbox() -> None:
    failed, worked = (False, "request", errno.EMFILE, b""), (True, "none", 0, b"ok\n")
    assert script(FEW_FDS) == f"True\n{sorted([failed, worked])} True\n"


# How one ends.


def test_case_92_a_grandchild_that_holds_the_pipe_does_not_hold_the_call(one: core.Lane) -> None:
    mark = new_mark()
    outcome = sh(one, "sleep 30 & echo hi", mark=mark)
    assert outcome.stdout == b"hi\n" and outcome.status == 0 and not outcome.timed_out
    assert outcome.duration < 3 and outcome.swept == 1 and outcome.drained_early
    assert alive(mark) == []
    outcome = sh(one, "sleep 30 >/dev/null 2>&1 & echo hi", mark=mark)
    assert outcome.stdout == b"hi\n" and outcome.duration < 0.9 and not outcome.drained_early
    assert alive(mark) == []


def test_case_92_with_a_timeout_it_is_over_then(one: core.Lane) -> None:
    outcome = sh(one, "sleep 30 & sleep 30", mark=(mark := new_mark()), timeout=0.5)
    assert outcome.timed_out and 0.5 <= outcome.duration < 2.5 and alive(mark) == []


def test_case_93_output_that_arrives_after_the_leader_has_ended_is_kept(one: core.Lane) -> None:
    outcome = sh(one, "exec > >(sleep 0.4; cat); echo important")
    assert outcome.stdout == b"important\n" and outcome.status == 0


def test_case_94_a_time_out_ends_more_than_the_wrapper(one: core.Lane, workspace: Path) -> None:
    mark = new_mark()
    command = "mkfifo p; (while :; do echo c; sleep 0.1; done) >p & cat p"
    outcome = sh(one, command, mark=mark, cwd=workspace, timeout=0.7)
    assert outcome.timed_out and outcome.stdout.startswith(b"c\n") and outcome.duration < 3
    assert alive(mark) == []
    fine(one)


@pytest.mark.parametrize("confined", [True, False])
def test_case_95_daemons_end_with_their_command(workspace: Path, confined: bool) -> None:
    mark = new_mark()
    with lane(workspace, given=None if confined else unconfined()) as one:
        assert one.scoped == confined
        daemons = DAEMON + "daemon(); daemon(); print(flush=True)\n"
        outcome = py(one, daemons + "time.sleep(60)", mark=mark, timeout=2)
        assert outcome.timed_out and outcome.stdout == b"\n" and alive(mark) == []
        outcome = py(one, daemons, mark=mark)
        assert not outcome.timed_out and outcome.swept == 2 and alive(mark) == []
        outcome = sh(one, "setsid sh -c 'sleep 77' & sleep 78", mark=mark, timeout=0.5)
        assert outcome.timed_out and alive(mark) == []
        fine(one)


def test_case_95_the_same_daemon_outlives_a_killed_process_group() -> None:
    """The control: what these tests call a daemon is one."""
    mark = new_mark()
    program = DAEMON + "daemon(); print(flush=True); time.sleep(60)"
    env = {"SANDCORE_TEST_MARK": mark}
    command = ["/usr/bin/python3", "-Ic", program]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdout=pipe, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        os.killpg(process.pid, signal.SIGKILL)
    left = alive(mark)
    kill_all(left)
    assert len(left) == 1 and gone(mark) == []


def test_case_102_orphans_are_reaped_while_the_command_runs_and_after_it(one: core.Lane) -> None:
    mark = new_mark()
    loop = "for i in $(seq 300); do (sleep 0.01 &); done; sleep 0.3; ls /proc | grep -c [0-9]"
    outcome = sh(one, loop, mark=mark)
    assert outcome.status == 0 and alive(mark) == []
    assert [pid for pid in children(one.helper.pid) if children(pid)] == []


@pytest.mark.parametrize("command", ["sleep 50; :", "trap '' TERM INT HUP; sleep 50; sleep 50"])
def test_case_103_a_command_that_ignores_signals_is_ended(one: core.Lane, command: str) -> None:
    outcome = sh(one, command, timeout=0.4, mark=(mark := new_mark()))
    assert outcome.timed_out and os.waitstatus_to_exitcode(outcome.status) == -signal.SIGKILL
    assert outcome.duration < 2 and alive(mark) == []


def test_case_103_a_command_without_handlers_has_the_default_ones(one: core.Lane) -> None:
    outcome = sh(one, "grep -E 'Sig(Ign|Blk)' /proc/self/status; kill -TERM $$; echo survived")
    assert b"survived" not in outcome.stdout and outcome.status == signal.SIGTERM
    masks = {line.split()[1] for line in outcome.stdout.splitlines()}
    assert masks == {b"0" * 16}


def test_case_117_a_time_out_comes_in_time_under_a_flood(one: core.Lane) -> None:
    for command in ("yes", "yes >&2 & yes", "cat /dev/zero"):
        outcome = sh(one, command, timeout=0.5)
        assert outcome.timed_out and 0.5 <= outcome.duration < 1.5
        assert outcome.stdout_total > MIB


def test_case_117_a_time_out_is_no_exit_status(one: core.Lane) -> None:
    for code in (124, 137, 143):
        assert not sh(one, f"exit {code}").timed_out
    assert not sh(one, "kill -9 $$").timed_out
    assert sh(one, "sleep 60", timeout=0).timed_out
    assert sh(one, "sleep 60", timeout=0.001).timed_out
    for long in (1e12, float("inf"), None):
        assert sh(one, "echo in time", timeout=long).stdout == b"in time\n"


def test_case_123_partial_output_survives_a_time_out(one: core.Lane) -> None:
    outcome = sh(one, "echo before; echo wrong >&2; sleep 9", timeout=0.6)
    assert outcome.timed_out and (outcome.stdout, outcome.stderr) == (b"before\n", b"wrong\n")


def test_a_lane_is_as_new_after_a_time_out(one: core.Lane) -> None:
    for _ in range(5):
        assert sh(one, "sleep 60 & sleep 60", timeout=0.05).timed_out
        fine(one)


def test_case_90_nothing_is_carried_from_one_command_to_the_next(
    one: core.Lane, workspace: Path
) -> None:
    before = sh(one, "env; umask; ulimit -a; pwd; ls /proc/self/fd; echo $-")
    change = "export PAGER=x; cd /; umask 0; ulimit -n 10; ulimit -c 0; renice 5 $$; trap '' TERM"
    assert sh(one, change, cwd=workspace).started
    after = sh(one, "env; umask; ulimit -a; pwd; ls /proc/self/fd; echo $-")
    assert before.stdout == after.stdout
    assert py(one, "import os; print(os.getpriority(0, 0))").stdout == b"0\n"


def test_a_kill_that_crosses_the_end_is_no_kill_of_the_next(one: core.Lane) -> None:
    """Commands that take about as long as they may, each followed by one that must be right."""
    ends = set()
    for turn in range(150):
        outcome = run(one, ["/bin/sleep", "0.01"], timeout=0.009 + turn % 10 * 0.001)
        code = os.waitstatus_to_exitcode(outcome.status)
        assert (code == 0) or (outcome.timed_out and code == -signal.SIGKILL)
        ends.add(outcome.timed_out)
        assert sh(one, f"echo {turn}").stdout == b"%d\n" % turn
    assert ends == {True, False}


# Signals that reach the caller.


def interrupt_after(seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


@contextlib.contextmanager
def handler(number: int, function: Any) -> Iterator[None]:
    before = signal.signal(number, function)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_case_116_an_interrupt_ends_the_whole_tree_before_it_is_raised(one: core.Lane) -> None:
    mark = new_mark()
    with handler(signal.SIGINT, signal.default_int_handler):
        timer = interrupt_after(0.5)
        with pytest.raises(KeyboardInterrupt):
            py(one, DAEMON + "daemon(); time.sleep(60)", mark=mark)
        assert alive(mark) == []
        timer.join()
    fine(one)


def test_case_116_an_interrupt_is_heard_in_a_flood_and_while_output_is_drained(
    one: core.Lane,
) -> None:
    mark = new_mark()
    for command in ("yes", "sleep 30 & echo hi; sleep 0.3"):
        with handler(signal.SIGINT, signal.default_int_handler):
            timer = interrupt_after(0.5)
            with pytest.raises(KeyboardInterrupt):
                sh(one, command, mark=mark)
            timer.join()
        assert alive(mark) == []
    fine(one)


def test_case_116_impatience_changes_nothing(one: core.Lane) -> None:
    """Interrupts that go on while the tree is being ended."""
    mark = new_mark()
    with handler(signal.SIGINT, signal.default_int_handler):
        signal.setitimer(signal.ITIMER_REAL, 0.3, 0.0005)
        with handler(signal.SIGALRM, signal.default_int_handler):
            try:
                with pytest.raises(KeyboardInterrupt):
                    try:
                        sh(one, "sleep 60 & sleep 60", mark=mark)
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:  # one more, while we were about it
                signal.setitimer(signal.ITIMER_REAL, 0)
    assert gone(mark) == []
    fine(one)


def test_a_handler_that_raises_nothing_changes_nothing(one: core.Lane) -> None:
    ticks: list[int] = []
    with handler(signal.SIGALRM, lambda *_: ticks.append(1)):
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        try:
            outcome = sh(one, "sleep 0.5; echo done")
            early = sh(one, "sleep 60", timeout=0.3)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    assert outcome.stdout == b"done\n" and early.timed_out and early.duration < 1.5
    assert len(ticks) > 10


def test_a_handler_may_run_a_command_elsewhere_and_not_in_the_lane_that_is_busy(
    workspace: Path,
) -> None:
    found: list[object] = []
    with helper(workspace) as made:
        busy, free = made.lane(), made.lane()

        def use(*_: object) -> None:
            found.append(sh(free, "echo free").stdout)
            try:
                sh(busy, "echo busy")
            except ValueError as error:
                found.append(str(error))

        with handler(signal.SIGALRM, use):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            assert sh(busy, "sleep 0.5; echo done").stdout == b"done\n"
        assert found == [b"free\n", "a lane runs one command at a time"]


def test_the_interpreter_goes_on_while_a_command_runs(one: core.Lane) -> None:
    times: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            times.append(time.monotonic())

    with ThreadPoolExecutor(1) as pool:
        pool.submit(tick)
        try:
            began = time.monotonic()
            sh(one, "sleep 0.4")
            end = time.monotonic()
        finally:
            stop.set()
    assert sum(began < one_ < end for one_ in times) > 80


# Several at once.


def test_case_137_lanes_of_one_and_of_several_helpers_do_not_mix(place: Path) -> None:
    def many(made: core.Helper, which: int) -> int:
        one, right = made.lane(), 0
        for turn in range(40):
            text = f"{which} {turn}"
            outcome = sh(one, f"echo {text}; echo {text} >&2; exit {which}", input=b"x" * which)
            right += outcome.stdout == outcome.stderr == f"{text}\n".encode()
            right += outcome.status == which << 8
        one.close()
        return right

    with helper(place) as a, helper(place) as b, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(many, [a, b] * 4, range(8))) == [80] * 8


def test_a_command_that_kills_all_it_can_leaves_other_lanes_alone(workspace: Path) -> None:
    with helper(workspace) as made, helper(workspace) as other, ThreadPoolExecutor(2) as pool:
        same = pool.submit(sh, made.lane(), "sleep 1; echo alive", mark=(mark := new_mark()))
        apart = pool.submit(sh, other.lane(), "sleep 1; echo alive")
        wait_for(lambda: alive(mark))
        attacker = made.lane()
        # All but the lane itself, which would be the end of this sandbox.
        outcome = py(
            attacker,
            """
import os, signal
mine, refused, ended = os.getppid(), 0, 0
for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
    if pid in (mine, os.getpid()):
        continue
    try:
        os.kill(pid, signal.SIGKILL)
        ended += 1
    except PermissionError:
        refused += 1
    except ProcessLookupError:
        pass
print(ended, refused > 3)
""",
        )
        assert outcome.stdout == b"0 True\n"
        assert same.result().stdout == apart.result().stdout == b"alive\n"
        fine(attacker)


def test_a_kill_of_everything_costs_the_sandbox_and_nothing_else(workspace: Path) -> None:
    with helper(workspace) as other, helper(workspace) as made, ThreadPoolExecutor(1) as pool:
        apart = pool.submit(sh, other.lane(), "sleep 1; echo alive")
        with pytest.raises(core.LaneLost):
            sh(made.lane(), "kill -9 -1; sleep 60", mark=(mark := new_mark()))
        assert alive(mark) == [] and not exists(made.pid)
        assert apart.result().stdout == b"alive\n"


def closing(what: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(0.4, what)
    timer.start()
    return timer


def test_a_lane_that_another_thread_closes_ends_its_tree_and_no_other(workspace: Path) -> None:
    mark = new_mark()
    with helper(workspace) as made:
        one, two = made.lane(), made.lane()
        timer = closing(one.close)
        with pytest.raises(core.LaneLost):
            py(one, DAEMON + "daemon(); time.sleep(60)", mark=mark)
        assert alive(mark) == [] and not one.usable
        timer.join()
        one.close()
        fine(two)
        with pytest.raises(core.LaneLost):
            sh(one, "echo late")


def test_a_helper_that_another_thread_closes_ends_all_of_its_trees(workspace: Path) -> None:
    mark = new_mark()
    with helper(workspace) as made, ThreadPoolExecutor(3) as pool:
        program = DAEMON + "daemon(); time.sleep(60)"
        running = [pool.submit(py, made.lane(), program, mark=mark) for _ in range(3)]
        wait_for(lambda: len(alive(mark)) >= 6)
        made.close()
        assert gone(mark) == []
        for one in running:
            assert isinstance(one.exception(), core.LaneLost)
        with pytest.raises(core.LaneLost):
            made.lane()


def test_lanes_can_be_opened_while_another_thread_closes_the_helper(workspace: Path) -> None:
    for _ in range(20):
        made = core.Helper(policy(workspace), core.HELPER_PATH)
        found: list[str] = []

        def open_lanes(made: core.Helper = made, found: list[str] = found) -> None:
            try:
                while True:
                    made.lane().close()
            except core.LaneLost:
                found.append("lost")

        with ThreadPoolExecutor(3) as pool:
            for _ in range(3):
                pool.submit(open_lanes)
            time.sleep(0.01)
            made.close()
        assert found == ["lost"] * 3 and not exists(made.pid)


def test_closing_twice_and_running_after_it_are_no_trouble(workspace: Path) -> None:
    made = core.Helper(policy(workspace), core.HELPER_PATH)
    one = made.lane()
    fine(one)
    one.close()
    one.close()
    assert not one.usable
    two = made.lane()
    made.close()
    made.close()
    assert not two.usable
    for late in (one, two):
        with pytest.raises(core.LaneLost):
            sh(late, "echo late")


# The terminal's job.


def test_a_command_is_in_a_session_of_its_own_unless_it_keeps_the_caller_s(
    one: core.Lane,
) -> None:
    ids = "import os; print(os.getsid(0), os.getpgrp(), os.getpid())"
    session, group, pid = py(one, ids).stdout.split()
    assert session == group == pid
    session, group, pid = py(one, ids, keep_session=True).stdout.split()
    assert (int(session), int(group)) == (os.getsid(0), os.getpgrp())
    assert pid not in (session, group)


# Leaks.


def state() -> tuple[object, ...]:
    gc.collect()
    return (
        sorted(os.listdir("/proc/self/fd")),
        len(os.listdir("/proc/self/task")),
        children(os.getpid()),
    )


def test_case_135_hundreds_of_mixed_runs_leave_nothing_behind(workspace: Path) -> None:
    kinds: list[dict[str, Any]] = [
        {"script": "echo ok"},
        {"script": "sleep 60 & sleep 60", "timeout": 0.002},
        {"script": "sleep 60 >/dev/null 2>&1 &"},
        {"script": "exit 3", "cwd": "/no/such"},
        {"script": "cat", "input": bytes(200_000)},
        {"script": "echo $#", "env": ["A=" + "x" * 90_000]},
        {"script": "yes", "timeout": 0.01},
    ]
    with lane(workspace) as one:
        for kind in kinds:
            sh(one, **kind)
        before = state()
        inside = sorted(os.listdir(f"/proc/{one.helper.pid}/fd"))
        (pid,) = children(one.helper.pid)
        within = sorted(os.listdir(f"/proc/{pid}/fd"))
        for turn in range(560):
            sh(one, **kinds[turn % len(kinds)])
        assert state() == before
        assert sorted(os.listdir(f"/proc/{one.helper.pid}/fd")) == inside
        assert sorted(os.listdir(f"/proc/{pid}/fd")) == within
        assert children(one.helper.pid) == [pid] and children(pid) == []


def test_case_135_helpers_and_lanes_come_and_go_without_a_trace(workspace: Path) -> None:
    with lane(workspace) as one:
        fine(one)
    before = state()
    for turn in range(60):
        with helper(workspace) as made:
            lanes = [made.lane() for _ in range(3)]
            fine(lanes[0])
            if turn % 3 == 0:
                with pytest.raises(core.LaneLost):
                    sh(lanes[1], "kill -9 $PPID; sleep 60")
            elif turn % 3 == 1:
                lanes[1].close()
    del lanes, made
    assert state() == before


def test_a_helper_that_cannot_start_leaves_nothing_behind(place: Path) -> None:
    before = state()
    (place / "junk").write_text("no program\n")
    (place / "junk").chmod(0o755)
    for path, stage in (
        (b"/no/such/helper", "exec"),
        (bytes(place / "junk"), "exec"),
        (b"/bin/true", "helper"),
        (b"/bin/cat", "helper"),
    ):
        with pytest.raises(core.StageError) as caught:
            core.Helper(policy(place), path)
        assert caught.value.stage == stage
    assert state() == before


def test_a_first_lane_can_be_ordered_before_the_helper_serves(workspace: Path) -> None:
    made = core.Helper(policy(workspace), core.HELPER_PATH, ahead=0)
    made.settle()
    made.settle()
    fine(made.lane())
    fine(made.lane())
    made.close()


def test_a_lane_of_another_number_than_was_ordered_is_another_lane(workspace: Path) -> None:
    """One for so many processes cannot be had here, so it is told from the one that was ordered."""
    made = core.Helper(policy(workspace), core.HELPER_PATH, ahead=0)
    made.settle()
    with pytest.raises(core.StageError, match="limits"):
        made.lane(5)
    made.close()


def test_a_helper_that_is_dropped_on_its_way_leaves_nothing_behind(workspace: Path) -> None:
    before = state()
    for _ in range(10):
        made = core.Helper(policy(workspace), core.HELPER_PATH, ahead=0)
        pid = made.pid
        del made
        assert not exists(pid)
    assert state() == before


def test_what_a_helper_says_of_its_end_is_heard_with_an_order_unread(place: Path) -> None:
    before = state()
    for path in (b"/bin/true", b"/bin/cat"):
        made = core.Helper(policy(place), path, ahead=0)
        with pytest.raises(core.StageError) as caught:
            made.settle()
        assert caught.value.stage == "helper"
    del made, caught
    assert state() == before


# Packets that no caller of ours would send.


def open_fds() -> set[int]:
    listed = [int(name) for name in os.listdir("/proc/self/fd")]
    return {fd for fd in listed if os.path.lexists(f"/proc/self/fd/{fd}")}


@contextlib.contextmanager
def raw_lane(made: core.Helper) -> Iterator[tuple[core.Lane, socket.socket]]:
    """A lane, and its socket for our own use."""
    before = open_fds()
    one = made.lane()
    (fd,) = open_fds() - before
    wire = socket.socket(fileno=os.dup(fd))
    wire.settimeout(20)
    try:
        yield one, wire
    finally:
        wire.close()
        one.close()


RUN, FAILED, DONE, STARTED = 2, 17, 19, 20
BACKGROUND, TERMINAL = 4, 8
HEADER = struct.Struct("<IIIiiiIIIIIIQQ")


def request(data: bytes = b"/\0/bin/true\0true\0", **lies: int) -> bytes:
    fields = {"kind": RUN, "flags": 0, "body": len(data), "umask": -1, "group": 0, "targets": 0}
    fields |= {"limits": 0, "programs": 1, "args": 1, "envs": 0}
    fields |= {"docked": 0, "reserved": 0, "timeout_ns": 0, "memory": 0}
    return HEADER.pack(*(fields | lies).values()) + data


def ask(wire: socket.socket, packet: bytes, *fds: int) -> tuple[int, int, int]:
    """Sends a packet; kind, stage and errno of the last answer. (0, 0, 0): the lane has ended."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        wire.sendmsg([packet], rights)
        answer = wire.recv(4096)
        if answer[:4] == struct.pack("<I", STARTED):
            answer = wire.recv(4096)
    except (ConnectionResetError, BrokenPipeError):
        return (0, 0, 0)
    if not answer:
        return (0, 0, 0)
    kind, _, stage, code = struct.unpack_from("<Iiii", answer)
    return (kind, stage, code)


def test_a_request_that_lies_is_refused_and_the_lane_takes_the_next(workspace: Path) -> None:
    null = os.open("/dev/null", os.O_RDWR)
    three = (null, null, null)
    short = os.memfd_create("short")
    os.write(short, b"/\0/bin/tr")
    try:
        with helper(workspace) as made, raw_lane(made) as (_, wire):
            right = request()
            for packet, fds, code in (
                (request(body=5), three, errno.EINVAL),
                (request(flags=1 << 5), three, errno.EINVAL),
                (request(flags=BACKGROUND | 1 << 5), three, errno.EINVAL),
                (request(args=3), three, errno.EINVAL),
                (request(limits=16), three, errno.EINVAL),
                (request(limits=17), three, errno.EINVAL),
                (request(programs=0), three, errno.EINVAL),
                (request(envs=2**32 - 1), three, errno.E2BIG),
                (right[:-1], three, errno.EINVAL),
                (right[:20], three, errno.EINVAL),
                (right, three[:2], errno.EBADF),
                (right, (), errno.EBADF),
                (right, (null,) * 17, errno.EBADF),
                (request(b"", flags=1, body=100), (*three, short), errno.ENOMEM),
                (request(b"", flags=1, body=1 << 20), (*three, short), errno.ENOMEM),
                (request(b"", flags=1, body=9), (*three, short), errno.EINVAL),
                (request(b"", flags=1, body=0), (*three, short), errno.EINVAL),
                (request(b"", flags=1, body=9), three, errno.EBADF),
            ):
                assert ask(wire, packet, *fds) == (FAILED, 17, code), (packet, fds)
                assert ask(wire, right, *three) == (DONE, 0, 0)
    finally:
        os.close(null)
        os.close(short)


FILE, FILED = 7, 21
READ, MAKE, LIST, HERE = 3, 7, 2, 1


def file_request(what: int, path: bytes, flags: int = 0, mode: int = 0) -> bytes:
    return struct.pack("<IIII", FILE, what, flags, mode) + path


def test_a_file_request_that_lies_is_refused_and_the_lane_goes_on(workspace: Path) -> None:
    (workspace / "file").touch()
    place = os.open(workspace, os.O_PATH)
    null = os.open("/dev/null", os.O_RDWR)
    path = bytes(workspace / "file") + b"\0"
    with helper(workspace) as made, raw_lane(made) as (one, wire):
        right = file_request(READ, path)
        for packet, fds, code in (
            (right, (), 0),
            (right, (null, null), 0),
            (right[:-1], (), errno.EINVAL),
            (right[:16], (), errno.EINVAL),
            (file_request(READ, path + b"x\0"), (), errno.EINVAL),
            (file_request(READ, b"/" + b"x" * 4096 + b"\0"), (), errno.ENAMETOOLONG),
            (file_request(READ, b"/" * 60000 + b"\0"), (), errno.ENAMETOOLONG),
            (file_request(READ, b"file\0"), (), errno.EINVAL),
            (file_request(READ, b"file\0", HERE), (), errno.EBADF),
            (file_request(READ, b"file\0", HERE), (null,), errno.ENOTDIR),
            (file_request(READ, b"file\0", HERE), (place,), 0),
            (file_request(READ, b"../file\0", HERE), (place,), errno.EINVAL),
            (file_request(MAKE, b"/x\0"), (), errno.EINVAL),
            (file_request(10, path), (), errno.EINVAL),
            (file_request(READ, path, 4), (), errno.EINVAL),
        ):
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            wire.sendmsg([packet], rights)
            answer, got, _, _ = socket.recv_fds(wire, 4096, 8)
            kind, status = struct.unpack_from("<I16xi", answer)
            assert (kind, status, len(got)) == (FILED, code, int(code == 0)), (packet[:60], fds)
            for fd in got:
                os.close(fd)
        # What is too short for one, and one that does not fit.
        assert ask(wire, right[:12]) == (FAILED, 17, errno.EINVAL)
        fd = one.file("read", path[:-1])
        os.close(fd)
    for fd in (place, null):
        os.close(fd)


def test_words_that_come_too_late_are_not_for_the_next_command(workspace: Path) -> None:
    three = [os.open("/dev/null", os.O_RDWR)] * 3
    with helper(workspace) as made, raw_lane(made) as (_, wire):
        for flags in (0, BACKGROUND):
            for late in (3, 4, 3):
                wire.send(struct.pack("<I", late))
                assert ask(wire, request(flags=flags), *three) == (DONE, 0, 0)
    os.close(three[0])


def test_a_terminal_that_is_none_is_refused_by_its_stage(workspace: Path) -> None:
    three = [os.open("/dev/null", os.O_RDWR)] * 3
    with helper(workspace) as made, raw_lane(made) as (_, wire):
        for flags in (TERMINAL, TERMINAL | BACKGROUND):
            assert ask(wire, request(flags=flags), *three) == (FAILED, 20, errno.ENOTTY)
    os.close(three[0])


def test_packets_of_junk_end_the_lane_or_are_refused_and_end_nothing_else(
    workspace: Path,
) -> None:
    chance = random.Random(5)
    null = os.open("/dev/null", os.O_RDWR)
    with helper(workspace) as made:
        safe = made.lane()
        for turn in range(60):
            with raw_lane(made) as (_, wire):
                for _ in range(20):
                    junk = bytearray(request(chance.randbytes(chance.randrange(80))))
                    for _ in range(chance.randrange(6)):
                        junk[chance.randrange(len(junk))] = chance.randrange(256)
                    if len(junk) == 4 or turn % 7 == 0:
                        junk = bytearray(chance.randbytes(chance.randrange(5, 200)))
                    kind, stage, _ = ask(wire, bytes(junk), *(null,) * chance.randrange(5))
                    assert (kind, stage) in ((FAILED, 17), (DONE, 0), (0, 0)) or kind == FAILED
                    if kind == 0:
                        break
        fine(safe)
    os.close(null)


# As an ordinary user.


def test_an_ordinary_user_has_lanes_too(as_user: AsUser) -> None:
    done = as_user(
        textwrap.dedent(
            """
            import os
            from lanekit import DAEMON, alive, lane, new_mark, py, sh
            from pathlib import Path
            home, mark = Path(os.environ["HOME"]), new_mark()
            with lane(home) as one:
                print(one.scoped, sh(one, "id -u; cat; exit 4", input=b"in").stdout)
                print(sh(one, f"echo x > {home}/a && cat {home}/a").stdout)
                print(sh(one, f"echo x > {home}/../a").stderr[-18:])
                outcome = py(one, DAEMON + "daemon(); time.sleep(60)", mark=mark, timeout=1)
                print(outcome.timed_out, alive(mark))
                print(sh(one, "echo fine").stdout)
            """
        )
    )
    assert done.stdout.splitlines() == [
        "True b'1000\\nin'",
        "b'x\\n'",
        "b'Permission denied\\n'",
        "True []",
        "b'fine\\n'",
    ], done.stderr


def test_the_request_s_limits_are_the_command_s(one: core.Lane) -> None:
    limits = [(resource.RLIMIT_NOFILE, 50, 60), (resource.RLIMIT_FSIZE, 1000, 1000)]
    outcome = sh(one, "ulimit -n; ulimit -Hn; ulimit -n 61; ulimit -n 60; ulimit -n", limits=limits)
    assert outcome.stdout == b"50\n60\n60\n"


def test_fds_are_close_on_exec_from_their_birth(one: core.Lane) -> None:
    """A fork of another thread at any time must not carry them into a stranger."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            flags = fcntl.fcntl(int(name), fcntl.F_GETFD)
            assert (
                not target.startswith(("socket:", "anon_inode:[pidfd")) or flags & fcntl.FD_CLOEXEC
            )


def test_nothing_of_this_module_is_left() -> None:
    gc.collect()
    assert settled(lambda: [pid for pid in children(os.getpid()) if not exists(pid)]) == []
