"""The pump and its buffer: exact bytes under any chunking, and every event at its time."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from ccore import CORE, ffi, lib
from hypothesis import example, given
from hypothesis import strategies as st

NEVER = 2**63 - 1
MS = 1_000_000
MIB = 1 << 20
WATCH, CLOSED, DEADLINE, SILENCE, SIGNAL = (
    lib.PUMP_WATCH,
    lib.PUMP_CLOSED,
    lib.PUMP_DEADLINE,
    lib.PUMP_SILENCE,
    lib.PUMP_SIGNAL,
)
SANITIZED = os.environ.get("SANDCORE_SANITIZE") == "1"
NOISE = random.Random(1).randbytes(4 * MIB)


def pieces(view: Any) -> bytes:
    """The kept bytes of a buffer_view or pump_output, oldest first."""
    parts = [
        (view.head, view.head_len),
        (view.tail_a, view.tail_a_len),
        (view.tail_b, view.tail_b_len),
    ]
    return b"".join(bytes(ffi.buffer(at, size)) for at, size in parts if size)


def tail_of(cap: int) -> int:
    """How much of a cap is kept for the end."""
    return int(min(cap - cap // 2, lib.BUFFER_TAIL_MAX))


def model(data: bytes, cap: int) -> bytes:
    """What is to be kept of `data`: all, or the beginning and the end."""
    if len(data) <= cap:
        return data
    tail = tail_of(cap)
    return data[: cap - tail] + data[len(data) - tail :]


# The buffer


def fill(buffer: Any, data: bytes, chunks: Sequence[int]) -> None:
    """Stores data as reads of the given sizes would (again and again), each cut to the room."""
    where, room = ffi.new("uint8_t **"), ffi.new("size_t *")
    done = turn = 0
    while done < len(data):
        assert lib.buffer_room(buffer, where, room) == 0
        assert room[0] >= 1
        size = min(chunks[turn % len(chunks)], room[0], len(data) - done)
        ffi.memmove(where[0], data[done : done + size], size)
        lib.buffer_commit(buffer, size)
        done, turn = done + size, turn + 1


SIZES = st.integers(0, 1000) | st.integers(0, MIB) | st.sampled_from([65535, 65536, 65537, 131072])


@given(SIZES, SIZES | st.integers(0, 4 * MIB), st.lists(st.integers(1, 300_000), min_size=1))
@example(0, 3 * MIB, [65536])
@example(1, 3 * MIB, [65536])
@example(MIB, MIB, [65536])
@example(MIB, MIB + 1, [65536])
def test_the_buffer_keeps_what_the_model_keeps(cap: int, size: int, chunks: list[int]) -> None:
    """However the bytes arrive, and whatever the cap."""
    chunks = [max(chunk, size // 1000) for chunk in chunks]  # bounds the number of turns
    buffer, view = ffi.new("struct buffer *"), ffi.new("struct buffer_view *")
    lib.buffer_init(buffer, cap)
    try:
        fill(buffer, NOISE[:size], chunks)
        lib.buffer_view(buffer, view)
        assert view.total == size
        assert pieces(view) == model(NOISE[:size], cap)
        assert view.head_len == (size if size <= cap else cap - tail_of(cap))
        ring = max(tail_of(cap), lib.BUFFER_RING_MIN)
        assert buffer.size <= buffer.limit <= cap - tail_of(cap) + ring
    finally:
        lib.buffer_free(buffer)


def test_a_short_output_under_a_large_cap_takes_one_small_block() -> None:
    buffer = ffi.new("struct buffer *")
    lib.buffer_init(buffer, 2**40)
    assert buffer.size == 0
    fill(buffer, b"abc", [3])
    assert buffer.size == lib.BUFFER_FIRST
    lib.buffer_free(buffer)
    assert (buffer.size, buffer.total) == (0, 0)


def test_the_largest_cap_does_not_overflow() -> None:
    buffer = ffi.new("struct buffer *")
    lib.buffer_init(buffer, 2**64 - 1)
    assert (buffer.head_cap, buffer.limit) == (2**64 - 1 - lib.BUFFER_TAIL_MAX, 2**64 - 1)


@pytest.mark.skipif(SANITIZED, reason="ASan aborts where malloc would return NULL")
def test_lack_of_memory_is_an_error_and_changes_nothing() -> None:
    buffer = ffi.new("struct buffer *")
    lib.buffer_init(buffer, 2**64 - 1)
    buffer.size = buffer.at = buffer.total = 2**62  # as if so much had come: the next block is 2^63
    where, room = ffi.new("uint8_t **"), ffi.new("size_t *")
    assert lib.buffer_room(buffer, where, room) == -errno.ENOMEM
    assert (buffer.size, buffer.at) == (2**62, 2**62)


# The pump


def pipe() -> tuple[int, int]:
    """A fresh pipe (read end, write end) that commands do not inherit by accident."""
    return os.pipe2(os.O_CLOEXEC)


def now() -> int:
    return time.monotonic_ns()


class Pump:
    """A pump over given fds (which it then owns), freed at the end of the test."""

    def __init__(
        self,
        out: int = -1,
        err: int = -1,
        stdin: int = -1,
        data: bytes | None = None,
        watch: int = -1,
        cap: int = MIB,
    ) -> None:
        self.data = ffi.from_buffer(data) if data is not None else ffi.NULL
        setup = ffi.new("struct pump_setup *", [stdin, self.data, len(data or b"")])
        setup.out_fd, setup.err_fd, setup.watch_fd = out, err, watch
        setup.out_cap = setup.err_cap = cap
        place = ffi.new("struct pump **")
        self.error: int = lib.pump_new(setup, place)
        self.pump = place[0]

    def wait(self, within: int | None = None, silence: int = NEVER) -> int:
        """One call, with the deadline `within` nanoseconds from now."""
        event: int = lib.pump_wait(self.pump, NEVER if within is None else now() + within, silence)
        return event

    def until(self, *events: int, within: int = 20_000 * MS, silence: int = NEVER) -> int:
        """Waits on through all other events but an error."""
        end = now() + within
        while True:
            event: int = lib.pump_wait(self.pump, end, silence)
            assert event > 0, os.strerror(-event)
            if event in events:
                return event
            assert event != DEADLINE and now() < end, "the expected event did not come"

    def output(self, which: int = 1) -> Any:
        view = ffi.new("struct pump_output *")
        lib.pump_output(self.pump, which, view)
        return view

    def text(self, which: int = 1) -> bytes:
        return pieces(self.output(which))

    def free(self) -> None:
        lib.pump_free(self.pump)
        self.pump = ffi.NULL


class Command:
    """A command whose streams a pump drives, with its pidfd as what is watched."""

    def __init__(self, argv: Sequence[str], data: bytes | None = None, cap: int = MIB) -> None:
        out, err = pipe(), pipe()
        stdin = pipe() if data is not None else (os.open(os.devnull, os.O_RDONLY), -1)
        self.process = subprocess.Popen(
            argv, stdin=stdin[0], stdout=out[1], stderr=err[1], start_new_session=True
        )
        for fd in (stdin[0], out[1], err[1]):
            os.close(fd)
        self.pidfd = os.pidfd_open(self.process.pid)
        self.pump = Pump(out[0], err[0], stdin[1], data, self.pidfd, cap)
        assert self.pump.error == 0

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.pump.free()
        os.close(self.pidfd)


Start = Callable[..., Command]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts commands with a pump; all are ended with the test."""
    commands: list[Command] = []

    def command(*argv: str, data: bytes | None = None, cap: int = MIB) -> Command:
        commands.append(Command(argv, data, cap))
        return commands[-1]

    yield command
    for one in commands:
        one.close()


