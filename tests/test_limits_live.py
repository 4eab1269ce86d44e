"""Limits hold: in both isolations, for root and for an ordinary user."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lanekit
import pytest
from conftest import ROOT, TESTS, AsUser

import _sandcore as core

RUNNER = "import limiting, sys; limiting.main(*sys.argv[1:])"
Run = Callable[[str, str], None]

each_user = pytest.mark.parametrize("who", ["root", "user"])
each_isolation = pytest.mark.parametrize("isolation", ["auto", "landlock"])
in_namespaces = pytest.mark.parametrize("isolation", ["auto"])
in_landlock = pytest.mark.parametrize("isolation", ["landlock"])


@pytest.fixture
def body(workspace: Path, who: str, isolation: str, as_user: AsUser) -> Callable[[str], None]:
    """Runs a function of limiting.py as that user in that isolation."""

    def run(name: str) -> None:
        words = [name, str(workspace)]
        own = {"SANDBOX_ISOLATION": isolation}
        if who == "user":
            as_user.give(workspace)
            done = as_user(RUNNER, *words, env=own, timeout=120)
        else:
            done = as_root(words, own, workspace.parent)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def as_root(words: list[str], own: dict[str, str], place: Path) -> subprocess.CompletedProcess[str]:
    if os.getuid() != 0:
        pytest.skip("needs root")
    paths = os.pathsep.join([str(ROOT / "src"), str(TESTS)])
    env = {"PATH": os.environ["PATH"], "HOME": str(place), "PYTHONPATH": paths}
    return subprocess.run(
        [sys.executable, "-B", "-c", RUNNER, *words],
        capture_output=True,
        text=True,
        env=env | own,
        timeout=120,
    )


@each_user
@in_namespaces
def test_a_command_has_exactly_as_many_processes_and_threads_as_said(
    body: Callable[[str], None],
) -> None:
    body("processes_are_counted_exactly")


@each_user
@in_landlock
def test_without_namespaces_the_users_processes_count_and_the_result_says_so(
    body: Callable[[str], None],
) -> None:
    body("without_a_count_it_is_the_users")


@each_user
@in_namespaces
def test_a_fork_bomb_is_held_at_its_number_and_gone_with_its_command(
    body: Callable[[str], None],
) -> None:
    body("a_fork_bomb_is_held_and_gone")


@pytest.mark.parametrize("who", ["user"])
@in_landlock
def test_a_fork_bomb_of_a_user_is_held_and_gone_without_namespaces(
    body: Callable[[str], None],
) -> None:
    body("a_fork_bomb_of_a_user_is_held_by_the_users_number")


@each_user
@in_namespaces
def test_process_numbers_that_run_out_begin_anew(body: Callable[[str], None]) -> None:
    body("numbers_wrap_around")


@each_user
@in_namespaces
def test_the_number_of_processes_cannot_be_raised_from_below(
    body: Callable[[str], None],
) -> None:
    body("the_number_cannot_be_raised_from_below")


@each_user
@in_namespaces
def test_lanes_of_other_numbers_do_not_pile_up(body: Callable[[str], None]) -> None:
    body("lanes_of_other_numbers_do_not_pile_up")


@each_user
@in_namespaces
def test_the_number_of_a_whole_machine_is_never_written(body: Callable[[str], None]) -> None:
    body("an_old_kernel_is_left_alone")


@each_user
@each_isolation
def test_memory_is_that_of_all_processes_of_a_command_together(
    body: Callable[[str], None],
) -> None:
    body("memory_is_that_of_all_processes_together")


@each_user
@each_isolation
def test_memory_of_other_commands_and_of_the_host_is_not_counted(
    body: Callable[[str], None],
) -> None:
    body("memory_of_others_is_not_counted")


@each_user
@each_isolation
def test_memory_that_processes_share_counts_once_and_pages_of_files_do_not(
    body: Callable[[str], None],
) -> None:
    body("memory_that_is_shared_counts_once")


@each_user
@each_isolation
def test_no_way_of_having_memory_is_overlooked(body: Callable[[str], None]) -> None:
    body("no_way_of_having_memory_is_overlooked")


@each_user
@each_isolation
def test_one_process_cannot_map_much_more_than_its_limit(body: Callable[[str], None]) -> None:
    body("one_process_cannot_map_much_more")


@each_user
@each_isolation
def test_memory_that_cannot_be_looked_at_is_reported(body: Callable[[str], None]) -> None:
    body("memory_that_cannot_be_looked_at_is_reported")


@each_user
@each_isolation
def test_limits_hold_for_commands_that_go_on(body: Callable[[str], None]) -> None:
    body("limits_hold_for_commands_that_go_on")


@each_user
@in_namespaces
def test_temporary_directories_are_full_at_their_size_and_the_host_has_its_memory(
    body: Callable[[str], None],
) -> None:
    body("temporary_directories_are_full_at_their_size")


@each_user
@each_isolation
def test_processor_time_file_size_and_descriptors_are_limited(
    body: Callable[[str], None],
) -> None:
    body("limits_of_the_kernel_hold")


@each_user
@each_isolation
def test_what_a_lane_hands_on_to_the_next_command_cannot_be_changed_from_below(
    body: Callable[[str], None],
) -> None:
    body("what_a_lane_hands_on_cannot_be_changed_from_below")


def test_a_lane_without_a_scope_refuses_to_look_at_memory() -> None:
    with lanekit.lane(given=lanekit.unconfined()) as one:
        outcome = lanekit.sh(one, "true", memory=1 << 30)
        assert not outcome.started
        assert (outcome.stage, outcome.errno) == ("limits", errno.EOPNOTSUPP)
        assert lanekit.sh(one, "echo next").stdout == b"next\n"


def test_a_lane_without_namespaces_refuses_to_count(workspace: Path) -> None:
    with lanekit.helper(workspace) as made:
        with pytest.raises(core.StageError) as refused:
            made.lane(5)
        assert (refused.value.stage, refused.value.errno) == ("limits", errno.EOPNOTSUPP)
