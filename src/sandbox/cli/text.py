"""Words on a terminal: one line each, with nothing in it that moves a cursor."""

from __future__ import annotations

import os

from sandbox.denial import Denial
from sandbox.printed import printable
from sandbox.result import Enforcement

__all__ = ["complain", "denial_line", "weaker_lines"]


def complain(text: str) -> None:
    """One line on standard error, marked as ours. Silent where nobody can read it."""
    line = f"sandbox: {printable(text)}\n"
    try:
        # One write, so that it is not torn apart by what the command or others print.
        os.write(2, line.encode("utf-8", "backslashreplace"))
    except OSError:
        return


def denial_line(denial: Denial) -> str:
    """One line for a person."""
    if denial.change:
        parts = [f"{denial.change}: {denial.what}"]
    else:
        word = "refused" if denial.certain else "probably refused"
        parts = [f"{word}: {denial.kind} {denial.what}".rstrip() + f" ({denial.rule})"]
    if denial.detail:
        parts.append(denial.detail)
    if denial.grant is not None:
        parts.append(f"to allow: {denial.grant.option or denial.grant.call}")
    if denial.undo:
        parts.append(f"to undo: {denial.undo}")
    return "; ".join(parts)


def weaker_lines(enforcement: Enforcement) -> list[str]:
    """A line for the isolation, and one for each part that is weaker than the policy."""
    lines = [f"isolation {enforcement.isolation}"]
    for part in enforcement.weaker:
        mend = f"; to mend it: {part.mend}" if part.mend else ""
        lines.append(f"not enforced: {part.part}: {part.cause}{mend}")
    return lines
