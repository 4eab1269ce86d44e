"""Edits through a sandbox: what is done, what is refused, and what is left after a refusal.

The workspace `w` is writable, the directory `o` is not named by the policy. Each refusal has a
control: with the grant that it names the same edit is done, without it nothing has changed.
"""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import replace
from pathlib import Path

from sandbox import Limits, SandboxPolicy, workspace_write
from sandbox.denial import Denial, DenialKind, Evidence, Grant
from sandbox.session.drafts import Change
from sandbox.session.edit import Action, Edit, planned
from sandbox.session.perform import Performed, Written, denial_of, perform, reading
from scenes.files import ISOLATION, box_in

BY_MOUNT = Evidence.MOUNT if ISOLATION == "namespaces" else Evidence.KERNEL


def done(w: Path, edit: Edit, policy: SandboxPolicy | None = None, cwd: str = "") -> Performed:
    with box_in(w, policy) as box:
        return perform(box, planned(edit, reading(box, cwd)), cwd)


def tree(*places: Path) -> dict[str, tuple[int, bytes]]:
    """All files below, with their time, so that one written anew is seen."""
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def refused(w: Path, o: Path, edit: Edit, policy: SandboxPolicy | None = None) -> Denial:
    """The denial of an edit that changes nothing; with its grant, if it has one, it is done."""
    before, names = tree(w, o), sorted(map(str, (*w.rglob("*"), *o.rglob("*"))))
    result = done(w, edit, policy)
    assert not result.ok and result.failure is not None and result.left == (), result
    assert tree(w, o) == before
    assert sorted(map(str, (*w.rglob("*"), *o.rglob("*")))) == names
    denial = result.failure.denial
    assert denial is not None and denial.certain, result
    if denial.grant is not None:
        wider = denial.grant.apply(policy or workspace_write(w))
        assert done(w, edit, wider).ok
    return denial


def every_kind_of_edit_is_done(w: Path, o: Path) -> None:
    (w / "replaced").write_text("long before\n")
    (w / "text").write_bytes(b"a\r\nb\r\nc\r\n")
    (w / "gone").write_text("x")
    (w / "patched").write_text("1\n2\n3\n")
    (w / "tool").write_text("#!/bin/sh\n")
    (w / "tool").chmod(0o750)
    sub = str(w / "sub")
    assert done(w, Edit.create("deep/er/new", "made"), cwd=sub).done == (
        Written("deep/er/new", "created", None, 4, "", hashlib.sha256(b"made").hexdigest()),
    )
    assert (w / "sub" / "deep" / "er" / "new").read_text() == "made"
    assert done(w, Edit.replace("replaced", "now")).done == (
        Written(
            *("replaced", "changed", 12, 3),
            hashlib.sha256(b"long before\n").hexdigest(),
            hashlib.sha256(b"now").hexdigest(),
        ),
    )
    assert done(w, Edit.replace_text(str(w / "text"), "b\nc\n", "B\n")).ok
    assert (w / "text").read_bytes() == b"a\r\nB\r\n"
    assert [one.change for one in done(w, Edit.delete("gone")).done] == ["deleted"]
    patch = (
        "diff --git a/tool b/bin/tool\nrename from tool\nrename to bin/tool\n"
        "--- a/patched\n+++ b/patched\n@@ -1,3 +1,2 @@\n 1\n-2\n 3\n"
        "diff --git a/run b/run\nnew file mode 100755\n"
        "--- /dev/null\n+++ b/run\n@@ -0,0 +1 @@\n+x\n"
    )
    result = done(w, Edit.patch(patch))
    assert [(one.path, one.change) for one in result.done] == [
        ("tool", "deleted"),
        ("bin/tool", "created"),
        ("patched", "changed"),
        ("run", "created"),
    ]
    envelope = "*** Begin Patch\n*** Update File: patched\n@@\n-3\n+4\n*** End Patch"
    assert done(w, Edit.patch(envelope)).ok
    found = sorted(str(path.relative_to(w)) for path in w.rglob("*") if path.is_file())
    assert found == ["bin/tool", "patched", "replaced", "run", "sub/deep/er/new", "text"]
    assert (w / "patched").read_text() == "1\n4\n"
    assert (w / "bin" / "tool").stat().st_mode & 0o777 == 0o750
    assert (w / "run").stat().st_mode & 0o777 == 0o755


