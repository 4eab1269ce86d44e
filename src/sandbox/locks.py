"""Locks that a fork does not leave locked.

A child of ``fork`` has one thread, and the locks as they were: one that another thread of its
parent held would never be opened there. These are new in the child.
"""

from __future__ import annotations

import os
import threading
import weakref

__all__ = ["ForkLock"]


class ForkLock:
    """A lock, to be used as ``with lock.held``: six times a command, and that runs no Python."""

    __slots__ = ("__weakref__", "held")

    def __init__(self) -> None:
        self.held = threading.Lock()
        _all.add(self)


_all: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_all):
        lock.held = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
