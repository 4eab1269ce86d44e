"""Commands on macOS, with a stand-in for `sandbox-exec` that confines nothing: all but the kernel.

What profiles mean is in `test_seatbelt`; what a real Mac says is for `make test-macos`.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import seatbeltkit as kit

import sandbox
from sandbox import Limits, aio, batch, children, live, paths, pool, towers, workspace_write
from sandbox.backends import choose as choosing
from sandbox.backends import keeper, macos_seat, scratch, settings
from sandbox.backends.apple import Marks, execute
from sandbox.backends.base import Question
from sandbox.backends.captured import Kept
from sandbox.backends.macos import MacBackend
from sandbox.backends.seatbelt import SANDBOX_EXEC, compile_profile
from sandbox.cli.seatbelt import denials_in

REAL = sys.platform == "darwin"
pytestmark = pytest.mark.filterwarnings("ignore::sandbox.SandboxWeakened")


@pytest.fixture
def backend(place: Path) -> MacBackend:
    """On a Mac the real program, elsewhere the stand-in."""
    return MacBackend() if REAL else MacBackend(kit.stand_in(place))


@pytest.fixture
def box(backend: MacBackend, workspace: Path) -> Iterator[sandbox.Sandbox]:
    with sandbox.Sandbox(workspace_write(), workspace=workspace, backend=backend) as made:
        yield made


@pytest.fixture
def chosen(backend: MacBackend, monkeypatch: pytest.MonkeyPatch) -> MacBackend:
    """All faces run on it."""
    for module in (towers, batch, children, live, pool):
        monkeypatch.setattr(module, "choose", lambda: backend)
    return backend


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until(condition: Any, seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


# One command


def test_a_command_has_its_place_marks_and_a_directory_of_its_own(
    box: sandbox.Sandbox, workspace: Path
) -> None:
    script = 'pwd -P; echo "$SANDBOX $SANDBOX_NETWORK_DISABLED"; touch "$TMPDIR/x"; echo "$TMPDIR"'
    one, other = box.run(script), box.run('ls "$TMPDIR"; echo "$TMPDIR"')
    place, marks, tmp = one.out.splitlines()
    assert (place, marks) == (str(workspace), "seatbelt 1")
    assert tmp.startswith(f"{box.resolved.tmp}/") and other.out.splitlines() == [tmp]
    assert box.isolation == "seatbelt" and box.enforcement.isolation == "seatbelt"


def test_with_the_network_it_is_not_marked_as_without(backend: MacBackend, workspace: Path) -> None:
    policy = workspace_write(network="full")
    with sandbox.Sandbox(policy, workspace=workspace, backend=backend) as box:
        assert box.run('echo "${SANDBOX_NETWORK_DISABLED-none}"').out == "none\n"


@pytest.mark.skipif(REAL, reason="the stand-in tells what it was given")
def test_variables_of_the_loader_are_set_inside(place: Path, workspace: Path) -> None:
    """The loader takes them away from programs of Apple's, and ``sandbox-exec`` is one."""
    (workspace / "a=b").write_text("#!/bin/sh\n")
    (workspace / "a=b").chmod(0o755)
    first = "print([name for name in os.environ if name[:5] == 'DYLD_'], flush=True)"
    names = {"DYLD_LIBRARY_PATH": "/a b=c", "OTHER": "x"}
    script = 'echo "$DYLD_LIBRARY_PATH $OTHER"'
    backend = MacBackend(kit.stand_in(place, first))
    with sandbox.Sandbox(workspace_write(), workspace=workspace, backend=backend) as box:
        assert box.run(script, env=names).out.splitlines() == ["[]", "/a b=c x"]
        with pytest.raises(sandbox.StartError):
            box.run([str(workspace / "a=b")], env=names)
        assert box.run([str(workspace / "a=b")]).ok


def test_words_input_and_output_arrive_as_they_are(box: sandbox.Sandbox) -> None:
    data = bytes(range(256)) * 1000
    assert box.run(["cat"], input=data).stdout == data
    odd = os.fsdecode(b"-D=\xff \n'\")")
    assert box.run(["printf", "%s", odd]).stdout == os.fsencode(odd)
    both = box.run("echo out; echo err >&2; exit 3")
    assert (both.out, both.err, both.returncode) == ("out\n", "err\n", 3)
    assert box.run("kill -9 $$").signal == signal.SIGKILL


def test_a_command_has_three_descriptors_and_no_more(
    backend: MacBackend, workspace: Path, outside: Path
) -> None:
    code = (
        "import os\n"
        "def is_open(fd):\n"
        "    try:\n        os.fstat(fd)\n"
        "    except OSError:\n        return False\n"
        "    return True\n"
        "print([fd for fd in range(200) if is_open(fd)])\n"
    )
    with open(outside / "file") as held:
        os.set_inheritable(held.fileno(), True)
        with sandbox.Sandbox(workspace_write(), workspace=workspace, backend=backend) as box:
            found = box.run([sys.executable, "-c", code], input=b"x")
    assert found.out == "[0, 1, 2]\n"


def test_output_beyond_its_limit_is_kept_at_both_ends(box: sandbox.Sandbox) -> None:
    found = box.run("seq 1 50000", limits=Limits(output=1000))
    whole = "".join(f"{number}\n" for number in range(1, 50001)).encode()
    assert found.stdout == whole[:500] + whole[-500:] and found.stdout_cut == 500
    assert found.stdout_truncated == len(whole) - 1000


