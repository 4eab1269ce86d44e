"""What a policy becomes for Seatbelt before it is a profile: what the host adds to it.

Patterns stay what they are. Each command has a temporary directory of its own, and what keeps
commands is excepted wherever it lies. HOME's settings (its dot files, and Library) are not writable
because HOME is: who writes them runs what he likes the next time that a shell or a session starts.
Each is granted by its own name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

from sandbox.backends.base import Question
from sandbox.backends.searched import resolve_patterns
from sandbox.backends.seatbelt import Profile, compile_profile, starts
from sandbox.entries import Access
from sandbox.environ import account_homes
from sandbox.errors import Unenforceable
from sandbox.paths import below, follow
from sandbox.resolve import Place, ResolvedPolicy

__all__ = ["interpreter", "own_programs", "profile_of", "resolve_seatbelt"]


def resolve_seatbelt(question: Question) -> ResolvedPolicy:
    """The policy with real paths. Raises what ``resolve`` raises, but not for patterns.

    Raises ``Unenforceable`` where something writable is part of what keeps commands.
    """
    resolved = _with_settings(resolve_patterns(question), question.homes)
    _check_own(resolved)
    return resolved


def profile_of(resolved: ResolvedPolicy, tmp: str) -> Profile:
    """The profile of a command with this temporary directory, one in that of the sandbox."""
    return compile_profile(_with_own(resolved, tmp), account_homes(), own_programs())


def _with_own(resolved: ResolvedPolicy, tmp: str) -> ResolvedPolicy:
    """Of the sandbox's temporary directories one command has one, and sees no other."""
    outer = resolved.tmp
    if not outer or resolved.access(outer) is not Access.WRITE:
        return resolved
    own = (Place(outer, Access.DENY, "of other commands"), Place(tmp, Access.WRITE))
    places = sorted((*(place for place in resolved.places if place.path != outer), *own))
    writable = sorted((*(path for path in resolved.writable if path != outer), tmp))
    denied = (*resolved.denied, own[0])
    return replace(resolved, places=tuple(places), writable=tuple(writable), denied=denied)


def interpreter() -> str:
    """Not an environment's own: that one reads a file beside it, which may be in a workspace.

    The file itself: a link to it may be where commands write. Empty where there is none.
    """
    named = _named_interpreter()
    return os.path.realpath(named) if named else ""


def _named_interpreter() -> str:
    return getattr(sys, "_base_executable", "") or sys.executable


def own_programs() -> tuple[str, ...]:
    """Real paths of what a keeper is made of; whoever could write there would be unconfined.

    Of Python all of its prefix, and what lies outside of it: it looks there for its library in an
    archive first, for ``pyvenv.cfg`` beside the program and above it, and for shared libraries
    (CPython, Modules/getpath.py).
    """
    found = find_spec("psutil")
    parts = [sys.base_prefix, sys.base_exec_prefix, os.path.dirname(os.__file__)]
    parts.append(os.path.dirname(__file__))
    if found is not None and found.origin is not None:
        parts.append(os.path.dirname(found.origin))
    real = {os.path.realpath(part) for part in parts if part}
    for program in {_named_interpreter(), interpreter()} - {""}:
        place = os.path.realpath(os.path.dirname(program))
        names = (os.path.basename(program), "pyvenv.cfg")
        real |= {f"{place}/{name}" for name in names} | {f"{os.path.dirname(place)}/pyvenv.cfg"}
    return tuple(
        one for one in sorted(real) if not any(below(one, other) for other in real - {one})
    )


def _granted(resolved: ResolvedPolicy) -> set[str]:
    """Real paths of what entries let be written by name, also below what is writable anyway."""
    named = [entry for layer in resolved.policy.layers for entry in layer if entry.path]
    return {follow(one.path)[0] for one in named if one.access is Access.WRITE}


def _check_own(resolved: ResolvedPolicy) -> None:
    """What is granted in there by name cannot be excepted from what is granted above it."""
    for path in sorted({*resolved.writable, *_granted(resolved)}):
        for one in own_programs():
            if below(path, one):
                cause = f"{path} is part of what keeps commands and is not confined: {one}"
                mend = "grant another directory, or run this with a Python outside of it"
                raise Unenforceable("a writable directory", cause, mend)


def _with_settings(resolved: ResolvedPolicy, homes: Sequence[str]) -> ResolvedPolicy:
    """With the settings in HOME that are granted by name, which HOME as a whole does not grant."""
    paths = _granted(resolved)
    begin = tuple(start for home in (resolved.home, *homes) for start in starts(home))
    found = {path for path in paths if f"{path}/".startswith(begin)}
    granted = {path for path in found if resolved.access(path) is Access.WRITE}
    places = {*resolved.places, *(Place(path, Access.WRITE) for path in granted)}
    writable = {*resolved.writable, *granted}
    return replace(resolved, places=tuple(sorted(places)), writable=tuple(sorted(writable)))
