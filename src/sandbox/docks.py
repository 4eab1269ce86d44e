"""One sandbox for many workspaces, one after another: only what differs between them is made anew.

What is resolved first is the policy with the *dock*, the directory in which all of them are, as its
workspace: whatever would be refused for one in there is refused once, for all. Then the dock is
hidden but for the one that lies in it. That one's protected names, its repositories and what git's
pointers in it lead to are looked for when it comes, and mounted with it (``backends.moored``).
"""

from __future__ import annotations

import os
import stat
from bisect import insort
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from sandbox.backends.search import find_repositories, literal_part
from sandbox.entries import Access
from sandbox.errors import InvalidArgument, WorkspaceRefused
from sandbox.paths import below, follow, has_pattern, is_there, real
from sandbox.protected import leads_to
from sandbox.resolve import Place, ResolvedPolicy

__all__ = [
    "Names",
    "NotDocked",
    "Workspace",
    "are_near",
    "dock_of",
    "docked",
    "guessed",
    "look",
    "named",
]

_REASON = "other workspaces are there"
_SHARED = ("/tmp", "/run")  # a sandbox has its own


def dock_of(resolved: ResolvedPolicy) -> ResolvedPolicy:
    """A policy resolved for the dock as its workspace, for those in it. Raises ``PolicyError``."""
    dock = resolved.workspace
    _check(resolved, dock)
    places = [place for place in resolved.places if place.path != dock]
    return replace(
        resolved,
        places=tuple(sorted((*places, Place(dock, Access.DENY, _REASON)))),
        writable=tuple(path for path in resolved.writable if path != dock),
        protected=tuple(path for path in resolved.protected if not below(path, dock)),
        more_protected=tuple(path for path in resolved.more_protected if not below(path, dock)),
        nested=tuple(path for path in resolved.nested if not below(path, dock)),
        workspace="",
        dock=dock,
    )


def _check(resolved: ResolvedPolicy, dock: str) -> None:
    """Nothing but the workspaces themselves may be said of what is in there."""
    if not dock or resolved.access(dock) is not Access.WRITE:
        raise InvalidArgument("workspaces", dock, "the policy has no writable workspace")
    if dock in _SHARED:
        raise WorkspaceRefused(dock, "a sandbox has its own", "a directory in it")
    entries = [entry for layer in resolved.policy.layers for entry in layer]
    named = [follow(one.path)[0] for one in entries if one.path and not has_pattern(one.path)]
    named += [place.path for place in resolved.places if place.path != dock]
    named += [place.path for place in resolved.denied] + list(resolved.sockets)
    named += [literal_part(pattern) for pattern in resolved.patterns]
    reaching = [pattern for pattern in resolved.patterns if below(dock, literal_part(pattern))]
    for path in (*named, *reaching):
        if path in reaching or below(path, dock):
            cause = f"the policy names {path}, which is in there, or may be"
            raise InvalidArgument("workspaces", dock, cause, "a sandbox for each workspace")


class NotDocked(WorkspaceRefused):
    """One that this sandbox cannot be given; a sandbox of its own can."""


class Workspace(NamedTuple):
    """One of them, as it was found.

    ``which``: the directory itself. ``there``, ``absent``: its protected paths that exist and that
    do not; ``behind``: what git's pointers in it lead to elsewhere. ``complete``: whether all
    repositories were found. ``missing``: the names that are not there, which are all of ``absent``
    where ``is_near``, and right in it.
    """

    path: str
    which: os.stat_result
    there: tuple[str, ...]
    absent: tuple[str, ...]
    behind: tuple[str, ...]
    complete: bool
    missing: tuple[str, ...]
    is_near: bool


class Names(NamedTuple):
    """Which of some names are in a directory, and whether there may be repositories in it."""

    present: tuple[str, ...]
    deeper: bool


def named(dock: str, workspace: str) -> tuple[str, os.stat_result]:
    """The real path of a directory right in the dock, and which one it is.

    Raises ``WorkspaceRefused`` and ``InvalidPath``.
    """
    above, _, name = workspace.rpartition("/")
    if above != dock or name in ("", ".", ".."):
        workspace = real(workspace, "workspace")
        above = os.path.dirname(workspace)
    try:
        found = os.lstat(workspace)
    except OSError as error:
        raise WorkspaceRefused(workspace, error.strerror or str(error), "create it") from None
    if above != dock or not stat.S_ISDIR(found.st_mode):
        cause = f"it is no directory in {dock} itself"
        raise WorkspaceRefused(workspace, cause, "name one that is")
    return workspace, found


def look(base: ResolvedPolicy, path: str, which: os.stat_result, found: Names) -> Workspace:
    """Finds out what is to be protected in one. Raises ``WorkspaceRefused``."""
    names, (present, deeper) = base.policy.protected, found
    missing = tuple(name for name in names if name not in present) if present else names
    there = [f"{path}/{name}" for name in present]
    absent = [f"{path}/{name}" for name in missing]
    behind = [one for name in present for one in leads_to(path, name)]
    complete = True
    if deeper and ".git" in names:
        repositories = find_repositories([path])
        there += repositories.paths
        complete = repositories.complete
    for one in behind:
        if not below(one, path):
            if base.access(one) is Access.WRITE:
                cause = f"what a pointer in it leads to may be written: {one}"
                raise NotDocked(path, cause, "a sandbox of its own")
        elif one not in there and one not in absent:
            (there if is_there(one) else absent).append(one)
    outside = tuple(one for one in behind if not below(one, path))
    near = len(absent) == len(missing) and are_near(names)
    paths = tuple(there), tuple(absent), outside
    return Workspace(path, which, *paths, complete, missing, near)


@lru_cache(maxsize=64)
def are_near(names: tuple[str, ...]) -> bool:
    """Whether these are names right in a directory."""
    return not any("/" in name for name in names)


def guessed(path: str, names: tuple[str, ...]) -> Names:
    """Of a directory that cannot be listed, but passed, and so may commands. Raises ``OSError``."""
    os.lstat(f"{path}/.")  # or not, and nothing can be told
    return Names(tuple(name for name in names if is_there(f"{path}/{name}")), True)


def docked(first: ResolvedPolicy, found: Workspace) -> ResolvedPolicy:
    """The policy for one of them."""
    places = [*first.places]
    insort(places, Place(found.path, Access.WRITE))
    return replace(
        first,
        places=tuple(places),
        writable=(found.path, *first.writable),
        protected=(*found.there, *found.absent, *found.behind, *first.protected),
        all_nested=first.all_nested and found.complete,
        workspace=found.path,
    )
