"""Profiles in layers: what counts, what a project may change, and that it never widens anything."""

from __future__ import annotations

import json
import math
import os
import pickle
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profilekit import Place, new_place

from sandbox import (
    Access,
    Environment,
    InvalidPath,
    InvalidProfile,
    Limits,
    Special,
    load_profile,
)
from sandbox.command import Rule
from sandbox.environ import CORE, Plan
from sandbox.policy import PROTECTED
from sandbox.presets import MODES, preset
from sandbox.profile.load import by_itself
from sandbox.profile.values import Profile
from sandbox.resolve import resolve

READ, WRITE, DENY = Access.READ, Access.WRITE, Access.DENY


@pytest.fixture
def place() -> Iterator[Place]:
    with new_place() as made:
        yield made


def access(profile: Profile, path: Any) -> Access:
    places = {Special.WORKSPACE: profile.workspace, Special.TMP: "/private"}
    return profile.policy.access(str(path), places)


def key_of(profile: Profile, *key: str) -> Any:
    (found,) = [one for one in profile.settings if one.key == key and not one.refused]
    return found


# Layers


def test_without_files_it_is_the_default_policy_of_the_workspace(place: Place) -> None:
    profile = place.load()
    assert (profile.mode, profile.approval, profile.unsandboxed) == ("auto", "on-escape", False)
    assert (profile.rules, profile.sources, profile.trusted) == ((), (), False)
    assert access(profile, place.project) is WRITE
    assert access(profile, place.outside) is READ
    assert profile.policy.limits == Limits()
    assert profile.policy.environment == Environment()
    assert profile.policy.protected == PROTECTED


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_is_a_profile_and_says_so(place: Place, mode: Any) -> None:
    for profile in (place.load(mode), place.load(mode=mode)):
        assert profile.mode == mode
        assert profile.policy.network == preset(mode).network
        assert profile.policy.unconfined is (mode == "full-access")
        assert access(profile, place.project) is (READ if mode == "read-only" else WRITE)


def test_every_key_reaches_the_policy(place: Place) -> None:
    place.write(
        strict="""
description = "all keys"
mode = "read-only"
allow_secrets = ["npm"]
protected = [".env"]

[filesystem]
"/srv//data/" = "write"
":minimal" = "read"
"/srv/**/*.pem" = "deny"

[filesystem.":workspace"]
"." = "read"
build = "write"

[filesystem."~/notes"]
"a/b" = "deny"

[network]
access = "loopback"
unix_sockets = ["/run//x.sock"]

[environment]
inherit = "all"
include = ["CI_*"]
exclude = ["ci_secretive"]
only = ["*"]
allow = ["GITHUB_TOKEN"]
set = { LANG = "C" }

[limits]
wall = 5
cpu = 7
memory = "512M"
tmp = "none"

[isolation]
minimum = "landlock"
accept = ["names", "tmp"]

[approval]
mode = "never"
unsandboxed = true

[[rules]]
prefix = ["git", "push"]
decision = "forbid"
justification = "reviewed first"
match = ["git push --force origin 'a b'"]
"""
    )
    profile = place.load("strict")
    policy = profile.policy
    home = os.path.expanduser("~")
    places = ["/srv/data/x", place.project, place.project / "build/x", f"{home}/notes/a/b"]
    assert [access(profile, one) for one in places] == [WRITE, READ, WRITE, DENY]
    said = {(entry.special, entry.path): entry.access for entry in policy.entries}
    assert said[Special.MINIMAL, ""] is READ and said[None, "/srv/**/*.pem"] is DENY
    assert policy.allow_secrets == ("npm",) and policy.protected == (*PROTECTED, ".env")
    assert (policy.network, policy.unix_sockets) == ("loopback", ("/run/x.sock",))
    assert policy.environment == Environment(
        "all", ("CI_*",), ("ci_secretive",), (("LANG", "C"),), ("GITHUB_TOKEN",), ("*",)
    )
    assert policy.limits == Limits(wall=5, cpu=7, memory=512 << 20, tmp=None)
    assert (policy.require, policy.accept) == ("landlock", ("names", "tmp"))
    assert (profile.mode, profile.approval, profile.unsandboxed) == ("auto", "never", True)
    example = "git push --force origin 'a b'"
    assert profile.rules == (Rule(("git", "push"), "forbid", "reviewed first", (example,)),)


