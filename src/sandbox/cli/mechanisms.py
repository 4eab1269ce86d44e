"""`sandbox debug landlock|mounts|seccomp`: what a policy compiles to on Linux, in words.

Or a command under one mechanism alone.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from dataclasses import asdict
from typing import Any

import click

from sandbox.backends.explain import (
    LandlockView,
    Mechanism,
    SeccompView,
    explain_landlock,
    explain_mounts,
    explain_seccomp,
    landlock_backend,
    start_under,
)
from sandbox.cli.bpf import disassemble
from sandbox.cli.options import command_argument, network_option, policy_of, policy_options
from sandbox.cli.stops import FollowStops
from sandbox.cli.tables import (
    Section,
    as_text,
    landlock_sections,
    mount_sections,
    seccomp_sections,
    show,
)
from sandbox.cli.waiting import Ended, Waiting, die_of
from sandbox.environ import Plan, markers
from sandbox.live import Sandbox
from sandbox.policy import SandboxPolicy
from sandbox.presets import workspace_write
from sandbox.request import encode_words

__all__ = ["landlock", "mounts", "seccomp"]

_OWN_WORDS = {"allow_interspersed_args": False}
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document.")


@click.command("landlock", context_settings=_OWN_WORDS)
@policy_options
@_json
@command_argument
def landlock(policy: SandboxPolicy, as_json: bool, words: tuple[str, ...]) -> int:
    """Show what Landlock is told, or run a command under it alone.

    Without a command: what is handled, each rule with its class and rights, and what is not
    enforced. With one: it runs under Landlock, and without the filter.
    """
    if words:
        return _run_under("landlock", policy, list(words))
    with Sandbox(policy, backend=landlock_backend()) as sandbox:
        view = explain_landlock(sandbox.resolved, sandbox.enforcement)
        tmp = sandbox.resolved.tmp
    if as_json:
        click.echo(json.dumps(_landlock_document(view)))
    else:
        _print(landlock_sections(view, tmp))
    return 0


@click.command("mounts", context_settings=_OWN_WORDS)
@policy_options
@_json
def mounts(policy: SandboxPolicy, as_json: bool) -> int:
    """Show the file tree that a command sees in namespaces.

    Exits with 125 where this host refuses them, and says why.
    """
    strong = policy if policy.unconfined else policy.with_require("namespaces")
    with Sandbox(strong) as sandbox:
        views, weaker = explain_mounts(sandbox.resolved), sandbox.enforcement.weaker
    if as_json:
        rows = [asdict(view) for view in views]
        parts = [asdict(part) for part in weaker]
        click.echo(json.dumps({"schema": "sandbox-mounts/1", "mounts": rows, "weaker": parts}))
    else:
        _print(mount_sections(views, weaker))
    return 0


@click.command("seccomp", context_settings=_OWN_WORDS)
@network_option
@_json
@click.option("--bpf", is_flag=True, help="The program, an instruction a line.")
@command_argument
def seccomp(network: str | None, as_json: bool, bpf: bool, words: tuple[str, ...]) -> int:
    """Show what the filter refuses, or run a command under it alone.

    Without a command: the system calls that are refused and why, and those whose arguments decide.
    With one: it runs under the filter, and without Landlock.
    """
    policy = policy_of(workspace_write(), network, "auto", ())
    if words:
        return _run_under("seccomp", policy, list(words))
    view = explain_seccomp(policy)
    if as_json:
        click.echo(json.dumps(_seccomp_document(view)))
    elif bpf:
        click.echo("\n".join(disassemble(view.program, errno.errorcode)))
    else:
        _print(seccomp_sections(view))
    return 0


def _print(sections: list[Section]) -> None:
    if sys.stdout.isatty():
        show(sections)
    else:
        click.echo(as_text(sections))


def _landlock_document(view: LandlockView) -> dict[str, Any]:
    return {"schema": "sandbox-landlock/1", **asdict(view)}


def _seccomp_document(view: SeccompView) -> dict[str, Any]:
    return {
        "schema": "sandbox-seccomp/1",
        "network": view.network,
        "instructions": len(view.program),
        "calls": [asdict(call) for call in view.calls],
        "program": [list(instruction) for instruction in view.program],
    }


def _run_under(mechanism: Mechanism, policy: SandboxPolicy, words: list[str]) -> int:
    """Runs a command in our place under one mechanism; its exit status as a shell has it."""
    cwd = os.getcwd()
    with Waiting() as waiting, Sandbox(policy) as sandbox:
        resolved = sandbox.resolved
        marks = markers(mechanism, policy.network, resolved.tmp)
        env = Plan(policy.environment).build(os.environ, marks)
        waiting.leave_to_command()
        process = start_under(mechanism, resolved, encode_words(words), env, cwd)
        try:
            with FollowStops(lambda: process.pid):
                code = os.waitstatus_to_exitcode(process.wait())
        except Ended:
            process.kill()
            raise
    if code == -signal.SIGINT and signal.SIGINT in waiting.noted:
        die_of(signal.SIGINT)
    return code if code >= 0 else 128 - code
