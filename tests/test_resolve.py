"""From policy to real paths: links once, missing paths named, what must not be a workspace."""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.entries import Access, Entry, Special
from sandbox.errors import InvalidArgument, InvalidPath, Unenforceable, WorkspaceRefused
from sandbox.policy import SandboxPolicy
from sandbox.presets import full_access, read_only, workspace_write
from sandbox.resolve import ResolvedPolicy, resolve

READ, WRITE, DENY = Access.READ, Access.WRITE, Access.DENY


@pytest.fixture
def home(place: Path) -> Path:
    path = place / "home"
    path.mkdir()
    return path


def settle(policy: SandboxPolicy, work: Any, home: Path, tmp: str = "") -> ResolvedPolicy:
    return resolve(policy, None if work is None else str(work), str(home), tmp)


def only(*entries: tuple[Any, Access]) -> SandboxPolicy:
    return SandboxPolicy(entries=tuple(Entry(path, access) for path, access in entries))


def test_the_default_policy_writes_the_workspace_and_the_private_directory(
    workspace: Path, outside: Path, home: Path, place: Path
) -> None:
    tmp = place / "tmp"
    tmp.mkdir()
    found = settle(workspace_write(), workspace, home, str(tmp))
    assert found.writable == (str(tmp), str(workspace))
    assert found.access(f"{workspace}/f") is WRITE
    assert found.access(f"{outside}/file") is READ
    assert found.access(f"{home}/.ssh/id") is DENY
    assert (found.workspace, found.home, found.tmp) == (str(workspace), str(home), str(tmp))
    assert pickle.loads(pickle.dumps(found)) == found


# Links


def test_a_symlinked_root_is_the_directory_it_leads_to(
    place: Path, outside: Path, home: Path
) -> None:
    (place / "link").symlink_to(outside)
    found = settle(workspace_write(), place / "link", home)
    assert found.writable == (str(outside),)
    assert settle(read_only().with_write(place / "link"), None, home).writable == (str(outside),)


def test_case_13_the_boundary_is_where_the_link_led_when_it_was_named(
    place: Path, workspace: Path, outside: Path, home: Path
) -> None:
    (workspace / "pkg").mkdir()
    before = settle(workspace_write(), workspace / "pkg", home)
    (workspace / "pkg").rmdir()
    (workspace / "pkg").symlink_to(outside)
    assert before.writable == (f"{workspace}/pkg",)
    assert before.access(f"{outside}/e") is READ


def test_a_denied_link_denies_what_it_leads_to(outside: Path, place: Path, home: Path) -> None:
    (place / "alias").symlink_to(outside)
    found = settle(only(("/", READ), (place / "alias", DENY)), None, home)
    assert found.access(f"{outside}/file") is DENY
    assert f"{place}/alias" in found.links


# Missing and bad paths


@pytest.mark.parametrize("access", [READ, WRITE])
def test_case_07_a_missing_path_is_an_error_that_names_it(
    access: Access, place: Path, home: Path
) -> None:
    with pytest.raises(InvalidPath, match=f"{access} path does not exist") as caught:
        settle(only(("/", READ), (place / "does-not-exist-yet", access)), None, home)
    assert caught.value.path == f"{place}/does-not-exist-yet"


def test_case_07_a_missing_denied_path_stays_denied(place: Path, home: Path) -> None:
    found = settle(only(("/", READ), (place / "later", DENY)), None, home)
    (place / "later").write_text("secret")
    assert found.access(f"{place}/later") is DENY


def test_case_19_a_pattern_is_refused_and_a_name_that_looks_like_one_is_not(
    workspace: Path, home: Path
) -> None:
    policy = read_only().with_deny(workspace / "**" / "*.pem")
    with pytest.raises(Unenforceable, match=r"\*\.pem"):
        settle(policy, None, home)
    (workspace / "[id]").mkdir()
    found = settle(read_only().with_deny(workspace / "[id]"), None, home)
    assert found.access(f"{workspace}/[id]/page") is DENY


def test_a_workspace_that_is_missing_or_a_file_or_not_named_is_refused(
    place: Path, outside: Path, home: Path
) -> None:
    with pytest.raises(InvalidPath, match="workspace does not exist"):
        settle(workspace_write(), place / "none", home)
    with pytest.raises(WorkspaceRefused, match="not a directory"):
        settle(workspace_write(), outside / "file", home)
    with pytest.raises(InvalidArgument, match="workspace"):
        settle(workspace_write(), None, home)
    with pytest.raises(WorkspaceRefused, match="empty"):
        settle(workspace_write(), "", home)
    assert settle(read_only(), None, home).workspace == ""


