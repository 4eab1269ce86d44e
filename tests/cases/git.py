"""Section B: git, linked worktrees, and what git of the host runs later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from casekit import (
    NAMESPACES,
    NO_WRITE_TEXT,
    confined,
    git,
    processes_with,
    repository,
    says,
    skip,
    until,
    weaker,
)

import sandbox

_SAFE = ("-c", "safe.bareRepository=explicit", "-c", "core.fsmonitor=false")


def _worktree(w: Path) -> Path:
    """A linked worktree in the workspace of a repository beside it, also in the workspace."""
    repository(w / "main")
    git(w / "main", "worktree", "add", "-q", "../tree")
    return w / "tree"


def case_27_a_linked_worktree_works_and_its_pointer_is_kept(w: Path, o: Path) -> None:
    tree = _worktree(w)
    for words in ("status", "rev-parse --git-dir --git-common-dir"):
        result = confined(f"git {words}", tree)
        assert result.ok, result.text
    pointer = (tree / ".git").read_text()
    result = confined(f"echo 'gitdir: {o}' >.git", tree)
    assert (tree / ".git").read_text() == pointer
    assert result.returncode != 0 or result.denials
    confined("git config core.fsmonitor 'touch PWNED; false'", tree)
    assert "PWNED" not in (w / "main/.git/config").read_text()


def case_28_metadata_of_a_worktree_is_readable_and_a_write_fails_cleanly(w: Path, o: Path) -> None:
    tree = _worktree(w)
    (tree / "f").write_text("two\n")
    for words in ("log -1", "diff"):
        result = confined(f"git {words}", tree)
        assert result.ok, result.text
        assert result.out, words
    result = confined("git add f", tree)
    assert result.returncode != 0
    assert "index.lock" in result.err
    assert NO_WRITE_TEXT in result.err
    assert list((w / "main/.git").rglob("*.lock")) == []
    git(tree, "add", "f")


def case_30_a_repository_that_was_planted_does_not_run_on_the_host(w: Path, o: Path) -> None:
    repository(o)  # one that would run it, if it were there
    plant = f"git init -q; git config core.fsmonitor 'touch {o}/PWNED; false'"
    result = confined(plant, w)
    assert result.returncode != 0 or result.denials
    git(w, "status", check=False)
    assert not (w / ".git").exists()
    assert not (o / "PWNED").exists()
    subprocess.run(plant, shell=True, cwd=w, check=True)
    git(w, "status", check=False)
    assert (o / "PWNED").exists(), "the plant does nothing outside either"


def case_30_nor_one_that_is_a_file_or_a_link(w: Path, o: Path) -> None:
    repository(o / "evil")
    git(o / "evil", "config", "core.fsmonitor", f"touch {o}/PWNED; false")
    for plant in (f"echo 'gitdir: {o}/evil/.git' >.git", f"ln -s {o}/evil/.git .git"):
        result = confined(plant, w)
        assert result.returncode != 0 or result.denials
        assert not os.path.lexists(w / ".git")
        git(w, "status", check=False)
        assert not (o / "PWNED").exists()


def case_30_the_repository_above_the_workspace_is_found(w: Path, o: Path) -> None:
    repository(w)
    (w / "sub").mkdir()
    result = confined("git rev-parse --show-toplevel && git status --porcelain", w / "sub")
    assert result.ok, result.text
    assert result.out.splitlines()[0] == str(w)


def case_31_hooks_of_a_nested_repository_are_kept_or_the_result_says_so(w: Path, o: Path) -> None:
    repository(w)
    (w / "vendor").mkdir()
    repository(w / "vendor/sub")
    hook = w / "vendor/sub/.git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    result = confined("echo 'touch /x' >vendor/sub/.git/hooks/pre-commit", w)
    if hook.exists():
        assert {"protected", "repositories"} & weaker(result)


def case_32_a_hook_behind_a_renamed_parent_is_not_on_the_host(w: Path, o: Path) -> None:
    repository(w / "sub")
    policy = sandbox.workspace_write(w, write=[w / "sub"])
    result = confined(
        "mv sub sub.bak && mkdir -p sub/.git/hooks && echo evil >sub/.git/hooks/pre-commit",
        w,
        policy=policy,
    )
    assert not (w / "sub/.git/hooks/pre-commit").exists()
    assert result.returncode != 0 or result.denials


def case_32_nor_behind_a_nested_repository_that_nobody_named(w: Path, o: Path) -> None:
    repository(w / "sub")
    result = confined(
        "mv sub bak && mkdir -p sub/.git/hooks && echo evil >sub/.git/hooks/pre-commit", w
    )
    is_planted = (w / "sub/.git/hooks/pre-commit").exists()
    assert not is_planted if NAMESPACES else "protected" in weaker(result)


def _names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def case_33_nothing_is_left_in_the_repository(w: Path, o: Path) -> None:
    repository(w)
    assert confined("git status --porcelain", w).out == ""
    assert confined("git ls-files --others", w).text == ""
    assert _names(w) == [".git", "f"]
    program = "import sandbox, sys\nsandbox.run(['sleep', '60.0033'], cwd=sys.argv[1])\n"
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, str(w)], stdin=subprocess.DEVNULL
    )
    assert until(lambda: processes_with("60.0033"), 20)
    assert _names(w) == [".git", "f"]
    assert git(w, "status", "--porcelain") == ""
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert until(lambda: not processes_with("60.0033"))
    assert _names(w) == [".git", "f"]
    assert git(w, "status", "--porcelain") == ""


def case_37_a_bare_repository_is_a_documented_limit_that_a_safe_git_knows(w: Path, o: Path) -> None:
    plant = (
        'mkdir -p b/objects b/refs; echo "ref: refs/heads/m" >b/HEAD; '
        'printf "[core]\\n\\trepositoryformatversion=0\\n\\tworktree=$PWD\\n'
        f'\\tfsmonitor=\\"touch {o}/PWNED; false\\"\\n" >b/config'
    )
    assert confined(plant, w).ok
    git(w / "b", *_SAFE, "-c", "core.hooksPath=/dev/null", "status", check=False)
    assert not (o / "PWNED").exists()
    git(w / "b", "status", check=False)
    if (o / "PWNED").exists():
        assert says("SECURITY.md", "bare", "safe.barerepository")


def case_39_git_answers_as_on_the_host(w: Path, o: Path) -> None:
    repository(w)
    if os.getuid() == 0:
        for path in (w, *w.rglob("*")):
            os.chown(path, 1000, 1000, follow_symlinks=False)
        assert "dubious" in git(w, "status", check=False)
        git(w, "config", "--global", "safe.directory", str(w))
    expected = git(w, "status")
    result = confined("git status", w, policy=sandbox.read_only())
    assert result.ok, result.text
    assert result.text == expected
    owner = confined("stat -c '%u %U' .", w, policy=sandbox.read_only()).out
    assert (
        owner
        == subprocess.run(
            ["stat", "-c", "%u %U", "."], cwd=w, capture_output=True, text=True
        ).stdout
    )


def case_39_a_workspace_that_root_could_not_write_is_refused(w: Path, o: Path) -> None:
    if os.getuid() != 0:
        skip("needs root: only its writing rests on a capability")
    os.chown(w, 1000, 1000)
    try:
        confined("touch f", w)
    except sandbox.WorkspaceRefused as error:
        assert error.path == str(w)
    else:
        raise AssertionError("started, without the capabilities that writing needs")
