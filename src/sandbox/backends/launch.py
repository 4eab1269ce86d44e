"""Starting helpers and lanes, and what it means when one does not start."""

from __future__ import annotations

import errno
import os

import _sandcore
from sandbox.backends.base import ConfinementLost
from sandbox.errors import start_error

__all__ = ["SHORTAGES", "NamespacesFailed", "await_helper", "start_helper", "start_lane"]

# What a mount that fails says of the path; anything else says something of the host.
_ABOUT_PATHS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EMFILE, errno.ENAMETOOLONG)

# What there is too little of at the moment. That is no refusal of the host's: a command that uses
# it up would see to it that the next sandbox is a weaker one.
SHORTAGES = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EPIPE, errno.ETIMEDOUT)


class NamespacesFailed(Exception):
    """The helper could not make its namespaces, or what is in them."""

    def __init__(self, stage: str, number: int) -> None:
        self.stage, self.number = stage, number
        super().__init__(stage, number)


def start_helper(blob: _sandcore.Policy, processes: int) -> _sandcore.Helper:
    """A helper for a policy, and on its way a first lane for so many processes, 0 for any number.

    It makes its mounts while the caller does something else; ``await_helper`` is to be called next.
    Raises ``NamespacesFailed`` and ``StartError``.
    """
    try:
        return _sandcore.Helper(blob, _sandcore.HELPER_PATH, ahead=processes)
    except _sandcore.StageError as error:
        raise _explained(error, blob) from None


def await_helper(helper: _sandcore.Helper, scratch: int) -> tuple[int, ...]:
    """Waits until it serves; fds of its own directories, of which there are so many.

    Raises ``NamespacesFailed`` and ``StartError``, also where the fds did not arrive: what is in
    these directories could not be removed.
    """
    try:
        helper.settle()
    except _sandcore.StageError as error:
        raise _explained(error, helper.policy) from None
    fds = helper.take_scratch()
    if len(fds) != scratch:
        for fd in fds:
            os.close(fd)
        raise start_error("helper", errno.EMFILE)
    return fds


def _explained(error: _sandcore.StageError, blob: _sandcore.Policy) -> Exception:
    path = ""
    if error.stage == "landlock" and error.detail >= 0:
        path = os.fsdecode(blob.rules[error.detail][0])
    if error.stage == "mounts" and error.detail >= 0 and error.errno in _ABOUT_PATHS:
        path = os.fsdecode(blob.mounts[error.detail][0])
    elif error.errno not in SHORTAGES and error.stage in ("namespaces", "mounts", "lane"):
        return NamespacesFailed(error.stage, error.errno or 0)
    return start_error(error.stage, error.errno or 0, path)


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
