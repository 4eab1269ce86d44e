"""Commands that are awaited: on asyncio, uvloop and trio; who is cancelled leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from lanekit import wait_for
from loopkit import Runner
from scenekit import open_fds
from spacekit import MARK, marked, new_mark

import sandbox
from sandbox import InvalidArgument, aio, workspace_write


@pytest.fixture(scope="module", autouse=True)
def nothing_is_kept() -> Iterator[None]:
    """The tests of other files in this process may count its children."""
    yield
    aio._shelf.close()
    gc.collect()


def fds() -> int:
    return len(open_fds())


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


async def sleep(seconds: float) -> None:
    if trio.lowlevel.in_trio_run():
        await trio.sleep(seconds)
    else:
        await asyncio.sleep(seconds)


async def together(*bodies: Callable[[], Awaitable[Any]]) -> None:
    """All at the same time; the first error ends the others."""
    if trio.lowlevel.in_trio_run():
        async with trio.open_nursery() as nursery:
            for body in bodies:
                nursery.start_soon(body)
    else:
        async with asyncio.TaskGroup() as group:
            for body in bodies:
                group.create_task(body())  # type: ignore[arg-type]


async def at_most(seconds: float, body: Callable[[], Awaitable[Any]]) -> bool:
    """Whether it came to its end before it was cancelled."""
    if trio.lowlevel.in_trio_run():
        with trio.move_on_after(seconds) as scope:
            await body()
        return not scope.cancelled_caught
    try:
        async with asyncio.timeout(seconds):
            await body()
    except TimeoutError:
        return False
    return True


def test_a_command_is_awaited(run: Runner, workspace: Path) -> None:
    async def body() -> None:
        result = await aio.run("echo out; echo err >&2; exit 3", cwd=workspace)
        assert (result.returncode, result.out, result.err) == (3, "out\n", "err\n")
        text = await aio.run(["cat"], cwd=workspace, input="in", text=True)
        assert text.stdout == "in"
        with pytest.raises(sandbox.CommandNotFound):
            await aio.run(["/none"], cwd=workspace)
        with pytest.raises(sandbox.CommandFailed):
            await aio.run(["false"], cwd=workspace, check=True)

    run(body)


def test_hundreds_run_at_the_same_time_on_one_thread_more(run: Runner, workspace: Path) -> None:
    async def body() -> None:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as box:
            found = []

            async def one(i: int) -> None:
                found.append((await box.run(f"sleep 0.2; echo {i}")).out)

            await box.run("true")
            before = threads()
            began = time.monotonic()
            await together(*[lambda i=i: one(i) for i in range(100)])  # type: ignore[misc]
            assert time.monotonic() - began < 15
            assert threads() <= before
            assert sorted(found) == sorted(f"{i}\n" for i in range(100))

    before = threads()
    run(body)
    assert threads() <= before + 1  # the engine's, of a loop that is not collected yet


def test_who_is_cancelled_goes_on_when_the_command_is_dead(run: Runner, workspace: Path) -> None:
    mark = new_mark()

    async def body() -> None:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as box:

            async def slow() -> None:
                await box.run("setsid sleep 300 & sleep 300", env={MARK: mark})

            assert not await at_most(0.3, slow)
            assert marked(mark) == []
            assert (await box.run("echo next")).out == "next\n"

    run(body)


def test_a_storm_of_cancellations_leaves_nothing(run: Runner, workspace: Path) -> None:
    mark = new_mark()

    async def body() -> None:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as box:

            async def one(i: int) -> None:
                async def command() -> None:
                    await box.run("sleep 0.1 & sleep 0.02", env={MARK: mark})

                await at_most(i % 10 / 200, command)

            await together(*[lambda: box.run("sleep 0.5") for _ in range(40)])  # all lanes
            before = fds()
            for _ in range(3):
                await together(*[lambda i=i: one(i) for i in range(40)])  # type: ignore[misc]
            assert marked(mark) == []
            await together(*[lambda i=i: one(i) for i in range(40)])  # type: ignore[misc]
            assert fds() <= before

    run(body)


def test_one_that_fails_ends_its_siblings(run: Runner, workspace: Path) -> None:
    mark = new_mark()

    async def body() -> None:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as box:

            async def slow() -> None:
                await box.run("sleep 300", env={MARK: mark})

            async def fails() -> None:
                await box.run("exit 1", check=True)

            await together(slow, fails)

    with pytest.raises(BaseExceptionGroup) as caught:
        run(body)
    assert caught.group_contains(sandbox.CommandFailed)
    assert marked(mark) == []


def test_time_limits_hold_while_the_loop_stands_still(run: Runner, workspace: Path) -> None:
    async def body() -> None:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as box:

            async def slow() -> None:
                result = await box.run("sleep 300", timeout=0.3)
                assert result.timed_out
                assert result.duration < 1

            async def blocks() -> None:
                await sleep(0.1)
                time.sleep(1.5)

            await together(slow, blocks)

    run(body)


def test_a_dialogue(run: Runner, workspace: Path) -> None:
    """Lines as they come, and input while it runs."""

    async def body() -> None:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as box:
            words = "while read x; do echo got $x; done; echo end >&2"
            pipes: Any = {"stdin": aio.PIPE, "stdout": aio.PIPE, "stderr": aio.PIPE}
            async with await box.popen(words, **pipes) as process:
                assert process.stdin and process.stdout and process.stderr
                for word in (b"one", b"two"):
                    await process.stdin.write(word + b"\n")
                    assert await process.stdout.read_line() == b"got " + word + b"\n"
                process.stdin.close()
                assert await process.stdout.read_line() == b""
                assert [line async for line in process.stderr.lines()] == [b"end\n"]
                assert (await process.wait()).returncode == 0
                with pytest.raises(InvalidArgument):
                    await process.stdin.write(b"late")

    run(body)


def test_who_reads_slowly_holds_the_command_up(run: Runner, workspace: Path) -> None:
    async def body() -> None:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as box:
            process = await box.popen("yes | head -c 5000000; touch done", stdout=aio.PIPE)
            assert process.stdout
            await sleep(0.5)
            assert not (workspace / "done").exists()
            assert len(await process.stdout.read_all()) == 5_000_000
            assert (await process.wait()).ok
            assert (workspace / "done").exists()

    run(body)


def test_lines_of_any_length_and_shape(run: Runner, workspace: Path) -> None:
    async def body() -> None:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as box:
            words = "printf 'a\\n\\nb'; head -c 3000000 /dev/zero; printf '\\nlast'"
            process = await box.popen(words, stdout=aio.PIPE)
            assert process.stdout
            lines = [line async for line in process.stdout.lines()]
            assert lines[:2] == [b"a\n", b"\n"]
            assert lines[-1] == b"last"
            assert all(len(line) <= 1 << 20 for line in lines)
            assert b"".join(lines) == b"a\n\nb" + bytes(3_000_000) + b"\nlast"
            await process.wait()

    run(body)


def test_input_that_nobody_reads_is_a_broken_pipe(run: Runner, workspace: Path) -> None:
    async def body() -> None:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as box:
            process = await box.popen("exec <&-; sleep 0.2", stdin=aio.PIPE)
            assert process.stdin
            with pytest.raises(BrokenPipeError):
                while True:
                    await process.stdin.write(bytes(100_000))
            assert (await process.wait()).ok

    run(body)


def test_who_is_cancelled_while_waiting_leaves_a_process_running(
    run: Runner, workspace: Path
) -> None:
    async def body() -> None:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as box:
            process = await box.popen("sleep 0.6; exit 4")
            assert not await at_most(0.1, process.wait)
            assert (await process.wait()).returncode == 4
            process = await box.popen("sleep 300")
            process.kill()
            assert (await process.wait()).signal == 9

    run(body)


def test_many_tasks_may_wait_for_a_process(run: Runner, workspace: Path) -> None:
    async def body() -> None:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as box:
            process = await box.popen("sleep 0.3; exit 4")
            codes = []

            async def one() -> None:
                codes.append((await process.wait()).returncode)

            async def cancelled() -> None:
                await at_most(0.1, process.wait)

            await together(cancelled, one, one, cancelled, one)
            assert codes == [4, 4, 4]

    run(body)


def test_forgotten_streams_are_closed(run: Runner, workspace: Path) -> None:
    async def body() -> None:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as box:
            await (await box.popen("true")).wait()
            gc.collect()
            before = fds()
            process = await box.popen("cat", stdin=aio.PIPE, stdout=aio.PIPE)
            assert process.stdout is not None
            process.stdin = None
            assert await process.stdout.read() == b""
            await process.wait()
            del process
            gc.collect()
            assert fds() <= before

    run(body)


@pytest.mark.parametrize("name", ["pty", "text"])
def test_what_is_not_awaited_is_refused(run: Runner, workspace: Path, name: str) -> None:
    async def body() -> None:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as box:
            how: Any = {name: True}
            with pytest.raises(InvalidArgument, match="is not awaited"):
                await box.popen("true", **how)

    run(body)


def test_a_process_is_killed_at_the_end_of_its_context(run: Runner, workspace: Path) -> None:
    mark = new_mark()

    async def body() -> None:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as box:
            pipes: Any = {"stdin": aio.PIPE, "stdout": aio.PIPE, "env": {MARK: mark}}
            before = fds()
            async with await box.popen("setsid sleep 300 & sleep 300", **pipes):
                assert len(marked(mark)) >= 1
            assert marked(mark) == []
            assert fds() == before

    run(body)


def test_a_closed_sandbox_is_told_of(run: Runner, workspace: Path) -> None:
    async def body() -> None:
        box = aio.Sandbox(workspace_write(), workspace=workspace)

        async def slow() -> None:
            with pytest.raises(sandbox.SandboxLost):
                await box.run("sleep 300")

        async def closes() -> None:
            await sleep(0.2)
            box.close()

        await together(slow, closes)
        with pytest.raises(InvalidArgument, match="closed"):
            await box.run("true")

    run(body)


def test_outside_of_a_loop_nothing_is_awaited() -> None:
    with pytest.raises(RuntimeError):
        aio.run("true").send(None)


END = """
import asyncio, os, sys, sandbox
from sandbox import aio, read_only
os.chdir("/var/tmp")
async def go():
    await aio.run(sys.argv[2], read_only(), env={%r: sys.argv[1]})
