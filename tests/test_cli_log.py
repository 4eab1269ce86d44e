"""`sandbox log`: what is shown is what was recorded, and no record moves a cursor."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from logkit import SESSION, assessment, ended, filled, segment, spawn

from sandbox.cli.records import _WHAT
from sandbox.session import events
from sandbox.session.events import KINDS, PathList
from sandbox.session.log import Log

Done = subprocess.CompletedProcess[str]
ESCAPES = "\x1b[2J\x9b31m\u202e\r\nsandbox: all is well\udcff"


def words(*given: str | Path) -> list[str]:
    return [sys.executable, "-m", "sandbox", "log", *map(str, given)]


def cli(*given: str | Path, **variables: str) -> Done:
    env = {**os.environ, "TZ": "UTC", **variables}
    return subprocess.run(words(*given), env=env, capture_output=True, text=True, timeout=60)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return filled(tmp_path / "log")


def test_each_record_is_one_line_with_what_it_says(home: Path) -> None:
    done = cli("show", home)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 9
    assert "#1 assessment allow (unknown: program) make" in lines[0]
    assert "/bin/sh -c make in /project (namespaces, auto)" in lines[1]
    assert "exit       status 0 after" in lines[2]


def test_the_lines_in_json_are_those_of_the_log(home: Path) -> None:
    assert cli("show", home, "--json").stdout.encode() == segment(home).read_bytes()


def test_records_can_be_chosen(home: Path) -> None:
    with Log(str(home)) as log:
        log.append(events.EndRecord(session="another", calls=0, why="closed"))

    def numbers(*given: str) -> list[int]:
        lines = cli("show", home, "--json", *given).stdout.splitlines()
        return [json.loads(line)["seq"] for line in lines]

    assert numbers("--event", "exit", "--event", "end") == [3, 6, 9, 10]
    assert numbers("--session", "anoth") == [10]
    assert numbers("--session", SESSION, "--event", "spawn", "--last", "2") == [5, 8]
    assert numbers("--last", "1") == [10]
    assert numbers("--since", "1h") == list(range(1, 11))
    assert numbers("--since", "2100-01-01") == []
    assert len(numbers("--since", "2020-01-31T14:05")) == 10


@pytest.mark.parametrize("when", ["yesterday", "10 m", "2026-13-01", ""])
def test_what_is_no_time_is_refused(home: Path, when: str) -> None:
    done = cli("show", home, "--since", when)
    assert (done.returncode, done.stdout) == (125, "")
    assert "is no time" in done.stderr


def odd_records() -> list[events.Record]:
    """One of each kind, with escape sequences wherever a command has a say."""
    text = ESCAPES
    common: dict[str, Any] = {"session": text, "call": 1}
    paths = PathList.of([text])
    denial = events.DenialRow(kind="write", what=text, evidence="kernel", rule=text)
    return [
        events.SessionRecord(
            **common,
            pid=1,
            uid=1,
            user=text,
            workspace=text,
            mode="auto",
            approval="never",
            policy="",
            profiles=[],
            trusted=True,
            version="1",
        ),
        events.EndRecord(**common, calls=1, why=text),
        assessment(text),
        events.ApprovalRecord(
            **common, who=text, answer="deny", why=text, seconds=1, reasons=[text], grant=text
        ),
        spawn([text, text]),
        ended(denials=[denial], denied=1),
        events.EscalationRecord(**common, state="asked", cause=text, difference=[text]),
        events.EditRecord(**common, action="create", path=text, before=None, after=None),
        events.FilesRecord(
            **common, created=paths, changed=paths, deleted=paths, complete=False, why=text
        ),
        events.RecoveredRecord(session=text, kept=1, dropped=2, sha256="", missing=3),
    ]


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A log with a record of each kind, and a line that is none."""
    with Log(str(tmp_path / "odd")) as log:
        log.append(*odd_records())
    with segment(tmp_path / "odd").open("ab") as file:
        file.write(b"\x1b[2J no record \xff\n")
    return tmp_path / "odd"