def test_a_layer_adds_to_lists_and_replaces_what_is_one_value(place: Place) -> None:
    place.write(
        user='protected = ["a"]\n[limits]\ncpu = 1\nwall = 9\n[environment]\ninclude = ["A"]\n',
        more='protected = ["b"]\n[limits]\ncpu = 2\n[environment]\ninclude = ["B"]\n',
    )
    policy = place.load("more").policy
    assert policy.protected == (*PROTECTED, "a", "b")
    assert policy.environment.include == ("A", "B")
    assert (policy.limits.cpu, policy.limits.wall) == (2, 9)


@pytest.mark.parametrize("turned", [False, True])
def test_a_path_that_is_written_out_counts_also_where_it_is_the_workspace(
    place: Place, turned: bool
) -> None:
    rows = [f'"{place.project}" = "read"', '":workspace" = "write"']
    place.write(user="\n".join(["[filesystem]", *(reversed(rows) if turned else rows)]))
    assert access(place.load(), place.project) is READ
    assert access(place.load("read-only"), place.project) is READ
    place.write(user=f'[filesystem]\n"{place.project}" = "deny"\n', project="")
    assert access(place.load(), place.project) is DENY


def test_each_setting_knows_its_file_and_line(place: Place) -> None:
    place.write(user="# mine\n\n[limits]\n\ncpu = 1\n", project='mode = "read-only"\n')
    profile = place.load()
    cpu, mode, wall = (
        key_of(profile, "limits", "cpu"),
        key_of(profile, "mode"),
        key_of(profile, "limits", "wall"),
    )
    assert (cpu.source.layer, cpu.line) == ("user", 5)
    assert cpu.source.file == str(place.user / "sandbox.toml")
    assert (mode.source.layer, mode.line) == ("project", 1)
    assert (wall.source.layer, wall.source.file, wall.line) == ("built-in", "", 0)
    assert [one.layer for one in profile.sources] == ["user", "project"]
    assert all(len(one.digest) == 64 for one in profile.sources)


def test_extends_brings_the_other_one_first(place: Place) -> None:
    place.write(
        base='[limits]\ncpu = 1\nwall = 1\n[filesystem]\n"/x" = "deny"\n',
        more='extends = "base"\n[limits]\nwall = 2\n',
        path='extends = "./more.toml"\n',
        mode='extends = "read-only"\n',
    )
    limits = place.load("path").policy.limits
    assert (limits.cpu, limits.wall) == (1, 2)
    assert access(place.load("more"), "/x/y") is DENY
    assert place.load("mode").mode == "read-only"


def test_extends_in_a_circle_is_refused(place: Place) -> None:
    place.write(a='extends = "b"\n', b='\nextends = "a"\n', c='extends = "./c.toml"\n')
    with pytest.raises(InvalidProfile, match=r"b\.toml:2: extends"):
        place.load("a")
    with pytest.raises(InvalidProfile, match=r"c\.toml:1: extends"):
        place.load("c")


@pytest.mark.parametrize("layer", ["user", "project"])
@pytest.mark.parametrize(
    "name",
    [
        *(r"a\u0000.toml", r"./\u0000.toml", "gone.toml", "dir.toml", "fifo.toml", "large.toml"),
        *("/dev/zero", "/", "/dev/null/x", f"/{'x' * 300}", "x/" * 3000, r"\u0000"),
    ],
)
def test_what_cannot_be_extended_is_named_with_the_line_that_says_it(
    place: Place, layer: str, name: str
) -> None:
    for directory in (place.user, place.project):
        (directory / "dir.toml").mkdir()
        os.mkfifo(directory / "fifo.toml")
        (directory / "large.toml").write_text("#" * 65537)
    text = f'# first\nextends = "{name}"\n'
    place.write(user=text if layer == "user" else "", project=text if layer == "project" else "")
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(InvalidProfile) as caught:
        place.load()
    file = (place.user if layer == "user" else place.project) / "sandbox.toml"
    assert (caught.value.file, caught.value.line, caught.value.key) == (str(file), 2, "extends")
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("name", ["a\0", "./a\0.toml", b"./x.toml"])
def test_a_name_that_is_no_path_is_refused(place: Place, name: Any) -> None:
    with pytest.raises(InvalidPath):
        place.load(name)
    with pytest.raises(InvalidPath):
        load_profile(workspace=name)
    if isinstance(name, str):
        with pytest.raises(InvalidProfile, match="NUL"):
            by_itself(name)


