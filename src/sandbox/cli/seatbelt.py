"""`sandbox debug seatbelt`: the profile of a policy, and on a Mac a command under it.

What was refused is read from the system's log, which tells of every process of the machine: those
of the command are picked by the numbers that were seen while it ran.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from sandbox.backends.explain_seatbelt import Answer, SeatbeltView, ask_profile, explain_seatbelt
from sandbox.backends.scratch import clean_up, own_directory, private_directory
from sandbox.cli.options import command_argument, policy_options
from sandbox.cli.text import complain
from sandbox.cli.waiting import Waiting, die_of
from sandbox.errors import Unavailable
from sandbox.live import Sandbox
from sandbox.policy import SandboxPolicy
from sandbox.printed import printable

__all__ = ["command", "denials_in"]

_LOG = "/usr/bin/log"
# Chromium, docs/mac/sandbox_debugging.md: where the kernel's sandbox and its reports say things.
_PREDICATE = (
    '((processID == 0) AND (senderImagePath CONTAINS "/Sandbox"))'
    ' OR (subsystem == "com.apple.sandbox.reporting")'
)
_DENIAL = re.compile(
    r"Sandbox: (?P<name>.{1,256}?)\((?P<pid>\d+)\) deny\(\d+\) (?P<what>[^\n]{1,4096})"
)
_LATE = 1.0  # seconds that the log may be behind


@click.command("seatbelt", context_settings={"allow_interspersed_args": False})
@policy_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option(
    "--ask",
    nargs=2,
    multiple=True,
    metavar="OPERATION PATH",
    help="Whether the profile allows this, and by which line: file-write-create /x.",
)
@command_argument
def command(
    policy: SandboxPolicy, as_json: bool, ask: tuple[tuple[str, str], ...], words: tuple[str, ...]
) -> int:
    """Show the profile of a policy on macOS, or run a command under it there.

    Without a command: the SBPL with the reason of each line, its parameters, and the command line;
    or the answers to --ask. With one, on a Mac: it runs under exactly that, and what the system's
    log says it was denied is shown.
    """
    if words:
        return _run(policy, list(words))
    tmp, lock = own_directory()
    try:
        view = explain_seatbelt(policy, os.getcwd(), private_directory(tmp))
        answers = ask_profile(view.profile, ask) if view.profile is not None else []
    finally:
        clean_up(tmp, lock, os.getpid())
    if as_json:
        click.echo(json.dumps(_document(view, answers)))
    elif ask:
        for (operation, path), answer in zip(ask, answers, strict=True):
            click.echo(f"{_said(answer)[0]}: {operation} {printable(path)}: {_said(answer)[1]}")
    else:
        click.echo(_text(view))
    return 0


def _said(answer: Answer) -> tuple[str, str]:
    """One word, and why."""
    if not answer.known:
        return "not known", "no line names this operation, and the default may not cover it"
    word = "allowed" if answer.allowed else "denied"
    where = f"line {answer.line}" if answer.line else "no line denies it"
    if not answer.allowed and not answer.line:
        where = "no line allows it"
    return word, f"{where}: {answer.text.strip()}"


def _text(view: SeatbeltView) -> str:
    if view.profile is None:
        return "Nothing is confined under this policy."
    width = max(len(name) for name, _ in view.profile.parameters)
    rows = [f"; {name:<{width}}  {printable(value)}" for name, value in view.profile.parameters]
    start = view.profile.argv([])[:2]
    line = [*start, "THE-ABOVE", "-DNAME=VALUE...", "--", "COMMAND..."]
    weaker = [f"; {part.part}: {part.cause}" for part in view.weaker]
    parts = ["; Parameters", *rows, "", "; Command line", f"; {' '.join(line)}", ""]
    return "\n".join([view.profile.text, *parts, "; Not enforced", *weaker])


def _document(view: SeatbeltView, answers: Iterable[Answer]) -> dict[str, Any]:
    profile = view.profile
    return {
        "schema": "sandbox-seatbelt/1",
        "profile": profile.text if profile is not None else "",
        "parameters": dict(profile.parameters) if profile is not None else {},
        "argv": profile.argv([]) if profile is not None else [],
        "answers": [asdict(answer) for answer in answers],
        "weaker": [asdict(part) for part in view.weaker],
    }


def _run(policy: SandboxPolicy, words: list[str]) -> int:
    if sys.platform != "darwin":
        raise Unavailable("Seatbelt", f"this is {sys.platform}", "run it on a Mac")
    with Waiting() as waiting, Sandbox(policy) as sandbox, _log() as said, _pids() as pids:
        waiting.leave_to_command()
        result = sandbox.run(words, stdin=0, stdout=1, stderr=2, terminal=True)
    found = denials_in(said, pids)
    complain(f"denied by the profile, as the system's log has it: {len(found)}")
    for name, what in found:
        complain(f"{name}: {what}")
    if result.signal == signal.SIGINT and signal.SIGINT in waiting.noted:
        die_of(signal.SIGINT)
    return result.exit_status


def denials_in(lines: Iterable[str], pids: set[int]) -> list[tuple[str, str]]:
    """The program and what it was denied, each once, in lines of `log stream --style ndjson`."""
    found: dict[tuple[str, str], None] = {}
    for line in lines:
        try:
            message = json.loads(line).get("eventMessage", "")
        except (ValueError, AttributeError):
            continue  # its first line is none
        match = _DENIAL.search(str(message))
        if match is not None and int(match["pid"]) in pids:
            found[match["name"], match["what"].strip()] = None
    return list(found)


@contextmanager
def _log() -> Iterator[list[str]]:
    """The lines that the system's log gets meanwhile; there when the block is over."""
    said: list[str] = []
    arguments = [_LOG, "stream", "--style", "ndjson", "--predicate", _PREDICATE]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as stream:
        assert stream.stdout is not None
        stream.stdout.readline()  # it listens now
        reader = threading.Thread(target=lambda: said.extend(stream.stdout or ()), daemon=True)
        reader.start()
        try:
            yield said
            time.sleep(_LATE)
        finally:
            stream.terminate()
            reader.join()


@contextmanager
def _pids() -> Iterator[set[int]]:
    """The processes below this one that were seen meanwhile, every few milliseconds."""
    import psutil

    seen: set[int] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            seen.update(child.pid for child in psutil.Process().children(recursive=True))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()
