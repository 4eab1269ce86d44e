"""What is looked for: patterns that are denied, and repositories further down."""

from __future__ import annotations

import errno
from pathlib import Path

from scenekit import errors_of

import sandbox
from sandbox.backends.search import DIRECTORIES_MAX

_DENIED, _READ_ONLY = errno.EACCES, errno.EROFS


def _parts(box: sandbox.Sandbox) -> set[str]:
    return {part.part for part in box.enforcement.weaker}


def case_19_a_denied_pattern_holds_for_what_matches_now_and_then(w: Path, o: Path) -> None:
    for name in ("a/b/x.pem", "top.pem", "a/.env", "a/xenv", "a/b/x.pem.txt", "real"):
        (w / name).parent.mkdir(parents=True, exist_ok=True)
        (w / name).touch()
    (w / "link.pem").symlink_to("real")
    policy = sandbox.workspace_write(w, deny=[f"{w}/**/*.pem", f"{w}/a/.[e]n?"])
    with sandbox.Sandbox(policy) as box:
        denied = ("a/b/x.pem", "top.pem", "a/.env")
        free = ("a/xenv", "a/b/x.pem.txt", "real", "link.pem")
        assert errors_of(box, *denied, *free) == [*[_DENIED] * 3, *[0] * 4]
        assert "patterns" in _parts(box)
        assert box.run("mkdir -p new/deep; echo k >new/deep/y.pem; echo f >new/deep/free").ok
        assert errors_of(box, "new/deep/y.pem", "new/deep/free") == [_DENIED, 0]
        (w / "a/b/z.pem").touch()
        (w / "a/b/z").touch()
        assert errors_of(box, "a/b/z.pem", "a/b/z") == [_DENIED, 0]
        before = box._boundary._confinement
        assert box.run("mkdir more; touch more/file").ok
        assert errors_of(box, "more/file", *denied) == [0, *[_DENIED] * 3]
        assert box._boundary._confinement is before


def too_many_directories_for_a_pattern_are_an_error(w: Path, o: Path) -> None:
    for first in range(DIRECTORIES_MAX // 100 + 1):
        for second in range(100):
            (w / f"{first}/{second}").mkdir(parents=True)
    try:
        sandbox.Sandbox(sandbox.workspace_write(w, deny=[f"{w}/**/*.pem"]))
    except sandbox.Unenforceable as error:
        assert str(DIRECTORIES_MAX) in str(error)
    else:
        raise AssertionError("a pattern was searched in part")
    with sandbox.Sandbox(sandbox.workspace_write(w, deny=[f"{w}/1/**/*.pem"])) as box:
        assert box.run("true").ok


def case_32_repositories_further_down_are_protected(w: Path, o: Path) -> None:
    hooks = w / "vendor/sub/.git/hooks"
    hooks.mkdir(parents=True)
    (w / "vendor/sub/.git/config").touch()
    (w / "vendor/tree").mkdir()
    (w / "vendor/tree/.git").write_text("gitdir: ../sub/.git\n")
    (w / "free").mkdir()
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        assert "nested-repositories" not in _parts(box)
        paths = ("vendor/sub/.git/config", "vendor/tree/.git", "vendor/new", "vendor/sub/new")
        box.run("touch vendor/new vendor/sub/new")
        assert errors_of(box, *paths, flags="O_WRONLY") == [_READ_ONLY, _READ_ONLY, 0, 0]
        result = box.run(
            "mv vendor/sub bak; mv vendor old; mkdir -p vendor/sub/.git/hooks;"
            "echo evil >vendor/sub/.git/hooks/pre-commit; mv free moved && echo yes >moved/f"
        )
        assert result.ok and (w / "moved/f").read_text() == "yes\n", result
        assert not (hooks / "pre-commit").exists() and hooks.is_dir()
    lifted = sandbox.workspace_write(w).with_write(w / "vendor/sub/.git")
    with sandbox.Sandbox(lifted) as box:
        assert errors_of(box, *paths[:2], flags="O_WRONLY") == [0, _READ_ONLY]


def a_search_that_ends_early_is_said(w: Path, o: Path) -> None:
    for index in range(300):
        (w / f"d{index}" / "inner").mkdir(parents=True)
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        assert "nested-repositories" in _parts(box)
    (w / "node_modules").mkdir()
    for path in w.glob("d*"):
        path.rename(w / "node_modules" / path.name)
    # Another policy, for which nothing was found out yet.
    with sandbox.Sandbox(sandbox.workspace_write(w).with_deny(o / "none")) as box:
        assert "nested-repositories" not in _parts(box)
