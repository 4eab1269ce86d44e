"""A result, or why there is none, as one JSON object."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

from sandbox.denial import Denial
from sandbox.errors import SandboxException
from sandbox.result import Result

__all__ = ["denial_document", "failure_document", "result_document", "to_json"]

SCHEMA = "sandbox-run/1"


def result_document(words: list[str], result: Result) -> dict[str, Any]:
    """All of a result. `error` is null: the command ran, whatever came of it."""
    return {
        "schema": SCHEMA,
        "error": None,
        "args": words,
        "exit_status": result.exit_status,
        "returncode": result.returncode,
        "signal": result.signal,
        "timed_out": result.timed_out,
        "memory_exceeded": result.memory_exceeded,
        "outcome": result.outcome,
        **_stream("stdout", result.stdout, result.out, result.stdout_truncated),
        **_stream("stderr", result.stderr, result.err, result.stderr_truncated),
        "duration": result.duration,
        "usage": dataclasses.asdict(result.usage),
        "swept": result.swept,
        "enforcement": {
            "isolation": result.enforcement.isolation,
            "full": result.enforcement.full,
            "weaker": [dataclasses.asdict(part) for part in result.enforcement.weaker],
        },
        "denials": [denial_document(denial) for denial in result.denials],
    }


def denial_document(denial: Denial) -> dict[str, Any]:
    """What was refused, or undone."""
    grant = denial.grant
    return {
        **dataclasses.asdict(denial),
        "certain": denial.certain,
        "grant": {"call": grant.call, "option": grant.option} if grant is not None else None,
    }


def _stream(name: str, data: bytes, text: str, missing: int) -> dict[str, Any]:
    """The text of a stream, and its bytes where the text is not all of them."""
    fields: dict[str, Any] = {name: text, f"{name}_truncated": missing}
    try:
        data.decode()
    except UnicodeDecodeError:
        fields[f"{name}_base64"] = base64.b64encode(data).decode("ascii")
    return fields


def failure_document(words: list[str], error: SandboxException) -> dict[str, Any]:
    """Why no command ran: the exception's class, its text and its attributes."""
    facts = {
        name: value
        for name, value in vars(error).items()
        if isinstance(value, str | int | float | None) and not name.startswith("_")
    }
    number = getattr(error, "errno", None)
    if isinstance(number, int):
        facts["errno"] = number
    return {
        "schema": SCHEMA,
        "error": {"type": type(error).__name__, "message": str(error), **facts},
        "args": words,
        "exit_status": error.exit_status,
    }


def to_json(document: dict[str, Any]) -> str:
    """One line, ASCII only: any reader can read it, whatever its locale."""
    return json.dumps(document)