@pytest.mark.parametrize("cap", [0, 1, 2, 7, 10, 11, 40])
def test_what_is_kept_of_an_output_is_its_beginning_and_its_end(cap: int) -> None:
    data = bytes(range(40))
    for step in (1, 3, 11, 40):
        kept = Kept(cap)
        for at in range(0, 40, step):
            kept.add(data[at : at + step])
        found, head = kept.result()
        assert kept.total == 40 and len(found) == min(cap, 40)
        assert found == data[:head] + data[40 - (len(found) - head) :]


def test_the_time_limit_ends_the_tree_and_what_was_printed_is_kept(box: sandbox.Sandbox) -> None:
    found = box.run("echo begun; sleep 600 & echo $!; sleep 600", timeout=3)
    begun, pid = found.out.split()
    assert found.timed_out and begun == "begun" and found.exit_status == 124
    assert until(lambda: not lives(int(pid)))


def test_what_is_left_in_the_background_ends_with_the_command(box: sandbox.Sandbox) -> None:
    found = box.run("sleep 600 >/dev/null 2>&1 & echo $!")
    assert found.swept == 1 and until(lambda: not lives(int(found.out)))


def test_a_child_in_a_session_of_its_own_that_was_seen_ends_too(box: sandbox.Sandbox) -> None:
    code = (
        "import os, time, sys\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); os.close(1); os.close(2); time.sleep(600)\n"
        "time.sleep(0.8)\n"
        "print(os.getpid())\n"
    )
    found = box.run([sys.executable, "-c", code])
    assert found.ok and found.swept == 1


# Of each process one fork and its end; bounded, should nobody end it.
CHAIN = """
import os, time
end = time.monotonic() + {seconds}
if os.fork() == 0:
    os.close(0); os.close(1); os.close(2)
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
        {step}
    os._exit(0)
"""


def test_what_forks_and_ends_at_once_is_ended(box: sandbox.Sandbox) -> None:
    process = box.popen([sys.executable, "-c", CHAIN.format(seconds=8, step="pass")])
    assert process.wait(60).ok
    for _ in range(10):
        time.sleep(0.02)
        assert not [one for one in psutil.pids() if session_of(one) == process.pid and lives(one)]


def session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


class Others:
    """As psutil: processes that were there when they were listed, and are not when asked."""

    Error = psutil.Error
    STATUS_ZOMBIE = psutil.STATUS_ZOMBIE

    def __init__(self, looks: list[list[int]]) -> None:
        self.looks = looks
        self.count = 0

    def pids(self) -> list[int]:
        self.count += 1
        return self.looks[min(self.count, len(self.looks)) - 1]


def swept_by(others: Any, monkeypatch: pytest.MonkeyPatch, **times: float) -> tuple[int, int]:
    for name, seconds in times.items():
        monkeypatch.setattr(keeper, name, seconds)
    asked = {"mark": "w", "session": True, "memory": 0, "waits": False, "timeout": None}
    command = keeper.Command(1 << 30, asked)
    command.status = 0
    kept: Any = keeper.Keeper.__new__(keeper.Keeper)
    kept._psutil, kept._marks = others, Marks()
    found: tuple[int, int] = kept._sweep(command)
    return found


def test_a_process_that_vanished_is_no_end_and_a_dead_one_that_stays_listed_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = 1 << 29  # no pid of this system
    others = Others([[gone], [gone + 1], [], [gone + 2], []])
    assert swept_by(others, monkeypatch) == (0, 0) and others.count == 4 + 5
    zombie = Others([[gone]])
    assert swept_by(zombie, monkeypatch) == (0, 0) and zombie.count == 1 + 5


def test_what_is_met_again_and_again_is_said_to_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fleeting(Others):
        def Process(self, pid: int) -> Any:
            raise psutil.NoSuchProcess(pid)

    pids = [[1 << 28 | count] for count in range(1000)]
    monkeypatch.setattr(keeper.os, "getsid", lambda pid: 1 << 30 if pid else 1)
    monkeypatch.setattr(keeper.os, "getpgid", lambda pid: pid)
    swept, left = swept_by(Fleeting(pids), monkeypatch, _SWEEPING=0.7)
    assert (swept, left) == (0, 1)
    monkeypatch.setattr(keeper.Keeper, "_is_member", lambda self, command, pid: False)
    assert swept_by(Fleeting(pids), monkeypatch) == (0, 0)  # those of others alone


def test_output_that_others_hold_is_drained_for_a_moment(box: sandbox.Sandbox) -> None:
    began = time.monotonic()
    found = box.run("(sleep 0.3; echo late) & (sleep 600) & echo early")
    assert found.out == "early\nlate\n" and found.swept >= 1
    assert time.monotonic() - began < 30


def test_limits_are_the_kernels_and_memory_is_looked_at(box: sandbox.Sandbox) -> None:
    limits = Limits(open_files=64, cpu=7, core=0)
    assert box.run("ulimit -n; ulimit -t", limits=limits).out.split() == ["64", "7"]
    code = "x = bytearray(300 << 20); import time; time.sleep(600)"
    found = box.run([sys.executable, "-c", code], limits=Limits(memory=64 << 20, wall=60))
    assert found.memory_exceeded and found.exit_status == 137
    parts = [part.part for part in found.enforcement.weaker]
    assert "memory" in parts and "memory" not in [one.part for one in box.enforcement.weaker]


