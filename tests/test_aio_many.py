"""Many commands that are awaited: on asyncio, uvloop and trio, in order and as they end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from lanekit import wait_for
from loopkit import Runner
from scenekit import open_fds
from spacekit import MARK, marked, new_mark

import sandbox
from sandbox import Command, InvalidArgument, Limits, aio, workspace_write
from sandbox.batch import Done


@pytest.fixture(params=["auto", "landlock"])
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SANDBOX_ISOLATION", request.param)
    return str(request.param)


@pytest.fixture
def box(workspace: Path) -> Iterator[sandbox.Sandbox]:
    with sandbox.Sandbox(workspace_write(), workspace=workspace) as made:
        yield made


def on_trio_now() -> bool:
    with contextlib.suppress(RuntimeError):
        trio.lowlevel.current_task()
        return True
    return False


async def sleep(seconds: float) -> None:
    await (trio.sleep if on_trio_now() else asyncio.sleep)(seconds)


async def cancelled_after(seconds: float, body: Callable[[], Awaitable[Any]]) -> None:
    """Runs it so long, and cancels it."""
    if on_trio_now():
        with trio.move_on_after(seconds):
            await body()
            raise AssertionError("it came to its end")
        return
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(body(), seconds)
        raise AssertionError("it came to its end")


async def all_of(found: AsyncIterator[Done]) -> list[Done]:
    return [done async for done in found]


async def slowly(items: list[Any], pause: float = 0.02) -> AsyncIterator[Any]:
    for item in items:
        await sleep(pause)
        yield item


def outs(found: list[Done]) -> list[str]:
    return [done.result.out for done in found if done.result]


def test_results_come_in_the_order_of_the_commands(
    run: Runner, isolation: str, workspace: Path
) -> None:
    commands = [f"sleep 0.0{9 - i % 10}; echo {i}" for i in range(24)]
    for source in (commands, iter(commands), slowly(commands, 0.001)):
        found = run(lambda s=source: all_of(aio.run_many(s, workspace=workspace, concurrency=6)))
        assert [done.index for done in found] == list(range(24))
        assert [done.command for done in found] == commands
        assert outs(found) == [f"{i}\n" for i in range(24)]


def test_or_as_they_end(run: Runner, box: sandbox.Sandbox) -> None:
    commands = ["sleep 0.6", "sleep 0.3", "true"]
    for source in (commands, slowly(commands, 0)):
        found = aio.run_many(source, sandbox=box, concurrency=3, ordered=False)
        assert [done.index for done in run(lambda f=found: all_of(f))] == [2, 1, 0]


def test_an_endless_source_is_asked_only_for_what_there_is_room_for(
    run: Runner, box: sandbox.Sandbox
) -> None:
    for awaited in (False, True):
        asked = itertools.count()

        async def endless(asked: Iterator[int] = asked) -> AsyncIterator[list[str]]:
            while True:
                yield ["echo", str(next(asked))]

        listed = (["echo", str(number)] for number in asked)

        source: Any = endless() if awaited else listed

        async def body(source: Any = source) -> list[Done]:
            first = []
            async with contextlib.aclosing(
                aio.run_many(source, sandbox=box, concurrency=2)  # type: ignore[type-var]
            ) as found:
                async for done in found:
                    first.append(done)
                    if len(first) == 20:
                        break
                await sleep(0.2)
            return first

        assert outs(run(body)) == [f"{i}\n" for i in range(20)]
        assert next(asked) <= 20 + 2 * 9


def test_what_is_over_is_given_while_the_source_is_awaited(
    run: Runner, box: sandbox.Sandbox
) -> None:
    """Also where it waits for just that."""
    happened: list[str] = []

    async def source() -> AsyncIterator[list[str]]:
        for i in range(3):
            while happened.count("given") < i:
                await sleep(0.01)
            happened.append("asked")
            yield ["true"]

    async def body() -> None:
        async for _ in aio.run_many(source(), sandbox=box, concurrency=8):
            happened.append("given")

    run(body)
    assert happened == ["asked", "given"] * 3


def test_the_loop_goes_on_meanwhile(run: Runner, box: sandbox.Sandbox) -> None:
    """Also where commands are over at once."""

    async def body() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await sleep(0)

        async def many() -> None:
            commands = itertools.chain([["/none"]] * 500, [["sleep", "0.2"]])
            await all_of(aio.run_many(commands, sandbox=box, concurrency=4))

        if on_trio_now():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(count)
                await many()
                nursery.cancel_scope.cancel()
            return turns
        counting = asyncio.ensure_future(count())
        await many()
        counting.cancel()
        return turns

    assert run(body) > 50


def test_each_has_what_is_its_own(run: Runner, workspace: Path, outside: Path) -> None:
    commands = [
        Command.of("pwd; cat; echo $WHO", workspace=place, input=text, env={"WHO": who})
        for place, text, who in ((workspace, "a\n", "x"), (outside, b"b\n", "y"))
    ]
    commands.append(Command.of("ulimit -n", limits=Limits(open_files=77)))
    found = run(lambda: all_of(aio.run_many(commands, workspace=workspace)))
    texts = [text.split() for text in outs(found)]
    assert texts == [[str(workspace), "a", "x"], [str(outside), "b", "y"], ["77"]]


def test_they_go_from_one_workspace_to_the_next(run: Runner, isolation: str, far: Path) -> None:
    samples = [far / "dock" / f"{number}" for number in range(12)]
    for path in samples:
        path.mkdir(parents=True)
        (path / "file").write_text(path.name)
    commands = [Command("cat file; echo >new; cat ../*/file", path) for path in samples]
    found = run(lambda: all_of(aio.run_many(commands, workspaces=far / "dock", concurrency=3)))
    assert outs(found) == [path.name * 2 for path in samples]
    assert all((path / "new").exists() for path in samples)


def test_an_awaited_sandbox_is_one_too(run: Runner, workspace: Path) -> None:
    async def body() -> list[Done]:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as made:
            return await all_of(aio.run_many(["echo a", "echo b"], sandbox=made))

    assert outs(run(body)) == ["a\n", "b\n"]


def test_a_failure_is_kept_beside_the_others(run: Runner, box: sandbox.Sandbox) -> None:
    commands = [["/none"], ["true"], [], "exit 3"]
    found = run(lambda: all_of(aio.run_many(commands, sandbox=box, check=True)))
    kinds = [type(done.error).__name__ if done.error else "ok" for done in found]
    assert kinds == ["CommandNotFound", "ok", "InvalidArgument", "CommandFailed"]


def test_or_stops_the_rest_and_is_raised_when_the_others_are_given(
    run: Runner, box: sandbox.Sandbox
) -> None:
    commands = ["sleep 0.3; echo slow", ["/none"], *["echo later"] * 50]
    given = []

    async def body() -> None:
        async for done in aio.run_many(commands, sandbox=box, concurrency=2, failures="stop"):
            given.append(done.result.out if done.result else "")

    with pytest.raises(sandbox.CommandNotFound):
        run(body)
    assert given[0] == "slow\n"
    assert len(given) < 20


def test_or_ends_the_others(run: Runner, box: sandbox.Sandbox) -> None:
    mark = new_mark()
    how: dict[str, Any] = {"ordered": False, "failures": "raise", "env": {MARK: mark}}
    began = time.monotonic()
    with pytest.raises(sandbox.CommandNotFound):
        run(lambda: all_of(aio.run_many([["sleep", "300"], ["/none"]], sandbox=box, **how)))
    assert time.monotonic() - began < 5
    assert marked(mark) == []


@pytest.mark.parametrize("awaited", [False, True])
def test_a_source_that_fails_ends_what_runs(
    run: Runner, box: sandbox.Sandbox, awaited: bool
) -> None:
    mark = new_mark()

    def listed() -> Iterator[str]:
        yield "sleep 300"
        raise ZeroDivisionError

    async def source() -> AsyncIterator[str]:
        for command in listed():
            yield command

    given: Any = source() if awaited else listed()
    with pytest.raises(ZeroDivisionError):
        run(lambda: all_of(aio.run_many(given, sandbox=box, env={MARK: mark})))
    assert marked(mark) == []


@pytest.mark.parametrize("awaited", [False, True])
def test_who_is_cancelled_leaves_nothing(
    run: Runner, isolation: str, workspace: Path, awaited: bool
) -> None:
    """Neither a process nor a fd, nor a source that goes on."""
    mark, going = new_mark(), []

    async def endless() -> AsyncIterator[str]:
        try:
            while True:
                yield "sleep 300 & setsid sleep 300"
                await sleep(0.01)
        finally:
            going.append("ended")

    async def twice() -> None:
        for _ in range(2):
            source: Any = endless() if awaited else itertools.repeat("sleep 300 & sleep 300")
            many = aio.run_many(source, workspace=workspace, concurrency=3, env={MARK: mark})
            await cancelled_after(1.0, lambda m=many: all_of(m))
            assert marked(mark) == []

    run(twice)
    gc.collect()
    before = len(open_fds())
    run(twice)
    gc.collect()
    assert len(open_fds()) <= before
    assert going == (["ended"] * 4 if awaited else [])


@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")  # trio's, of what is dropped
def test_what_runs_is_ended_when_nobody_asks_any_more(run: Runner, workspace: Path) -> None:
    mark = new_mark()

    async def body() -> None:
        found = aio.run_many(
            ["true", "sleep 300", "sleep 300"], workspace=workspace, env={MARK: mark}
        )
        async for done in found:
            assert done.index == 0
            break
        wait_for(lambda: len(marked(mark)) >= 2)
        await found.aclose()  # type: ignore[attr-defined]
        assert marked(mark) == []
        async for _ in aio.run_many(["true", "sleep 300"], workspace=workspace, env={MARK: mark}):
            break  # and is dropped

    run(body)
    gc.collect()
    wait_for(lambda: marked(mark) == [])


def test_no_thread_is_made_but_the_engine_s(run: Runner, box: sandbox.Sandbox) -> None:
    before = len(os.listdir("/proc/self/task"))

    async def body() -> int:
        most = 0
        async for _ in aio.run_many([["sleep", "0.01"]] * 40, sandbox=box, concurrency=20):
            most = max(most, len(os.listdir("/proc/self/task")))
        return most

    assert run(body) <= before + 1


def test_a_context_is_the_source_s_too(run: Runner, box: sandbox.Sandbox) -> None:
    """A source may hold what belongs to one task for as long as it goes."""

    async def source() -> AsyncIterator[str]:
        if on_trio_now():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 0)
                yield "echo a"
                yield "echo b"
        else:
            async with asyncio.timeout(20):
                yield "echo a"
                yield "echo b"

    assert outs(run(lambda: all_of(aio.run_many(source(), sandbox=box)))) == ["a\n", "b\n"]


def test_what_makes_no_sense_is_refused_before_it_is_asked(box: sandbox.Sandbox) -> None:
    with pytest.raises(InvalidArgument, match="is one command"):
        aio.run_many("echo x", sandbox=box)
    with pytest.raises(InvalidArgument, match="concurrency"):
        aio.run_many([], concurrency=0)
    with pytest.raises(InvalidArgument, match="failures"):
        aio.run_many([], failures="other")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="sandbox"):
        aio.run_many([], workspace_write(), sandbox=box)
    with pytest.raises(TypeError, match="timeuot"):
        aio.run_many([], timeuot=1)  # type: ignore[call-arg]
