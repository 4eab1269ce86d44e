"""Sessions of an ordinary user: what is asked, retried, recorded and out of reach.

`w` and `o` are made by the test; a session has a workspace and a log of its own in `w`'s directory.
"""

from __future__ import annotations

import os
from pathlib import Path

from sessionkit import Asked, Place, kinds

from sandbox.session import Edit, ToolCall, apply_edit, process_exec_tool_call
from scenes.files import ISOLATION

SPACES = ISOLATION == "namespaces"


def made(w: Path) -> Place:
    top = w / "top"
    top.mkdir()
    return Place(top)


def what_was_refused_is_offered_and_the_retry_may_it(w: Path, o: Path) -> None:
    place, asked = made(w), Asked("deny", "once")
    with place.session(approver=asked) as session:
        assert session.boxes.base.isolation == ISOLATION
        text = f"echo x > {place.out}/new"
        refused = process_exec_tool_call(text, session)
        assert refused.attempts == 1 and not (place.out / "new").exists()
        told = process_exec_tool_call(text, session)
        assert told.ok and told.attempts == 2 and (place.out / "new").exists()
        assert asked.last.allows == (f"write {place.out}",)
        own = process_exec_tool_call("touch /usr/new", session)  # its mode refuses it, too
        assert own.attempts == 1 and len(asked) == 2 and not own.ok
    place.verified()


def the_log_is_out_of_reach_and_what_is_beside_it_is_not(w: Path, o: Path) -> None:
    place = made(w)
    (place.top / "beside").write_text("beside\n")
    policy = place.policy(write=[place.top]) if SPACES else place.policy()
    with place.session(policy) as session:
        log = place.log / "000001.jsonl"
        text = f"cat {place.top}/beside; cat {log}; echo x >> {log}; mv {log} {log}2; true"
        if SPACES:  # Landlock alone hides no names
            text += f"; ls {place.log}/; ls {log}; true"
        told = process_exec_tool_call(text, session)
        assert told.result is not None and told.result.out == "beside\n", told.text
    place.verified()


def what_a_command_did_to_files_is_on_record(w: Path, o: Path) -> None:
    place = made(w)
    with place.session(changes=True) as session:
        for text in ("echo > a", "echo >> a; mkdir d", "rm a", "true"):
            assert process_exec_tool_call(text, session).ok
    found = [
        tuple([os.path.basename(path) for path in one[word]["paths"]]
              for word in ("created", "changed", "deleted"))
        for one in place.records("files")
    ]  # fmt: skip
    assert found == [(["a"], [], []), (["d"], ["a"], []), ([], [], ["a"]), ([], [], [])]


def edits_go_as_far_as_commands(w: Path, o: Path) -> None:
    place, asked = made(w), Asked("once")
    with place.session(approver=asked) as session:
        assert apply_edit(Edit.create("a", "x"), session).ok and not len(asked)
        done = apply_edit(Edit.replace(str(place.out / "file"), "x"), session)
        assert done.ok and done.attempts == 2 and len(asked) == 1
        assert not apply_edit(Edit.create("/usr/new", "x"), session).ok and len(asked) == 1
    assert kinds(place.records("edit")) == ["edit"] * 4
    place.verified()


def no_sandbox_is_no_more_than_the_user_has(w: Path, o: Path) -> None:
    if not SPACES:
        return
    place, asked = made(w), Asked("once")
    with place.session(approver=asked, unsandboxed=True) as session:
        call = ToolCall(f"touch {place.out}/new && ! cat {place.log}/*", unsandboxed=True)
        assert process_exec_tool_call(call, session).ok and asked.last.allows == ("no sandbox",)
        assert not process_exec_tool_call(ToolCall("touch /usr/new", unsandboxed=True), session).ok
    place.verified()
