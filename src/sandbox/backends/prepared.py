"""Layouts that are ready: resolving a policy and making its layout costs more than the sandbox.

What they were made from is looked at again: where each path that a person wrote leads now, and what
the layout itself stands on. Anything else is made anew.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import NamedTuple

from sandbox.backends.base import Question
from sandbox.backends.ground import Ground
from sandbox.locks import ForkLock
from sandbox.resolve import ResolvedPolicy

__all__ = ["Prepared"]

_KEPT = 64


class _Entry(NamedTuple):
    resolved: ResolvedPolicy
    ground: Ground


class Prepared:
    """Resolved policies and their grounds, the latest ones. Threads may share it."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._entries: OrderedDict[tuple[object, ...], _Entry] = OrderedDict()

    def resolved(self, question: Question) -> ResolvedPolicy | None:
        """What a question was resolved to, if it would be that again."""
        key = _key(question)
        with self._lock.held:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
        if entry is None or not entry.ground.basis.holds():
            return None
        return entry.resolved

    def ground(self, resolved: ResolvedPolicy) -> Ground | None:
        """The ground of a resolved policy that came from here just now, or None."""
        with self._lock.held:
            found = [entry for entry in self._entries.values() if entry.resolved is resolved]
        return found[0].ground if found else None

    def keep(self, question: Question, resolved: ResolvedPolicy, ground: Ground) -> None:
        """Keeps what was made for a question."""
        with self._lock.held:
            self._entries[_key(question)] = _Entry(resolved, ground)
            while len(self._entries) > _KEPT:
                self._entries.popitem(last=False)


def _key(question: Question) -> tuple[object, ...]:
    """The question, and which file each path in it leads to now."""
    policy = question.policy
    paths = [entry.path for layer in policy.layers for entry in layer if entry.path]
    paths += [path for path in (question.workspace, question.home, *question.homes) if path]
    paths += [path for path in policy.allow_secrets if path.startswith("/")]
    return (question, os.getresuid(), tuple([_identity(path) for path in paths]))


def _identity(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino
