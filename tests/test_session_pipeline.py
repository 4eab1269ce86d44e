"""A tool call from its words to its last record: what is asked, what runs, what is on record."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import AsUser
from scenekit import play, scenes, until
from sessionkit import Asked, Place, kinds

from sandbox import Limits, full_access
from sandbox.command import HELPERS_OFF, Verdict
from sandbox.command.rules import Rule
from sandbox.denial import Denial, DenialKind, Evidence, Grant
from sandbox.errors import InvalidArgument, PolicyError, RecordsLost, SandboxLost, StartError
from sandbox.result import Enforcement, Result, Usage
from sandbox.session import (
    Answer,
    ApprovalRequest,
    Choice,
    Session,
    ToolCall,
    ToolResult,
    process_exec_tool_call,
)
from sandbox.session.decide import Ground
from sandbox.session.pipeline import Ask, Run, flow

REFUSED = "touch: cannot touch '{}': Read-only file system\n"


@pytest.fixture
def here(far: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("SANDBOX_ISOLATION", "auto")
    return Place(far)


@pytest.fixture(params=["auto", "landlock"])
def both(request: pytest.FixtureRequest, far: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("SANDBOX_ISOLATION", request.param)
    return Place(far)


def ended(status: int = 0, err: bytes = b"", denials: tuple[Denial, ...] = ()) -> Result:
    """What a command that was not run has as its result."""
    return Result(
        ("x",), status, None, False, b"out\n", err, 0, 0, 0.1, Usage(), Enforcement("namespaces"),
        denials,
    )  # fmt: skip


def denied(path: Path, evidence: Evidence = Evidence.MOUNT) -> Denial:
    return Denial(DenialKind.WRITE, str(path), evidence, "read: /", Grant.one("write", str(path)))


class Driven:
    """The steps of a call, done by hand: answers and results are the test's, nothing runs."""

    def __init__(self, session: Session, call: ToolCall | str) -> None:
        self._steps = flow(session, call if isinstance(call, ToolCall) else ToolCall(call))
        self.todo: Ask | Run | None = None
        self.told: ToolResult | None = None
        self._on(lambda: next(self._steps))

    def send(self, what: Any) -> Driven:
        self._on(lambda: self._steps.send(what))
        return self

    def throw(self, error: BaseException) -> Driven:
        self._on(lambda: self._steps.throw(error))
        return self

    def _on(self, step: Callable[[], Ask | Run]) -> None:
        try:
            self.todo = step()
        except StopIteration as stop:
            self.todo, self.told = None, stop.value

    @property
    def asks(self) -> ApprovalRequest:
        assert isinstance(self.todo, Ask), self.todo
        return self.todo.request

    @property
    def runs(self) -> Run:
        assert isinstance(self.todo, Run), self.todo
        return self.todo

    @property
    def over(self) -> ToolResult:
        assert self.told is not None, self.todo
        return self.told


YES, NO = Answer(Choice.ONCE, "me"), Answer(Choice.DENY, "me", "not today")


# By hand.


def test_what_is_safe_or_confined_runs_at_once(here: Place) -> None:
    with here.session() as session:
        for text, verdict in (("ls", Verdict.SAFE), ("make all", Verdict.UNKNOWN)):
            call = Driven(session, text)
            assert (call.runs.args, call.runs.box) == (text, session.boxes.base)
            told = call.send(ended()).over
            assert told.ok and told.attempts == 1 and told.assessment.verdict is verdict


def test_what_is_dangerous_waits_for_its_answer(here: Place) -> None:
    with here.session() as session:
        call = Driven(session, "rm -rf build")
        assert [one.ground for one in call.asks.grounds] == [Ground.DANGEROUS]
        assert kinds(here.records()) == ["session", "assessment"]
        told = call.send(NO).over
        assert (told.status, told.attempts, told.result) == ("denied", 0, None)
        assert told.why == "whoever was asked refused it: not today"
        assert Driven(session, "rm -rf build").send(YES).runs.args == "rm -rf build"


def test_a_failure_that_was_no_denial_asks_nobody(here: Place) -> None:
    with here.session(unsandboxed=True) as session:
        told = Driven(session, "make").send(ended(2, b"make: error 2\n")).over
        assert (told.attempts, told.exit_status, told.not_retried) == (1, 2, "")
        swept = replace(denied(here.out), change="changed")
        assert Driven(session, "make").send(ended(2, denials=(swept,))).over.attempts == 1
        well = Driven(session, "make").send(ended(0, denials=(denied(here.out),)))
        assert well.over.attempts == 1  # it ended well without


def test_a_denial_is_offered_and_the_retry_is_the_last(here: Place) -> None:
    with here.session() as session:
        call = Driven(session, "make").send(ended(1, denials=(denied(here.out),)))
        assert call.asks.allows == (f"write {here.out}",)
        assert "anew" in call.asks.evidence and "only from" not in call.asks.evidence
        assert call.send(YES).runs.box.resolved.access(str(here.out)) == "write"
        told = call.send(ended(1, denials=(denied(here.top),))).over
        assert (told.attempts, told.denials) == (2, (denied(here.top),))
        assert told.not_retried == ""


