"""Commands that were once called safe, and live did what is not: each with its harmless twin."""

from __future__ import annotations

from safetykit import assess, is_safe

from sandbox.command import Reason


def test_braces_in_each_other_are_several_words() -> None:
    for line in ("find . {{},-delete}", "sort {-oP{},in}", "echo {a{},b}", "echo {{}..3}",
                 "ls {a}{b,c}", "ls 'x'{{},y}", "sort {}{-oP,in}"):  # fmt: skip
        assert assess(line).reasons[0] is Reason.EXPANSION, line
    for line in ("find . -name {}", "git show HEAD@{1}", "echo '{a,b}'", r"echo \{a,b}"):
        assert is_safe(line), line
