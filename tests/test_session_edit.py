"""Edits: what they will do is worked out without a disk; doing it, in both isolations as both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import AsUser
from scenekit import play, scenes

from sandbox.errors import InvalidArgument
from sandbox.session.drafts import Change
from sandbox.session.edit import Action, Edit, planned


@pytest.mark.parametrize("who", ["root", "user"])
@pytest.mark.parametrize("isolation", ["auto", "landlock"])
@pytest.mark.parametrize("scene", scenes("edits"))
def test_edits(scene: str, isolation: str, who: str, far: Path, as_user: AsUser) -> None:
    w, o = far / "work", far / "outside"
    for path in (w, o):
        path.mkdir()
    (o / "file").write_text("outside\n")
    if who == "user":
        as_user.give(w, o, o / "file")
    play("edits", scene, as_user if who == "user" else None, far, w, o, isolation)


def reading(**files: bytes) -> Callable[[str], bytes]:
    def read(path: str) -> bytes:
        if path not in files:
            raise FileNotFoundError(path)
        return files[path]

    return read


def test_each_edit_says_what_each_file_is_and_is_to_be() -> None:
    read = reading(x=b"a\nb\na\n")
    assert planned(Edit.create("dir/y", "new"), read) == (Change("dir/y", None, b"new"),)
    assert planned(Edit.replace("x", b"new"), read) == (Change("x", b"a\nb\na\n", b"new"),)
    assert planned(Edit.replace("x", b"a\nb\na\n"), read) == ()
    assert planned(Edit.delete("./x"), read) == (Change("x", b"a\nb\na\n", None),)
    assert planned(Edit.replace_text("x", "b\n", ""), read) == (
        Change("x", b"a\nb\na\n", b"a\na\n"),
    )
    assert planned(Edit.replace_text("x", "a", "A", count=2), read) == (
        Change("x", b"a\nb\na\n", b"A\nb\nA\n"),
    )
    diff = "--- a/x\n+++ b/x\n@@ -2 +2 @@\n-b\n+B\n"
    envelope = "*** Begin Patch\n*** Update File: x\n@@\n-b\n+B\n*** End Patch\n"
    for text in (diff, envelope):
        assert planned(Edit.patch(text), read) == (Change("x", b"a\nb\na\n", b"a\nB\na\n"),)


WRONG = {
    "there": (Edit.create("x", "n"), "is there already"),
    "missing": (Edit.replace("y", "n"), "is not there"),
    "gone": (Edit.delete("y"), "is not there"),
    "twice": (Edit.replace_text("x", "a", "n"), r"is there 2 times, not 1 \(line 1, 3\)"),
    "once": (Edit.replace_text("x", "b", "n", count=2), "is there 1 times, not 2"),
    "over": (Edit.replace_text("z", "oo", "n"), "is there 2 times, not 1"),
    "nowhere": (Edit.replace_text("x", "q\nb", "n"), "'q' is nowhere"),
    "other": (
        Edit.replace_text("x", "a\nc\n", "n"),
        "'c' is expected at line 2, and 'b' is there",
    ),
    "many": (Edit.replace_text("m", "a", "n"), r"is there 9 times, not 1 \(line .*5, \.\.\.\)"),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_edit_that_does_not_fit_is_refused_with_what_is_there(what: str) -> None:
    edit, said = WRONG[what]
    with pytest.raises(InvalidArgument, match=said):
        planned(edit, reading(x=b"a\nb\na\n", z=b"ooo\n", m=b"a\n" * 9))


def test_what_means_nothing_is_no_edit() -> None:
    for make in (
        lambda: Edit.create("", "x"),
        lambda: Edit.create("dir/", "x"),
        lambda: Edit.create("a\0b", "x"),
        lambda: Edit.create(3, "x"),  # type: ignore[arg-type]
        lambda: Edit.create("x", 3),  # type: ignore[arg-type]
        lambda: Edit.create("x", "\ud800"),
        lambda: Edit.replace_text("x", "", "y"),
        lambda: Edit.replace_text("x", "a", "y", count=0),
        lambda: Edit.replace_text("x", "a", "y", count=True),
    ):
        with pytest.raises(InvalidArgument):
            make()


def test_an_edit_is_a_value() -> None:
    edit = Edit.replace_text("x", "a", "b")
    assert edit == Edit.replace_text("x", b"a", b"b") and hash(edit) == hash(edit)
    assert edit.action is Action.REPLACE_TEXT
    with pytest.raises(AttributeError):
        edit.path = "y"  # type: ignore[misc]