def test_who_refuses_a_retry_is_quoted(here: Place) -> None:
    with here.session() as session:
        call = Driven(session, "make").send(ended(1, denials=(denied(here.out),)))
        told = call.send(NO).over
        assert (told.status, told.attempts, told.exit_status) == ("ran", 1, 1)
        assert told.not_retried == "whoever was asked refused it: not today"
        assert "Not retried with more: whoever was asked refused it: not today" in told.text


def test_a_guess_is_shown_as_one_and_is_answered_by_nobody_but_a_person(here: Place) -> None:
    """An approval for the session answers for what is certain, and for a guess never."""
    with here.session() as session:
        certain = ended(1, denials=(denied(here.out),))
        guess = ended(1, denials=(denied(here.out, Evidence.MESSAGE),))
        for_session = Answer(Choice.SESSION, "me")
        Driven(session, "make").send(certain).send(for_session).send(ended())
        assert Driven(session, "make").send(certain).runs.box is not session.boxes.base
        call = Driven(session, "make").send(guess)
        assert "only from what the command printed" in call.asks.evidence
        mixed = ended(1, denials=(denied(here.out), denied(here.top, Evidence.MESSAGE)))
        assert (
            "only from what the command printed"
            in Driven(session, "make").send(mixed).asks.evidence
        )


def test_a_call_keeps_what_it_was_given_in_its_retry(here: Place) -> None:
    """And what is remembered, shown and recorded is all of it."""
    first, more = f"write {here.out}", f"write {here.top}"
    with here.session() as session:
        given = ToolCall("make", grant=Grant.one("write", str(here.out)))
        call = Driven(session, given)
        assert call.asks.allows == (first,)
        call.send(Answer(Choice.SESSION, "me")).send(ended(1, denials=(denied(here.top),)))
        assert call.asks.allows == (first, more)
        box = call.send(Answer(Choice.SESSION, "me")).runs.box
        assert {box.resolved.access(str(path)) for path in (here.out, here.top)} == {"write"}
        call.send(ended())
        # Who asks for the second alone was not answered.
        other = Driven(session, "make").send(ended(1, denials=(denied(here.top),)))
        assert other.asks.allows == (more,)
        again = Driven(session, given).send(ended(1, denials=(denied(here.top),)))
        assert again.runs.box is box
    assert [one["permissions"] for one in here.records("spawn")] == [
        "wider", "wider", "sandboxed", "wider", "wider",
    ]  # fmt: skip


def test_without_a_sandbox_it_is_so_in_the_retry_too(here: Place) -> None:
    limits = Limits(memory=1 << 26)
    grant = Grant.one("memory", 1 << 27)
    limit = Denial(DenialKind.LIMIT, "memory", Evidence.KERNEL, "limit memory", grant)
    with here.session(here.policy().with_limits(limits), unsandboxed=True) as session:
        call = Driven(session, ToolCall("make", unsandboxed=True))
        assert call.asks.allows == ("no sandbox",) and Choice.PREFIX not in call.asks.offers
        call.send(YES).send(ended(1, denials=(limit,)))
        assert call.asks.allows == ("no sandbox", f"memory {1 << 27}")
        assert Choice.PREFIX not in call.asks.offers
        assert call.send(YES).runs.box.policy.limits.memory == 1 << 27
        call.send(ended())
    assert [one["permissions"] for one in here.records("spawn")] == ["unsandboxed"] * 2


def test_a_lost_sandbox_and_a_command_that_does_not_start_are_told_apart_from_a_run(
    here: Place,
) -> None:
    with here.session() as session:
        error = StartError("exec", 2, "/bin/nothing", "no such file")
        lost = SandboxLost("it ended its own sandbox")
        for one, status, text in (
            (error, "not-started", "Not run: "),
            (lost, "lost", "Ended with its sandbox, and what it did before stays: "),
        ):
            told = Driven(session, "make").throw(one).over
            assert (told.status, told.error) == (status, one)
            assert told.text.startswith(text)
    assert [one["returncode"] for one in here.records("exit")] == [None, None]


def test_who_interrupts_leaves_the_end_on_record_and_no_word_of_why(here: Place) -> None:
    """What an exception of the program says may be anything."""
    with here.session() as session:
        for error in (KeyboardInterrupt(), ValueError("marked-output")):
            with pytest.raises(type(error)):
                Driven(session, "make").throw(error)
        assert session._watching is None
    found = here.records("spawn", "exit")
    assert kinds(found) == ["spawn", "exit"] * 2
    assert [one["error"] for one in found[1::2]] == [
        "interrupted: KeyboardInterrupt", "interrupted: ValueError",
    ]  # fmt: skip
    assert b"marked" not in logged(here)


