"""The other names of a path: what a second mount of the same file system shows.

A bind mount shows a denied directory under another name, and a rule is judged by the name that is
used. ``/proc/self/mountinfo`` says which part of which file system lies where; from it every
further name of a path can be worked out. Layers of an overlay are not told there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from sandbox.paths import ancestors, below

__all__ = ["Mount", "aliases", "mount_table", "parse_mounts"]

_ESCAPE = re.compile(r"\\([0-7]{3})")  # blank, tab, newline and backslash in mountinfo


class Mount(NamedTuple):
    """One mount: the file system's device, the part of it that is shown, and where."""

    device: str
    root: str
    point: str


def parse_mounts(text: str) -> list[Mount]:
    """The mounts of a mountinfo file, in its order; lines that are none are left out."""
    mounts = []
    for line in text.splitlines():
        parts = line.split(" ")
        if len(parts) >= 5:
            root, point = (_ESCAPE.sub(_unescape, part) for part in parts[3:5])
            mounts.append(Mount(parts[2], root, point))
    return mounts


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 8))


def mount_table() -> str:
    """The mountinfo file of this process, empty where there is none."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def aliases(paths: Iterable[str], text: str | None = None) -> list[str]:
    """All other names of ``paths`` (real ones), where a second mount shows them.

    ``text`` is a mountinfo file, this process's own unless given; none at all has no other names.
    """
    if text is None:
        text = mount_table()
    shared: dict[str, list[Mount]] = {}
    points: dict[str, Mount] = {}  # of several mounts on one point the last is what is seen
    for mount in parse_mounts(text):
        shared.setdefault(mount.device, []).append(mount)
        points[mount.point] = mount
    if len(shared) == sum(map(len, shared.values())):
        return []  # nothing is shown twice
    found: dict[str, None] = {}
    for path in paths:
        point = next((place for place in ancestors(path) if place in points), None)
        if point is None:
            continue
        here = points[point]
        inner = _join(here.root, path if point == "/" else path[len(point) :])
        for other in shared[here.device]:
            name = _name_in(other, inner)
            if name and name != path:
                found[name] = None
    return list(found)


def _name_in(mount: Mount, inner: str) -> str:
    """The name of a file system's path in one of its mounts; empty where it is not shown."""
    if below(inner, mount.root):
        rest = inner if mount.root == "/" else inner[len(mount.root) :]
        return _join(mount.point, rest)
    # The mount shows a part of what is denied: all of it is.
    return mount.point if below(mount.root, inner) else ""


def _join(base: str, rest: str) -> str:
    rest = rest.strip("/")
    if not rest:
        return base
    return f"/{rest}" if base == "/" else f"{base}/{rest}"
