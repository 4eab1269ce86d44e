"""Nothing is left on the host: no placeholders ever, and no planted names when all is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import AsUser
from scenekit import play

SCENES = (
    "the_caller_is_killed",
    "the_caller_and_its_lanes_are_killed",
    "what_was_there_before_stays",
    "what_the_host_makes_between_commands_is_its_own",
    "a_caller_that_has_no_time_to_look",
    "closing_moves_nothing",
    "nothing_is_made_for_protection",
)


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("who", ["as-we-are", "as-a-user"])
def test_no_litter(
    scene: str, who: str, place: Path, workspace: Path, outside: Path, as_user: AsUser
) -> None:
    user = as_user if who == "as-a-user" else None
    if user is not None:
        user.give(workspace, outside)
    play("litter", scene, user, place, workspace, outside)