def shell(text: str) -> tuple[str, str, str]:
    return "/bin/sh", "-c", text


def python(text: str) -> tuple[str, str, str]:
    return sys.executable, "-c", text


def test_both_outputs_of_a_command_arrive_and_its_end_is_told(start: Start) -> None:
    command = start(*shell("echo out; echo err >&2"))
    assert command.pump.until(CLOSED) == CLOSED
    assert command.pump.until(WATCH) == WATCH
    assert (command.pump.text(1), command.pump.text(2)) == (b"out\n", b"err\n")
    assert command.pump.text(3) == b""
    assert command.process.wait() == 0


def test_the_end_of_the_streams_is_told_once() -> None:
    read, write = pipe()
    pump = Pump(read)
    os.close(write)
    assert pump.wait(1000 * MS) == CLOSED
    assert pump.wait(MS) == DEADLINE
    assert pump.wait() == -errno.EDEADLK
    pump.free()


def test_the_watched_fd_is_told_again_until_it_is_dropped_or_another_is_watched() -> None:
    read, write = pipe()
    other = pipe()
    os.write(write, b"x")
    pump = Pump(watch=read)
    assert pump.wait(MS) == CLOSED
    assert [pump.wait(1000 * MS) for _ in range(2)] == [WATCH, WATCH]
    lib.pump_watch(pump.pump, -1)
    assert pump.wait(MS) == DEADLINE
    lib.pump_watch(pump.pump, other[0])
    assert pump.wait(MS) == DEADLINE
    os.close(other[1])
    assert pump.wait(1000 * MS) == WATCH
    pump.free()
    assert os.read(read, 10) == b"x"
    for fd in (read, write, other[0]):
        os.close(fd)


