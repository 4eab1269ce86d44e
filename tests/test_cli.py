"""The command line: options, exit statuses, streams, JSON, and what it shows."""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
from conftest import AsUser

from sandbox.cli.bpf import disassemble
from sandbox.cli.main import COMMANDS, guarded
from sandbox.cli.options import absolute
from sandbox.cli.tables import as_text
from sandbox.printed import printable

SANDBOX = [sys.executable, "-m", "sandbox"]
Done = subprocess.CompletedProcess[bytes]


class Cli:
    """Calls the command line in a workspace; `at_home` is an environment with a HOME of its own."""

    def __init__(self, workspace: Path, home: Path) -> None:
        self.workspace = workspace
        self.home = home

    def __call__(self, *words: str, **others: Any) -> Done:
        others.setdefault("cwd", self.workspace)
        if "input" not in others:
            others["stdin"] = subprocess.DEVNULL
        return subprocess.run([*SANDBOX, *words], capture_output=True, timeout=120, **others)

    def at_home(self, **variables: str) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.home), **variables}

    def json(self, *words: str, **others: Any) -> dict[str, Any]:
        """The JSON document that a call prints on stdout, whatever its exit status."""
        document = json.loads(self(*words, **others).stdout)
        assert isinstance(document, dict)
        return document


@pytest.fixture
def cli(workspace: Path, place: Path) -> Cli:
    home = place / "home"
    home.mkdir()
    return Cli(workspace, home)


def one_line(done: Done) -> str:
    """What stderr says: exactly one line of ours."""
    text = done.stderr.decode()
    assert text.startswith("sandbox: ") and text.count("\n") == 1, text
    return text.removeprefix("sandbox: ").rstrip("\n")


