"""What a model is told: harmless on a terminal, short, and with all that counts."""

from __future__ import annotations

import re
import time
import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.command.verdict import Assessment, Cause, Reason
from sandbox.denial import Denial, DenialKind, Evidence, Grant
from sandbox.errors import SandboxLost
from sandbox.printed import printable
from sandbox.result import Enforcement, Result, Usage
from sandbox.session.decide import Action, Because, Decision, Enforced, Ground
from sandbox.session.shown import denial_text, harmless, shortened
from sandbox.session.values import ToolResult

ESC, BEL = "\x1b", "\x07"
PIECES = st.sampled_from(
    [ESC, "[", "]", "P", "\\", BEL, "\x9b", "\x90", "\x9c", "31m", "0;", "8;;", "\r", "\n", "\r\n",
     "\t", "\x00", "\x08", "\x7f", "\u202e", "\u2066", "\u200b", "\ufeff", "\u2028", "a", "\u00fc",
     "\u65e5", "\U0001f600", " ", "?25", "(B", "\ud800"]
)  # fmt: skip
HOSTILE = st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=60)


@given(HOSTILE)
def test_nothing_is_left_that_a_terminal_acts_on(text: str) -> None:
    for shown in (harmless(text), printable(text)):
        for character in shown:
            assert character in "\n\t" or unicodedata.category(character)[0] != "C", shown
            assert character in "\n\t" or character.isprintable()
    assert "\n" not in printable(text) and "\t" not in printable(text)


@given(HOSTILE)
def test_what_is_harmless_stays_as_it_is(text: str) -> None:
    shown = harmless(text)
    assert harmless(shown) == shown
    line = printable(text)
    assert printable(line) == line
    assert harmless(line) == line


@given(st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" \n\t")))
def test_text_that_can_be_seen_is_not_changed(text: str) -> None:
    assert harmless(text) == text


@given(HOSTILE, st.lists(st.sampled_from(["seen", "tail"]), min_size=1, max_size=3))
def test_no_output_hides_lines_after_it(text: str, lines: list[str]) -> None:
    """Not even a sequence that it leaves without an end."""
    assert harmless("\n".join([text, *lines])).endswith("\n" + "\n".join(lines))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31;1mred\x1b[0m", "red"),
        ("\x1b[2K\x1b[1Gline", "line"),
        ("\x1b[?25l\x1b[?1049hx", "x"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]0;title\x1b\\x", "x"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ x", "link x"),
        ("\x1b]52;c;bWFya2Vk\x07x", "x"),
        ("\x1bP1$r0m\x1b\\x", "x"),
        ("\x1b(Bx\x1b7y\x1bcz", "xyz"),
        ("\x1b]0;no end", "\\x1b]0;no end"),
        ("\x1b]0;no end\nerror: lost?\n\x07", "\\x1b]0;no end\nerror: lost?\n\\x07"),
        ("\x1bPno end\nmore", "\\x1bPno end\nmore"),
        ("\x1b_a\nb\x1b\\", "\\x1b_a\nb"),
        ("half \x1b", "half \\x1b"),
        ("half \x1b[", "half \\x1b["),
        ("half \x1b[31", "half \\x1b[31"),
        ("\x1b\x1b[31m[32m", "\\x1b[32m"),
        ("\x9b31mx\x90y\x9c", "\\x9b31mx\\x90y\\x9c"),
        ("10%\r50%\r100%\n", "100%\n"),
        ("evil\rgood", "good"),
        ("a\r\nb\r\r\n", "a\nb\n"),
        ("a\x08b\x7f", "a\\x08b\\x7f"),
        ("a\u202eb\u2066c\u200bd", "a\\u202eb\\u2066c\\u200bd"),
        ("x\u2028y\x85z\x0b\x0c", "x\\u2028y\\x85z\\x0b\\x0c"),
        ("tab\there\n", "tab\there\n"),
        ("\U000e0041x", "\\U000e0041x"),
    ],
)  # fmt: skip
def test_what_comes_of_it(text: str, shown: str) -> None:
    assert harmless(text) == shown


