"""The temporary directories of one sandbox: an outer one, and one in it for each seat.

Landlock grants the outer one, once, so a command can write into it too, and reach the directory of
a seat that runs at the same time under the same policy. Nothing of that outlives the command: its
own directory is emptied, and what lies beside the seats' directories goes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from sandbox.backends.guard import StampTaker
from sandbox.backends.scratch import empty, private_directory, remove
from sandbox.errors import SandboxLost
from sandbox.locks import ForkLock

__all__ = ["Temporary"]


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