def test_case_153_a_deleted_workspace_is_refused(place: Path, home: Path) -> None:
    gone = place / "gone"
    gone.mkdir()
    fd = os.open(gone, os.O_PATH)
    try:
        gone.rmdir()
        with pytest.raises(InvalidPath):
            settle(workspace_write(), f"/proc/self/fd/{fd}", home)
    finally:
        os.close(fd)


# What must not be a workspace


def test_home_and_what_contains_it_are_no_workspace(place: Path, home: Path) -> None:
    for work in (home, place, Path("/")):
        with pytest.raises(WorkspaceRefused) as caught:
            settle(workspace_write(), work, home)
        assert caught.value.path == str(work)
        assert "name the directory of one project" in str(caught.value)
        assert ("HOME itself" in str(caught.value)) is (work == home)
        with pytest.raises(WorkspaceRefused):
            settle(workspace_write(work), None, home)


def test_home_behind_a_link_is_no_workspace(place: Path, home: Path) -> None:
    (place / "me").symlink_to(home)
    with pytest.raises(WorkspaceRefused):
        settle(workspace_write(), place / "me", home)
    with pytest.raises(WorkspaceRefused):
        settle(workspace_write(), home, place / "me")


@pytest.mark.parametrize("name", [".config", ".ssh", ".ssh/keys"])
def test_a_workspace_within_or_above_a_place_of_secrets_is_refused(name: str, home: Path) -> None:
    (home / name).mkdir(parents=True)
    with pytest.raises(WorkspaceRefused, match="allow_secret"):
        settle(workspace_write(), home / name, home)


def test_a_project_in_home_is_a_workspace(home: Path) -> None:
    (home / "project").mkdir()
    found = settle(workspace_write(), home / "project", home)
    assert found.writable == (f"{home}/project",)
    assert found.access(f"{home}/.bashrc") is READ


def test_an_allowed_secret_can_be_the_workspace(home: Path) -> None:
    (home / ".docker").mkdir()
    policy = workspace_write().allow_secret("docker")
    assert settle(policy, home / ".docker", home).writable == (f"{home}/.docker",)


def test_reading_home_as_a_workspace_is_no_harm(home: Path) -> None:
    policy = SandboxPolicy(entries=(Entry("", READ, Special.WORKSPACE),))
    found = settle(policy, home, home)
    assert (found.access(f"{home}/f"), found.access(f"{home}/.ssh/f")) == (READ, DENY)


# Secrets against entries


def test_granting_a_secret_without_allowing_it_is_refused_with_the_mend(home: Path) -> None:
    (home / ".aws").mkdir()
    for path in (home / ".aws",):
        with pytest.raises(InvalidPath, match=r"allow_secret\('aws'\)"):
            settle(read_only().with_read(path), None, home)
    found = settle(read_only().with_write(home / ".aws").allow_secret("aws"), None, home)
    assert found.access(f"{home}/.aws/config") is WRITE


def test_a_narrowed_policy_never_reads_a_secret_that_one_side_denies(home: Path) -> None:
    (home / ".ssh").mkdir()
    narrow = read_only().narrow(read_only().allow_secret("ssh"))
    assert settle(narrow, None, home).access(f"{home}/.ssh/id") is DENY


def test_full_access_needs_no_workspace_and_denies_nothing(home: Path) -> None:
    found = settle(full_access(), None, home)
    assert (found.writable, found.denied, found.protected) == (("/",), (), ())


def test_a_home_that_does_not_exist_is_no_error(place: Path, workspace: Path) -> None:
    found = settle(workspace_write(), workspace, place / "nobody")
    assert found.access(f"{place}/nobody/.ssh/id") is DENY


# Minimal runtime and flattening


def test_the_minimal_runtime_is_what_the_machine_has_of_it(home: Path) -> None:
    found = settle(SandboxPolicy(entries=(Entry("", READ, Special.MINIMAL),)), None, home)
    assert found.access("/usr/bin/env") is READ
    assert found.access("/etc/passwd") is READ
    assert found.access("/home/x") is DENY
    assert all(os.path.realpath(item.path) == item.path for item in found.places)


PATHS = st.lists(st.sampled_from("ab"), max_size=3).map(lambda parts: "/".join(["", *parts]))
LAYER = st.lists(st.tuples(PATHS, st.sampled_from(Access)), max_size=4)