def test_steps_that_are_given_up_leave_the_end_on_record(here: Place) -> None:
    with here.session() as session:
        steps = flow(session, ToolCall("make"))
        next(steps)
        steps.close()
    assert here.records("exit")[0]["error"] == "interrupted: GeneratorExit"


@pytest.mark.parametrize("mode", ["on-escape", "untrusted", "never"])
@pytest.mark.parametrize(
    ("text", "rules", "on_escape", "untrusted", "never"),
    [
        ("ls", (), "run", "run", "run"),
        ("make", (), "run", "ask", "run"),
        ("rm -rf x", (), "ask", "ask", "denied"),
        ("make", (Rule(("make",), "forbid", "not here"),), "denied", "denied", "denied"),
        ("make", (Rule(("make",), "ask", "have a look"),), "ask", "ask", "denied"),
        ("make", (Rule(("make",), "allow", "always"),), "run", "run", "run"),
    ],
    ids=["safe", "unknown", "dangerous", "forbidden", "rule-asks", "rule-allows"],
)
def test_the_modes(
    text: str,
    rules: tuple[Rule, ...],
    on_escape: str,
    untrusted: str,
    never: str,
    mode: Any,
    here: Place,
) -> None:
    expected = {"on-escape": on_escape, "untrusted": untrusted, "never": never}[mode]
    if rules and rules[0].decision == "allow" and not os.access("/usr/bin/make", os.X_OK):
        pytest.skip("needs /usr/bin/make: an allowance is for a program that is there")
    with here.session(rules=rules, approval=mode) as session:
        call = Driven(session, text)
        found = {Ask: "ask", Run: "run", type(None): "denied"}[type(call.todo)]
        assert found == expected
        if found == "denied":
            reason = "not here" if rules and rules[0].decision == "forbid" else "`never`"
            assert reason in call.over.why and call.over.exit_status == 126
            assert call.over.text.startswith("Denied: ")
        if found == "ask" and rules:
            assert "have a look" in str(call.asks.grounds[0])


def test_never_does_not_offer(here: Place) -> None:
    with here.session(approval="never") as session:
        told = Driven(session, "make").send(ended(1, denials=(denied(here.out),))).over
        assert told.attempts == 1 and "`never`" in told.not_retried
    assert kinds(here.records())[-3:] == ["escalation", "escalation", "end"]


def test_no_rule_allows_more_than_the_policy(here: Place) -> None:
    rules = (Rule(("ls",), "allow", "always"),)
    with here.session(rules=rules) as session:
        assert Driven(session, ToolCall("ls", grant=Grant.one("write", str(here.out)))).asks
        assert Driven(session, "ls").send(ended(1, denials=(denied(here.out),))).asks


# What git is promised.


@pytest.mark.parametrize("text", [
    "git status", "g'i't status", '"git" status', "git  log --no-ext-diff", "ls && g''it status",
])  # fmt: skip
def test_what_is_safe_for_the_helpers_that_are_off_has_them_off_however_it_is_quoted(
    text: str, here: Place
) -> None:
    with here.session(approval="untrusted") as session:
        call = Driven(session, text)
        assert call.runs.how["env"].items() >= HELPERS_OFF.items()
        assert call.send(ended()).over.assessment.verdict is Verdict.SAFE
        other = Driven(session, "ls")
        assert "env" not in other.runs.how  # the control


def test_what_stands_beside_an_approved_prefix_has_them_off_too(here: Place) -> None:
    with here.session(approval="untrusted") as session:
        call = Driven(session, "touch a")
        prefix = call.asks.prefix
        call.send(Answer(Choice.PREFIX, "me", prefix=prefix)).send(ended())
        beside = Driven(session, " ".join(prefix) + " && git status")
        assert beside.runs.how["env"].items() >= HELPERS_OFF.items()
        assert "env" not in Driven(session, " ".join(prefix)).runs.how  # the control


# What is remembered.


@pytest.mark.parametrize("choice", ["once", "session", "prefix"])
def test_an_approval_is_for_as_long_as_it_says(choice: str, here: Place) -> None:
    asked = Asked(choice)
    with here.session(approver=asked, approval="untrusted") as session:
        for text in ("mkdir a", "mkdir a", "mkdir 'a'", "mkdir b"):
            process_exec_tool_call(text, session)
        if choice == "prefix" and not asked.requests[0].prefix:
            pytest.skip("no prefix is offered for this")
        expected = {"once": 4, "session": 2, "prefix": len(asked)}[choice]
        assert len(asked) == expected
        entries = session.trust.entries()
        assert bool(entries) is (choice != "once")
    assert session.trust.entries() == ()
    with here.session(approver=asked, approval="untrusted") as session:
        process_exec_tool_call("mkdir a", session)
    assert len(asked) == expected + 1  # forgotten with the session


