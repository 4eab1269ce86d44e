"""`sandbox policy`, and `sandbox run` under profiles: what is shown is what is enforced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import profile_schema
import pytest
from profilekit import Place, new_place

import sandbox
from sandbox import Unenforceable, load_profile
from sandbox.presets import workspace_write

Done = subprocess.CompletedProcess[str]
ISOLATIONS = ["landlock", "auto"]


class Cli:
    """Calls the command line in a project, with a HOME of its own."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.home = place.top / "home"
        self.home.mkdir()

    def __call__(self, *words: str, isolation: str = "landlock", **variables: str) -> Done:
        env = {**os.environ, "HOME": str(self.home), "SANDBOX_ISOLATION": isolation, **variables}
        return subprocess.run(
            [sys.executable, "-m", "sandbox", *words],
            cwd=self.place.project,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def json(self, *words: str) -> dict[str, Any]:
        done = self(*words, "--json")
        assert done.stderr == ""
        document = json.loads(done.stdout)
        assert isinstance(document, dict)
        return document


@pytest.fixture
def place() -> Iterator[Place]:
    with new_place() as made:
        yield made


@pytest.fixture
def cli(place: Place) -> Cli:
    return Cli(place)


def one_line(done: Done) -> str:
    assert done.stderr.startswith("sandbox: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("sandbox: ").rstrip("\n")


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.startswith("  ")]


# show


def test_show_says_where_each_part_comes_from(cli: Cli, place: Place) -> None:
    place.write(
        user="[limits]\ncpu = 5\n", project='[network]\naccess = "full"\n[limits]\nwall = 3\n'
    )
    done = cli("policy", "show", "--write", "/srv/../srv", "--env", "A=secret", "--env", "B")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Mode auto, in {place.project}\n")
    shown = rows(done.stdout)
    assert ["limits.cpu", "5", "user", f"{place.user}/sandbox.toml:2"] in shown
    assert ["limits.wall", "3", "project", f"{place.project}/sandbox.toml:4"] in shown
    assert ["limits.open_files", "4096", "built-in"] in shown
    assert ['filesystem."/srv"', "write", "command", "line"] in shown
    assert ["environment.allow", "B", "command", "line"] in shown
    assert "secret" not in done.stdout and "environment.set.A" in done.stdout
    assert ["network.access", "none", "built-in"] in shown
    inner = done.stdout.partition("Not in force")[2]
    assert "network.access  full  project" in inner and "is not trusted" in inner
    line, _, file = done.stdout.splitlines()[-1].partition("the project: ")[2].partition(" below ")
    assert file == f"[trust] in {place.user}/sandbox.toml"
    place.write(user=f"[trust]\n{line}\n")
    assert cli.json("policy", "show")["policy"]["network"] == "full"


def test_show_as_json_has_the_policy_that_is_enforced(cli: Cli, place: Place) -> None:
    place.write(user='[environment.set]\nKEY = "value"\n', project='mode = "read-only"\n')
    document = cli.json("policy", "show", "--network", "full")
    assert document["schema"] == "sandbox-policy/1"
    assert (document["mode"], document["trusted"]) == ("read-only", False)
    policy = document["policy"]
    assert len(policy["entries"]) == 2 and policy["network"] == "full"
    assert policy["environment"]["set"] == ["KEY"] and "value" not in json.dumps(policy)
    assert [one["layer"] for one in document["files"]] == ["user", "project"]
    (network,) = [one for one in document["settings"] if one["key"] == "network.access"]
    assert (network["value"], network["layer"], network["file"]) == ("full", "command line", None)
    assert cli.json("policy", "show", "--full-access", "--profile", "auto")["mode"] == "read-only"


def test_show_needs_no_file(cli: Cli) -> None:
    assert cli.json("policy", "show", "--full-access")["mode"] == "full-access"
    assert cli.json("policy", "show", "--profile", "read-only")["files"] == []


# check, diff, schema


def test_check_names_what_is_wrong_and_says_when_all_is_right(cli: Cli, place: Place) -> None:
    file = place.project / "mine.toml"
    file.write_text('[network]\n\nacess = "none"\n')
    done = cli("policy", "check", "mine.toml")
    assert (done.returncode, done.stdout) == (125, "")
    assert "mine.toml:3: network.acess: there is no such key" in one_line(done)
    file.write_text('extends = "./sandbox.toml"\n')
    assert "sandbox.toml" in one_line(cli("policy", "check", "mine.toml"))
    place.write(project="")
    done = cli("policy", "check", "mine.toml")
    assert (done.returncode, done.stdout, done.stderr) == (0, "mine.toml: a profile\n", "")


def test_diff_says_which_of_two_allows_more(cli: Cli, place: Place) -> None:
    place.write(
        one='[filesystem]\n"/a" = "read"\n"/b" = "deny"\n[limits]\ncpu = 5\n[environment]\n'
        'exclude = ["X"]\n[approval]\nmode = "never"\n',
        other='[filesystem]\n"/b" = "write"\n[limits]\ncpu = 4\n[approval]\nmode = "untrusted"\n',
    )
    done = cli("policy", "diff", "one", "other")
    assert done.returncode == 1
    assert rows(done.stdout) == [
        ["limits.cpu", "5", "4", "narrower"],
        ["approval.mode", "never", "untrusted", "other"],
        ['filesystem."/b"', "deny", "write", "wider"],
        ["environment.exclude", "X", "-", "wider"],
    ]
    back = cli.json("policy", "diff", "other", "one")["differences"]
    verdicts = {one["key"]: one["verdict"] for one in back}
    assert verdicts == {
        "limits.cpu": "wider",
        "approval.mode": "other",
        'filesystem."/b"': "narrower",
        "environment.exclude": "narrower",
    }
    same = cli("policy", "diff", "one", "one")
    assert (same.returncode, same.stdout) == (0, "")


def test_diff_of_modes_shows_what_full_access_opens(cli: Cli) -> None:
    found = cli.json("policy", "diff", "auto", "full-access")["differences"]
    assert {one["verdict"] for one in found} == {"wider"}
    assert {"mode", "network.access", "allow_secrets"} <= {one["key"] for one in found}


def test_schema_prints_the_one_that_is_published(cli: Cli) -> None:
    assert cli("policy", "schema").stdout == profile_schema.FILE.read_text()


# run


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_run_is_confined_by_the_profile_that_is_named(
    cli: Cli, place: Place, isolation: str
) -> None:
    place.write(strict='mode = "read-only"\n[environment.set]\nFROM = "profile"\n')
    script = "echo $FROM; touch x"
    done = cli("run", "--profile", "strict", "--", "sh", "-c", script, isolation=isolation)
    assert done.stdout == "profile\n" and done.returncode != 0
    assert not (place.project / "x").exists()
    done = cli("run", "--", "sh", "-c", script, isolation=isolation)
    assert done.stdout == "\n" and (place.project / "x").exists()


def test_a_variable_that_is_named_is_passed_on_also_where_a_profile_says_only(
    cli: Cli, place: Place
) -> None:
    place.write(user='[environment]\nonly = ["PATH"]\n', project='[environment]\nonly = ["P*"]\n')
    words = ["--", "sh", "-c", "echo $MINE-$HOME-"]
    assert cli("run", *words, MINE="x").stdout == "--\n"
    assert cli("run", "--env", "MINE", *words, MINE="x").stdout == "x--\n"


def test_a_path_that_is_granted_and_not_there_is_named_with_its_line(
    cli: Cli, place: Place
) -> None:
    missing = place.top / "missing"
    place.write(user=f'[filesystem]\n"/srv" = "deny"\n"{missing}" = "write"\n')
    done = cli("run", "--", "true")
    assert done.returncode == 125
    assert f"{place.user}/sandbox.toml:3: filesystem." in one_line(done)
    assert cli("policy", "check", f"{place.user}/sandbox.toml").returncode == 0
    missing.mkdir()
    assert cli("run", "--", "true").returncode == 0


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_run_obeys_the_projects_file_and_options_come_on_top(
    cli: Cli, place: Place, isolation: str
) -> None:
    place.write(project='mode = "read-only"\n')
    words = ["--", "touch", "x"]
    assert cli("run", *words, isolation=isolation).returncode != 0
    assert cli("run", "--write", ".", *words, isolation=isolation).returncode == 0
    place.write(project="mode =\n")
    done = cli("run", *words, isolation=isolation)
    assert done.returncode == 125 and "sandbox.toml:1" in one_line(done)


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("there", [True, False])
def test_no_command_changes_or_makes_the_profile_of_the_next(
    cli: Cli, place: Place, isolation: str, there: bool
) -> None:
    place.write(project="[limits]\nopen_files = 64\n" if there else None)
    place.trust()
    text = "printf '[network]\\naccess = \"full\"\\n' > sandbox.toml"
    cli("run", "--", "sh", "-c", text, isolation=isolation)
    left = place.project / "sandbox.toml"
    assert left.exists() is there
    assert not there or left.read_text() == "[limits]\nopen_files = 64\n"
    assert cli.json("policy", "show")["policy"]["network"] == "none"


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_an_option_opens_no_project_that_is_trusted(cli: Cli, place: Place, isolation: str) -> None:
    mine = place.outside / "mine"
    mine.mkdir()
    place.write(user=f'[trust]\nprojects = ["{mine}"]\n')
    text = f"touch {mine}/sandbox.toml {mine}/allowed"
    cli("run", "--write", str(place.outside), "--", "sh", "-c", text, isolation=isolation)
    assert (mine / "allowed").exists() and not (mine / "sandbox.toml").exists()
    done = cli("run", "--write", f"{mine}/sandbox.toml", "--", "true", isolation=isolation)
    assert done.returncode == 125


def test_a_part_that_is_not_accepted_weaker_stops_the_command(place: Place) -> None:
    place.write(some='[isolation]\naccept = ["names"]\n', all="")
    marker = place.project / "ran"
    for policy in (place.load("some").policy, workspace_write(place.project).with_accept(())):
        with pytest.raises(Unenforceable) as caught:
            sandbox.run(["touch", str(marker)], policy, cwd=place.project)
        assert "accept" in str(caught.value) and not marker.exists()
    result = sandbox.run(["touch", str(marker)], place.load("all").policy, cwd=place.project)
    assert marker.exists()
    weaker = tuple(part.part for part in result.enforcement.weaker)
    accepting = place.load("all").policy.with_accept(weaker)
    assert sandbox.run(["true"], accepting, cwd=place.project).ok


def test_a_profile_says_for_which_workspace_it_is(place: Place, monkeypatch: Any) -> None:
    monkeypatch.chdir(place.project)
    here = load_profile()
    monkeypatch.chdir(place.outside)
    assert here.workspace == str(place.project)
    result = sandbox.run(["touch", "made"], here.policy, cwd=place.project)
    assert result.ok and (place.project / "made").exists()
    assert not sandbox.run(["touch", "made"], here.policy, cwd=place.outside).ok


def test_a_relative_name_that_is_a_path_is_a_file(place: Place, monkeypatch: Any) -> None:
    monkeypatch.chdir(place.outside)
    Path("strict").write_text('mode = "read-only"\n')
    assert load_profile(Path("strict"), workspace=place.project).mode == "read-only"
