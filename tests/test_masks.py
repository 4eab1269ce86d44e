"""What is masked stays masked, whatever the host does to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import AsUser
from scenekit import play

SCENES = (
    "between_two_commands",
    "during_a_command",
    "a_protected_file_during_a_command",
    "what_was_not_there_is_masked_when_it_comes",
    "a_directory_on_the_way_is_replaced",
    "in_all_lanes",
    "a_link_on_the_way_ends_the_sandbox",
    "a_command_may_move_directories_and_leave_links",
    "what_holds_a_masked_file_cannot_be_renamed",
    "a_flood_of_names_hides_nothing",
)


AGAIN = (
    "a_repository_that_was_made_is_protected",
    "a_pointer_to_another_git_directory_is_followed",
    "a_denied_directory_that_became_a_link_is_denied_where_it_leads",
    "a_secret_that_came_is_denied",
    "case_13_a_workspace_that_became_a_link_is_not_followed",
    "nothing_is_made_anew_when_nothing_matters",
)

SEARCHED = (
    "case_19_a_denied_pattern_holds_for_what_matches_now_and_then",
    "too_many_directories_for_a_pattern_are_an_error",
    "case_32_repositories_further_down_are_protected",
    "a_search_that_ends_early_is_said",
)
ALL = [
    *(("masks", scene) for scene in SCENES),
    *(("again", scene) for scene in AGAIN),
    *(("searched", scene) for scene in SEARCHED),
]


@pytest.fixture
def place(far: Path) -> Path:
    """As usual, but not in /tmp."""
    return far


@pytest.mark.parametrize(("module", "scene"), ALL)
@pytest.mark.parametrize("who", ["as-we-are", "as-a-user"])
def test_a_mask_stays(
    module: str, scene: str, who: str, place: Path, workspace: Path, outside: Path, as_user: AsUser
) -> None:
    user = as_user if who == "as-a-user" else None
    if user is not None:
        user.give(workspace, outside)
    play(module, scene, user, place, workspace, outside)


def test_where_changes_are_not_told_that_is_reported(
    place: Path, workspace: Path, outside: Path, as_user: AsUser
) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to own a directory that a user may pass and not read")
    hidden = outside / "hidden"
    hidden.mkdir()
    hidden.chmod(0o711)
    (hidden / "key").touch()
    as_user.give(workspace)
    scene = "where_a_directory_cannot_be_read_it_is_said"
    play("masks", scene, as_user, place, workspace, hidden)
