"""Many commands at a time: what comes of each, in which order, and that nothing is left of them."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path

import pytest
from lanekit import wait_for
from scenekit import open_fds
from spacekit import MARK, marked, new_mark

import sandbox
from sandbox import Command, InvalidArgument, Limits, Sandbox, run_many, workspace_write
from sandbox.pool import Pool

OTHER = {"LANG": "C.UTF-8"}


@pytest.fixture(params=["auto", "landlock"])
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test is for both."""
    monkeypatch.setenv("SANDBOX_ISOLATION", request.param)
    name: str = request.param
    return name


@pytest.fixture
def box(isolation: str, workspace: Path) -> Iterator[Sandbox]:
    with Sandbox(workspace_write(), workspace=workspace) as made:
        yield made


def fds() -> int:
    return len(open_fds())


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_results_come_in_the_order_of_the_commands(isolation: str, workspace: Path) -> None:
    commands = [f"sleep 0.0{9 - i % 10}; echo {i}" for i in range(40)]
    found = list(run_many(commands, workspace=workspace, concurrency=8))
    assert [done.index for done in found] == list(range(40))
    assert [done.command for done in found] == commands
    assert [done.result.out for done in found if done.result] == [f"{i}\n" for i in range(40)]


def test_or_as_they_end(box: Sandbox) -> None:
    commands = ["sleep 0.6", "sleep 0.3", "true"]
    found = run_many(commands, sandbox=box, concurrency=3, ordered=False)
    assert [done.index for done in found] == [2, 1, 0]


def test_an_endless_source_is_asked_only_for_what_there_is_room_for(box: Sandbox) -> None:
    asked = itertools.count()
    source = (["echo", str(next(asked))] for _ in itertools.repeat(0))
    found = run_many(source, sandbox=box, concurrency=2)
    first = list(itertools.islice(found, 20))
    assert [done.result.out for done in first if done.result] == [f"{i}\n" for i in range(20)]
    assert next(asked) <= 20 + 2 * 9
    found.close()  # type: ignore[attr-defined]


def test_what_is_over_is_given_while_the_source_takes_its_time(box: Sandbox) -> None:
    """There is room for all of them, and none waits until all have come."""
    happened: list[str] = []

    def source() -> Iterator[list[str]]:
        for i in range(3):
            time.sleep(0.4)
            happened.append(f"asked {i}")
            yield ["true"]

    for done in run_many(source(), sandbox=box, concurrency=8):
        happened.append(f"given {done.index}")
    assert happened.index("given 0") < happened.index("asked 2")


def test_one_command_is_no_list_of_them(box: Sandbox) -> None:
    with pytest.raises(InvalidArgument, match="is one command"):
        run_many("echo x", sandbox=box)


@pytest.mark.parametrize("name", ["text", "timeuot"])
def test_an_option_that_is_none_is_refused_before_anything_runs(box: Sandbox, name: str) -> None:
    how: dict[str, object] = {name: 1}
    for act in (
        lambda: run_many(["true"], sandbox=box, **how),  # type: ignore[arg-type]
        lambda: Command.of("true", **how),  # type: ignore[arg-type]
        lambda: Pool(sandbox=box, **how),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match=name):
            act()


def test_nothing_runs_before_somebody_asks(box: Sandbox, workspace: Path) -> None:
    found = run_many(["touch made"], sandbox=box)
    time.sleep(0.1)
    assert not (workspace / "made").exists()
    assert next(found).result is not None
    assert (workspace / "made").exists()


def test_each_has_what_is_its_own(isolation: str, workspace: Path, outside: Path) -> None:
    commands = [
        Command.of("pwd; cat; echo $WHO; ulimit -n", workspace=place, input=text, env={"WHO": who})
        for place, text, who in ((workspace, "a\n", "x"), (outside, b"b\n", "y"))
    ]
    commands.append(Command.of("ulimit -n", limits=Limits(open_files=77)))
    found = list(run_many(commands, workspace=workspace, env=OTHER))
    texts = [done.result.out.split() for done in found if done.result]
    assert texts[0][:3] == [str(workspace), "a", "x"]
    assert texts[1][:3] == [str(outside), "b", "y"]
    assert texts[2] == ["77"]


