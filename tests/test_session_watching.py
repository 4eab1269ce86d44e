"""What each command created, changed and deleted is on record, by the file system."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from scenekit import until
from sessionkit import Asked, Place

from sandbox import full_access
from sandbox.session import Edit, ToolCall, apply_edit, changes, process_exec_tool_call
from sandbox.session.watching import Watching, roots_of


@pytest.fixture(params=["auto", "landlock"])
def here(request: pytest.FixtureRequest, far: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("SANDBOX_ISOLATION", request.param)
    return Place(far)


def files(record: dict[str, Any], top: Path) -> tuple[list[str], list[str], list[str]]:
    created, changed, deleted = (
        [str(Path(path).relative_to(top)) for path in record[word]["paths"]]
        for word in ("created", "changed", "deleted")
    )
    return created, changed, deleted


CALLS: tuple[tuple[str, list[str], list[str], list[str]], ...] = (
    ("ls", [], [], []),
    ("mkdir d; echo 1 > d/a; echo 2 > b", ["b", "d", "d/a"], [], []),
    ("cat b", [], [], []),
    ("echo 3 >> b; touch -d 2001-01-01 d/a", [], ["b", "d/a"], []),
    ("mv b c", ["c"], [], ["b"]),
    ("cp -p c t; echo 9 > t; cat t > c; touch -r d/a c; rm t", [], [".", "c"], []),
    ("chmod 600 c; ln -s c l; (sleep 60; echo late > late) & true", ["l"], ["c"], []),
    ("rm -r d; false", [], [], ["d", "d/a"]),
    ("true", [], [], []),
)


def test_what_each_command_did_to_files_is_on_record(here: Place) -> None:
    """Whatever it says, and puts back; also of one that failed."""
    with here.session(changes=True, approver=Asked("once")) as session:
        for text, *_ in CALLS:
            assert process_exec_tool_call(text, session).status == "ran"
    found = here.records("files")
    assert [(one["call"], one["complete"], one["why"]) for one in found] == [
        (number + 1, True, "") for number in range(len(CALLS))
    ]
    for record, (text, *expected) in zip(found, CALLS, strict=True):
        assert files(record, here.work) == tuple(expected), text


def test_what_a_retry_did_is_looked_for_in_what_it_was_given(here: Place) -> None:
    """And what its first attempt did is apart from that."""
    with here.session(changes=True, approver=Asked("once")) as session:
        told = process_exec_tool_call(f"echo >> first; touch {here.out}/new", session)
        assert told.ok and told.attempts == 2
    first, second = here.records("files")
    assert files(first, here.top) == (["work/first"], [], [])
    assert files(second, here.top) == (["out/new"], ["work/first"], [])
    assert first["complete"] and second["complete"]


def test_without_a_sandbox_not_all_was_looked_at(here: Place) -> None:
    if os.environ["SANDBOX_ISOLATION"] == "landlock":
        pytest.skip("Landlock alone has no run without a sandbox where a place is denied")
    with here.session(changes=True, approver=Asked("once"), unsandboxed=True) as session:
        call = ToolCall(f"echo > {here.out}/new; echo > a", unsandboxed=True)
        assert process_exec_tool_call(call, session).ok
    (record,) = here.records("files")
    assert files(record, here.work) == (["a"], [], [])
    assert not record["complete"] and "nobody looked" in record["why"]


def test_with_full_access_nobody_looks(here: Place) -> None:
    with here.session(full_access(), changes=True) as session:
        assert process_exec_tool_call("echo > a", session).ok
    assert here.records("files") == []


def test_calls_that_overlap_are_not_said_to_be_complete(here: Place) -> None:
    """Nor is what was edited meanwhile; the next one alone is again."""
    with here.session(changes=True) as session:
        for other in (
            lambda: process_exec_tool_call("echo > by-another", session),
            lambda: apply_edit(Edit.create("by-an-edit", "x"), session),
        ):
            slow = threading.Thread(
                target=process_exec_tool_call,
                args=("touch go; until test -e stop; do sleep 0.01; done; rm go stop", session),
            )
            slow.start()
            until(lambda: (here.work / "go").exists())
            assert other().ok
            (here.work / "stop").touch()
            slow.join()
        process_exec_tool_call("echo > alone", session)
    *crowded, alone = here.records("files")
    assert len(crowded) == 3
    for record in crowded:
        assert not record["complete"] and "another call ran at the same time" in record["why"]
    assert alone["complete"] and files(alone, here.work) == (["alone"], [], [])


def test_an_edit_between_two_commands_is_of_neither(here: Place) -> None:
    with here.session(changes=True) as session:
        for number in range(4):
            assert process_exec_tool_call(f"echo > c{number}", session).ok
            assert apply_edit(Edit.create(f"e{number}", "x"), session).ok
    for number, record in enumerate(here.records("files")):
        assert files(record, here.work) == ([f"c{number}"], [], []) and record["complete"]


def test_a_workspace_with_more_than_is_looked_at_is_said_to_be(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is listed is true all the same."""
    monkeypatch.setattr(changes.Watch.__init__, "__kwdefaults__", {
        **changes.Watch.__init__.__kwdefaults__, "most": 50,
    })  # fmt: skip
    for number in range(60):
        (here.work / f"f{number}").touch()
    with here.session(changes=True) as session:
        assert process_exec_tool_call("echo > new", session).ok
    (record,) = here.records("files")
    assert not record["complete"] and "more than 50 entries" in record["why"]
    assert set(files(record, here.work)[0]) <= {"new"}


def test_a_call_that_ends_in_an_exception_is_looked_at_too(here: Place) -> None:
    """And leaves none that goes on for ever: the next is alone."""

    def take(delta: Any) -> None:
        raise ValueError

    with here.session(changes=True) as session:
        with pytest.raises(ValueError):
            process_exec_tool_call("echo > a; echo b; sleep 60", session, on_delta=take)
        process_exec_tool_call("echo > c", session)
    first, second = here.records("files")
    assert files(first, here.work) == (["a"], [], [])
    assert files(second, here.work) == (["c"], [], []) and second["complete"]


def test_a_look_that_fails_leaves_none_that_goes_on(far: Path) -> None:
    watching = Watching()
    with pytest.raises(Exception, match="no absolute path"):
        watching.look(("relative",), (), whole=True)
    look = watching.look((str(far),), (), whole=True)
    assert look.changes().complete


def test_only_the_outermost_directories_are_roots() -> None:
    assert roots_of(["/a/b", "/a", "/ab", "/t"], {"/t"}) == ("/a", "/ab")
    assert roots_of(["/", "/a"], {"/"}) == ("/a",)