@given(LAYER, LAYER)
def test_the_flat_places_say_what_all_layers_say(
    tmp_path_factory: pytest.TempPathFactory,
    one: list[tuple[str, Access]],
    other: list[tuple[str, Access]],
) -> None:
    base = os.path.realpath(tmp_path_factory.mktemp("tree"))
    everything = [f"/{a}/{b}/{c}" for a in "ab" for b in "ab" for c in "ab"]
    for path in everything:
        os.makedirs(base + path)
    policy = only(*((base + path, access) for path, access in one)).narrow(
        only(*((base + path, access) for path, access in other))
    )
    found = settle(policy, None, Path("/nonexistent"))
    for path in ["", "/a", "/b/a", *everything]:
        assert found.access(base + path) is policy.access(base + path)


# Protected names


def test_each_writable_directory_has_its_protected_names_existing_or_not(
    workspace: Path, outside: Path, home: Path, place: Path
) -> None:
    found = settle(workspace_write(write=[outside]), workspace, home, str(place))
    for root in (workspace, outside):
        assert f"{root}/.git" in found.protected
        assert f"{root}/.envrc" in found.protected
    assert f"{place}/.git" not in found.protected  # the private directory is nobody's workspace


def test_a_narrowed_policy_lifts_only_what_both_sides_lift(workspace: Path, home: Path) -> None:
    git = f"{workspace}/.git"
    (workspace / ".git").mkdir()
    base, opened = workspace_write(), workspace_write().with_write(git)
    for narrow in (base.narrow(opened), opened.narrow(base)):
        assert git in settle(narrow, workspace, home).protected
    assert git not in settle(opened.narrow(opened), workspace, home).protected
    assert git not in settle(full_access().narrow(opened), workspace, home).protected


def test_what_a_widened_policy_grants_by_itself_is_lifted_whatever_it_denies(
    workspace: Path, home: Path
) -> None:
    (workspace / ".git").mkdir()
    (home / "notes").mkdir()
    base = workspace_write().with_deny(home / "notes")
    wide = base.widen(workspace_write().with_write(f"{workspace}/.git"))
    assert len(wide.layers) > 1
    assert f"{workspace}/.git" not in settle(wide, workspace, home).protected


def test_an_explicit_grant_of_a_protected_name_wins(workspace: Path, home: Path) -> None:
    (workspace / ".git").mkdir()
    found = settle(workspace_write(write=[workspace / ".git"]), workspace, home)
    assert f"{workspace}/.git" not in found.protected
    assert f"{workspace}/.envrc" in found.protected


def test_case_27_a_git_file_protects_itself_and_what_it_names(place: Path, home: Path) -> None:
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(place / "main")]
    (place / "main").mkdir()
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(place / "tree")], check=True)
    found = settle(workspace_write(), place / "tree", home)
    assert found.protected[:3] == (
        f"{place}/tree/.git",
        f"{place}/main/.git/worktrees/tree",
        f"{place}/main/.git",
    )
    own, common = f"{place}/main/.git/worktrees/tree", f"{place}/main/.git"
    found = settle(workspace_write(write=[own]), place / "tree", home)
    assert own not in found.protected
    assert {f"{place}/tree/.git", common} <= set(found.protected)
    found = settle(workspace_write(write=[common]), place / "tree", home)
    assert {own, common}.isdisjoint(found.protected)
    assert f"{place}/tree/.git" in found.protected
    found = settle(workspace_write(write=[place / "main"]), place / "tree", home)
    assert {own, common} <= set(found.protected)  # a wide grant lifts nothing


@pytest.mark.parametrize("above", ["tree", "."])
def test_what_a_git_file_names_around_itself_is_not_opened_by_the_workspace(
    above: str, place: Path, home: Path
) -> None:
    """A bare repository with its worktree in it, and a git directory that is the worktree."""
    own, common = place / "bare/worktrees/tree", place / "bare" / above
    own.mkdir(parents=True)
    common.mkdir(exist_ok=True)
    tree = place / "bare/tree"
    tree.mkdir(exist_ok=True)
    (tree / ".git").write_text(f"gitdir: {own}\n")
    (own / "commondir").write_text(f"{common}\n")
    found = settle(workspace_write(write=[tree]), place / "bare", home)
    assert {f"{tree}/.git", str(own), str(common.resolve())} <= set(found.protected)


@pytest.mark.parametrize("content", ["", "gitdir:", "gitdir: none", "something", "\0", "x" * 9999])
def test_a_git_file_that_names_nothing_protects_only_itself(
    content: str, workspace: Path, home: Path
) -> None:
    (workspace / ".git").write_text(content)
    found = settle(workspace_write(), workspace, home)
    assert [path for path in found.protected if "git" in path] == [f"{workspace}/.git"]


def test_a_protected_link_protects_what_it_leads_to(
    workspace: Path, outside: Path, home: Path
) -> None:
    (workspace / ".git").symlink_to(outside)
    found = settle(workspace_write(), workspace, home)
    assert found.protected[:2] == (f"{workspace}/.git", str(outside))