# Exit statuses


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 124", 124),
        ("exit 125", 125),
        ("exit 137", 137),
        ("kill -KILL $$", 137),
        ("kill -SEGV $$", 139),
        ("kill -INT $$", 130),
        ("exec 2> /dev/null; sh -c 'kill -KILL $$'; exit $?", 137),  # the shell says "Killed"
    ],
)
def test_the_exit_status_is_the_commands_own(cli: Cli, script: str, status: int) -> None:
    done = cli("run", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")


def test_124_says_that_the_time_was_up_and_all_of_it_is_gone(cli: Cli) -> None:
    done = cli("run", "--timeout", "0.5", "--", "sh", "-c", "echo $$; sleep 1000 & exec sleep 1000")
    assert done.returncode == 124
    assert not Path(f"/proc/{int(done.stdout)}").exists()


def test_127_for_a_program_that_is_not_there(cli: Cli) -> None:
    done = cli("run", "--", "no-such-program")
    assert done.returncode == 127
    assert "no-such-program" in one_line(done)


def test_126_for_a_file_that_cannot_be_executed(cli: Cli) -> None:
    (cli.workspace / "text").write_text("words\n")
    done = cli("run", "--", "./text")
    assert done.returncode == 126
    assert "chmod +x" in one_line(done)


BAD_USAGE = {
    "no command": ["run"],
    "only dashes": ["run", "--"],
    "unknown option": ["run", "--frobnicate", "--", "true"],
    "unknown command": ["frobnicate"],
    "two modes": ["run", "--read-only", "--full-access", "--", "true"],
    "no number": ["run", "--timeout", "soon", "--", "true"],
    "zero": ["run", "--timeout", "0", "--", "true"],
    "negative": ["run", "--timeout", "-1", "--", "true"],
    "not a number": ["run", "--timeout", "nan", "--", "true"],
    "infinite": ["run", "--timeout", "inf", "--", "true"],
    "unknown network": ["run", "--network", "some", "--", "true"],
    "missing path": ["run", "--write", "missing", "--", "true"],
    "empty path": ["run", "--read", "", "--", "true"],
    "unknown secret": ["run", "--allow-secret", "no-such-secret", "--", "true"],
    "hook variable": ["run", "--env", "LD_PRELOAD", "--", "true"],
    "nameless variable": ["run", "--env", "=x", "--", "true"],
    "our variable": ["run", "--env", "SANDBOX=no", "--", "true"],
    "empty program": ["run", "--", ""],
    "deny in the workspace": ["run", "--deny", ".", "--write", "..", "--", "true"],
    "namespaces": ["run", "--isolation", "namespaces", "--", "true"],
    "loopback": ["run", "--network", "loopback", "--", "true"],
    "bench of nothing": ["bench", "-n", "0"],
    "debug of what": ["debug", "selinux"],
    "json of what": ["doctor", "--yaml"],
}


@pytest.mark.parametrize("words", BAD_USAGE.values(), ids=BAD_USAGE)
def test_what_cannot_be_done_is_125_and_one_line(cli: Cli, words: list[str]) -> None:
    marker = cli.workspace / "ran"
    words = [f"--touch={marker}" if word == "true" else word for word in words]
    done = cli(*words)
    assert (done.returncode, done.stdout) == (125, b"")
    assert one_line(done)
    assert not marker.exists()


def test_a_workspace_that_is_home_is_refused_and_the_way_out_is_named(cli: Cli) -> None:
    done = cli("run", "--", "true", cwd=cli.home, env=cli.at_home())
    assert done.returncode == 125
    assert "--read-only" in one_line(done)
    free = cli("run", "--read-only", "--", "true", cwd=cli.home, env=cli.at_home())
    assert free.returncode == 0


def test_a_bug_of_ours_is_125_and_shows_where(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise RuntimeError("impossible")

    assert guarded(fail) == 125
    shown = capfd.readouterr().err
    assert "sandbox: this is a bug of sandbox: RuntimeError: impossible" in shown
    assert "Traceback" in shown


def test_an_error_of_click_keeps_its_hint() -> None:
    def fail() -> int:
        raise click.UsageError("wrong.")

    assert guarded(fail) == 125


# Words and options


def test_options_after_the_program_are_the_programs(cli: Cli) -> None:
    for words in (["--", "echo", "--json", "-v"], ["echo", "--json", "-v"]):
        assert cli("run", *words).stdout == b"--json -v\n"


def test_a_second_double_dash_is_the_programs(cli: Cli) -> None:
    assert cli("run", "--", "echo", "--", "x").stdout == b"-- x\n"


def test_words_arrive_as_bytes(cli: Cli) -> None:
    word = os.fsdecode(b"\xff\n \x1b'")
    assert cli("run", "--", "printf", "%s", word).stdout == b"\xff\n \x1b'"


def test_one_word_with_blanks_is_a_program_and_no_script(cli: Cli) -> None:
    assert cli("run", "--", "echo hi; touch x").returncode == 127


def test_only_the_working_directory_is_writable(cli: Cli, outside: Path) -> None:
    script = f"touch inside; touch {shlex.quote(str(outside))}/x"
    done = cli("run", "--", "sh", "-c", script)
    assert b"Permission denied" in done.stderr
    assert (cli.workspace / "inside").exists()
    assert not (outside / "x").exists()


def test_write_grants_a_relative_path(cli: Cli, outside: Path) -> None:
    assert cli("run", "--write", "../outside", "--", "touch", f"{outside}/x").returncode == 0
    assert (outside / "x").exists()


def test_read_only_writes_nowhere_but_tmpdir(cli: Cli) -> None:
    script = 'touch "$TMPDIR/x" && echo private; touch inside'
    done = cli("run", "--read-only", "--", "sh", "-c", script)
    assert done.stdout == b"private\n" and b"Permission denied" in done.stderr
    assert not (cli.workspace / "inside").exists()


def test_full_access_writes_anywhere(cli: Cli, outside: Path) -> None:
    assert cli("run", "--full-access", "--", "touch", f"{outside}/x").returncode == 0


def test_deny_hides_a_file(cli: Cli, outside: Path) -> None:
    show = ["--", "cat", f"{outside}/file"]
    assert cli("run", *show).stdout == b"outside\n"
    done = cli("run", "--deny", str(outside), *show)
    assert done.stdout == b"" and b"Permission denied" in done.stderr


def test_a_secret_is_readable_once_it_is_allowed_by_name(cli: Cli) -> None:
    (cli.home / ".netrc").write_text("secret\n")
    show = ["--", "cat", f"{cli.home}/.netrc"]
    env = cli.at_home()
    assert b"Permission denied" in cli("run", *show, env=env).stderr
    assert cli("run", "--allow-secret", "netrc", *show, env=env).stdout == b"secret\n"


def test_env_inherits_by_name_and_sets_by_value(cli: Cli) -> None:
    env = {**os.environ, "MY_TOKEN": "t", "OTHER": "o"}
    script = "echo $MY_TOKEN,$OTHER,$NEW"
    run = ["--", "sh", "-c", script]
    assert cli("run", *run, env=env).stdout == b",,\n"
    done = cli("run", "--env", "MY_TOKEN", "--env", "NEW=a=b", *run, env=env)
    assert done.stdout == b"t,,a=b\n"


def test_network_full_makes_inet_sockets_possible(cli: Cli) -> None:
    program = "import socket; socket.socket(socket.AF_INET)"
    run = ["--", sys.executable, "-c", program]
    assert b"PermissionError" in cli("run", *run).stderr
    assert cli("run", "--network", "full", *run).returncode == 0


def test_a_named_socket_without_namespaces_is_refused_and_said(cli: Cli) -> None:
    done = cli("run", "--isolation", "landlock", "--unix-socket", "/nothing/there", "--", "true")
    assert done.returncode != 0
    assert b"--unix-socket /nothing/there: nothing is there" in done.stderr
    assert b"the Unix socket /nothing/there" in done.stderr and b"namespaces" in done.stderr


def test_isolation_landlock_is_what_there_is(cli: Cli) -> None:
    assert cli.json("run", "--isolation", "landlock", "--json", "true")["error"] is None


def test_a_path_that_goes_upwards_is_resolved_where_it_is_typed(
    workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "link").symlink_to(outside)
    monkeypatch.chdir(workspace)
    assert absolute("x") == f"{workspace}/x"
    assert absolute("link/../x") == f"{outside.parent}/x"
    assert absolute("/a") == "/a"
    assert absolute("~/a") == "~/a"
    assert absolute("") == ""


# Streams


def test_streams_are_the_callers_own_byte_for_byte(cli: Cli) -> None:
    data = bytes(range(256)) * 4096
    assert cli("run", "--", "cat", input=data).stdout == data


def test_both_streams_stay_apart_and_nothing_is_added(cli: Cli) -> None:
    done = cli("run", "--", "sh", "-c", "printf out; printf err >&2")
    assert (done.stdout, done.stderr) == (b"out", b"err")


def test_a_reader_that_leaves_ends_the_command(cli: Cli) -> None:
    line = f"{shlex.join(SANDBOX)} run -- yes | head -c 10; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, cwd=cli.workspace, timeout=60)
    assert done.stdout == b"y\ny\ny\ny\ny\n141\n"


def test_closed_standard_streams_do_not_become_something_else(cli: Cli) -> None:
    script = "readlink /proc/self/fd/0 /proc/self/fd/2; readlink /proc/self/fd/1 > seen"
    line = f"exec 0<&- 1>&- 2>&-; exec {shlex.join(SANDBOX)} run -- sh -c {shlex.quote(script)}"
    done = subprocess.run(["bash", "-c", line], cwd=cli.workspace, timeout=60)
    assert done.returncode == 0


def test_json_to_a_closed_pipe_is_no_traceback(cli: Cli) -> None:
    line = f"{shlex.join(SANDBOX)} run --json -- head -c 300000 /dev/zero | true"
    done = subprocess.run(["bash", "-c", line], capture_output=True, cwd=cli.workspace, timeout=60)
    assert b"Traceback" not in done.stderr


def test_sigterm_ends_the_tree_and_then_us_by_the_same_signal(cli: Cli, place: Path) -> None:
    tmp = place / "tmp"
    tmp.mkdir()
    env = {**os.environ, "TMPDIR": str(tmp)}
    script = "trap '' TERM; echo $$; sleep 1000 & sleep 1000"
    started = subprocess.Popen(
        [*SANDBOX, "run", "--", "sh", "-c", script],
        stdout=subprocess.PIPE,
        cwd=cli.workspace,
        env=env,
    )
    assert started.stdout is not None
    with started, started.stdout as stream:
        pid = int(stream.readline())
        started.terminate()
        assert started.wait(30) == -signal.SIGTERM
    assert not Path(f"/proc/{pid}").exists()
    assert list(tmp.iterdir()) == []


def test_an_interrupt_ends_a_captured_command(cli: Cli) -> None:
    mark = cli.workspace / "up"
    words = ["run", "--json", "--", "sh", "-c", "touch up; sleep 1000"]
    started = subprocess.Popen(
        [*SANDBOX, *words],
        stdout=subprocess.PIPE,
        cwd=cli.workspace,
        # Tests that a shell has put into the background ignore it, and so would this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with started:
        deadline = time.monotonic() + 30
        while not mark.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        started.send_signal(signal.SIGINT)
        output, _ = started.communicate(timeout=30)
    assert (started.returncode, output) == (-signal.SIGINT, b"")


def test_no_temporary_directory_is_left_behind(cli: Cli, place: Path) -> None:
    tmp = place / "tmp"
    tmp.mkdir()
    env = {**os.environ, "TMPDIR": str(tmp)}
    for script in ("touch $TMPDIR/x", "kill -KILL $$"):
        cli("run", "--", "sh", "-c", script, env=env)
    assert list(tmp.iterdir()) == []


# JSON

RESULT_KEYS = {
    "schema": str,
    "error": type(None),
    "args": list,
    "exit_status": int,
    "returncode": int,
    "signal": (int, type(None)),
    "timed_out": bool,
    "memory_exceeded": bool,
    "outcome": str,
    "stdout": str,
    "stdout_truncated": int,
    "stderr": str,
    "stderr_truncated": int,
    "duration": float,
    "usage": dict,
    "swept": int,
    "enforcement": dict,
    "denials": list,
}


def test_json_has_all_of_a_result(cli: Cli) -> None:
    done = cli("run", "--json", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    document = json.loads(done.stdout)
    assert done.returncode == 3 and done.stderr == b""
    assert set(document) == set(RESULT_KEYS)
    for key, kind in RESULT_KEYS.items():
        assert isinstance(document[key], kind), key
    assert (document["stdout"], document["stderr"]) == ("out\n", "err\n")
    assert set(document["usage"]) == {"user", "system", "max_rss"}
    assert set(document["enforcement"]) == {"isolation", "full", "weaker"}
    fields = {"part", "cause", "mend", "everywhere"}
    assert all(set(part) == fields for part in document["enforcement"]["weaker"])


_TAKES = "import time; held = bytearray(200 << 20); time.sleep(30)"


def test_a_limit_of_memory_ends_the_command_and_is_told_from_a_signal(cli: Cli) -> None:
    words = ("--", "/usr/bin/python3", "-c", _TAKES)
    up = cli.json("run", "--json", "--memory", "100M", *words)
    assert (up["exit_status"], up["signal"], up["memory_exceeded"]) == (137, 9, True)
    assert "memory" in {part["part"] for part in up["enforcement"]["weaker"]}
    killed = cli.json("run", "--json", "--memory", "1g", "--", "sh", "-c", "kill -9 $$")
    assert (killed["exit_status"], killed["memory_exceeded"]) == (137, False)
    plain = cli("run", "--memory", "100M", *words)
    assert plain.returncode == 137 and b"more memory than its limit" in plain.stderr


@pytest.mark.parametrize("size", ["", "x", "1T", "-1", "1.5G", "1K"])
def test_a_size_that_is_none_is_refused(cli: Cli, size: str) -> None:
    done = cli("run", "--memory", size, "--", "true")
    assert done.returncode == 125 and b"memory" in done.stderr


def test_a_limit_of_processes_is_the_command_s(cli: Cli) -> None:
    done = cli("run", "--processes", "4000", "--", "bash", "-c", "ulimit -u")
    assert done.stdout == b"4000\n", done.stderr
    assert cli("run", "--processes", "0", "--", "true").returncode == 125


def test_json_tells_a_time_out_from_a_command_that_says_124(cli: Cli) -> None:
    said = cli.json("run", "--json", "--", "sh", "-c", "exit 124")
    up = cli.json("run", "--json", "--timeout", "0.3", "--", "sleep", "1000")
    assert (said["exit_status"], said["timed_out"]) == (124, False)
    assert (up["exit_status"], up["timed_out"]) == (124, True)


def test_json_tells_a_signal_from_a_command_that_says_137(cli: Cli) -> None:
    """CASE-124."""
    killed = cli.json("run", "--json", "--", "sh", "-c", "kill -9 $$")
    said = cli.json("run", "--json", "--", "sh", "-c", "sh -c 'kill -9 $$'; exit $?")
    assert (killed["exit_status"], killed["signal"], killed["returncode"]) == (137, 9, -9)
    assert (said["exit_status"], said["signal"], said["returncode"]) == (137, None, 137)


def test_json_tells_our_failure_from_the_commands(cli: Cli) -> None:
    """CASE-125."""
    said = cli.json("run", "--json", "--", "sh", "-c", "echo sandbox: set-up failed; exit 125")
    ours = cli.json("run", "--json", "--isolation", "namespaces", "--", "true")
    gone = cli.json("run", "--json", "--", "no-such-program")
    assert (said["exit_status"], said["error"]) == (125, None)
    assert (ours["exit_status"], ours["error"]["type"]) == (125, "Unenforceable")
    assert set(ours["error"]) == {"type", "message", "part", "cause", "mend"}
    assert (gone["exit_status"], gone["error"]["type"]) == (127, "CommandNotFound")
    assert gone["error"]["stage"] == "exec"
    assert gone["error"]["errno"] == errno.ENOENT
    assert "stdout" not in gone


def test_json_has_the_bytes_of_what_is_no_text(cli: Cli) -> None:
    document = cli.json("run", "--json", "--", "printf", r"a\377b")
    assert document["stdout"] == "a\N{REPLACEMENT CHARACTER}b"
    assert base64.b64decode(document["stdout_base64"]) == b"a\xffb"
    assert "stderr_base64" not in document


def test_json_hands_our_stdin_on(cli: Cli) -> None:
    assert cli.json("run", "--json", "--", "cat", input=b"given")["stdout"] == "given"


def test_weaker_parts_are_told_only_when_asked_for(cli: Cli) -> None:
    assert cli("run", "--", "true").stderr == b""
    lines = cli("run", "-v", "--", "true").stderr.decode().splitlines()
    assert lines[0] == "sandbox: isolation landlock"
    assert any(line.startswith("sandbox: not enforced: metadata: ") for line in lines)


DENIAL = {"kind", "what", "evidence", "certain", "rule", "grant", "change", "detail", "undo"}


def test_a_planted_protected_name_is_reported_in_one_line(cli: Cli) -> None:
    done = cli("run", "--", "sh", "-c", "echo evil > .envrc")
    assert done.returncode == 0
    assert ".envrc" in one_line(done)
    assert not (cli.workspace / ".envrc").exists()
    document = cli.json("run", "--json", "--", "sh", "-c", "echo evil > .envrc")
    assert [set(denial) for denial in document["denials"]] == [DENIAL]


def on_terminal(cli: Cli, *words: str, **others: Any) -> str:
    """What is said on a stderr that is a terminal."""
    master, slave = os.openpty()
    try:
        subprocess.run(
            [*SANDBOX, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=slave,
            cwd=cli.workspace,
            timeout=120,
            **others,
        )
    finally:
        os.close(slave)
    said = b""
    with contextlib.suppress(OSError), open(master, "rb", buffering=0) as file:
        while data := file.read(65536):
            said += data
    return said.decode()


def test_a_terminal_is_told_what_was_probably_refused_and_what_allows_it(cli: Cli) -> None:
    secret = cli.home / ".npmrc"
    secret.write_text("token\n")
    words = ("run", "--", "cat", str(secret))
    said = on_terminal(cli, *words, env=cli.at_home())
    assert f"sandbox: probably refused: read {secret} (secret: npm); a place of secrets: " in said
    assert f"; to allow: --allow-secret {secret}\r\n" in said
    assert cli(*words, env=cli.at_home()).stderr.decode().startswith("cat: ")
    assert b"sandbox: " not in cli(*words, env=cli.at_home()).stderr
    allowed = cli("run", "--allow-secret", str(secret), *words[1:], env=cli.at_home())
    assert (allowed.returncode, allowed.stdout) == (0, b"token\n")


def test_git_that_is_refused_to_commit_is_told_the_option(cli: Cli) -> None:
    subprocess.run(["git", "init", "-q"], cwd=cli.workspace, check=True)
    git = ("git", "-c", "user.name=a", "-c", "user.email=b", "commit", "--allow-empty", "-qm", "x")
    env = cli.at_home(SANDBOX_ISOLATION="auto")
    said = on_terminal(cli, "run", "--", *git, env=env)
    if "Read-only file system" not in said:
        pytest.skip("needs namespaces: there .git is read-only")
    option = f"--write {cli.workspace}/.git"
    assert f"(protected: {cli.workspace}/.git); to allow: {option}\r\n" in said
    assert cli("run", *option.split(), "--", *git, env=env).returncode == 0
    document = cli.json("run", "--json", "--", *git, env=env)
    assert document["denials"][0]["grant"]["option"] == option


def test_json_has_the_guesses_too_and_marks_them(cli: Cli, outside: Path) -> None:
    document = cli.json("run", "--json", "--", "touch", f"{outside}/new")
    (denial,) = document["denials"]
    assert set(denial) == DENIAL
    assert (denial["kind"], denial["evidence"], denial["certain"]) == ("write", "message", False)
    call = f".with_write({str(outside)!r})"
    assert denial["grant"] == {"call": call, "option": f"--write {outside}"}


def test_a_name_that_would_move_the_cursor_is_told_harmlessly(cli: Cli, outside: Path) -> None:
    code = f"open('{outside}/\x1b[2J', 'w')"
    said = on_terminal(cli, "run", "--json", "--", "/usr/bin/python3", "-c", code)
    assert "probably refused: write " in said
    assert "\x1b" not in said


def test_a_limit_that_ended_it_is_told_with_more_of_it(cli: Cli) -> None:
    done = cli("run", "--timeout", "0.2", "--", "sleep", "100")
    assert one_line(done).endswith("; to allow more: --timeout 0.4")


def test_a_denied_path_that_is_not_there_is_noted(cli: Cli) -> None:
    done = cli("run", "--read-only", "--deny", "no-such-file", "--", "true")
    assert f"--deny {cli.workspace}/no-such-file: nothing is there" in one_line(done)
    (cli.workspace / "file").touch()
    done = cli("run", "--read-only", "--deny", "file", "--", "true")
    assert (done.returncode, done.stderr) == (0, b"")


def test_nothing_unprintable_reaches_the_terminal() -> None:
    assert printable("a\nb\x1b[2J\u202ec\ud800") == r"a\nb\x1b[2J\u202ec\ud800"
    assert printable("ä b") == "ä b"


# debug


def test_debug_landlock_shows_rules_with_their_rights(cli: Cli) -> None:
    view = cli.json("debug", "landlock", "--json")
    assert view["schema"] == "sandbox-landlock/1"
    assert {"write_file", "truncate", "make_reg"} <= set(view["handled"])
    own = {r["access"]: r["rights"] for r in view["rules"] if r["path"] == str(cli.workspace)}
    assert {"write_file", "make_reg", "refer"} <= set(own["write"])
    assert "make_block" not in own["write"]
    assert {part["part"] for part in view["weaker"]} >= {"metadata", "protected"}


def test_debug_landlock_in_a_pipe_is_plain_text_with_whole_rows(cli: Cli) -> None:
    text = cli("debug", "landlock", "--deny", "/etc/hostname").stdout.decode()
    assert "\x1b" not in text
    rows = [line.split() for line in text.splitlines()]
    assert ["write", "directory", str(cli.workspace)] in rows
    assert not any(row[-1:] == ["/etc/hostname"] for row in rows)
    assert ["device", "file", "/dev/null"] in rows


@pytest.mark.parametrize("isolation", ["namespaces", "landlock"])
def test_an_isolation_that_is_asked_for_is_the_one_that_is_taken(
    isolation: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_ISOLATION", "auto")
    done = cli.json("run", "--json", "--isolation", isolation, "--", "true")
    assert done["enforcement"]["isolation"] == isolation


def test_what_is_named_in_dev_is_the_hosts_but_for_terminals(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_ISOLATION", "auto")
    shared = Path(f"/dev/shm/sandcore-test-{os.getpid()}")
    try:
        cli("run", "--", "touch", str(shared), check=True)
        assert not shared.exists()
        cli("run", "--write", "/dev/shm", "--", "touch", str(shared), check=True)
        assert shared.exists()
    finally:
        shared.unlink(missing_ok=True)
    words = [sys.executable, "-c", "import os; print(os.ttyname(os.openpty()[1]))"]
    done = cli("run", "--write", "/dev/ptmx", "--write", "/dev/pts", "--", *words, check=True)
    assert done.stdout == b"/dev/pts/0\n"


def test_debug_mounts_shows_the_file_tree_of_namespaces(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_ISOLATION", "auto")
    view = cli.json("debug", "mounts", "--deny", "/etc/hostname", "--json")
    kinds = {mount["path"]: mount["kind"] for mount in view["mounts"]}
    assert kinds["/etc/hostname"] == "mask" and kinds["/dev"] == "devices"
    assert kinds["/tmp"] == "scratch" and "write" in kinds.values()
    text = cli("debug", "mounts", "--deny", "/etc/hostname").stdout.decode()
    assert any(line.split() == ["hidden", "/etc/hostname"] for line in text.splitlines())
    assert b"Nothing is confined" in cli("debug", "mounts", "--full-access").stdout
    monkeypatch.setenv("SANDBOX_ISOLATION", "landlock")
    refused = cli("debug", "mounts")
    assert refused.returncode == 125 and b"namespaces were left out" in refused.stderr


def test_debug_landlock_of_no_confinement_says_so(cli: Cli) -> None:
    assert b"Nothing is confined" in cli("debug", "landlock", "--full-access").stdout


PROBE = (
    "import os, socket, sys\n"
    "def errno_of(call):\n"
    "    try:\n        call()\n"
    "    except OSError as error:\n        return error.errno\n"
    "    return 0\n"
    "print(errno_of(lambda: open(sys.argv[1], 'w')), errno_of(lambda: socket.socket()))"
)


@pytest.mark.parametrize(
    ("mechanism", "write", "socket"),
    [("landlock", errno.EACCES, 0), ("seccomp", 0, errno.EPERM)],
)
def test_debug_runs_a_command_under_one_mechanism_alone(
    cli: Cli, outside: Path, mechanism: str, write: int, socket: int
) -> None:
    """Each denies what the other lets through: the errnos tell them apart."""
    words = ["debug", mechanism, "--", sys.executable, "-c", PROBE, str(outside / "x")]
    done = cli(*words)
    assert done.stdout.split() == [b"%d" % write, b"%d" % socket], done.stderr


@pytest.mark.parametrize("mechanism", ["landlock", "seccomp"])
def test_debug_exits_as_its_command_does(cli: Cli, mechanism: str) -> None:
    assert cli("debug", mechanism, "--", "sh", "-c", "exit 7").returncode == 7
    assert cli("debug", mechanism, "--", "sh", "-c", "kill -9 $$").returncode == 137
    assert cli("debug", mechanism, "--", "no-such-program").returncode == 127
    assert cli("debug", mechanism, "--", "cat", input=b"x").stdout == b"x"


def test_debug_seccomp_lists_each_refused_call_with_its_reason(cli: Cli) -> None:
    view = cli.json("debug", "seccomp", "--json")
    calls = {call["name"]: call for call in view["calls"]}
    assert calls["unshare"]["action"] == "EPERM"
    assert calls["clone3"]["action"] == "ENOSYS"
    assert calls["ioctl"]["action"] == "rule" and "TIOCSTI" in calls["ioctl"]["rule"]
    assert calls["read"]["action"] == "allow"
    assert all(call["reason"] for call in view["calls"] if call["action"] != "allow")
    assert view["instructions"] == len(view["program"])


def test_debug_seccomp_knows_the_network(cli: Cli) -> None:
    def connect(network: str) -> str:
        view = cli.json("debug", "seccomp", "--network", network, "--json")
        return next(str(call["action"]) for call in view["calls"] if call["name"] == "connect")

    assert connect("none") != connect("full")


def test_debug_seccomp_disassembles_the_program(cli: Cli) -> None:
    lines = cli("debug", "seccomp", "--bpf").stdout.decode().splitlines()
    assert lines[0].split(maxsplit=1)[1] == "load arch"
    assert len(lines) == cli.json("debug", "seccomp", "--json")["instructions"]
    for end in ("ALLOW", "ERRNO EPERM", "ERRNO ENOSYS", "KILL_PROCESS"):
        assert any(line.endswith(f"return {end}") for line in lines)
    assert not any(" code " in line for line in lines)


def test_the_disassembler_knows_every_form_and_shows_what_it_does_not() -> None:
    program = [
        (0x20, 0, 0, 0),
        (0x20, 0, 0, 20),
        (0x20, 0, 0, 16),
        (0x54, 0, 0, 0xFF),
        (0x15, 1, 2, 7),
        (0x05, 0, 0, 3),
        (0x06, 0, 0, 0x00050001),
        (0x06, 0, 0, 0x7FFF0000),
        (0x99, 1, 2, 3),
    ]
    lines = [line.split(maxsplit=1)[1] for line in disassemble(program, errno.errorcode)]
    assert lines == [
        "load nr",
        "load args[0].high",
        "load args[0].low",
        "and 0xff",
        "if == 0x7 goto 6 else 7",
        "goto 9",
        "return ERRNO EPERM",
        "return ALLOW",
        "code 0x99 jt 1 jf 2 k 0x3",
    ]


def test_tables_for_pipes_keep_their_columns_in_line() -> None:
    rows = [("a", "long cell", "x"), ("bb", "c", "\x1b")]
    text = as_text([("Title", ("1", "2", "3"), rows), ("Empty", ("1",), [])])
    assert text == "Title\n  a   long cell  x\n  bb  c          \\x1b\n\nEmpty"


# doctor, bench, version, help


def test_doctor_says_whether_commands_can_be_confined(cli: Cli) -> None:
    done = cli("doctor", "--json")
    document = json.loads(done.stdout)
    assert document["confinable"] is (done.returncode == 0)
    assert done.returncode == cli("run", "--", "true").returncode


def test_doctor_runs_without_the_compiled_core(cli: Cli, place: Path) -> None:
    (place / "_sandcore.py").write_text("raise ImportError('not compiled')\n")
    path = os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path}
    done = cli("doctor", "--json", env=env)
    assert (done.returncode, json.loads(done.stdout)["confinable"]) == (1, False)
    assert b"isolation none" in cli("--version", env=env).stdout
    run = cli("run", "--", "true", env=env)
    assert run.returncode == 125 and "not compiled" in one_line(run)


def test_bench_compares_three_ways(cli: Cli) -> None:
    document = cli.json("bench", "--json", "-n", "5", "--", "true")
    assert (document["schema"], document["rounds"]) == ("sandbox-bench/1", 5)
    names = [case["name"] for case in document["cases"]]
    assert names == ["posix_spawn", "subprocess.run, unconfined", "sandbox.run, confined"]
    for case in document["cases"]:
        assert case["exit_status"] == 0
        assert case["seconds"] == sorted(case["seconds"])
    assert document["cases"][0]["ratios"][1] == 1.0


def test_bench_says_when_the_ways_end_differently(cli: Cli, outside: Path) -> None:
    done = cli("bench", "-n", "1", "--", "sh", "-c", f"echo > {outside}/x")
    assert done.returncode == 0
    assert b"end differently" in done.stderr


def test_bench_of_a_program_that_is_not_there_is_127(cli: Cli) -> None:
    assert cli("bench", "--", "no-such-program").returncode == 127


def test_bench_runs_in_home(cli: Cli) -> None:
    assert cli("bench", "-n", "1", cwd=cli.home, env=cli.at_home()).returncode == 0


def test_version_names_isolation_and_abi(cli: Cli) -> None:
    line = cli("--version").stdout.decode()
    assert line.startswith("sandbox ") and line.count("\n") == 1
    assert "isolation landlock, Landlock ABI " in line


@pytest.mark.parametrize("words", [[], *[[name] for name in COMMANDS]])
def test_help_is_help(cli: Cli, words: list[str]) -> None:
    done = cli(*words, "--help")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"Usage: sandbox")


def test_running_a_command_imports_no_tables_and_no_json() -> None:
    program = (
        "import sys; from sandbox.cli.main import main; main(['run', '--read-only', '--', 'true']);"
        "print(*{'rich', 'json', 'subprocess', 'asyncio', 'importlib.metadata'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], b"")


# An ordinary user

AS_COMMAND = "import sys; from sandbox.cli.main import main; sys.exit(main(sys.argv[1:]))"


def test_an_ordinary_user_runs_commands_too(as_user: AsUser, workspace: Path) -> None:
    as_user.give(workspace)
    script = "id -u; touch inside; touch /var/tmp/sandcore-outside"
    done = as_user(AS_COMMAND, "run", "--", "sh", "-c", script, cwd=workspace)
    assert done.stdout.split() == [str(os.getuid() or 1000)]
    assert any(word in done.stderr for word in ("Permission denied", "Read-only file system"))
    assert (workspace / "inside").exists()
    debug = as_user(AS_COMMAND, "debug", "seccomp", "--", "sh", "-c", "exit 7", cwd=workspace)
    assert debug.returncode == 7