def test_a_program_that_is_missing_or_none_is_told_before_anything_runs(
    box: sandbox.Sandbox, workspace: Path
) -> None:
    with pytest.raises(sandbox.CommandNotFound):
        box.run(["no-such-program-here"])
    (workspace / "plain").write_text("text")
    with pytest.raises(sandbox.CommandNotExecutable):
        box.run([str(workspace / "plain")])
    with pytest.raises(sandbox.WorkingDirectoryError):
        box.run(["true"], cwd=workspace / "missing")


def test_a_program_that_may_not_be_read_is_not_executed(
    backend: MacBackend, workspace: Path, outside: Path
) -> None:
    script = outside / "script"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    for policy, runs in ((workspace_write(), True), (workspace_write(deny=[outside]), False)):
        with sandbox.Sandbox(policy, workspace=workspace, backend=backend) as box:
            if runs:
                assert box.run([str(script)]).out == "ran\n"
            else:
                with pytest.raises(sandbox.CommandNotExecutable, match="policy"):
                    box.run([str(script)])


def test_without_confinement_nothing_stands_between(workspace: Path) -> None:
    backend = MacBackend("/no/such/program")
    with sandbox.Sandbox(sandbox.full_access(), backend=backend) as box:
        assert box.run('echo "${SANDBOX-none}"').out == "none\n" and box.isolation == "none"


# What sandbox-exec itself says

NESTED = 'sys.stderr.write("sandbox-exec: sandbox_apply: Operation not permitted\\n"); sys.exit(71)'
SYNTAX = 'sys.stderr.write("sandbox-exec: unbound variable: extension\\n"); sys.exit(65)'
LATER = f"""
if os.path.exists(__file__ + ".nested"):
    {NESTED}
"""


@pytest.mark.skipif(REAL, reason="the stand-in fails on order")
@pytest.mark.parametrize(
    ("first", "cause"), [(NESTED, "is confined already"), (SYNTAX, "unbound variable")]
)
def test_a_profile_that_cannot_be_had_stops_everything(
    first: str, cause: str, place: Path, workspace: Path
) -> None:
    backend = MacBackend(kit.stand_in(place, first))
    with pytest.raises(sandbox.Unenforceable, match=cause):
        sandbox.Sandbox(workspace_write(), workspace=workspace, backend=backend)


def test_71_of_the_command_is_its_own_whatever_it_prints(box: sandbox.Sandbox) -> None:
    """Case 162."""
    words = "sandbox-exec: sandbox_apply: Operation not permitted"
    found = box.run(f"echo '{words}' >&2; exit 71")
    assert found.returncode == 71 and words in found.err


@pytest.mark.skipif(REAL, reason="the stand-in fails on order")
def test_71_of_sandbox_exec_is_no_result_of_the_command(place: Path, workspace: Path) -> None:
    program = kit.stand_in(place, LATER)
    backend = MacBackend(program)
    with sandbox.Sandbox(workspace_write(), workspace=workspace, backend=backend) as box:
        assert box.run("echo one").out == "one\n"
        Path(f"{program}.nested").touch()
        with pytest.raises(sandbox.StartError, match="seatbelt"):
            box.run("echo two")


def test_the_program_is_apples_and_no_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setenv("PATH", str(place))
    kit.stand_in(place)
    assert MacBackend()._program == SANDBOX_EXEC == "/usr/bin/sandbox-exec"
    if not REAL:
        with pytest.raises(sandbox.Unenforceable, match="is not there"):
            MacBackend().isolations(workspace_write())


# Who is killed


CALLER = """
import sys, sandbox, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, {tests!r})
from sandbox.backends.macos import MacBackend
backend = MacBackend({program!r})
box = sandbox.Sandbox(sandbox.workspace_write(), workspace={workspace!r}, backend=backend)
import os
if {forks} and os.fork() == 0:
    import time
    time.sleep(600)
box.run("echo $$ > pid; sleep 600", timeout=None)
"""


@pytest.mark.parametrize("forks", [False, True])
def test_a_command_ends_with_a_caller_that_is_killed(
    forks: bool, backend: MacBackend, workspace: Path, place: Path
) -> None:
    """Also where a forked copy of the caller goes on, which has all of its fds."""
    home = str(Path(__file__).parent)
    values = {"tests": home, "workspace": str(workspace), "program": backend._program}
    program = CALLER.format(**values, forks=forks)
    caller = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    pid = workspace / "pid"
    try:
        assert until(lambda: pid.exists() and pid.read_text().strip())
        command = int(pid.read_text())
        assert lives(command)
        os.kill(caller.pid, signal.SIGKILL)
        assert until(lambda: not lives(command))
    finally:
        os.killpg(caller.pid, signal.SIGKILL)
        caller.wait()


def test_a_keeper_that_is_killed_is_a_lost_sandbox_and_its_command_ends(
    box: sandbox.Sandbox, workspace: Path
) -> None:
    process = box.popen("echo $$ > pid; exec sleep 600", timeout=None)
    pid = workspace / "pid"
    assert until(lambda: pid.exists() and pid.read_text().strip())
    keeper = psutil.Process(process.pid).ppid()
    os.kill(keeper, signal.SIGKILL)
    with pytest.raises(sandbox.SandboxLost):
        process.wait(60)
    assert until(lambda: not lives(process.pid))
    assert box.run("echo again").out == "again\n"


