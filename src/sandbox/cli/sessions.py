"""What `sandbox exec` and `sandbox shell` have in common: a session, made of the same options."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from sandbox.cli.options import Chosen
from sandbox.errors import SandboxWeakened
from sandbox.profile.values import APPROVALS, ApprovalMode
from sandbox.session.prompt import TerminalApprover
from sandbox.session.session import Session
from sandbox.session.trustfile import TrustFile

__all__ = ["session_of", "session_options"]

Command = Callable[..., Any]

_OPTIONS = (
    click.option(
        "--approval", type=click.Choice(APPROVALS), help="When to ask; default: the profile's."
    ),
    click.option(
        "--ask/--no-ask",
        default=None,
        help="Ask at the terminal, or deny what would be asked. Default: ask if there is one.",
    ),
    click.option("--log", "log", metavar="DIR", help="Where to record; default: the user's log."),
    click.option("--no-log", is_flag=True, help="Record nothing."),
)


def session_options(command: Command) -> Command:
    """Gives a command the options of a session."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def session_of(
    chosen: Chosen,
    *,
    approval: ApprovalMode | None,
    ask: bool | None,
    log: str | None,
    no_log: bool,
) -> Session:
    """The session that the options make. Raises as ``Session``."""
    if log is not None and no_log:
        raise click.UsageError("--log and --no-log exclude each other")
    warnings.simplefilter("ignore", SandboxWeakened)  # it is asked about, and on record
    assert chosen.profile is not None
    asks = _has_terminal() if ask is None else ask
    # Without anybody to ask the file is looked at if it is there, and not made.
    keeps = asks or os.path.lexists(TrustFile().path)
    return Session(
        replace(chosen.profile, policy=chosen.policy),
        workspace=chosen.profile.workspace,
        approver=TerminalApprover() if asks else None,
        approval=approval,
        log=not no_log if log is None else log,
        trust_file=True if keeps else None,
    )


def _has_terminal() -> bool:
    """Whether a person sits there: what they read and what they type is a terminal's."""
    return os.isatty(0) and os.isatty(2)