def test_a_prefix_answers_for_what_begins_so(here: Place) -> None:
    with here.session(approval="untrusted") as session:
        call = Driven(session, "touch a")
        prefix = call.asks.prefix
        call.send(Answer(Choice.PREFIX, "me", prefix=prefix)).send(ended())
        same = Driven(session, " ".join([*prefix, "b"]))
        assert same.send(ended()).over.decision.grounds[0].ground is Ground.TRUSTED_PREFIX
        assert Driven(session, "mkdir a").asks


def test_variables_of_a_call_are_part_of_what_was_approved(here: Place) -> None:
    """By their values, which are nowhere to be read; also such as are no text."""
    with here.session() as session:
        for env in ({"A": "marked-1"}, {"A": "marked-2"}, {"A": os.fsdecode(b"\xff-marked")}, None):
            call = Driven(session, ToolCall("rm -rf x", env=env))
            call.asks  # noqa: B018 - that it asks
            call.send(Answer(Choice.SESSION, "me")).send(ended())
            again = Driven(session, ToolCall("rm -rf x", env=env))
            assert again.send(ended()).over.decision.grounds[0].ground is Ground.TRUSTED_EXACT
        for entry in session.trust.entries():
            assert "marked" not in str(entry)
    assert b"marked" not in logged(here)


def test_a_directory_is_what_it_leads_to(here: Place) -> None:
    """Or who may write a link moves what was approved to another place."""
    one, two = here.work / "one", here.work / "two"
    one.mkdir()
    two.mkdir()
    link = here.work / "link"
    link.symlink_to("one")
    with here.session() as session:
        call = Driven(session, ToolCall("rm -rf x", cwd="link"))
        assert call.asks.cwd == str(one)
        assert call.send(Answer(Choice.SESSION, "me")).runs.how["cwd"] == str(one)
        call.send(ended())
        link.unlink()
        link.symlink_to("two")
        assert Driven(session, ToolCall("rm -rf x", cwd="link")).asks.cwd == str(two)
        assert Driven(session, ToolCall("rm -rf x", cwd="link/../one")).runs
        assert Driven(session, ToolCall("rm -rf x", cwd="..")).asks.cwd == str(here.top)


# Who is asked.


def raising(request: ApprovalRequest) -> Any:
    raise RuntimeError("out of order")


@pytest.mark.parametrize(
    ("approver", "why"),
    [
        (None, "there is nobody to ask"),
        (raising, "the approver raised RuntimeError: out of order"),
        (lambda request: None, "which is no answer"),
        (lambda request: "always", "was not offered"),
        (lambda request: True, "which is no answer"),
    ],
)
def test_nothing_but_an_answer_that_was_offered_lets_it_run(
    approver: Any, why: str, here: Place
) -> None:
    (here.work / "x").mkdir()
    with here.session(approver=approver) as session:
        told = process_exec_tool_call("rm -rf x", session)
        assert told.status == "denied" and why in told.why and why in told.text
        assert (here.work / "x").exists()
    assert here.records("approval")[0]["answer"] == "deny"
    assert here.records("spawn") == []


def test_an_approver_that_is_interrupted_lets_nothing_run(here: Place) -> None:
    (here.work / "x").mkdir()
    with (
        here.session(approver=Asked(KeyboardInterrupt())) as session,
        pytest.raises(KeyboardInterrupt),
    ):
        process_exec_tool_call("rm -rf x", session)
    assert (here.work / "x").exists() and here.records("spawn") == []


def test_what_is_run_is_what_was_asked_about(here: Place) -> None:
    """Whoever is asked, and whoever holds the list, cannot change it meanwhile."""
    words = ["rm", "-rf", "x"]
    env = {"A": "1"}
    call = ToolCall(words, env=env)
    with here.session() as session:
        driven = Driven(session, call)
        driven.asks  # noqa: B018 - that it asks
        words[:] = ["touch", "y"]
        env["A"] = "2"
        run = driven.send(YES).runs
        assert tuple(run.args) == ("rm", "-rf", "x") and run.how["env"] == {"A": "1"}


def test_a_session_that_is_closed_while_somebody_is_asked_runs_nothing_more(here: Place) -> None:
    with here.session() as session:
        first = Driven(session, "rm -rf x")
        second = Driven(session, "make").send(ended(1, denials=(denied(here.out),)))
        session.close()
        told = first.send(YES)
        if told.told is None:
            assert first.runs.box.resolved.access(str(here.out)) != "write"
            with pytest.raises(PolicyError):
                first.runs.box.run("true")
        retried = second.send(YES).over
        assert retried.attempts == 2 and "was closed" in str(retried.error)
        assert not session.boxes._wider
    with pytest.raises(InvalidArgument, match="was closed"):
        process_exec_tool_call("ls", session)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ToolCall([]),
        lambda: ToolCall("a\0b"),
        lambda: ToolCall(b"ls"),  # type: ignore[arg-type]
        lambda: ToolCall(["ls", 3]),  # type: ignore[list-item]
        lambda: ToolCall("ls", unsandboxed=True, grant=Grant.one("read", "/x")),
        lambda: ToolCall("ls", justification=3),  # type: ignore[arg-type]
        lambda: ToolCall("ls", env={"A=B": "1"}),
        lambda: ToolCall("ls", grant=Grant.one("bogus", 1)),
        lambda: ToolCall("ls", grant=Grant.one("write", "relative")),
    ],
)
def test_a_call_that_means_nothing_is_its_callers_fault(
    call: Callable[[], ToolCall], here: Place
) -> None:
    asked = Asked("once")
    with here.session(approver=asked) as session, pytest.raises(PolicyError):
        process_exec_tool_call(call(), session)
    assert not len(asked) and here.records("spawn", "exit") == []