loop = asyncio.new_event_loop()
task = loop.create_task(go())
loop.run_until_complete(asyncio.sleep(0.5))
%s
"""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("task.cancel(); loop.run_until_complete(asyncio.wait([task])); loop.close()", ""),
        ("loop.close()", "Task was destroyed"),
        ("", "Task was destroyed"),
        ("os._exit(0)", ""),
    ],
    ids=["cancelled", "closed early", "left", "exited"],
)
def test_a_loop_that_ends_early_leaves_no_command(how: str, said: str) -> None:
    """Only asyncio itself says that a task was left."""
    mark = new_mark()
    words = [sys.executable, "-W", "ignore", "-c", END % (MARK, how), mark, "sleep 300"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    left = [line for line in done.stderr.splitlines() if not line.startswith(("task:", " "))]
    assert [line for line in left if said not in line or not said] == [], done.stderr
    wait_for(lambda: marked(mark) == [])


def test_an_interrupt_ends_the_command() -> None:
    mark = new_mark()
    program = (
        "import asyncio, os, sys\n"
        "from sandbox import aio, read_only\n"
        "os.chdir('/var/tmp')\n"
        "async def go():\n"
        f"    await aio.run('sleep 300', read_only(), env={{{MARK!r}: sys.argv[1]}})\n"
        "try:\n"
        "    asyncio.run(go())\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    words = [sys.executable, "-W", "ignore", "-c", program, mark]
    caller = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(marked(mark)) >= 1, 20)
    caller.send_signal(2)
    assert caller.communicate(timeout=20) == ("interrupted\n", "")
    assert marked(mark) == []


def test_a_fork_while_they_run(workspace: Path) -> None:
    """The copy of the process runs its own, in a loop of its own."""

    async def body() -> None:
        async with aio.Sandbox(workspace_write(), workspace=workspace) as box:
            task = asyncio.create_task(box.run("sleep 0.5; echo mine"))
            await asyncio.sleep(0.1)
            pid = os.fork()
            if pid == 0:
                os._exit(_child(workspace))
            assert (await task).out == "mine\n"
            assert os.waitpid(pid, 0)[1] == 0

    asyncio.run(body())


def _child(workspace: Path) -> int:
    asyncio.events._set_running_loop(None)
    asyncio.set_event_loop(None)

    async def body() -> None:
        assert (await aio.run("echo own", cwd=workspace)).out == "own\n"

    try:
        asyncio.run(body())
    except BaseException:
        return 1
    return 0