def test_an_unknown_name_is_refused_with_a_suggestion(place: Place) -> None:
    place.write(strict="", other='extends = "stric"\n')
    with pytest.raises(InvalidProfile, match=r"did you mean 'strict'"):
        place.load("stricct")
    with pytest.raises(InvalidProfile, match=r"other\.toml:1: extends.*did you mean 'strict'"):
        place.load("other")
    for name in ("..", "a b", ".hidden", ""):
        with pytest.raises(InvalidProfile, match="neither the name of a profile nor a path"):
            place.load(name)


# Modes


def test_the_mode_is_never_less_than_the_policy_comes_to(place: Place) -> None:
    place.write(some='mode = "read-only"\n[filesystem]\n"/srv" = "write"\n')
    assert place.load("some").mode == "auto"
    place.write(less='mode = "full-access"\n[filesystem]\n"/srv" = "deny"\n')
    assert place.load("less").mode == "full-access"
    assert not place.load("less").policy.unconfined


def test_full_access_by_any_other_name_is_refused(place: Place) -> None:
    text = """
allow_secrets = ["*"]
[filesystem]
"/" = "write"
":workspace" = "write"
":tmp" = "write"
[network]
access = "full"
"""
    place.write(all=text)
    with pytest.raises(InvalidProfile, match="full-access"):
        place.load("all")
    place.write(all=f'mode = "full-access"\n{text}')
    assert place.load("all").policy.unconfined


# The project

WIDE = """
extends = "full-access"
allow_secrets = ["*"]
[filesystem]
"/" = "write"
[filesystem.":workspace"]
".git" = "write"
[network]
access = "full"
unix_sockets = ["/run/docker.sock"]
[environment]
inherit = "all"
allow = ["GITHUB_TOKEN"]
include = ["CI_*"]
set = { LD_PRELOAD = "./evil.so", PATH = "." }
[limits]
wall = "none"
[approval]
unsandboxed = true
[[rules]]
prefix = ["rm"]
decision = "allow"
justification = "quicker"
"""


def test_a_project_that_is_not_trusted_gets_nothing_by_its_file(place: Place) -> None:
    before = place.load()
    place.write(project=WIDE)
    after = place.load()
    assert (after.mode, after.rules, after.unsandboxed) == ("auto", (), False)
    for path in ("/", "/etc", place.outside, place.project):
        assert access(after, path) is access(before, path)
    assert after.policy.environment == before.policy.environment
    assert after.policy.limits == before.policy.limits
    assert (after.policy.network, after.policy.unix_sockets) == ("none", ())
    assert after.policy.allow_secrets == ()
    refused = {one.key for one in after.settings if one.refused}
    assert {("mode",), ("network", "access"), ("rules", "allow", "rm")} <= refused
    assert ("environment", "set", "PATH") in refused


def test_a_project_that_is_not_trusted_does_not_lift_what_is_protected(place: Place) -> None:
    (place.project / ".git").mkdir()
    place.write(project=WIDE)
    resolved = resolve(place.load().policy, None, str(place.top / "home"), "")
    assert f"{place.project}/.git" in resolved.protected


