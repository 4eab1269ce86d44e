"""Resolving a policy where mounts enforce it: what has to be looked for is looked for first.

A denied pattern becomes the paths that match it now. Repositories that lie deeper in a writable
directory are protected like that at its top. Neither is looked for before each command: a pattern
is when a directory has changed in which something could match, repositories when a sandbox is made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sandbox.backends.base import Question
from sandbox.backends.search import DIRECTORIES_MAX, find_repositories, literal_part, search
from sandbox.entries import Access, Entry, Layer
from sandbox.errors import Unenforceable
from sandbox.paths import ancestors, follow, has_pattern
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy, resolve
from sandbox.result import Weaker

__all__ = ["resolve_patterns", "resolve_searched", "weaker_nested", "weaker_searched"]


def resolve_searched(question: Question) -> ResolvedPolicy:
    """As ``resolve``, with patterns expanded and repositories found.

    Raises ``Unenforceable`` where there are too many directories to look for a pattern in.
    """
    return _resolved(question, _matches)


def resolve_patterns(question: Question) -> ResolvedPolicy:
    """As ``resolve_searched``, for who denies patterns as they are: they are not looked for."""
    return _resolved(question, lambda _: ())


def _resolved(question: Question, match: Callable[[str], Sequence[str]]) -> ResolvedPolicy:
    policy = question.policy
    patterns = tuple(dict.fromkeys(one for layer in policy.layers for one in _patterns(layer)))
    matched: list[str] = []
    for pattern in patterns:
        matched += match(pattern)
    denied = tuple(Entry(path, Access.DENY) for path in dict.fromkeys(matched))
    if patterns:
        layers = [_without_patterns(layer) for layer in policy.layers]
        entries, *within = ((*layer, *denied) for layer in layers)
        searched = replace(policy, entries=entries, within=tuple(within))
        question = question._replace(policy=searched)
    found = resolve(*question.asked)
    repositories = _repositories(policy, found, found.workspace if question.docks else "")
    return replace(
        found,
        policy=policy,
        patterns=patterns,
        matched=tuple(matched),
        nested=repositories[0],
        all_nested=repositories[1],
    )


def _is_pattern(entry: Entry) -> bool:
    is_deny = entry.access is Access.DENY and has_pattern(entry.path)
    return is_deny and not os.path.lexists(entry.path)


def _without_patterns(layer: Layer) -> Layer:
    return tuple(entry for entry in layer if not _is_pattern(entry))


def _patterns(layer: Layer) -> Iterator[str]:
    """The patterns of a layer, from the real path of what is no pattern in them."""
    for entry in layer:
        if _is_pattern(entry):
            start = literal_part(entry.path)
            rest = entry.path[len(start) :].lstrip("/")
            yield f"{follow(start)[0].rstrip('/')}/{rest}"


def _matches(pattern: str) -> tuple[str, ...]:
    found = search(pattern)
    if not found.complete:
        raise Unenforceable(
            "a denied pattern",
            f"there are more than {DIRECTORIES_MAX} directories to look for {pattern!r} in",
            "begin the pattern with a directory further down, or deny directories by name",
        )
    return found.paths


def _repositories(
    policy: SandboxPolicy, found: ResolvedPolicy, dock: str
) -> tuple[tuple[str, ...], bool]:
    """The git directories below the tops of writable directories, and whether those are all.

    In those that lie in a ``dock`` they are looked for when one comes.
    """
    if ".git" not in policy.protected:
        return (), True
    roots = [path for path in found.writable if path not in (found.tmp, dock)]
    roots = [path for path in roots if os.path.isdir(path)]
    outermost = [path for path in roots if not any(one in roots for one in ancestors(path)[1:])]
    seen = find_repositories(outermost)
    entries = (entry for layer in policy.layers for entry in layer)
    writes = [one.path for one in entries if one.access is Access.WRITE and one.path]
    lifted = {above for path in writes for above in ancestors(follow(path)[0])}
    known = {*lifted, *found.protected}
    return tuple(path for path in seen.paths if path not in known), seen.complete


def weaker_searched(resolved: ResolvedPolicy) -> Iterator[Weaker]:
    """What of this is not enforced at every moment, or not everywhere."""
    if resolved.patterns:
        cause = "what comes to match while a command runs is denied from the next command on"
        yield Weaker("patterns", cause, "deny the directory")
    yield from weaker_nested(resolved)


def weaker_nested(resolved: ResolvedPolicy) -> Iterator[Weaker]:
    """Whether repositories further down may have been missed."""
    if not resolved.all_nested:
        cause = "not all directories were searched: a repository far down is not protected"
        yield Weaker("nested-repositories", cause, "name its .git with read access, or its parent")
