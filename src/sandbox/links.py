"""Links that a command could have made, on the way to what a policy grants.

A policy is resolved anew in each process. Between two of them a command may have put a link where
a granted directory was; following it would grant what the command chose, not what a person named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sandbox.entries import Access, Layer
from sandbox.errors import InvalidPath
from sandbox.paths import ancestors, below, follow

__all__ = ["check_links"]


def check_links(layers: Iterable[Layer], table: Mapping[str, Access]) -> None:
    """Refuses a grant that leaves a writable directory by a link in it.

    ``table`` has real paths. Raises ``InvalidPath``.
    """
    for layer in layers:
        for entry in layer:
            if entry.access is Access.DENY or not entry.path:
                continue
            target, links = follow(entry.path)
            for link in links:
                root = _writable_root(link, table)
                if root and not below(target, root):
                    raise InvalidPath(
                        entry.path,
                        f"leads out of {root} by the link {link}, which a command may have made",
                        f"name where it is to lead ({target}), if that is meant",
                    )


def _writable_root(link: str, table: Mapping[str, Access]) -> str:
    """The directory by which the place of a link is writable, empty when it is not."""
    for place in ancestors(link.rpartition("/")[0] or "/"):
        if place in table:
            return place if table[place] is Access.WRITE else ""
    return ""
