"""Tool calls that are awaited: as the blocking ones, and nothing is left of who is cancelled."""

from __future__ import annotations

import asyncio
import gc
import itertools
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from lanekit import wait_for
from logkit import documents
from loopkit import Runner, on_asyncio
from scenekit import open_fds
from spacekit import MARK, marked, new_mark
from test_aio import at_most, sleep, together

from sandbox import Limits, SandboxPolicy, session, workspace_write
from sandbox.profile.values import Profile
from sandbox.session import (
    Answer,
    Choice,
    Delta,
    Edit,
    EditResult,
    FixedApprover,
    Session,
    ToolCall,
    ToolResult,
    aio,
    verify,
)
from sandbox.session.deltas import Kept

DANGEROUS = "rm -rf build"  # asked about, whatever is enforced


@pytest.fixture(autouse=True)
def strongest(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sessions are in namespaces where there are any, as for who says nothing."""
    monkeypatch.setenv("SANDBOX_ISOLATION", "auto")
    yield


@pytest.fixture(scope="module", autouse=True)
def nothing_is_kept() -> Iterator[None]:
    """The tests of other files in this process may count its children."""
    yield
    gc.collect()


class Made:
    """Sessions in one workspace, each with a log of its own."""

    def __init__(self, workspace: Path, place: Path) -> None:
        self.workspace, self._place = workspace, place
        self._numbers = itertools.count(1)
        self.log = place

    @contextmanager
    def __call__(
        self, policy: SandboxPolicy | Profile | None = None, **how: Any
    ) -> Iterator[Session]:
        self.log = self._place / f"log{next(self._numbers)}"
        how.setdefault("approver", FixedApprover(Choice.ONCE, "the test"))
        given = policy if policy is not None else workspace_write()
        with Session(given, workspace=self.workspace, log=str(self.log), **how) as made:
            yield made

    def records(self) -> list[dict[str, Any]]:
        """Of the last session, whose chain is in order."""
        assert verify(str(self.log)).ok
        return documents(self.log)

    def events(self, *names: str) -> list[str]:
        """Which records there are between the first and the last, of these kinds or all."""
        found = [record["event"] for record in self.records()]
        found = found[1:-1] if found[-1] == "end" else found[1:]
        return [one for one in found if not names or one in names]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [record for record in self.records() if record["event"] == event]

    def every_spawn_has_its_end(self) -> None:
        """Each command that was begun is followed by the record of its end."""
        begun = [record["call"] for record in self.of("spawn")]
        assert sorted(begun) == sorted(record["call"] for record in self.of("exit"))


@pytest.fixture
def made(workspace: Path, place: Path, outside: Path) -> Made:
    return Made(workspace, place)


# As those that block

CALLS: dict[str, ToolCall] = {
    "output": ToolCall("echo out; echo err >&2; exit 3"),
    "words": ToolCall(["printf", "%s", "a b"]),
    "input": ToolCall(["cat"], input=b"in\xff\n"),
    "empty input": ToolCall(["cat"], input=b""),
    "input that is not read": ToolCall("exec <&-; sleep 0.05", input=bytes(300_000)),
    "environment and directory": ToolCall('pwd; echo "$A"', cwd="/", env={"A": "1"}),
    "too long": ToolCall("echo begun; sleep 300", timeout=0.3),
    "signal": ToolCall("kill -9 $$"),
    "much output": ToolCall("seq 1 40000; seq 1 40000 >&2"),
    "background": ToolCall("sleep 300 & echo done"),
    "refused": ToolCall("echo x > ../outside/new"),
    "approved": ToolCall(DANGEROUS),
    "not there": ToolCall(["/none"]),
    "files": ToolCall("date > made; mkdir d; touch d/e"),
}
VARIES = {"time", "prev", "session", "pid", "seconds", "duration", "usage"}


def steady(value: Any) -> Any:
    """A record without what is never the same twice."""
    if isinstance(value, dict):
        return {name: steady(one) for name, one in value.items() if name not in VARIES}
    return [steady(one) for one in value] if isinstance(value, list) else value


def story(made: Made) -> Any:
    """The records of the last session, without what is its own: its policy denies its log."""
    found: list[dict[str, Any]] = steady(made.records())
    return [{name: one for name, one in record.items() if "policy" not in name} for record in found]


def facts(told: ToolResult) -> tuple[Any, ...]:
    """All of a result but what is never the same twice."""
    ran = told.result
    output: tuple[Any, ...] = ()
    if ran is not None:
        output = (ran.stdout, ran.stderr, ran.stdout_truncated, ran.stderr_truncated)
        output += (ran.stdout_cut, ran.stderr_cut, ran.swept, ran.timed_out, ran.exit_status)
    refused = [(one.kind, one.what, one.evidence, one.grant) for one in told.denials]
    return (
        told.status, told.decision, told.why, told.attempts, str(told.error), refused, output,
        told.not_retried,
    )  # fmt: skip


def clear(workspace: Path) -> None:
    """Takes away what the calls left, so that the next ones find the same."""
    for path in (workspace / "d/e", workspace / "made", workspace / "../outside/new"):
        path.unlink(missing_ok=True)
    if (workspace / "d").exists():
        (workspace / "d").rmdir()


def small() -> SandboxPolicy:
    """A policy under which ``much output`` is too much."""
    return workspace_write().with_limits(Limits(output=100_001))


def call_all(made: Made, deltas: list[Delta] | None) -> tuple[list[Any], Any]:
    with made(small()) as box:
        on_delta = deltas.append if deltas is not None else None
        found = [
            facts(session.process_exec_tool_call(call, box, on_delta=on_delta))
            for call in CALLS.values()
        ]
    clear(made.workspace)
    return found, story(made)


def test_pieces_of_output_change_nothing_of_what_comes_of_a_call(made: Made) -> None:
    deltas: list[Delta] = []
    assert call_all(made, None) == call_all(made, deltas)
    out = b"".join(data for stream, data in deltas if stream == "stdout")
    assert b"a b" in out and b"in\xff\n" in out
    assert len([line for line in out.splitlines() if line == b"40000"]) == 1


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "in pieces"])
def test_what_comes_of_a_call_is_the_same_as_of_one_that_blocks(
    run: Runner, made: Made, streamed: bool
) -> None:
    deltas: list[Delta] = []

    async def body() -> list[Any]:
        with made(small()) as box:
            on_delta = deltas.append if streamed else None
            return [
                facts(await aio.process_exec_tool_call(call, box, on_delta=on_delta))
                for call in CALLS.values()
            ]

    expected = call_all(made, None)
    found = run(body)
    for name, one, other in zip(CALLS, found, expected[0], strict=True):
        assert one == other, name
    assert story(made) == expected[1]
    made.every_spawn_has_its_end()


EDITS = [
    Edit.create("new", b"a\n"),
    Edit.replace("new", b"b\n"),
    Edit.replace_text("new", b"b", b"c"),
    Edit.delete("new"),
    Edit.create("../outside/new", b""),
]


def test_edits_are_the_same_too(run: Runner, made: Made) -> None:
    def told(one: EditResult) -> tuple[Any, ...]:
        return one.ok, one.done, one.failure, one.why, one.text

    async def body() -> list[Any]:
        with made() as box:
            return [told(await aio.apply_edit(edit, box)) for edit in EDITS]

    with made() as box:
        expected = [told(session.apply_edit(edit, box)) for edit in EDITS]
    clear(made.workspace)
    records = story(made)
    assert run(body) == expected
    assert story(made) == records


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "in pieces"])
def test_many_at_once_have_each_their_own(run: Runner, made: Made, streamed: bool) -> None:
    count = 24

    async def body() -> None:
        with made() as box:
            said: dict[int, bytes] = {}

            async def one(i: int) -> None:
                pieces: list[bytes] = []
                on_delta = (lambda delta: pieces.append(delta.data)) if streamed else None
                words = f"sleep 0.1; echo {i}; seq 1 3000"
                told = await aio.process_exec_tool_call(words, box, on_delta=on_delta)
                assert told.ok and told.result is not None
                said[i] = b"".join(pieces) if streamed else told.result.stdout
                assert told.result.stdout == said[i]

            await together(*[lambda i=i: one(i) for i in range(count)])  # type: ignore[misc]
            assert {i: data.split(b"\n")[0] for i, data in said.items()} == {
                i: str(i).encode() for i in range(count)
            }

    run(body)
    made.every_spawn_has_its_end()
    assert sorted(record["call"] for record in made.of("exit")) == list(range(1, count + 1))


# Cancelled


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "in pieces"])
def test_who_is_cancelled_ends_the_command_and_it_is_on_record(
    run: Runner, made: Made, streamed: bool
) -> None:
    mark = new_mark()
    words = "echo begun; touch made; setsid sleep 300 & sleep 300"

    async def body() -> None:
        with made() as box:
            await aio.process_exec_tool_call("true", box)
            before = open_fds()

            async def slow() -> None:
                call = ToolCall(words, env={MARK: mark})
                on_delta = (lambda delta: None) if streamed else None
                await aio.process_exec_tool_call(call, box, on_delta=on_delta)

            assert not await at_most(0.4, slow)
            assert marked(mark) == []
            assert len(open_fds()) <= len(before)
            assert (await aio.process_exec_tool_call("echo next", box)).ok

    run(body)
    made.every_spawn_has_its_end()
    ended = made.of("exit")[1]
    assert ended["returncode"] is None and "interrupted: " in ended["error"]
    assert "Cancelled" in ended["error"]
    created = made.of("files")[1]["created"]
    assert [Path(path).name for path in created["paths"]] == ["made"]


@pytest.mark.filterwarnings("ignore::sandbox.SandboxWeakened")  # with no sandbox, names are
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "in pieces"])
def test_a_wider_sandbox_is_given_back_by_who_is_cancelled(
    run: Runner, made: Made, streamed: bool
) -> None:
    free = workspace_write()
    profile = Profile(free, str(made.workspace), "auto", "on-escape", True, (), (), ())

    async def body() -> None:
        with made(profile) as box:

            async def slow() -> None:
                call = ToolCall("sleep 300", unsandboxed=True)
                on_delta = (lambda delta: None) if streamed else None
                await aio.process_exec_tool_call(call, box, on_delta=on_delta)

            assert not await at_most(0.5, slow)
            assert box.boxes._used == {}

    run(body)
    assert [record["permissions"] for record in made.of("spawn")] == ["unsandboxed"]
    made.every_spawn_has_its_end()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "in pieces"])
def test_a_storm_of_cancellations_leaves_nothing(run: Runner, made: Made, streamed: bool) -> None:
    mark = new_mark()

    async def body() -> None:
        with made() as box:

            async def one(i: int) -> None:
                async def command() -> None:
                    call = ToolCall("seq 1 9000; sleep 0.05 & sleep 0.02", env={MARK: mark})
                    on_delta = (lambda delta: None) if streamed else None
                    await aio.process_exec_tool_call(call, box, on_delta=on_delta)

                await at_most(i % 10 / 100, command)

            async def storm() -> None:
                await together(*[lambda i=i: one(i) for i in range(20)])  # type: ignore[misc]

            async def busy() -> None:
                await aio.process_exec_tool_call("sleep 0.5", box)

            await together(*[busy] * 20)  # all lanes
            await storm()
            before = len(open_fds())
            await storm()
            assert marked(mark) == []
            assert len(open_fds()) <= before + 6  # lanes come and go
            assert (await aio.process_exec_tool_call("echo next", box)).ok

    run(body)
    made.every_spawn_has_its_end()


def test_who_is_cancelled_while_output_streams_gets_no_more_of_it(run: Runner, made: Made) -> None:
    """And what has the fds after it keeps its own."""

    async def body() -> None:
        with made() as box:
            count = 0

            def on_delta(delta: Delta) -> None:
                nonlocal count
                count += 1

            async def endless() -> None:
                await aio.process_exec_tool_call("yes & yes >&2", box, on_delta=on_delta)

            assert not await at_most(0.3, endless)
            assert count > 0
            seen = count
            for i in range(3):
                told = await aio.process_exec_tool_call(f"echo {i}", box, on_delta=lambda d: None)
                assert told.result is not None and told.result.stdout == b"%d\n" % i
            assert count == seen

    run(body)
    made.every_spawn_has_its_end()


def test_who_is_cancelled_again_while_a_command_dies_leaves_nothing(
    run: Runner, made: Made
) -> None:
    mark = new_mark()

    async def body() -> None:
        with made() as box:

            async def slow() -> None:
                call = ToolCall("yes & yes >&2 & sleep 300", env={MARK: mark})
                await aio.process_exec_tool_call(call, box, on_delta=lambda delta: None)

            if trio.lowlevel.in_trio_run():
                with trio.move_on_after(0.4), trio.move_on_after(0.3):
                    await slow()
            else:
                task = asyncio.ensure_future(slow())
                await sleep(0.3)
                for _ in range(3):
                    task.cancel()
                    await sleep(0)
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert marked(mark) == []
            told = await aio.process_exec_tool_call("echo x", box, on_delta=lambda delta: None)
            assert told.result is not None and told.result.stdout == b"x\n"

    run(body)
    made.every_spawn_has_its_end()


# Who is asked


class Slow:
    """An asynchronous approver."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.asked, self.loops = seconds, 0, [threading.get_ident()]

    async def ask(self, request: Any) -> Answer:
        self.asked += 1
        self.loops.append(threading.get_ident())
        await sleep(self.seconds)
        return Answer(Choice.ONCE, "slow")


class Blocking:
    """A synchronous approver, which blocks until it is let go."""

    def __init__(self) -> None:
        self.let, self.asked, self.threads = threading.Event(), threading.Event(), [""]

    def ask(self, request: Any) -> Answer:
        self.threads.append(threading.current_thread().name)
        self.asked.set()
        self.let.wait(20)
        return Answer(Choice.ONCE, "blocking")


async def yes(request: Any) -> Choice:
    await sleep(0)
    return Choice.ONCE


class Yes:
    async def __call__(self, request: Any) -> Choice:
        await sleep(0)
        return Choice.ONCE


@pytest.mark.parametrize(
    "approver",
    [Slow(0.01), yes, Yes(), lambda request: yes(request), lambda request: Choice.ONCE],
    ids=["async object", "async function", "async callable", "of a coroutine", "function"],
)
def test_an_approver_may_be_asynchronous_or_not(run: Runner, made: Made, approver: Any) -> None:
    async def body() -> None:
        with made(approver=approver) as box:
            assert (await aio.process_exec_tool_call(DANGEROUS, box)).ok

    run(body)
    assert [record["answer"] for record in made.of("approval")] == ["once"]


def test_an_asynchronous_approver_is_called_in_the_loops_thread(run: Runner, made: Made) -> None:
    approver = Slow(0)

    async def body() -> None:
        with made(approver=approver) as box:
            assert (await aio.process_exec_tool_call(DANGEROUS, box)).ok

    run(body)
    assert len(set(approver.loops)) == 1


def test_one_that_blocks_does_not_block_the_loop(run: Runner, made: Made) -> None:
    approver = Blocking()

    async def body() -> None:
        with made(approver=approver) as box:

            async def asks() -> None:
                assert (await aio.process_exec_tool_call(DANGEROUS, box)).ok

            async def others() -> None:
                while not approver.asked.is_set():
                    await sleep(0.01)
                assert (await aio.process_exec_tool_call("echo meanwhile", box)).ok
                approver.let.set()

            await together(asks, others)

    run(body)
    assert made.of("exit")[0]["call"] == 2


@pytest.mark.parametrize(
    "approver",
    [lambda request: 1 / 0, lambda request: "never heard of", lambda request: None],
    ids=["raises", "nonsense", "nothing"],
)
def test_one_that_fails_has_denied(run: Runner, made: Made, approver: Any) -> None:
    async def body() -> None:
        with made(approver=approver) as box:
            told = await aio.process_exec_tool_call(DANGEROUS, box)
            assert (told.status, told.exit_status) == ("denied", 126)

    run(body)
    assert made.events() == ["assessment", "approval"]


@pytest.mark.parametrize("kind", ["async", "blocking"])
@pytest.mark.parametrize("what", ["command", "edit"])
def test_who_is_cancelled_while_somebody_is_asked_runs_nothing(
    run: Runner, made: Made, kind: str, what: str
) -> None:
    """One that never answers holds nobody up: neither who was cancelled nor the loop's end."""
    blocking = Blocking()

    async def body() -> None:
        approver = blocking if kind == "blocking" else Slow(300)
        mode: Any = "untrusted" if what == "edit" else "on-escape"
        with made(approver=approver, approval=mode) as box:

            async def asks() -> None:
                if what == "edit":
                    await aio.apply_edit(Edit.create("new", b""), box)
                else:
                    await aio.process_exec_tool_call("touch new; rm -rf build", box)

            assert not await at_most(0.2, asks)

    began = time.monotonic()
    run(body)
    assert time.monotonic() - began < 5
    blocking.let.set()
    (approval,) = made.of("approval")
    assert approval["answer"] == "deny" and "nobody waits" in approval["why"]
    assert approval["who"] == "nobody" and approval["seconds"] >= 0.1
    assert made.events() == ["assessment", "approval"]
    assert not (made.workspace / "new").exists()


def test_an_answer_that_comes_too_late_allows_nothing(run: Runner, made: Made) -> None:
    approver = Blocking()

    async def body() -> None:
        with made(approver=approver) as box:

            async def asks() -> None:
                await aio.process_exec_tool_call("touch new; rm -rf build", box)

            assert not await at_most(0.2, asks)
            approver.let.set()
            await sleep(0.1)
            assert box.trust.entries() == ()

    run(body)
    assert not (made.workspace / "new").exists()


# Pieces of output


@pytest.mark.parametrize("kind", ["blocking", "awaited"])
@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt("mine")], ids=repr)
def test_what_on_delta_raises_comes_out_and_the_command_is_ended(
    run: Runner, made: Made, kind: str, error: BaseException
) -> None:
    mark = new_mark()

    def on_delta(delta: Delta) -> None:
        raise error

    call = ToolCall("echo x; setsid sleep 300 & sleep 300", env={MARK: mark})

    async def body() -> None:
        with made() as box:
            with pytest.raises(type(error), match="mine"):
                if kind == "blocking":
                    session.process_exec_tool_call(call, box, on_delta=on_delta)
                else:
                    await aio.process_exec_tool_call(call, box, on_delta=on_delta)
            assert marked(mark) == []

    run(body)
    made.every_spawn_has_its_end()
    said = made.of("exit")[0]["error"]
    assert said.startswith(f"interrupted: {type(error).__name__}")
    assert ("mine" in said) is not isinstance(error, Exception)


