"""`sandbox trust`: the approvals that outlive a session, and the projects that the user trusts."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import asdict

import click

from sandbox.cli.tables import Section, as_text
from sandbox.cli.tables import show as show_sections
from sandbox.cli.text import complain
from sandbox.command.assess import assess_command_safety
from sandbox.errors import InvalidArgument, SandboxWeakened
from sandbox.printed import printable
from sandbox.profile.load import load
from sandbox.session.approval import Answer, Choice, may_last
from sandbox.session.keys import key_of
from sandbox.session.prefixes import banned, prefix_of
from sandbox.session.prompt import user
from sandbox.session.session import Session
from sandbox.session.trust import Trusted, exact_of, prefix_entry_of
from sandbox.session.trustfile import TrustFile

__all__ = ["command"]

_MISSING = 1
_DIGEST_SHOWN = 12


@click.group("trust")
def command() -> None:
    """Show and change what was approved for good.

    What is approved for a session ends with it, and is not here.
    """


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def show(as_json: bool) -> int:
    """List the commands that run without being asked about, and the projects you trust."""
    file = TrustFile()
    entries = file.entries()
    projects = _projects()
    if as_json:
        document = {
            "schema": "sandbox-trust-list/1",
            "file": file.path,
            "entries": [{"id": one.id, **asdict(one)} for one in entries],
            "projects": [{"path": path, "from": where} for path, where in projects],
        }
        click.echo(json.dumps(document))
        return 0
    names = ("id", "command", "where", "policy", "by", "since")
    shown = [(one.id, *map(printable, _columns(one))) for one in entries]
    sections: list[Section] = [
        (f"Commands: {len(shown)}", names, shown),
        (f"Projects: {len(projects)}", ("project", "from"), projects),
    ]
    if sys.stdout.isatty():
        show_sections(sections)
    else:
        click.echo(as_text(sections))
    return 0


@command.command("add", context_settings={"ignore_unknown_options": True})
@click.option("--cwd", default=".", metavar="DIR", help="The workspace; default: here.")
@click.option("--prefix", "is_prefix", is_flag=True, help="All commands that begin so.")
@click.argument("words", nargs=-1, required=True, metavar="-- WORDS...")
def add(cwd: str, is_prefix: bool, words: tuple[str, ...]) -> int:
    """Approve a command, in a workspace and under the policy that is in force there.

    Nothing dangerous, no interpreter, shell or wrapper, and no program that commands could have
    written.
    """
    with _session(cwd) as session:
        file, where = session.trust_file, session.workspace
        assert file is not None
        context = session.context({}, helpers_off=False)
        # What this host enforces less is part of it.
        weaker = session.weaker(session.boxes.base.enforcement)
        permissions = [f"weaker {one.part}" for one in weaker]
        key = key_of(words, context, cwd=where, policy=session.key_digest, permissions=permissions)
        if not may_last(assess_command_safety(words, context).verdict, key):
            cause = banned(words) or "is dangerous, or no program that commands cannot have written"
            raise InvalidArgument("words", " ".join(words), cause)
        if is_prefix and prefix_of(words) is None:
            raise InvalidArgument("words", " ".join(words), "is no prefix: it says too little")
        answer = Answer(Choice.ALWAYS, user(), "sandbox trust add")
        entry = prefix_entry_of(key, words, where, answer) if is_prefix else exact_of(key, answer)
        click.echo(file.add(entry).id)
    return 0


@command.command("remove")
@click.argument("id", metavar="ID")
def remove(id: str) -> int:
    """Take an approval back. Exits with 1 where there is none of this ID."""
    if TrustFile().remove(id):
        return 0
    complain(f"there is no approval {id!r} (see `sandbox trust list`)")
    return _MISSING


@command.command("clear")
def clear() -> int:
    """Take all approvals back. Trusted projects stay: they are in your profile."""
    click.echo(f"{TrustFile().clear()} taken back")
    return 0


def _columns(one: Trusted) -> tuple[str, ...]:
    return one.command, one.place, one.policy[:_DIGEST_SHOWN], one.who, one.since


def _projects() -> list[tuple[str, str]]:
    """The projects that the user's own profile trusts, with the line that says so."""
    found = load(None, None, project=False).settings
    return [
        (printable(one.key[-1]), f"{one.source.file}:{one.line}")
        for one in found
        if one.key[0] == "trust" and not one.refused
    ]


def _session(cwd: str) -> Session:
    """One as an agent has it there, of which nothing is run: so that an approval fits its calls."""
    warnings.simplefilter("ignore", SandboxWeakened)
    return Session(workspace=cwd, log=False, trust_file=True, changes=False)
