"""The table of secrets: each row holds, is reached by its name, and cannot be read by default."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.backends.rules import compile_rules
from sandbox.entries import Access
from sandbox.errors import InvalidArgument
from sandbox.paths import follow
from sandbox.presets import full_access, read_only, workspace_write
from sandbox.resolve import resolve
from sandbox.secrets import MACHINE, SECRETS, Secret, check_allowed, secrets_of

HERE = [row for row in SECRETS if row.system != "darwin"]
NAMED = (  # what the issue and everyone's expectation name
    ".ssh .gnupg .aws .azure .config/gcloud .config/gh .kube .docker .netrc .git-credentials .npmrc"
    " .config/git/credentials .yarnrc.yml .pypirc .config/pip/pip.conf .cargo/credentials"
    " .cargo/credentials.toml .gem/credentials .m2/settings.xml .gradle/gradle.properties"
    " .terraform.d .vault-token .password-store .local/share/keyrings .bash_history .zsh_history"
    " .python_history .node_repl_history .psql_history .mysql_history .sqlite_history .lesshst"
    " .viminfo .mozilla .config/google-chrome .config/chromium .config/BraveSoftware .codex .claude"
    " .claude.json .gemini .config/github-copilot .cursor .config/rclone .s3cfg .databrickscfg"
    " .config/op .config/hub .wgetrc .Xauthority .ICEauthority .thunderbird .pgpass .my.cnf"
)


def identify(row: Secret) -> str:
    return f"{row.name}-{row.path}"


def make(home: Path, row: Secret) -> Path:
    """Puts the place there, with a file that holds a secret; returns that file."""
    place = home / row.path
    file = place / "inner" if row.kind == "dir" else place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("secret")
    return file


def readable(resolved: object, file: Path) -> bool:
    """Whether the rules let a command read a file: a rule on it or above it."""
    rules = compile_rules(resolved, 7)  # type: ignore[arg-type]
    covered = {rule.path for rule in rules.rules}
    above = [os.fsencode(str(file)), *(os.fsencode(str(path)) for path in file.parents)]
    return not rules.handle_read or any(path in covered for path in above)


@pytest.fixture
def home(place: Path) -> Path:
    path = place / "home"
    path.mkdir()
    (path / "notes").write_text("no secret")
    return path


@pytest.mark.parametrize("path", NAMED.split())
def test_the_table_has_each_expected_place(path: str) -> None:
    assert path in {row.path for row in SECRETS}


def test_no_place_stands_twice_or_within_another() -> None:
    for system in ("linux", "darwin"):
        paths = [row.path for row in secrets_of(system)]
        assert len(paths) == len(set(paths))
        assert [(a, b) for a in paths for b in paths if b.startswith(a + "/")] == []


@pytest.mark.parametrize("row", SECRETS, ids=identify)
def test_each_row_is_well_formed(row: Secret) -> None:
    assert row.name == row.name.strip() and not set(row.name) & set("/*~ ")
    assert row.path == os.path.normpath(row.path) and not row.path.startswith(("/", ".."))
    assert row.path == row.path.strip()
    assert len(row.reason) > 10
    assert row.at("/home/u/") == f"/home/u/{row.path}"


@pytest.mark.parametrize("policy", [read_only, workspace_write])
@pytest.mark.parametrize("row", HERE, ids=identify)
def test_each_place_is_denied_and_can_be_allowed_by_its_name(
    row: Secret, policy: object, home: Path, workspace: Path
) -> None:
    file = make(home, row)
    denied = resolve(policy(), str(workspace), str(home), "")  # type: ignore[operator]
    assert denied.access(str(file)) is Access.DENY
    assert not readable(denied, file)
    assert readable(denied, home / "notes")
    reason = next(item.reason for item in denied.denied if item.path == str(home / row.path))
    assert reason == f"{row.name}: {row.reason}"
    allowing = policy().allow_secret(row.name)  # type: ignore[operator]
    allowed = resolve(allowing, str(workspace), str(home), "")
    assert allowed.access(str(file)) is Access.READ
    assert readable(allowed, file)


def test_a_place_that_appears_later_is_denied_already(home: Path) -> None:
    resolved = resolve(read_only(), None, str(home), "")
    assert resolved.access(f"{home}/.ssh/id_ed25519") is Access.DENY
    rules = compile_rules(resolved, 7)
    file = make(home, HERE[0])
    covered = {rule.path for rule in rules.rules}
    assert not covered & {os.fsencode(str(path)) for path in (file, *file.parents)}


def test_a_path_below_a_place_can_be_allowed_alone(home: Path) -> None:
    make(home, HERE[0])
    (home / ".ssh" / "known_hosts").write_text("hosts")
    policy = read_only().allow_secret(f"{home}/.ssh/known_hosts")
    resolved = resolve(policy, None, str(home), "")
    assert readable(resolved, home / ".ssh" / "known_hosts")
    assert not readable(resolved, home / ".ssh" / "inner")


def test_a_place_behind_a_link_is_denied_where_it_leads(home: Path, place: Path) -> None:
    (place / "keys").mkdir()
    (place / "keys" / "id").write_text("secret")
    (home / ".ssh").symlink_to(place / "keys")
    resolved = resolve(read_only(), None, str(home), "")
    assert not readable(resolved, place / "keys" / "id")
    assert str(home / ".ssh") in resolved.links
    allowed = resolve(read_only().allow_secret("ssh"), None, str(home), "")
    assert readable(allowed, place / "keys" / "id")


@pytest.mark.parametrize("policy", [read_only, workspace_write])
@pytest.mark.parametrize("row", MACHINE, ids=identify)
def test_each_place_of_the_machine_is_denied_and_can_be_allowed_by_its_name(
    row: Secret, policy: object, home: Path, workspace: Path
) -> None:
    real = follow(row.at("/"))[0]
    denied = resolve(policy(), str(workspace), str(home), "")  # type: ignore[operator]
    assert denied.access(f"{real}/inner") is Access.DENY
    assert not readable(denied, Path(real) / "inner")
    allowing = policy().allow_secret(row.name)  # type: ignore[operator]
    assert resolve(allowing, str(workspace), str(home), "").access(real) is Access.READ


def test_devices_are_closed_but_those_that_programs_take_for_granted(home: Path) -> None:
    rules = compile_rules(resolve(read_only(), None, str(home), ""), 7)
    inside = {rule.path: rule.access for rule in rules.rules if rule.path.startswith(b"/dev/")}
    assert inside.pop(b"/dev/null") == "device"
    assert set(inside) <= {b"/dev/" + name for name in b"zero full random urandom tty".split()}


def test_full_access_denies_no_place(home: Path) -> None:
    assert resolve(full_access(), None, str(home), "").denied == ()


@pytest.mark.parametrize("name", ["shh", "", "SSH", ".ssh", "ssh/"])
def test_a_name_that_no_place_has_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="no place of secrets"):
        check_allowed([name])


@pytest.mark.parametrize(
    ("name", "meant"), [("nmp", "npm"), ("gpg", "gnupg"), ("Docker", "docker")]
)
def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(name: str, meant: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        read_only().allow_secret(name)
    assert meant in raised.value.mend


def test_a_path_that_is_no_place_is_refused(home: Path) -> None:
    with pytest.raises(InvalidArgument, match="no place of secrets of this HOME"):
        resolve(read_only().allow_secret(f"{home}/notes"), None, str(home), "")
