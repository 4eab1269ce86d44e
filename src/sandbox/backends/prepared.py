"""Layouts that are ready: resolving a policy and making its layout costs more than the sandbox.

What they were made from is looked at again: where each path that a person wrote leads now, and what
the layout itself stands on. Anything else is made anew.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import replace
from typing import NamedTuple

from sandbox.backends.aliases import mount_table
from sandbox.backends.base import Question
from sandbox.backends.basis import Basis, compile_with_basis
from sandbox.backends.ground import Ground
from sandbox.backends.namespaces import LayoutBasis
from sandbox.backends.rules import Rules
from sandbox.entries import Access
from sandbox.locks import ForkLock
from sandbox.resolve import ResolvedPolicy

__all__ = ["Key", "Prepared", "PreparedRules", "key_of"]

Key = tuple[object, ...]

_KEPT = 64


class _Entry(NamedTuple):
    resolved: ResolvedPolicy
    ground: Ground


class Prepared:
    """Resolved policies and their grounds, the latest ones. Threads may share it."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()

    def resolved(self, key: Key) -> ResolvedPolicy | None:
        """What a question was resolved to, if it would be that again."""
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

    def keep(self, key: Key, resolved: ResolvedPolicy, ground: Ground) -> None:
        """Keeps what was made for a question after its key was."""
        with self._lock.held:
            self._entries[key] = _Entry(resolved, ground)
            while len(self._entries) > _KEPT:
                self._entries.popitem(last=False)


class _RulesEntry(NamedTuple):
    resolved: ResolvedPolicy
    rules: Rules
    basis: Basis
    names: LayoutBasis  # of what is protected, which rules say nothing of
    mounts: str


class PreparedRules:
    """Resolved policies and their rules, the latest ones. Threads may share it.

    Each sandbox has a temporary directory of its own; what is kept is moved from one to the next.
    That is as if it was made anew only while every directory that was enumerated, and so each on
    the way to something denied, and the mounts are what they were.
    """

    def __init__(self, abi: int) -> None:
        self._abi = abi
        self._lock = ForkLock()
        self._entries: OrderedDict[Key, _RulesEntry] = OrderedDict()
        self._asked: tuple[Key, ResolvedPolicy] | None = None

    def resolved(self, key: Key, tmp: str) -> ResolvedPolicy | None:
        """What a question is resolved to, if it differs from one before in ``tmp`` alone."""
        with self._lock.held:
            entry = self._entries.get(key)
        moved = _moved(entry, tmp) if entry is not None else None
        with self._lock.held:
            if moved is not None:
                self._entries[key] = moved
                self._entries.move_to_end(key)
        return moved.resolved if moved is not None else None

    def note(self, key: Key, resolved: ResolvedPolicy) -> None:
        """What a question was resolved to: its rules are kept if they are asked for next."""
        self._asked = (key, resolved)

    def rules(self, resolved: ResolvedPolicy) -> tuple[Rules, Basis]:
        """The rules of a resolved policy, from here if it came from here just now."""
        with self._lock.held:
            found = [entry for entry in self._entries.values() if entry.resolved is resolved]
        if found:
            return found[0].rules, found[0].basis
        asked, self._asked = self._asked, None
        mounts, names = mount_table(), _names(resolved)
        rules, basis = compile_with_basis(resolved, self._abi)
        if asked is not None and asked[1] is resolved:
            with self._lock.held:
                self._entries[asked[0]] = _RulesEntry(resolved, rules, basis, names, mounts)
                while len(self._entries) > _KEPT:
                    self._entries.popitem(last=False)
        return rules, basis


def _names(resolved: ResolvedPolicy) -> LayoutBasis:
    roots = tuple(path for path in resolved.writable if path != resolved.tmp)
    return LayoutBasis(replace(resolved, writable=roots, denied=(), links=()), ())


def _moved(entry: _RulesEntry, tmp: str) -> _RulesEntry | None:
    """The same with another temporary directory; None where it would not be the same."""
    before, now = os.fsencode(entry.resolved.tmp), os.fsencode(tmp)
    try:
        found = os.lstat(tmp)
    except OSError:  # resolving says what is wrong
        return None
    rules = entry.rules.with_path(before, now, found.st_dev, found.st_ino)
    basis = entry.basis.moved(rules)
    if basis is None or not entry.names.holds_now() or mount_table() != entry.mounts:
        return None
    return _RulesEntry(entry.resolved.with_tmp(tmp), rules, basis, entry.names, entry.mounts)


def key_of(question: Question) -> Key:
    """The question, and which file each path in it leads to now; of ``tmp`` where it lies.

    What is denied is left out, being looked at in any case: each path and each link on the way.
    """
    policy = question.policy
    question = question._replace(tmp=os.path.dirname(question.tmp))
    entries = (entry for layer in policy.layers for entry in layer)
    paths = [one.path for one in entries if one.path and one.access is not Access.DENY]
    paths += [path for path in (question.workspace, question.home, *question.homes) if path]
    paths += [path for path in policy.allow_secrets if path.startswith("/")]
    paths += policy.unix_sockets
    return (question, os.getresuid(), tuple([_identity(path) for path in paths]))


def _identity(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino
