"""`sandbox exec`: one tool call of an agent, from a shell."""

from __future__ import annotations

import os
import stat
from typing import Any

import click

from sandbox.cli.options import Chosen, command_argument, profile_options
from sandbox.cli.sessions import session_of, session_options
from sandbox.cli.waiting import Waiting
from sandbox.limits import check_seconds
from sandbox.request import POLICY_LIMIT
from sandbox.session.calls import process_exec_tool_call
from sandbox.session.values import ToolCall, ToolResult

__all__ = ["command"]

SCHEMA = "sandbox-exec/1"
# Null where nothing ran, so that the document has the same keys in any case.
_OF_RESULT = (
    "error", "returncode", "signal", "timed_out", "memory_exceeded", "outcome", "stdout",
    "stdout_truncated", "stdout_base64", "stderr", "stderr_truncated", "stderr_base64", "duration",
    "usage", "swept", "enforcement",
)  # fmt: skip


@click.command("exec", context_settings={"allow_interspersed_args": False})
@profile_options
@session_options
@click.option("-c", "script", metavar="TEXT", help="Text for a shell, in the place of words.")
@click.option("--cwd", metavar="DIR", help="Where it runs; default: the working directory.")
@click.option("--timeout", metavar="S", type=float, help="Seconds until all of it is ended.")
@click.option("--unsandboxed", is_flag=True, help="Ask for a run with no sandbox.")
@click.option("--why", metavar="TEXT", default="", help="The agent's words for whoever is asked.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@command_argument
def command(
    chosen: Chosen,
    script: str | None,
    cwd: str | None,
    timeout: float | None,
    unsandboxed: bool,
    why: str,
    as_json: bool,
    words: tuple[str, ...],
    **options: Any,
) -> int:
    """Run one tool call: assess it, ask where that is due, run it confined, record all of it.

    Prints what a model would be told. What is piped or redirected here is read to its end, and is
    the command's input. Exits as the command does (128 + N for signal N); 124: its time was up;
    126: it was denied, or cannot be executed; 127: there is no such program; 125: the session could
    not start.
    """
    if (script is None) == (not words):
        raise click.UsageError("one command: words after --, or text with -c")
    if timeout is not None:
        check_seconds("timeout", timeout)
    call = ToolCall(
        script if script is not None else list(words),
        cwd=os.path.abspath(cwd) if cwd is not None else os.getcwd(),
        input=_input(),
        timeout=POLICY_LIMIT if timeout is None else timeout,
        unsandboxed=unsandboxed,
        justification=why,
    )
    with Waiting(), session_of(chosen, **options) as session:
        result = process_exec_tool_call(call, session)
    if as_json:
        from sandbox.cli.report import to_json

        click.echo(to_json(document(result, call)))
    else:
        click.echo(result.text)
    return result.exit_status


def _input() -> bytes | None:
    """What is piped or redirected to us; a terminal stays with who is asked."""
    kind = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind)):
        return None
    with open(0, "rb", closefd=False) as stdin:
        return stdin.read()


def document(result: ToolResult, call: ToolCall) -> dict[str, Any]:
    """All that came of a call, as one JSON object with the same keys in any case."""
    from sandbox.cli.report import denial_document, failure_document, result_document

    words = [call.command] if isinstance(call.command, str) else list(call.command)
    ran: dict[str, Any] = {}
    if result.result is not None:
        ran = result_document(words, result.result)
    elif result.error is not None:
        ran = failure_document(words, result.error)
    decision, assessment = result.decision, result.assessment
    return {
        **dict.fromkeys(_OF_RESULT),
        **ran,
        "schema": SCHEMA,
        "args": call.command,
        "status": result.status,
        "exit_status": result.exit_status,
        "verdict": assessment.verdict,
        "reasons": [
            {"reason": r, "start": start, "end": end, "detail": detail}
            for r, start, end, detail in assessment.causes
        ],
        "decision": decision.action,
        "grounds": [{"ground": one.ground, "detail": one.detail} for one in decision.grounds],
        "enforced": decision.enforced,
        "why": result.why,
        "denials": [denial_document(one) for one in result.denials],
        "attempts": result.attempts,
        "not_retried": result.not_retried,
        "text": result.text,
    }
