"""Resolving a policy again, for a sandbox that is there already.

The host may have changed: a secret is elsewhere now, a git directory is another one. A boundary
never moves outwards, so of the later resolution only what forbids is taken.
"""

from __future__ import annotations

from dataclasses import replace

from sandbox.entries import Access, least
from sandbox.paths import below, follow
from sandbox.resolve import Place, ResolvedPolicy, needed

__all__ = ["narrowed"]


def narrowed(first: ResolvedPolicy, later: ResolvedPolicy) -> ResolvedPolicy:
    """``first``, denying and protecting also what ``later`` does, of the same policy.

    What was denied and is a link now is denied where that leads. It is ``later`` itself where that
    is the same: a backend may have prepared it.
    """
    old, new = first.table(), later.table()
    table, links = dict(old), [*first.links, *later.links]
    denied = [place for place in later.denied if place not in first.denied]
    kept = []
    for place in first.denied:
        target, passed = follow(place.path)
        links.extend(passed)
        if not passed:
            kept.append(place)
            continue
        denied.append(place._replace(path=target))
        if table.get(place.path) is Access.DENY:
            del table[place.path]
    for place in denied:
        for path in {path for path in (*old, *new) if below(path, place.path)}:
            table[path] = least((old, new), path)
        table[place.path] = Access.DENY
    paths = sorted(needed(table))
    made = replace(
        first,
        places=tuple(Place(path, table[path]) for path in paths),
        writable=tuple(path for path in paths if table[path] is Access.WRITE),
        denied=tuple(dict.fromkeys((*kept, *denied))),
        links=tuple(dict.fromkeys(links)),
        matched=tuple(dict.fromkeys((*first.matched, *later.matched))),
        more_protected=tuple(path for path in later.protected if path not in first.protected),
    )
    return later if later == made else made