def test_a_deadline_comes_in_time_and_output_so_far_is_kept(start: Start) -> None:
    command = start(*shell("echo before; exec sleep 9"))
    begun = now()
    assert command.pump.until(DEADLINE, within=300 * MS) == DEADLINE
    assert 300 * MS <= now() - begun < 1500 * MS
    assert command.pump.text() == b"before\n"


def test_a_deadline_in_the_past_still_takes_what_is_there() -> None:
    read, write = pipe()
    os.write(write, b"there")
    pump = Pump(read)
    for past in (0, -5, -(2**63)):
        assert lib.pump_wait(pump.pump, past, NEVER) == DEADLINE
        assert pump.text() == b"there"
    pump.free()
    os.close(write)


def test_silence_is_counted_from_the_last_output(start: Start) -> None:
    command = start(*shell("for i in 1 2 3 4 5; do echo $i; sleep 0.1; done; exec sleep 9"))
    begun = now()
    assert command.pump.until(SILENCE, silence=400 * MS) == SILENCE
    assert command.pump.text() == b"1\n2\n3\n4\n5\n"
    assert 700 * MS <= now() - begun < 3000 * MS


def test_silence_before_this_call_does_not_count() -> None:
    read, write = pipe()
    pump = Pump(read)
    time.sleep(0.1)
    begun = now()
    assert pump.wait(silence=50 * MS) == SILENCE
    assert now() - begun >= 50 * MS
    assert pump.wait(silence=0) == SILENCE
    pump.free()
    os.close(write)


@pytest.fixture
def ticks() -> Iterator[list[int]]:
    """SIGALRM every 20 ms; the list grows with each."""
    seen: list[int] = []

    def tick(number: int, frame: FrameType | None) -> None:
        seen.append(number)

    before = signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    yield seen
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_signal_ends_the_wait_and_does_not_start_silence_anew(ticks: list[int]) -> None:
    read, write = pipe()
    pump = Pump(read)
    begun = now()
    assert pump.wait(5000 * MS) == SIGNAL
    assert now() - begun < 900 * MS
    assert ticks
    assert pump.until(SILENCE, within=5000 * MS, silence=200 * MS) == SILENCE
    pump.free()
    os.close(write)


def test_a_signal_is_told_under_a_flood_that_never_lets_the_pump_sleep(start: Start) -> None:
    command = start("yes")
    begun = now()
    assert command.pump.wait(10_000 * MS) == SIGNAL
    assert now() - begun < 2000 * MS


def test_a_long_sleep_is_left_once_a_second_for_a_signal_that_came_before_it() -> None:
    read, write = pipe()
    pump = Pump(read)
    begun = now()
    assert pump.wait(10_000 * MS) == SIGNAL
    assert 900 * MS < now() - begun < 3000 * MS
    pump.free()
    os.close(write)


def test_the_deadline_and_the_watched_fd_are_seen_under_a_flood_of_both_streams(
    start: Start,
) -> None:
    """And neither stream starves the other (CASE-120)."""
    command = start(*shell("yes >&2 & exec yes"))
    begun = now()
    command.pump.until(DEADLINE, within=500 * MS)
    assert now() - begun < 1500 * MS
    totals = sorted(command.pump.output(which).total for which in (1, 2))
    assert totals[0] > MIB
    assert totals[0] * 20 > totals[1]
    os.kill(command.process.pid, signal.SIGKILL)
    command.pump.until(WATCH, within=2000 * MS)


