"""What the host changes between two commands of one sandbox, and what the second may then do."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from scenekit import errors_of

import sandbox

_LOOK = 0.06  # where commands cannot write, a change is seen as soon as that
_DENIED, _READ_ONLY = errno.EACCES, errno.EROFS


def a_repository_that_was_made_is_protected(w: Path, o: Path) -> None:
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        assert box.run("mkdir free && touch free/config").ok
        (w / ".git").mkdir()
        (w / ".git" / "config").touch()
        seen = errors_of(box, ".git/config", "free/config", flags="O_WRONLY")
        assert seen == [_READ_ONLY, 0]


def a_pointer_to_another_git_directory_is_followed(w: Path, o: Path) -> None:
    """As `git worktree` and submodules have it; rewritten in place, then replaced."""
    for name in ("one", "two", "three"):
        (w / name).mkdir()
        (w / name / "config").touch()
    (w / ".git").write_text("gitdir: one\n")
    paths = ("one/config", "two/config", "three/config")
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        assert errors_of(box, *paths, flags="O_WRONLY") == [_READ_ONLY, 0, 0]
        (w / ".git").write_text("gitdir: two\n")
        # What was protected once stays so, for the life of the sandbox.
        assert errors_of(box, *paths, flags="O_WRONLY") == [_READ_ONLY, _READ_ONLY, 0]
        (w / ".git").unlink()
        (w / ".git").write_text("gitdir: three\n")
        assert errors_of(box, *paths, flags="O_WRONLY") == [_READ_ONLY, 0, _READ_ONLY]
        assert errors_of(box, ".git", flags="O_WRONLY") == [_READ_ONLY]


def a_denied_directory_that_became_a_link_is_denied_where_it_leads(w: Path, o: Path) -> None:
    place = o / "keys"
    place.mkdir()
    (place / "key").touch()
    (o / "free").touch()
    policy = sandbox.workspace_write(w).with_deny(place)
    with sandbox.Sandbox(policy) as box:
        assert errors_of(box, str(place / "key"), str(o / "free")) == [_DENIED, 0]
        before = box._boundary._confinement
        place.rename(o / "elsewhere")
        place.symlink_to("elsewhere")
        time.sleep(_LOOK)
        paths = [str(place / "key"), str(o / "elsewhere" / "key"), str(o / "free")]
        assert errors_of(box, *paths) == [_DENIED, _DENIED, 0]
        assert box._boundary._confinement is not before
        place.unlink()
        (o / "elsewhere").rename(place)
        time.sleep(_LOOK)
        assert errors_of(box, str(place / "key"), str(o / "free")) == [_DENIED, 0]


def a_secret_that_came_is_denied(w: Path, o: Path) -> None:
    home = Path(os.environ["HOME"])
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        assert box.run("true").ok
        (home / ".aws").mkdir()
        (home / ".aws" / "credentials").touch()
        (home / ".awsome").touch()
        seen = errors_of(box, str(home / ".aws" / "credentials"), str(home / ".awsome"))
        assert seen == [_DENIED, 0]
        (home / ".aws").rename(home / "real")
        (home / ".aws").symlink_to("real")
        time.sleep(_LOOK)
        assert errors_of(box, str(home / ".aws/credentials"), str(home / "real/credentials")) == [
            _DENIED,
            _DENIED,
        ]


def case_13_a_workspace_that_became_a_link_is_not_followed(w: Path, o: Path) -> None:
    (w / "pkg").mkdir()
    with sandbox.Sandbox(sandbox.workspace_write(w / "pkg")) as box:
        assert box.run("touch mine").ok
        (w / "pkg").rename(w / "old")
        (w / "pkg").symlink_to(o)
        try:
            result = box.run(f"touch {o}/escaped; touch {w}/pkg/escaped")
        except sandbox.errors.SandboxException:
            pass
        else:
            assert not result.ok
        assert not (o / "escaped").exists()


def nothing_is_made_anew_when_nothing_matters(w: Path, o: Path) -> None:
    (w / ".git").mkdir()
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        box.run("true")
        before = box._boundary._confinement
        (w / ".git" / "index.lock").touch()
        (w / "file").touch()
        box.run("touch other; mkdir d; rm file")
        box.run("true")
        assert box._boundary._confinement is before
