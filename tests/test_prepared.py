"""What is kept from one sandbox to the next: nothing that would be another answer today."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import sandbox
from sandbox import SandboxPolicy
from sandbox.backends import basis, rules
from sandbox.backends.linux import LinuxBackend

TICK = 0.05  # seconds: what changed a moment ago is not kept


@pytest.fixture
def policy(workspace: Path, outside: Path) -> SandboxPolicy:
    """The neighbour can be read; the key, which is not there yet, cannot."""
    (outside / "neighbour").write_text("open")
    time.sleep(TICK)
    return sandbox.workspace_write(workspace, deny=[outside / "key"])


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[rules.Rules]:
    """All rules that are compiled from here on."""
    found: list[rules.Rules] = []

    def noted(*how: object) -> rules.Rules:
        found.append(rules.compile_rules(*how))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(basis, "compile_rules", noted)
    return found


def output(policy: SandboxPolicy, backend: LinuxBackend, words: list[str]) -> tuple[int, str]:
    with sandbox.Sandbox(policy, backend=backend) as box:
        result = box.run(words, text=True)
        return result.returncode or 0, result.stdout


@pytest.fixture
def calm() -> Iterator[SandboxPolicy]:
    """Denies nothing in /tmp, where no directory rests."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        Path(place, "work").mkdir()
        time.sleep(TICK)
        yield sandbox.workspace_write(f"{place}/work", deny=[f"{place}/key"])


def until_kept(compiled: list[rules.Rules], start: Callable[[], object]) -> None:
    """Starts until that needs no new rules: others may be busy in the directories above."""
    for _ in range(20):
        made = len(compiled)
        start()
        if made and len(compiled) == made:
            return
        time.sleep(TICK)
    raise AssertionError("nothing was kept")


def test_a_later_sandbox_needs_no_new_rules(
    calm: SandboxPolicy, compiled: list[rules.Rules]
) -> None:
    backend, told = LinuxBackend(namespaces=False), list[tuple[int, str]]()
    words = ["sh", "-c", 'touch "$TMPDIR/made" && echo "$TMPDIR"']
    until_kept(compiled, lambda: told.append(output(calm, backend, words)))
    assert [status for status, _ in told] == [0] * len(told)
    assert len(set(told)) == len(told), "each has a temporary directory of its own"


def test_the_temporary_directory_of_the_one_before_is_not_granted(
    calm: SandboxPolicy, compiled: list[rules.Rules]
) -> None:
    backend = LinuxBackend(namespaces=False)

    def two() -> None:
        with sandbox.Sandbox(calm, backend=backend) as first:
            there = first.resolved.tmp
            assert first.run(["touch", f"{there}/mine"]).returncode == 0
            assert output(calm, backend, ["touch", f"{there}/other"])[0] != 0
            assert not Path(there, "other").exists()

    until_kept(compiled, two)


def test_rules_that_differ_from_those_before_are_not_kept(
    calm: SandboxPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a command of another sandbox exchanges just then was not there for the first ones."""
    backend, first = LinuxBackend(namespaces=False), list[bool]()

    def compiled(*how: object) -> rules.Rules:
        found = rules.compile_rules(*how)  # type: ignore[arg-type]
        first.append(len(first) % 2 == 0)
        return replace(found, anchors=found.anchors[1:]) if first[-1] else found

    monkeypatch.setattr(basis, "compile_rules", compiled)
    for _ in range(3):
        time.sleep(TICK)
        assert output(calm, backend, ["true"])[0] == 0
    assert len(first) == 6


def test_what_came_beside_a_denied_path_is_read_by_the_next_sandbox(
    policy: SandboxPolicy, outside: Path
) -> None:
    backend = LinuxBackend(namespaces=False)
    output(policy, backend, ["true"])
    (outside / "late").write_text("late")
    assert output(policy, backend, ["cat", f"{outside}/late"]) == (0, "late")


def test_what_came_at_a_denied_path_is_denied_in_the_next_sandbox(
    policy: SandboxPolicy, outside: Path
) -> None:
    """It was a neighbour, with a rule of its own."""
    backend = LinuxBackend(namespaces=False)
    assert output(policy, backend, ["cat", f"{outside}/neighbour"]) == (0, "open")
    (outside / "neighbour").rename(outside / "key")
    assert output(policy, backend, ["cat", f"{outside}/key"])[0] != 0


def test_a_repository_that_came_is_protected_in_the_next_sandbox(
    policy: SandboxPolicy, workspace: Path, outside: Path
) -> None:
    backend = LinuxBackend(namespaces=False)
    output(policy, backend, ["true"])
    (workspace / "inner").mkdir()
    (workspace / ".git").write_text(f"gitdir: {workspace}/inner\n")
    with sandbox.Sandbox(policy, backend=backend) as box:
        assert f"{workspace}/inner" in box.resolved.protected


def test_another_directory_in_the_place_of_the_workspace_is_what_is_granted(
    policy: SandboxPolicy, workspace: Path
) -> None:
    backend = LinuxBackend(namespaces=False)
    output(policy, backend, ["true"])
    old = workspace.rename(workspace.parent / "old")
    workspace.mkdir()
    assert output(policy, backend, ["touch", f"{workspace}/made"])[0] == 0
    assert output(policy, backend, ["touch", f"{old}/made"])[0] != 0
