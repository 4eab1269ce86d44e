"""How fast the pump drains a flood, beside `cat > /dev/null` on the same pipe.

Run with the development environment: `python bench/pump_flood.py [ROUNDS]`. Interleaved rounds of
1 GiB; the table has medians and the quartiles of the ratio (speed of cat = 1, more is faster).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))

from ccore import ffi, lib

NEVER = 2**63 - 1
GIB = 1 << 30
PRODUCERS = {
    "dd, writes of 1 MiB": ["dd", "if=/dev/zero", "bs=1M", "count=1024", "status=none"],
    "head, writes of 8 KiB": ["head", "-c", "1G", "/dev/zero"],
    "yes": ["sh", "-c", "yes | head -c 1G"],
}
CAPS = (10 << 20, 2 << 20, 64 << 10)


def flood(argv: list[str], drain: Callable[[int], None]) -> float:
    """Seconds from the start of the producer until all is drained and it has ended."""
    read, write = os.pipe2(os.O_CLOEXEC)
    begun = time.perf_counter()
    with subprocess.Popen(argv, stdout=write):
        os.close(write)
        drain(read)
    return time.perf_counter() - begun


def by_cat(read: int) -> None:
    subprocess.run(["cat"], stdin=read, stdout=subprocess.DEVNULL, check=True)
    os.close(read)


def by_pump(cap: int) -> Callable[[int], None]:
    def drain(read: int) -> None:
        setup = ffi.new("struct pump_setup *", [-1, ffi.NULL, 0, read, -1, -1, cap, cap])
        place, kept = ffi.new("struct pump **"), ffi.new("struct pump_output *")
        assert lib.pump_new(setup, place) == 0
        while lib.pump_wait(place[0], NEVER, NEVER) == lib.PUMP_SIGNAL:
            pass
        lib.pump_output(place[0], 1, kept)
        assert kept.total == GIB
        lib.pump_free(place[0])

    return drain


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    drains = {"cat": by_cat, **{f"pump, cap {cap >> 10} KiB": by_pump(cap) for cap in CAPS}}
    for label, argv in PRODUCERS.items():
        times: dict[str, list[float]] = {name: [] for name in drains}
        for turn in range(rounds):
            order = list(drains)
            for name in order[turn % len(order) :] + order[: turn % len(order)]:
                times[name].append(flood(argv, drains[name]))
        print(label)
        for name, taken in times.items():
            ratios = [cat / own for cat, own in zip(times["cat"], taken, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(
                f"  {name:20} {statistics.median(taken) * 1e3:7.0f} ms"
                f"  speed {middle:.2f} [{low:.2f} .. {high:.2f}]"
            )


if __name__ == "__main__":
    main()