def test_every_kind_has_a_line_and_an_example_here() -> None:
    assert {type(record) for record in odd_records()} == set(_WHAT) == set(KINDS.values())


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_no_record_moves_a_cursor_or_makes_a_line(odd: Path, form: list[str]) -> None:
    done = cli("show", odd, *form)
    lines = done.stdout.splitlines()
    assert len(lines) == (10 if form else 11)
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("sandbox:") for line in lines)
    assert segment(odd).read_bytes().decode("utf-8", "replace").count("\x1b") == 1  # not of ours


def terminal(*given: str | Path) -> bytes:
    """What a command prints on a terminal."""
    here, there = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    env.pop("NO_COLOR", None)
    with subprocess.Popen(words(*given), stdout=there, stdin=there, env=env):
        os.close(there)
        parts = []
        while True:
            try:
                part = os.read(here, 1 << 16)
            except OSError:
                break
            if not part:
                break
            parts.append(part)
    os.close(here)
    return b"".join(parts)


def test_a_terminal_gets_colours_and_none_of_a_commands_escapes(odd: Path) -> None:
    shown = terminal("show", odd)
    assert b"\x1b[31m" in shown  # what was refused is red
    assert b"\x1b[2J" not in shown
    assert "\x9b".encode() not in shown
    assert len(shown.splitlines()) == 11


def test_following_shows_what_is_written_later(home: Path) -> None:
    with subprocess.Popen(
        words("show", home, "--follow", "--last", "1", "--event", "exit"),
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        assert follower.stdout is not None
        assert "#3 exit" in follower.stdout.readline()
        with Log(str(home), rotate=1) as log:
            log.append(spawn(call=8), ended(call=8))
            log.append(ended(call=9))
        assert "#8 exit" in follower.stdout.readline()
        assert "#9 exit" in follower.stdout.readline()
        follower.terminate()


def test_showing_in_a_closed_pipe_says_nothing(home: Path) -> None:
    line = f"{shlex.join(words('show', home))} | head -n 1"
    done = subprocess.run(line, shell=True, capture_output=True, text=True)
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")


def test_verifying_prints_the_head_and_the_numbers(home: Path) -> None:
    head = (home / "head").read_text().split()[-1]
    done = cli("verify", home)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "in order: 9 records in 1 segments, put right 0 times",
        f"head {head}",
    ]
    assert cli("verify", home, "--expect", head).returncode == 0
    wrong = cli("verify", home, "--expect", "f" * 64)
    assert (wrong.returncode, "no record has the digest" in wrong.stdout) == (1, True)


def test_verifying_names_what_was_changed(home: Path) -> None:
    segment(home).write_bytes(segment(home).read_bytes().replace(b"/bin/sh", b"/bin/sx", 1))
    done = cli("verify", home)
    assert done.returncode == 1
    assert done.stdout.startswith("segment 1 line 3: record 3 does not follow")
    assert "NOT in order" in done.stdout
    document = json.loads(cli("verify", home, "--json").stdout)
    assert document["schema"] == "sandbox-log-verify/1"
    assert (document["ok"], document["wrong"], document["records"]) == (False, 1, 9)
    assert document["problems"][0]["line"] == 3


@pytest.mark.parametrize("verb", ["show", "verify"])
def test_no_log_is_our_failure_and_not_a_problem_of_one(tmp_path: Path, verb: str) -> None:
    done = cli(verb, tmp_path / "none")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("sandbox: the log")


def test_the_log_of_the_user_is_what_is_read_by_default(tmp_path: Path) -> None:
    filled(tmp_path / "sandbox/log")
    assert len(cli("show", XDG_STATE_HOME=str(tmp_path)).stdout.splitlines()) == 9
    assert cli("verify", XDG_STATE_HOME=str(tmp_path)).returncode == 0
