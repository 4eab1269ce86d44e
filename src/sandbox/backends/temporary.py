"""The temporary directories of one sandbox.

``Scratch`` are those that namespaces give it: file systems of its own, which end with it. They are
reached by fd, because nobody outside has a name for them.

``Temporary`` is for Landlock: an outer directory, and one in it for each seat. Landlock grants the
outer one, once, so a command can write into it too, and reach the directory of a seat that runs at
the same time under the same policy. Nothing of that outlives the command: its own directory is
emptied, and what lies beside the seats' directories goes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from sandbox.backends.guard import StampTaker
from sandbox.backends.scratch import empty, private_directory, remove
from sandbox.errors import SandboxLost
from sandbox.locks import ForkLock

__all__ = ["Scratch", "Temporary"]


_EVERYBODY = 0o1777  # as /tmp is


class Scratch:
    """The directories behind ``fds``; ``kept`` are names of mount points at the top of each.

    The fds are its own. None is used once it is closed: the number may be another directory's by
    then, and what is in that would go. Not for use while a command runs: what it makes may stay.
    """

    def __init__(self, fds: Sequence[int], kept: Sequence[Collection[str]]) -> None:
        self._lock = ForkLock()
        self._places = list(zip(fds, kept, strict=True))
        self._states = [_state(fd) for fd in fds]

    def clear(self) -> None:
        """Removes what commands left. Cheap when that is nothing. Raises ``OSError``."""
        with self._lock.held:
            for index, (fd, kept) in enumerate(self._places):
                if _state(fd) != self._states[index]:
                    empty(f"/proc/self/fd/{fd}/.", kept)
                    if not frozenset(kept).issuperset(os.listdir(fd)):
                        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
                    for name in os.listxattr(fd):
                        with suppress(OSError):  # the kernel's own are not for us
                            os.removexattr(fd, name)
                    os.fchmod(fd, _EVERYBODY)
                    self._states[index] = _state(fd)

    def close(self) -> None:
        """Lets go of them. Idempotent; then there is nothing to clear."""
        with self._lock.held:
            places, self._places = self._places, []
        for fd, _ in places:
            os.close(fd)


def _state(fd: int) -> tuple[int, ...]:
    """What differs after any change; the size of these directories counts what is in them."""
    found = os.fstat(fd)
    return found.st_ctime_ns, found.st_size, found.st_nlink, found.st_mode


class Temporary:
    """The directories below ``root``; seats share it, from any thread.

    ``stamps`` makes a ``StampTaker`` of paths. Raises ``SandboxLost`` when there is no ``root`` any
    more.
    """

    def __init__(self, root: str, stamps: Callable[[Sequence[bytes]], StampTaker]) -> None:
        self._root = root
        self._stamps = stamps
        self._lock = ForkLock()
        self._taken: dict[str, tuple[StampTaker, bytes]] = {}  # by path; the state: empty
        try:
            os.lstat(root)
        except OSError as error:
            raise self._lost(error) from None
        self._outer = stamps([os.fsencode(root)])
        self._state = self._outer.take()

    def take(self) -> str:
        """A new directory. Raises ``SandboxLost`` when the outer one is gone."""
        with self._lock.held:
            try:
                path = private_directory(self._root)
            except OSError as error:
                raise self._lost(error) from None
            taker = self._stamps([os.fsencode(path)])
            self._taken[path] = (taker, taker.take())
            self._state = self._outer.take()
            return path

    def _lost(self, error: OSError) -> SandboxLost:
        cause = f"its directory for temporary files is gone: {self._root}"
        return SandboxLost(f"{cause} ({error.strerror})")

    def tidy(self, path: str) -> str:
        """Makes a seat's directory as it was; another one where that cannot be. Cheap if it is."""
        taker, state = self._taken[path]
        try:
            if not taker.same(state):
                empty(path)
                self._taken[path] = (taker, taker.take())
            if not self._outer.same(self._state):
                self._tidy_outer()
        except OSError:  # the command removed it, or put something else in its place
            self._taken.pop(path, None)
            with suppress(OSError):
                self._tidy_outer()
            return self.take()
        return path

    def drop(self, path: str) -> None:
        """Removes a seat's directory."""
        with self._lock.held:
            self._taken.pop(path, None)
            remove(path)

    def _tidy_outer(self) -> None:
        with self._lock.held:
            kept = {os.path.basename(path) for path in self._taken}
            empty(self._root, kept)
            self._state = self._outer.take()