def outside_is_refused_and_the_grant_is_the_narrowest(w: Path, o: Path) -> None:
    file, here = str(o / "file"), str(o)
    write = refused(w, o, Edit.replace(file, "x"))
    assert (write.kind, write.what, write.evidence) == (DenialKind.WRITE, file, BY_MOUNT)
    assert write.grant == Grant.one("write", file)
    made = refused(w, o, Edit.create(str(o / "new"), "x"))
    assert (made.kind, made.grant) == (DenialKind.WRITE, Grant.one("write", here))
    deep = refused(w, o, Edit.create(str(o / "a" / "b" / "c"), "x"))
    assert (deep.kind, deep.grant) == (DenialKind.WRITE, Grant.one("write", here))
    gone = refused(w, o, Edit.delete(file))
    assert (gone.kind, gone.evidence, gone.grant) == (
        DenialKind.WRITE,
        BY_MOUNT,
        Grant.one("write", here),
    )


def ways_out_of_the_workspace_are_those_of_the_kernel(w: Path, o: Path) -> None:
    (w / "link").symlink_to(o / "file")
    (w / "into").symlink_to(o)
    (w / "own").write_text("mine\n")
    (w / "alias").symlink_to("own")
    assert refused(w, o, Edit.replace("link", "x")).grant == Grant.one("write", str(o / "file"))
    (o / "file").write_text("outside\n")
    assert refused(w, o, Edit.create("into/new", "x")).grant == Grant.one("write", str(o))
    up = f"{'../' * len(w.parts)}{str(o)[1:]}/file"
    patch = f"--- a/{up}\n+++ b/{up}\n@@ -1 +1 @@\n-outside\n+x\n"
    assert refused(w, o, Edit.patch(patch)).what == str(o / "file")
    up = "../" * len(w.parts) + "etc/x"
    add = f"--- /dev/null\n+++ b/{up}\n@@ -0,0 +1 @@\n+x\n"
    result = done(w, Edit.patch(add))
    assert result.failure is not None and result.failure.denial is not None
    assert result.failure.denial.what == "/etc/x" and not Path("/etc/x").exists()
    result = done(w, Edit.patch(add.replace(f"b/{up}", "/etc/x")))
    assert result.failure is not None and result.failure.denial is not None
    # Links that stay inside are followed when they are written, and not removed.
    assert done(w, Edit.replace("alias", "x")).ok
    assert (w / "alias").is_symlink() and (w / "own").read_text() == "x"
    result = done(w, Edit.delete("alias"))
    assert result.failure is not None and result.failure.errno == errno.ELOOP
    assert result.failure.denial is None and (w / "alias").is_symlink()
    (w / "dangling").symlink_to("nothing")
    result = done(w, Edit.create("dangling", "x"))
    assert result.failure is not None and result.failure.errno == errno.EEXIST


def protected_names_are_refused_as_such(w: Path, o: Path) -> None:
    (w / ".git" / "hooks").mkdir(parents=True)
    (w / ".git" / "config").write_text("[core]\n")
    for edit in (
        Edit.create(".git/hooks/x", "x"),
        Edit.replace(".git/config", "x"),
        Edit.delete(".git/config"),
    ):
        denial = refused(w, o, edit)
        assert (denial.kind, denial.grant) == (
            DenialKind.PROTECTED,
            Grant.one("write", str(w / ".git")),
        ), edit
        # A removal is refused by the real path of its directory, before any mount is asked.
        by = Evidence.KERNEL if edit.action is Action.DELETE else BY_MOUNT
        assert denial.evidence is by, edit
        (w / ".git" / "config").write_text("[core]\n")
        (w / ".git" / "hooks" / "x").unlink(missing_ok=True)
    missing = done(w, Edit.create(".codex/deep/x", "x"))
    assert missing.failure is not None and not (w / ".codex").exists()
    denial = missing.failure.denial  # type: ignore[assignment]
    assert (denial.kind, denial.what) == (DenialKind.PROTECTED, str(w / ".codex"))
    assert denial.evidence is Evidence.KERNEL  # no mount is there for what is missing


def what_is_denied_and_secrets_have_no_grant(w: Path, o: Path) -> None:
    secret = Path.home() / ".ssh"
    secret.mkdir(exist_ok=True)
    (secret / "id").write_text("key\n")
    (o / "no").mkdir(exist_ok=True)
    (o / "no" / "file").write_text("x\n")
    policy = workspace_write(w).with_deny(str(o / "no"))
    for path in (secret / "id", o / "no" / "file"):
        with box_in(w, policy) as box:
            try:
                planned(Edit.replace(str(path), "y"), reading(box))
            except OSError as error:
                denial = denial_of(box, str(path), "read", error)
                assert denial is not None and denial.certain, path
                assert (denial.kind, denial.what) == (DenialKind.READ, str(path))
                assert denial.grant is None
            else:
                raise AssertionError(f"{path} was read")
            made = path.with_name("new")
            result = perform(box, [Change(str(made), None, b"x")])
            assert result.failure is not None and not made.exists()
            denial = result.failure.denial
            assert denial is not None and denial.grant is None, path


