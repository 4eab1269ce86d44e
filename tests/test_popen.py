"""Commands that go on: their streams and terminals, who may end them, and that they do end."""

from __future__ import annotations

import gc
import os
import pickle
import re
import select
import shlex
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pytest
from conftest import AsUser
from lanekit import DAEMON, MARK, PYTHON, alive, gone, kill_all, new_mark, wait_for
from scenekit import open_fds

import sandbox
from sandbox import DEVNULL, PIPE, STDOUT

pytestmark = pytest.mark.filterwarnings("ignore::sandbox.SandboxWeakened")

TESTS = Path(__file__).resolve().parent
MIB = 1 << 20


@pytest.fixture
def box(workspace: Path) -> Iterator[sandbox.Sandbox]:
    """A sandbox in which `workspace` is writable."""
    with sandbox.Sandbox(sandbox.workspace_write(workspace)) as made:
        yield made


@pytest.fixture
def mark() -> Iterator[str]:
    """A mark whose processes are gone in the end, whatever the test found."""
    word = new_mark()
    yield word
    kill_all(alive(word))


def fine(box: sandbox.Sandbox) -> None:
    """The sandbox still does what it should."""
    assert box.run("echo fine").stdout == b"fine\n"


def line(file: IO[Any] | None) -> Any:
    assert file is not None
    return file.readline()


def expect(process: sandbox.Process[bytes], pattern: str, seen: bytes = b"") -> bytes:
    """Reads from the terminal until the pattern is there; all that came."""
    assert process.pty is not None
    deadline = time.monotonic() + 20
    while not re.search(pattern.encode(), seen):
        left = deadline - time.monotonic()
        assert left > 0 and select.select([process.pty], [], [], left)[0], seen
        data = process.pty.read(65536)
        assert data, seen
        seen += data
    return seen


def press(process: sandbox.Process[bytes], key: bytes, pattern: str) -> bytes:
    """Presses a key until what it should do has come: a job may not be in the foreground yet."""
    assert process.pty is not None
    seen = b""
    for _ in range(40):
        process.pty.write(key)
        while select.select([process.pty], [], [], 0.5)[0] and not re.search(
            pattern.encode(), seen
        ):
            seen += process.pty.read(65536)
        if re.search(pattern.encode(), seen):
            break
    return expect(process, pattern, seen)


def until_up(file: Path) -> None:
    wait_for(file.exists, 20)


# Streams.


def test_a_dialogue_through_pipes(box: sandbox.Sandbox) -> None:
    with box.popen(["cat"], stdin=PIPE, stdout=PIPE) as cat:
        assert cat.stdin is not None and cat.stdout is not None and cat.stderr is None
        for word in (b"one\n", b"two\n", b"\xff\x00\n"):
            cat.stdin.write(word)
            cat.stdin.flush()
            assert cat.stdout.readline() == word
        assert cat.poll() is None
        cat.stdin.close()
        assert cat.stdout.read() == b""
        result = cat.wait(20)
    assert (result.returncode, result.ok, result.stdout, result.stderr) == (0, True, b"", b"")
    assert result.args == ["cat"] and result.enforcement == box.enforcement