def test_a_project_does_not_widen_by_a_link(place: Place) -> None:
    """As text the link is in the workspace; what counts is where it leads."""
    (place.project / "link").symlink_to(place.outside)
    place.write(
        user=f'mode = "read-only"\n[filesystem]\n"{place.outside}" = "deny"\n',
        project='[filesystem.":workspace"]\nlink = "read"\n',
    )
    home = str(place.top / "home")
    resolved = resolve(place.load().policy, None, home, "")
    assert resolved.access(str(place.outside / "file")) is DENY
    place.write(user=f'[filesystem]\n"{place.outside}" = "deny"\n')
    with pytest.raises(InvalidPath, match="which a command may have made"):
        resolve(place.load().policy, None, home, "")


def test_a_trusted_project_may_allow_more(place: Place) -> None:
    place.write(project='[filesystem]\n"/srv" = "write"\n[environment]\nset = { A = "1" }\n')
    place.trust()
    profile = place.load()
    assert profile.trusted
    assert access(profile, "/srv") is WRITE
    assert dict(profile.policy.environment.set) == {"A": "1"}
    assert not [one for one in profile.settings if one.refused]


def test_what_the_user_denies_a_trusted_project_can_say_otherwise_only_by_name(
    place: Place,
) -> None:
    place.write(project='[filesystem]\n"/srv" = "write"\n')
    place.trust('[filesystem]\n"/srv/keys" = "deny"\n')
    assert access(place.load(), "/srv/keys/a") is DENY
    assert access(place.load(), "/srv/other") is WRITE


def test_trust_is_of_one_directory_and_not_of_what_is_in_it(place: Place) -> None:
    inner = place.project / "vendor"
    inner.mkdir()
    (inner / "sandbox.toml").write_text('[network]\naccess = "full"\n')
    place.trust()
    assert load_profile(workspace=inner).policy.network == "none"


def test_a_project_cannot_say_whom_to_trust(place: Place) -> None:
    text = f'\n[trust]\nprojects = ["{place.project}"]\n'
    place.write(project=text)
    for _ in range(2):
        with pytest.raises(InvalidProfile, match=r"sandbox\.toml:3: trust\.projects"):
            place.load()
        place.trust()


def test_a_file_in_the_workspace_that_is_named_is_the_projects(place: Place) -> None:
    mine = place.project / "mine.toml"
    mine.write_text('[network]\naccess = "full"\n[limits]\ncpu = 1\n')
    (place.outside / "link.toml").symlink_to(mine)
    for name in (mine, place.outside / "link.toml"):
        if name == mine:
            profile = place.load(name)
            assert (profile.policy.network, profile.policy.limits.cpu) == ("none", 1)
            assert "mine.toml" in profile.policy.protected
        else:
            with pytest.raises(InvalidProfile, match="link"):
                place.load(name)
    elsewhere = place.outside / "mine.toml"
    elsewhere.write_text(mine.read_text())
    assert place.load(elsewhere).policy.network == "full"


def test_a_link_in_the_workspace_is_no_profile(place: Place) -> None:
    real = place.outside / "real.toml"
    real.write_text('[network]\naccess = "full"\n')
    for name in ("sandbox.toml", "named.toml"):
        (place.project / name).symlink_to(real)
    with pytest.raises(InvalidProfile, match="must be no link"):
        place.load()
    (place.project / "sandbox.toml").unlink()
    with pytest.raises(InvalidProfile, match="must be no link"):
        place.load(place.project / "named.toml")


def test_a_user_does_not_extend_what_lies_in_the_workspace(place: Place) -> None:
    (place.project / "base.toml").write_text("")
    place.write(user=f'\nextends = "{place.project}/base.toml"\n')
    with pytest.raises(InvalidProfile, match=r":2: extends: .*a command may have written it"):
        place.load()


@pytest.mark.parametrize("target", ["../x.toml", "/etc/x.toml", "sub/x.toml", "strict", "~/x.toml"])
def test_a_project_extends_a_file_beside_its_own_and_nothing_else(
    place: Place, target: str
) -> None:
    place.write(project=f'extends = "{target}"\n', strict="")
    with pytest.raises(InvalidProfile, match=r"sandbox\.toml:1: extends"):
        place.load()
    (place.project / "beside.toml").write_text("[limits]\ncpu = 3\n")
    place.write(project='extends = "./beside.toml"\n')
    profile = place.load()
    assert profile.policy.limits.cpu == 3
    assert {"sandbox.toml", "beside.toml"} <= set(profile.policy.protected)


