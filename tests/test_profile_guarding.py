"""No command writes a file, or a link, by which the profile of the next one would be wider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from profilekit import Place, new_place

import sandbox
from sandbox import InvalidProfile, load_profile
from sandbox.profile.differ import differences
from sandbox.resolve import resolve

ISOLATIONS = ["landlock", "auto"]
WIDE = '[network]\naccess = "full"\n'


@pytest.fixture
def place() -> Iterator[Place]:
    with new_place() as made:
        yield made


def trust(place: Place, project: Path, more: str = "") -> None:
    place.write(user=f'{more}\n[trust]\nprojects = ["{project}"]\n')


def run(place: Place, text: str) -> None:
    sandbox.run(["sh", "-c", text], place.load().policy, cwd=place.project)


ACTS = {
    "written": "cat wide > deep/mine/sandbox.toml",
    "extended": "cat wide > deep/mine/base.toml",
    "renamed": "mv deep old; mkdir -p deep/mine; cat wide > deep/mine/sandbox.toml",
    "replaced": "mv deep/mine old; mkdir deep/mine; cat wide > deep/mine/sandbox.toml",
    "linked": "mv deep/mine old; mkdir evil; cat wide > evil/sandbox.toml; ln -s ../evil deep/mine",
}


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("act", ACTS)
def test_a_trusted_project_is_not_widened_from_the_workspace_around_it(
    place: Place, monkeypatch: Any, isolation: str, there: bool, act: str
) -> None:
    monkeypatch.setenv("SANDBOX_ISOLATION", isolation)
    mine = place.project / "deep/mine"
    mine.mkdir(parents=True)
    (place.project / "wide").write_text(WIDE)
    trust(place, mine)
    if there:
        (mine / "sandbox.toml").write_text('extends = "./base.toml"\n')
        (mine / "base.toml").write_text("")
    elif act == "extended":
        pytest.skip("there is nothing that extends it")
    run(place, "touch deep/mine/allowed")
    assert (mine / "allowed").exists()
    run(place, ACTS[act])
    assert load_profile(workspace=mine).policy.network == "none"


@pytest.mark.parametrize("user", ["", '[filesystem]\n"{top}/link" = "write"\n'])
def test_what_a_trusted_project_below_is_made_of_is_protected(place: Place, user: str) -> None:
    """Also where the directory around it is writable by an entry, and by another name."""
    around = place.outside if user else place.project
    (place.top / "link").symlink_to(place.outside)
    mine = around / "mine"
    mine.mkdir()
    (mine / "sandbox.toml").write_text('extends = "a.toml"\n')
    (mine / "a.toml").write_text('extends = "./b.toml"\n')
    trust(place, mine, user.format(top=place.top))
    found = resolve(place.load().policy, None, str(place.top / "home"), "").protected
    assert {f"{mine}/{name}" for name in ("sandbox.toml", "a.toml", "b.toml")} <= set(found)
    trust(place, mine, f'[filesystem]\n"{mine}/sandbox.toml" = "write"\n')
    with pytest.raises(InvalidProfile, match="writable from inside"):
        place.load()


def test_trust_in_what_lies_in_a_protected_name_does_not_lift_it(place: Place) -> None:
    mine = place.project / ".claude/mine"
    mine.mkdir(parents=True)
    trust(place, mine)
    found = resolve(place.load().policy, None, str(place.top / "home"), "").protected
    assert f"{place.project}/.claude" in found


def test_trust_by_a_name_that_a_command_could_take_is_refused_there(place: Place) -> None:
    mine = place.project / "mine"
    trust(place, mine)
    with pytest.raises(InvalidProfile, match=r":3: trust.projects\[0\]: there is no directory"):
        place.load()
    assert place.load("read-only").mode == "read-only"
    mine.symlink_to(place.outside)
    with pytest.raises(InvalidProfile, match=r"lead to any project; .*outside"):
        place.load()
    assert load_profile(workspace=place.outside).trusted


def test_a_named_file_is_not_replaced_by_renaming_a_directory_above_it(
    place: Place, monkeypatch: Any
) -> None:
    monkeypatch.setenv("SANDBOX_ISOLATION", "auto")
    named = place.outside / "y/z/named.toml"
    named.parent.mkdir(parents=True)
    text = f'[filesystem]\n"{place.outside}" = "write"\n'
    named.write_text(text)
    policy = place.load(named).policy
    act = (
        f"cd {place.outside} && touch y/z/allowed && mv y old; mkdir -p y/z; echo > y/z/named.toml"
    )
    result = sandbox.run(["sh", "-c", act], policy, cwd=place.project)
    if result.enforcement.isolation != "namespaces":
        pytest.skip("takes namespaces")
    assert (named.parent / "allowed").exists() and named.read_text() == text


# Links


def chain(place: Place, name: Path, target: Path) -> None:
    """A name outside that leads to a link in the workspace, which leads outside again."""
    link = place.project / "l"
    if not link.is_symlink():
        link.symlink_to(place.outside)
    name.symlink_to(link / target)


def test_a_name_that_passes_a_link_in_the_workspace_is_the_projects(place: Place) -> None:
    (place.outside / "x.toml").write_text(WIDE)
    chain(place, place.top / "profs", Path("."))
    chain(place, place.top / "x.toml", Path("x.toml"))
    (place.top / "up").symlink_to(place.project / "l/../outside/x.toml")
    for name in ("profs/x.toml", "x.toml", "up"):
        for user in ("", '[filesystem]\n"/srv" = "write"\n'):
            place.write(user=user)
            try:
                assert place.load(place.top / name).policy.network == "none", name
            except InvalidProfile as error:
                assert "link" in str(error), name
    assert place.load(place.outside / "x.toml").policy.network == "full"
    place.write(user=f'extends = "{place.top}/profs/x.toml"\n')
    with pytest.raises(InvalidProfile, match="a command may have written it"):
        place.load()


@pytest.mark.parametrize("name", ["sandbox.toml", "."])
def test_the_users_file_by_a_link_in_the_workspace_is_refused(place: Place, name: str) -> None:
    (place.outside / "sandbox.toml").write_text(WIDE)
    (place.user / "profiles").rmdir()
    if name == ".":
        place.user.rmdir()
    chain(place, place.user / name if name != "." else place.user, Path(name))
    with pytest.raises(InvalidProfile, match="leads into the workspace"):
        place.load()


def test_a_file_by_a_link_in_what_is_writable_is_refused(place: Place) -> None:
    cache = place.top / "cache"
    cache.mkdir()
    (place.outside / "x.toml").write_text("")
    (cache / "l").symlink_to(place.outside)
    place.write(user="")
    assert place.load(cache / "l/x.toml").mode == "auto"
    place.write(user=f'[filesystem]\n"{cache}" = "write"\n')
    with pytest.raises(InvalidProfile, match="is reached by the link"):
        place.load(cache / "l/x.toml")


# What is told


@pytest.mark.parametrize("row", [".git", ".git/hooks", "link", "sub/.git", "behind"])
def test_a_grant_of_what_is_protected_is_told_to_be_wider(place: Place, row: str) -> None:
    for path in (".git/hooks", "sub/.git"):
        (place.project / path).mkdir(parents=True)
    (place.project / "link").symlink_to(".git")
    (place.project / ".envrc").symlink_to("behind")
    (place.project / "behind").write_text("")
    text = f'[filesystem.":workspace"]\n"{row}" = "write"\n'
    place.write(user="", wide=text, plain="")
    plain, wide = place.load("plain"), place.load("wide")
    key = f'filesystem."{place.project}/{row}"'
    assert differences(plain, wide) == [(key, "read", "write", "wider")]
    assert differences(wide, plain) == [(key, "write", "read", "narrower")]
    place.write(project=text)
    (refused,) = [one for one in place.load().settings if one.refused]
    assert refused.key == ("filesystem", f"{place.project}/{row}")


def test_a_grant_of_what_may_be_written_anyway_is_not_told(place: Place) -> None:
    place.write(project='[filesystem.":workspace"]\nsrc = "write"\n')
    assert not [one for one in place.load().settings if one.refused]
    place.write(src='[filesystem.":workspace"]\nsrc = "write"\n', plain="")
    (place.project / "sandbox.toml").unlink()
    assert differences(place.load("plain"), place.load("src")) == []