def what_is_refused_late_is_put_back(w: Path, o: Path) -> None:
    """New files come first, and removals, which cannot be tried, last: all of it is undone."""
    for name in ("a", "b", "own"):
        (w / name).write_text(f"{name}\n")
    (w / "b").chmod(0o640)
    patch = (
        "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+A\n"
        "--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n"
        "--- /dev/null\n+++ b/new/dir/c\n@@ -0,0 +1 @@\n+c\n"
        f"--- {o}/file\n+++ /dev/null\n@@ -1 +0,0 @@\n-outside\n"
    )
    with box_in(w) as box:
        result = perform(box, planned(Edit.patch(patch), reading(box)))
    assert [one.path for one in result.done] == ["new/dir/c", "a", "b"]
    assert result.failure is not None and result.failure.path == f"{o}/file"
    assert result.failure.denial is not None and result.left == ()
    names = sorted(path.name for path in w.iterdir())
    assert names == ["a", "b", "own"] and (w / "a").read_text() == "a\n"
    assert (w / "b").read_text() == "b\n" and (w / "b").stat().st_mode & 0o777 == 0o640


def what_can_be_tried_first_is_refused_before_anything_is_written(w: Path, o: Path) -> None:
    (w / "a").write_text("a\n")
    patch = (
        "--- /dev/null\n+++ b/c\n@@ -0,0 +1 @@\n+c\n"
        "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+A\n"
        f"--- {o}/file\n+++ {o}/file\n@@ -1 +1 @@\n-outside\n+x\n"
    )
    before = tree(w, o)
    result = done(w, Edit.patch(patch))
    assert result.done == () and result.failure is not None
    assert result.failure.path == f"{o}/file" and tree(w, o) == before


def a_file_that_has_changed_since_is_not_written(w: Path, o: Path) -> None:
    (w / "a").write_text("a\n")
    (w / "b").write_text("b\n")
    with box_in(w) as box:
        changes = planned(Edit.replace("a", "A\n"), reading(box))
        (w / "a").write_text("other\n")
        result = perform(box, changes)
        assert result.failure is not None and result.failure.errno == errno.ESTALE
        assert result.failure.denial is None and (w / "a").read_text() == "other\n"
        changes = planned(Edit.create("new", "x"), reading(box))
        (w / "new").write_text("somebody's\n")
        result = perform(box, changes)
        assert result.failure is not None and result.failure.errno == errno.EEXIST
        assert (w / "new").read_text() == "somebody's\n"


def two_names_of_one_file_are_not_both_written(w: Path, o: Path) -> None:
    (w / "a").write_text("a\n")
    os.link(w / "a", w / "hard")
    (w / "soft").symlink_to("a")
    for name in ("hard", "soft"):
        patch = (
            "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+A\n"
            f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-a\n+B\n"
        )
        result = done(w, Edit.patch(patch))
        assert result.failure is not None and result.failure.errno == errno.ESTALE, name
        assert (w / "a").read_text() == "a\n" and result.left == ()


def what_the_files_own_mode_refuses_is_no_denial(w: Path, o: Path) -> None:
    (w / "a").write_text("a\n")
    (w / "a").chmod(0o400)
    result = done(w, Edit.replace("a", "b"))
    assert result.failure is not None and result.failure.errno == errno.EACCES
    assert result.failure.denial is None and (w / "a").read_text() == "a\n"


def a_limit_that_is_met_half_way_leaves_nothing_half_done(w: Path, o: Path) -> None:
    (w / "a").write_text("a\n")
    (w / "big").write_bytes(b"x" * 5000)
    policy = replace(workspace_write(w), limits=Limits(file_size=1000))
    changes = [
        Change("new", None, b"n"),
        Change("a", b"a\n", b"A\n"),
        Change("big", b"x" * 5000, b"y" * 2000),
    ]
    with box_in(w, policy) as box:
        result = perform(box, changes)
        assert result.failure is not None and result.failure.errno == errno.EFBIG
        assert [one.path for one in result.done] == ["new", "a"] and result.left == ()
        assert sorted(os.listdir(w)) == ["a", "big"] and (w / "a").read_text() == "a\n"
        assert perform(box, [changes[2]._replace(after=b"small")]).ok


def what_somebody_else_wrote_since_is_left(w: Path, o: Path) -> None:
    """An undo that would take away another's work is not done, and is said."""
    (w / "a").write_text("a\n")
    with box_in(w) as box:
        write = box.write_file

        def write_file(path: str, data: bytes, **how: bool) -> None:
            write(path, data, **how)
            if path == "a" and not how:
                (w / "a").write_text("somebody's\n")

        box.write_file = write_file  # type: ignore[method-assign, assignment]
        outside = Change(str(o / "file"), b"outside\n", None)
        result = perform(box, [Change("a", b"a\n", b"A\n"), outside])
    assert result.failure is not None and result.left == ("a",)
    assert (w / "a").read_text() == "somebody's\n"
