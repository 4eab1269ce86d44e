"""Resolving a policy for Seatbelt: patterns stay what they are, and so do grants in HOME.

HOME's settings (its dot files, and Library) are not writable because HOME is: who writes them runs
what he likes the next time that a shell or a session starts. Each is granted by its own name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sandbox.backends.base import Question
from sandbox.backends.searched import resolve_patterns
from sandbox.backends.seatbelt import starts
from sandbox.entries import Access
from sandbox.paths import follow
from sandbox.resolve import Place, ResolvedPolicy

__all__ = ["resolve_seatbelt"]


def resolve_seatbelt(question: Question) -> ResolvedPolicy:
    """The policy with real paths. Raises what ``resolve`` raises, but not for patterns."""
    return _with_settings(resolve_patterns(question), question.homes)


def _with_settings(resolved: ResolvedPolicy, homes: Sequence[str]) -> ResolvedPolicy:
    """With the settings in HOME that are granted by name, which HOME as a whole does not grant."""
    named = [entry for layer in resolved.policy.layers for entry in layer if entry.path]
    paths = {follow(one.path)[0] for one in named if one.access is Access.WRITE}
    begin = tuple(start for home in (resolved.home, *homes) for start in starts(home))
    found = {path for path in paths if path.startswith(begin)}
    granted = {path for path in found if resolved.access(path) is Access.WRITE}
    places = {*resolved.places, *(Place(path, Access.WRITE) for path in granted)}
    writable = {*resolved.writable, *granted}
    return replace(resolved, places=tuple(sorted(places)), writable=tuple(sorted(writable)))
