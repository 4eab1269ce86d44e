"""What one command may use up.

Numbers are checked here, once, so that nothing later has to: a limit of zero, a negative one, NaN
or infinity is a mistake of its author and never "no limit". ``None`` is no limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields

from sandbox.errors import InvalidLimit

__all__ = ["WALL_DEFAULT", "Limits", "check_seconds", "size"]

WALL_DEFAULT = 120.0
_YEAR = 366 * 24 * 3600
_BYTES_MAX = 2**62  # RLIM_INFINITY is above it on every platform
# smallest and largest of each whole number; 0 says "none at all" where that can be meant
_RANGES: dict[str, tuple[int, int, str]] = {
    "cpu": (1, _YEAR, "whole seconds"),
    "open_files": (4, 2**20, "descriptors"),
    "file_size": (1, _BYTES_MAX, "bytes"),
    "core": (0, _BYTES_MAX, "bytes"),
    "processes": (1, 2**22 - 300, "processes"),
    "memory": (2**20, _BYTES_MAX, "bytes"),
    "tmp": (2**20, _BYTES_MAX, "bytes"),
    "output": (0, 2**32, "bytes"),
}


def size(text: str) -> int:
    """A number of bytes, or of 1024, 1024², 1024³ with K, M, G behind it. Raises ``ValueError``."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text, re.ASCII | re.IGNORECASE)
    if found is None:
        raise ValueError(f"{text!r} is no size, such as 512M")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2].upper()]


def check_seconds(field: str, value: object) -> float:
    """``value`` as seconds for a limit or time-out called ``field``.

    Raises ``InvalidLimit`` unless it is a finite number above 0 and at most one year.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidLimit(field, value, "must be a number of seconds, or None for no limit")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidLimit(field, value, "must be finite, or None for no limit")
    if value <= 0:
        raise InvalidLimit(field, value, "must be more than 0 seconds, or None for no limit")
    if value > _YEAR:
        raise InvalidLimit(field, value, f"must be at most {_YEAR} seconds (a year), or None")
    return float(value)


def _check_whole(field: str, value: object) -> None:
    """Refuse what is no whole number in the range of ``field``."""
    low, high, unit = _RANGES[field]
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidLimit(field, value, f"must be a whole number of {unit}")
    if not low <= value <= high:
        raise InvalidLimit(field, value, f"must be from {low} to {high} {unit}")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one command; None is no limit.

    - ``wall``: seconds from start to end, for the whole tree; 120 unless given.
    - ``cpu``: whole seconds of processor time, of each process (RLIMIT_CPU).
    - ``open_files``: descriptors of each process; 4096, so that programs that loop over all
      possible ones stay quick.
    - ``file_size``: bytes that a file may grow to (RLIMIT_FSIZE).
    - ``core``: bytes of a core dump; 0, none.
    - ``processes``: processes and threads of the command at one time. Without namespaces, and
      before Linux 6.14, it is RLIMIT_NPROC: of the user, and it does not bind root.
    - ``memory``: bytes that all its processes may have together: memory of their own, shared memory
      that they map, and what of these is in swap. It is looked at every 20 ms, and what has more is
      ended (``Result.memory_exceeded``); so it may be passed for a moment. One process cannot map
      much more at all (RLIMIT_DATA).
    - ``tmp``: bytes in each of ``/tmp`` and ``/dev/shm`` where these are the sandbox's own
      (namespaces) and lie in memory, and a file for every 4 KiB of it; 2 GiB, enough for what tools
      unpack, and not all memory of a usual machine (the kernel's own limit, None, is half of it for
      each). They belong to the whole sandbox: the number of its policy counts.
    - ``output``: bytes kept of standard output and of standard error, each; 10 MiB. The rest is
      counted and dropped, the command is not slowed. 0 keeps nothing and only counts.

    Raises ``InvalidLimit`` (the author's fault) naming the field and the value.
    """

    wall: float | None = WALL_DEFAULT
    cpu: int | None = None
    open_files: int | None = 4096
    file_size: int | None = None
    core: int | None = 0
    processes: int | None = None
    memory: int | None = None
    tmp: int | None = 2 * 1024**3
    output: int = 10 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.wall is not None:
            object.__setattr__(self, "wall", check_seconds("wall", self.wall))
        for name in _RANGES:
            value = getattr(self, name)
            if value is not None or name == "output":
                _check_whole(name, value)

    def narrow(self, other: Limits) -> Limits:
        """The smaller of each limit."""
        return self._each(other, min)

    def widen(self, other: Limits) -> Limits:
        """The larger of each limit."""
        return self._each(other, max)

    def _each(self, other: Limits, choose: Callable[[float, float], float]) -> Limits:
        chosen: dict[str, float | int | None] = {}
        for item in fields(self):
            mine, theirs = getattr(self, item.name), getattr(other, item.name)
            pair = [math.inf if value is None else value for value in (mine, theirs)]
            value = choose(pair[0], pair[1])
            chosen[item.name] = None if value == math.inf else value
        return Limits(**chosen)  # type: ignore[arg-type]