def test_who_is_slow_slows_the_command_and_loses_nothing(run: Runner, made: Made) -> None:
    async def body() -> None:
        with made() as box:
            sizes = []

            def slow(delta: Delta) -> None:
                sizes.append(len(delta.data))
                time.sleep(0.02)

            words = "head -c 1000000 /dev/zero; touch done"
            told = await aio.process_exec_tool_call(words, box, on_delta=slow)
            assert told.ok and sum(sizes) == 1_000_000
            assert told.result is not None and told.result.duration >= 0.02 * (len(sizes) - 4)

    run(body)


@pytest.mark.parametrize("limit", [0, 1, 2, 7, 1000])
def test_what_is_kept_of_output_is_its_head_and_its_tail(made: Made, limit: int) -> None:
    policy = workspace_write().with_limits(Limits(output=limit))
    words = "printf 0123456789; printf abc >&2"
    with made(policy) as box:
        whole = session.process_exec_tool_call(words, box)
        pieces = session.process_exec_tool_call(words, box, on_delta=lambda delta: None)
    assert facts(pieces)[6] == facts(whole)[6]


def test_pieces_of_any_size_are_kept_alike() -> None:
    data = bytes(range(256)) * 3
    for most in (0, 1, 5, 64, 767, 768, 769):
        found = set()
        for size in (1, 3, 100, 768):
            kept = Kept(most)
            for start in range(0, len(data), size):
                kept.add(data[start : start + size])
            found.add(kept.result())
        assert len(found) == 1, most
        (result,) = found
        assert len(result[0]) == min(most, len(data))
        assert result[1] == len(data) - len(result[0])


