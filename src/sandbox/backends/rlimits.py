"""Limits as the kernel's resource limits."""

from __future__ import annotations

import os
import resource
from functools import lru_cache

from sandbox.limits import Limits

__all__ = ["rlimits"]


_ROOM_LEAST = 1 << 30
_ROOM_SHARE = 16  # of the machine's memory; a JVM takes a 64th at its start, and uses little of it


def _room() -> int:
    """What a process may map beyond its limit of memory: runtimes map far more than they use."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(_ROOM_LEAST, memory // _ROOM_SHARE)


@lru_cache(maxsize=64)
def _wanted(limits: Limits, counted: bool) -> tuple[tuple[int, int], ...]:
    wanted = {
        resource.RLIMIT_CPU: limits.cpu,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_FSIZE: limits.file_size,
        # That one counts all processes of the user, or of the sandbox: not beside an exact one.
        resource.RLIMIT_NPROC: None if counted else limits.processes,
        resource.RLIMIT_DATA: limits.memory + _room() if limits.memory is not None else None,
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