def test_a_projects_file_is_read_once(place: Place) -> None:
    place.write(project="[limits]\ncpu = 3\n")
    profile = place.load()
    place.write(project="[limits]\ncpu = 99\n")
    assert profile.policy.limits.cpu == 3
    assert key_of(profile, "limits", "cpu").line == 2


def test_a_broken_file_of_any_layer_stops_all(place: Place) -> None:
    place.write(project="[limits\n")
    with pytest.raises(InvalidProfile, match=r"sandbox\.toml:1"):
        place.load()
    assert place.load(project=False).sources == ()
    place.write(user='[[rules]]\nprefix = ["rm"]\njustification = "x"\n')
    with pytest.raises(InvalidProfile, match=r"'decision' is missing"):
        place.load(project=False)
    assert place.load(user=False, project=False).sources == ()


def test_a_variable_does_not_make_the_projects_files_the_users(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = place.project / "config/sandbox"
    inside.mkdir(parents=True)
    (inside / "sandbox.toml").write_text('[network]\naccess = "full"\n')
    monkeypatch.setenv("HOME", str(place.top))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place.project / "config"))
    for name in (None, "strict", inside / "sandbox.toml"):
        with pytest.raises(InvalidProfile, match="XDG_CONFIG_HOME"):
            place.load(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")  # a relative one counts as none
    monkeypatch.chdir(place.project)
    assert place.load().sources == ()
    usual = place.top / ".config/sandbox"
    usual.mkdir(parents=True)
    (usual / "sandbox.toml").write_text('mode = "read-only"\n')
    for workspace in (usual, usual.parent, place.top):
        assert load_profile(workspace=workspace).mode == "read-only"


def test_a_users_file_that_leads_into_the_workspace_is_refused(place: Place) -> None:
    there = place.project / "dotfiles.toml"
    there.write_text('[network]\naccess = "full"\n')
    (place.user / "sandbox.toml").symlink_to(there)
    with pytest.raises(InvalidProfile, match="leads into the workspace"):
        place.load()
    (place.user / "profiles/named.toml").symlink_to(there)
    with pytest.raises(InvalidProfile, match="link"):
        place.load("named", user=False)
    assert load_profile(workspace=place.outside).policy.network == "full"


# Files that are never writable from inside


@pytest.mark.parametrize("below", [".", "sandbox.toml"])
def test_a_profile_that_grants_its_own_file_is_refused(place: Place, below: str) -> None:
    place.write(project=f'[filesystem.":workspace"]\n"{below}" = "write"\n')
    place.trust()
    if below == ".":
        assert "sandbox.toml" in place.load().policy.protected
    else:
        with pytest.raises(InvalidProfile, match="writable from inside"):
            place.load()


def test_a_profile_that_grants_its_own_file_by_a_link_is_refused(place: Place) -> None:
    (place.project / "x").symlink_to("sandbox.toml")
    place.write(project='[filesystem.":workspace"]\nx = "write"\n')
    place.trust()
    with pytest.raises(InvalidProfile, match="writable from inside"):
        place.load()


def test_the_users_files_stay_read_only_in_what_is_granted_around_them(place: Place) -> None:
    place.write(user=f'[filesystem]\n"{place.top}/config" = "write"\n')
    profile = place.load()
    assert access(profile, place.user.parent / "other") is WRITE
    for file in ("sandbox.toml", "profiles/new.toml"):
        assert access(profile, place.user / file) is READ
    (place.user / "sandbox.toml").unlink()
    named = place.outside / "wide.toml"
    named.write_text(f'[filesystem]\n"{place.top}" = "write"\n')
    place.user.rename(place.user.with_name("old"))
    profile = place.load(named)
    assert access(profile, place.user / "sandbox.toml") is DENY
    assert access(profile, place.outside / "other") is WRITE
    assert access(profile, named) is READ
    named.write_text(f'[filesystem]\n"{place.user}/profiles/x" = "write"\n')
    with pytest.raises(InvalidProfile, match="writable from inside"):
        place.load(named)


def test_a_profile_is_a_value(place: Place) -> None:
    place.write(user="[limits]\ncpu = 1\n")
    one = place.load()
    assert pickle.loads(pickle.dumps(one)) == one == place.load()
    assert {one.policy: 1}[place.load().policy] == 1


# Only tighten, for any files

PARTS = ["a", "b", "a/b", "a/b/c", ".git", "link"]
PLACES_IN = st.sampled_from([".", *PARTS])
ACCESS = st.sampled_from(["read", "write", "deny"])
NAMES = st.lists(st.sampled_from(["A_B", "A_*", "*", "X", "CI"]), max_size=2)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(list(MODES)),
        "extends": st.sampled_from(list(MODES)),
        "allow_secrets": st.lists(st.sampled_from(["npm", "ssh", "*"]), max_size=2),
        "protected": st.lists(st.sampled_from([".env", "x"]), max_size=2),
        "filesystem": st.dictionaries(
            st.sampled_from(["/", "/srv", ":root", ":tmp", ":minimal", "TOP/outside", "TOP"]),
            ACCESS,
            max_size=3,
        ).flatmap(
            lambda table: st.dictionaries(PLACES_IN, ACCESS, max_size=3).map(
                lambda inner: {**table, ":workspace": inner} if inner else table
            )
        ),
        "network": st.fixed_dictionaries(
            {},
            optional={
                "access": st.sampled_from(["none", "loopback", "full"]),
                "unix_sockets": st.lists(st.sampled_from(["/run/a", "/run/b"]), max_size=2),
            },
        ),
        "environment": st.fixed_dictionaries(
            {},
            optional={
                "inherit": st.sampled_from(["none", "core", "all"]),
                "include": NAMES,
                "exclude": NAMES,
                "only": NAMES,
                "allow": st.lists(st.sampled_from(["MY_TOKEN", "CI"]), max_size=2),
                "set": st.dictionaries(st.sampled_from(["PATH", "S"]), st.just("v"), max_size=2),
            },
        ),
        "limits": st.dictionaries(
            st.sampled_from(["wall", "cpu", "open_files", "processes"]),
            st.sampled_from([5, 50, "none"]),
            max_size=3,
        ),
        "isolation": st.fixed_dictionaries(
            {},
            optional={
                "minimum": st.sampled_from(["landlock", "namespaces"]),
                "accept": st.lists(st.sampled_from(["names", "tmp"]), max_size=2),
            },
        ),
        "approval": st.fixed_dictionaries(
            {},
            optional={
                "mode": st.sampled_from(["untrusted", "on-escape", "never"]),
                "unsandboxed": st.booleans(),
            },
        ),
        "rules": st.lists(
            st.builds(
                lambda word, decision: {
                    "prefix": [word],
                    "decision": decision,
                    "justification": "x",
                },
                st.sampled_from(["git", "rm"]),
                st.sampled_from(["allow", "ask", "forbid"]),
            ),
            max_size=2,
            unique_by=lambda rule: (rule["prefix"][0], rule["decision"]),
        ),
    },
)
VARIABLES = [*CORE[:3], "A_B", "A_C", "X", "CI", "MY_TOKEN", "OTHER"]
NETWORKS = ["none", "loopback", "full"]
RANK = {DENY: 0, READ: 1, WRITE: 2}