BITS = (
    "\x1b]", "\x1b[", "\x1b", "\x1b]0;", "\x1b[0;", "\x1bP\x1b", "\r", "\x1b[31m", "\x1b(", "0",
    "\x1b   ", "\x00", "\u202e", "\u65e5",
)  # fmt: skip


@pytest.mark.parametrize("bit", [*BITS, "".join(BITS)], ids=ascii)
def test_it_takes_linear_time(bit: str) -> None:
    """Two seconds a megabyte at the most, also of ten of them; by squares it would be hours."""
    size = 10_000_000 if bit == "".join(BITS) else 1_000_000
    for start in ("", "\x1b]", "\x1b["):
        text = start + bit * (size // len(bit))
        began = time.process_time()
        harmless(text)
        assert time.process_time() - began < 2 * size / 1_000_000


@given(st.text(max_size=300), st.integers(0, 310))
def test_what_is_too_long_has_its_head_its_tail_and_what_is_missing(text: str, most: int) -> None:
    found = shortened(text, most)
    if len(text) <= most:
        assert found == text
        return
    head, tail = most // 2, most - most // 2
    assert found.startswith(text[:head]) and found.endswith(text[len(text) - tail :])
    mark = found[head : len(found) - tail]
    assert mark == f"\n[... {len(text) - most} characters left out ...]\n"


# The layout.


def ran(**how: Any) -> Result:
    given = {
        "args": "x", "returncode": 0, "signal": None, "timed_out": False, "stdout": b"",
        "stderr": b"", "stdout_truncated": 0, "stderr_truncated": 0, "duration": 1.26,
        "usage": Usage(), "enforcement": Enforcement("namespaces"),
    }  # fmt: skip
    return Result(**{**given, **how})


ALLOWED = Decision(Action.ALLOW, (Because(Ground.CONFINED),), Enforced.FULL)
REFUSED = Decision(Action.DENY, (Because(Ground.NEVER),), Enforced.FULL)


def told(result: Result | None = None, **how: Any) -> ToolResult:
    how = {"status": "ran", "decision": ALLOWED, "attempts": 1} | how
    assessment = Assessment.of([Cause(Reason.PROGRAM, 0, 1)])
    denials = result.denials if result is not None else ()
    return ToolResult(1, assessment=assessment, result=result, denials=denials, **how)


def test_a_command_that_ended_well_is_its_status_its_time_and_its_output() -> None:
    assert told(ran(stdout=b"hi\n", stderr=b"oh\n")).text == (
        "Exit code: 0\nDuration: 1.3 s\nOutput:\nhi\noh\n"
    )
    assert told(ran()).text == "Exit code: 0\nDuration: 1.3 s\nOutput: none"
    colours = told(ran(stdout=b"\x1b[31mred\x1b[0m \xff\n")).text
    assert colours.endswith("Output:\nred \ufffd\n")


@pytest.mark.parametrize(
    ("how", "lines"),
    [
        ({"returncode": 3}, ["Exit code: 3"]),
        (
            {"returncode": -9, "signal": 9},
            ["Exit code: 137", "The command was ended by signal 9 (SIGKILL)"],
        ),
        (
            {"returncode": -9, "signal": 9, "timed_out": True},
            ["Exit code: 124", "The command was ended after 1.3 s: its time was up"],
        ),
        (
            {"returncode": -9, "signal": 9, "memory_exceeded": True},
            [
                "Exit code: 137",
                "The command was ended after 1.3 s: it had more memory than its limit",
            ],
        ),
        (
            {"swept": 2},
            [
                "Exit code: 0",
                "Duration: 1.3 s",
                "Ended with it, as nothing stays in the background: 2 processes",
            ],
        ),
    ],
)
def test_how_it_ended_comes_first(how: dict[str, Any], lines: list[str]) -> None:
    assert told(ran(**how)).text.splitlines()[: len(lines)] == lines


def test_what_was_not_kept_is_told_of_also_where_that_place_is_left_out() -> None:
    whole = ran(stdout=b"a" * 50_000 + b"z" * 50_000, stdout_truncated=7_000_000, stdout_cut=50_000)
    both = replace_result(whole, stderr=b"e", stderr_truncated=1)
    assert "Longer than the limit of output, not kept: 7000001 bytes of it" in told(both).text
    text = told(whole).for_model(1000)
    assert "not kept: 7000000 bytes" in text and "characters left out" in text
    assert text.endswith("z" * 500) and "a" * 500 in text and len(text) < 1300
    assert "not kept" not in told(ran(stdout=b"x")).text  # the control


def replace_result(result: Result, **how: Any) -> Result:
    names = ("stdout", "stdout_truncated", "stdout_cut")
    return ran(**{name: getattr(result, name) for name in names}, **how)


WRITE = Denial(
    DenialKind.WRITE, "/opt/x", Evidence.MOUNT, "read: /", Grant.one("write", "/opt"), detail="why"
)


def test_a_denial_has_its_path_its_rule_and_what_would_allow_it() -> None:
    line = "Refused by the sandbox: write /opt/x; rule: read: /; would be allowed by: --write /opt"
    assert denial_text(WRITE) == line
    assert line in told(ran(returncode=1, denials=(WRITE,))).text.splitlines()
    assert denial_text(replace(WRITE, evidence=Evidence.MESSAGE)).startswith("Probably refused by")
    assert denial_text(replace(WRITE, grant=None)) == (
        "Refused by the sandbox: write /opt/x; rule: read: /"
    )
    cpu = Denial(DenialKind.LIMIT, "cpu", Evidence.KERNEL, "limit cpu: 1", Grant.one("cpu", 2))
    assert denial_text(cpu).endswith(
        "would be allowed by: .with_limits(replace(policy.limits, cpu=2))"
    )
    swept = replace(WRITE, what="/w/.git/hooks/x", change="planted", grant=None, rule="")
    assert denial_text(swept) == "Put back by the sandbox: /w/.git/hooks/x (planted)"


def test_more_denials_than_can_be_read_are_counted() -> None:
    many = tuple(replace(WRITE, what=f"/opt/{n}") for n in range(11))
    lines = told(ran(returncode=1, denials=many)).text.splitlines()
    assert sum(line.startswith("Refused") for line in lines) == 8 and "... and 3 more" in lines


@given(HOSTILE)
def test_a_path_cannot_say_what_stands_beside_it(name: str) -> None:
    """A command chooses it: nothing of the line is lost, and no other line begins in it."""
    denial = replace(WRITE, what=f"/opt/{name}")
    text = denial_text(denial)
    assert "\n" not in text and text.startswith("Refused by the sandbox: write /opt/")
    assert text.endswith("; rule: read: /; would be allowed by: --write /opt")
    faked = replace(WRITE, what="/opt/a\rRefused by the sandbox: write /\x1b]0;\nExit code: 0")
    assert denial_text(faked).startswith(
        "Refused by the sandbox: write /opt/a\\rRefused by the sandbox: write /\\x1b]0;\\nExit"
    )


def test_what_did_not_run_says_why() -> None:
    why = str(REFUSED)
    denied = told(status="denied", decision=REFUSED, why=why, attempts=0)
    assert denied.text == f"Denied: {why}" and denied.exit_status == 126 and not denied.ok
    assert re.search(r"`never`.*to change it: ", denied.text)
    lost = SandboxLost("it ended its own sandbox")
    broken = told(status="not-started", error=lost, why=str(lost))
    assert broken.text.startswith("Not run: ") and "it ended its own sandbox" in broken.text
    assert broken.exit_status == lost.exit_status
    hostile = told(status="denied", why="no\x1b[2J\rbecause\n", attempts=0)
    assert hostile.text == "Denied: no\\x1b[2J\\rbecause\\n"


def test_a_retry_and_why_there_was_none_are_told() -> None:
    result = ran(returncode=1, denials=(WRITE,))
    assert "It was run twice" in told(result, attempts=2).text
    assert "Not retried with more: no" in told(result, not_retried="no").text
    failed = told(result, attempts=2, error=SandboxLost("gone"))
    assert "It was to be run again with more, and was not: " in failed.text
    assert "It was run twice" not in failed.text
