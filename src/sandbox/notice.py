"""What is weaker than the policy: refused where the policy says so, else said once, in a warning.

Every result says it anyway.
"""

from __future__ import annotations

import sys
import threading
import warnings

from sandbox.errors import SandboxWeakened, Unenforceable
from sandbox.policy import SandboxPolicy
from sandbox.result import Enforcement

__all__ = ["check_accepted", "warn_once"]

_warned = threading.Event()  # a process is told once what is weaker, not at each command


def check_accepted(policy: SandboxPolicy, enforcement: Enforcement) -> None:
    """Raises ``Unenforceable`` for a part that is weaker and that the policy does not accept so."""
    for part in enforcement.weaker:
        if not (policy.accept is None or part.everywhere or part.part in policy.accept):
            mend = f"{part.mend}, or accept {part.part!r}" if part.mend else f"accept {part.part!r}"
            raise Unenforceable(part.part, part.cause, mend)


def warn_once(enforcement: Enforcement) -> None:
    """Warns the first time that anything is weaker than it could be.

    What no host can enforce is not told of: whoever is warned everywhere is not warned anywhere.
    """
    weaker = [part for part in enforcement.weaker if not part.everywhere]
    if not weaker or _warned.is_set():
        return
    _warned.set()
    parts = "; ".join(f"{part.part}: {part.cause}" for part in weaker)
    text = f"isolation {enforcement.isolation!r} does not enforce all of the policy ({parts})"
    warnings.warn(SandboxWeakened(text), stacklevel=_steps_out())


def _steps_out() -> int:
    """How far up the first caller is that is not of this package, as ``stacklevel`` counts."""
    frame, steps = sys._getframe(1), 1
    inside = ("sandbox", "contextlib")
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in inside:
        frame, steps = frame.f_back, steps + 1
    return steps
