"""Edits through a session: decided about, approved, done and recorded as commands are."""

from __future__ import annotations

import hashlib
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sessionkit import Asked, Place, kinds

from sandbox import full_access, read_only
from sandbox.errors import InvalidArgument, RecordsLost
from sandbox.session import Answer, ApprovalRequest, Choice, Edit, apply_edit
from sandbox.session.decide import Ground

PATCH = """\
--- a/one
+++ b/one
@@ -1 +1 @@
-1
+one
--- /dev/null
+++ b/new
@@ -0,0 +1 @@
+new
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-gone
"""


@pytest.fixture(params=["auto", "landlock"])
def here(request: pytest.FixtureRequest, far: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("SANDBOX_ISOLATION", request.param)
    return Place(far)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_an_edit_in_the_workspace_is_done_and_on_record(here: Place) -> None:
    with here.session() as session:
        made = apply_edit(Edit.create("deep/a", "1\n"), session)
        assert made.ok and made.attempts == 1 and made.text == "Created: deep/a"
        assert apply_edit(Edit.replace("deep/a", "22\n"), session).ok
        assert apply_edit(Edit.replace_text("deep/a", "22", "333"), session).ok
        assert (here.work / "deep" / "a").read_text() == "333\n"
        same = apply_edit(Edit.replace("deep/a", "333\n"), session)
        assert same.ok and same.text == "Nothing to be done: that is what is there"
        assert apply_edit(Edit.delete("deep/a"), session).ok
        assert not (here.work / "deep" / "a").exists()
    edits = here.records("edit")
    assert [(one["call"], one["action"], one["path"]) for one in edits] == [
        (1, "create", "deep/a"),
        (2, "replace", "deep/a"),
        (3, "replace", "deep/a"),
        (5, "delete", "deep/a"),
    ]
    states = [("", 0), ("1\n", 2), ("22\n", 3), ("333\n", 4), ("", 0)]
    for record, (before, after) in zip(edits, pairwise(states), strict=True):
        for row, (text, size) in ((record["before"], before), (record["after"], after)):
            assert row == ({"size": size, "sha256": sha256(text)} if text else None)
    assert kinds(here.records())[:3] == ["session", "assessment", "edit"]
    assert here.records("assessment")[0]["command"] == "edit: create deep/a"
    here.verified()


def test_a_patch_over_several_files_is_one_call_with_a_record_for_each(here: Place) -> None:
    for name, text in (("one", "1\n"), ("gone", "gone\n")):
        (here.work / name).write_text(text)
    with here.session() as session:
        done = apply_edit(Edit.patch(PATCH), session)
        assert done.ok and sorted(done.text.splitlines()) == [
            "Changed: one", "Created: new", "Deleted: gone",
        ]  # fmt: skip
        assert sorted(path.name for path in here.work.iterdir()) == ["new", "one"]
        with pytest.raises(InvalidArgument):
            apply_edit(Edit.patch(PATCH), session)
    edits = here.records("edit")
    assert {one["call"] for one in edits} == {1} and len(edits) == 3
    assert {one["path"] for one in edits} == {"one", "new", "gone"}


def test_a_patch_with_one_file_outside_changes_none(here: Place) -> None:
    (here.work / "one").write_text("1\n")
    (here.work / "gone").write_text("gone\n")
    text = PATCH.replace("b/new", str(here.out / "new"))
    with here.session(approver=Asked("deny", "once")) as session:
        refused = apply_edit(Edit.patch(text), session)
        assert not refused.ok and refused.attempts == 1
        assert (here.work / "one").read_text() == "1\n" and (here.work / "gone").exists()
        assert not (here.out / "new").exists()
        done = apply_edit(Edit.patch(text), session)
        assert done.ok and done.attempts == 2 and (here.out / "new").read_text() == "new\n"
        assert (here.work / "one").read_text() == "one\n"


@pytest.mark.parametrize("mode", ["untrusted", "on-escape", "never"])
def test_when_an_edit_is_asked_about(mode: Any, here: Place) -> None:
    """As of a command of which nothing is known."""
    asked = Asked(Answer(Choice.DENY, "me", "not this"), "once")
    with here.session(approver=asked, approval=mode) as session:
        first = apply_edit(Edit.create("a", "marked\n"), session)
        if mode != "untrusted":
            assert first.ok and not len(asked)
            return
        assert not first.ok and first.attempts == 0 and not (here.work / "a").exists()
        assert first.text == "Denied: whoever was asked refused it: not this"
        assert asked.last.command == "create" and asked.last.allows == ()
        assert asked.last.details == (("of the file", "a"), ("with", "marked\n"))
        assert asked.last.grounds[0].ground is Ground.NOT_SAFE
        assert apply_edit(Edit.create("a", "marked\n"), session).ok
    assert [one["answer"] for one in here.records("approval")] == ["deny", "once"]
    assert kinds(here.records()) == [
        "session", "assessment", "approval", "assessment", "approval", "edit", "end",
    ]  # fmt: skip


def test_where_nobody_took_a_part_weaker_never_denies_it(
    far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_ISOLATION", "landlock")
    place = Place(far)
    with place.session(place.policy().with_accept(None), approval="never") as session:
        refused = apply_edit(Edit.create("a", "x"), session)
        assert not refused.ok and "`never`" in refused.why and not (place.work / "a").exists()


def test_each_edit_is_asked_about_and_shown_whole(here: Place) -> None:
    """None is approved for longer than it was read, and a link says where it leads."""
    asked = Asked("once")
    (here.work / "x").write_text("1 1")
    (here.work / "link").symlink_to("x")
    with here.session(approver=asked, approval="untrusted") as session:
        for times in (1, 2):
            assert apply_edit(Edit.replace("x", f"1 1{times}"), session).ok and len(asked) == times
        assert apply_edit(Edit.replace_text("link", "1 1", "3"), session).ok
        assert asked.last.details == (
            ("of the file", "link"),
            ("which leads to", str(here.work / "x")),
            ("the text, 1 times in it", "1 1"),
            ("with", "3"),
        )
        assert apply_edit(Edit.delete("x"), session).ok
        assert asked.last.details == (("of the file", "x"),)
        assert {one.offers for one in asked.requests} == {(Choice.DENY, Choice.ONCE)}


def test_outside_it_is_offered_approved_and_done(here: Place) -> None:
    asked = Asked("deny", "once")
    file = str(here.out / "file")
    with here.session(approver=asked) as session:
        refused = apply_edit(Edit.replace(file, "x"), session)
        assert not refused.ok and refused.attempts == 1 and refused.denials
        assert "Refused by the sandbox: write" in refused.text
        assert (here.out / "file").read_text() == "outside\n"
        done = apply_edit(Edit.replace(file, "x"), session)
        assert done.ok and done.attempts == 2 and (here.out / "file").read_text() == "x"
        assert asked.last.allows == (f"write {file}",) and len(asked) == 2
        other = apply_edit(Edit.create(str(here.out / "other"), "y"), session)
        assert other.ok and len(asked) == 3 and asked.last.allows == (f"write {here.out}",)
    assert kinds(here.records())[:7] == [
        "session", "assessment", "edit", "escalation", "approval", "escalation", "assessment",
    ]  # fmt: skip
    found = here.records("escalation")
    assert [one["cause"] for one in found[:4]] == ["denial", "refused", "denial", "approved"]
    edits = here.records("edit")
    assert edits[0]["error"] and edits[0]["after"] is None
    assert [one["error"] for one in edits if one["after"]] == [""] * 2


def test_never_does_not_offer_what_is_outside(here: Place) -> None:
    asked = Asked("once")
    with here.session(approver=asked, approval="never") as session:
        refused = apply_edit(Edit.create(str(here.out / "new"), "x"), session)
    assert not refused.ok and "`never`" in refused.text and not len(asked)
    assert not (here.out / "new").exists()


def test_a_read_only_session_edits_nothing_unasked(here: Place) -> None:
    (here.work / "a").write_text("a")
    asked = Asked("deny")
    with here.session(read_only().with_accept(here.policy().accept), asked) as session:
        assert not apply_edit(Edit.replace("a", "b"), session).ok and len(asked) == 1
    assert (here.work / "a").read_text() == "a"


def test_what_is_denied_or_secret_is_never_edited_nor_asked_about(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = here.top / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").write_text("kept")
    monkeypatch.setenv("HOME", str(home))
    denied = here.top / "denied"
    denied.mkdir()
    (denied / "file").write_text("kept")
    asked = Asked("once")
    with here.session(here.policy(deny=[denied]), asked) as session:
        log = str(here.log / "000001.jsonl")
        for path in (str(denied / "file"), str(home / ".ssh" / "config"), log):
            for edit in (Edit.replace(path, "x"), Edit.delete(path), Edit.create(f"{path}.n", "x")):
                done = apply_edit(edit, session)
                assert not done.ok and not len(asked), (edit, done)
    assert (denied / "file").read_text() == (home / ".ssh" / "config").read_text() == "kept"
    assert sorted(os.listdir(home / ".ssh")) == ["config"] and os.listdir(denied) == ["file"]
    here.verified()


def test_what_is_protected_is_changed_by_no_edit_that_nobody_approved(here: Place) -> None:
    """A name that is not there yet is not to be had at all."""
    hooks = here.work / ".git" / "hooks"
    hooks.mkdir(parents=True)
    asked = Asked("deny")
    with here.session(approver=asked) as session:
        hook = apply_edit(Edit.create(".git/hooks/pre-commit", "#!/bin/sh\n"), session)
        assert not hook.ok and os.listdir(hooks) == []
        assert all(one == f"write {here.work}/.git" for one in asked.last.allows)
        count = len(asked)
        missing = apply_edit(Edit.create(".mcp.json", "{}"), session)
        assert not missing.ok and len(asked) == count
        assert not (here.work / ".mcp.json").exists()
        assert apply_edit(Edit.create("plain", "x"), session).ok  # the control
    with here.session(approver=Asked("once")) as session:
        hook = apply_edit(Edit.create(".git/hooks/pre-commit", "#!/bin/sh\n"), session)
        assert hook.ok and hook.attempts == 2 and os.listdir(hooks) == ["pre-commit"]


def test_a_link_out_of_the_workspace_leads_an_edit_nowhere(here: Place) -> None:
    (here.work / "link").symlink_to(here.out / "file")
    with here.session(approver=Asked("deny")) as session:
        assert not apply_edit(Edit.replace("link", "x"), session).ok
    assert (here.out / "file").read_text() == "outside\n"


def test_a_file_that_changed_while_somebody_was_asked_is_not_overwritten(here: Place) -> None:
    """What is replaced is what is there when it is done: text that is gone is not found."""
    (here.work / "a").write_text("before\n")

    def change(request: ApprovalRequest) -> str:
        (here.work / "a").write_text("other\n")
        return "once"

    with (
        here.session(approver=change, approval="untrusted") as session,
        pytest.raises(InvalidArgument, match="is not there"),
    ):
        apply_edit(Edit.replace_text("a", "before", "after"), session)
    assert (here.work / "a").read_text() == "other\n"


def test_names_in_answers_are_written_out(here: Place) -> None:
    with here.session(full_access()) as session:
        done = apply_edit(Edit.create("a\rDenied: b\x1b[2J", "x"), session)
    assert done.ok and done.text == "Created: a\\rDenied: b\\x1b[2J"


def test_without_records_nothing_is_edited(here: Place) -> None:
    with here.session() as session:
        assert session.log is not None
        session.log.close()
        with pytest.raises(RecordsLost):
            apply_edit(Edit.create("a", "x"), session)
        assert not (here.work / "a").exists()
        session._closed = True
