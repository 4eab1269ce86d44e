"""Patches: both forms, applied without a disk; wrong ones are refused with what stands there."""

from __future__ import annotations

import difflib
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import InvalidArgument
from sandbox.session.drafts import Change
from sandbox.session.envelope import apply_envelope, is_envelope
from sandbox.session.patch import apply_patch

Files = dict[str, bytes]


def reading(files: Files) -> Callable[[str], bytes]:
    def read(path: str) -> bytes:
        if path not in files:
            raise FileNotFoundError(path)
        return files[path]

    return read


def done(changes: tuple[Change, ...], files: Files) -> Files:
    """The files after changes, of which each says truly what was there."""
    after = dict(files)
    for change in changes:
        assert after.pop(change.path, None) == change.before
        if change.after is not None:
            after[change.path] = change.after
    return after


def patched(text: str | bytes, files: Files) -> Files:
    return done(apply_patch(text, reading(files)), files)


def enveloped(body: str, files: Files) -> Files:
    text = f"*** Begin Patch\n{body}*** End Patch\n"
    assert is_envelope(text)
    return done(apply_envelope(text, reading(files)), files)


def diff(a: bytes, b: bytes, path: str = "x", context: int = 3) -> bytes:
    """As difflib writes it, with the mark for a missing newline, which it forgets."""

    def lines(data: bytes) -> list[bytes]:
        return [part + b"\n" for part in data.split(b"\n")[:-1]] + (
            [data.rpartition(b"\n")[2]] if not data.endswith(b"\n") and data else []
        )

    made = difflib.diff_bytes(
        difflib.unified_diff,
        lines(a),
        lines(b),
        f"a/{path}".encode(),
        f"b/{path}".encode(),
        n=context,
    )
    mark = b"\n\\ No newline at end of file\n"
    return b"".join(part if part.endswith(b"\n") else part + mark for part in made)


TEXTS = st.lists(
    st.sampled_from([b"a\n", b"b\n", b"\n", b"-- a\n", b"++ b\n", b"@@\n", b" \n", b"c\r\n", b"d"]),
    max_size=30,
).map(b"".join)


@given(TEXTS, TEXTS, st.integers(0, 4))
def test_a_diff_of_two_texts_makes_the_second_of_the_first(
    a: bytes, b: bytes, context: int
) -> None:
    text = diff(a, b, context=context)
    if a == b:
        assert text == b""
    else:
        assert patched(text, {"x": a}) == {"x": b}


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_that_are_no_binary_patch_come_through(a: bytes, b: bytes) -> None:
    if a != b:
        assert patched(diff(a, b), {"x": a}) == {"x": b}


@given(TEXTS.filter(bool), TEXTS, TEXTS, st.integers(1, 3))
def test_lines_put_above_do_not_matter_unless_they_are_alike(
    a: bytes, b: bytes, above: bytes, context: int
) -> None:
    """Applied to a file that grew at its top: the same edit further down, or a refusal."""
    above = above if above.endswith(b"\n") or not above else above + b"\n"
    if a == b:
        return
    try:
        found = patched(diff(a, b, context=context), {"x": above + a})["x"]
    except InvalidArgument:
        return
    assert len(found) == len(above) + len(b)


@given(st.lists(st.sampled_from(["--- a/x", "+++ b/x", "@@ -1 +1 @@", "-a", "+b", " ", "\\ No",
    "diff --git a/x b/x", "rename from x", "rename to y", "new file mode 100644", "@@ -1,9 +1 @@",
    "deleted file mode 100644", "*** Begin Patch", "*** Update File: x", "*** End Patch", "",
    "*** Move to: y", "@@", "@@ a", "*** End of File"]), max_size=14))  # fmt: skip
def test_nonsense_is_refused_with_the_right_error_or_applied(lines: list[str]) -> None:
    text, files = "\n".join(lines), {"x": b"a\n"}
    for apply in (apply_patch, apply_envelope):
        try:
            apply(text, reading(files))
        except InvalidArgument as error:
            assert error.name == "edit"


