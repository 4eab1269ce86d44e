"""One sandbox for many workspaces: each is alone in it, whoever had it before."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import AsUser
from scenekit import play

import _sandcore as core
import sandbox
from sandbox import Command, Sandbox, Unenforceable, aio, run_many, shared, workspace_write
from sandbox.pool import Pool
from sandbox.shared import Shelf

SCENES = (
    "it_is_written_and_the_others_are_not_there",
    "nothing_of_the_last_one_is_found",
    "what_is_protected_in_each_is_its_own",
    "a_pointer_of_git_is_followed",
    "what_the_host_makes_is_protected_from_the_next_command_on",
    "a_protected_file_that_is_replaced_stays_protected",
    "another_directory_of_its_name_is_the_workspace_then",
    "what_is_none_of_them_is_refused",
    "it_does_not_move_under_a_command",
    "several_lanes_have_the_same",
    "a_new_helper_has_it_too",
    "it_need_not_be_awaited",
    "a_forked_copy_has_its_own",
    "names_are_put_aside_when_the_caller_is_killed",
    "names_are_put_aside_also_where_it_has_left_by_itself",
    "what_is_for_one_command_leaves_when_that_has_ended",
    "nothing_grows",
    "policies_that_mean_something_else_are_refused",
    "refusals_are_explained",
    "by_the_name_of_a_link_it_is_the_same",
    "a_link_to_what_is_missing_does_not_open_it",
    "a_pointer_into_what_may_be_written_takes_a_sandbox_of_its_own",
    "one_that_cannot_be_listed_is_protected_all_the_same",
    "the_way_to_them_stays_where_it_may_be_written",
    "many_of_them_take_no_protection_from_others",
    "one_with_hundreds_of_repositories_takes_a_sandbox_of_its_own",
    "what_is_refused_or_interrupted_leaves_none_and_the_next_one_comes",
    "what_is_not_told_of_is_in_the_results",
    "who_has_joined_stays",
    "threads_may_move_it",
    "a_dock_that_was_renamed_for_a_moment_shows_no_other",
    "a_workspace_that_is_closed_is_no_empty_one",
    "answers_that_nobody_waits_for_stop_nothing",
    "a_command_that_goes_on_keeps_it_also_when_it_was_confined_anew",
    "what_the_host_makes_where_a_link_leads_is_protected",
    "the_directory_of_all_may_be_made_anew",
)


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("who", ["as-we-are", "as-a-user"])
@pytest.mark.parametrize("where", ["far", "in-tmp"])
def test_docks(
    scene: str, who: str, where: str, far: Path, tmp_path: Path, as_user: AsUser
) -> None:
    """Also where the sandbox has a /tmp of its own."""
    place = far if where == "far" else tmp_path
    if where == "in-tmp" and not str(tmp_path).startswith("/tmp/"):
        pytest.skip("pytest's directories are elsewhere: --basetemp /tmp/...")
    user = as_user if who == "as-a-user" else None
    dock, outside = place / "dock", place / "outside"
    dock.mkdir()
    outside.mkdir()
    (outside / "file").write_text("outside\n")
    if user is not None:
        for above in (place, *place.parents):
            if os.stat(above).st_mode & 0o005 != 0o005 and os.getuid() == 0:
                above.chmod(0o755)
        user.give(dock, outside)
    play("docks", scene, user, far, dock, outside)


def test_what_is_mounted_later(far: Path) -> None:
    if os.getuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root, for a mount namespace of the test's own")
    dock = far / "dock"
    dock.mkdir()
    code = (
        "import sys; from pathlib import Path; from scenes import docks\n"
        "docks.what_is_mounted_since_is_refused_or_seen(*map(Path, sys.argv[1:]))\n"
    )
    words = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", code]
    env = {
        **os.environ,
        "SANDBOX_ISOLATION": "auto",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        "PYTHONWARNINGS": "ignore",
    }
    done = subprocess.run([*words, str(dock), "/"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(autouse=True)
def nothing_is_kept() -> Iterator[None]:
    """For the tests after these, which count fds and children."""
    yield
    shared._shelf.close()
    aio._shelf.close()


@pytest.fixture(params=["auto", "landlock"])
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SANDBOX_ISOLATION", request.param)
    return str(request.param)


@pytest.fixture
def samples(far: Path) -> list[Path]:
    found = [far / "dock" / f"{number}" for number in range(12)]
    for path in found:
        path.mkdir(parents=True)
        (path / "file").write_text(path.name)
    return found


LOOK = """
cat file; echo $$ > new
test -z "$(ls -A .. | grep -vx "${PWD##*/}")" || echo +
cat ../*/file
"""


def seen_by(path: Path, result: sandbox.Result) -> None:
    """That one of them saw its own, and no other; with Landlock alone the names of others (+)."""
    more = "+\n" if result.enforcement.isolation == "landlock" else ""
    assert result.out == f"{path.name}{more}{path.name}", result
    assert more == "" or any(weaker.part == "names" for weaker in result.enforcement.weaker)
    assert (path / "new").exists()


def test_a_batch_goes_from_one_to_the_next(isolation: str, samples: list[Path]) -> None:
    """With Landlock alone each has a sandbox of its own, that is denied all others."""
    commands = [Command(LOOK, path) for path in samples]
    for done in run_many(commands, workspaces=samples[0].parent, concurrency=3):
        assert done.result is not None, done.error
        seen_by(samples[done.index], done.result)


def test_a_batch_makes_no_more_sandboxes_than_run_at_a_time(
    samples: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_ISOLATION", "auto")
    made = []
    start = Sandbox.__init__

    def counted(self: Sandbox, *args: object, **how: object) -> None:
        made.append(how)
        start(self, *args, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(Sandbox, "__init__", counted)
    commands = [Command(["true"], path) for path in samples * 5]
    for done in run_many(commands, workspaces=samples[0].parent, concurrency=3):
        assert done.result is not None and done.result.ok
    assert len(made) == 3


def test_a_workspace_that_is_none_costs_no_sandbox(
    samples: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does an interrupt lose one."""
    monkeypatch.setenv("SANDBOX_ISOLATION", "auto")
    shelf, dock, policy = Shelf(), samples[0].parent, workspace_write()
    slots = []
    for path in (samples[0], dock / "gone", samples[1], "/etc", samples[2]):
        try:
            slot = shelf.borrow_for(policy, str(path), dock)
        except sandbox.PolicyError:
            continue
        slots.append(slot.sandbox)
        shelf.give_back(slot)
    assert len(set(slots)) == 1 and len(slots) == 3

    def interrupted(*_: object, **how: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Sandbox, "lend", interrupted)
        with pytest.raises(KeyboardInterrupt):
            shelf.borrow_for(policy, str(samples[0]), dock)
    assert shelf._slots == {}
    shelf.close()


def test_elsewhere_than_in_there_is_refused_in_each_isolation(
    isolation: str, samples: list[Path], far: Path
) -> None:
    other = far / "other"
    other.mkdir()
    for path in (other, samples[0].parent):
        with pytest.raises(sandbox.WorkspaceRefused):
            sandbox.run("touch x", cwd=path, workspaces=samples[0].parent)
    assert not (other / "x").exists()
    link = far / "link"
    link.symlink_to(samples[0].parent)
    (samples[1] / "sub").mkdir()
    for path in (link / "1" / "sub", samples[1] / "sub"):
        assert sandbox.run("cat ../file", cwd=path, workspaces=link).out == "1"


def test_a_workspace_that_is_none_is_one_command_s_error(samples: list[Path]) -> None:
    commands = [Command(["cat", "file"], path) for path in samples[:3]]
    commands.insert(1, Command(["true"], samples[0].parent / "gone"))
    commands.insert(2, Command(["true"], "/etc"))
    found = list(run_many(commands, workspaces=samples[0].parent, concurrency=2))
    assert [done.error is None for done in found] == [True, False, False, True, True]
    assert [done.result.out for done in found if done.result] == ["0", "1", "2"]


def test_a_pool_does_too(isolation: str, samples: list[Path]) -> None:
    with Pool(workspaces=samples[0].parent, concurrency=3) as pool:
        futures = [pool.submit(LOOK, path) for path in samples]
        for path, future in zip(samples, futures, strict=True):
            seen_by(path, future.result(60))


def test_run_finds_the_workspace_that_it_starts_in(isolation: str, samples: list[Path]) -> None:
    dock = samples[0].parent
    (samples[3] / "deeper").mkdir()
    for path in samples[:4]:
        seen_by(path, sandbox.run(LOOK, cwd=path, workspaces=dock))
    result = sandbox.run("cat ../file; touch ../beside", cwd=samples[3] / "deeper", workspaces=dock)
    assert result.out == "3" and (samples[3] / "beside").exists()


def test_it_can_be_awaited(isolation: str, samples: list[Path]) -> None:
    async def all_of_them() -> None:
        dock = samples[0].parent
        found = [aio.run(LOOK, cwd=path, workspaces=dock) for path in samples]
        for path, result in zip(samples, await asyncio.gather(*found), strict=True):
            seen_by(path, result)
        if isolation == "auto":
            async with aio.Sandbox(workspaces=dock) as box:
                for path in samples[:3]:
                    box.move(path)
                    seen_by(path, await box.run(LOOK))

    asyncio.run(all_of_them())


def test_without_namespaces_it_says_so(monkeypatch: pytest.MonkeyPatch, far: Path) -> None:
    monkeypatch.setenv("SANDBOX_ISOLATION", "landlock")
    with pytest.raises(Unenforceable, match="namespaces"):
        Sandbox(workspace_write(), workspaces=far)


def test_a_survey_tells_names_and_directories(tmp_path: Path) -> None:
    names = (b".git", b".envrc", b"a" * 200)
    survey = core.Survey(names, (b"node_modules",))
    for made, found in (
        ((), ((), False)),
        (("file", "node_modules/", "link"), ((), False)),
        ((".envrc", ".gitx", ".gi"), ((1,), False)),
        (("a" * 200, ".git/", "src/"), ((0, 1, 2), True)),
        (tuple(f"{number:0200}" for number in range(500)), ((0, 1, 2), True)),
    ):
        for name in made:
            if name == "link":
                (tmp_path / name).symlink_to("/")
            elif name.endswith("/"):
                (tmp_path / name).mkdir()
            else:
                (tmp_path / name).touch()
        assert survey.of(bytes(tmp_path)) == found
    for path, error in (
        (b"/none", 2),
        (bytes(tmp_path / "file"), 20),
        (bytes(tmp_path / "link"), 20),
    ):
        with pytest.raises(OSError) as raised:
            survey.of(path)
        assert raised.value.errno == error
    assert core.Survey([b"x"] * 64, ()).of(b"/") == ((), True)
    with pytest.raises(ValueError, match="too many"):
        core.Survey([b"x"] * 65, ())


def test_the_helper_mounts_nothing_elsewhere(samples: list[Path]) -> None:
    """Whatever a message says: what comes with a workspace is in it."""
    dock, one = bytes(samples[0].parent), bytes(samples[0])
    mounts = [
        (b"/dev", core.MOUNT_DEVICES, 0, core.ACCESS_DEVICE, 0),
        (b"/proc", core.MOUNT_PROC, 0, 0, 0),
        (dock, core.MOUNT_HOLLOW, core.MOUNT_DOCK, core.ACCESS_WRITE, 0),
    ]
    helper = core.Helper(core.compile_policy(mounts=mounts, read_only=True), core.HELPER_PATH)
    which = os.stat(one)
    device = {"device_major": os.major(which.st_dev), "device_minor": os.minor(which.st_dev)}
    for path, kind in (
        (b"/", core.MOUNT_READ),
        (b"/etc/passwd", core.MOUNT_MASK),
        (one + b"0", core.MOUNT_READ),
        (one, core.MOUNT_READ),
        (bytes(samples[1]), core.MOUNT_WRITE),
    ):
        rows = [(one, core.MOUNT_WRITE, 0, 0, 0), (path, kind, core.MOUNT_OPTIONAL, 0, 0)]
        helper.dock(core.compile_policy(mounts=rows), **device, inode=which.st_ino)
        with pytest.raises(core.StageError, match="Invalid argument"):
            helper.await_dock()
    helper.dock(core.compile_policy(mounts=rows[:1]), **device, inode=which.st_ino)
    assert helper.await_dock() == 0
    helper.dock(core.compile_policy(mounts=rows[:1]), **device, inode=which.st_ino + 1)
    with pytest.raises(core.StageError):
        helper.await_dock()
    helper.close()
