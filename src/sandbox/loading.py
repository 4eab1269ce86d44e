"""``load_profile``, which imports what it takes only when it is called."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sandbox.errors import InvalidPath

if TYPE_CHECKING:
    from sandbox.profile.values import Mode, Profile

__all__ = ["load_profile"]


def load_profile(
    name: str | os.PathLike[str] | None = None,
    *,
    workspace: str | os.PathLike[str] | None = None,
    mode: Mode | None = None,
    user: bool = True,
    project: bool = True,
) -> Profile:
    """The profile that is in force in a workspace, from all layers.

    - ``name``: a mode (``read-only``, ``auto``, ``full-access``), the name of a profile of the
      user's, or a path to one; None for none beside those that always count.
    - ``workspace``: the directory of the project; default: the working directory.
    - ``mode``: in the place of what the files say.
    - ``user``, ``project``: whether the user's own ``sandbox.toml`` and the project's count.

    Raises ``InvalidProfile`` with file, line and key, and ``PolicyError`` for what means nothing:
    its author's fault.
    """
    from sandbox.profile.load import load

    file = _text(name) if name is not None else None
    if file is not None and isinstance(name, os.PathLike) and "/" not in file:
        file = f"./{file}"
    where = _text(workspace) if workspace is not None else None
    return load(file, where, mode, user=user, project=project)


def _text(path: str | os.PathLike[str]) -> str:
    """A path as text that the system can be asked about. Raises ``InvalidPath``."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise InvalidPath(repr(text), "is bytes", "write it as text")
    if "\0" in text:
        raise InvalidPath(text, "contains a NUL character")
    return text
