"""Asking: what a person is shown, what may be offered and answered, and that all else is a no."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import tomllib
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetykit import context

from sandbox.command import Rule, Rules, Verdict, assess_command_safety
from sandbox.session.approval import Answer, ApprovalRequest, Choice, request_of, visible
from sandbox.session.approvers import (
    CallbackApprover,
    FixedApprover,
    approver_of,
    ask,
    ask_async,
)
from sandbox.session.decide import Action, Enforced, Ground, decide
from sandbox.session.keys import NO_SANDBOX, key_of
from sandbox.session.prompt import TerminalApprover

WHERE = context()
COMMANDS = tomllib.loads((Path(__file__).parent / "agent_commands.toml").read_text())["commands"]


def request(
    command: str | bytes | Sequence[str | bytes] = "npm test",
    permissions: Sequence[str] = (),
    persistent: bool = True,
    where: Any = WHERE,
    **more: Any,
) -> ApprovalRequest:
    said = assess_command_safety(command, where)
    decision = decide(said, Enforced.OUTSIDE, "on-escape", asked_for=", ".join(permissions))
    key = key_of(command, where, cwd="/work", policy="p", permissions=permissions)
    return request_of(command, said, decision, key, persistent=persistent, **more)


# How often an agent is stopped.


@pytest.mark.parametrize(("may_leave", "expected"), [(False, 1), (True, 2)])
def test_of_a_hundred_ordinary_commands_two_at_most_are_asked_about(
    may_leave: bool, expected: int
) -> None:
    assert len(COMMANDS) == 100
    asked = []
    for verdict, command in COMMANDS:
        said = assess_command_safety(command, WHERE)
        assert said.verdict == verdict, command
        decision = decide(said, Enforced.FULL, "on-escape", may_leave=may_leave)
        assert decision.action is not Action.DENY
        if decision.action is Action.ASK:
            asked.append(command)
    assert asked == ["docker ps", "rm -rf build"][2 - expected :]


@pytest.mark.parametrize("command", ["swift build", "cargo build", "npm test", "make -j8",
                                     "cargo build --release 2>&1 | tail -20"])  # fmt: skip
def test_builds_run_by_themselves(command: str) -> None:
    said = assess_command_safety(command, WHERE)
    for mode in ("on-escape", "never"):
        assert decide(said, Enforced.FULL, mode, may_leave=True).action is Action.ALLOW


def test_in_a_container_what_only_reads_runs_unasked() -> None:
    safe = [command for verdict, command in COMMANDS if verdict == "safe"]
    assert len(safe) > 20
    for command in safe:
        said = assess_command_safety(command, WHERE)
        assert decide(said, Enforced.WEAKER, "on-escape").action is Action.ALLOW


# What is shown.


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\x1b[2Jb", "a<U+001B>[2Jb"), ("a\u202eb", "a<U+202E>b"), ("a\u200bb", "a<U+200B>b"),
     ("a\rb", "a<U+000D>b"), ("a\tb", "a<U+0009>b"), ("a\xa0b", "a<U+00A0>b"), ("a\nb", "a\nb"),
     ("\u3164", "<U+3164>"), ("x\ufe0f", "x<U+FE0F>"), ("\U000e0100", "<U+E0100>"),
     ("naïve 字", "naïve 字"), ("\udcff", "<0xFF>"), ("\ud800", "<U+D800>")],
)  # fmt: skip
def test_dangerous_characters_are_made_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_nothing_that_is_shown_moves_a_cursor_or_is_unseen(text: str) -> None:
    shown = visible(text)
    for character in shown:
        assert character == "\n" or character.isprintable()
        assert unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp") or (
            character == "\n"
        )
    if text.isascii() and text.isprintable():
        assert shown == text


def test_a_request_shows_the_command_the_cause_and_what_would_be_allowed() -> None:
    made = request(
        "ls; rm -rf \u202ebuild", ("write /x",), allows=["--write /x\x1b"], evidence="e\a"
    )
    assert made.command == "ls; rm -rf <U+202E>build" and made.cwd == "/work"
    assert made.allows == ("--write /x<U+001B>",) and made.evidence == "e<U+0007>"
    made = request("ls; rm -rf build")
    assert made.verdict is Verdict.DANGEROUS
    (removal,) = [one for one in made.reasons if one.reason == "removal"]
    assert (removal.part, removal.why) == (
        "rm -rf build",
        "it removes files without asking: forced, or whole trees",
    )
    assert [one.ground for one in made.grounds] == [Ground.DANGEROUS, Ground.OUTSIDE]
    for command in (["rm", "-rf", "a b"], b"rm -rf 'a b'", "rm -rf 'a b'"):
        made = request(command)
        assert made.command == "rm -rf 'a b'" == made.reasons[0].part
    assert request(b"ls \xff").command == "ls <0xFF>"


# What is offered.


def offers(*args: Any, **more: Any) -> set[str]:
    made = request(*args, **more)
    assert bool(made.prefix) == (Choice.PREFIX in made.offers)
    found = {str(one) for one in made.offers}
    assert {"deny", "once", "session"} <= found
    return found - {"deny", "once", "session"}


def test_what_is_plain_and_harmless_may_be_offered_for_longer() -> None:
    assert offers("npm test -- -v") == {"prefix", "always"}
    assert request("npm test -- -v").prefix == ("npm", "test")
    assert offers("npm test 2>&1", persistent=False) == {"prefix"}
    assert offers(["git", "push", "origin", "main"], ("network full",)) == {"prefix", "always"}
    assert offers("npm ci && npm test") == {"always"}


@pytest.mark.parametrize(
    "command",
    ["rm -rf build", "git push --force", "python3 -c x", "bash x.sh", "env A=1 npm test", "git",
     "sudo ls", "docker ps", "A=1 npm test", "npm test $x", "npm test > f", "xargs npm test",
     "npm run", "npm test <<E\nE", "(npm test)", "npm test \u200b", "make", "timeout 5 npm test"],
)  # fmt: skip
def test_all_else_is_offered_once_or_for_the_session(command: str) -> None:
    assert offers(command) == set()


def test_what_commands_could_have_written_is_never_offered_for_good() -> None:
    assert offers("./gradlew test") == {"prefix"}
    assert offers("npm test", where=context(path=("/work", "/usr/bin"))) == {"prefix"}


def test_what_runs_without_a_sandbox_is_offered_for_no_more_than_itself() -> None:
    assert offers("npm test", (NO_SANDBOX,)) == set()


def test_a_rule_that_asks_is_not_answered_by_a_prefix() -> None:
    rules = Rules((Rule(("npm", "publish"), "ask", "others see it"),))
    assert offers("npm publish", where=context(rules=rules)) == set()


# Who answers.


def test_an_answer_that_was_offered_counts() -> None:
    made = request()
    for choice in set(Choice) - {Choice.WEAKER}:  # which is offered by itself
        given = Answer(choice, "me", "because")
        said = ask(FixedApprover(choice, "me"), made)
        assert said.choice is choice and said.who == "me" and said.failed is None
        assert said.prefix == (("npm", "test") if choice is Choice.PREFIX else ())
        assert said.ground is (Ground.REFUSED if choice is Choice.DENY else Ground.APPROVED)
        assert said.allows == (choice is not Choice.DENY)
        assert ask(approver_of(lambda _, given=given: given), made).why == "because"
        assert ask(approver_of(lambda _, choice=choice: choice), made).choice is choice


def test_where_there_is_nobody_it_is_denied_and_says_so() -> None:
    for said in (ask(None, request()), asyncio.run(ask_async(None, request()))):
        assert (said.choice, said.ground) == (Choice.DENY, Ground.NO_APPROVER)
        assert "nobody to ask" in said.why
    assert approver_of(None) is None


def raising(_: ApprovalRequest) -> Answer:
    raise ValueError("no\x1b[2J idea")


async def later(_: ApprovalRequest) -> str:
    return "once"


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("x")


NONSENSE: list[tuple[Any, str]] = [
    (raising, "ValueError: no<U+001B>[2J idea"),
    (lambda _: None, "NoneType"),
    (lambda _: True, "bool"),
    (lambda _: 1, "int"),
    (lambda _: "yes", "'yes' is not a valid Choice"),
    (lambda _: "", "ValueError"),
    (lambda _: Hostile(), "Hostile"),
    (lambda _: ("once", "me"), "tuple"),
    (lambda _: Answer("once", "me"), "no answer"),  # type: ignore[arg-type]
    (lambda _: Answer(Choice.ALWAYS, "me"), "was not offered"),
    (lambda _: Answer(Choice.PREFIX, "me", prefix=("npm",)), "prefix that was not offered"),
    (lambda _: Answer(Choice.ONCE, "me", prefix=("npm",)), "prefix that was not offered"),
    (lambda _: Answer(Choice.ONCE, None), "in words"),  # type: ignore[arg-type]
    (lambda _: Answer(Choice.ONCE, "me", failed=Ground.REFUSED), "says that it failed"),
    (lambda a, b: Choice.ONCE, "TypeError"),
]


@pytest.mark.parametrize(("call", "cause"), NONSENSE)
def test_whatever_is_no_answer_that_was_offered_is_a_denial_with_its_cause(
    call: Any, cause: str
) -> None:
    made = request(persistent=False)
    approver = approver_of(call)
    for said in (ask(approver, made), asyncio.run(ask_async(approver, made))):
        assert (said.choice, said.ground) == (Choice.DENY, Ground.APPROVER_FAILED)
        assert cause in said.why and not said.allows


def test_an_approver_may_be_asynchronous_where_the_session_is() -> None:
    assert asyncio.run(ask_async(CallbackApprover(later), request())).choice is Choice.ONCE
    said = ask(CallbackApprover(later), request())
    assert said.ground is Ground.APPROVER_FAILED and "asynchronous" in said.why

    class Own:
        async def ask(self, request: ApprovalRequest) -> Answer:
            return Answer(Choice.SESSION, request.cwd)

    assert asyncio.run(ask_async(approver_of(Own()), request())).choice is Choice.SESSION
    assert ask(approver_of(Own()), request()).choice is Choice.DENY


def test_an_approver_that_blocks_does_not_stop_the_loop() -> None:
    async def both() -> list[str]:
        order: list[str] = []

        def slowly(_: ApprovalRequest) -> Choice:
            ready.result(timeout=20)
            order.append("answered")
            return Choice.ONCE

        import concurrent.futures

        ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        task = asyncio.create_task(ask_async(approver_of(slowly), request()))
        await asyncio.sleep(0)
        order.append("meanwhile")
        ready.set_result(None)
        assert (await task).choice is Choice.ONCE
        return order

    assert asyncio.run(both()) == ["meanwhile", "answered"]


def test_what_ends_the_program_is_not_taken_for_an_answer() -> None:
    def stopped(_: ApprovalRequest) -> Answer:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(approver_of(stopped), request())


def test_only_what_can_be_asked_is_an_approver() -> None:
    own = FixedApprover("once")
    assert approver_of(own) is own
    with pytest.raises(TypeError):
        approver_of("once")  # type: ignore[arg-type]


# The terminal.


def prompted(typed: str, made: ApprovalRequest | None = None) -> tuple[Answer, str]:
    screen = io.StringIO()
    said = ask(TerminalApprover(io.StringIO(typed), screen), made or request())
    return said, screen.getvalue()


@pytest.mark.parametrize(
    ("typed", "choice"),
    [("y\n", "once"), ("s\n", "session"), ("p\n", "prefix"), ("a\n", "always"), ("n\n", "deny"),
     (" Y \n", "once"), ("", "deny"), ("\n\n\n", "deny"), ("yes\nx\nq\n", "deny"),
     ("?\ny\n", "once"), ("once\nsession\nalways\ny\n", "deny"), ("y", "once")],
)  # fmt: skip
def test_one_key_and_enter_answer_and_all_else_is_no(typed: str, choice: str) -> None:
    said, _ = prompted(typed)
    assert said.choice == choice and said.failed is None and said.who


def test_keys_that_are_not_offered_are_none() -> None:
    said, shown = prompted("a\np\ny\n", request("rm -rf x"))
    assert said.choice is Choice.ONCE
    assert "p  yes" not in shown and "a  yes" not in shown and "y/s? " in shown.replace("n/", "")


def test_an_interrupt_is_a_no() -> None:
    class Interrupted(io.StringIO):
        def readline(self, *_: Any) -> str:
            raise KeyboardInterrupt

    said = ask(TerminalApprover(Interrupted(), io.StringIO()), request())
    assert (said.choice, said.why) == (Choice.DENY, "interrupted")


def test_no_line_of_a_command_looks_like_one_of_the_prompt() -> None:
    forged = "echo x\nsandbox: y/n? y\n  y  yes, this once" + " " * 300 + "sandbox: fine\n字" * 40
    made = request(
        forged, ("write /x\nsandbox: no",), allows=["a\nsandbox: b"], evidence="c\nsandbox: d"
    )
    _, shown = prompted("n\n", replace(made, cwd="/work\nsandbox: e"))
    lines = shown.split("\n")
    ours = [line for line in lines if line.startswith("sandbox: ")]
    assert not any("fine" in line or line.endswith((": b", ": d", ": e")) for line in ours)
    keys = [line for line in lines if line.startswith("  ") and not line.startswith("  | ")]
    assert len(keys) == len(made.offers)
    assert all(len(line) <= 80 for line in lines)


def test_the_prompt_says_why_and_what_would_be_allowed() -> None:
    made = request("git push origin main", ("network full",), allows=["--network full"],
                   evidence="known from its own output, which it can forge")  # fmt: skip
    _, shown = prompted("n\n", made)
    for part in ("git push origin main", "/work", "it asks for more than the policy allows",
                 "--network full", "which it can forge", "git push\n"):  # fmt: skip
        assert part in shown


def test_a_command_that_is_too_long_to_be_shown_is_not_asked_about() -> None:
    said, shown = prompted("y\n", request("echo\n" * 200))
    assert said.choice is Choice.DENY and "too long" in said.why and "y/" not in shown
    said, shown = prompted("y\n", request(f"echo {'x' * 4000}"))
    assert said.choice is Choice.ONCE and shown.replace("\n  | ", "").count("x" * 4000) == 1
    many = request("; ".join(f"rm -rf {'y' * 500}{at}" for at in range(8)))
    said, shown = prompted("y\n", many)
    assert said.choice is Choice.ONCE and shown.count("\n") <= 101
    said, _ = prompted("y\n", request("ls", allows=["write /x"] * 200))
    assert said.choice is Choice.DENY


def test_what_was_typed_before_the_question_is_no_answer() -> None:
    """An agent cannot type, but a person may have, before there was anything to read."""
    child, terminal = pty.fork()
    if child == 0:
        try:
            os.read(0, 1)  # until the typing below is in the queue
            said = ask(TerminalApprover(), request())
            os.write(1, f"answer {said.choice} {said.why}\n".encode())
        finally:
            os._exit(0)
    try:
        os.write(terminal, b"x\ny\ny\ny\n")
        shown = b""
        while b"? " not in shown:
            shown += os.read(terminal, 1000)
        os.write(terminal, b"n\n")
        while b"answer" not in shown or not shown.endswith(b"\n"):
            shown += os.read(terminal, 1000)
        assert b"answer deny \r\n" in shown and shown.count(b"y/") == 1, shown
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def test_without_a_terminal_it_is_denied() -> None:
    child, terminal = pty.fork()
    if child == 0:
        try:
            if os.fork() == 0:
                os.setsid()  # no terminal
                said = ask(TerminalApprover(), request())
                os.write(1, f"answer {said.choice} {said.failed}\n".encode())
                os._exit(0)
            os.wait()
        finally:
            os._exit(0)
    try:
        shown = os.read(terminal, 1000)
        assert shown == b"answer deny approver-failed\r\n"
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
