"""Limits as the kernel's resource limits."""

from __future__ import annotations

import resource
from collections.abc import Mapping

from sandbox.limits import Limits

__all__ = ["Table", "hard_limits", "rlimits"]

Table = tuple[tuple[int, int, int], ...]


def _wanted(limits: Limits) -> dict[int, int | None]:
    return {
        resource.RLIMIT_CPU: limits.cpu,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_FSIZE: limits.file_size,
        resource.RLIMIT_NPROC: limits.processes,
        # With 0 the kernel still starts a core_pattern program, and feeds it the process's memory;
        # 1 is the value that stops that (fs/coredump.c), and no core file is that small.
        resource.RLIMIT_CORE: max(limits.core, 1) if limits.core is not None else None,
    }


def hard_limits() -> dict[int, int]:
    """The hard limits of this process, which what it starts now inherits for good."""
    return {number: resource.getrlimit(number)[1] for number in _wanted(Limits())}


def rlimits(limits: Limits, hard: Mapping[int, int]) -> Table:
    """Limits as (resource, soft, hard), none above the hard limit that is there already."""
    table = []
    for number, value in _wanted(limits).items():
        if value is not None:
            bound = value if hard[number] == resource.RLIM_INFINITY else min(value, hard[number])
            table.append((number, bound, bound))
    return tuple(table)