def test_streams_that_are_never_empty_hide_neither_each_other_nor_the_events() -> None:
    """/dev/zero answers every read in full: only the bound on a turn ends it."""
    watched = pipe()
    zeros = [os.open("/dev/zero", os.O_RDONLY | os.O_CLOEXEC) for _ in range(2)]
    pump = Pump(zeros[0], zeros[1], watch=watched[0])
    events: list[int] = []

    def work() -> None:
        events.append(pump.wait(10 * MS))
        events.append(pump.wait(10_000 * MS))
        os.write(watched[1], b"x")
        events.append(pump.wait(10_000 * MS))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert events == [DEADLINE, SIGNAL, WATCH]
    totals = [pump.output(which).total for which in (1, 2)]
    assert totals[0] == totals[1] > 0
    pump.free()
    for fd in watched:
        os.close(fd)


def resident() -> int:
    """Bytes of memory of this process that are in RAM."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("cap", [0, 1, 1000, MIB])
def test_memory_is_bounded_under_a_flood_and_the_count_is_true(start: Start, cap: int) -> None:
    size = 256 * MIB + 7
    command = start("head", "-c", str(size), "/dev/zero", cap=cap)
    before = resident()
    command.pump.until(CLOSED, within=60_000 * MS)
    assert resident() - before < 4 * MIB
    kept = command.pump.output()
    assert kept.total == size
    assert pieces(kept) == bytes(cap)


def test_a_flood_through_a_real_pipe_is_kept_exactly(start: Start, tmp_path: Path) -> None:
    noise = NOISE + NOISE[::-1] + b"end"
    (tmp_path / "noise").write_bytes(noise)
    for cap in (len(noise), len(noise) - 1, 3 * MIB + 1, 1001):
        command = start("cat", str(tmp_path / "noise"), cap=cap)
        command.pump.until(CLOSED)
        assert command.pump.text() == model(noise, cap)


def test_a_megabyte_on_one_stream_does_not_block_the_other(start: Start) -> None:
    """CASE-122."""
    for text in ("head -c 1M /dev/zero >&2; echo done", "head -c 1M /dev/zero; echo done >&2"):
        command = start(*shell(text), cap=4 * MIB)
        command.pump.until(CLOSED)
        assert {command.pump.output(1).total, command.pump.output(2).total} == {MIB, 5}


@pytest.mark.parametrize("drained", [False, True])
def test_packets_are_read_to_the_last(drained: bool) -> None:
    """A writer can put its end into packet mode, where a read that is short empties nothing."""
    read, write = pipe()
    fcntl.fcntl(write, fcntl.F_SETFL, os.O_DIRECT)
    for number in range(10):
        os.write(write, b"%d" % number)
    os.close(write)
    pump = Pump(read)
    if drained:
        assert lib.pump_drain(pump.pump) == 0
    assert pump.until(CLOSED) == CLOSED
    assert pump.text() == b"0123456789"
    pump.free()


# Input


def test_short_input_arrives_and_then_ends(start: Start) -> None:
    for data in (b"", b"hi\n", bytes(65536)):
        command = start("cat", data=data)
        command.pump.until(CLOSED)
        assert command.pump.text() == data


SLOW = """
import hashlib, os, sys, time
digest = hashlib.sha256()
while data := os.read(0, 1 << 16):
    digest.update(data)
    os.write(1, data)
    time.sleep(0.0003)
os.write(2, digest.hexdigest().encode())
"""


def test_fifty_megabytes_go_through_a_slow_command_in_both_directions(start: Start) -> None:
    data = NOISE * 12 + NOISE[: 2 * MIB + 1]
    command = start(*python(SLOW), data=data)
    command.pump.until(CLOSED, within=60_000 * MS)
    assert command.pump.text(2) == hashlib.sha256(data).hexdigest().encode()
    assert command.pump.output().total == len(data)
    assert command.pump.text() == model(data, MIB)


def test_a_command_that_never_reads_its_input_runs_to_its_end(start: Start) -> None:
    """CASE-127."""
    command = start(*shell("echo up; exec sleep 0.3"), data=bytes(50 * MIB))
    spent = time.process_time()
    command.pump.until(CLOSED)
    assert time.process_time() - spent < 0.2
    assert command.pump.text() == b"up\n"
    assert command.pump.until(WATCH) == WATCH


def test_a_command_that_leaves_early_is_no_error(start: Start) -> None:
    """CASE-127."""
    command = start(*shell("head -c 3; exec <&-; echo; sleep 0.1; echo done"), data=bytes(50 * MIB))
    command.pump.until(CLOSED)
    assert command.pump.text() == b"\0\0\0\ndone\n"
    assert command.process.wait() == 0


BROKEN = """
import ctypes, os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_pump import CLOSED, MS, Pump, pipe
state = sys.argv[2]
signal.signal(signal.SIGPIPE, signal.SIG_IGN if state == "ignored" else signal.SIG_DFL)
if state in ("blocked", "pending"):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
if state == "pending":
    signal.raise_signal(signal.SIGPIPE)
