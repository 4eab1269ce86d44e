"""What git runs for a repository, live: what `HELPERS_OFF` turns off, and what it cannot."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from safetykit import context, is_safe

from sandbox.command import HELPERS_OFF

GIT = shutil.which("git")
pytestmark = pytest.mark.skipif(GIT is None, reason="no git")

SIGNED = """tree {tree}
author a <a@b> 1 +0000
committer a <a@b> 1 +0000
gpgsig -----BEGIN PGP SIGNATURE-----
 {nothing}
 x
 -----END PGP SIGNATURE-----

signed
"""


class Hostile:
    """A repository whose configuration names a program for everything that has a place for one."""

    def __init__(self, root: Path) -> None:
        self.root, self.canary = root / "repo", root / "ran"
        self.root.mkdir()
        self.helper = root / "helper"
        self.helper.write_text(f'#!/bin/sh\necho "$0 $*" >> {self.canary}\ncat\n')
        self.helper.chmod(0o755)
        hooks = root / "hooks"
        hooks.mkdir()
        for name in ("post-index-change", "reference-transaction"):
            (hooks / name).symlink_to(self.helper)
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
            "GIT_COMMITTER_EMAIL": "a@b",
        }  # fmt: skip
        self.git("init -q")
        (self.root / "f").write_text("one\n")
        self.git("add f")
        self.git("commit -q -m first")
        tree = self.git("rev-parse HEAD^{tree}").strip()
        text = SIGNED.format(tree=tree, nothing="")
        words = [str(GIT), "hash-object", "-t", "commit", "-w", "--stdin"]
        made = subprocess.run(words, input=text.encode(), cwd=self.root, env=self.env,
                              capture_output=True, check=True)  # fmt: skip
        self.git(f"tag signed {made.stdout.decode().strip()}")
        (self.root / "f").write_text("two\n")
        for key, value in (
            ("core.fsmonitor", self.helper), ("core.hooksPath", hooks), ("diff.external",
            self.helper),
            ("log.showSignature", "true"), ("gpg.program", self.helper), ("core.pager",
            self.helper),
            ("pager.rev-parse", self.helper), ("pager.log", self.helper), ("pager.status",
            self.helper),
            ("core.editor", self.helper), ("core.sshCommand", self.helper),
        ):  # fmt: skip
            self.git("config", key, str(value))

    def git(self, text: str, *more: str, env: dict[str, str] | None = None) -> str:
        words = [str(GIT), *text.split(), *more]
        done = subprocess.run(words, cwd=self.root, env={**self.env, **(env or {})},
                              capture_output=True, text=True)  # fmt: skip
        return done.stdout

    def on_terminal(self, text: str, env: dict[str, str]) -> None:
        ours, theirs = pty.openpty()
        try:
            subprocess.run([str(GIT), *text.split()], cwd=self.root, env={**self.env, **env},
                           stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                           timeout=60)  # fmt: skip
        finally:
            os.close(theirs)
            os.close(ours)

    def ran(self) -> bool:
        found = self.canary.exists()
        self.canary.unlink(missing_ok=True)
        return found


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    return Hostile(tmp_path_factory.mktemp("git"))


COMMANDS = ["status", "diff --no-ext-diff", "diff --stat", "log -p", "stash show -p",
            "log -1 signed", "show signed", "diff --cached --no-ext-diff", "diff-tree -p HEAD",
            "grep one", "blame f", "ls-files -m", "branch --list", "config --list",
            "rev-parse HEAD", "describe --always", "stash list", "reflog"]  # fmt: skip


@pytest.mark.parametrize("line", COMMANDS)
def test_helpers_with_a_switch_are_off(hostile: Hostile, line: str) -> None:
    """CASE-145, CASE-144: pagers are run on a terminal only, so on one it is tried too."""
    assert is_safe(f"git {line}")
    hostile.ran()
    hostile.git(line, env=dict(HELPERS_OFF))
    assert not hostile.ran()
    hostile.on_terminal(line, dict(HELPERS_OFF))
    assert not hostile.ran()


def test_a_diff_is_shown_with_the_helpers_off_and_its_own_program_is_not_run(
    hostile: Hostile,
) -> None:
    """Git 2.39 dies of an empty diff.external, so that has no switch in the environment."""
    off = dict(HELPERS_OFF)
    for line in ("diff --no-ext-diff", "diff HEAD --no-ext-diff", "diff --stat --no-ext-diff -p"):
        hostile.ran()
        assert is_safe(f"git {line}") and "+two" in hostile.git(line, env=off), line
        assert not hostile.ran()
    assert "+one" in hostile.git("log -p --no-ext-diff -1 HEAD", env=off)
    for line in ("diff", "diff -p", "diff --stat -p", "diff -S --no-ext-diff",
                 "diff -- --no-ext-diff"):  # fmt: skip
        assert not is_safe(f"git {line}"), line
    hostile.git("diff", env=off)
    assert hostile.ran()  # the twin


def test_without_the_switches_the_same_commands_run_them(hostile: Hostile) -> None:
    ran = set()
    for line in COMMANDS:
        hostile.ran()
        hostile.git(line)
        if hostile.ran():
            ran.add(line)
    assert {"status", "diff --stat", "log -1 signed", "show signed"} <= ran


@pytest.mark.parametrize("line", ["rev-parse HEAD", "branch --show-current", "--no-pager remote -v",
                                  "--no-pager config --list", "-P worktree list",
                                  "--version"])  # fmt: skip
def test_some_run_none_of_them_whatever_the_repository_says(hostile: Hostile, line: str) -> None:
    assert is_safe(f"git {line}", context(helpers_off=False))
    words = [word for word in line.split() if word[0] != "-"]
    paged = bool(words) and line.startswith("-")
    if words:
        hostile.git("config", f"pager.{words[0]}", str(hostile.helper))
    hostile.ran()
    hostile.git(line)
    hostile.on_terminal(line, {})
    assert not hostile.ran()
    if paged:
        hostile.on_terminal(" ".join(line.split()[1:]), {})
        assert hostile.ran()  # the twin, with a pager
        assert not is_safe(f"git {' '.join(line.split()[1:])}", context(helpers_off=False))


def test_drivers_that_attributes_name_are_off_with_a_newer_git(hostile: Hostile) -> None:
    """They have no switch before git 2.41, and for .git/info/attributes none at all."""
    version = re.search(r"(\d+)\.(\d+)", hostile.git("--version"))
    assert version is not None
    (hostile.root / ".gitattributes").write_text("f diff=x filter=x\n")
    hostile.git("config", "diff.x.textconv", str(hostile.helper))
    hostile.git("config", "filter.x.clean", str(hostile.helper))
    try:
        hostile.ran()
        hostile.git("diff --no-ext-diff", env=dict(HELPERS_OFF))
        assert hostile.ran() is ((int(version[1]), int(version[2])) < (2, 41))
    finally:
        (hostile.root / ".gitattributes").unlink()
        hostile.git("config", "--remove-section", "diff.x")
        hostile.git("config", "--remove-section", "filter.x")