GIT = shutil.which("git")


@pytest.mark.skipif(GIT is None, reason="needs git: apt-get install git")
def test_what_git_writes_is_what_git_meant(tmp_path: Path) -> None:
    """Creation, deletion, renames, empty files, odd names, CRLF, missing newlines: one patch."""

    def git(*words: str) -> bytes:
        own = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "core.autocrlf=false"]
        return subprocess.run(
            ["git", *own, *words], cwd=tmp_path, check=True, capture_output=True
        ).stdout

    def put(files: Files) -> None:
        for name, data in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    before = {
        "changed": b"".join(b"line %d\n" % n for n in range(100)),
        "dir/crlf": b"a\r\nb\r\nc\r\n",
        "bare": b"a\nb",
        "gone": b"all\nof it\n",
        "empty-gone": b"",
        "old name": b"".join(b"%d\n" % n for n in range(50)),
        "tab\there \xc3\xbc".encode("latin-1").decode(): b"odd\n",
        "dashes": b"-- x\n++ y\n",
    }
    after = {
        "changed": before["changed"].replace(b"line 3\n", b"").replace(b"line 90\n", b"x\ny\n"),
        "dir/crlf": b"a\r\nB\r\nc\r\n",
        "bare": b"a\nb\n",
        "made/deep": b"new",
        "empty": b"",
        "new name": before["old name"].replace(b"25\n", b"twenty-five\n"),
        "tab\there \xc3\xbc".encode("latin-1").decode(): b"odder\n",
        "dashes": b"x\n",
    }
    git("init", "-q")
    put(before)
    git("add", "-A")
    git("commit", "-qm", "x")
    for name in before:
        (tmp_path / name).unlink()
    put(after)
    git("add", "-A")
    text = git("diff", "--cached", "-M")
    assert b"rename from" in text and b'"' in text
    assert patched(text, before) == after
    changes = {one.path: one for one in apply_patch(text, reading(before))}
    assert changes["new name"].moved_from == "old name"


def test_a_mail_of_git_is_read_around_its_diff() -> None:
    text = "From: x\nSubject: y\n---\n x | 2 +-\n\n" + diff(b"a\n", b"b\n").decode() + "-- \n2.39\n"
    assert patched(text, {"x": b"a\n"}) == {"x": b"b\n"}


def test_an_executable_is_made_one() -> None:
    head = "diff --git a/x b/x\nnew file mode 100755\n"
    text = f"{head}--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+#!/bin/sh\n"
    (change,) = apply_patch(text, reading({}))
    assert (change.path, change.mode, change.before) == ("x", 0o755, None)


def test_what_has_no_hunk_is_not_lost_before_a_plain_section() -> None:
    plain = diff(b"a\n", b"b\n").decode()
    for name in ("e", '"\\303\\274"', "a b"):
        both = f'"a/{name[1:]} "b/{name[1:]}' if name[0] == '"' else f"a/{name} b/{name}"
        text = f"diff --git {both}\nnew file mode 100644\nindex 0..e\n{plain}"
        assert patched(text, {"x": b"a\n"}) == {
            "x": b"b\n",
            "\u00fc" if name[0] == '"' else name: b"",
        }
    text = f"diff --git a/o b/n\nrename from o\nrename to n\n{plain}"
    assert patched(text, {"x": b"a\n", "o": b"1"}) == {"x": b"b\n", "n": b"1"}
    with pytest.raises(InvalidArgument, match="say otherwise"):
        patched(text.replace("b/x", "b/n"), {"x": b"a\n", "o": b"1"})


def test_two_sections_for_a_file_are_applied_one_after_the_other() -> None:
    text = diff(b"a\n", b"b\n") + diff(b"b\n", b"c\n")
    (change,) = apply_patch(text, reading({"x": b"a\n"}))
    assert change == Change("x", b"a\n", b"c\n")


