"""A user's directory for profiles and a project, both a test's own, for tests of profiles."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from sandbox import load_profile
from sandbox.profile.values import Profile


class Place:
    """`user` is the directory `sandbox` of a user's configuration, `project` the workspace."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.user = top / "config" / "sandbox"
        self.project = top / "project"
        self.outside = top / "outside"
        for path in (self.user / "profiles", self.project, self.outside):
            path.mkdir(parents=True)

    def write(self, user: str | None = None, project: str | None = None, **named: str) -> None:
        """Writes the user's file, the project's, and profiles by name."""
        if user is not None:
            (self.user / "sandbox.toml").write_text(user)
        if project is not None:
            (self.project / "sandbox.toml").write_text(project)
        for name, text in named.items():
            (self.user / "profiles" / f"{name}.toml").write_text(text)

    def trust(self, more: str = "") -> None:
        """Has the user trust the project; `more` is what else is in the user's file."""
        self.write(user=f'{more}\n[trust]\nprojects = ["{self.project}"]\n')

    def load(self, name: str | os.PathLike[str] | None = None, **options: Any) -> Profile:
        return load_profile(name, workspace=self.project, **options)


@contextmanager
def new_place() -> Iterator[Place]:
    """A place of its own, where this process looks for the user's profiles."""
    with tempfile.TemporaryDirectory(prefix="sandcore-test-") as top:
        place = Place(Path(top).resolve())
        with mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": str(place.user.parent)}):
            yield place
