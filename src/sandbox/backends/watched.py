"""What is watched: plans, from protected paths down to the names that matter.

Of a git directory that which names programs is watched, its submodules' and worktrees' too;
objects, refs and the index are free, so git commands go on working. Hooks ending in ``.sample``
are not: git does not run them. Of other directories everything is, to a bounded depth.

Not covered, because they lie outside every protected name: repositories below the workspace's top
and those that a command makes itself; scripts in the work tree that the host's own configuration
points to (``core.hooksPath``, ``include.path``, a linked hook); a bare repository planted where
there was no ``.git`` at all.
"""

from __future__ import annotations

import os
import re

from sandbox.backends.nofollow import Kind, entries, kind_of, look, read_file, read_link
from sandbox.backends.snapshot import (
    NAMES_MAX,
    NESTED_MAX,
    Directory,
    Found,
    Plan,
    Row,
    Survey,
    everything,
)

__all__ = ["MARKS", "Wanted", "is_head", "on_the_way"]

Wanted = dict[bytes, "Wanted"]  # the way to each protected path; empty at its end

# What is always in these, of which nothing is watched.
MARKS = {b"objects": frozenset({b"pack", b"info"}), b"refs": frozenset({b"heads"})}

_HEAD_MAX = 4096
_HEAD = re.compile(rb"(ref: ?refs/[^\0\n]+|[0-9a-f]{40}|[0-9a-f]{64})\n?")
_DEPTH = 2  # a protected directory's own entries, and those of its directories
_NESTED_DEPTH = 4  # names of submodules have slashes


def on_the_way(wanted: Wanted) -> Plan:
    """The plan of a directory that leads to protected paths, each at the end of its way."""
    return lambda survey, here: survey.nodes(
        here,
        [
            (name, "pin", on_the_way(rest)) if rest else (name, "same", _protected)
            for name, rest in wanted.items()
        ],
    )


def is_head(fd: int, name: bytes, kind: Kind) -> bool:
    """Whether this is a HEAD as git writes it, so that git takes the directory for its own."""
    if kind == "link":
        return read_link(fd, name).startswith(b"refs/")
    data = read_file(fd, name, _HEAD_MAX) if kind == "file" else None
    return data is not None and _HEAD.fullmatch(data) is not None


def _protected(survey: Survey, here: Directory) -> Found:
    """The plan of a protected directory; one that a .git file names looks like any other."""
    is_git = os.path.basename(here.path) == b".git"
    if not is_git and here.fd is not None:
        is_git = kind_of(look(here.fd, b"HEAD")) == "file"
    return survey.nodes(here, _GIT) if is_git else everything(_DEPTH)(survey, here)


def _inside_git(depth: int) -> Plan:
    """The plan of what holds the git directories of submodules or worktrees, by name."""
    return lambda survey, here: _inner_repositories(survey, here, depth)


def _inner_repositories(survey: Survey, here: Directory, depth: int) -> Found:
    names = entries(here.fd, NAMES_MAX) if here.fd is not None else {}
    inner = sorted(name for name, is_directory in (names or {}).items() if is_directory)
    if names is None or (inner and depth == 0):
        survey.blind("not watched (too deep, or too many names)", here.path)
        return (), None
    nodes = []
    for name in inner:
        if survey.nested == 0:
            survey.blind(f"only {NESTED_MAX} inner repositories are watched", here.path)
            break
        survey.nested -= 1
        nodes.append(survey.node(here, name, "any", _inner_repository(depth - 1)))
    return tuple(node for node in nodes if node is not None), None


def _inner_repository(depth: int) -> Plan:
    def plan(survey: Survey, here: Directory) -> Found:
        if here.fd is not None and look(here.fd, b"HEAD") is not None:
            return survey.nodes(here, _INNER)
        return _inner_repositories(survey, here, depth)

    return plan


# Of git's directory: what names programs, or makes git look for them elsewhere.
_INNER: tuple[Row, ...] = (
    (b"config", "same", None),
    (b"config.worktree", "same", None),
    (b"commondir", "same", None),
    (b"hooks", "same", everything(1, b".sample")),
    (b"info", "any", lambda survey, here: survey.nodes(here, ((b"attributes", "same", None),))),
    (b"modules", "any", _inside_git(_NESTED_DEPTH)),
    (b"worktrees", "any", _inside_git(1)),
)
_GIT: tuple[Row, ...] = (
    *_INNER,
    (b"HEAD", "head", None),
    (b"objects", "there", None),
    (b"refs", "there", None),
)