def test_lines_with_lf_fit_a_file_with_crlf_and_the_other_way_round() -> None:
    text = diff(b"a\nb\nc\n", b"a\nB\nnew\nc\n")
    assert patched(text, {"x": b"a\r\nb\r\nc\r\n"}) == {"x": b"a\r\nB\r\nnew\r\nc\r\n"}
    sent = text.replace(b"\n", b"\r\n")
    assert patched(sent, {"x": b"a\nb\nc\n"}) == {"x": b"a\nB\nnew\nc\n"}
    with pytest.raises(InvalidArgument):  # it has both: none is lent
        patched(text, {"x": b"a\r\nb\nc\n"})


def test_a_hunk_applies_where_its_lines_are() -> None:
    text = diff(b"a\nb\nc\n", b"a\nB\nc\n")
    assert patched(text, {"x": b"new\n" * 5 + b"a\nb\nc\n"}) == {"x": b"new\n" * 5 + b"a\nB\nc\n"}
    twice = b"0\n" + b"a\nb\nc\n" * 2
    with pytest.raises(InvalidArgument, match="at lines 2 and 5"):
        patched(text, {"x": twice})
    # At the stated line it is meant there, however often its lines are elsewhere.
    assert patched(text, {"x": b"a\nb\nc\n" * 2}) == {"x": b"a\nB\nc\na\nb\nc\n"}


def test_hunks_move_with_the_one_before_them() -> None:
    a = b"".join(b"%d\nsame\n" % n for n in range(60))
    b = a.replace(b"10\nsame", b"10\nother").replace(b"50\n", b"50\n51\n")
    grown = b"above\nsame\n" * 4
    assert patched(diff(a, b, context=1), {"x": grown + a}) == {"x": grown + b}


