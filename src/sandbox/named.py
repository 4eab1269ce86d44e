"""The Unix sockets of the host that a policy names, as real paths.

A socket need not be there: its server may be started later, or again. What is there and no socket
is a slip of its author's.
"""

from __future__ import annotations

import os
import stat

from sandbox.entries import Access, Entry, Layer
from sandbox.errors import InvalidPath
from sandbox.paths import follow
from sandbox.policy import SandboxPolicy

__all__ = ["entries_of", "named_sockets"]


def entries_of(policy: SandboxPolicy) -> Layer:
    """What naming them says of files: that they may be read."""
    return tuple(Entry(path, Access.READ) for path in policy.unix_sockets)


def named_sockets(policy: SandboxPolicy) -> tuple[str, ...]:
    """The real paths. Raises ``InvalidPath`` for one at which something else is."""
    found = dict.fromkeys(follow(path)[0] for path in policy.unix_sockets)
    for path in found:
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        if not stat.S_ISSOCK(mode):
            raise InvalidPath(path, "is named as a Unix socket and is none")
    return tuple(found)
