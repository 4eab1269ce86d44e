"""`sandbox policy`: the policy in force and where each part comes from; files checked, compared."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import click

from sandbox.cli.options import Chosen, absolute, profile_options
from sandbox.cli.tables import Section, as_text
from sandbox.cli.tables import show as show_sections
from sandbox.environ import Environment
from sandbox.policy import SandboxPolicy
from sandbox.printed import printable
from sandbox.profile.compose import mode_of
from sandbox.profile.differ import differences, row_of
from sandbox.profile.document import json_schema
from sandbox.profile.load import by_itself
from sandbox.profile.settings import place_of
from sandbox.profile.values import Profile, Setting, Source
from sandbox.profile.where import user_file

__all__ = ["command"]

_json = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
_HERE = Source("command line")


@click.group("policy")
def command() -> None:
    """Show the policy that is in force, check a profile's file, compare two, print the schema."""


@command.command("show")
@profile_options
@_json
def show(chosen: Chosen, as_json: bool) -> int:
    """Show the effective policy and where each part of it comes from.

    It is that of `sandbox run` with the same options in this directory.
    """
    profile = chosen.profile
    assert profile is not None
    settings = _with_command_line(profile, click.get_current_context().params)
    if as_json:
        click.echo(json.dumps(_document(profile, chosen.policy, settings)))
        return 0
    in_force = [(*row_of(one), _origin(one)) for one in settings if not one.refused]
    refused = [(*row_of(one), _origin(one), one.refused) for one in settings if one.refused]
    mode = mode_of(chosen.policy, profile.mode, profile.workspace)
    sections: list[Section] = [
        (f"Mode {mode}, in {profile.workspace}", ("what", "value", "from"), in_force)
    ]
    if refused:
        sections.append(("Not in force", ("what", "value", "from", "why"), refused))
    _print(sections)
    if refused:
        line = f"projects = [{json.dumps(profile.workspace)}]"
        click.echo(f"\nTo trust the project: {line} below [trust] in {printable(user_file())}")
    return 0


@command.command("check")
@click.argument("file", metavar="FILE")
def check(file: str) -> int:
    """Check a profile's file, and what it extends: keys, values, rules and their examples.

    Exits with 125 and names file, line and key of what is wrong.
    """
    by_itself(file if "/" in file else f"./{file}")
    click.echo(f"{file}: a profile")
    return 0


@command.command("diff")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@_json
def diff(first: str, second: str, as_json: bool) -> int:
    """Show in what two profiles differ, and which of them allows more.

    A and B are modes, names of your profiles, or files; each by itself, without other layers.
    Exits with 1 where they differ.
    """
    profiles = [by_itself(name) for name in (first, second)]
    found = differences(*profiles)
    if as_json:
        rows = [one._asdict() for one in found]
        click.echo(json.dumps({"schema": "sandbox-policy-diff/1", "differences": rows}))
    elif found:
        _print([(f"{second} beside {first}", ("what", first, second, "it is"), found)])
    return 1 if found else 0


@command.command("schema")
def schema() -> int:
    """Print the JSON Schema of a profile, for editors."""
    click.echo(json.dumps(json_schema(), indent=2))
    return 0


def _print(sections: list[Section]) -> None:
    if sys.stdout.isatty():
        show_sections(sections)
    else:
        click.echo(as_text(sections))


def _origin(one: Setting) -> str:
    source = one.source
    where = f" {source.file}:{one.line}" if source.file else ""
    return f"{source.layer}{where}"


def _with_command_line(profile: Profile, given: dict[str, Any]) -> list[Setting]:
    """The settings that are in force when options of the command line come on top."""
    found = {one.key: one for one in profile.settings if not one.refused}
    for key, value in _said(given, profile.workspace):
        found[key] = Setting(key, value, _HERE)
    return [*found.values(), *(one for one in profile.settings if one.refused)]


def _said(given: dict[str, Any], workspace: str) -> list[tuple[tuple[str, ...], Any]]:
    """Options as keys and values of settings."""
    rows: list[tuple[tuple[str, ...], Any]] = []
    for option in ("write", "read", "deny"):  # in this order: the strictest counts
        for path in given[option]:
            rows.append((("filesystem", place_of(absolute(path), workspace)), option))
    rows += [(("allow_secrets", name), True) for name in given["allow_secret"]]
    rows += [(("network", "unix_sockets", absolute(path)), True) for path in given["unix_socket"]]
    if given["network"] is not None:
        rows.append((("network", "access"), given["network"]))
    if given["isolation"] != "auto":
        rows.append((("isolation", "minimum"), given["isolation"]))
    for item in given["env"]:
        name, equals, value = item.partition("=")
        inside = ("environment", "set", name) if equals else ("environment", "allow", name)
        rows.append((inside, value if equals else True))
    limits = ("memory", "processes", "tmp")
    rows += [(("limits", name), given[name]) for name in limits if given[name] is not None]
    return rows


def _document(profile: Profile, policy: SandboxPolicy, settings: list[Setting]) -> dict[str, Any]:
    return {
        "schema": "sandbox-policy/1",
        "workspace": profile.workspace,
        "mode": mode_of(policy, profile.mode, profile.workspace),
        "trusted": profile.trusted,
        "approval": {"mode": profile.approval, "unsandboxed": profile.unsandboxed},
        "rules": [asdict(rule) for rule in profile.rules],
        "policy": _policy(policy),
        "settings": [_setting(one) for one in settings if not one.refused],
        "refused": [{**_setting(one), "why": one.refused} for one in settings if one.refused],
        "files": [
            {"layer": one.layer, "file": one.file, "sha256": one.digest} for one in profile.sources
        ],
    }


def _setting(one: Setting) -> dict[str, Any]:
    key, value = row_of(one)
    source = one.source
    return {
        "key": key,
        "value": value,
        "layer": source.layer,
        "file": source.file or None,
        "line": one.line or None,
    }


def _policy(policy: SandboxPolicy) -> dict[str, Any]:
    """The policy as it is enforced. A path may be used as far as each list of entries allows."""
    return {
        "entries": [
            [
                {"path": one.path or None, "special": one.special, "access": one.access}
                for one in layer
            ]
            for layer in policy.layers
        ],
        "network": policy.network,
        "unix_sockets": policy.unix_sockets,
        "environment": _environment(policy.environment),
        "limits": asdict(policy.limits),
        "require": policy.require,
        "accept": policy.accept,
        "protected": policy.protected,
        "allow_secrets": policy.allow_secrets,
    }


def _environment(environment: Environment) -> dict[str, Any]:
    """Names of what is set, and no values: they may be secrets, and this is shown and kept."""
    return {**asdict(environment), "set": [name for name, _ in environment.set]}