# Live.


def test_calls_are_run_asked_about_and_refused(both: Place) -> None:
    asked = Asked("deny", "once")
    with both.session(approver=asked, rules=(Rule(("dd",), "forbid", "not here"),)) as session:
        (both.work / "x").mkdir()
        assert process_exec_tool_call("ls", session).result.out == "x\n"
        made = process_exec_tool_call("echo hi > a; cat a", session)
        assert made.ok and "hi\n" in made.text
        assert process_exec_tool_call("rm -rf x", session).status == "denied"
        assert (both.work / "x").exists()
        assert process_exec_tool_call("rm -rf x", session).ok and not (both.work / "x").exists()
        assert process_exec_tool_call("dd if=/dev/zero of=b", session).status == "denied"
        assert process_exec_tool_call("exit 3", session).exit_status == 3
    assert len(asked) == 2
    assert kinds(both.records()) == [
        "session",
        *("assessment", "spawn", "exit") * 2,
        *("assessment", "approval"),
        *("assessment", "approval", "spawn", "exit"),
        "assessment",
        *("assessment", "spawn", "exit"),
        "end",
    ]
    both.verified()


def test_what_only_its_own_output_tells_of_is_shown_as_that_to_whoever_approves(
    both: Place,
) -> None:
    """A command may print what it likes: nothing remembered answers, and no rule."""
    asked = Asked("session", "deny")
    path = both.out / "made-up"
    said = (
        REFUSED.format(path)
        if both_spaces()
        else REFUSED.format(path).replace("Read-only file system", "Permission denied")
    )
    call = ToolCall(["sh", "-c", 'printf "%s" "$1" >&2; exit 1', "sh", said])
    rules = (Rule(("sh",), "allow", "always"),)
    with both.session(approver=asked, rules=rules) as session:
        first = process_exec_tool_call(call, session)
        assert (first.attempts, len(asked)) == (2, 1)
        assert "known only from what the command printed" in asked.last.evidence
        assert asked.last.allows == (f"write {both.out}",)
        second = process_exec_tool_call(call, session)
        assert (second.attempts, len(asked)) == (1, 2)
        assert "Probably refused by the sandbox: write" in second.text
    found = both.records("escalation")
    assert [one["cause"] for one in found] == ["denial", "approved", "denial", "refused"]
    assert found[0]["difference"] == [f"+ write {both.out}"]
    assert found[0]["old_policy"] != found[0]["new_policy"]


def both_spaces() -> bool:
    return os.environ["SANDBOX_ISOLATION"] == "auto"


