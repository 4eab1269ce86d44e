"""`sandbox exec` and `sandbox shell`, and what `sandbox log` and `sandbox trust` say of them."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from logkit import documents
from test_terminal import Terminal

from sandbox import workspace_write
from sandbox.session import Session, TerminalApprover, process_exec_tool_call

SANDBOX = [sys.executable, "-m", "sandbox"]
Done = subprocess.CompletedProcess[bytes]
DANGEROUS = "rm -rf build"  # asked about, whatever is enforced


class Cli:
    """Calls the command line in a workspace, with a HOME, and so a log, of its own."""

    def __init__(self, workspace: Path, home: Path) -> None:
        self.workspace, self.home = workspace, home
        kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        self.env = {**kept, "HOME": str(home), "SANDBOX_ISOLATION": "auto"}
        self.log = home / ".local/state/sandbox/log"
        self.config = home / ".config/sandbox"

    def __call__(self, *words: str, **others: Any) -> Done:
        others = {"cwd": self.workspace, "env": self.env, **others}
        if "input" not in others:
            others.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run([*SANDBOX, *words], capture_output=True, timeout=60, **others)

    def exec(self, *words: str, **others: Any) -> Done:
        return self("exec", *words, **others)

    def json(self, *words: str, **others: Any) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self("exec", "--json", *words, **others).stdout)
        return document

    def records(self, event: str = "") -> list[dict[str, Any]]:
        """What is in the user's log."""
        return [one for one in documents(self.log) if event in ("", one["event"])]

    def profile(self, text: str, name: str = "sandbox.toml") -> None:
        """Writes the user's own profile."""
        path = self.config / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        path.write_text(text)

    def project(self, text: str) -> None:
        """Writes the project's."""
        (self.workspace / "sandbox.toml").write_text(text)


@pytest.fixture
def cli(workspace: Path, place: Path) -> Cli:
    home = place / "home"
    home.mkdir()
    return Cli(workspace, home)