WRONG = {
    "no header": ("hello\nworld\n", "names no file"),
    "empty": ("", "names no file"),
    "no hunk": ("--- a/x\n+++ b/x\n", "has no hunk"),
    "hunk first": ("@@ -1 +1 @@\n-a\n+b\n", "before any line"),
    "no plus": ("--- a/x\n@@ -1 +1 @@\n", r"no line '\+\+\+ path'"),
    "no numbers": ("--- a/x\n+++ b/x\n@@ def f @@\n a\n", "is no hunk header"),
    "too few": ("--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\n-b\n", "hunk 1 .* at the end of the patch"),
    "too many": ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+A\n+B\n", "line 6, '.B', is more than"),
    "wrong mix": ("--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n-a\n+A\n+B\n", "1 new lines .* at line 6"),
    "no match": ("--- a/x\n+++ b/x\n@@ -2 +2 @@\n-B\n+C\n", "'B' is expected at line 2, and 'b'"),
    "beyond": (
        "--- a/x\n+++ b/x\n@@ -9 +9 @@\n-Z\n+C\n",
        "'Z' is expected at line 9, the file has 3",
    ),
    "newline": ("--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "the last and ends without a newline"),
    "missing": ("--- a/none\n+++ b/none\n@@ -1 +1 @@\n-a\n+b\n", "'none': is not there"),
    "there": ("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+b\n", "is there already"),
    "left": ("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "leave lines in it"),
    "order": (
        "--- a/x\n+++ b/x\n@@ -3 +3 @@\n-c\n+C\n@@ -1 +1 @@\n-a\n+A\n",
        r"hunk 2 .*stands before the end",
    ),
    "two names": ("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "rename from"),
    "no name": ("--- a/\n+++ b/\n@@ -1 +1 @@\n-a\n+b\n", "no path"),
    "nothing": ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", "names no file"),
    "link": (
        "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n",
        "no plain file",
    ),
    "mode": ("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", "chmod"),
    "copy": ("diff --git a/x b/z\ncopy from x\ncopy to z\n", "copies"),
    "binary": ("diff --git a/x b/x\nindex 1..2\nGIT binary patch\nliteral 0\n", "binary"),
    "onto": ("diff --git a/x b/y\nrename from x\nrename to y\n", "is there already"),
    "surrogate": ("--- a/\ud800\n", "surrogate"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_patch_is_refused_with_what_is_wrong(what: str) -> None:
    text, said = WRONG[what]
    with pytest.raises(InvalidArgument, match=said):
        patched(text, {"x": b"a\nb\nc\n", "y": b"a"})


def test_the_error_names_the_file_the_hunk_and_what_stands_there() -> None:
    text = diff(b"1\n2\n3\n4\n", b"1\n2\nx\n4\n", "src/f.py") + diff(b"1\n", b"2\n", "none")
    with pytest.raises(InvalidArgument) as caught:
        patched(text, {"src/f.py": b"1\n2\nother\n4\n"})
    assert str(caught.value) == (
        "edit='src/f.py': hunk 1 (@@ -1,4 +1,4 @@) matches nowhere: "
        "'3' is expected at line 3, and 'other' is there"
    )


HOSTILE = {
    "noise": lambda: random.Random(1).randbytes(1 << 20),
    "newlines": lambda: b"\n" * (1 << 20),
    "headers": lambda: b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+a\n" * 27_000,
    "hunk heads": lambda: b"--- a/x\n+++ b/x\n" + b"@@ -1 +1 @@\n" * 80_000,
    "one line": lambda: b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-" + b"a" * 1_000_000 + b"\n+b\n",
    "alike": lambda: (
        b"--- a/same\n+++ b/same\n@@ -9,200000 +9 @@\n" + b"-a\n" * 199_999 + b"-b\n+c\n"
    ),
    "misplaced": lambda: (
        b"--- a/same\n+++ b/same\n"
        + b"".join(b"@@ -%d,0 +1,2 @@\n+a\n+a\n" % n for n in range(9_000_000, 9_030_000))
    ),
    "scattered": lambda: (
        b"--- a/lines\n+++ b/lines\n"
        + b"".join(b"@@ -1 +1 @@\n-%d\n+x\n" % n for n in range(1, 40_000, 2))
    ),
    "too big": lambda: b"x" * ((1 << 20) + 1),
    "quoted": lambda: b'--- "' + b"\\" * 500_000 + b'"\n+++ "' + b"\\" * 500_000 + b'"\n',
    "envelope": lambda: b"*** Begin Patch\n" + b"*** Update File: x\n" * 40_000 + b"*** End Patch",
    "marks": lambda: (
        b"*** Begin Patch\n*** Update File: lines\n" + b"@@ 7\n" * 200_000 + b" 7\n*** End Patch"
    ),
    "many marks": lambda: (
        b"*** Begin Patch\n*** Update File: lines\n"
        + b"".join(b"@@ %d\n %d\n" % (n, n) for n in range(30_000))
        + b"*** End Patch"
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_megabyte_of_anything_ends_soon(what: str) -> None:
    files = {
        "x": b"a\n",
        "same": b"a\n" * 400_000,
        "lines": b"".join(b"%d\n" % n for n in range(100_000)),
    }
    text = HOSTILE[what]()
    begun = time.process_time()
    with suppress(InvalidArgument):
        (apply_envelope if is_envelope(text) else apply_patch)(text, reading(files))
    assert time.process_time() - begun < 2


# The envelope.


def test_an_envelope_adds_updates_moves_and_deletes() -> None:
    files = {"src/app.py": b"def greet():\n    print('Hi')\n", "obsolete": b"x\n", "e": b"1\n2\n"}
    body = (
        "*** Add File: hello.txt\n+Hello\n+\n+world\n"
        "*** Update File: src/app.py\n*** Move to: src/main.py\n"
        "@@ def greet():\n-    print('Hi')\n+    print('Hello')\n"
        "*** Delete File: obsolete\n\n"
        "*** Update File: e\n@@\n 2\n+3\n*** End of File\n\n"
    )
    assert enveloped(body, files) == {
        "hello.txt": b"Hello\n\nworld\n",
        "src/main.py": b"def greet():\n    print('Hello')\n",
        "e": b"1\n2\n3\n",
    }


TWICE = b"class A:\n    def f(self):\n        pass\n\nclass B:\n    def f(self):\n        pass\n"


def test_a_line_behind_the_mark_says_which_place_is_meant() -> None:
    change = "-        pass\n+        return 1\n"
    after = enveloped(f"*** Update File: x\n@@ class B:\n{change}", {"x": TWICE})["x"]
    assert after == TWICE[:-5] + b"return 1\n"
    nested = enveloped(f"*** Update File: x\n@@ class B:\n@@ def f(self):\n{change}", {"x": TWICE})[
        "x"
    ]
    assert nested == after
    with pytest.raises(InvalidArgument, match="matches at lines 3 and 7"):
        enveloped(f"*** Update File: x\n@@\n{change}", {"x": TWICE})
    with pytest.raises(InvalidArgument, match="is there 2 times"):
        enveloped(f"*** Update File: x\n@@ def f(self):\n{change}", {"x": TWICE})
    numbers = "*** Update File: x\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n"
    assert enveloped(numbers, {"x": b"1\n2\n"}) == {"x": b"1\n3\n"}


def test_the_hunks_of_an_envelope_stand_in_the_order_of_the_file() -> None:
    files = {"x": b"1\n2\n3\n4\n"}
    assert enveloped("*** Update File: x\n@@\n-1\n+a\n@@\n-4\n+b\n", files) == {
        "x": b"a\n2\n3\nb\n"
    }
    with pytest.raises(InvalidArgument, match=r"hunk 2 .*from line 5 on: '1' is not there"):
        enveloped("*** Update File: x\n@@\n-4\n+b\n@@\n-1\n+a\n", files)


def test_an_envelope_keeps_crlf_and_a_missing_newline() -> None:
    assert enveloped("*** Update File: x\n@@\n-b\n+B\n", {"x": b"a\r\nb\r\n"}) == {
        "x": b"a\r\nB\r\n"
    }
    assert enveloped("*** Update File: x\n@@\n a\n-b\n+B\n", {"x": b"a\nb"}) == {"x": b"a\nB"}


WRONG_ENVELOPES = {
    "end": ("*** Begin Patch\n*** Add File: x\n+a\n", "does not begin"),
    "section": ("*** Begin Patch\nhello\n*** End Patch", "begins no section"),
    "nothing": ("*** Begin Patch\n*** End Patch", "begins no section"),
    "add": ("*** Begin Patch\n*** Add File: z\na\n*** End Patch", "does not begin with '\\+'"),
    "added": ("*** Begin Patch\n*** Add File: x\n+a\n*** End Patch", "is there already"),
    "delete": ("*** Begin Patch\n*** Delete File: z\n*** End Patch", "is not there"),
    "deleted": ("*** Begin Patch\n*** Delete File: x\n-a\n*** End Patch", "stands below"),
    "no hunk": ("*** Begin Patch\n*** Update File: x\n*** End Patch", "there is no hunk"),
    "only adds": ("*** Begin Patch\n*** Update File: x\n@@\n+z\n*** End Patch", "only adds"),
    "kind": ("*** Begin Patch\n*** Update File: x\n@@\nz\n*** End Patch", "does not begin with"),
    "match": (
        "*** Begin Patch\n*** Update File: x\n@@\n a\n-c\n*** End Patch",
        r"hunk 1 \(line 4\) matches nowhere from line 1 on: 'c' is expected at line 2, and 'b'",
    ),
    "at the end": (
        "*** Begin Patch\n*** Update File: x\n@@\n-a\n*** End of File\n*** End Patch",
        "at the end of the file",
    ),
    "no path": ("*** Begin Patch\n*** Add File: \n+a\n*** End Patch", "begins no section|no path"),
    "moved onto": (
        "*** Begin Patch\n*** Update File: x\n*** Move to: y\n@@\n-a\n+b\n*** End Patch",
        "is there already",
    ),
}


@pytest.mark.parametrize("what", WRONG_ENVELOPES)
def test_a_wrong_envelope_is_refused_with_what_is_wrong(what: str) -> None:
    text, said = WRONG_ENVELOPES[what]
    with pytest.raises(InvalidArgument, match=said):
        apply_envelope(text, reading({"x": b"a\nb\nc\n", "y": b""}))