def test_a_line_of_text_is_on_its_way_when_it_was_written(box: sandbox.Sandbox) -> None:
    script = "while read x; do echo got $x; done; printf 'a\\377\\r\\n' >&2"
    with box.popen(script, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as talker:
        assert talker.stdin is not None and talker.stderr is not None
        talker.stdin.write("wörd\n")
        assert line(talker.stdout) == "got wörd\n"
        talker.stdin.close()
        assert talker.stderr.read() == "a\N{REPLACEMENT CHARACTER}\r\n"
        assert talker.wait(20).returncode == 0


def test_by_default_nothing_is_read_and_nothing_is_heard(
    box: sandbox.Sandbox, capfd: pytest.CaptureFixture[str]
) -> None:
    script = "cat; echo out; echo err >&2; readlink /proc/self/fd/0 /proc/self/fd/1 >/dev/null"
    with box.popen(script) as quiet:
        assert (quiet.stdin, quiet.stdout, quiet.stderr, quiet.pty) == (None, None, None, None)
        assert quiet.wait(20).returncode == 0
    assert capfd.readouterr() == ("", "")


def test_fds_and_files_of_the_caller_are_handed_over_and_stay_open(
    box: sandbox.Sandbox, outside: Path
) -> None:
    (outside / "in").write_bytes(b"one\ntwo\n")
    with open(outside / "in", "rb", buffering=0) as given, open(outside / "out", "w+b") as out:
        script = "read x; echo out $x; echo err >&2"
        with box.popen(script, stdin=given.fileno(), stdout=out, stderr=STDOUT) as process:
            assert process.wait(20).returncode == 0
        assert given.tell() == 4 and out.seek(0) == 0
        assert out.read() == b"out one\nerr\n"


@pytest.mark.parametrize("stdout", [PIPE, subprocess.PIPE])
def test_both_outputs_in_one_pipe(box: sandbox.Sandbox, stdout: int) -> None:
    assert (PIPE, STDOUT, DEVNULL) == (subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL)
    with box.popen("echo out; echo err >&2", stdout=stdout, stderr=subprocess.STDOUT) as process:
        assert process.stderr is None and process.stdout is not None
        assert process.stdout.read() == b"out\nerr\n"


def test_the_command_has_no_fd_but_its_three(box: sandbox.Sandbox) -> None:
    script = "import os; print(*sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:-1])"
    with box.popen([PYTHON, "-Ic", script], stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        assert line(process.stdout) == b"0 1 2\n"


def test_five_mebibytes_go_through_a_command_and_back(box: sandbox.Sandbox) -> None:
    data = os.urandom(5 * MIB)
    script = "head -c 100000 /dev/zero >&2; cat"
    with box.popen(script, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        out, err = process.communicate(data, timeout=60)
        assert out == data and err == bytes(100_000)
        assert process.wait(0).ok


def test_communicate_can_be_left_and_gone_on_with(box: sandbox.Sandbox) -> None:
    with box.popen("echo one; sleep 1; cat", stdin=PIPE, stdout=PIPE, text=True) as process:
        with pytest.raises(sandbox.StillRunning):
            process.communicate("two\n" * 50_000, timeout=0.1)
        assert process.communicate(timeout=30) == ("one\n" + "two\n" * 50_000, None)
        assert process.communicate() == ("one\n" + "two\n" * 50_000, None)


def test_a_command_that_does_not_read_its_input_is_no_trouble(box: sandbox.Sandbox) -> None:
    with box.popen("exit 3", stdin=PIPE, stdout=PIPE) as process:
        assert process.communicate(bytes(MIB), timeout=20) == (b"", None)
        assert process.wait().returncode == 3
    with box.popen("sleep 30", stdin=PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"never read")
    assert process.wait().signal == signal.SIGKILL


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"stdin": STDOUT}, "stdin"),
        ({"stdout": STDOUT}, "stdout"),
        ({"stdout": -4}, "stdout"),
        ({"stdout": True}, "stdout"),
        ({"stdout": "file"}, "stdout"),
        ({"stderr": 1.5}, "stderr"),
        ({"pty": (24,)}, "pty"),
        ({"pty": (0, 80)}, "rows"),
        ({"pty": (24, 1 << 16)}, "cols"),
        ({"pty": True, "stdout": PIPE}, "stdout"),
        ({"pty": True, "text": True}, "text"),
        ({"env": ["A=1"]}, "env"),
        ({"limits": 5}, "limits"),
    ],
)
def test_what_makes_no_sense_is_named_and_leaves_no_fd(
    box: sandbox.Sandbox, options: dict[str, Any], culprit: str
) -> None:
    fine(box)
    before = open_fds()
    with pytest.raises(sandbox.InvalidArgument) as raised:
        box.popen(["true"], **options)
    assert raised.value.name == culprit
    with pytest.raises(TypeError, match="'input'"):
        box.popen(["true"], input=b"x")  # type: ignore[call-overload]
    with pytest.raises(sandbox.InvalidLimit):
        box.popen(["true"], timeout=-1)
    assert open_fds() == before


