"""The environment: what is inherited, what never is, and what a person can still say."""

from __future__ import annotations

import fnmatch
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.environ import (
    CORE,
    PATH_DEFAULT,
    Environment,
    Plan,
    block,
    markers,
)
from sandbox.errors import InvalidArgument

CALLER = {
    "PATH": "/opt/x:/usr/bin",
    "HOME": "/home/u",
    "USER": "u",
    "LOGNAME": "u",
    "SHELL": "/bin/zsh",
    "LANG": "de_DE.UTF-8",
    "LC_ALL": "C",
    "TZ": "UTC",
    "TERM": "xterm",
    "COLORTERM": "truecolor",
    "NO_COLOR": "1",
    "CI": "true",
    "PROJECT_MODE": "x",
}
HOOKS = (
    "LD_PRELOAD LD_AUDIT LD_LIBRARY_PATH DYLD_INSERT_LIBRARIES GLIBC_TUNABLES BASH_ENV ENV"
    " ZDOTDIR PROMPT_COMMAND PS4 IFS BASH_FUNC_ls%% SHELLOPTS PYTHONSTARTUP PYTHONPATH"
    " PYTHONHOME PYTHONINSPECT PYTHONBREAKPOINT NODE_OPTIONS NODE_PATH PERL5OPT PERL5LIB PERL5DB"
    " RUBYOPT RUBYLIB LUA_INIT LUA_INIT_5_4 JAVA_TOOL_OPTIONS _JAVA_OPTIONS CLASSPATH"
    " GIT_EXTERNAL_DIFF GIT_SSH GIT_SSH_COMMAND GIT_PAGER GIT_EDITOR GIT_ASKPASS GIT_EXEC_PATH"
    " GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS GIT_DIR GIT_INDEX_FILE PAGER EDITOR LESSOPEN"
    " SSH_ASKPASS OPENSSL_CONF RUSTC_WRAPPER TAR_OPTIONS TMPPREFIX"
)
JOBS = "MAKEFLAGS MFLAGS MAKELEVEL CARGO_MAKEFLAGS GNUMAKEFLAGS"
CLOSED = (
    "LISTEN_FDS LISTEN_PID LISTEN_FDNAMES NOTIFY_SOCKET SSH_AUTH_SOCK SSH_AGENT_PID"
    " GPG_AGENT_INFO DBUS_SESSION_BUS_ADDRESS DOCKER_HOST XAUTHORITY DISPLAY WAYLAND_DISPLAY"
    " TMUX STY NODE_CHANNEL_FD XDG_RUNTIME_DIR VSCODE_IPC_HOOK_CLI PWD OLDPWD"
)
SECRET = (
    "OPENAI_API_KEY AWS_SESSION_TOKEN AWS_SECRET_ACCESS_KEY GITHUB_TOKEN GH_PAT DB_PASSWORD"
    " PGPASSWD MY_CREDS GOOGLE_APPLICATION_CREDENTIALS DATABASE_URL SENTRY_DSN NPM_AUTH JWT"
    " SESSION_COOKIE SLACK_WEBHOOK apikey Secret_Thing MONGODB_URI REDIS_URL"
)
EVERY = Environment(inherit="all", include=("*",))
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
NAME = st.text("ABCP_T", min_size=1, max_size=5)


def build(
    environment: Environment, base: Mapping[str, str], marks: Mapping[str, str]
) -> dict[str, str]:
    return Plan(environment).build(base, marks)


def test_core_is_the_default_and_small() -> None:
    env = build(Environment(), CALLER, {})
    assert env == {name: value for name, value in CALLER.items() if name in CORE}
    assert "CI" not in env and "PATH" in env


def test_case_82_the_path_is_as_given() -> None:
    assert build(Environment(), CALLER, {})["PATH"] == "/opt/x:/usr/bin"


@pytest.mark.parametrize("inherit", ["none", "core", "all"])
def test_a_path_is_there_when_the_caller_has_none(inherit: Any) -> None:
    assert build(Environment(inherit=inherit), {}, {}) == {"PATH": PATH_DEFAULT}


