"""When rules are made anew: at once where they could allow too much, soon where too little."""

from __future__ import annotations

from pathlib import Path

import pytest
from rulesim import DENY, READ, WRITE, settle

from sandbox.backends import basis as module
from sandbox.backends.basis import Basis, compile_with_basis
from sandbox.backends.rules import compile_rules
from sandbox.resolve import ResolvedPolicy


@pytest.fixture
def settled(workspace: Path, outside: Path) -> ResolvedPolicy:
    return settle((workspace, WRITE), (outside, READ), (outside / "key", DENY))


def test_rules_hold_while_nothing_changes(settled: ResolvedPolicy) -> None:
    _, basis = compile_with_basis(settled, 7)
    assert basis.holds() and basis.holds()


def test_what_happens_in_the_workspace_changes_nothing(
    settled: ResolvedPolicy, workspace: Path
) -> None:
    _, basis = compile_with_basis(settled, 7)
    (workspace / "new").touch()
    assert basis.holds()


def test_another_directory_in_the_place_of_the_workspace_is_seen_at_once(
    settled: ResolvedPolicy, workspace: Path, outside: Path
) -> None:
    _, basis = compile_with_basis(settled, 7)
    workspace.rename(outside.parent / "old")
    assert not basis.holds()
    workspace.mkdir()
    assert not basis.holds()


def test_something_new_at_a_denied_path_is_seen_at_the_next_look(
    settled: ResolvedPolicy, outside: Path
) -> None:
    """It was a readable neighbour: its rule would go with it."""
    (outside / "harmless").touch()
    _, basis = compile_with_basis(settled, 7)
    (outside / "harmless").rename(outside / "key")
    assert not basis.holds()


def test_a_new_neighbour_waits_until_rules_have_rested(
    settled: ResolvedPolicy, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, basis = compile_with_basis(settled, 7)
    (outside / "new").touch()
    assert basis.holds()
    later = module.time.monotonic() + 3600
    monkeypatch.setattr(module.time, "monotonic", lambda: later)
    assert not basis.holds()


def test_without_a_rest_a_new_neighbour_is_seen_at_the_next_look(
    settled: ResolvedPolicy, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK", 0)
    basis = Basis(compile_rules(settled, 7), settled)
    assert basis.holds()
    (outside / "new").touch()
    assert not basis.holds()


def test_the_basis_of_nothing_holds() -> None:
    assert Basis.nothing().holds()