read, write = pipe()
pump = Pump(stdin=write, data=b"nobody reads this")
os.close(read)
# The first write is made before poll could tell that nobody reads: it raises the signal.
event = pump.wait(1000 * MS)
print(
    event == CLOSED,
    signal.SIGPIPE in signal.sigpending(),
    signal.SIGPIPE in signal.pthread_sigmask(signal.SIG_BLOCK, ()),
)
"""


@pytest.mark.parametrize(
    ("state", "seen"),
    [
        ("default", "True False False"),
        ("ignored", "True False False"),
        ("blocked", "True False True"),
        ("pending", "True True True"),
    ],
)
def test_a_broken_pipe_leaves_the_caller_and_its_signals_alone(state: str, seen: str) -> None:
    tests = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run(
        [sys.executable, "-c", BROKEN, tests, state], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, seen), done.stderr


# What a dead tree leaves


def test_output_of_a_grandchild_that_comes_after_the_end_is_drained(start: Start) -> None:
    """CASE-92 and CASE-93: told apart by silence."""
    command = start(*shell("(sleep 0.2; echo late; exec sleep 30) & echo hi"))
    assert command.pump.until(WATCH) == WATCH
    lib.pump_watch(command.pump.pump, -1)
    begun = now()
    assert command.pump.until(SILENCE, silence=500 * MS) == SILENCE
    assert now() - begun < 3000 * MS
    assert lib.pump_drain(command.pump.pump) == 0
    assert command.pump.text() == b"hi\nlate\n"


def test_a_drain_takes_all_that_is_in_the_pipes_and_closes_them() -> None:
    out, err, stdin = pipe(), pipe(), pipe()
    os.write(out[1], NOISE[:60_000])
    os.write(err[1], b"err")
    pump = Pump(out[0], err[0], stdin[1], bytes(MIB))
    assert lib.pump_drain(pump.pump) == 0
    assert (pump.text(1), pump.text(2)) == (NOISE[:60_000], b"err")
    for fd in (out[0], err[0], stdin[1]):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    assert lib.pump_drain(pump.pump) == 0
    assert pump.wait(1000 * MS) == CLOSED
    pump.free()
    for fd in (out[1], err[1], stdin[0]):
        os.close(fd)


def test_a_stranger_who_keeps_writing_does_not_hold_the_drain(start: Start) -> None:
    command = start("yes")
    command.pump.until(SIGNAL)
    total = command.pump.output().total
    begun = now()
    assert lib.pump_drain(command.pump.pump) == 0
    assert now() - begun < 1000 * MS
    assert 0 <= command.pump.output().total - total <= MIB


# Fds and memory


def test_only_our_end_of_a_pipe_becomes_non_blocking() -> None:
    out, stdin = pipe(), pipe()
    pump = Pump(out[0], stdin=stdin[1], data=b"x")
    ours, theirs = (out[0], stdin[1]), (out[1], stdin[0])
    assert all(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK for fd in ours)
    assert not any(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK for fd in theirs)
    pump.free()
    for fd in theirs:
        os.close(fd)


def test_a_bad_setup_is_refused_and_the_fds_stay_the_callers() -> None:
    read, write = pipe()
    gone = os.dup(read)
    os.close(gone)
    for pump in (Pump(read, read), Pump(read, stdin=read), Pump(-1, read, read)):
        assert pump.error == -errno.EINVAL
    assert Pump(data=b"no fd for it").error == -errno.EINVAL
    assert Pump(read, gone).error == -errno.EBADF
    assert Pump(-7).error == -errno.EBADF
    assert lib.pump_new(ffi.NULL, ffi.NULL) == -errno.EINVAL
    lib.pump_free(ffi.NULL)
    for fd in (read, write):
        os.fstat(fd)
        os.close(fd)


def test_a_watched_fd_that_is_none_is_an_error_and_not_a_busy_loop() -> None:
    read, write = pipe()
    os.close(write)
    os.close(read)
    pump = Pump(watch=read)
    assert pump.wait(MS) == CLOSED
    assert pump.wait(1000 * MS) == -errno.EBADF
    pump.free()


def one_run() -> None:
    out, err, stdin = pipe(), pipe(), pipe()
    pump = Pump(out[0], err[0], stdin[1], b"input")
    os.write(out[1], NOISE[:1000])
    for fd in (out[1], err[1], stdin[0]):
        os.close(fd)
    assert pump.until(CLOSED) == CLOSED
    assert pump.output().total == 1000
    pump.free()


def test_ten_thousand_runs_leak_no_fd_and_no_memory() -> None:
    for _ in range(1000):
        one_run()
    fds, memory = len(os.listdir("/proc/self/fd")), resident()
    for _ in range(10_000):
        one_run()
    assert len(os.listdir("/proc/self/fd")) == fds
    if not SANITIZED:  # its quarantine keeps what was freed
        assert resident() - memory < MIB


def test_pumps_of_many_threads_do_not_disturb_each_other() -> None:
    faults: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(200):
                one_run()
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


ASAN = r"""
#include "pump.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static uint8_t input[3 << 20];

