"""What a policy means, written once and asked of every isolation.

Linux is asked live, by one command that tries everything; Seatbelt by its evaluator.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import seatbeltkit as kit

import sandbox
from sandbox.backends.base import Question
from sandbox.backends.seatbelt import compile_profile
from sandbox.backends.settings import resolve_seatbelt
from sandbox.policy import SandboxPolicy

pytestmark = pytest.mark.filterwarnings("ignore::sandbox.SandboxWeakened")

ALL = ("landlock", "namespaces", "seatbelt")
MASKED = ("namespaces", "seatbelt")  # Landlock cannot take back what it gives: it refuses, or mends


class Case(NamedTuple):
    """An act on paths below a directory, whether it is allowed, and in which isolations."""

    act: str
    path: str
    allowed: bool
    where: tuple[str, ...] = ALL
    to: str = ""


CASES = [
    Case("read", "work/file", True),
    Case("write", "work/file", True),
    Case("make", "work/new", True),
    Case("make", "work/deep/new", True),
    Case("remove", "work/gone", True),
    Case("move", "granted/moved", True, to="granted/elsewhere"),
    Case("move", "work/moved", True, ("landlock", "namespaces"), to="work/elsewhere"),
    # There may be a `*.pem` in it now or later, which elsewhere no pattern denies.
    Case("move", "work/moved", False, ("seatbelt",), to="granted/elsewhere"),
    Case("read", "other/file", True),
    Case("write", "other/file", False),
    Case("make", "other/new", False),
    Case("remove", "other/file", False),
    Case("move", "other/dir", False, to="work/stolen"),
    Case("move", "work/file", False, to="other/planted"),
    Case("read", "granted/file", True),
    Case("make", "granted/new", True),
    Case("make", "granted-not/new", False),
    Case("read", "denied/file", False),
    Case("write", "denied/file", False),
    Case("make", "denied/new", False),
    Case("read", "home/.ssh/id", False),
    Case("make", "home/.ssh/new", False),
    Case("make", "home/.bashrc", False),
    Case("write", "home/.profile", False),
    Case("read", "home/.profile", True),
    Case("read", "work/.git/config", True),
    Case("write", "work/.git/config", False, MASKED),
    Case("make", "work/.git/hooks/post-commit", False, MASKED),
    Case("remove", "work/.git/config", False, MASKED),
    Case("move", "work/.git", False, MASKED, to="work/git"),
    Case("make", "work/.envrc", False, ("seatbelt",)),
    Case("make", "work/.claude/settings.json", False, ("seatbelt",)),
    Case("read", "work/in/secret", False, MASKED),
    Case("write", "work/in/secret", False, MASKED),
    Case("move", "work/in", False, MASKED, to="work/out"),
    Case("read", "work/key.pem", False, MASKED),
    Case("read", "work/in/key.pem", False, MASKED),
]

PROGRAM = """
import json, os, sys
def made(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "xb").close()
acts = {
    "read": lambda path, to: open(path, "rb").close(),
    "write": lambda path, to: open(path, "r+b").close(),
    "make": lambda path, to: made(path),
    "remove": lambda path, to: os.unlink(path),
    "move": lambda path, to: os.rename(path, to),
}
answers = []
for act, path, to in json.loads(sys.argv[1]):
    try:
        acts[act](path, to)
        answers.append(True)
    except OSError:
        answers.append(False)
print(json.dumps(answers))
"""


@pytest.fixture
def tree(far: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        *("work/file", "work/gone", "work/deep/file", "work/in/secret", "work/.git/config"),
        *("other/file", "other/dir/file", "denied/file", "granted/file", "granted-not/file"),
        *("home/.ssh/id", "home/.profile", "work/moved/file", "work/key.pem", "work/in/key.pem"),
        *("work/.git/hooks/sample", "granted/moved/file"),
    ):
        path = far / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.setenv("HOME", str(far / "home"))
    return far


def policy_for(tree: Path, isolation: str) -> SandboxPolicy:
    inside = [tree / "work/in/secret", f"{tree}/work/**/*.pem"] if isolation in MASKED else []
    return sandbox.workspace_write(
        tree / "work", write=[tree / "granted"], deny=[tree / "denied", *inside]
    )


def live(tree: Path, policy: SandboxPolicy, cases: list[Case]) -> list[bool]:
    asked = [(one.act, str(tree / one.path), str(tree / one.to)) for one in cases]
    with sandbox.Sandbox(policy, place=tree / "work") as box:
        assert box.isolation == (policy.require or "seatbelt")
        result = box.run([sys.executable, "-c", PROGRAM, json.dumps(asked)], check=True)
    answers: list[bool] = json.loads(result.out)
    return answers


def evaluated(tree: Path, policy: SandboxPolicy, cases: list[Case]) -> list[bool]:
    question = Question(policy, None, str(tree / "home"), "", (), str(tree / "work"))
    ask = kit.asks(compile_profile(resolve_seatbelt(question)))
    acts: dict[str, Callable[[Case], bool]] = {
        "read": lambda one: ask("file-read-data", str(tree / one.path)),
        "write": lambda one: ask("file-write-data", str(tree / one.path)),
        "make": lambda one: ask("file-write-create", str(tree / one.path)),
        "remove": lambda one: ask("file-write-unlink", str(tree / one.path)),
        "move": lambda one: moved(ask, str(tree / one.path), str(tree / one.to)),
    }
    return [acts[one.act](one) for one in cases]


def moved(ask: Callable[..., bool], path: str, to: str) -> bool:
    is_directory = os.path.isdir(path)
    return ask("file-write-unlink", path, directory=is_directory) and ask("file-write-create", to)


@pytest.mark.skipif(sys.platform != "darwin", reason="needs a Mac")
def test_a_mac_means_what_the_evaluator_says(tree: Path) -> None:
    cases = [one for one in CASES if "seatbelt" in one.where]
    policy = policy_for(tree, "seatbelt")
    said = evaluated(tree, policy, cases)
    differing = [
        one
        for one, live_answer, answer in zip(cases, live(tree, policy, cases), said, strict=True)
        if live_answer is not answer
    ]
    assert differing == []


@pytest.mark.parametrize("isolation", ALL)
def test_a_policy_means_the_same_in_every_isolation(
    isolation: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [one for one in CASES if isolation in one.where]
    policy = policy_for(tree, isolation)
    if isolation == "seatbelt":
        answers = evaluated(tree, policy, cases)
    elif sys.platform == "darwin":
        pytest.skip(f"{isolation} needs Linux")
    else:
        wanted = "auto" if isolation == "namespaces" else isolation
        monkeypatch.setenv("SANDBOX_ISOLATION", wanted)
        try:
            answers = live(tree, policy.with_require(isolation), cases)  # type: ignore[arg-type]
        except sandbox.Unenforceable as error:
            pytest.skip(f"this host has no {isolation}: {error}")
    wrong = [one for one, answer in zip(cases, answers, strict=True) if answer is not one.allowed]
    assert wrong == []
