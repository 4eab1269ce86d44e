"""The temporary directories of one sandbox: an outer one, and one in it for each seat.

Landlock grants the outer one, once, so a command can write into it too, and reach the directory of
a seat that runs at the same time under the same policy. Nothing of that outlives the command: its
own directory is emptied, and what lies beside the seats' directories goes.
"""

from __future__ import annotations

import os
from contextlib import suppress

from sandbox.backends.scratch import change_time, empty, private_directory, remove
from sandbox.errors import SandboxLost
from sandbox.locks import ForkLock

__all__ = ["Temporary"]


class Temporary:
    """The directories below ``root``; seats share it, from any thread.

    Raises ``SandboxLost`` when there is no ``root`` any more.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = ForkLock()
        self._taken: dict[str, int] = {}  # path, and its change time when it was left empty
        try:
            self._state = change_time(root)
        except OSError as error:
            raise self._lost(error) from None

    def take(self) -> str:
        """A new directory. Raises ``SandboxLost`` when the outer one is gone."""
        with self._lock:
            try:
                path = private_directory(self._root)
            except OSError as error:
                raise self._lost(error) from None
            self._taken[path] = change_time(path)
            self._state = change_time(self._root)
            return path

    def _lost(self, error: OSError) -> SandboxLost:
        cause = f"its directory for temporary files is gone: {self._root}"
        return SandboxLost(f"{cause} ({error.strerror})")

    def tidy(self, path: str) -> str:
        """Makes a seat's directory as it was; another one where that cannot be. Cheap if it is."""
        try:
            if change_time(path) != self._taken[path]:
                empty(path)
                self._taken[path] = change_time(path)
            if change_time(self._root) != self._state:
                self._tidy_outer()
        except OSError:  # the command removed it, or put something else in its place
            self._taken.pop(path, None)
            with suppress(OSError):
                self._tidy_outer()
            return self.take()
        return path

    def drop(self, path: str) -> None:
        """Removes a seat's directory."""
        with self._lock:
            self._taken.pop(path, None)
            remove(path)

    def _tidy_outer(self) -> None:
        with self._lock:
            kept = {os.path.basename(path) for path in self._taken}
            empty(self._root, kept)
            self._state = change_time(self._root)
