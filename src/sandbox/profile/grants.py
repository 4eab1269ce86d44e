"""What a policy lets be written, by real path: with the links of the disk and protected names.

Worked out once, when a profile is loaded or shown; ``resolve`` has the binding answer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from sandbox.entries import Access, Special, Table, flattened, least, table_of
from sandbox.paths import ancestors
from sandbox.policy import SandboxPolicy
from sandbox.protected import lifted_by, protected_paths

__all__ = ["Grants", "grants_of"]


@dataclass(frozen=True, slots=True)
class Grants:
    """Each list of entries by real path, what all of them allow, what is lifted and protected."""

    tables: list[Table]
    granted: Table
    lifted: set[str]
    protected: frozenset[str]
    nested: bool  # whether repositories further down are protected, too

    def access(self, path: str) -> Access:
        """What is allowed for a real path, protected names apart."""
        return least(self.tables, path)

    def is_held(self, path: str) -> bool:
        """Whether a real path is, or lies in, what stays read-only in what may be written."""
        return any(
            above in self.protected
            or (self.nested and above.endswith("/.git") and above not in self.lifted)
            for above in ancestors(path)
        )


def grants_of(policy: SandboxPolicy, workspace: str) -> Grants:
    """What a policy grants, as the disk is now."""
    places = {Special.WORKSPACE: workspace}
    tables = []
    for layer in policy.layers:
        real = [replace(one, path=os.path.realpath(one.path)) if one.path else one for one in layer]
        tables.append(table_of(tuple(real), places))
    granted = flattened(tables)
    lifted = lifted_by(granted, tables)
    held = () if policy.unconfined else protected_paths(policy.protected, granted, "", lifted)
    nested = ".git" in policy.protected and not policy.unconfined
    return Grants(tables, granted, lifted, frozenset(held), nested)
