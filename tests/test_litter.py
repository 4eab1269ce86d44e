"""Nothing is left on the host: no placeholders ever, and no planted names when all is killed.

Who is killed last looks after what was planted, else the next start does.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import AsUser
from scenekit import play

SCENES = (
    "the_caller_is_killed",
    "the_caller_is_killed_and_the_root_is_slow",
    "the_caller_and_its_lanes_are_killed",
    "what_was_there_before_stays",
    "what_the_host_makes_between_commands_is_its_own",
    "a_caller_that_has_no_time_to_look",
    "closing_moves_nothing",
    "nothing_is_made_for_protection",
)


KILLED = (
    "the_next_start_moves_and_tells",
    "it_is_told_also_when_a_command_could_not_be_started",
    "after_an_orderly_end_all_is_the_host_s",
    "after_a_caller_that_forgot_to_close",
    "the_living_are_left_alone",
    "a_root_that_was_killed_under_this_process",
    "another_directory_of_that_name",
    "a_number_that_another_process_has",
    "the_dead_of_other_process_numbers",
    "a_command_cannot_leave_one",
    "a_session_without_the_user_s_keyring",
    "without_room",
    "many_at_once",
    "what_the_host_makes_is_its_own",
)
ALL = [("litter", scene) for scene in SCENES] + [("killed", scene) for scene in KILLED]


@pytest.mark.parametrize(("module", "scene"), ALL, ids=[scene for _, scene in ALL])
@pytest.mark.parametrize("who", ["as-we-are", "as-a-user"])
@pytest.mark.parametrize("isolation", ["auto", "landlock"])
def test_no_litter(
    module: str,
    scene: str,
    who: str,
    isolation: str,
    place: Path,
    workspace: Path,
    outside: Path,
    as_user: AsUser,
) -> None:
    user = as_user if who == "as-a-user" else None
    if user is not None:
        user.give(workspace, outside)
    play(module, scene, user, place, workspace, outside, isolation)
