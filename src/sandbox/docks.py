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
from collections.abc import Container
from dataclasses import replace
from typing import NamedTuple

from sandbox.backends.search import (
    NO_REPOSITORIES,
    find_repositories,
    list_directory,
    literal_part,
)
from sandbox.entries import Access
from sandbox.errors import InvalidArgument, WorkspaceRefused
from sandbox.paths import below, follow, has_pattern, real
from sandbox.protected import leads_to
from sandbox.resolve import Place, ResolvedPolicy

__all__ = ["Workspace", "dock_of", "docked", "look"]

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
        all_nested=True,
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


class Workspace(NamedTuple):
    """One of them, as it was found.

    ``which``: the directory itself. ``there``, ``absent``: its protected paths that exist and that
    do not; ``behind``: what git's pointers in it lead to elsewhere. ``complete``: whether all
    repositories were found.
    """

    path: str
    which: os.stat_result
    there: tuple[str, ...]
    absent: tuple[str, ...]
    behind: tuple[str, ...]
    complete: bool


def look(dock: str, workspace: str, names: tuple[str, ...]) -> Workspace:
    """Finds out what is to be protected. Raises ``WorkspaceRefused`` and ``InvalidPath``."""
    path, which = _named(dock, workspace)
    listing = list_directory(path)
    listed = {*listing.names, *listing.links}
    near = {name: f"{path}/{name}" for name in names}
    present = [name for name in names if _is_listed(path, name, listed)]
    there = [near[name] for name in present]
    behind = [one for name in present for one in leads_to(path, name)]
    complete = True
    if ".git" in names and any(name not in NO_REPOSITORIES for name in listing.directories):
        found = find_repositories([path])
        there += found.paths
        complete = found.complete
    inside = [one for one in behind if below(one, path)]
    there += [one for one in inside if one not in there]
    absent = [one for one in near.values() if one not in there]
    outside = [one for one in behind if one not in inside]
    return Workspace(path, which, tuple(there), tuple(absent), tuple(outside), complete)


def _is_listed(path: str, name: str, listed: Container[str]) -> bool:
    first = name.partition("/")[0]
    return first in listed and (first == name or os.path.lexists(f"{path}/{name}"))


def docked(first: ResolvedPolicy, found: Workspace) -> ResolvedPolicy:
    """The policy for one of them."""
    places = [*first.places]
    insort(places, Place(found.path, Access.WRITE))
    return replace(
        first,
        places=tuple(places),
        writable=(found.path, *first.writable),
        protected=(*found.there, *found.absent, *found.behind, *first.protected),
        all_nested=found.complete,
        workspace=found.path,
    )


def _named(dock: str, workspace: str) -> tuple[str, os.stat_result]:
    """The real path of a directory in the dock itself, and which one it is."""
    above, _, name = workspace.rpartition("/")
    if above != dock or name in ("", ".", ".."):
        workspace = real(workspace, "workspace")
        above = os.path.dirname(workspace)
    try:
        found = os.lstat(workspace)
        if above == dock and stat.S_ISDIR(found.st_mode):
            return workspace, found
        cause, mend = f"it is no directory in {dock} itself", "a sandbox of its own"
    except OSError as error:
        cause, mend = error.strerror or str(error), "create it"
    raise WorkspaceRefused(workspace, cause, mend)
