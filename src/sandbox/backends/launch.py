"""Starting helpers and lanes, and what it means when one does not start."""

from __future__ import annotations

import errno
import os

import _sandcore
from sandbox.backends.base import ConfinementLost
from sandbox.errors import start_error

__all__ = ["NamespacesFailed", "start_helper", "start_lane"]

# What a mount that fails says of the path; anything else says something of the host.
_ABOUT_PATHS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EMFILE, errno.ENAMETOOLONG)


class NamespacesFailed(Exception):
    """The helper could not make its namespaces, or what is in them."""

    def __init__(self, stage: str, number: int) -> None:
        self.stage, self.number = stage, number
        super().__init__(stage, number)


def start_helper(blob: _sandcore.Policy) -> _sandcore.Helper:
    """A helper for a policy. Raises ``NamespacesFailed`` and ``StartError``."""
    try:
        return _sandcore.Helper(blob, _sandcore.HELPER_PATH)
    except _sandcore.StageError as error:
        path = ""
        if error.stage == "landlock" and error.detail >= 0:
            path = os.fsdecode(blob.rules[error.detail][0])
        if error.stage == "mounts" and error.detail >= 0 and error.errno in _ABOUT_PATHS:
            path = os.fsdecode(blob.mounts[error.detail][0])
        elif error.stage in ("namespaces", "mounts", "lane"):
            raise NamespacesFailed(error.stage, error.errno or 0) from None
        raise start_error(error.stage, error.errno or 0, path) from None


def start_lane(helper: _sandcore.Helper, processes: int) -> _sandcore.Lane:
    """A lane for so many processes, 0 for any number.

    Raises ``ConfinementLost`` and ``StartError``.
    """
    try:
        return helper.lane(processes)
    except _sandcore.LaneLost as error:
        raise ConfinementLost(str(error)) from None
    except _sandcore.StageError as error:
        raise start_error(error.stage, error.errno or 0) from None