def test_a_keeper_that_was_killed_while_it_was_idle_is_replaced(box: sandbox.Sandbox) -> None:
    keeper = int(box.run("echo $PPID").out)
    os.kill(keeper, signal.SIGKILL)
    assert until(lambda: not lives(keeper))
    assert box.run("echo again").out == "again\n"


def test_an_interrupt_ends_the_command_and_then_the_caller_goes_on(
    box: sandbox.Sandbox, workspace: Path
) -> None:
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        box.run("echo $$ > pid; sleep 600")
    assert until(lambda: not lives(int((workspace / "pid").read_text())))
    assert box.run("echo again").out == "again\n"


def test_a_closed_sandbox_leaves_no_process_and_no_directory(
    backend: MacBackend, workspace: Path
) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    box = sandbox.Sandbox(workspace_write(), workspace=workspace, backend=backend)
    tmp = box.resolved.tmp
    process = box.popen("sleep 600", timeout=None)
    box.close()
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    assert not lives(process.pid) and not os.path.exists(tmp)


def test_a_sandbox_that_is_closed_ends_what_another_thread_runs_in_it(
    backend: MacBackend, workspace: Path
) -> None:
    box = sandbox.Sandbox(workspace_write(), workspace=workspace, backend=backend)
    raised: list[Exception] = []

    def wait() -> None:
        try:
            box.run("echo $$ > pid; sleep 600", timeout=None)
        except sandbox.SandboxLost as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    pid = workspace / "pid"
    assert until(lambda: pid.exists() and pid.read_text().strip())
    box.close()
    thread.join(60)
    assert len(raised) == 1 and "closed" in str(raised[0])
    assert not lives(int(pid.read_text()))


# Faces


