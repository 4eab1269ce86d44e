"""Looking for names in directories, with a bound: repositories, and what a pattern denies.

Breadth first, because what lies near the top matters most when the bound is reached. Links are
neither followed nor found: what is denied by its name is not denied by the name of a link to it.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from sandbox.errors import start_error

__all__ = [
    "DIRECTORIES_MAX",
    "NO_REPOSITORIES",
    "Found",
    "Lister",
    "Listing",
    "find_repositories",
    "glob_expression",
    "literal_part",
    "search",
]

DIRECTORIES_MAX = 10_000  # that are looked at for a pattern; some 20 microseconds each
_REPOSITORY_DIRECTORIES = 256
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_TICK_NS = 20_000_000
# Package managers unpack archives there, thousands of directories without a repository.
NO_REPOSITORIES = frozenset({".git", "node_modules"})


class Listing(NamedTuple):
    """Of one directory: the directories in it, and what is not a link."""

    directories: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class Found(NamedTuple):
    """What was found; ``directories``: where was looked; ``complete``: whether that is all."""

    paths: tuple[str, ...]
    directories: tuple[str, ...]
    complete: bool


def list_directory(path: str) -> Listing:
    """What is in a directory; nothing where it cannot be listed: commands cannot either."""
    directories, names = list[str](), list[str]()
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                if not entry.is_symlink():
                    names.append(entry.name)
    except OSError as error:
        if error.errno in _SHORTAGES:  # nothing is known of it then
            raise start_error("helper", error.errno) from None
    return Listing(tuple(directories), tuple(names))


class Lister:
    """Lists directories, those that rest from memory. It must not be shared by threads."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], Listing]] = {}

    def __call__(self, path: str) -> Listing:
        """As ``list_directory``."""
        try:
            found = os.stat(path, follow_symlinks=False)
        except OSError:
            return Listing()
        state = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)
        known = self._known.get(path)
        if known is not None and known[0] == state:
            return known[1]
        listing = list_directory(path)
        # What changed just now may change again without looking different.
        if time.time_ns() - found.st_ctime_ns > _TICK_NS:
            self._known[path] = (state, listing)
        return listing


def _walk(
    tops: Iterable[str], skipped: frozenset[str], lister: Callable[[str], Listing]
) -> Iterator[tuple[str, Listing]]:
    """Directories, the nearest first, without what is in those that are ``skipped``."""
    level = list(tops)
    while level:
        below: list[str] = []
        for path in level:
            listing = lister(path)
            yield path, listing
            inner = (name for name in listing.directories if name not in skipped)
            below += [f"{path.rstrip('/')}/{name}" for name in inner]
        level = below


def find_repositories(roots: Sequence[str], limit: int = _REPOSITORY_DIRECTORIES) -> Found:
    """The ``.git`` of repositories below writable directories, not those at their tops."""
    found, looked = list[str](), list[str]()
    for path, listing in _walk(roots, NO_REPOSITORIES, list_directory):
        if len(looked) == limit:
            return Found(tuple(found), tuple(looked), False)
        looked.append(path)
        if ".git" in listing.names and path not in roots:
            found.append(f"{path.rstrip('/')}/.git")
    return Found(tuple(found), tuple(looked), True)


def literal_part(pattern: str) -> str:
    """The directory of a pattern that has no sign of one: where looking begins."""
    parts = pattern.split("/")
    first = next(i for i, part in enumerate(parts) if re.search(r"[*?\[]", part))
    return "/".join(parts[:first]) or "/"


def search(
    pattern: str,
    limit: int = DIRECTORIES_MAX,
    lister: Callable[[str], Listing] = list_directory,
) -> Found:
    """What matches a pattern now.

    ``**`` stands for any directories, also none, ``*`` and ``?`` for what is in a name, ``[...]``
    for one sign. ``lister``: what lists a directory.
    """
    matches = _compile(pattern)
    deep = "**" in pattern.split("/")
    depth = pattern.count("/")
    found, looked = list[str](), list[str]()
    for path, listing in _walk([literal_part(pattern)], frozenset(), lister):
        if not deep and path.rstrip("/").count("/") >= depth:
            break  # nearest first: nothing further matches
        if len(looked) == limit:
            return Found(tuple(found), tuple(looked), False)
        looked.append(path)
        paths = (f"{path.rstrip('/')}/{name}" for name in listing.names)
        found += [one for one in paths if matches.fullmatch(one)]
    return Found(tuple(found), tuple(looked), True)


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(glob_expression(pattern), re.DOTALL)


def glob_expression(pattern: str, quote: Callable[[str], str] = re.escape) -> str:
    """A regular expression for a pattern that begins with a slash, without anchors.

    ``**/`` may stand for no directory at all. ``quote``: how text stands for itself.
    """
    parts = pattern.split("/")[1:]
    return "".join("(/[^/]+)*" if part == "**" else "/" + _name(part, quote) for part in parts)


def _name(part: str, quote: Callable[[str], str]) -> str:
    text, plain, at = "", "", 0
    while at < len(part):
        sign = part[at]
        end = part.find("]", at + 2) if sign == "[" else -1
        if end > 0 or sign in "*?":
            text, plain = text + quote(plain), ""
        if end > 0:
            inner = part[at + 1 : end].replace("\\", r"\\").replace("[", r"\[")
            inner = "^/" + inner[1:] if inner[0] in "!^" else inner
            text += f"[{inner}]"
            at = end
        elif sign in "*?":
            text += {"*": "[^/]*", "?": "[^/]"}[sign]
        else:
            plain += sign
        at += 1
    text += quote(plain)
    return text