def test_case_84_no_secret_is_inherited_by_default() -> None:
    secrets = dict.fromkeys([*SECRET.split(), "TOTALLY_INNOCENT", "SSH_AUTH_SOCK"], "s3cr3t")
    assert build(Environment(), CALLER | secrets, {}) == build(Environment(), CALLER, {})


@pytest.mark.parametrize("name", SECRET.split())
def test_what_looks_like_a_secret_is_inherited_only_by_exact_name(name: str) -> None:
    caller = CALLER | {name: "s3cr3t"}
    assert name not in build(EVERY, caller, {})
    assert build(Environment(allow=(name,)), caller, {})[name] == "s3cr3t"
    assert name not in build(Environment(inherit="all", allow=(name[:-1] + "*",)), caller, {})
    assert name not in build(Environment(allow=(name,), exclude=(name,)), caller, {})


@pytest.mark.parametrize("name", ["KEYBOARD_LAYOUT", "GIT_AUTHOR_NAME", "COMPASS", "PATTERN", "CI"])
def test_a_name_that_only_sounds_like_a_secret_is_inherited(name: str) -> None:
    assert build(Environment(inherit="all"), {name: "v"}, {})[name] == "v"


@pytest.mark.parametrize("name", f"{HOOKS} {JOBS} {CLOSED}".split())
def test_case_88_a_hook_a_job_server_or_a_closed_descriptor_is_never_inherited(name: str) -> None:
    assert name not in build(EVERY, CALLER | {name: "x"}, {})
    assert build(Environment(set=((name, "mine"),)), CALLER | {name: "x"}, {})[name] == "mine"


@pytest.mark.parametrize("field", ["include", "allow"])
def test_asking_to_inherit_a_hook_by_name_is_refused_and_says_what_to_do(field: str) -> None:
    with pytest.raises(InvalidArgument, match=r"LD_PRELOAD.*put it in set"):
        Environment(**{field: ("LD_PRELOAD",)})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"GITHUB_TOKEN.*put it in allow"):
        Environment(include=("GITHUB_TOKEN",))


def test_patterns_match_whole_names_in_any_case_and_exclude_wins() -> None:
    caller = {"PROJECT_A": "1", "project_b": "2", "MY_PROJECT_C": "3"}
    env = build(Environment("none", include=("Project_*",)), caller, {"X": "y"})
    assert env == {"PROJECT_A": "1", "project_b": "2", "X": "y", "PATH": PATH_DEFAULT}
    env = build(Environment("all", include=("PROJECT_A",), exclude=("*_a",)), caller, {})
    assert set(env) == {"project_b", "MY_PROJECT_C", "PATH"}


def test_where_only_is_said_nothing_else_is_inherited_but_values_are_set() -> None:
    caller = CALLER | {"PROJECT_TOKEN": "x"}
    only = Environment("all", only=("project_*", "PATH"), allow=("PROJECT_TOKEN", "CI"))
    env = build(only, caller, {"TMPDIR": "/t"})
    assert env == {
        "PATH": "/opt/x:/usr/bin",
        "PROJECT_MODE": "x",
        "PROJECT_TOKEN": "x",
        "TMPDIR": "/t",
    }
    assert build(Environment(only=("X",), set=(("A", "1"),)), CALLER, {}) == {
        "PATH": PATH_DEFAULT,
        "A": "1",
    }


def test_two_lists_of_only_have_to_match_both_and_either_when_widened() -> None:
    one, other = Environment("all", only=("P*",)), Environment("all", only=("*E", "HOME"))
    both = one.narrow(other).narrow(one)
    assert both.only == ("P*",) and both.within == (("*E", "HOME"),)
    assert set(build(both, CALLER, {})) == {"PROJECT_MODE", "PATH"}
    assert build(both, CALLER, {})["PATH"] == PATH_DEFAULT
    assert {"HOME", "PROJECT_MODE"} < set(build(one.widen(other), CALLER, {}))
    assert one.widen(Environment("all")).only == ()
    assert both.widen(both).only == both.only


def test_set_wins_over_the_caller_and_over_the_marks() -> None:
    env = Environment(set={"TERM": "dumb", "TMPDIR": "/t"})  # type: ignore[arg-type]
    assert build(env, CALLER, {"TMPDIR": "/private"}) == {
        **build(Environment(), CALLER, {}),
        "TERM": "dumb",
        "TMPDIR": "/t",
    }