def test_popen_has_pipes_signals_and_a_terminal(box: sandbox.Sandbox) -> None:
    with box.popen(["cat"], stdin=sandbox.PIPE, stdout=sandbox.PIPE) as process:
        assert process.communicate(b"said") == (b"said", None)
        assert process.wait().ok
    script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done"
    with box.popen(script, stdout=sandbox.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        assert process.poll() is None
        process.terminate()
        assert process.wait(60).returncode == 9
    with box.popen("test -t 0 && stty size", pty=(7, 33)) as process:
        assert process.pty is not None and process.pty.readall().split() == [b"7", b"33"]
        assert process.wait(60).ok


def test_run_keeps_a_sandbox_for_the_next_call(chosen: MacBackend, workspace: Path) -> None:
    shelf = sandbox.shared.Shelf()
    slots = []
    for _ in range(2):
        slot = shelf.borrow(workspace_write(), str(workspace))
        assert slot.sandbox.run("echo x").out == "x\n"
        slots.append(slot)
        shelf.give_back(slot)
    shelf.close()
    assert slots[0] is slots[1]


def test_many_run_at_the_same_time(chosen: MacBackend, workspace: Path) -> None:
    began = time.monotonic()
    words = [f"sleep 0.5; echo {number}" for number in range(6)]
    found = list(sandbox.run_many(words, concurrency=6, workspace=workspace, ordered=True))
    assert [done.result.out for done in found if done.result] == [f"{n}\n" for n in range(6)]
    assert time.monotonic() - began < 60
    failed = list(sandbox.run_many([["no-such-program"]], workspace=workspace))
    assert isinstance(failed[0].error, sandbox.CommandNotFound)


def test_each_of_many_workspaces_has_a_sandbox_that_sees_no_other(
    chosen: MacBackend, place: Path
) -> None:
    for name in ("one", "two"):
        (place / "many" / name).mkdir(parents=True)
    commands = [sandbox.Command("pwd -P", str(place / "many" / name)) for name in ("one", "two")]
    found = list(sandbox.run_many(commands, workspaces=place / "many", ordered=True))
    assert [Path(done.result.out.strip()).name for done in found if done.result] == ["one", "two"]


def test_a_pool_takes_commands_from_threads(chosen: MacBackend, workspace: Path) -> None:
    with pool.Pool(concurrency=2, workspace=workspace) as executor:
        futures = [executor.submit(f"echo {number}") for number in range(4)]
        assert [future.result().out for future in futures] == ["0\n", "1\n", "2\n", "3\n"]


def test_commands_are_awaited_and_end_when_the_waiting_is_cancelled(
    chosen: MacBackend, workspace: Path
) -> None:
    async def main() -> None:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as box:
            one, other = await asyncio.gather(box.run("echo one"), box.run("echo other"))
            assert (one.out, other.out) == ("one\n", "other\n")
            task = asyncio.create_task(box.run("echo $$ > pid; sleep 600"))
            pid = workspace / "pid"
            while not (pid.exists() and pid.read_text().strip()):
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not lives(int(pid.read_text()))
            process = await box.popen(["cat"], stdin=aio.PIPE, stdout=aio.PIPE)
            assert process.stdin is not None and process.stdout is not None
            await process.stdin.write(b"awaited")
            process.stdin.close()
            assert await process.stdout.read_all() == b"awaited"
            assert (await process.wait()).ok

    asyncio.run(main())


def test_what_is_not_to_be_had_is_refused_by_its_name(chosen: MacBackend, workspace: Path) -> None:
    from sandbox import subprocess as dropin

    with pytest.raises(sandbox.Unenforceable, match=r"sandbox\.subprocess"):
        dropin.run(["true"], policy=workspace_write(workspace))
    with sandbox.Sandbox(workspace_write(), workspace=workspace) as box:
        with pytest.raises(sandbox.Unenforceable, match="sandbox="):
            dropin.run(["true"], sandbox=box)
        with pytest.raises(sandbox.Unenforceable, match="files of a sandbox"):
            box.read_file("x")
    with pytest.raises(sandbox.Unenforceable, match="workspaces="):
        sandbox.Sandbox(workspace_write(), workspaces=workspace.parent)
    for name in ("landlock", "namespaces"):
        with pytest.raises(sandbox.Unenforceable, match=name):
            sandbox.Sandbox(workspace_write().with_require(name), workspace=workspace)  # type: ignore[arg-type]
    filtered = sandbox.SandboxPolicy(extra_filter=b"\0" * 8)
    with pytest.raises(sandbox.Unenforceable, match="extra_filter"):
        sandbox.Sandbox(filtered)


def test_what_is_enforced_less_is_said(backend: MacBackend, workspace: Path) -> None:
    policy = workspace_write(network="loopback").with_limits(Limits(processes=9))
    with sandbox.Sandbox(policy, workspace=workspace, backend=backend) as box:
        parts = {part.part for part in box.enforcement.weaker}
    assert parts >= {"tree-kill", "parent-death", "tmp", "terminal", "loopback", "processes"}


def test_a_setting_of_home_is_writable_where_it_is_granted_by_name(
    backend: MacBackend, workspace: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = place / "home"
    (home / ".cache").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    policy = workspace_write(write=[home, home / ".cache"])
    with sandbox.Sandbox(policy, workspace=workspace, backend=backend) as box:
        ask = kit.asker(box.resolved)
    assert ask("file-write-create", f"{home}/.cache/x") and ask("file-write-create", f"{home}/x")
    assert not ask("file-write-create", f"{home}/.profile")


def test_commands_of_a_sandbox_have_nothing_of_each_others_temporary_files(
    box: sandbox.Sandbox,
) -> None:
    confinement: Any = box._boundary.current()
    one, other = confinement.seat(Limits()), confinement.seat(Limits())
    ask = kit.asks(one._profile)
    assert ask("file-write-create", f"{one.tmp}/x") and ask("file-read-data", f"{one.tmp}/x")
    for path in (f"{other.tmp}/x", box.resolved.tmp, f"{box.resolved.tmp}/x"):
        assert not ask("file-write-create", path) and not ask("file-read-data", path), path
    assert not ask("file-write-unlink", one.tmp, directory=True)
    one.leave()
    other.leave()


def test_a_denied_pattern_counts_for_files_that_come_later(
    backend: MacBackend, workspace: Path
) -> None:
    policy = workspace_write(deny=[f"{workspace}/**/*.pem"])
    with sandbox.Sandbox(policy, workspace=workspace, backend=backend) as box:
        ask = kit.asker(box.resolved)
    assert not ask("file-read-data", f"{workspace}/new/key.pem")
    assert ask("file-read-data", f"{workspace}/new/key.txt")
    assert not ask("file-write-unlink", f"{workspace}/new", directory=True)
    assert ask("file-write-unlink", f"{workspace}/file")


def test_a_denied_place_that_becomes_a_link_makes_the_profile_anew(
    backend: MacBackend, workspace: Path, outside: Path, place: Path
) -> None:
    secret = place / "secret"
    secret.mkdir()
    policy = workspace_write(deny=[secret])
    with sandbox.Sandbox(policy, workspace=workspace, backend=backend) as box:
        assert kit.asker(box.resolved)("file-read-data", f"{outside}/file")
        secret.rmdir()
        secret.symlink_to(outside)
        assert box.run("true").ok
        confinement: Any = box._boundary.current()
        assert not kit.asker(confinement.resolved)("file-read-data", f"{outside}/file")


def test_a_link_above_a_denied_place_that_was_missing_makes_the_profile_anew(
    backend: MacBackend, workspace: Path, outside: Path
) -> None:
    policy = workspace_write(deny=[workspace / "conf" / "in" / "file"])
    with sandbox.Sandbox(policy, workspace=workspace, backend=backend) as box:
        assert kit.asker(box.resolved)("file-read-data", f"{outside}/file")
        (workspace / "conf").mkdir()
        assert box.run(["ln", "-s", str(outside), "conf/in"]).ok
        assert box.run("true").ok
        confinement: Any = box._boundary.current()
        assert not kit.asker(confinement.resolved)("file-read-data", f"{outside}/file")


@pytest.mark.skipif(REAL, reason="the kernel's answer is a stand-in")
def test_a_path_is_followed_to_the_name_that_the_file_system_has(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Denied as `secret`, it is `Secret` to the kernel and so to the rules."""
    (place / "secret").mkdir()
    (place / "secret" / "file").touch()
    plain = fcntl.fcntl

    def told(fd: int, command: int, argument: Any = 0) -> Any:
        if command != 50:
            return plain(fd, command, argument)
        name = os.readlink(f"/dev/fd/{fd}").replace("secret", "Secret")
        return os.fsencode(name).ljust(len(argument), b"\0")

    real = os.path.realpath(place)
    assert paths.follow(f"{real}/secret/new/er")[0] == f"{real}/secret/new/er"
    monkeypatch.setattr(paths, "_GETPATH", 50)
    monkeypatch.setattr(fcntl, "fcntl", told)
    for name in ("", "/file", "/new/er"):
        assert paths.follow(f"{real}/secret{name}")[0] == f"{real}/Secret{name}"
    assert paths.follow(f"{real}/secret/file", known={f"{real}/secret"})[0].endswith("Secret/file")
    os.link(place / "secret" / "file", place / "secret" / "secret")
    assert paths.follow(f"{real}/secret/secret")[0] == f"{real}/Secret/secret"
    assert paths.follow("/")[0] == "/"


def test_a_directory_that_cannot_be_emptied_is_no_other_commands(
    box: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``chflags uchg``: what a command left, the next would take for its own."""
    with monkeypatch.context() as patched:
        patched.setattr(macos_seat, "empty", lambda path: None)
        first = box.run('touch "$TMPDIR/left"; echo "$TMPDIR"').out
    second = box.run('ls "$TMPDIR"; echo "$TMPDIR"').out
    assert len(second.splitlines()) == 1 and second != first
    assert box.run('echo "$TMPDIR"').out == second


def test_flags_of_macos_are_taken_before_anything_is_removed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "file").touch()
    taken = []
    plain = os.stat

    def flagged(path: Any, **more: Any) -> Any:
        found = plain(path, **more)
        mode = found.st_mode
        return types.SimpleNamespace(st_mode=mode, st_flags=2) if path == "file" else found

    monkeypatch.setattr(os, "stat", flagged)
    monkeypatch.setattr(
        scratch, "_unflag", lambda name, parent: taken.append((name, (place / name).exists()))
    )
    scratch.empty(str(place))
    assert taken == [("file", True)] and not (place / "file").exists()


# What keeps commands, and is not confined


@pytest.fixture
def python(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The prefix of a Python in a workspace."""
    prefix = workspace / "env"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python3.11").touch()
    (workspace / "python").symlink_to("env/bin/python3.11")
    monkeypatch.setattr(sys, "base_prefix", str(prefix))
    monkeypatch.setattr(sys, "base_exec_prefix", str(prefix))
    monkeypatch.setattr(sys, "_base_executable", str(workspace / "python"))
    return prefix


def test_nothing_of_pythons_prefix_is_writable_and_a_profile_that_lets_it_is_seen(
    python: Path, workspace: Path
) -> None:
    assert settings.interpreter() == f"{python}/bin/python3.11"
    table = {"/": sandbox.Access.READ, str(workspace): sandbox.Access.WRITE}
    right = compile_profile(kit.settled(table), (), settings.own_programs())
    wrong = kit.without(right, lambda word, name, value: name.startswith("OURS"))
    places = ("lib/python311.zip", "pyvenv.cfg", "bin/pyvenv.cfg", "lib/libpython3.11.dylib")
    beside = (workspace / "python", workspace / "pyvenv.cfg")  # as it was named
    for path in (*(python / place for place in places), *beside):
        assert not kit.asks(right)("file-write-create", str(path)), path
        assert kit.asks(wrong)("file-write-create", str(path)), path
    assert not kit.asks(right)("file-write-unlink", str(python), directory=True)
    assert kit.asks(right)("file-write-create", f"{workspace}/other")


@pytest.mark.parametrize("inside", ["", "lib"])
def test_a_writable_directory_in_pythons_prefix_is_refused(
    inside: str, python: Path, workspace: Path
) -> None:
    (python / "lib").mkdir()
    for write, refused in ((python / inside, True), (workspace, False)):
        policy = workspace_write(write=[write])
        question = Question(policy, str(workspace), "/", "", (), str(workspace))
        if not refused:
            settings.resolve_seatbelt(question)
            continue
        with pytest.raises(sandbox.Unenforceable, match=f"writable directory.*{python}"):
            settings.resolve_seatbelt(question)


def test_a_keeper_takes_nothing_but_psutil_from_where_psutil_is(place: Path) -> None:
    """``subprocess`` of the standard library tries ``msvcrt``, which is nowhere."""
    (place / "psutil").mkdir()
    (place / "psutil" / "__init__.py").write_text("import subprocess, socket, pickle, copy\n")
    for name in ("msvcrt", "_winapi", "org"):
        (place / f"{name}.py").write_text("print('planted', flush=True)\n")
    package = os.path.dirname(os.path.abspath(sandbox.__file__))
    program = keeper.BOOT.replace("import main", "import _psutil").replace(
        "main(sys.argv[2:])", "print(_psutil(sys.argv[2]).__file__)"
    )
    words = [sys.executable, "-I", "-S", "-c", program, package, str(place)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{place}/psutil/__init__.py\n", "")


# Refusals in words


@pytest.mark.parametrize(
    ("line", "kind", "what"),
    [
        ("touch: {w}/.git/x: Operation not permitted", "protected", "{w}/.git/x"),
        ("mkdir: {w}/.claude: Operation not permitted", "protected", "{w}/.claude"),
        ("touch: {o}/new: Operation not permitted", "write", "{o}/new"),
        ("cat: {h}/.ssh/id: Operation not permitted", "read", "{h}/.ssh/id"),
        ("curl: (6) Could not resolve host: example.com", "network", "example.com"),
    ],
)
def test_what_seatbelt_refuses_is_known_by_its_errno(
    line: str,
    kind: str,
    what: str,
    backend: MacBackend,
    workspace: Path,
    outside: Path,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = place / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    names = {"w": str(workspace), "o": str(outside), "h": str(home)}
    with sandbox.Sandbox(workspace_write(), workspace=workspace, backend=backend) as box:
        found = box.run(["sh", "-c", f"echo '{line.format(**names)}' >&2; exit 1"])
    assert [(one.kind, one.what) for one in found.denials] == [(kind, what.format(**names))]
    assert not found.denials[0].certain


# The command line


def sandbox_command(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sandbox", *words]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env={**os.environ, **env}
    )


def test_debug_seatbelt_shows_the_profile_its_parameters_and_the_command_line(
    workspace: Path, outside: Path
) -> None:
    done = sandbox_command("debug", "seatbelt", "--deny", str(outside), cwd=workspace)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("(version 1)\n") and "(deny default)" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("; WRITE_")]
    assert str(workspace) in [row[2] for row in rows]
    assert "/usr/bin/sandbox-exec -p" in done.stdout and "; tree-kill: " in done.stdout
    text = sandbox_command("debug", "seatbelt", "--json", "--full-access", cwd=workspace)
    assert json.loads(text.stdout)["profile"] == ""
    document = json.loads(sandbox_command("debug", "seatbelt", "--json", cwd=workspace).stdout)
    assert document["schema"] == "sandbox-seatbelt/1"
    assert document["argv"][0] == SANDBOX_EXEC and document["argv"][-1] == "--"


def test_debug_seatbelt_answers_with_the_line_that_decides(workspace: Path) -> None:
    asked = [("file-write-create", f"{workspace}/x"), ("file-write-create", f"{workspace}/.git")]
    asked += [("system-fsctl", "/x"), ("nvram-get", "/x")]
    words = [word for pair in asked for word in ("--ask", *pair)]
    done = sandbox_command("debug", "seatbelt", *words, cwd=workspace)
    one, other, unknown, by_name = done.stdout.splitlines()
    assert unknown.startswith("not known: system-fsctl /x: no line names this operation")
    assert by_name.startswith("denied: nvram-get /x: line ")
    number = int(one.partition("line ")[2].partition(":")[0])
    profile = sandbox_command("debug", "seatbelt", cwd=workspace).stdout.splitlines()
    assert one.startswith(f"allowed: file-write-create {workspace}/x: line ")
    assert profile[number - 1].startswith("(allow file-write*")
    assert other == f"denied: file-write-create {workspace}/.git: no line allows it: (deny default)"


@pytest.mark.skipif(REAL, reason="a Mac runs it")
def test_debug_seatbelt_runs_a_command_on_a_mac_alone(workspace: Path) -> None:
    done = sandbox_command("debug", "seatbelt", "--", "true", cwd=workspace)
    assert done.returncode == 125 and "run it on a Mac" in done.stderr


def test_denials_are_those_of_the_commands_processes_each_once() -> None:
    said = [
        "Filtering the log data using ...",
        '{"eventMessage":"Sandbox: touch(41) deny(1) file-write-create \\/etc\\/x"}',
        '{"eventMessage":"Sandbox: touch(41) deny(1) file-write-create \\/etc\\/x"}',
        '{"eventMessage":"Sandbox: mds(9) deny(1) mach-lookup com.apple.x"}',
        '{"eventMessage":"1 duplicate report for Sandbox: cat(42) deny(1) file-read-data \\/s"}',
        '{"eventMessage":null}',
        "[]",
    ]
    found = denials_in(said, {41, 42})
    assert found == [("touch", "file-write-create /etc/x"), ("cat", "file-read-data /s")]


def test_commands_about_the_core_say_that_there_is_none() -> None:
    done = on_darwin("""
        from sandbox.cli.main import main
        for words in (["compile", "-o", "x"], ["debug", "landlock"], ["debug", "seccomp"]):
            print(main(words))
        print(main(["debug", "--help"]))
    """)
    assert done.stdout.split()[:3] == ["125", "125", "125"] and "seatbelt" in done.stdout
    lines = done.stderr.splitlines()
    assert len(lines) == 3 and all("which Linux alone has" in one for one in lines), done.stderr


# What a Mac is asked and told, by a library that is none


class Library:
    """Processes 5 and 6 run under the profile with the mark `w`, 7 under none, 8 under another."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.sandbox_check = self.check  # as a function of ctypes has it: an attribute is set

    class check:
        argtypes: Any = None

        def __new__(cls, pid: int, operation: bytes, kind: int, name: Any) -> int:  # type: ignore[misc]
            assert (operation, kind) == (b"mach-lookup", 0x40000002)
            allowed = {5: [b"w"], 6: [b"w"], 7: [b"w", b"w.not"], 8: []}[pid]
            return 0 if name.value in allowed else 1

    def responsibility_get_pid_responsible_for_pid(self, pid: int) -> int:
        return {9: 5}.get(pid, 1)

    def responsibility_spawnattrs_setdisclaim(self, attributes: Any, yes: int) -> int:
        self.calls.append(("disclaim", yes))
        return 0

    def posix_spawnattr_init(self, attributes: Any) -> int:
        self.calls.append(("init", None))
        return 0

    def posix_spawnattr_setflags(self, attributes: Any, flags: Any) -> int:
        self.calls.append(("flags", flags.value))
        return 0

    def posix_spawn(self, pid: None, path: bytes, *rest: Any) -> int:
        self.calls.append(("spawn", (path, list(rest[2]), list(rest[3]))))
        return errno.EACCES


def test_a_process_is_a_commands_by_the_mark_of_its_profile_or_by_who_is_responsible() -> None:
    marks = Marks(Library())
    assert (marks.known and not Marks().known) or REAL
    assert [pid for pid in (5, 6, 7, 8) if marks.has(pid, "w")] == [5, 6]
    assert not marks.has(5, "") and marks.is_responsible(5, 9) and not marks.is_responsible(5, 6)


def test_a_command_answers_for_what_it_starts() -> None:
    library = Library()
    with pytest.raises(PermissionError):
        execute([b"/p", b"a"], {b"N": b"v"}, library)
    assert library.calls == [
        ("init", None),
        ("flags", 0x40),
        ("disclaim", 1),
        ("spawn", (b"/p", [b"/p", b"a", None], [b"N=v", None])),
    ]


# A Mac without a compiled core

DARWIN = """
import os, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "_sandcore":
            raise ModuleNotFoundError("No module named '_sandcore'", name=name)
sys.meta_path.insert(0, Blocked())
sys.platform = "darwin"
for name in ("pipe2", "pidfd_open", "memfd_create", "O_PATH", "getresuid", "getresgid"):
    if hasattr(os, name):
        delattr(os, name)
{body}
"""


def on_darwin(body: str) -> subprocess.CompletedProcess[str]:
    program = DARWIN.format(body=textwrap.dedent(body))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_the_package_is_imported_and_chooses_seatbelt_without_the_core() -> None:
    done = on_darwin("""
        import types
        sys.modules["psutil"] = types.ModuleType("psutil")  # that of this machine is of Linux
        sys.modules["psutil"].__file__ = "/psutil/__init__.py"
        import sandbox, sandbox.aio, sandbox.subprocess, sandbox.pool
        import sandbox.cli.main, sandbox.cli.run, sandbox.cli.checkup, sandbox.cli.debug
        import sandbox.session.aio, sandbox.cli.exec, sandbox.cli.shell, sandbox.cli.log
        import sandbox.cli.trust
        from sandbox.backends.choose import choose
        print(type(choose()).__name__, "_sandcore" in sys.modules)
    """)
    assert (done.stderr, done.stdout) == ("", "MacBackend False\n")


def test_without_psutil_the_mend_is_named() -> None:
    done = on_darwin("""
        sys.modules["psutil"] = None
        import sandbox
        from sandbox.backends.choose import choose
        try:
            choose()
        except sandbox.Unavailable as error:
            print(error)
    """)
    assert "pip install psutil" in done.stdout


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(sandbox.Unavailable, match="Linux or macOS"):
        choosing.choose.__wrapped__()


def test_errno_names_are_of_execve(box: sandbox.Sandbox, workspace: Path) -> None:
    with pytest.raises(sandbox.StartError) as raised:
        box.run([str(workspace)])
    assert raised.value.errno == errno.EACCES


def test_a_command_in_the_callers_terminal_stays_in_his_session_and_group(
    box: sandbox.Sandbox, outside: Path
) -> None:
    code = "import os; print(os.getsid(0), os.getpgrp())"
    with open(outside / "said", "w+") as said:
        found = box.run([sys.executable, "-c", code], stdout=said.fileno(), terminal=True)
        said.seek(0)
        assert found.ok and said.read().split() == [str(os.getsid(0)), str(os.getpgrp())]
    own = box.run([sys.executable, "-c", code]).out.split()
    assert own[0] == own[1] != str(os.getsid(0))
    late = box.run("sleep 600 & sleep 600", terminal=True, timeout=1)
    assert late.timed_out and late.swept >= 1


def test_many_commands_leave_nothing_behind(backend: MacBackend, workspace: Path) -> None:
    def held() -> tuple[int, int]:
        return len(os.listdir("/dev/fd")), len(psutil.Process().children(recursive=True))

    before = held()
    with sandbox.Sandbox(workspace_write(), workspace=workspace, backend=backend) as box:
        box.run("true")
        during = held()
        for _ in range(10):
            assert box.run("echo x; exit 3", input=b"unread" * 100000).returncode == 3
        assert held() == during
    assert held() == before


LOG = """#!/bin/sh
echo "Filtering the log data using ..."
while ! test -s {workspace}/pid; do sleep 0.05; done
sleep 0.3
echo "{{\\"eventMessage\\":\\"Sandbox: sh($(cat {workspace}/pid)) deny(1) file-write-create /x\\"}}"
echo '{{"eventMessage":"Sandbox: other(1) deny(1) file-write-create /y"}}'
exec sleep 600
"""
DEBUG = """
import psutil, sys, warnings
warnings.simplefilter("ignore")
from sandbox import live, workspace_write
from sandbox.backends.macos import MacBackend
from sandbox.cli import seatbelt
live.choose = lambda: MacBackend({program!r})
seatbelt._LOG = {log!r}
sys.platform = "darwin"
sys.exit(seatbelt._run(workspace_write(), ["sh", "-c", "echo $$ > pid; sleep 1; exit 4"]))
"""


@pytest.mark.skipif(REAL, reason="the log is a stand-in too")
def test_debug_seatbelt_tells_what_the_log_says_of_the_command(
    workspace: Path, place: Path
) -> None:
    log = place / "log"
    log.write_text(LOG.format(workspace=workspace))
    log.chmod(0o755)
    program = DEBUG.format(program=kit.stand_in(place), log=str(log))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=workspace, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 4, done.stderr
    assert done.stderr.splitlines() == [
        "sandbox: denied by the profile, as the system's log has it: 1",
        "sandbox: sh: file-write-create /x",
    ]
