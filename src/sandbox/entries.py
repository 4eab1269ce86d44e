"""What a policy says about files: entries, and the one rule that reads them.

An entry gives a path an access. The most specific entry that covers a path decides; of two for
the same path deny beats write and write beats read; a path that no entry covers is denied.
Some places are known only when a command is about to run (its workspace, its private temporary
directory, the runtime of this machine): those are *specials*, entries without a path.
A *layer* is a list of entries. A policy has one, and further ones once it was narrowed: what each
of them allows is allowed. That makes an intersection exact also while specials are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sandbox.errors import InvalidArgument
from sandbox.paths import clean

__all__ = [
    "Access",
    "Entry",
    "Layer",
    "Special",
    "Table",
    "access_in",
    "denies_of",
    "flattened",
    "least",
    "lookup",
    "put",
    "union",
]


class Access(StrEnum):
    """What may be done with a path; ``WRITE`` includes reading."""

    READ = "read"
    WRITE = "write"
    DENY = "deny"


class Special(StrEnum):
    """A place that becomes known when a command is about to run."""

    WORKSPACE = "workspace"  # the directory that the user named as the workspace
    TMP = "tmp"  # the private temporary directory
    MINIMAL = "minimal"  # what programs need to start: /usr, /etc, libraries


_RANK = {Access.DENY: 0, Access.READ: 1, Access.WRITE: 2}


def weaker_of(one: Access, other: Access) -> Access:
    """The access that allows less."""
    return one if _RANK[one] <= _RANK[other] else other


def stronger_of(one: Access, other: Access) -> Access:
    """The access that allows more."""
    return one if _RANK[one] >= _RANK[other] else other


@dataclass(frozen=True, slots=True)
class Entry:
    """One path (text or ``os.PathLike``; ``/`` is everything, ``~`` is HOME) and its access.

    With ``special`` the path is left empty. Only the workspace may have both: a workspace that
    the policy itself names. Raises ``InvalidPath`` or ``InvalidArgument``, its author's fault.
    """

    path: str
    access: Access
    special: Special | None = None

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "access", Access(self.access))
            if self.special is not None:
                object.__setattr__(self, "special", Special(self.special))
        except ValueError as error:
            raise InvalidArgument("entry", self.path, str(error)) from None
        if self.special is None or self.path:
            object.__setattr__(self, "path", clean(self.path))
        if self.path and self.special not in (None, Special.WORKSPACE):
            raise InvalidArgument("entry", self.path, f"{self.special} takes no path")

    @property
    def key(self) -> str:
        """What two entries about the same place have in common."""
        return self.path or f":{self.special}"


Layer = tuple[Entry, ...]
Table = dict[str, Access]


def lookup(table: Table, path: str) -> Access:
    """What the nearest path of a table at or above ``path`` has; no match is a deny."""
    while path not in table:
        if path == "/":
            return Access.DENY
        path = path.rpartition("/")[0] or "/"
    return table[path]


def least(tables: Iterable[Table], path: str) -> Access:
    """What all of some tables allow for a path."""
    found = Access.WRITE
    for table in tables:
        found = weaker_of(found, lookup(table, path))
    return found


def flattened(tables: list[Table]) -> Table:
    """One table that allows what all of them allow; exact, as each path of each is in it."""
    if len(tables) == 1:
        return tables[0]
    return {path: least(tables, path) for table in tables for path in table}


def access_in(layer: Layer, places: Mapping[Special, str], path: str) -> Access:
    """What a layer allows for a path (normal form), with these places for its specials."""
    return lookup(table_of(layer, places), path)


def table_of(layer: Layer, places: Mapping[Special, str]) -> Table:
    """Path to access, ties settled. A special without a known place covers nothing."""
    table: Table = {}
    for entry in layer:
        path = entry.path or (places.get(entry.special, "") if entry.special else "")
        if not path:
            continue
        before = table.get(path)
        if before is None or entry.access is Access.DENY:
            table[path] = entry.access
        elif before is not Access.DENY:
            table[path] = stronger_of(before, entry.access)
    return table


def put(layer: Layer, entry: Entry) -> Layer:
    """The layer with ``entry`` in the place of what it said about the same place."""
    return (*(kept for kept in layer if kept.key != entry.key), entry)


def denies_of(layer: Layer) -> Layer:
    """A layer that restricts nothing but what ``layer`` denies (its exceptions stay excepted)."""
    if not any(entry.access is Access.DENY for entry in layer):
        return ()
    lifted = tuple(
        entry if entry.access is Access.DENY else Entry(entry.path, Access.WRITE, entry.special)
        for entry in layer
    )
    return (Entry("/", Access.WRITE), *(entry for entry in lifted if entry.key != "/"))


def union(one: Layer, other: Layer) -> Layer:
    """A layer that allows what either allows.

    What is said about a special by only one side stands as it is said, unless the other allows
    more everywhere: where the special will lie is not known yet.
    """
    keys = {entry.key: entry for entry in (*one, *other)}
    return tuple(
        Entry(entry.path, stronger_of(_said(one, entry), _said(other, entry)), entry.special)
        for entry in keys.values()
    )


def _said(layer: Iterable[Entry], entry: Entry) -> Access:
    """What ``layer`` says about the place of ``entry``."""
    same = [item.access for item in layer if item.key == entry.key]
    if same:
        return Access.DENY if Access.DENY in same else max(same, key=_RANK.__getitem__)
    return access_in(tuple(layer), {}, entry.path or "/")