def toml(value: Any, top: str) -> str:
    """A value of a document as TOML, tables inline; enough for what is made here."""
    if isinstance(value, dict):
        pairs = [f"{toml(name, top)} = {toml(item, top)}" for name, item in value.items()]
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list):
        return f"[{', '.join(toml(item, top) for item in value)}]"
    return json.dumps(value.replace("TOP", top) if isinstance(value, str) else value)


def written(document: dict[str, Any], top: str) -> str:
    return "".join(f"{name} = {toml(value, top)}\n" for name, value in document.items())


def loaded(place: Place, **options: Any) -> Profile | None:
    try:
        return place.load(**options)
    except InvalidProfile as error:
        assert "confines nothing" in str(error) or "said twice" in str(error), error
        return None


@given(DOCUMENTS, DOCUMENTS)
def test_a_project_that_is_not_trusted_never_widens_anything(
    mine: dict[str, Any], theirs: dict[str, Any]
) -> None:
    with new_place() as place:
        top = str(place.top)
        for part in ("a/b/c", ".git"):
            (place.project / part).mkdir(parents=True)
        (place.project / "link").symlink_to(place.outside)
        place.write(user=written(mine, top))
        before = loaded(place)
        place.write(project=written(theirs, top))
        after = loaded(place) if before is not None else None
        if before is None or after is None:
            return
        paths = [place.project / part for part in PARTS]
        for path in (*map(str, paths), "/", "/srv/x", "/private", top, f"{top}/outside/x"):
            assert RANK[access(after, path)] <= RANK[access(before, path)], path
    one, other = before.policy, after.policy
    assert NETWORKS.index(other.network) <= NETWORKS.index(one.network)
    assert one.unconfined or set(other.unix_sockets) <= set(one.unix_sockets)
    plans = Plan(one.environment), Plan(other.environment)
    assert [name for name in VARIABLES if plans[1].inherits(name)] == [
        name for name in VARIABLES if plans[1].inherits(name) and plans[0].inherits(name)
    ]
    assert other.environment.set == one.environment.set
    for item in fields(Limits):
        least, most = getattr(other.limits, item.name), getattr(one.limits, item.name)
        assert (math.inf if least is None else least) <= (math.inf if most is None else most)
    assert "*" in one.allow_secrets or set(other.allow_secrets) <= set(one.allow_secrets)
    assert set(one.protected) <= set(other.protected)
    assert one.require in (None, other.require) or other.require == "namespaces"
    assert one.accept is None or set(other.accept or ()) <= set(one.accept)
    assert list(MODES).index(after.mode) <= list(MODES).index(before.mode)
    assert after.unsandboxed <= before.unsandboxed
    assert after.approval == before.approval or before.approval == "on-escape"
    assert set(before.rules) <= set(after.rules)
    assert all(rule in before.rules or rule.decision != "allow" for rule in after.rules)


