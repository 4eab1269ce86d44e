"""A short soak: see `soak.py`, and `make soak` for the long one."""

from __future__ import annotations

import pytest
import soak

pytestmark = pytest.mark.filterwarnings("ignore::sandbox.SandboxWeakened")


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `soak` sets is undone."""
    monkeypatch.setenv("SANDBOX_ISOLATION", "auto")


@pytest.mark.parametrize("isolation", ["auto", "landlock"])
def test_commands_that_end_in_every_way_leave_nothing_and_nothing_grows(isolation: str) -> None:
    soak.commands(400, isolation)


@pytest.mark.parametrize("isolation", ["auto", "landlock"])
def test_batches_of_thousands_leave_nothing_and_nothing_grows(isolation: str) -> None:
    soak.batch(8000 if isolation == "auto" else 2000, isolation)


@pytest.mark.parametrize("isolation", ["auto", "landlock"])
def test_thousands_that_are_awaited_leave_nothing_and_nothing_grows(isolation: str) -> None:
    soak.awaited(8000 if isolation == "auto" else 2000, isolation)


@pytest.mark.parametrize("isolation", ["auto", "landlock"])
def test_callers_that_are_killed_at_any_moment_leave_nothing(isolation: str) -> None:
    soak.kills(15, isolation)


def test_many_sandboxes_are_alive_at_once() -> None:
    soak.sandboxes(60, 40)
