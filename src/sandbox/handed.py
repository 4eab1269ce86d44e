"""The environment that a caller hands over himself, as ``subprocess`` takes it.

``{**os.environ, "X": "1"}`` hands over all of the caller's secrets, and is what everybody writes.
So a variable that the caller has with the very same value counts as inherited, and passes only if
the policy inherits it; any other is a value of his own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from sandbox.environ import Plan

__all__ = ["given_environment"]

_OURS = frozenset({b"SANDBOX", b"SANDBOX_NETWORK_DISABLED"})


def given_environment(plan: Plan, env: Mapping[Any, Any], marks: Mapping[str, str]) -> list[bytes]:
    """``NAME=value`` items. ``marks`` are added where the caller has no value of his own.

    Names and values are text, bytes or paths. Raises ``ValueError`` for a name with ``=``, and
    ``TypeError`` for what is no text.
    """
    kept = dict(_kept(plan, env))
    for name, text in marks.items():
        key = os.fsencode(name)
        if key in _OURS:
            kept[key] = os.fsencode(text)
        else:
            kept.setdefault(key, os.fsencode(text))
    return [key + b"=" + value for key, value in kept.items()]


def _kept(plan: Plan, env: Mapping[Any, Any]) -> Iterator[tuple[bytes, bytes]]:
    own = os.environb
    for name, text in env.items():
        key, value = os.fsencode(name), os.fsencode(text)
        if b"=" in key:
            raise ValueError("illegal environment variable name")
        if own.get(key) != value or _inherits(plan, key):
            yield key, value


@lru_cache(maxsize=4096)
def _inherits(plan: Plan, key: bytes) -> bool:
    return plan.inherits(os.fsdecode(key))