@given(DOCUMENTS, DOCUMENTS)
def test_what_is_told_of_a_project_is_what_is_so(
    mine: dict[str, Any], theirs: dict[str, Any]
) -> None:
    """What is shown as in force is what the policy has; what is not, it has not."""
    with new_place() as place:
        place.write(user=written(mine, str(place.top)))
        if loaded(place) is None:
            return
        place.write(project=written(theirs, str(place.top)))
        profile = loaded(place)
        if profile is None:
            return
        shown = {one.key: one.value for one in profile.settings if not one.refused}
        policy = profile.policy
        assert shown["network", "access"] == policy.network
        assert shown["environment", "inherit"] == policy.environment.inherit
        for name in Limits.__slots__:
            assert shown["limits", name] == getattr(policy.limits, name)
        assert {key[2] for key in shown if key[:2] == ("environment", "set")} == {
            name for name, _ in policy.environment.set
        }
        assert {key[2] for key in shown if key[:2] == ("network", "unix_sockets")} == set(
            policy.unix_sockets
        )
        assert shown.get(("isolation", "accept")) == policy.accept
        assert shown.get(("isolation", "minimum")) == policy.require
        assert shown["mode",] == profile.mode
        assert shown["approval", "mode"] == profile.approval
        assert shown["approval", "unsandboxed"] == profile.unsandboxed
        assert {one for key, one in shown.items() if key[0] == "rules"} == set(profile.rules)
        for key, value in shown.items():
            if key[0] == "filesystem" and key[1] in ("/", ":workspace", "/srv"):
                path = str(place.project) if key[1] == ":workspace" else key[1]
                assert access(profile, path) == value, key
