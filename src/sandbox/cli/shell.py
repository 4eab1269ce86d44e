"""`sandbox shell`: each line is one tool call of one session. To see what an agent would see.

Output is shown as it comes, with nothing in it that moves a cursor. Lines that begin with a colon
are for the session itself.
"""

from __future__ import annotations

import codecs
import io
import os
import shlex
import sys
from collections.abc import Callable
from typing import Any

import click

from sandbox.cli.options import Chosen, profile_options
from sandbox.cli.sessions import session_of, session_options
from sandbox.cli.waiting import Waiting
from sandbox.errors import SandboxException
from sandbox.printed import printable
from sandbox.session.calls import process_exec_tool_call
from sandbox.session.session import Session
from sandbox.session.shown import harmless
from sandbox.session.values import Delta, refusal_lines

__all__ = ["command"]


@click.command("shell")
@profile_options
@session_options
def command(chosen: Chosen, **options: Any) -> int:
    """A loop in which each line is one tool call: assessed, decided about, confined, recorded.

    Nothing of a line is kept but `cd`, which changes the directory of the next ones (alone: to the
    workspace). `:help` lists what the session itself can do. Ctrl-C ends a command and not the
    loop; `exit N` or the end of the input do. Exits as the last command did.
    """
    with Waiting(keys=False), session_of(chosen, **options) as session:
        return _Loop(session).run()


class _Loop:
    """Reads lines and does what they say."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._status = 0
        self._is_terminal = os.isatty(0)
        self._own: dict[str, tuple[Callable[[list[str]], None], str]] = {
            "help": (self._help, "this list"),
            "trust": (self._trust, "what was approved, with ids"),
            "revoke": (self._revoke, "ID ...: forgets approvals"),
            "mode": (self._mode, "the mode, when it asks, what is not enforced"),
            "log": (self._log, "where it is recorded, and the digest of the last record"),
        }

    def run(self) -> int:
        """Until the end of the input, or `exit`."""
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="surrogateescape")  # a command may hold any byte
        if self._is_terminal:
            import readline  # noqa: F401  it makes `input` one that can be edited

            click.echo("Each line is one tool call. :help, exit")
        while (line := self._next()) is not None:
            words = line.split()
            if not words:
                continue
            if words[0] in ("exit", "quit"):
                return _status(words[1]) if words[1:] else self._status
            try:
                self._do(line)
            except KeyboardInterrupt:
                click.echo("interrupted", err=True)
                self._status = 130
            except SandboxException as error:
                click.echo(f"sandbox: {printable(str(error))}", err=True)
                self._status = error.exit_status
                if self._session.is_over:
                    return self._status
        return self._status

    def _next(self) -> str | None:
        if not self._is_terminal:
            line = sys.stdin.readline() if sys.stdin is not None else ""  # it came closed
            return line.rstrip("\n") if line else None
        while True:
            try:
                return input(f"{printable(self._session.cwd)} > ")
            except EOFError:
                click.echo()
                return None
            except KeyboardInterrupt:
                click.echo()

    def _do(self, line: str) -> None:
        if line.lstrip().startswith(":"):
            self._do_own(line.lstrip()[1:].split() or [""])
            return
        place = _moved_to(line)
        if place is not None:
            self._session.change_directory(place or self._session.workspace)
            self._status = 0
            return
        screen = _Screen()
        try:
            result = process_exec_tool_call(line, self._session, on_delta=screen.put)
        finally:
            screen.end()
        self._status = result.exit_status
        for told in refusal_lines(result):
            click.echo(f"sandbox: {told}", err=True)

    def _do_own(self, words: list[str]) -> None:
        """A line for the session."""
        found = self._own.get(words[0])
        self._status = 0 if found is not None else 127
        if found is None:
            click.echo(f"sandbox: no such thing: :{printable(words[0])} (see :help)", err=True)
            return
        act, _ = found
        act(words[1:])

    def _help(self, _: list[str]) -> None:
        for name, (_act, text) in self._own.items():
            click.echo(f":{name:<8} {text}")

    def _trust(self, _: list[str]) -> None:
        for one in self._session.trust.entries():
            more = "".join(f" + {printable(line)}" for line in one.permissions)
            kept = " (kept)" if one.lasts else ""
            click.echo(f"{one.id}  {printable(one.command)}{more}{kept}")

    def _revoke(self, ids: list[str]) -> None:
        for one in ids:
            click.echo("forgotten" if self._session.trust.revoke(one) else f"no approval {one}")

    def _mode(self, _: list[str]) -> None:
        session = self._session
        enforcement = session.boxes.base.enforcement
        click.echo(f"mode {session.mode}, asks {session.approval}, {enforcement.isolation}")
        for part in session.weaker(enforcement):
            click.echo(f"not enforced: {part.part}: {part.cause}")

    def _log(self, _: list[str]) -> None:
        log = self._session.log
        click.echo(f"{printable(log.directory)}  {log.head}" if log is not None else "no log")


class _Screen:
    """Output of a command as it comes; pieces of characters wait for their rest."""

    def __init__(self) -> None:
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": make("replace"), "stderr": make("replace")}
        self._held = {"stdout": "", "stderr": ""}

    def put(self, delta: Delta) -> None:
        """One piece. A sequence that is not at its end waits, too."""
        text = self._held[delta.stream] + self._decoders[delta.stream].decode(delta.data)
        cut = max(text.rfind("\n") + 1, text.rfind("\x1b") if "\x1b" in text[-64:] else len(text))
        self._held[delta.stream] = text[cut:]
        self._write(delta.stream, text[:cut])

    def end(self) -> None:
        """The rest."""
        for stream, text in self._held.items():
            self._write(stream, text + self._decoders[stream].decode(b"", True))

    def _write(self, stream: str, text: str) -> None:
        if text:
            click.echo(harmless(text), nl=False, err=stream == "stderr")


def _status(word: str) -> int:
    """An exit status as a shell takes it; 2, as theirs, for what is no number."""
    return int(word) % 256 if word.isdecimal() and len(word) < 10 else 2


def _moved_to(line: str) -> str | None:
    """Where a line that is nothing but `cd DIR` goes, empty for `cd`; None for any other."""
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    if words[:1] != ["cd"] or len(words) > 2 or any(c in line for c in ";&|<>$`()*?"):
        return None
    return os.path.expanduser(words[1]) if len(words) == 2 else ""
