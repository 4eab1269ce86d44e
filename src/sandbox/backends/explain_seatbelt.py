"""What a policy becomes on macOS, as values that can be read, on any system.

For `sandbox debug seatbelt`. It is made by the same functions as what is enforced.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.backends.base import Question
from sandbox.backends.sbpl import Asked, Evaluator
from sandbox.backends.seatbelt import Profile
from sandbox.backends.settings import profile_of, resolve_seatbelt
from sandbox.backends.unenforced import check_seatbelt, weaker_seatbelt, weaker_seatbelt_limits
from sandbox.environ import account_homes
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy
from sandbox.result import Weaker

__all__ = ["Answer", "SeatbeltView", "ask_profile", "explain_seatbelt"]


@dataclass(frozen=True, slots=True)
class SeatbeltView:
    """A profile, and what it does not enforce of the policy. Without confinement it is None."""

    profile: Profile | None
    weaker: tuple[Weaker, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether an operation on a path is allowed, and the line that says so; 0: none does.

    ``known`` is false of an operation that no line names and that the default may not cover.
    """

    allowed: bool
    line: int
    text: str
    known: bool


def explain_seatbelt(policy: SandboxPolicy, workspace: str, tmp: str) -> SeatbeltView:
    """The profile of a policy with this workspace, for a command with this temporary directory.

    Raises what starting a sandbox raises.
    """
    if policy.unconfined:
        return SeatbeltView(None, tuple(weaker_seatbelt_limits(policy.limits)))
    check_seatbelt(policy, has_program=True)
    home = os.path.expanduser("~")
    outer = os.path.dirname(tmp)
    question = Question(policy, workspace, home, outer, account_homes(), workspace)
    resolved: ResolvedPolicy = resolve_seatbelt(question)
    weaker = (*weaker_seatbelt(resolved, marked=True), *weaker_seatbelt_limits(policy.limits))
    return SeatbeltView(profile_of(resolved, tmp), weaker)


def ask_profile(profile: Profile, questions: Sequence[tuple[str, str]]) -> list[Answer]:
    """What the profile says of operations on paths, as real ones."""
    evaluator = Evaluator(profile.text, dict(profile.parameters))
    lines = profile.text.splitlines()
    found = []
    for operation, path in questions:
        asked = Asked(operation, path, directory=os.path.isdir(path))
        verdict = evaluator.ask(asked)
        text = lines[verdict.line - 1] if verdict.line else "(deny default)"
        found.append(Answer(verdict.allowed, verdict.line, text, verdict.known))
    return found
