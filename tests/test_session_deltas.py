"""Output that is handed on as it comes: all of it, in order, and kept as without."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sessionkit import PYTHON, Asked, Place

from sandbox import Limits
from sandbox.session import Delta, ToolCall, process_exec_tool_call
from sandbox.session.deltas import Kept


@pytest.fixture(params=["auto", "landlock"])
def here(request: pytest.FixtureRequest, far: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("SANDBOX_ISOLATION", request.param)
    return Place(far)


def joined(deltas: list[Delta], stream: str) -> bytes:
    return b"".join(one.data for one in deltas if one.stream == stream)


@given(st.lists(st.binary(max_size=40), max_size=12), st.none() | st.integers(0, 60))
def test_head_and_tail_are_kept_however_it_comes(pieces: list[bytes], most: int | None) -> None:
    kept = Kept(most)
    for piece in pieces:
        kept.add(piece)
    whole = b"".join(pieces)
    data, missing, cut = kept.result()
    assert len(data) + missing == len(whole) == kept.total
    if most is None or len(whole) <= most:
        assert (data, missing) == (whole, 0)
        return
    head, tail = most // 2, most - most // 2
    assert data == whole[:head] + whole[len(whole) - tail :] and cut == head


def test_nothing_piles_up_beyond_what_is_kept() -> None:
    kept = Kept(1000)
    for _ in range(5000):
        kept.add(b"x" * 700)
    assert sum(map(len, kept._tail)) < 2000 and len(kept._head) == 500


OUTPUTS = {
    "none": "true",
    "both": "echo out; echo err >&2; echo more; exit 3",
    "bytes": r"printf '\000\377\303'; printf 'half \342\202' >&2",
    "much": "seq 200000; seq 100000 >&2",
    "large pieces": PYTHON
    + """ -c 'import os; [os.write(1, b"%d" % n * 9999) for n in range(64)]'""",
    "closed": "exec >&-; echo err >&2",
    "killed": "echo a; kill -9 $$",
}


@pytest.mark.parametrize("limit", [None, 0, 1, 4097, 300_000])
@pytest.mark.parametrize("which", OUTPUTS)
def test_the_result_is_that_of_a_run_and_the_pieces_are_all_of_it(
    which: str, limit: int | None, far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_ISOLATION", "auto")
    place = Place(far)
    policy = place.policy()
    if limit is not None:
        policy = policy.with_limits(Limits(output=limit))
    deltas: list[Delta] = []
    with place.session(policy, log=False) as session:
        box = session.boxes.base
        plain = box.run(OUTPUTS[which])
        told = process_exec_tool_call(OUTPUTS[which], session, on_delta=deltas.append)
    streamed = told.result
    assert streamed is not None
    names = ["returncode", "signal", "stdout", "stderr", "stdout_truncated", "stderr_truncated",
             "timed_out", "swept", "out", "err"]  # fmt: skip
    names += ["stdout_cut"] * bool(plain.stdout_truncated)
    names += ["stderr_cut"] * bool(plain.stderr_truncated)
    for name in names:
        assert getattr(streamed, name) == getattr(plain, name), name
    for stream in ("stdout", "stderr"):
        whole = joined(deltas, stream)
        kept: bytes = getattr(streamed, stream)
        assert len(whole) == len(kept) + getattr(streamed, f"{stream}_truncated")
        cut: int = getattr(streamed, f"{stream}_cut")
        if getattr(streamed, f"{stream}_truncated"):
            assert whole.startswith(kept[:cut]) and whole.endswith(kept[cut:])
        else:
            assert whole == kept
    assert all(one.data for one in deltas)


def test_what_goes_on_in_the_background_does_not_hold_it_up(here: Place) -> None:
    deltas: list[Delta] = []
    text = "echo a; (sleep 60; echo late) & echo b"
    with here.session() as session:
        began = time.monotonic()
        told = process_exec_tool_call(text, session, on_delta=deltas.append)
        assert time.monotonic() - began < 10
    assert told.ok and told.result is not None and told.result.swept
    assert joined(deltas, "stdout") == told.result.stdout == b"a\nb\n"


def test_pieces_come_while_it_runs(here: Place) -> None:
    """The second half waits for what is done about the first."""
    seen: list[Delta] = []

    def take(delta: Delta) -> None:
        seen.append(delta)
        (here.work / "go").touch()

    text = "echo first; until test -e go; do sleep 0.01; done; echo second >&2"
    with here.session() as session:
        told = process_exec_tool_call(ToolCall(text, timeout=20), session, on_delta=take)
    assert told.ok and seen == [Delta("stdout", b"first\n"), Delta("stderr", b"second\n")]


def test_who_is_slow_gets_all_of_it_and_holds_the_command_back(here: Place) -> None:
    seen = bytearray()

    def take(delta: Delta) -> None:
        time.sleep(0.02)
        seen.extend(delta.data)

    with here.session() as session:
        told = process_exec_tool_call("seq 100000", session, on_delta=take)
    assert told.result is not None and told.ok
    assert bytes(seen) == told.result.stdout == b"".join(b"%d\n" % n for n in range(1, 100_001))


@pytest.mark.parametrize("error", [ValueError("marked"), KeyboardInterrupt()])
def test_who_raises_ends_the_command(error: BaseException, here: Place) -> None:
    def take(delta: Delta) -> None:
        raise error

    with here.session() as session:
        began = time.monotonic()
        with pytest.raises(type(error)):
            process_exec_tool_call(
                "echo a; sleep 0.2; echo > late; sleep 60", session, on_delta=take
            )
        assert time.monotonic() - began < 10
        time.sleep(0.4)
        assert not (here.work / "late").exists()
        assert process_exec_tool_call("echo b", session).result.out == "b\n"
    assert here.records("exit")[0]["error"] == f"interrupted: {type(error).__name__}"
    assert here.verified() == 8


def test_input_and_output_cross(here: Place) -> None:
    """More of both than any pipe holds."""
    data = os.urandom(1 << 20)
    deltas: list[Delta] = []
    with here.session() as session:
        for given in (data, b"", "text \u00fc"):
            deltas.clear()
            call = ToolCall(["cat"], input=given)
            told = process_exec_tool_call(call, session, on_delta=deltas.append)
            raw = given.encode() if isinstance(given, str) else given
            assert told.result is not None and told.result.stdout == raw
            assert joined(deltas, "stdout") == raw
        none = process_exec_tool_call(ToolCall(["cat"]), session, on_delta=deltas.append)
        assert none.ok and none.result is not None and none.result.stdout == b""
        ignored = ToolCall("exec <&-; echo done", input=data)
        assert process_exec_tool_call(ignored, session, on_delta=deltas.append).ok


def test_a_time_out_keeps_what_came_before_it(here: Place) -> None:
    deltas: list[Delta] = []
    with here.session() as session:
        call = ToolCall("echo before; sleep 60", timeout=0.5)
        told = process_exec_tool_call(call, session, on_delta=deltas.append)
    assert told.result is not None and told.result.timed_out and told.exit_status == 124
    assert told.result.stdout == joined(deltas, "stdout") == b"before\n"
    assert "its time was up" in told.text


def test_a_slow_reader_does_not_stretch_the_time_of_a_command(here: Place) -> None:
    def take(delta: Delta) -> None:
        time.sleep(0.3)

    with here.session() as session:
        began = time.monotonic()
        call = ToolCall("while echo x; do sleep 0.1; done", timeout=0.5)
        told = process_exec_tool_call(call, session, on_delta=take)
        assert told.result is not None and told.result.timed_out
        assert time.monotonic() - began < 5


def test_a_denial_is_known_and_the_retry_streams_too(here: Place) -> None:
    deltas: list[Delta] = []
    asked = Asked("once")
    with here.session(approver=asked) as session:
        text = f"echo begun; touch {here.out}/new"
        told = process_exec_tool_call(text, session, on_delta=deltas.append)
    assert told.ok and told.attempts == 2 and len(asked) == 1
    assert joined(deltas, "stdout") == b"begun\nbegun\n"
    assert b"cannot touch" in joined(deltas, "stderr")


def test_streams_of_threads_are_not_mixed(here: Place) -> None:
    with here.session() as session:
        found: dict[int, bytes] = {}

        def one(number: int) -> None:
            deltas: list[Delta] = []
            text = f"for i in $(seq 300); do echo {number}; done"
            process_exec_tool_call(text, session, on_delta=deltas.append)
            found[number] = joined(deltas, "stdout")

        threads = [threading.Thread(target=one, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {number: b"%d\n" % number * 300 for number in range(6)}
