"""How fast a flood of output is taken: a producer of 1 GiB, drained by the pump and by cat.

The ratio is speed to speed: 1.0 is as fast as `cat > /dev/null` drains the same producer.
"""

from __future__ import annotations

import statistics
import subprocess
import time

from measure import Figure

import sandbox

GIB = 2**30
PRODUCER = ["head", "-c", str(GIB), "/dev/zero"]
TARGET = 0.9


def _cat() -> float:
    began = time.perf_counter()
    producer = subprocess.Popen(PRODUCER, stdout=subprocess.PIPE)
    drain = subprocess.Popen(["cat"], stdin=producer.stdout, stdout=subprocess.DEVNULL)
    assert producer.stdout is not None
    producer.stdout.close()
    drain.wait()
    producer.wait()
    return time.perf_counter() - began


def _pump(policy: sandbox.SandboxPolicy) -> float:
    began = time.perf_counter()
    result = sandbox.run(PRODUCER, policy).check()
    taken = time.perf_counter() - began
    assert len(result.stdout) + result.stdout_truncated == GIB
    return taken


def measure(rounds: int) -> list[Figure]:
    """The pump's speed over cat's."""
    policy = sandbox.read_only()
    ratios = []
    for _ in range(rounds + 1):
        reference = _cat()
        ratios.append(reference / _pump(policy))
    counted = ratios[1:]
    low, middle, high = statistics.quantiles(counted, n=4)
    return [Figure("1 GiB of output, speed beside cat", middle, low, high, rounds, TARGET)]
