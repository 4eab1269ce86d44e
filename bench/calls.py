"""What an agent's session costs: a tool call over the floor, and with parts of it left out."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from measure import Figure, compare, compile_floor, floor_times

import sandbox
from sandbox.session import Session, ToolCall, process_exec_tool_call

COMMAND = ["/bin/true"]
WHOLE = "process_exec_tool_call, with records"
FILES = "the same, with what changed (nothing did)"
TARGETS = {WHOLE: 1.50}


def measure(rounds: int) -> list[Figure]:
    """A call that is allowed, in an empty workspace."""
    floor, count = compile_floor(), 20
    with tempfile.TemporaryDirectory() as place:
        workspace = Path(place) / "workspace"
        workspace.mkdir()
        policy = sandbox.workspace_write(workspace)
        logs = [f"{place}/log{number}" for number in range(2)]
        with (
            sandbox.Sandbox(policy) as box,
            Session(policy, workspace=workspace, log=False, changes=False) as silent,
            Session(policy, workspace=workspace, log=logs[0], changes=False) as recorded,
            Session(policy, workspace=workspace, log=logs[1]) as whole,
        ):
            call = ToolCall(COMMAND)
            cases = {
                "Sandbox.run": partial(box.run, COMMAND),
                "process_exec_tool_call, without records": partial(
                    process_exec_tool_call, call, silent
                ),
                WHOLE: partial(process_exec_tool_call, call, recorded),
                FILES: partial(process_exec_tool_call, call, whole),
            }
            return compare(
                lambda number: floor_times(floor, number, COMMAND),
                cases,
                rounds=rounds,
                count=count,
                targets=TARGETS,
                progress="calls",
            )
