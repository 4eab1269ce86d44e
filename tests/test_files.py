"""Files through a sandbox: every scene in both isolations, as root and as an ordinary user."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import AsUser
from scenekit import play, scenes


@pytest.mark.parametrize("who", ["root", "user"])
@pytest.mark.parametrize("isolation", ["auto", "landlock"])
@pytest.mark.parametrize("scene", scenes("files"))
def test_files(scene: str, isolation: str, who: str, far: Path, as_user: AsUser) -> None:
    w, o = far / "work", far / "outside"
    for path in (w, o):
        path.mkdir()
    (o / "file").write_text("outside\n")
    if who == "user":
        as_user.give(w, o, o / "file")
    play("files", scene, as_user if who == "user" else None, far, w, o, isolation)