def test_the_temporary_directory_of_the_caller_is_never_inherited() -> None:
    caller = {"TMPDIR": "/home/u/scratch", "TMP": "/a", "TEMP": "/b"}
    assert build(EVERY, caller, {}) == {"PATH": PATH_DEFAULT}
    env = build(EVERY, caller, markers("landlock", "none", "/private"))
    assert {env[name] for name in ("TMPDIR", "TMP", "TEMP")} == {"/private"}
    assert env["TMPPREFIX"] == "/private/zsh"
    assert env["XDG_CACHE_HOME"] == "/private/cache"


def test_a_confined_command_is_marked_and_cannot_be_marked_otherwise() -> None:
    caller = {"SANDBOX": "seatbelt", "SANDBOX_NETWORK_DISABLED": "1"}
    assert "SANDBOX" not in build(EVERY, caller, markers("none", "full", ""))
    env = build(EVERY, caller, markers("landlock", "full", ""))
    assert env["SANDBOX"] == "landlock" and "SANDBOX_NETWORK_DISABLED" not in env
    assert markers("landlock", "none", "")["SANDBOX_NETWORK_DISABLED"] == "1"
    with pytest.raises(InvalidArgument, match="marks a confined command"):
        Environment(set=(("SANDBOX", "none"),))


def test_values_for_one_command_win_over_all() -> None:
    plan = Plan(Environment(set=(("A", "policy"),)))
    assert plan.build({}, {"TMPDIR": "/t"}, {"A": "call", "TMPDIR": "/u"}) == {
        "PATH": PATH_DEFAULT,
        "A": "call",
        "TMPDIR": "/u",
    }
    assert plan.build({}, {})["A"] == "policy"


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("", "x", "env=''"),
        ("A=B", "x", "'A=B'"),
        ("A\0", "x", "NUL"),
        ("A", "x\0y", "env='A'.*NUL"),
        ("A", "\ud800", "env='A'.*surrogate"),
        ("\ud800", "x", "surrogate"),
        ("A", 7, "env='A'.*int"),
        ("A", None, "env='A'.*NoneType"),
        (7, "x", "env=7"),
        ("SANDBOX", "x", "'SANDBOX'"),
    ],
)
def test_a_bad_name_or_value_is_refused_and_named(name: Any, value: Any, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        Environment(set=((name, value),))
    with pytest.raises(InvalidArgument, match=named):
        Plan(Environment()).build({}, {}, {name: value})


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("inherit", "most", "'most'"),
        ("include", "CI", "must be a list"),
        ("allow", "X", "list"),
        ("only", "X", "list"),
    ],
)
def test_a_part_that_means_nothing_is_refused(field: str, value: Any, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        Environment(**{field: value})


def test_os_environ_is_read_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(Environment("all"))
    for value in ("one", "zwei\udcff", "ö"):
        monkeypatch.setenv("SOME_VALUE", value)
        assert plan.build(os.environ, {}) == plan.build(dict(os.environ), {})
        assert plan.build(os.environ, {})["SOME_VALUE"] == value
    monkeypatch.delenv("SOME_VALUE")
    assert "SOME_VALUE" not in plan.build(os.environ, {})


@given(st.dictionaries(NAME, TEXT))
def test_a_plan_that_remembers_says_the_same_as_a_new_one(caller: dict[str, str]) -> None:
    environment = Environment("all", exclude=("A*",), include=("AB*",), allow=("TOKEN",))
    plan = Plan(environment)
    assert plan.build(caller, {}) == plan.build(caller, {}) == build(environment, caller, {})


def test_a_plan_does_not_grow_with_every_name_it_has_seen() -> None:
    plan = Plan(Environment("all"))
    for number in range(10_000):
        plan.build({f"N{number}": "x"}, {})
    assert len(plan._verdicts) <= 4096
    assert plan.build({"N1": "x"}, {})["N1"] == "x"


@given(st.dictionaries(NAME, TEXT))
def test_the_block_is_what_a_child_reads(env: dict[str, str]) -> None:
    items = block(env).split(b"\0")
    assert items.pop() == b""
    assert dict(os.fsdecode(item).split("=", 1) for item in items) == env


def test_the_block_keeps_bytes_that_are_no_text() -> None:
    assert block({"A": os.fsdecode(b"\xff\xfe")}) == b"A=\xff\xfe\0"
    assert block({}) == b""
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(ascii(os.environ['A']))"],
        env=build(Environment(set=(("A", "\udcff"),)), os.environ, {}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ascii("\udcff")


INHERIT = st.sampled_from(["none", "core", "all"])
PATTERN = st.lists(st.sampled_from(["CI", "P*", "PATH", "?I", "*"]), max_size=2).map(tuple)
ENVIRONMENTS = st.builds(
    Environment,
    inherit=INHERIT,
    include=PATTERN,
    exclude=PATTERN,
    allow=st.lists(st.sampled_from(["MY_TOKEN", "CI"]), max_size=2).map(tuple),
    only=PATTERN,
)


@given(ENVIRONMENTS, ENVIRONMENTS)
def test_a_narrowed_environment_inherits_nothing_that_either_does_not(
    one: Environment, other: Environment
) -> None:
    caller = CALLER | {"MY_TOKEN": "x"}
    both = set(build(one.narrow(other), caller, {}))
    assert both <= set(build(one, caller, {})) & set(build(other, caller, {}))


@given(ENVIRONMENTS, ENVIRONMENTS)
def test_a_widened_environment_keeps_the_excludes_of_the_first(
    one: Environment, other: Environment
) -> None:
    wide, mine, theirs = Plan(one.widen(other)), Plan(one), Plan(other)
    for name in [*CALLER, "MY_TOKEN"]:
        if any(fnmatch.fnmatch(name.upper(), pattern.upper()) for pattern in one.exclude):
            assert not wide.inherits(name)
        else:
            assert wide.inherits(name) or not (mine.inherits(name) or theirs.inherits(name))


def test_narrowing_keeps_what_either_sets() -> None:
    one, other = Environment(set=(("A", "1"),)), Environment(set=(("A", "2"), ("B", "3")))
    assert dict(one.narrow(other).set) == {"A": "1", "B": "3"}
    assert dict(one.widen(other).set) == {"A": "1", "B": "3"}


def test_an_environment_is_a_value() -> None:
    one = Environment(set={"B": "2", "A": "1"})  # type: ignore[arg-type]
    assert one == Environment(set=(("A", "1"), ("B", "2")))
    assert hash(one) == hash(pickle.loads(pickle.dumps(one)))


def test_a_run_costs_microseconds_for_a_caller_with_sixty_variables() -> None:
    """The aim is 10; the bound leaves room for a machine that is busy with other things."""
    caller = {f"VARIABLE_{number}": "value" * 5 for number in range(47)} | CALLER
    plan = Plan(Environment())
    marks = markers("landlock", "none", "/tmp/x")
    best = min(_timed(lambda: plan.build(caller, marks)) for _ in range(50))
    assert best < 60e-6


def _timed(call: Any) -> float:
    start = time.perf_counter()
    for _ in range(20):
        call()
    return (time.perf_counter() - start) / 20


def test_a_packed_environment_follows_this_process_and_the_seat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = Plan(Environment(include=("PROJECT_*",)))
    first = plan.packed("landlock", "none", "/t/1")
    assert plan.packed("landlock", "none", "/t/1") is first
    assert b"TMPDIR=/t/2\0" in plan.packed("landlock", "none", "/t/2").block
    assert b"EXTRA=1\0" in plan.packed("landlock", "none", "/t/1", {"EXTRA": "1"}).block
    assert b"EXTRA" not in plan.packed("landlock", "none", "/t/1").block
    monkeypatch.setenv("PROJECT_X", "new")
    changed = plan.packed("landlock", "none", "/t/1")
    assert b"PROJECT_X=new\0" in changed.block and changed.variables == first.variables + 1
    monkeypatch.setenv("PATH", "/only")
    assert plan.packed("landlock", "none", "/t/1").path == "/only"
