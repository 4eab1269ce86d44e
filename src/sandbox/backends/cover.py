"""The complement: what may be read around what is denied, as rules.

A directory that may be read except for something inside it is opened, and each thing in it that is
not on the way to the denied one gets a rule of its own. Danger lies in names and files not being
the same: the kernel ties a rule to a file, so a rule on another name of a denied file opens it.
Only directories and files with one name get a rule unless a person named them, links never (the
kernel asks about what they lead to), and what a second mount shows is denied under that name too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from sandbox.entries import Access
from sandbox.errors import Unenforceable
from sandbox.paths import ancestors, below
from sandbox.resolve import BY_POLICY, ResolvedPolicy

__all__ = ["DEVICES", "Cover", "Rule", "RuleAccess", "tree_of"]

_RULES_MAX = 16384  # a directory with more loose things than this is named in an error instead


RuleAccess = Literal["read", "write", "device", "names"]

# Not /dev/pts and ptmx: without a devpts of its own a command would share that of the user's other
# terminals, and read what is typed there.
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that is allowed.

    ``path`` leads through no link. ``is_dir``: a file takes rights for files only. ``named``: a
    person named it, so a rule that cannot be made is an error; others may have vanished since.
    ``dev`` and ``ino`` are what was there: rules on another file of that name are other rules.
    """

    path: bytes
    access: RuleAccess
    is_dir: bool
    named: bool
    dev: int
    ino: int


@dataclass(slots=True)
class Node:
    """One component of the paths of a policy."""

    access: Access | None = None
    inner: dict[str, Node] = field(default_factory=dict)

    def denies(self) -> bool:
        """Whether anything below is denied."""
        return any(node.access is Access.DENY or node.denies() for node in self.inner.values())


def tree_of(resolved: ResolvedPolicy, others: Iterable[str]) -> Node:
    """The paths of a policy as a tree; ``others`` are further names of what is denied."""
    top = Node()
    known = {place.path: place.access for place in resolved.places}
    known.update((path, Access.DENY) for path in others if path not in known)
    for path, access in known.items():
        node = top
        for part in path.split("/"):
            if part:
                node = node.inner.setdefault(part, Node())
        node.access = access
    return top


class Cover:
    """The rules under construction."""

    def __init__(self, resolved: ResolvedPolicy, list_names: bool) -> None:
        self._list_names = list_names  # whether listing is restricted, and so needs rules
        self.rules: dict[tuple[bytes, RuleAccess], Rule] = {}
        self.watched: dict[str, None] = {}  # as a set that keeps its order
        self._names = {place.path for place in resolved.places}
        self._denied = {one.path for one in resolved.denied if one.reason == BY_POLICY}

    def read(self, node: Node, path: str, above: bool) -> None:
        """Allow reading of what is readable at and below ``path``.

        ``above`` says whether the directory above is readable.
        """
        readable = above if node.access is None else node.access is not Access.DENY
        if readable and not (node.denies() and os.path.isdir(path)):
            self._loose(path, path in self._names)  # in a file there is nothing to deny
            return
        if readable:
            self._complement(node, path)
            return
        for name, inner in node.inner.items():
            self.read(inner, _join(path, name), False)

    def _complement(self, node: Node, path: str) -> None:
        """All in a directory but what is on the way to something denied; that is looked into."""
        if not self.watch(path):
            return
        self._list(path)
        found = _entries(path, node.inner)
        # The denied thing may turn up under another name: where the file system folds case (a
        # name that differs in case alone gets no rule anywhere), or through a second mount.
        folded = {name.casefold() for name in node.inner}
        known = {(found[name].st_dev, found[name].st_ino) for name in node.inner if name in found}
        for name, entry in found.items():
            inner = node.inner.get(name)
            if inner is not None:
                self.read(inner, _join(path, name), True)
            elif name.casefold() not in folded and (entry.st_dev, entry.st_ino) not in known:
                self._add(_join(path, name), entry, "read", False)

    def watch(self, path: str) -> bool:
        """Note that a directory matters. False when it is missing.

        One that is missing needs no watch: it is created in one that is watched.
        """
        there = os.path.lexists(path)
        if there:
            self.watched.setdefault(path)
        return there

    def named(self, path: str, access: RuleAccess) -> None:
        """A rule on what a person named; it was there when the policy was resolved."""
        try:
            entry = os.lstat(path)
        except OSError as error:
            raise Unenforceable(
                "writes", f"{path} is gone: {error.strerror}", "start again"
            ) from None
        if stat.S_ISCHR(entry.st_mode):
            access = "device"
        self._add(path, entry, access, True)

    def device(self, path: str) -> None:
        """A rule on a device that programs take for granted, if there is one and none denied it."""
        target = os.path.realpath(path)
        if not self._denied.isdisjoint(ancestors(target)):
            return
        try:
            entry = os.lstat(target)
        except OSError:
            return
        if below(target, "/dev") and (stat.S_ISCHR(entry.st_mode) or stat.S_ISDIR(entry.st_mode)):
            self._add(target, entry, "device", False)

    def _list(self, path: str) -> None:
        """Listing of a directory whose contents have rules of their own, and of all below it."""
        if not self._list_names:
            return
        try:
            self._add(path, os.lstat(path), "names", False)
        except OSError:
            return

    def _loose(self, path: str, named: bool) -> None:
        """A rule on one path and all below it, if it is there."""
        try:
            entry = os.lstat(path)
        except OSError:
            return
        self._add(path, entry, "read", named)

    def _add(self, path: str, entry: os.stat_result, access: RuleAccess, named: bool) -> None:
        is_dir = stat.S_ISDIR(entry.st_mode)
        if not named and not is_dir and access == "read" and not _is_lone_file(entry):
            return
        if len(self.rules) >= _RULES_MAX:
            raise Unenforceable(
                "denied reads",
                f"more than {_RULES_MAX} things beside what is denied, the last in {path}",
                "deny a directory that has fewer neighbours",
            )
        raw = os.fsencode(path)
        rule = Rule(raw, access, is_dir, named, entry.st_dev, entry.st_ino)
        if named or (raw, access) not in self.rules:
            self.rules[raw, access] = rule


def _entries(path: str, wanted: Iterable[str]) -> dict[str, os.stat_result]:
    """What is in a directory; links are not followed, what vanishes meanwhile is left out.

    Of one that may be searched but not listed only what is ``wanted`` is found: less is allowed,
    never more.
    """
    found: dict[str, os.stat_result] = {}
    try:
        names = os.listdir(path)
    except OSError:
        names = list(wanted)
    for name in names:
        try:
            found[name] = os.lstat(_join(path, name))
        except OSError:
            continue
    return found


def _is_lone_file(entry: os.stat_result) -> bool:
    """A regular file with one name; a rule on any other could open what is denied."""
    return stat.S_ISREG(entry.st_mode) and entry.st_nlink == 1


def _join(path: str, name: str) -> str:
    return f"/{name}" if path == "/" else f"{path}/{name}"
