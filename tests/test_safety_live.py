"""What the tables call safe is run: nothing in the directory may be changed by it."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from sandbox.command import HELPERS_OFF, Context, Verdict, assess_command_safety

# Those that have a form that writes or starts something, and words of which such forms are made.
# Not date and hostname: a mistake in their rows would change the machine.
PROGRAMS = "sort uniq xxd find sed awk rg base64 file tree diff env printf git"
GIT = "status diff log show branch tag stash grep config reflog worktree remote"
WORDS = """f P -o -oP --output=P -n -r -p -u -- - p w,P 1wP {print} -delete -fprint -exec ./p ; -D
-d -i -e --pre=./p --list --ext-diff -z list"""


def everything(root: Path) -> dict[Path, tuple[int, int]]:
    found = ((path, path.lstat()) for path in root.rglob("*") if path.name != "index")
    return {path: (info.st_size, info.st_mtime_ns) for path, info in found if not path.is_dir()}


@pytest.mark.parametrize("seed", range(2))
def test_what_is_safe_changes_no_file(seed: int, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\n")
    (tmp_path / "p").write_text("#!/bin/sh\ntouch ran\n")
    (tmp_path / "p").chmod(0o755)
    name = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
            "GIT_COMMITTER_EMAIL": "a@b"}  # fmt: skip
    env = {"HOME": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    if shutil.which("git"):
        subprocess.run("git init -q; git add f; git commit -qm x", shell=True, cwd=tmp_path,
                       env=env | name)  # fmt: skip
    programs, git, more = PROGRAMS.split(), GIT.split(), WORDS.split()
    context = Context(path=tuple(env["PATH"].split(":")), writable=(str(tmp_path),),
                      git_helpers_off=True)  # fmt: skip
    choose, before, ran = random.Random(seed), everything(tmp_path), 0
    while ran < 300:
        words = [choose.choice(programs)]
        if words == ["git"]:
            words.append(choose.choice(git))
        words += choose.choices(more, k=choose.randint(1, 3))
        if assess_command_safety(words, context).verdict is Verdict.SAFE:
            subprocess.run(words, cwd=tmp_path, env=env | HELPERS_OFF, stdin=subprocess.DEVNULL,
                           capture_output=True, timeout=60)  # fmt: skip
            assert everything(tmp_path) == before, words
            ran += 1