def test_a_retry_whose_sandbox_cannot_be_made_leaves_the_first_result(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_ISOLATION", "landlock")
    (here.out / "secret").write_text("marked")
    policy = here.policy(
        deny=[here.out / "secret"]
    )  # Landlock takes nothing out of what is written
    with here.session(policy, Asked("once")) as session:
        told = process_exec_tool_call(f"echo first; touch {here.out}/new", session)
    assert (told.status, told.attempts, told.exit_status) == ("ran", 2, 1)
    assert told.result is not None and told.result.out == "first\n"
    assert "It was to be run again with more, and was not" in told.text
    assert kinds(here.records())[-5:] == ["escalation", "approval", "escalation", "exit", "end"]
    assert "Unenforceable" in here.records("exit")[-1]["error"]


def test_a_call_may_ask_for_a_grant_or_for_no_sandbox(here: Place) -> None:
    write = f"touch {here.out}/a && rm {here.out}/a"
    grant = Grant.one("write", str(here.out))
    for unsandboxed in (False, True):
        asked = Asked("once")
        with here.session(approver=asked, unsandboxed=unsandboxed) as session:
            told = process_exec_tool_call(
                ToolCall(write, grant=grant, justification="I \x1b[31mneed it"), session
            )
            assert told.ok and told.attempts == 1 and asked.last.allows == (f"write {here.out}",)
            assert asked.last.justification == "I <U+001B>[31mneed it"
            free = process_exec_tool_call(ToolCall(write, unsandboxed=True), session)
            assert free.ok is unsandboxed and len(asked) == 1 + unsandboxed
            if unsandboxed:
                assert asked.last.allows == ("no sandbox",)
            else:
                assert "approval.unsandboxed" in free.why
    rights = [one["permissions"] for one in here.records("spawn")]
    assert rights == ["wider", "wider", "unsandboxed"]


def test_what_works_only_outside_is_asked_for_where_it_may_leave(here: Place) -> None:
    """Where it may not, it runs confined."""
    with here.session() as session:
        assert Driven(session, "sudo true").runs.box is session.boxes.base
    with here.session(unsandboxed=True) as session:
        call = Driven(session, "sudo true")
        assert call.asks.allows == ("no sandbox",)
        assert call.send(YES).runs.box is not session.boxes.base


def test_full_access_asks_only_for_what_is_dangerous(here: Place) -> None:
    asked = Asked("once")
    with here.session(full_access(), asked) as session:
        assert process_exec_tool_call(f"touch {here.out}/a", session).ok and not len(asked)
        for call in (
            ToolCall("true", unsandboxed=True),
            ToolCall("true", grant=Grant.one("write", str(here.out))),
        ):
            assert process_exec_tool_call(call, session).ok and not len(asked)
        assert process_exec_tool_call("rm -rf x", session).ok and len(asked) == 1
    assert {one["mode"] for one in here.records("spawn", "session")} == {"full-access"}


def test_parts_that_are_weaker_are_asked_about_once_for_the_session(
    far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_ISOLATION", "landlock")
    place, asked = Place(far), Asked("session", "weaker", "weaker")
    policy = place.policy().with_accept(None)
    with place.session(policy, asked) as session:
        assert process_exec_tool_call("ls", session).ok and not len(asked)
        assert process_exec_tool_call("touch a", session).ok and len(asked) == 1
        assert any("is not enforced" in line for line in asked.last.allows)
        assert process_exec_tool_call("touch a", session).ok and len(asked) == 1
        assert process_exec_tool_call("touch b", session).ok and len(asked) == 2
        assert process_exec_tool_call("touch c", session).ok and len(asked) == 2
        session.trust.clear()
        assert process_exec_tool_call("touch c", session).ok and len(asked) == 3


# Records.


def logged(here: Place) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(here.log.iterdir()))


def test_no_value_of_a_variable_is_in_the_log_and_every_name_is(both: Place) -> None:
    """Nor what a command read, printed, or was told by whom it ran for; its words are."""
    secret, policy = "marked-value", both.policy()
    environment = replace(policy.environment, set=(("FROM_POLICY", secret),))
    (both.work / "kept").write_text(secret)
    call = ToolCall(
        ["sh", "-c", 'echo "$FROM_CALL$FROM_POLICY"; cat - kept; echo "$FROM_CALL" >&2; exit 1'],
        env={"FROM_CALL": secret},
        input=secret,
    )
    with both.session(policy.with_environment(environment)) as session:
        told = process_exec_tool_call(call, session)
        assert told.result is not None and told.result.out.count(secret) == 4
        assert secret in told.result.err
    assert secret.encode() not in logged(both)
    spawn, exit = both.records("spawn", "exit")
    assert {"FROM_CALL", "FROM_POLICY", "PATH", "HOME"} <= set(spawn["environment"])
    for stream, row in ((told.result.stdout, exit["stdout"]), (told.result.stderr, exit["stderr"])):
        assert row == {
            "bytes": len(stream),
            "sha256": hashlib.sha256(stream).hexdigest(),
            "truncated": 0,
        }
    assert spawn["argv"] == list(call.command) and exit["returncode"] == 1


def test_of_output_beyond_the_limit_the_digest_is_of_what_was_kept(here: Place) -> None:
    limits = Limits(output=1000)
    with here.session(here.policy().with_limits(limits)) as session:
        told = process_exec_tool_call("seq 1000", session)
    assert told.result is not None
    row = here.records("exit")[0]["stdout"]
    assert (row["bytes"], row["truncated"]) == (3893, 2893)
    assert row["sha256"] == hashlib.sha256(told.result.stdout).hexdigest()


def test_records_are_there_before_what_they_tell_of(here: Place) -> None:
    """The approval while it is asked for is not; what led to it is. The run is, before it."""
    seen: list[list[str]] = []

    def look(request: ApprovalRequest) -> str:
        seen.append(kinds(here.records()))
        return "once"

    with here.session(approver=look) as session:
        process_exec_tool_call(f"touch {here.out}/new", session)
        assert seen == [["session", "assessment", "spawn", "exit", "escalation"]]
        call = Driven(session, "rm -rf y")
        call.send(YES).runs  # noqa: B018 - that it would run now
        assert kinds(here.records())[-3:] == ["assessment", "approval", "spawn"]
        call.send(ended())
    assert kinds(here.records()) == [
        "session",
        *("assessment", "spawn", "exit", "escalation", "approval", "escalation", "spawn", "exit"),
        *("assessment", "approval", "spawn", "exit"),
        "end",
    ]
    approval = here.records("approval")[0]
    assert approval["grant"] == f"write {here.out}" and approval["who"] == "the program"
    assert approval["seconds"] >= 0 and "more than the policy allows" in approval["reasons"][0]
    attempts = [(one["attempt"], one["permissions"]) for one in here.records("spawn")]
    assert attempts == [(1, "sandboxed"), (2, "wider"), (1, "sandboxed")]


KILLED = """
import sys; from pathlib import Path
from sessionkit import Place
from sandbox.session import process_exec_tool_call
with Place(Path(sys.argv[1])).session() as session:
    process_exec_tool_call("echo > started; sleep 60", session)
"""


def test_who_is_killed_with_its_command_leaves_the_start_on_record(both: Place) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", KILLED, str(both.top)], env=environment) as child:
        until(lambda: (both.work / "started").exists(), 20)
        child.kill()
    assert kinds(both.records()) == ["session", "assessment", "spawn"]
    with both.session() as session:
        assert process_exec_tool_call("true", session).ok
    both.verified()


def test_a_command_that_is_killed_is_told_as_that(here: Place) -> None:
    with here.session() as session:
        told = process_exec_tool_call("kill -9 $$", session)
    assert told.exit_status == 137 and "SIGKILL" in told.text
    assert here.records("exit")[0]["signal"] == signal.SIGKILL


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small file system")
def test_a_full_disk_ends_the_session(here: Place) -> None:
    """Nothing runs that cannot be recorded."""
    here.log.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "x", here.log], check=True)
    try:
        with pytest.raises(RecordsLost), here.session() as session:
            ended_in_records_lost(here, session)
    finally:
        subprocess.run(["umount", "-l", here.log], check=True)


