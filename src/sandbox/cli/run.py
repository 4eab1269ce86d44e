"""`sandbox run`: one command, confined, in the place of this process as far as anyone can tell.

Its standard streams are ours, handed over and not copied, and it stays in the terminal's session
and process group; so pipes, job control and window changes need no code here. With `--json` its
output is captured instead, in a session of its own, and an interrupt ends it.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Sequence

import click

from sandbox.cli.options import command_argument, policy_options
from sandbox.cli.stops import FollowStops, leader_in_lane
from sandbox.cli.text import complain, denial_line, weaker_lines
from sandbox.cli.waiting import Waiting, die_of
from sandbox.denial import Denial
from sandbox.denials import Asked, guesses
from sandbox.errors import SandboxException, SandboxWeakened
from sandbox.limits import check_seconds
from sandbox.live import Sandbox
from sandbox.policy import SandboxPolicy
from sandbox.result import Result

__all__ = ["command"]

_TOLD = ("wall", "memory")  # limits of which the outcome tells


@click.command("run", context_settings={"allow_interspersed_args": False})
@policy_options
@click.option("--timeout", metavar="S", type=float, help="Seconds until all of it is ended.")
@click.option("--json", "as_json", is_flag=True, help="Capture the output; print one JSON object.")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what is not enforced.")
@command_argument
def command(
    policy: SandboxPolicy,
    timeout: float | None,
    as_json: bool,
    verbose: bool,
    words: tuple[str, ...],
) -> int:
    """Run a command confined.

    By default it reads all but secrets, writes below the working directory, has no network and a
    clean environment. What it leaves behind ends with it.

    Exits as the command does, with 128+n when signal n ended it, 124 when its time was up, 125 when
    the sandbox could not start, 126 or 127 when the program cannot be executed or found.
    """
    if not words:
        raise click.UsageError("no command: write it after --")
    if timeout is not None:
        check_seconds("timeout", timeout)
    warnings.simplefilter("ignore", SandboxWeakened)  # see --verbose and --json
    if as_json:
        return _captured(policy, timeout, list(words), verbose)
    return _in_place(policy, timeout, list(words), verbose)


def _in_place(policy: SandboxPolicy, timeout: float | None, words: list[str], verbose: bool) -> int:
    with Waiting() as waiting, Sandbox(policy) as sandbox:
        if verbose:
            _tell(weaker_lines(sandbox.enforcement))
        waiting.leave_to_command()
        with FollowStops(leader_in_lane):
            result = sandbox.run(words, timeout=timeout, stdin=0, stdout=1, stderr=2, terminal=True)
    if result.timed_out or result.memory_exceeded:
        complain(f"the command {result.outcome}{_more(result)}")
    denials = result.denials
    if not (result.ok or denials):  # its output was not ours to read
        asked = Asked(sandbox.resolved, os.getcwd(), sandbox.policy.limits, timeout)
        denials = guesses(words, asked, sandbox.isolation)
    _tell_denials(denials)
    if _was_interrupted(result, waiting):
        die_of(signal.SIGINT)
    return result.exit_status


def _captured(policy: SandboxPolicy, timeout: float | None, words: list[str], verbose: bool) -> int:
    from sandbox.cli.report import failure_document, result_document, to_json

    try:
        with Waiting(), Sandbox(policy) as sandbox:
            result = sandbox.run(words, timeout=timeout, stdin=0)
    except SandboxException as error:
        click.echo(to_json(failure_document(words, error)))
        raise
    if verbose:
        _tell(weaker_lines(result.enforcement))
    _tell_denials(result.denials)
    click.echo(to_json(result_document(words, result)))
    return result.exit_status


def _tell(lines: list[str]) -> None:
    for line in lines:
        complain(line)


def _more(result: Result) -> str:
    """How to allow more of what ended it."""
    grants = [denial.grant for denial in result.denials if denial.what in _TOLD]
    return "".join(f"; to allow more: {grant.option}" for grant in grants if grant is not None)


def _tell_denials(denials: Sequence[Denial]) -> None:
    """What was refused; guesses only to a person, and no limit that was told of before."""
    told = [denial for denial in denials if denial.what not in _TOLD]
    certain = [denial for denial in told if denial.certain]
    guessed = [denial for denial in told if not denial.certain] if os.isatty(2) else []
    _tell([denial_line(denial) for denial in [*certain, *guessed]])
    if guessed:
        complain("(probably: by the command's own words, which may be wrong)")


def _was_interrupted(result: Result, waiting: Waiting) -> bool:
    """Whether the command died of a Ctrl-C that came to us as well.

    Then we do too: to a shell that is the difference between a loop that was interrupted and one
    whose command failed. The status that it shows is the same, 130.
    """
    return result.signal == signal.SIGINT and signal.SIGINT in waiting.noted
