"""Results: exit statuses as shells have them, text that is cut between characters."""

from __future__ import annotations

import pickle
import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.denial import Denial, DenialKind, Evidence
from sandbox.errors import CommandFailed
from sandbox.result import Enforcement, Result, Usage, Weaker


def result(**changed: Any) -> Result:
    values: dict[str, Any] = {
        "args": ("true",),
        "returncode": 0,
        "signal": None,
        "timed_out": False,
        "stdout": b"",
        "stderr": b"",
        "stdout_truncated": 0,
        "stderr_truncated": 0,
        "duration": 0.25,
        "usage": Usage(1.5, 0.5, 4096),
        "enforcement": Enforcement("landlock"),
    }
    return Result(**values | changed)


@pytest.mark.parametrize(
    ("changed", "status", "ok"),
    [
        ({}, 0, True),
        ({"returncode": 3}, 3, False),
        ({"returncode": 137}, 137, False),
        ({"returncode": -9, "signal": 9}, 137, False),
        ({"returncode": -15, "signal": 15, "timed_out": True}, 124, False),
        ({"returncode": 0, "timed_out": True}, 124, False),
        ({"returncode": 124}, 124, False),
        ({"returncode": -9, "signal": 9, "memory_exceeded": True}, 137, False),
        ({"returncode": 0, "memory_exceeded": True}, 137, False),
    ],
)
def test_exit_status_is_as_shells_and_timeout_have_it(
    changed: dict[str, Any], status: int, ok: bool
) -> None:
    assert result(**changed).exit_status == status
    assert result(**changed).ok is ok


def test_case_124_a_signal_is_told_from_a_status_that_looks_like_one() -> None:
    killed, exited = result(returncode=-9, signal=9), result(returncode=137)
    assert killed.exit_status == exited.exit_status
    assert (killed.signal, exited.signal) == (9, None)
    assert "signal 9 (SIGKILL)" in killed.outcome
    assert exited.outcome == "exited with status 137"


def test_case_117_a_time_out_is_told_from_every_status() -> None:
    assert "its time was up" in result(timed_out=True, returncode=-9, signal=9).outcome
    assert not result(returncode=124).timed_out


def test_too_much_memory_is_told_from_every_signal() -> None:
    over = result(memory_exceeded=True, returncode=-9, signal=9)
    assert "more memory than its limit" in over.outcome
    assert not result(returncode=-9, signal=9).memory_exceeded


def test_a_signal_without_a_name_has_a_number() -> None:
    assert "signal 40 (real-time)" in result(returncode=-40, signal=40).outcome
    assert str(int(signal.SIGSEGV)) in result(returncode=-11, signal=11).outcome


def test_check_gives_the_result_or_raises_with_it() -> None:
    good, bad = result(), result(returncode=1)
    assert good.check() is good
    with pytest.raises(CommandFailed) as caught:
        bad.check()
    assert caught.value.result is bad


def test_case_118_bytes_are_kept_and_text_replaces_what_is_no_text() -> None:
    odd = result(stdout=b"a\xf0\xff\x80b", stderr=b"\xc3")
    assert odd.stdout == b"a\xf0\xff\x80b"
    assert odd.out.startswith("a\N{REPLACEMENT CHARACTER}") and odd.out.endswith("b")
    assert odd.err == "\N{REPLACEMENT CHARACTER}"
    assert odd.text == odd.out + odd.err


@given(st.text(st.characters(codec="utf-8"), min_size=1), st.data())
def test_text_that_was_cut_has_no_half_character(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, len(raw)))
    cut = result(
        stdout=raw[:start] + raw[end:], stdout_truncated=max(end - start, 1), stdout_cut=start
    )
    head, mark, tail = cut.out.partition(f"\n[... {max(end - start, 1)} bytes")
    tail = tail.partition("]\n")[2]
    assert mark
    assert text.startswith(head) and text.endswith(tail)
    assert len(raw[:start]) - len(head.encode()) in range(4)
    assert len(raw[end:]) - len(tail.encode()) in range(4)


def test_output_that_was_not_cut_has_no_mark() -> None:
    assert result(stdout="ä€😀".encode()).out == "ä€😀"


def test_what_is_not_text_beside_the_cut_is_kept_as_replacements() -> None:
    cut = result(stdout=b"a\xff\xff" + b"\x80\x80\x80\x80b", stdout_truncated=5, stdout_cut=3)
    assert cut.out.startswith("a\N{REPLACEMENT CHARACTER}")
    assert cut.out.endswith("\N{REPLACEMENT CHARACTER}b")


def test_enforcement_is_full_until_a_part_is_weaker() -> None:
    assert Enforcement("namespaces").full
    assert not Enforcement("landlock", (Weaker("metadata", "no hook"),)).full


def test_a_result_is_a_light_value() -> None:
    one = result(denials=(Denial(DenialKind.WRITE, "/x", Evidence.KERNEL),))
    assert pickle.loads(pickle.dumps(one)) == one
    assert not hasattr(one, "__dict__")
    assert one.usage.cpu == 2.0
    with pytest.raises(AttributeError):
        one.returncode = 1  # type: ignore[misc]