static int run(const char *text, size_t cap, uint64_t want)
{
    int in[2], out[2], err[2];
    if (pipe(in) || pipe(out) || pipe(err)) return 1;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(in[0], 0), dup2(out[1], 1), dup2(err[1], 2);
        for (int fd = 3; fd < 20; fd++) close(fd);
        execl("/bin/sh", "sh", "-c", text, (char *)0);
        _exit(127);
    }
    close(in[0]), close(out[1]), close(err[1]);
    struct pump_setup setup = {in[1], input, sizeof input, out[0], err[0], -1, cap, cap};
    struct pump *p;
    struct pump_output o;
    int event;
    if (pump_new(&setup, &p)) return 2;
    while ((event = pump_wait(p, INT64_MAX, INT64_MAX)) == PUMP_SIGNAL)
        ;
    if (event != PUMP_CLOSED || pump_drain(p)) return 3;
    for (int which = 1; which <= 2; which++) {
        pump_output(p, which, &o);
        size_t kept = o.head_len + o.tail_a_len + o.tail_b_len;
        uint8_t *copy = malloc(kept + 1);
        if (o.head_len) memcpy(copy, o.head, o.head_len);
        if (o.tail_a_len) memcpy(copy + o.head_len, o.tail_a, o.tail_a_len);
        if (o.tail_b_len) memcpy(copy + o.head_len + o.tail_a_len, o.tail_b, o.tail_b_len);
        free(copy);
        if (o.total != want || kept != (want < cap ? want : cap)) return 4;
    }
    pump_free(p);
    waitpid(pid, 0, 0);
    return 0;
}

int main(void)
{
    const size_t caps[] = {0, 1, 2, 3, 1000, 65536, 1 << 20, 3 << 20, 20 << 20};
    signal(SIGPIPE, SIG_DFL);
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        int bad = run("exec tee /dev/stderr", caps[i], sizeof input);
        if (!bad) bad = run("head -c 5; echo done; printf 1234567890 >&2", caps[i], 10);
        if (bad) return bad;
    }
    return 0;
}
"""


def test_a_c_caller_is_clean_under_address_and_undefined_behaviour_sanitizers(
    tmp_path: Path,
) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs gcc with libasan and libubsan")
    (tmp_path / "caller.c").write_text(ASAN)
    sources = [str(CORE / f"{name}.c") for name in ("pump", "stream", "buffer")]
    flags = ["-std=gnu11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    program = str(tmp_path / "caller")
    caller = str(tmp_path / "caller.c")
    subprocess.run([compiler, *flags, f"-I{CORE}", caller, *sources, "-o", program], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    environment["ASAN_OPTIONS"] = "detect_leaks=1"
    done = subprocess.run([program], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
