"""Limits as the kernel's resource limits."""

from __future__ import annotations

import resource
from functools import lru_cache

from sandbox.limits import Limits

__all__ = ["rlimits"]


@lru_cache(maxsize=64)
def _wanted(limits: Limits, counted: bool) -> tuple[tuple[int, int], ...]:
    wanted = {
        resource.RLIMIT_CPU: limits.cpu,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_FSIZE: limits.file_size,
        # That one counts all processes of the user, or of the sandbox: not beside an exact one.
        resource.RLIMIT_NPROC: None if counted else limits.processes,
        # With 0 the kernel still starts a core_pattern program, and feeds it the process's memory;
        # 1 is the value that stops that (fs/coredump.c), and no core file is that small.
        resource.RLIMIT_CORE: max(limits.core, 1) if limits.core is not None else None,
    }
    return tuple((number, value) for number, value in wanted.items() if value is not None)


def rlimits(limits: Limits, counted: bool = False) -> tuple[tuple[int, int, int], ...]:
    """Limits as (resource, soft, hard). Never above the hard limit that the caller has.

    ``counted``: the lane sees to the number of processes.
    """
    table = []
    for number, value in _wanted(limits, counted):
        hard = resource.getrlimit(number)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        table.append((number, bound, bound))
    return tuple(table)