def ended_in_records_lost(here: Place, session: Session) -> None:
    (here.log / "filler").write_bytes(b"x" * 120_000)
    for number in range(2000):
        try:
            process_exec_tool_call(f"touch ran{number} #" + "x" * 5000, session)
        except RecordsLost as error:
            assert session.is_over and "space" in str(error)
            assert not (here.work / f"ran{number}").exists()
            assert number and (here.work / f"ran{number - 1}").exists()
            with pytest.raises(RecordsLost):
                process_exec_tool_call("touch more", session)
            assert not (here.work / "more").exists()
            return
    raise AssertionError("the disk was not full")


LIMITED = """
import resource, signal, sys; from pathlib import Path
from sessionkit import Place
from sandbox.errors import RecordsLost
from sandbox.session import process_exec_tool_call
place = Place(Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
session = place.session()
assert process_exec_tool_call("touch one", session).ok
size = sum(file.stat().st_size for file in place.log.iterdir())
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
for call in ("touch two", "touch three"):
    try:
        process_exec_tool_call(call, session)
    except RecordsLost:
        print("lost")
"""


def test_a_limit_of_the_file_ends_the_session(both: Place) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(both.top)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "lost\nlost\n", done.stderr
    assert [path.name for path in both.work.iterdir()] == ["one"]


# What is the session's own.


def read_and_write(paths: list[Path]) -> str:
    """A command that tries to read, write, add to and remove each; what works is printed."""
    lines = []
    for path in paths:
        inner = path / "000001.jsonl" if path.name == "log" else path
        lines += [
            f"cat {inner} && echo READ {inner}",
            f"echo x >> {inner} && echo WROTE {inner}",
            f"mv {inner} {inner}.moved && echo MOVED {inner}",
            f"ls {path}/ && echo LISTED {path}" if path.name == "log" else "true",
        ]
    return "\n".join(lines)


@pytest.mark.parametrize("how", ["plain", "writable", "named", "grant", "no sandbox"])
def test_the_log_and_the_file_of_approvals_are_out_of_reach(how: str, here: Place) -> None:
    """Also where what is around them, or they themselves, may be written by the policy."""
    config = here.top / "config" / "sandbox"
    config.mkdir(parents=True)
    trust, beside = config / "trust.json", config / "beside"
    beside.write_text("beside\n")
    policy = here.policy()
    if how != "plain":
        policy = here.policy(write=[config, here.top])
    if how == "named":
        here.session().close()
        policy = policy.with_write(here.log).with_write(here.log / "000001.jsonl")
    asked = Asked("always")
    with here.session(
        policy, asked, trust_file=str(trust), unsandboxed=True, approval="untrusted"
    ) as session:
        assert session.trust_file is not None
        if how == "grant":
            call = ToolCall("true", grant=Grant.one("read", str(here.log / "000001.jsonl")))
            assert process_exec_tool_call(call, session).status == "denied"
        # An approval that lasts replaces the file: the new one is as far away.
        process_exec_tool_call("touch lasting", session)
        assert len(session.trust_file.entries()) == 1
        text = read_and_write([here.log, trust, Path(f"{trust}.lock")])
        call = ToolCall(
            f"{text}\ncat {beside} && echo READ beside", unsandboxed=how == "no sandbox"
        )
        asked._answers = ["once"]
        told = process_exec_tool_call(call, session)
        assert told.result is not None, told.text
        out = told.result.out
        assert "READ beside" in out, told.text
        for word in ("READ /", "WROTE", "MOVED", "LISTED", "secret", "schema"):
            assert word not in out, told.text
    assert trust.exists()
    here.verified()