# Loops and interpreters that end

END = """
import asyncio, gc, os, sys, warnings
import sandbox
from sandbox.session import Session, ToolCall, aio
def shown(delta):
    pass
async def go():
    call = ToolCall(sys.argv[3], env={%r: sys.argv[2]})
    await aio.process_exec_tool_call(call, made, on_delta=%s)
def approver(request):
    import time
    time.sleep(300)
made = Session(sandbox.workspace_write(), workspace=sys.argv[1], log=sys.argv[1] + "-log",
    approver=%s)
loop = asyncio.new_event_loop()
task = loop.create_task(go())
loop.run_until_complete(asyncio.sleep(0.4))
%s
"""
DESTROYED = "Task was destroyed"
HOW = {
    "cancelled": "task.cancel(); loop.run_until_complete(asyncio.wait([task])); loop.close()",
    "closed early": "loop.close()",
    "closed and collected": "loop.close(); del task, loop; gc.collect()",
    "session closed": "made.close(); loop.run_until_complete(task); loop.close()",
    "session closed last": "loop.close(); del task, loop; gc.collect(); made.close()",
    "left": "",
    "coroutine closed": "task.get_coro().close(); loop.close()",
    "exited": "os._exit(0)",
}


@pytest.mark.parametrize(
    ("how", "what"),
    [
        *[(how, "in pieces") for how in HOW],
        *[(how, "whole") for how in HOW if how != "exited"],
        *[(how, "asked") for how in ("cancelled", "left", "coroutine closed", "exited")],
    ],
)
def test_a_program_that_ends_in_the_middle_leaves_no_command_and_says_nothing(
    workspace: Path, how: str, what: str
) -> None:
    """Only asyncio itself says that a task was left."""
    mark = new_mark()
    on_delta = "shown" if what == "in pieces" else "None"
    asks = "approver" if what == "asked" else "None"
    program = END % (MARK, on_delta, asks, HOW[how])
    script = "rm -rf build" if what == "asked" else "echo x; sleep 300"
    flags = ["-X", "dev", "-W", "ignore::DeprecationWarning"]
    words = [sys.executable, *flags, "-c", program, str(workspace), mark, script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    mine = [line for line in done.stderr.splitlines() if not line.startswith(("task:", " "))]
    mine = [line for line in mine if not line.startswith("Executing <Task")]  # slow: told by -X dev
    ours = [line for line in mine if DESTROYED not in line and "Traceback" not in line]
    ours = [line for line in ours if not line.startswith("source_traceback")]
    assert [line for line in ours if "unclosed event loop" not in line] == [], done.stderr
    wait_for(lambda: marked(mark) == [])
    found = verify(f"{workspace}-log")
    assert found.ok, found.problems
    # What a closed loop waited for is never gone on with, unless it is forgotten.
    kept = what == "whole" and how in ("closed and collected", "session closed last")
    if how not in ("closed early", "left", "exited") and not kept:
        events = [one["event"] for one in documents(Path(f"{workspace}-log"))]
        assert events.count("exit") == events.count("spawn")
        assert ("approval" in events) == (what == "asked")


def test_a_call_that_was_dropped_on_a_living_loop_harms_no_other(made: Made) -> None:
    """Its fds are somebody else's by then."""

    async def body() -> None:
        with made() as box:
            for _ in range(3):
                call = aio.process_exec_tool_call("sleep 300", box, on_delta=lambda delta: None)
                call.send(None)
                call.close()
                told = await aio.process_exec_tool_call("echo x", box, on_delta=lambda delta: None)
                assert told.result is not None and told.result.stdout == b"x\n"

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_asyncio(body)
    made.every_spawn_has_its_end()