def test_none_sees_what_another_has_left(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDBOX_ISOLATION", raising=False)
    found = run_many(
        (
            f"ls /tmp /dev/shm | grep '^[0-9]'; touch /tmp/{i} /dev/shm/{i}; sleep 0.05"
            for i in range(24)
        ),
        workspace=workspace,
        concurrency=4,
    )
    assert {done.result.out for done in found if done.result} == {""}


def test_a_failure_is_kept_beside_the_others(box: Sandbox) -> None:
    commands = [["/none"], ["true"], [], "exit 3"]
    found = list(run_many(commands, sandbox=box, check=True))
    kinds = [type(done.error).__name__ if done.error else "ok" for done in found]
    assert kinds == ["CommandNotFound", "ok", "InvalidArgument", "CommandFailed"]


def test_or_stops_the_rest_and_is_raised_when_the_others_are_given(box: Sandbox) -> None:
    commands = ["sleep 0.3; echo slow", ["/none"], *["echo later"] * 50]
    given = []
    with pytest.raises(sandbox.CommandNotFound):
        for done in run_many(commands, sandbox=box, concurrency=2, failures="stop"):
            given.append(done.result.out if done.result else "")
    assert given[0] == "slow\n"
    assert len(given) < 20


def test_or_ends_the_others(box: Sandbox) -> None:
    mark = new_mark()
    commands: list[list[str]] = [["sleep", "300"], ["/none"]]
    began = time.monotonic()
    with pytest.raises(sandbox.CommandNotFound):
        list(run_many(commands, sandbox=box, ordered=False, failures="raise", env={MARK: mark}))
    assert time.monotonic() - began < 5
    assert marked(mark) == []


def test_a_source_that_fails_ends_what_runs(box: Sandbox) -> None:
    mark = new_mark()

    def source() -> Iterator[str]:
        yield "sleep 300"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(run_many(source(), sandbox=box, env={MARK: mark}))
    assert marked(mark) == []


def test_what_runs_is_ended_when_nobody_asks_any_more(isolation: str, workspace: Path) -> None:
    mark = new_mark()
    before = fds(), threads()
    commands = ["true", "sleep 300 & setsid sleep 300", "sleep 300"]
    found = run_many(commands, workspace=workspace, concurrency=3, env={MARK: mark})
    assert next(found).index == 0
    wait_for(lambda: len(marked(mark)) >= 3)
    del found
    gc.collect()
    assert marked(mark) == []
    assert fds() <= before[0]
    assert threads() <= before[1]


def test_time_limits_hold_while_nobody_asks(box: Sandbox) -> None:
    """And what floods goes on."""
    commands = ["true", "sleep 300", "head -c 3000000 /dev/zero"]
    found = run_many(commands, sandbox=box, concurrency=3, timeout=0.5)
    assert next(found).index == 0
    time.sleep(1.5)
    slow, flood = [done.result for done in found]
    assert slow is not None and slow.timed_out
    assert slow.duration < 1
    assert flood is not None and not flood.timed_out
    assert len(flood.stdout) + flood.stdout_truncated == 3_000_000


def test_what_is_over_costs_nothing_while_nobody_asks(box: Sandbox) -> None:
    found = run_many([["true"], ["/none"]], sandbox=box, concurrency=2, input=bytes(300_000))
    next(found)
    time.sleep(0.2)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.2
    assert isinstance(next(found).error, sandbox.CommandNotFound)


@pytest.mark.parametrize("most", [0, -1, True, "4", 1.5])
def test_a_concurrency_is_a_positive_number(most: object) -> None:
    with pytest.raises(InvalidArgument, match="concurrency"):
        run_many([], concurrency=most)  # type: ignore[arg-type]


def test_a_sandbox_has_its_policy_and_workspace(box: Sandbox, workspace: Path) -> None:
    with pytest.raises(InvalidArgument, match="sandbox"):
        run_many([], workspace_write(), sandbox=box)
    (done,) = run_many([Command("true", workspace)], sandbox=box)
    assert isinstance(done.error, InvalidArgument)


def test_a_closed_sandbox_is_told_of(box: Sandbox) -> None:
    found = run_many(["true", "sleep 300"], sandbox=box, concurrency=2)
    assert next(found).error is None
    box.close()
    assert isinstance(next(found).error, sandbox.SandboxLost)


def test_a_killed_helper_is_told_of(box: Sandbox) -> None:
    found = run_many(["true", "sleep 300"], sandbox=box, concurrency=2)
    assert next(found).error is None
    os.kill(box._boundary.current()._helper.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    assert isinstance(next(found).error, sandbox.SandboxLost)


def test_hundreds_at_a_time_leave_nothing(box: Sandbox) -> None:
    for _ in range(5):  # has all lanes made: a slow machine uses those again that are free
        list(run_many([["sleep", "1.5"]] * 150, sandbox=box, concurrency=150))
    gc.collect()
    before = fds(), threads()
    for _ in range(3):
        found = list(run_many([["echo", "x"]] * 300, sandbox=box, concurrency=150))
        assert [done.result.out for done in found if done.result] == ["x\n"] * 300
    gc.collect()
    assert fds() <= before[0]
    assert threads() <= before[1]


def test_a_signal_ends_them_and_is_raised() -> None:
    """SIGINT, as Ctrl-C sends it: nothing of a command is left, nor a warning."""
    mark = new_mark()
    program = (
        "import sandbox\n"
        "try:\n"
        "    list(sandbox.run_many(['sleep 300'] * 4, cwd='/var/tmp', concurrency=4,"
        f" policy=sandbox.read_only(), env={{{MARK!r}: {mark!r}}}))\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    words = [sys.executable, "-W", "error::ResourceWarning", "-c", program]
    caller = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(marked(mark)) >= 4, 20)
    caller.send_signal(signal.SIGINT)
    out, err = caller.communicate(timeout=20)
    assert out == "interrupted\n"
    assert "Warning: " not in err or "SandboxWeakened" in err
    assert marked(mark) == []


@pytest.mark.parametrize("way", ["iterator", "pool"])
def test_an_interpreter_that_exits_leaves_nothing(way: str) -> None:
    mark = new_mark()
    how = f"policy=sandbox.read_only(), env={{{MARK!r}: {mark!r}}}, concurrency=3"
    made = {
        "iterator": f"found = sandbox.run_many(['true', 'sleep 300', 'sleep 300'], {how})\n"
        "next(found)\n",
        "pool": f"from sandbox.pool import Pool\npool = Pool({how})\n"
        "pool.submit('true').result(); pool.submit('sleep 300')\n",
    }[way]
    program = f"import os, sandbox\nos.chdir('/var/tmp')\n{made}print('end')\n"
    words = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
    wait_for(lambda: marked(mark) == [])


def test_a_fork_while_they_run_takes_nothing_away(box: Sandbox) -> None:
    """The copy has no thread for them; it leaves them alone, and runs its own."""
    found = run_many(["true", "sleep 0.5; echo mine"], sandbox=box, concurrency=2)
    next(found)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            (own,) = run_many(["echo own"], sandbox=box)
            assert own.result is not None and own.result.out == "own\n"
            found.close()  # type: ignore[attr-defined]
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    last = next(found)
    assert last.result is not None and last.result.out == "mine\n"


# The pool.


def test_a_pool_gives_futures(box: Sandbox) -> None:
    with Pool(sandbox=box, concurrency=2) as pool:
        futures = [pool.submit(f"echo {i}") for i in range(10)]
        assert [future.result().out for future in futures] == [f"{i}\n" for i in range(10)]
        assert isinstance(pool.submit(["/none"]).exception(), sandbox.CommandNotFound)
        assert [r.out for r in pool.map([["echo", "a"], "echo b"])] == ["a\n", "b\n"]
        assert pool.submit("cat", input=b"in").result().out == "in"


def test_what_waits_in_a_pool_can_be_cancelled(box: Sandbox) -> None:
    pool = Pool(sandbox=box, concurrency=1)
    first, second = pool.submit("sleep 0.3; echo done"), pool.submit("echo never")
    assert second.cancel()
    assert first.result().out == "done\n"
    pool.submit("sleep 0.2")
    last = pool.submit("echo never")
    pool.shutdown(cancel_futures=True)
    with pytest.raises(CancelledError):
        last.result()
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit("true")


def test_a_pool_serves_many_threads(box: Sandbox) -> None:
    found: list[Future[sandbox.Result]] = []
    with Pool(sandbox=box, concurrency=4) as pool:

        def ask() -> None:
            found.extend(pool.submit(["echo", "x"]) for _ in range(25))

        asking = [threading.Thread(target=ask) for _ in range(4)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        assert [future.result(20).out for future in found] == ["x\n"] * 100


def test_a_pool_that_ends_lets_them_end(isolation: str, workspace: Path) -> None:
    before = fds(), threads()
    with Pool(workspace=workspace, concurrency=2) as pool:
        futures = [pool.submit(f"sleep 0.1; echo {i}") for i in range(6)]
    assert [future.result(0).out for future in futures] == [f"{i}\n" for i in range(6)]
    wait_for(lambda: fds() <= before[0] and threads() <= before[1])


def test_an_exception_ends_a_pool_with_all_that_runs(box: Sandbox) -> None:
    began = time.monotonic()
    with pytest.raises(ZeroDivisionError), Pool(sandbox=box, concurrency=2) as pool:
        futures = [pool.submit("sleep 60 & sleep 60") for _ in range(4)]
        wait_for(lambda: futures[1].running())
        raise ZeroDivisionError
    assert time.monotonic() - began < 30
    assert [future.result(0).signal for future in futures[:2]] == [signal.SIGKILL] * 2
    assert all(future.cancelled() for future in futures[2:])


def test_a_killed_pool_takes_more(box: Sandbox) -> None:
    with Pool(sandbox=box, concurrency=1) as pool:
        first = pool.submit("sleep 60")
        pool.kill()
        assert first.result(30).signal == signal.SIGKILL
        assert pool.submit("echo on").result(30).out == "on\n"


def test_a_callback_may_submit(box: Sandbox) -> None:
    """The pool holds no lock while it tells of a result."""
    told: list[Future[sandbox.Result]] = []
    with Pool(sandbox=box, concurrency=2) as pool:
        first = pool.submit("echo a")
        first.add_done_callback(lambda future: told.append(pool.submit("echo b")))
        assert first.result(10).out == "a\n"
        wait_for(lambda: told and told[0].done())
    assert told[0].result().out == "b\n"


def test_a_pool_of_short_commands_lands_each_once(box: Sandbox) -> None:
    """While the interpreter's threads change as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with Pool(sandbox=box, concurrency=8) as pool:
            futures = [pool.submit(["true"]) for _ in range(400)]
            assert all(future.result(30).ok for future in futures)
    finally:
        sys.setswitchinterval(before)
    lanes = box._boundary._confinement._idle  # type: ignore[union-attr]
    assert len(set(map(id, lanes))) == len(lanes) <= 8


def test_a_command_of_many_has_no_terminal(box: Sandbox) -> None:
    (done,) = run_many(["true"], sandbox=box, terminal=True)
    assert isinstance(done.error, InvalidArgument)