@pytest.mark.parametrize(
    ("args", "cwd", "kind"),
    [
        (["no-such-program"], None, sandbox.CommandNotFound),
        (["/etc/passwd"], None, sandbox.CommandNotExecutable),
        (["true"], "/no/such/place", sandbox.WorkingDirectoryError),
        (["true", "x" * 3_000_000], None, sandbox.ArgumentsTooLong),
    ],
)
def test_what_cannot_start_says_so_at_once_and_leaves_nothing(
    box: sandbox.Sandbox, args: list[str], cwd: str | None, kind: type[Exception]
) -> None:
    fine(box)
    before = open_fds()
    for _ in range(3):
        with pytest.raises(kind):
            box.popen(args, cwd=cwd, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert open_fds() == before and not box._attendants
    fine(box)


# Terminals.


def test_a_terminal_is_the_command_s_own(box: sandbox.Sandbox) -> None:
    script = "import os; print(*map(os.isatty, (0, 1, 2)), os.getsid(0) == os.getpid(), end=' ')"
    script += "; print(os.tcgetpgrp(0) == os.getpgrp(), os.open('/dev/tty', os.O_RDWR) > 2, '.')"
    with box.popen([PYTHON, "-Ic", script], pty=True) as process:
        assert b"True True True True True True ." in expect(process, r"\.\r\n")
        assert process.wait(20).ok
        assert process.pty is not None
        assert (process.pty.read(10), process.pty.read(), process.pty.readinto(bytearray(5))) == (
            b"",
            b"",
            0,
        )


def test_a_terminal_has_the_size_that_was_asked_for_and_changes_it(box: sandbox.Sandbox) -> None:
    script = "stty size; trap 'stty size; exit 0' WINCH; echo up.; while :; do sleep 0.1; done"
    with box.popen(script, pty=(33, 77)) as process:
        assert b"33 77\r\n" in expect(process, r"up\.\r\n")
        process.resize(44, 88)
        expect(process, r"44 88\r\n")
        assert process.wait(20).ok
    with box.popen("stty size", pty=True) as process:
        expect(process, r"24 80\r\n")
        with pytest.raises(sandbox.InvalidArgument):
            process.resize(0, 80)
    with box.popen("true") as process, pytest.raises(sandbox.InvalidArgument):
        process.resize(24, 80)


@pytest.mark.parametrize(
    ("key", "number"), [(b"\x03", signal.SIGINT), (b"\x1c", signal.SIGQUIT)], ids=["int", "quit"]
)
def test_a_key_ends_the_command_by_its_signal(
    box: sandbox.Sandbox, key: bytes, number: signal.Signals
) -> None:
    with box.popen(["sh", "-c", "echo up.; exec sleep 1000"], pty=True) as process:
        expect(process, r"up\.\r\n")
        assert process.pty is not None
        process.pty.write(key)
        assert process.wait(20).signal == number


def test_a_shell_at_a_terminal_has_job_control(box: sandbox.Sandbox) -> None:
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with box.popen(shell, pty=True, env={"PS1": "ready> ", "TERM": "dumb"}) as process:
        assert process.pty is not None
        expect(process, "ready> ")
        process.pty.write(b"sleep 1000\r")
        expect(process, r"sleep 1000\r\n")
        seen = press(process, b"\x1a", r"Stopped[^\n]*\r\n.*ready> ")
        assert b"no job control" not in seen
        process.pty.write(b"fg\r")
        expect(process, r"fg\r\nsleep 1000\r\n")
        press(process, b"\x03", "ready> ")
        process.pty.write(b"exit 7\r")
        assert process.wait(20).returncode == 7


def test_a_closed_terminal_hangs_up(box: sandbox.Sandbox) -> None:
    with box.popen(["sh", "-c", "echo up.; exec sleep 1000"], pty=True) as process:
        expect(process, r"up\.\r\n")
        assert process.pty is not None
        process.pty.close()
        assert process.wait(20).signal == signal.SIGHUP


def test_terminals_do_not_mix(box: sandbox.Sandbox) -> None:
    with box.popen(["cat"], pty=True) as one, box.popen(["cat"], pty=True) as other:
        assert one.pty is not None and other.pty is not None
        one.pty.write(b"to one\r")
        other.pty.write(b"to other\r")
        assert b"other" not in expect(one, r"to one\r\nto one\r\n")
        assert b"one" not in expect(other, r"to other\r\nto other\r\n")


# Ends.


@pytest.mark.parametrize("status", [0, 1, 7, 124, 137, 255])
def test_the_exit_status_is_the_command_s(box: sandbox.Sandbox, status: int) -> None:
    with box.popen(f"exit {status}") as process:
        result = process.wait(20)
    assert (result.returncode, result.signal, result.timed_out) == (status, None, False)
    assert process.poll() == result == process.wait(0)


@pytest.mark.parametrize("number", ["TERM", "INT", "KILL", "USR1", "SEGV", "ABRT", "HUP"])
def test_a_signal_is_told_exactly_whoever_sent_it(box: sandbox.Sandbox, number: str) -> None:
    wanted = signal.Signals[f"SIG{number}"]
    with box.popen(["sleep", "1000"]) as process:
        process.send_signal(wanted)
        assert process.wait(20).signal == wanted
    with box.popen(["sh", "-c", f"kill -{number} $$; sleep 1000"]) as process:
        assert process.wait(20).signal == wanted


def test_terminate_asks_and_the_command_answers(box: sandbox.Sandbox, workspace: Path) -> None:
    script = f"trap 'exit 9' TERM; touch {workspace}/up; while :; do sleep 0.02; done"
    with box.popen(script) as process:
        until_up(workspace / "up")
        process.terminate()
        result = process.wait(20)
    assert (result.returncode, result.signal) == (9, None)


def test_a_signal_is_for_the_command_and_not_for_its_children(
    box: sandbox.Sandbox, workspace: Path
) -> None:
    script = "trap 'echo caught' USR1; sh -c 'touch up; read x; echo child $x'; echo over"
    with box.popen(script, stdin=PIPE, stdout=PIPE, cwd=workspace) as process:
        until_up(workspace / "up")
        process.send_signal(signal.SIGUSR1)  # its default action would end the child
        assert process.communicate(b"lives\n", timeout=20)[0] == b"child lives\ncaught\nover\n"
        with pytest.raises(sandbox.InvalidArgument):
            process.send_signal(0)


def test_words_to_a_command_that_is_over_do_not_reach_the_next(box: sandbox.Sandbox) -> None:
    first = box.popen("exit 0")
    wait_for(lambda: first.poll() is not None)
    with box.popen(["sleep", "0.5"]) as second:  # in the same lane
        first.kill()
        first.terminate()
        assert second.wait(20).ok
    assert first.wait().returncode == 0


TREES = {
    "setsid": "setsid sleep 1000 & sh -c 'setsid sleep 1000 &'",
    "stopped": "sh -c 'kill -STOP $$; sleep 1000' & kill -STOP $$",
    "deaf": "trap '' TERM INT HUP; sh -c 'sleep 1000; sleep 1000' &",
    "daemon": f"{PYTHON} -Ic {shlex.quote(DAEMON + 'daemon(); daemon()')}",
}


@pytest.mark.parametrize("tree", TREES)
def test_a_kill_ends_the_whole_tree(box: sandbox.Sandbox, mark: str, tree: str) -> None:
    with box.popen(f"{TREES[tree]}\nsleep 1000", env={MARK: mark}) as process:
        wait_for(lambda: len(alive(mark)) > 1)
        time.sleep(0.1)
        process.kill()
        result = process.wait(20)
        assert alive(mark) == []
    assert result.signal == signal.SIGKILL and not result.timed_out
    fine(box)


@pytest.mark.parametrize("tree", sorted(TREES.keys() - {"stopped"}))
def test_the_end_of_the_command_is_the_end_of_its_tree(
    box: sandbox.Sandbox, mark: str, tree: str
) -> None:
    """Also while nobody waits, and although they hold its output."""
    command = f"{TREES[tree]}\nsleep 0.3; exit 5"
    with box.popen(command, env={MARK: mark}, stdout=PIPE) as process:
        wait_for(lambda: len(alive(mark)) > 1)
        assert gone(mark) == []
        result = process.wait(20)
    assert result.returncode == 5 and result.swept >= 1 and result.duration < 5


def test_the_end_of_the_with_statement_is_the_end_of_the_command(
    box: sandbox.Sandbox, mark: str
) -> None:
    with (
        pytest.raises(KeyError),
        box.popen("setsid sleep 1000 & sleep 1000", env={MARK: mark}, stdout=PIPE) as process,
    ):
        wait_for(lambda: len(alive(mark)) == 3)
        raise KeyError
    assert alive(mark) == [] and process.wait().signal == signal.SIGKILL
    assert process.stdout is not None and process.stdout.closed


def test_waiting_has_an_end_and_the_command_goes_on(box: sandbox.Sandbox) -> None:
    with box.popen(["cat"], stdin=PIPE) as process:
        for seconds in (0, 0.05):
            began = time.monotonic()
            with pytest.raises(TimeoutError) as raised:
                process.wait(seconds)
            assert seconds <= time.monotonic() - began < 5
            assert isinstance(raised.value, sandbox.StillRunning)
            again = pickle.loads(pickle.dumps(raised.value))
            assert (again.command, again.seconds) == (["cat"], seconds)
        for nonsense in (-1, float("nan"), True, "1"):
            with pytest.raises(sandbox.InvalidLimit):
                process.wait(nonsense)  # type: ignore[arg-type]
        assert process.communicate(b"", timeout=20) == (None, None)


def test_the_time_limit_holds_though_nobody_waits(box: sandbox.Sandbox, mark: str) -> None:
    process = box.popen("setsid sleep 1000 & sleep 1000", timeout=0.4, env={MARK: mark})
    wait_for(lambda: len(alive(mark)) == 3)
    assert gone(mark) == []
    time.sleep(0.3)
    result = process.wait(20)
    assert (result.timed_out, result.exit_status, result.signal) == (True, 124, signal.SIGKILL)
    assert 0.4 <= result.duration < 0.65, "measured where it ended, not where it was asked for"


def test_the_policy_s_time_limit_holds_unless_another_is_given(workspace: Path) -> None:
    policy = sandbox.workspace_write(workspace).with_limits(sandbox.Limits(wall=0.2))
    with sandbox.Sandbox(policy) as box:
        ours, none = box.popen(["sleep", "0.6"]), box.popen(["sleep", "0.6"], timeout=None)
        more = box.popen(["sleep", "0.6"], limits=sandbox.Limits(wall=30, processes=1000))
        assert [p.wait(20).timed_out for p in (ours, none, more)] == [True, False, False]
        assert "processes" in [part.part for part in more.wait().enforcement.weaker]


def test_a_time_limit_that_is_not_reached_is_none(box: sandbox.Sandbox) -> None:
    for seconds in (0.6, 1, 1000, 366 * 24 * 3600):
        with box.popen("exit 4", timeout=seconds) as process:
            result = process.wait(20)
        assert (result.returncode, result.timed_out) == (4, False)


# Who else ends it.


def test_a_closed_sandbox_ends_what_runs_in_it_and_says_so(workspace: Path, mark: str) -> None:
    before = open_fds()
    box = sandbox.Sandbox(sandbox.workspace_write(workspace))
    process = box.popen("setsid sleep 1000 & echo x > .envrc; sleep 1000", env={MARK: mark})
    wait_for((workspace / ".envrc").exists)
    with ThreadPoolExecutor(2) as pool:
        waiters = [pool.submit(process.wait) for _ in range(2)]
        time.sleep(0.1)
        box.close()
        assert alive(mark) == [] and not (workspace / ".envrc").exists()
        for ask in (process.wait, process.poll, waiters[0].result, waiters[1].result):
            with pytest.raises(sandbox.SandboxLost, match="closed while") as raised:
                ask()
            assert [denial.change for denial in raised.value.denials] == ["planted"]
    process.kill()
    process.terminate()
    box.close()
    with pytest.raises(sandbox.InvalidArgument, match="closed"):
        box.popen(["true"])
    assert open_fds() == before and not os.path.exists(box.resolved.tmp)


def test_a_command_goes_on_when_its_sandbox_is_confined_anew_and_ends_with_it(
    workspace: Path, outside: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.backends.basis._LOOK", 0)
    key = outside / "key"
    key.touch()
    with sandbox.Sandbox(sandbox.workspace_write(workspace).with_deny(key)) as box:
        old = box.popen(["cat"], stdin=PIPE, stdout=PIPE, env={MARK: mark})
        older, was = box.popen(["sleep", "1000"], env={MARK: mark}), box._boundary._confinement
        key.rename(outside / "moved")
        fine(box)
        assert box._boundary._confinement is not was
        assert old.communicate(b"still here", timeout=20)[0] == b"still here"
    assert alive(mark) == []
    with pytest.raises(sandbox.SandboxLost, match="closed while"):
        older.wait()


def test_a_command_that_ends_its_own_sandbox_is_told_and_the_next_one_works(
    box: sandbox.Sandbox, workspace: Path, mark: str
) -> None:
    other = box.popen(["sleep", "1000"], env={MARK: mark})
    process = box.popen("sleep 0.3; echo x > .envrc; kill -9 $PPID; sleep 9", env={MARK: mark})
    for _ in range(2):
        with pytest.raises(sandbox.SandboxLost) as raised:
            process.wait(20)
    with pytest.raises(sandbox.SandboxLost):
        other.wait(20)
    put_back = [*raised.value.denials, *other._attendant.denials]
    assert [denial.change for denial in put_back] == ["planted"]
    assert alive(mark) == [] and not (workspace / ".envrc").exists()
    with box.popen("echo again", stdout=PIPE) as process:
        assert line(process.stdout) == b"again\n"


def script(program: str, *arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """A caller of its own, in which nothing may be left unclosed."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(TESTS)])}
    strict = ["-X", "dev", "-W", "error::ResourceWarning", "-W", "ignore::UserWarning"]
    command = [sys.executable, *strict, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, **more)


ABANDONED = """
    import os, signal, sys, time
    from lanekit import MARK, alive, wait_for
    from sandbox import PIPE, Sandbox, workspace_write
    workspace, mark, how = sys.argv[1:]
    box = Sandbox(workspace_write(workspace))
    tree = "setsid sleep 1000 & echo x > .envrc; touch up; sleep 1000"
    process = box.popen(tree, env={MARK: mark})
    waiting = box.popen(["cat"], stdin=PIPE, stdout=PIPE, env={MARK: mark})
    wait_for(lambda: os.path.exists(workspace + "/up"))
    if how == "killed":
        os.kill(0, signal.SIGKILL)
    if how == "dropped":
        waiting.communicate(b"")
        del process, waiting, box
    elif how == "cycle":
        waiting.communicate(b"")
        process.me, box.me = process, box
        del process, waiting, box
    elif how == "exit":
        waiting.communicate(b"")
    elif how == "raise":
        waiting.communicate(b"")
        raise SystemExit(0)
"""


@pytest.mark.parametrize("how", ["exit", "raise", "dropped", "cycle", "killed"])
def test_a_caller_that_ends_leaves_nobody(workspace: Path, mark: str, how: str) -> None:
    done = script(ABANDONED, workspace, mark, how, start_new_session=True)
    if how == "killed":
        assert done.returncode == -signal.SIGKILL
        assert gone(mark) == []
        return
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert alive(mark) == [] and not (workspace / ".envrc").exists()


def test_an_object_that_is_dropped_takes_its_tree_along_and_frees_its_place(
    box: sandbox.Sandbox, workspace: Path, mark: str
) -> None:
    def dropped(cycle: bool) -> None:
        process: Any = box.popen(
            "echo x > .envrc; setsid sleep 1000 & sleep 1000", env={MARK: mark}
        )
        if cycle:
            process.me = process
        wait_for(lambda: len(alive(mark)) == 3)

    fine(box)
    before = open_fds(), threading.active_count()
    for cycle in (False, True):
        dropped(cycle)
        gc.collect()
        assert gone(mark) == []
        wait_for(lambda: not box._attendants)
        assert not (workspace / ".envrc").exists()
    fine(box)
    assert (open_fds(), threading.active_count()) == before


def test_the_process_keeps_its_sandbox(workspace: Path) -> None:
    process = sandbox.Sandbox(sandbox.workspace_write(workspace)).popen(["cat"], stdin=PIPE)
    gc.collect()
    assert process.communicate(b"x", timeout=20) == (None, None) and process.wait().ok


def test_a_forked_copy_does_not_reach_the_command(box: sandbox.Sandbox, mark: str) -> None:
    process = box.popen(["cat"], stdin=PIPE, stdout=PIPE, env={MARK: mark})
    calls: list[Callable[[], object]] = [process.poll, process.wait, process.kill]
    calls.append(process.terminate)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            refused = 0
            for call in calls:
                try:
                    call()
                except sandbox.SandboxLost:
                    refused += 1
            with process, box.popen("echo own", stdout=PIPE) as own:
                status = 0 if (refused, line(own.stdout)) == (4, b"own\n") else 2
            box.close()
            process._attendant.abandon()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert process.poll() is None and len(alive(mark)) == 1
    assert process.communicate(b"alive", timeout=20)[0] == b"alive"


# Many, and beside others.


def test_twenty_at_once_beside_commands_that_run(box: sandbox.Sandbox, mark: str) -> None:
    cats = [
        box.popen(["cat"], stdin=PIPE, stdout=PIPE, text=True, env={MARK: mark}) for _ in range(20)
    ]
    with ThreadPoolExecutor(8) as pool:
        runs = [pool.submit(box.run, f"echo {i}") for i in range(40)]
        for number, cat in enumerate(cats):
            assert cat.stdin is not None
            cat.stdin.write(f"{number}\n")
        assert [line(cat.stdout) for cat in cats] == [f"{i}\n" for i in range(20)]
        assert [one.result().out for one in runs] == [f"{i}\n" for i in range(40)]
    assert len(alive(mark)) == 20
    for cat in cats[::2]:
        cat.kill()
    for cat in cats[1::2]:
        assert cat.communicate("last", timeout=20) == ("last", None)
    assert [cat.wait(20).signal for cat in cats] == [signal.SIGKILL, None] * 10
    for cat in cats:
        cat.__exit__(None, None, None)


SERVER = 'mkfifo ask answer; touch up; while read x < ask; do echo "hello $x" > answer; done'


def test_a_server_goes_on_while_other_commands_talk_to_it(
    box: sandbox.Sandbox, workspace: Path
) -> None:
    with box.popen(SERVER, timeout=None) as server:
        until_up(workspace / "up")
        for name in ("one", "two", "three"):
            result = box.run(f"echo {name} > ask; cat answer", timeout=20)
            assert result.out == f"hello {name}\n"
        assert server.poll() is None
    with pytest.raises(sandbox.SandboxException):
        box.run("echo four > ask", timeout=0.3, check=True)  # nobody listens any more


def test_what_a_command_plants_is_put_back_when_it_is_asked_for(
    box: sandbox.Sandbox, workspace: Path
) -> None:
    with box.popen("echo x > .envrc; touch up; sleep 0.2") as process:
        until_up(workspace / "up")
        result = process.wait(20)
    assert [(one.change, Path(one.what).name) for one in result.denials] == [("planted", ".envrc")]
    assert not (workspace / ".envrc").exists()
    assert box.run("true").denials == ()


def test_a_command_has_a_temporary_directory_of_its_own_which_is_emptied(
    box: sandbox.Sandbox,
) -> None:
    with box.popen("echo x > $TMPDIR/file; echo $TMPDIR; read x", stdin=PIPE, stdout=PIPE) as one:
        place = line(one.stdout).decode().strip()
        assert box.run("echo $TMPDIR").out.strip() != place
        assert os.listdir(place) == ["file"]
    assert os.listdir(place) == []


def test_threads_may_wait_ask_and_kill_at_the_same_time(box: sandbox.Sandbox) -> None:
    for _ in range(20):
        process = box.popen(["sleep", "1000"])
        with ThreadPoolExecutor(5) as pool:
            waiters = [pool.submit(process.wait, 20) for _ in range(3)]
            asked = pool.submit(process.poll)
            process.kill()
            results = {id(one.result()) for one in waiters}
            assert asked.result() is None or asked.result() == waiters[0].result()
        assert len(results) >= 1 and process.wait().signal == signal.SIGKILL
    fine(box)


def test_an_interrupt_ends_the_waiting_and_not_the_command(box: sandbox.Sandbox) -> None:
    with box.popen(["cat"], stdin=PIPE, stdout=PIPE) as process:
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            process.wait()
        timer.join()
        assert process.communicate(b"on", timeout=20)[0] == b"on"
        assert process.wait().ok


def test_a_hundred_leave_nothing_behind(box: sandbox.Sandbox, mark: str) -> None:
    def some() -> None:
        for turn in range(50):
            with box.popen("sleep 9 & read x; exit 3", stdin=PIPE, env={MARK: mark}) as one:
                if turn % 2:
                    one.communicate(b"\n", timeout=20)
            with box.popen(["sh", "-c", "exit 1"], pty=True) as two:
                if turn % 3:
                    two.wait(20)

    some()
    before = open_fds(), threading.active_count(), len(box._attendants)
    some()
    assert (open_fds(), threading.active_count(), len(box._attendants)) == before
    assert alive(mark) == []


def test_without_confinement_it_is_the_same(workspace: Path, mark: str) -> None:
    with sandbox.Sandbox(sandbox.full_access()) as box:
        command = "setsid sleep 1000 & stty size; read x; exit 6"
        with box.popen(command, pty=(5, 50), cwd=workspace, env={MARK: mark}) as process:
            expect(process, r"5 50\r\n")
            assert process.pty is not None
            process.pty.write(b"\r")
            assert process.wait(20).returncode == 6
            assert alive(mark) == []


USUAL = """
    import sys
    from sandbox import PIPE, Sandbox, workspace_write
    with Sandbox(workspace_write(sys.argv[1])) as box:
        with box.popen(["cat"], stdin=PIPE, stdout=PIPE, stderr=PIPE) as cat:
            cat.stdin.write(b"x")
            print(cat.communicate(), cat.wait().ok)
        with box.popen("echo hi", pty=True) as shell:
            print(shell.pty.read(), shell.wait().ok)
        box.popen("true").wait()
        box.popen("sleep 9")
"""
SAID = "(b'x', b'') True\nb'hi\\r\\n' True\n"


def test_the_usual_ways_warn_of_nothing(workspace: Path) -> None:
    done = script(USUAL, workspace)
    assert (done.returncode, done.stdout, done.stderr) == (0, SAID, "")


def test_an_ordinary_user_has_them_too(as_user: AsUser) -> None:
    place = as_user.home / "workspace"
    place.mkdir()
    as_user.give(place)
    done = as_user(textwrap.dedent(USUAL), str(place), env={"PYTHONWARNINGS": "ignore"})
    assert (done.returncode, done.stdout, done.stderr) == (0, SAID, "")
