"""Limits as the kernel's resource limits."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping

from sandbox.limits import Limits

__all__ = ["Table", "hard_limits", "rlimits"]

Table = tuple[tuple[int, int, int], ...]


_ROOM_LEAST = 1 << 30
_ROOM_SHARE = 16  # of the machine's memory; a JVM takes a 64th at its start, and uses little of it


def _room() -> int:
    """What a process may map beyond its limit of memory: runtimes map far more than they use."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(_ROOM_LEAST, memory // _ROOM_SHARE)


def _wanted(limits: Limits, counted: bool) -> dict[int, int | None]:
    return {
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


def hard_limits() -> dict[int, int]:
    """The hard limits of this process, which what it starts now inherits for good."""
    return {number: resource.getrlimit(number)[1] for number in _wanted(Limits(), False)}


def rlimits(limits: Limits, hard: Mapping[int, int], counted: bool = False) -> Table:
    """Limits as (resource, soft, hard), none above the hard limit that is there already.

    ``counted``: the lane sees to the number of processes.
    """
    table = []
    for number, value in _wanted(limits, counted).items():
        if value is not None:
            bound = value if hard[number] == resource.RLIM_INFINITY else min(value, hard[number])
            table.append((number, bound, bound))
    return tuple(table)