class Open:
    """Opens terminals in the workspace."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli
        self.opened: list[Terminal] = []

    def __call__(self, *words: str) -> Terminal:
        assigned = [f"{name}={value}" for name, value in self._cli.env.items()]
        argv = ["env", "-i", *assigned, "COLUMNS=100", "TERM=dumb", *SANDBOX, *words]
        self.opened.append(Terminal(argv, self._cli.workspace))
        return self.opened[-1]


@pytest.fixture
def terminal(cli: Cli) -> Iterator[Open]:
    found = Open(cli)
    yield found
    for one in found.opened:
        one.close()


def said(done: Done) -> str:
    """What stderr says: exactly one line of ours."""
    text = done.stderr.decode()
    assert text.startswith("sandbox: ") and text.count("\n") == 1, text
    return text.removeprefix("sandbox: ").rstrip("\n")


# Exec: what is run, and what it exits with


@pytest.mark.parametrize(
    ("words", "status", "output"),
    [
        (["--", "echo", "a  b"], 0, "a  b"),
        (["echo", "--json"], 0, "--json"),
        (["-c", "echo $((40 + 2))"], 0, "42"),
        (["-c", "exit 7"], 7, "none"),
        (["-c", "kill -9 $$"], 137, "none"),
        (["--timeout", "0.2", "-c", "sleep 60"], 124, "none"),
        (["--", "/none"], 127, ""),
        (["--", "/etc/passwd"], 126, ""),
        (["--no-ask", "-c", DANGEROUS], 126, ""),
        (["--cwd", "/", "--", "pwd"], 0, "/"),
        (["--cwd", "sub", "-c", "pwd; touch new"], 0, "/sub"),
        (["--env", "A=b", "-c", "echo $A"], 0, "b"),
    ],
    ids=str,
)
def test_a_call_exits_as_its_command_and_prints_what_a_model_is_told(
    cli: Cli, words: list[str], status: int, output: str
) -> None:
    (cli.workspace / "sub").mkdir()
    done = cli.exec(*words)
    assert (done.returncode, done.stderr) == (status, b"")
    text = done.stdout.decode()
    if output:
        assert text.startswith(f"Exit code: {status}\n") and text.rstrip("\n").endswith(output)
    else:
        assert text.startswith(("Denied: ", "Not run: "))


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ([], "one command"),
        (["-c", "true", "--", "true"], "one command"),
        (["--timeout", "0", "--", "true"], "timeout"),
        (["--timeout", "nan", "--", "true"], "timeout"),
        (["--log", "x", "--no-log", "--", "true"], "exclude each other"),
        (["--approval", "always", "--", "true"], "always"),
        (["--profile", "none-such", "--", "true"], "none-such"),
        (["--read-only", "--full-access", "--", "true"], "exclude each other"),
        (["--log", "/proc/none", "--", "true"], "/proc/none"),
    ],
    ids=str,
)
def test_what_cannot_be_a_call_is_125_and_one_line(cli: Cli, words: list[str], cause: str) -> None:
    done = cli.exec(*words)
    assert done.returncode == 125 and done.stdout == b""
    assert cause in said(done)


def test_a_document_has_the_same_keys_whatever_came_of_the_call(cli: Cli) -> None:
    calls: dict[str, list[str]] = {
        "ran": ["-c", r"printf '\377'; exit 3"],
        "denied": ["--no-ask", "-c", DANGEROUS],
        "not-started": ["--", "/none"],
    }
    found = {status: cli.json(*words) for status, words in calls.items()}
    for status, document in found.items():
        assert document["status"] == status
        assert set(document) == {
            "schema", "args", "status", "exit_status", "verdict", "reasons", "decision", "grounds",
            "enforced", "why", "attempts", "not_retried", "text", "denials", "error", "returncode",
            "signal", "timed_out", "memory_exceeded", "outcome", "stdout", "stdout_truncated",
            "stdout_base64", "stderr", "stderr_truncated", "stderr_base64", "duration", "usage",
            "swept", "enforcement",
        }  # fmt: skip
        assert document["schema"] == "sandbox-exec/1"
    assert [one["exit_status"] for one in found.values()] == [3, 126, 127]
    assert found["ran"]["stdout_base64"] == "/w==" and found["ran"]["args"] == calls["ran"][1]
    assert found["denied"]["returncode"] is None and found["denied"]["decision"] == "ask"
    assert found["not-started"]["error"]["type"] == "CommandNotFound"
    assert found["not-started"]["args"] == ["/none"]


def test_what_was_refused_is_in_the_text_and_in_the_document(cli: Cli, far: Path) -> None:
    words = f"echo x > {far}/new"
    document = cli.json("-c", words)
    assert document["exit_status"] == 1 and not (far / "new").exists()
    (denial,) = document["denials"]
    assert denial["what"] in (f"{far}/new", str(far))
    assert "Refused by the sandbox" in document["text"] or "Probably" in document["text"]
    assert "nobody to ask" in document["not_retried"]


def test_what_is_piped_in_is_the_commands_input(cli: Cli) -> None:
    data = bytes(range(256)) * 1000
    done = cli.exec("--", "sha256sum", input=data)
    from hashlib import sha256

    assert sha256(data).hexdigest().encode() in done.stdout
    (cli.workspace / "file").write_bytes(b"of a file\n")
    with open(cli.workspace / "file", "rb") as file:
        assert b"of a file" in cli.exec("--", "cat", stdin=file).stdout
    assert cli.exec("--", "cat").stdout.endswith(b"Output: none\n")
    closed = subprocess.run(
        ["sh", "-c", f"{shlex.join(SANDBOX)} exec -- cat <&-"],
        capture_output=True, cwd=cli.workspace, env=cli.env, timeout=60,
    )  # fmt: skip
    assert (closed.returncode, closed.stderr) == (0, b"")


def test_output_does_nothing_to_a_terminal(cli: Cli) -> None:
    script = r"printf 'a\033]0;title\007b\033[2J\033[31mc\302\233d\342\200\256e\377\r\n'"
    for words in (["-c", script], ["--json", "-c", script]):
        done = cli.exec(*words, env={**cli.env, "PYTHONIOENCODING": "utf-8"})
        assert done.returncode == 0
        assert not set(done.stdout) & {0x1B, 0x07, 0x0D}
        assert "\u202e" not in done.stdout.decode() and "\x9b" not in done.stdout.decode()


def test_a_locale_that_cannot_print_it_is_no_bug_of_ours(cli: Cli) -> None:
    env = {**cli.env, "PYTHONIOENCODING": "ascii:strict"}
    done = cli.exec("--", "echo", "\u00e9", env=env)
    assert done.returncode == 0, done.stderr
    done = cli("shell", input="echo \u00e9\n".encode(), env=env)
    assert done.returncode == 0, done.stderr


def test_a_signal_ends_the_call_and_its_record_says_so(cli: Cli) -> None:
    words = [*SANDBOX, "exec", "-c", "touch begun; sleep 300"]
    for number in (signal.SIGINT, signal.SIGTERM):
        (cli.workspace / "begun").unlink(missing_ok=True)
        caller = subprocess.Popen(
            words, cwd=cli.workspace, env=cli.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        deadline = time.monotonic() + 30
        while not (cli.workspace / "begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        caller.send_signal(number)
        assert caller.communicate(timeout=30)[1] == b""
        assert caller.returncode == -number
        assert number.name in cli.records("exit")[-1]["error"]
        assert cli.records()[-1]["event"] == "end" and number.name in cli.records()[-1]["why"]
    assert cli("log", "verify").returncode == 0


# Exec: profiles and projects


def test_modes_and_profiles_count(cli: Cli, far: Path) -> None:
    assert cli.exec("--read-only", "-c", "touch new").returncode != 0
    assert cli.exec("--write", str(far), "-c", f"touch {far}/new").returncode == 0
    cli.profile(f'[filesystem]\n"{far}" = "write"\n', "profiles/wide.toml")
    assert cli.exec("--profile", "wide", "-c", f"touch {far}/a").returncode == 0
    assert cli.exec("-c", f"touch {far}/b").returncode != 0
    cli.profile('[approval]\nmode = "never"\n')
    assert "never" in cli.json("-c", DANGEROUS)["why"]
    cli.profile('[approval]\nmod = "never"\n')
    done = cli.exec("--", "true")
    assert done.returncode == 125 and "mod" in said(done)


RULES = """
[approval]
mode = "untrusted"
[[rules]]
prefix = ["echo", "no"]
decision = "forbid"
justification = "not said here"
"""


def test_a_projects_rules_and_approval_mode_are_honoured(cli: Cli) -> None:
    cli.project(RULES)
    found = cli.json("--", "echo", "no")
    assert (found["status"], found["verdict"]) == ("denied", "forbidden")
    assert "not said here" in json.dumps(found)
    assert cli.json("--", "echo", "yes")["status"] == "ran"
    assert cli.json("--", "make", "all")["status"] == "denied"  # asked about, being unknown
    assert cli.records("session")[0]["trusted"] is False


OPEN = """
[approval]
mode = "on-escape"
unsandboxed = true
[filesystem]
"%s" = "write"
[network]
access = "full"
[[rules]]
prefix = ["rm"]
decision = "allow"
justification = "quite all right"
"""


def test_a_project_that_is_not_trusted_opens_nothing(cli: Cli, far: Path) -> None:
    """And one that is, does: else nothing would be shown."""
    cli.profile('[approval]\nmode = "untrusted"\n')
    cli.project(OPEN % far)
    dangerous = cli.json("--no-ask", "-c", "rm new")
    leaves = cli.json("--no-ask", "--unsandboxed", "--", "true")
    writes = cli.json("--no-ask", "-c", f"touch {far}/new")
    assert [one["status"] for one in (dangerous, leaves, writes)] == ["denied"] * 3
    assert "unsandboxed" in json.dumps(leaves["grounds"])
    assert not (far / "new").exists()
    cli.profile(f'[approval]\nmode = "untrusted"\n[trust]\nprojects = ["{cli.workspace}"]\n')
    (cli.workspace / "new").touch()
    assert cli.json("--no-ask", "-c", "rm new")["status"] == "ran"
    assert not (cli.workspace / "new").exists()
    leaves = cli.json("--no-ask", "--unsandboxed", "--", "true")
    assert "nobody to ask" in leaves["why"]  # it may be asked for


def test_leaving_the_sandbox_is_the_profiles_to_permit_and_somebodys_to_approve(
    cli: Cli, terminal: Open, far: Path
) -> None:
    words = ["exec", "--unsandboxed", "--why", "a reason", "--", "touch", f"{far}/new"]
    denied = cli(*words)
    assert denied.returncode == 126 and b"unsandboxed = true" in denied.stdout
    cli.profile("[approval]\nunsandboxed = true\n")
    assert cli(*words).returncode == 126 and not (far / "new").exists()
    screen = terminal(*words)
    screen.expect("no sandbox")
    screen.expect("a reason")
    screen.expect(r"sandbox: n/y/s\? ")
    screen.send("y\n")
    screen.expect("Exit code: 0")
    assert screen.wait() == 0 and (far / "new").exists()
    assert cli.records("spawn")[-1]["permissions"] == "unsandboxed"


# Exec: who is asked


def asked(screen: Terminal) -> None:
    screen.expect("may this command run")
    screen.expect(r"sandbox: [a-z/]+\? ")


@pytest.mark.parametrize(
    ("key", "status", "answer"),
    [("y\n", 0, "once"), ("s\n", 0, "session"), ("n\n", 126, "deny"), ("\x04", 126, "deny")],
    ids=["yes", "for the session", "no", "end of input"],
)
def test_a_person_at_the_terminal_answers(
    cli: Cli, terminal: Open, key: str, status: int, answer: str
) -> None:
    screen = terminal("exec", "-c", DANGEROUS)
    asked(screen)
    screen.send(key)
    assert os.waitstatus_to_exitcode(screen.wait()) == status
    (record,) = cli.records("approval")
    assert record["answer"] == answer and record["seconds"] > 0
    assert len(cli.records("spawn")) == (status == 0)


def test_a_ctrl_c_at_the_question_runs_nothing_and_is_on_record(cli: Cli, terminal: Open) -> None:
    screen = terminal("exec", "-c", "touch new; rm -rf build")
    asked(screen)
    screen.send("\x03")
    status = screen.wait()
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT
    (record,) = cli.records("approval")
    assert record["answer"] == "deny" and "SIGINT" in record["why"]
    assert not (cli.workspace / "new").exists() and cli.records("spawn") == []


def test_what_was_typed_before_the_question_is_no_answer(cli: Cli, terminal: Open) -> None:
    screen = terminal("exec", "-c", "touch new; rm -rf build")
    screen.send("y\ny\ny\n")
    asked(screen)
    screen.send("n\n")
    assert os.waitstatus_to_exitcode(screen.wait()) == 126
    assert not (cli.workspace / "new").exists()


def test_a_person_who_is_there_is_not_asked_when_nobody_is_to_be(cli: Cli, terminal: Open) -> None:
    screen = terminal("exec", "--no-ask", "-c", DANGEROUS)
    screen.expect("Denied: .*nobody to ask")
    assert os.waitstatus_to_exitcode(screen.wait()) == 126
    screen = terminal("exec", "--approval", "never", "-c", DANGEROUS)
    screen.expect("Denied: ")
    assert os.waitstatus_to_exitcode(screen.wait()) == 126


def test_asking_where_there_is_no_terminal_is_a_denial(cli: Cli) -> None:
    done = cli.exec("--ask", "-c", DANGEROUS, start_new_session=True)
    assert done.returncode == 126 and b"OSError" in done.stdout


def test_a_command_that_was_refused_something_may_be_run_again_with_it(
    cli: Cli, terminal: Open, far: Path
) -> None:
    script = f"touch {far}/new"
    screen = terminal("exec", "-c", script)
    asked(screen)
    screen.send("y\n")
    screen.expect("Exit code: 0")
    assert screen.wait() == 0 and (far / "new").exists()
    assert [one["attempt"] for one in cli.records("spawn")] == [1, 2]


def test_two_calls_at_once_are_asked_about_one_after_the_other(workspace: Path) -> None:
    """Or what is typed for one would answer the other."""
    keys, screen = io.StringIO("y\ny\n"), io.StringIO()
    reading = threading.Semaphore(1)
    alone: list[bool] = []
    read = keys.readline

    def slowly(*size: int) -> str:
        alone.append(reading.acquire(blocking=False))
        time.sleep(0.1)
        line = read(*size)
        reading.release()
        return line

    keys.readline = slowly  # type: ignore[method-assign,assignment]
    found = []
    with Session(
        workspace_write(), workspace=workspace, approver=TerminalApprover(keys, screen), log=False
    ) as session:
        calls = [
            threading.Thread(
                target=lambda: found.append(process_exec_tool_call(DANGEROUS, session).status)
            )
            for _ in range(2)
        ]
        for call in calls:
            call.start()
        for call in calls:
            call.join()
    assert found == ["ran", "ran"] and alone == [True, True]


def test_the_records_of_a_session_are_brought_to_the_disk_when_it_is_closed(
    workspace: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync
    session = Session(workspace_write(), workspace=workspace, log=str(place / "log"))
    process_exec_tool_call("true", session)
    name = "/proc/self/fd/{}"
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(os.readlink(name.format(fd))) or sync(fd)
    )
    session.close()
    assert {Path(path).name for path in synced} == {"000001.jsonl", "head"}


# Records


def test_records_are_where_they_were_asked_for(cli: Cli, place: Path) -> None:
    elsewhere = place / "elsewhere"
    assert cli.exec("--no-log", "--", "true").returncode == 0
    assert not cli.log.exists()
    assert cli.exec("--log", str(elsewhere), "--", "true").returncode == 0
    assert not cli.log.exists()
    assert cli("log", "verify", str(elsewhere)).returncode == 0
    events = [one["event"] for one in documents(elsewhere)]
    assert events == ["session", "assessment", "spawn", "exit", "files", "end"]


def test_a_log_says_what_was_done_and_that_nobody_changed_it(cli: Cli) -> None:
    cli.exec("-c", "echo one > made")
    cli("shell", input=b"echo two\nrm -rf /\n")
    shown = cli("log", "show").stdout.decode()
    assert shown.count("\n") == len(cli.records())
    assert "echo one > made" in shown and "echo two" in shown and "rm -rf /" in shown
    assert f"created 1: {cli.workspace}/made" in shown
    only = cli("log", "show", "--event", "assessment", "--json").stdout.splitlines()
    assert len(only) == 3 and all(json.loads(one)["event"] == "assessment" for one in only)
    assert cli("log", "verify").returncode == 0
    path = cli.log / "000001.jsonl"
    path.write_bytes(path.read_bytes().replace(b"echo one", b"echo 0ne"))
    assert cli("log", "verify").returncode == 1


def test_neither_the_log_nor_the_approvals_can_be_read_from_inside(cli: Cli) -> None:
    cli("trust", "add", "--", "cargo", "build")
    for path in (cli.log / "000001.jsonl", cli.config / "trust.json"):
        done = cli.exec("--no-ask", "--", "cat", str(path))
        assert path.exists() and done.returncode != 0, done.stdout
        assert b"schema" not in done.stdout and b'"prev"' not in done.stdout


# Trust


def runs(cli: Cli, *words: str, **others: Any) -> bool:
    """Whether a call in mode `untrusted` is not asked about."""
    options = others.pop("options", ())
    found = cli.json("--no-ask", "--approval", "untrusted", *options, "--", *words, **others)
    assert found["status"] in ("ran", "denied"), found
    return bool(found["status"] == "ran")


def test_what_was_approved_for_good_is_not_asked_about_until_it_is_taken_back(
    cli: Cli, place: Path
) -> None:
    other = place / "other"
    other.mkdir()
    (cli.workspace / "sub").mkdir()
    words = ["cargo", "build", "--offline"]
    assert not runs(cli, *words)
    added = cli("trust", "add", "--", *words)
    assert added.returncode == 0, added.stderr
    id = added.stdout.decode().strip()
    assert id in cli("trust", "list").stdout.decode()
    assert runs(cli, *words)
    assert cli.records("assessment")[-1]["grounds"] != []
    # Anything else is another command.
    assert not runs(cli, *words, "--release")
    assert not runs(cli, *words, cwd=other)
    assert not runs(cli, *words, options=["--cwd", "sub"])
    assert not runs(cli, *words, options=["--read-only"])
    assert not runs(cli, *words, options=["--write", str(other)])
    assert not runs(cli, *words, options=["--env", "RUSTC=/tmp/x"])
    assert runs(cli, *words, env={**cli.env, "UNRELATED": "1"})
    cli.profile('[environment]\nset = { RUSTC = "x" }\n')
    assert not runs(cli, *words)
    (cli.config / "sandbox.toml").unlink()
    assert runs(cli, *words)
    assert cli("trust", "remove", id).returncode == 0
    assert not runs(cli, *words)
    assert cli("trust", "remove", id).returncode == 1


PROFILES = {
    "none": "",
    "PATH": '[environment]\nset = { PATH = "/usr/bin:/bin" }\n',
    "inherits nothing": '[environment]\ninherit = "none"\n',
    "inherits all": '[environment]\ninherit = "all"\n',
    "limits": '[limits]\nmemory = "1G"\n[network]\naccess = "loopback"\n',
    "rules": '[[rules]]\nprefix = ["touch"]\ndecision = "allow"\njustification = "ok"\n',
}


@pytest.mark.parametrize("profile", PROFILES)
def test_an_approval_is_for_what_a_session_runs_whatever_the_profile_says(
    cli: Cli, profile: str
) -> None:
    """The digests of policy and programs that `trust add` makes are those of sessions."""
    cli.profile(PROFILES[profile])
    # Parts of a PATH that are no absolute directory count for nothing, in both.
    cli.env["PATH"] = f":/none:relative:{cli.env['PATH']}"
    added = cli("trust", "add", "--", "cargo", "build", "--offline")
    assert added.returncode == 0, added.stderr
    assert runs(cli, "cargo", "build", "--offline")


@pytest.mark.parametrize("how", ["prefix", "workspace"])
def test_a_prefix_and_a_workspace_may_be_named(cli: Cli, place: Path, how: str) -> None:
    if how == "prefix":
        assert cli("trust", "add", "--prefix", "--", "cargo", "build").returncode == 0
        assert runs(cli, "cargo", "build", "--release", "--offline")
        assert not runs(cli, "cargo", "publish")
    else:
        added = cli("trust", "add", "--cwd", str(cli.workspace), "--", "cargo", "b", cwd=place)
        assert added.returncode == 0
        assert runs(cli, "cargo", "b")


@pytest.mark.parametrize(
    "words",
    [["rm", "-rf", "build"], ["bash", "x.sh"], ["python3", "x.py"], ["env", "cargo"], ["./tool"]],
    ids=str,
)
def test_what_must_not_last_is_not_approved_for_good(cli: Cli, words: list[str]) -> None:
    tool = cli.workspace / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    added = cli("trust", "add", "--", *words)
    assert added.returncode != 0 and said(added)
    assert not runs(cli, *words)


def test_an_always_at_the_terminal_lasts(cli: Cli, terminal: Open) -> None:
    words = ["cargo", "build", "--offline"]
    screen = terminal("exec", "--approval", "untrusted", "--", *words)
    screen.expect(r"sandbox: n/y/s/p/a\? ")
    screen.send("a\n")
    screen.expect("Exit code: ")
    screen.wait()
    assert runs(cli, *words)
    assert b"cargo build --offline" in cli("trust", "list").stdout


# Shell


def test_piped_lines_are_calls_of_one_session(cli: Cli) -> None:
    (cli.workspace / "sub").mkdir()
    lines = (
        "echo one\n\n   \ncd sub\npwd\nA=1\necho [$A]\ncd\npwd\n"
        "echo err >&2\ntouch here\ncd none\nfalse\n"
    )
    done = cli("shell", input=lines.encode())
    w = str(cli.workspace)
    assert done.stdout.decode().splitlines() == ["one", f"{w}/sub", "[]", w]
    assert "err" in done.stderr.decode() and "none" in done.stderr.decode()
    assert done.returncode == 1
    assert (cli.workspace / "here").exists()
    assert len({one["session"] for one in cli.records()}) == 1
    assert [one["cwd"] for one in cli.records("assessment")][:3] == [w, f"{w}/sub", f"{w}/sub"]


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("", 0),
        ("true\nexit\n", 0),
        ("false\n", 1),
        ("exit 3\necho not said\n", 3),
        ("sh -c 'exit 9'\nexit\n", 9),
        ("exit 300\n", 44),
        ("exit many\n", 2),
        (f"exit {'9' * 5000}\n", 2),
        ("quit", 0),
        ("rm -rf build\n", 126),
        ("kill -9 $$\n", 137),
        (":\n", 127),
        (":x\n", 127),
        ("false\n:mode\n", 0),
        ("echo last line without its end", 0),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_shell_exits_as_its_last_line(cli: Cli, lines: str, status: int) -> None:
    done = cli("shell", input=lines.encode())
    assert done.returncode == status, done.stderr
    assert b"not said" not in done.stdout and b"bug" not in done.stderr


def test_lines_for_the_session_itself(cli: Cli) -> None:
    done = cli("shell", input=b":help\n:mode\n  :trust\n:revoke abc def\n:log\n:nonsense \x1b[2J\n")
    text = done.stdout.decode()
    for name in ("help", "trust", "revoke", "mode", "log"):
        assert f":{name}" in text
    assert "mode auto, asks on-escape" in text
    assert text.count("no approval") == 2
    assert str(cli.log) in text
    assert b":nonsense" in done.stderr and b"\x1b" not in done.stderr
    assert cli("shell", "--no-log", input=b":log\n").stdout == b"no log\n"


def test_a_shell_denies_what_nobody_can_be_asked_about_and_goes_on(cli: Cli) -> None:
    done = cli("shell", input=b"rm -rf build\necho on\n")
    assert done.stdout == b"on\n" and done.returncode == 0
    assert done.stderr.startswith(b"sandbox: Denied: ")


BYTES = r"printf '\033]0;'; printf 'title\007'; printf '\342\202'; sleep 0.1; printf '\254\377x\n'"


def test_what_a_command_prints_in_a_shell_is_harmless_also_in_pieces(cli: Cli) -> None:
    lines = [
        BYTES,
        r"printf 'a\033['; sleep 0.1; printf '31mred\033[0m\n'",
        r"printf '\033'; sleep 0.1; printf '[2Jcleared\n'",
        r"printf 'half \303'",
        r"printf '\302\233 \342\200\256 bidi\n' >&2",
        r"printf '\033]8;;http://x/'; head -c 5000 /dev/zero | tr '\0' u; printf '\033\\link\n'",
    ]
    env = {**cli.env, "PYTHONIOENCODING": "utf-8"}
    done = cli("shell", input="\n".join(lines).encode(), env=env)
    assert done.returncode == 0, done.stderr
    for data in (done.stdout, done.stderr):
        assert not set(data) & {0x1B, 0x07}
        assert not set(data.decode()) & {"\x9b", "\u202e"}
    assert "\u20ac\ufffdx" in done.stdout.decode()  # a euro sign that came in halves
    assert "half \ufffd" in done.stdout.decode()


@pytest.mark.parametrize("encoding", ["utf-8:strict", "utf-8"], ids=str)
def test_a_line_may_hold_any_bytes(cli: Cli, encoding: str) -> None:
    env = {**cli.env, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = cli("shell", input=b"printf %s '\xff\xc3' | od -An -tx1\n\xff\n", env=env)
    assert b"ff c3" in done.stdout and b"bug" not in done.stderr, done.stderr
    assert done.returncode == 127


def test_a_session_on_a_terminal(cli: Cli, terminal: Open) -> None:
    (cli.workspace / "sub").mkdir()
    screen = terminal("shell")
    prompt = r"workspace > "
    screen.expect(prompt)
    screen.send("echo $((6 * 7))\n")
    screen.expect(r"\n42\r\n")
    screen.expect(prompt)
    screen.send("cd sub\n")
    screen.expect("/sub > ")
    screen.send("cd ..\n")
    screen.expect(prompt)
    screen.send("echo begun; sleep 300\n")  # Ctrl-C ends the command, and not the shell
    screen.expect(r"\nbegun\r\n")
    screen.send("\x03")
    screen.expect("interrupted")
    screen.expect(prompt)
    screen.send("half a line")
    screen.expect("half a line")
    time.sleep(0.2)  # readline overlooks a Ctrl-C that comes before it waits for a key
    screen.send("\x03")
    screen.expect(prompt)
    screen.send(f"{DANGEROUS}\n")
    asked(screen)
    screen.send("s\n")
    screen.expect(prompt)
    screen.send(f"{DANGEROUS}\n")  # not asked again
    screen.expect(prompt)
    screen.send(":trust\n")
    id = screen.expect(r"([0-9a-f]{12})  rm -rf build")[1].decode()
    screen.expect(prompt)
    screen.send(f":revoke {id}\n")
    screen.expect("forgotten")
    screen.expect(prompt)
    screen.send(f"{DANGEROUS}\n")
    asked(screen)
    screen.send("\x03")  # at the question: a denial
    screen.expect("Denied: ")
    screen.expect(prompt)
    screen.send("exit 5\n")
    assert os.waitstatus_to_exitcode(screen.wait()) == 5
    exits = cli.records("exit")
    assert len(exits) == len(cli.records("spawn"))
    assert "KeyboardInterrupt" in exits[1]["error"]
    assert [one["answer"] for one in cli.records("approval")] == ["session", "deny"]
    assert cli("log", "verify").returncode == 0


def test_the_end_of_a_terminals_input_ends_a_shell(cli: Cli, terminal: Open) -> None:
    screen = terminal("shell")
    screen.expect("workspace > ")
    screen.send("\x04")
    assert os.waitstatus_to_exitcode(screen.wait()) == 0


def test_a_terminal_that_goes_away_ends_a_shell_and_its_command(cli: Cli, terminal: Open) -> None:
    screen = terminal("shell")
    screen.expect("workspace > ")
    screen.send("echo begun; sleep 300\n")
    screen.expect(r"\nbegun\r\n")
    screen.hang_up()
    status = screen.wait()
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGHUP
    assert "SIGHUP" in cli.records("exit")[-1]["error"]
    assert cli.records()[-1]["event"] == "end"


# Help


def test_the_help_of_a_session_says_all_that_a_newcomer_needs(cli: Cli) -> None:
    top = cli("--help").stdout.decode()
    for name in ("exec", "shell", "log", "trust"):
        assert f"\n  {name} " in top
    text = " ".join(cli("exec", "--help").stdout.decode().split())
    for needed in ("128 + N", "124", "125", "126", "127", "input", "--json", "--no-ask"):
        assert needed in text, needed
    shell = " ".join(cli("shell", "--help").stdout.decode().split())
    for needed in (":help", "cd", "Ctrl-C", "exit N"):
        assert needed in shell, needed


def test_a_call_brings_only_what_it_needs(cli: Cli) -> None:
    """Words are no shell text; nothing is awaited, nothing is drawn."""
    heavy = {"asyncio", "rich", "tree_sitter", "tree_sitter_bash", "importlib.resources"}
    program = (
        "import sys; from sandbox.cli.main import main; main(['exec', '--no-log', *sys.argv[1:]]); "
        f"print(*sorted({heavy!r} & set(sys.modules)), file=sys.stderr)"
    )
    words = [sys.executable, "-c", program, "--", "true"]
    done = subprocess.run(words, capture_output=True, cwd=cli.workspace, env=cli.env, timeout=60)
    assert done.returncode == 0 and done.stderr.split() == [], done.stderr