def test_a_file_of_approvals_that_cannot_be_written_lets_nothing_last(here: Place) -> None:
    """The answer is on record, and the command did not run: it was not as was answered."""
    config = here.top / "config"
    config.mkdir()
    trust = config / "trust.json"

    def spoil(request: ApprovalRequest) -> str:
        (config / "trust.json.lock").unlink()
        (config / "trust.json.lock").mkdir()
        return "always"

    with here.session(approver=spoil, trust_file=str(trust), approval="untrusted") as session:
        told = process_exec_tool_call("touch a", session)
    assert told.status == "denied" and "trust.json" in told.why
    assert not (here.work / "a").exists()
    assert kinds(here.records())[-2:] == ["approval", "end"]


# Several at a time.


@pytest.mark.parametrize("changes", [False, True])
def test_threads_share_a_session_and_each_call_has_its_number(changes: bool, both: Place) -> None:
    """8 at a time: what each was told is its own, and the chain holds."""
    calls = 50 if not changes else 10
    with both.session(changes=changes, approver=Asked("session")) as session:

        def one(thread: int) -> list[ToolResult]:
            return [
                process_exec_tool_call(f"echo {thread}.{number}", session)
                for number in range(calls)
            ]

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(one, range(8)))
    for thread, results in enumerate(found):
        assert [one.result.out for one in results if one.result is not None] == [
            f"{thread}.{number}\n" for number in range(calls)
        ]
    numbers = [one.call for results in found for one in results]
    assert sorted(numbers) == list(range(1, 8 * calls + 1))
    assert both.verified() == 2 + 8 * calls * (4 if changes else 3)
    by_call: dict[int, list[str]] = {}
    for record in both.records():
        by_call.setdefault(record["call"], []).append(record["event"])
    del by_call[0]
    expected = ["assessment", "spawn", "exit"] + ["files"] * changes
    assert all(events == expected for events in by_call.values())
    files = both.records("files")
    assert all(one["complete"] or "another call ran" in one["why"] for one in files)
    assert not changes or any(not one["complete"] for one in files)


def test_a_forked_child_goes_on_as_a_session_of_its_own(both: Place) -> None:
    """Calls of both are told apart in the log, and neither ends the other."""
    with both.session(approver=Asked("session"), changes=True) as session:
        assert process_exec_tool_call("rm -rf x", session).ok
        child = os.fork()
        if child == 0:
            status = 1
            try:
                told = [process_exec_tool_call(text, session) for text in ("echo c > c", "cat c")]
                trusted = process_exec_tool_call("rm -rf x", session)
                is_known = trusted.decision.grounds[0].ground is Ground.TRUSTED_EXACT
                status = 0 if told[1].result.out == "c\n" and is_known else 2
                session.close()
            finally:
                os._exit(status)
        assert process_exec_tool_call("echo p", session).result.out == "p\n"
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert process_exec_tool_call("cat c", session).result.out == "c\n"
    begun = both.records("session")
    assert len({one["session"] for one in begun}) == len({one["pid"] for one in begun}) == 2
    calls = [(one["session"], one["call"]) for one in both.records("assessment")]
    assert len(set(calls)) == len(calls) == 6
    assert sorted(one["calls"] for one in both.records("end")) == [3, 3]
    both.verified()


def test_a_child_that_uses_it_not_ends_it_not(here: Place) -> None:
    with here.session() as session:
        child = os.fork()
        if child == 0:
            session.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert here.records("end") == []
        assert process_exec_tool_call("true", session).ok
    assert len(here.records("end")) == 1


def test_a_fork_in_the_middle_of_calls_stops_no_child(here: Place) -> None:
    """Whatever locks other threads hold then."""
    with here.session(changes=True) as session:
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                process_exec_tool_call("true", session)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(8):
                child = os.fork()
                if child == 0:
                    signal.alarm(20)
                    try:
                        is_right = process_exec_tool_call("echo c", session).result.out == "c\n"
                        os._exit(0 if is_right else 1)
                    finally:
                        os._exit(1)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        of_children = [one for one in here.records("files") if one["session"] != session.id]
    assert len(of_children) == 8 and all(one["complete"] for one in of_children)
    here.verified()


# As an ordinary user.


@pytest.mark.parametrize("isolation", ["auto", "landlock"])
@pytest.mark.parametrize("scene", scenes("sessions"))
def test_sessions_of_an_ordinary_user(
    scene: str, isolation: str, far: Path, as_user: AsUser
) -> None:
    w, o = far / "work", far / "outside"
    for path in (w, o):
        path.mkdir()
    as_user.give(w, o)
    play("sessions", scene, as_user, far, w, o, isolation)
