"""What a session remembers and for what it answers; the user's file; `sandbox trust`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from profilekit import Place, new_place
from safetykit import context

import sandbox
from sandbox import InvalidArgument, InvalidProfile
from sandbox.command import Rule, Rules, assess_command_safety
from sandbox.session.approval import Answer, Choice
from sandbox.session.decide import Ground
from sandbox.session.keys import NO_SANDBOX, key_of
from sandbox.session.trust import Trust, Trusted, exact_of
from sandbox.session.trustfile import TrustFile

WHERE = context()
Command = str | Sequence[str]


def key(command: Command, where: Any = WHERE, **more: Any) -> Any:
    return key_of(command, where, **{"cwd": "/work", "policy": "p", **more})


def answered(choice: Choice, *prefix: str) -> Answer:
    return Answer(choice, "me", "because", prefix)


def found(trust: Trust, command: Command, where: Any = WHERE, **more: Any) -> Trusted | None:
    said = assess_command_safety(command, where)
    return trust.find(key(command, where, **more), said, where)


def with_prefix(*prefix: str, **more: Any) -> Trust:
    trust = Trust("/work")
    assert trust.add(key([*prefix, "x"], **more), answered(Choice.PREFIX, *prefix))
    return trust


# Exact.


def test_exactly_what_was_approved_is_found_however_it_is_written() -> None:
    trust = Trust("/work")
    assert found(trust, "make -j4") is None
    trust.add(key("make -j4"), answered(Choice.SESSION))
    for command in ("make -j4", "make  '-j4'", ["make", "-j4"], "bash -c 'make -j4'"):
        one = found(trust, command)
        assert one is not None and one.ground is Ground.TRUSTED_EXACT
        assert (one.who, one.why, one.lasts) == ("me", "because", False)
    for command in ("make", "make -j4 all", "make -j4; ls", "A=1 make -j4", "./make -j4"):
        assert found(trust, command) is None


def test_the_exact_approval_of_what_is_dangerous_answers_for_it() -> None:
    trust = Trust("/work")
    trust.add(key("rm -rf build"), answered(Choice.SESSION))
    assert found(trust, "rm -rf 'build'") is not None
    assert found(trust, "rm -rf build2") is None


@pytest.mark.parametrize(
    "other",
    [{"cwd": "/work/a"}, {"policy": "q"}, {"permissions": ("write /x",)},
     {"permissions": (NO_SANDBOX,)}, {"where": context(path=("/work/bin", "/opt/tools"))}],
)  # fmt: skip
def test_another_directory_policy_permission_or_program_is_not_approved(
    other: dict[str, Any],
) -> None:
    trust = Trust("/work")
    trust.add(key("ls -la"), answered(Choice.SESSION))
    trust.add(key("npm test"), answered(Choice.PREFIX, "npm", "test"))
    assert found(trust, "ls -la") is not None and found(trust, "npm test -v") is not None
    assert found(trust, "ls -la", **other) is None
    if "cwd" not in other:
        assert found(trust, "npm test -v", **other) is None


def test_an_approval_for_once_and_a_denial_are_not_remembered() -> None:
    trust = Trust("/work")
    for choice in (Choice.ONCE, Choice.DENY):
        assert trust.add(key("make"), answered(choice)) is None
    assert trust.entries() == () and found(trust, "make") is None


def test_trust_is_visible_revocable_and_ends() -> None:
    trust = Trust("/work")
    one = trust.add(key("make -j4"), answered(Choice.SESSION))
    other = trust.add(key("npm test x"), answered(Choice.PREFIX, "npm", "test"))
    assert one is not None and other is not None and trust.entries() == (one, other)
    assert (one.command, other.command) == ("make -j4", "npm test ...")
    assert trust.revoke(one.id) and not trust.revoke(one.id)
    assert found(trust, "make -j4") is None and found(trust, "npm test x") is not None
    trust.accept_weaker(["tmp"])
    trust.clear()
    assert trust.entries() == () and trust.accepted == frozenset()
    assert found(Trust("/work"), "npm test x") is None


def test_the_same_approval_has_the_same_id_whoever_gave_it() -> None:
    one, other = (
        exact_of(key("make"), Answer(Choice.SESSION, who)).id for who in ("me", "somebody")
    )
    assert one == other != exact_of(key("make", cwd="/"), answered(Choice.SESSION)).id


def test_parts_are_accepted_weaker_by_name() -> None:
    trust = Trust("/work")
    trust.accept_weaker(["tmp"])
    trust.accept_weaker(["names"])
    assert trust.accepted == {"tmp", "names"}
    with pytest.raises(InvalidArgument):
        trust.accept_weaker(["writes"])


# Prefixes.


@pytest.mark.parametrize(
    "command",
    ["npm test", "npm test -- -v", "'npm' test x", "bash -c 'npm test y'", "npm test 2>&1 | tail",
     "npm test && ls", "cd web && npm test", "cd /work/web; npm test x", "npm test; npm test x",
     "npm test | grep -v x | head -3", ["npm", "test"], "npm test >/dev/null"],
)  # fmt: skip
def test_a_prefix_answers_for_plain_commands_that_begin_so(command: Command) -> None:
    one = found(with_prefix("npm", "test"), command)
    assert one is not None and one.ground is Ground.TRUSTED_PREFIX


@pytest.mark.parametrize(
    "command",
    ["npm", "npm run test", "npm tests", "npm -g test", "./npm test", "/work/npm test",
     "npm test; make", "make; npm test", "npm test | sh", "npm test && rm -rf x", "npm test $x",
     "npm test `x`", "npm test > f", "npm test & ls", "(npm test)", "npm test <<E\nx\nE",
     "A=1 npm test", "env npm test", "timeout 5 npm test", "xargs npm test", "! npm test",
     "sudo npm test", "npm test ~/.ssh/id_rsa", "npm test\u200b", "npm test; $(x)", "npm test *",
     "if true; then npm test; fi", "cd .. && npm test", "cd / && npm test", "cd ~ && npm test",
     "cd && npm test", "cd - && npm test", "cd $x && npm test", "pushd web && npm test",
     "cd web/../.. && npm test", "cd /etc && cat shadow; npm test", "npm test; curl u",
     "bash -lc 'npm test'", "eval npm test", "npm test --x=$(y)", "ls", ""],
)  # fmt: skip
def test_a_prefix_answers_for_nothing_else(command: Command) -> None:
    assert found(with_prefix("npm", "test"), command) is None


def test_a_prefix_holds_in_its_workspace_or_else_in_its_directory() -> None:
    trust = with_prefix("npm", "test", cwd="/work/web")
    assert found(trust, "npm test") is not None
    assert found(trust, "npm test", cwd="/work/other/x") is not None
    assert (
        found(trust, "npm test", cwd="/") is None and found(trust, "npm test", cwd="/wor") is None
    )
    outside = with_prefix("npm", "test", cwd="/srv")
    assert found(outside, "npm test", cwd="/srv") is not None
    assert found(outside, "npm test", cwd="/srv/x") is None and found(outside, "npm test") is None
    assert found(outside, "cd /srv && npm test") is None
    assert found(outside, "cd x && npm test", cwd="/srv") is None


def test_a_prefix_never_answers_for_what_is_dangerous_or_wants_no_sandbox() -> None:
    trust = with_prefix("git", "push")
    assert found(trust, "git push origin main") is not None
    for command in ("git push --force", "git push origin +main", "git push; rm -rf x"):
        assert found(trust, command) is None
    rules = context(rules=Rules((Rule(("git", "push", "prod"), "ask", "x"),)))
    assert found(trust, "git push prod", rules) is None
    assert found(trust, "git push dev", rules) is not None


def test_what_is_no_prefix_is_not_remembered_as_one() -> None:
    trust = Trust("/work")
    for command, prefix in (
        ("bash -x y", ("bash",)), ("git push", ("git",)), ("npm test", ("npm", "run")),
        ("npm test", ()), ("npm test; ls", ("npm", "test")), ("python3 x", ("python3", "x")),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument):
            trust.add(key(command), answered(Choice.PREFIX, *prefix))
    assert trust.entries() == ()


# The user's file.


@pytest.fixture
def place() -> Iterator[Place]:
    with new_place() as made:
        yield made


def always(file: TrustFile, command: Command = "git push origin") -> Trusted:
    added = Trust("/work", file).add(key(command), answered(Choice.ALWAYS))
    assert added is not None
    return added


def test_what_lasts_is_there_for_the_next_session_until_it_is_revoked(place: Place) -> None:
    one = always(TrustFile())
    assert one.lasts and Path(TrustFile().path) == place.user / "trust.json"
    first, second = Trust("/work", TrustFile()), Trust("/work", TrustFile())
    again = found(first, "git push origin")
    assert again is not None and again.lasts and again.id == one.id and again.who == "me"
    assert found(second, "git push origin") is not None
    assert second.revoke(one.id)
    assert found(first, "git push origin") is None and first.entries() == ()


def test_what_lasts_survives_the_end_of_what_does_not(place: Place) -> None:
    trust = Trust("/work", TrustFile())
    trust.add(key("make -j4"), answered(Choice.SESSION))
    trust.add(key("git push x"), answered(Choice.ALWAYS))
    assert [one.lasts for one in trust.entries()] == [False, True]
    trust.clear()
    assert [one.lasts for one in trust.entries()] == [True]


def test_the_file_is_the_users_alone(place: Place) -> None:
    always(TrustFile())
    found = os.stat(place.user / "trust.json")
    assert found.st_mode & 0o777 == 0o600 and found.st_uid == os.getuid()
    assert {one.name for one in place.user.iterdir()} >= {"trust.json", "trust.json.lock"}
    assert not [one for one in place.user.iterdir() if len(one.name) > len("trust.json.lock")]


def test_without_a_file_nothing_is_trusted_and_none_is_made(place: Place) -> None:
    file = TrustFile()
    assert file.entries() == () and not file.remove("x") and file.clear() == 0
    assert not os.path.lexists(file.path)


def test_the_secret_is_made_once(place: Place) -> None:
    first = TrustFile().secret
    assert len(first) == 32 and TrustFile().secret == first
    always(TrustFile())
    assert TrustFile().secret == first and first != bytes(32)


@pytest.mark.parametrize(
    "command",
    ["bash x.sh", "python3 x.py", "env A=1 ls", "sudo ls", "git", "./x", "make", "A=1 npm test",
     "npm test $x", "npm test > f", "npm ci && python3 x"],
)  # fmt: skip
def test_what_must_not_last_is_not_written(place: Place, command: str) -> None:
    with pytest.raises(InvalidArgument):
        always(TrustFile(), command)
    with pytest.raises(InvalidArgument):
        Trust("/work").add(key("npm test"), answered(Choice.ALWAYS))
    assert not os.path.lexists(TrustFile().path)


def document(file: TrustFile) -> dict[str, Any]:
    return json.loads(Path(file.path).read_text())  # type: ignore[no-any-return]


BROKEN: list[tuple[str, Any, str]] = [
    ("empty", "", "truncated"),
    ("no JSON", "{", "truncated"),
    ("another document", "[]", "expected `object`"),
    ("not UTF-8", b"\xff", "invalid"),
    ("an unknown key", lambda d: d.update(more=1), "unknown field `more`"),
    ("an unknown key of an entry", lambda d: d["entries"][0].update(lasts=True), "`lasts`"),
    ("a key that is missing", lambda d: d["entries"][0].pop("place"), "`place`"),
    ("no list", lambda d: d.pop("entries"), "`entries`"),
    ("another schema", lambda d: d.update(schema="sandbox-trust/2"), "schema"),
    ("another kind", lambda d: d["entries"][0].update(kind="all"), "kind"),
    ("a number for words", lambda d: d["entries"][0].update(words=[1]), "words"),
    ("other words", lambda d: d["entries"][0].update(words=["make", "x"]), "do not fit its id"),
    ("another place", lambda d: d["entries"][0].update(place="/"), "do not fit its id"),
    ("a shell", lambda d: d["entries"][0].update(words=["bash", "-c"]), "a shell"),
    ("a short prefix", lambda d: d["entries"][0].update(kind="prefix", words=["git"]), "decides"),
    ("no program", lambda d: d["entries"][0].update(programs=[]), "not known"),
    ("a short secret", lambda d: d.update(secret="00"), "secret"),
    ("no secret", lambda d: d.update(secret="x"), "hex"),
    ("too long", " " * (1 << 20) + "{}", "more than"),
]


@pytest.mark.parametrize(("how", "change", "cause"), BROKEN, ids=[row[0] for row in BROKEN])
def test_a_broken_file_is_an_error_that_names_it_and_never_an_empty_list(
    place: Place, how: str, change: Any, cause: str
) -> None:
    file = TrustFile()
    always(file)
    if callable(change):
        said = document(file)
        change(said)
        change = json.dumps(said)
    path = Path(file.path)
    path.write_bytes(change.encode() if isinstance(change, str) else change)
    before = path.read_bytes()
    for use in (
        lambda: TrustFile().entries(),
        lambda: found(Trust("/work", TrustFile()), "ls"),
        lambda: always(TrustFile(), "git push other"),
        lambda: TrustFile().remove("x"),
        lambda: TrustFile().clear(),
        lambda: TrustFile().secret,
        file.entries,
    ):
        with pytest.raises(InvalidProfile) as caught:
            use()
        assert str(path) in str(caught.value) and cause in str(caught.value)
    assert path.read_bytes() == before


def test_a_file_that_others_could_have_written_is_refused(place: Place) -> None:
    file = TrustFile()
    always(file)
    path = Path(file.path)
    for mode in (0o620, 0o602, 0o640, 0o604):
        path.chmod(mode)
        with pytest.raises(InvalidProfile, match="chmod 600"):
            file.entries()
    path.chmod(0o600)
    assert len(file.entries()) == 1
    path.rename(place.user / "other.json")
    path.symlink_to(place.user / "other.json")
    with pytest.raises(InvalidProfile, match="symbolic link"):
        file.entries()
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(InvalidProfile, match="regular"):
        file.entries()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a file away")
def test_a_file_of_another_user_is_refused(place: Place) -> None:
    file = TrustFile()
    always(file)
    os.chown(file.path, 1, 1)
    with pytest.raises(InvalidProfile, match="uid 1"):
        file.entries()


def test_a_file_in_the_workspace_is_refused(place: Place) -> None:
    with pytest.raises(InvalidProfile, match="workspace"):
        TrustFile(str(place.project / "trust.json"), str(place.project))
    (place.project / "link").symlink_to(place.outside)
    with pytest.raises(InvalidProfile, match="workspace"):
        TrustFile(str(place.project / "link" / "trust.json"), str(place.project))
    TrustFile(workspace=str(place.project))


def test_a_file_that_cannot_be_replaced_stays_as_it_is(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sandbox import Unavailable

    file = TrustFile()
    always(file)
    before = Path(file.path).read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unavailable, match="No space"):
        always(file, "git push other")
    assert Path(file.path).read_bytes() == before and len(list(place.user.glob("trust*"))) == 2


def add_some(first: int) -> int:
    file = TrustFile()
    for at in range(first, first + 10):
        always(file, f"git push r{at}")
    return first


def test_several_processes_lose_nothing_of_each_other(place: Place) -> None:
    with ProcessPoolExecutor(3) as pool:
        list(pool.map(add_some, (0, 10, 20)))
    words = {one.words[-1] for one in TrustFile().entries()}
    assert words == {f"r{at}" for at in range(30)}


def test_adding_twice_keeps_one(place: Place) -> None:
    first, second = always(TrustFile()), always(TrustFile())
    assert first.id == second.id and len(TrustFile().entries()) == 1


# The command line.


class Cli:
    """`sandbox trust` in a project, with a user's directory and programs of its own."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sandbox", "trust", *words],
            cwd=self.place.project,
            env={**os.environ, "PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture
def cli(place: Place) -> Cli:
    return Cli(place)


def test_list_shows_commands_and_projects(cli: Cli, place: Place) -> None:
    done = cli("list")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Commands: 0\n\nProjects: 0\n"
    place.trust()
    added = cli("add", "--", "cat", "-n", "a b")
    assert (added.returncode, added.stderr) == (0, "")
    done = cli("list")
    assert f"  {added.stdout.strip()}  cat -n 'a b'  {place.project}" in done.stdout
    assert f"  {place.project}  {place.user}/sandbox.toml:3" in done.stdout
    said = json.loads(cli("list", "--json").stdout)
    assert said["schema"] == "sandbox-trust-list/1" and len(said["entries"]) == 1
    assert said["entries"][0]["words"] == ["cat", "-n", "a b"]
    assert said["projects"] == [
        {"path": str(place.project), "from": f"{place.user}/sandbox.toml:3"}
    ]
    assert "secret" not in json.dumps(said)


def test_what_is_added_is_what_a_session_finds(cli: Cli, place: Place) -> None:
    from sandbox.command import Context
    from sandbox.session.decide import not_accepted
    from sandbox.session.keys import digest_of

    assert cli("add", "--prefix", "--", "touch", "x").returncode == 0
    assert cli("add", "--", "cp", "a", "b").returncode == 0
    profile, file = place.load(), TrustFile()
    where = Context(path=("/usr/bin", "/bin"), writable=(str(place.project),))
    trust = Trust(str(place.project), file)
    digest = digest_of(profile.policy, file.secret)
    with sandbox.Sandbox(profile.policy, workspace=place.project) as box:
        weaker = not_accepted(profile.policy, box.enforcement)
    permissions = [f"weaker {one.part}" for one in weaker]  # as it is on this host
    for command, expected in (("cp 'a' b", True), ("touch x y; ls", True), ("cp a", False)):
        said = assess_command_safety(command, where)
        made = key_of(
            command, where, cwd=str(place.project), policy=digest, permissions=permissions
        )
        assert (trust.find(made, said, where) is not None) is expected
    place.write(user='[network]\naccess = "full"\n')
    assert digest_of(place.load().policy, file.secret) != digest


def test_remove_and_clear_take_back(cli: Cli) -> None:
    ids = [cli("add", "--", "cp", "a", name).stdout.strip() for name in "bcd"]
    assert len(set(ids)) == 3
    assert cli("remove", ids[0]).returncode == 0
    done = cli("remove", ids[0])
    assert (done.returncode, done.stdout) == (1, "") and ids[0] in done.stderr
    assert cli("clear").stdout == "2 taken back\n"
    assert cli("clear").stdout == "0 taken back\n"


@pytest.mark.parametrize(
    "words",
    [("bash", "x"), ("rm", "-rf", "x"), ("git",), ("./x",), ("no-such-program", "x"),
     ("env", "A=1", "ls")],
)  # fmt: skip
def test_add_refuses_what_must_not_last(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli("add", "--", *words)
    assert done.returncode == 125 and done.stdout == ""
    assert done.stderr.startswith("sandbox: words=") and done.stderr.count("\n") == 1


def test_a_broken_file_is_named_and_ends_every_command(cli: Cli, place: Place) -> None:
    path = place.user / "trust.json"
    path.write_text("{")
    path.chmod(0o600)
    for words in (("list",), ("add", "--", "cp", "a"), ("remove", "x"), ("clear",)):
        done = cli(*words)
        assert done.returncode == 125 and f"sandbox: {path}" in done.stderr
    assert path.read_text() == "{"
