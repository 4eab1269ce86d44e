"""A pytest plugin for foreign_suites.py: the drop-in in place, and notes of what came of each test.

FOREIGN_SAID names the file for the notes, FOREIGN_HOW and FOREIGN_PLACE are as in foreign.py.
"""

from __future__ import annotations

import os
import warnings
from contextlib import ExitStack
from typing import Any

import pytest

_block = ExitStack()


def pytest_configure() -> None:
    how = os.environ["FOREIGN_HOW"]
    if how == "plain":
        return
    import sandbox
    from sandbox import subprocess

    warnings.filterwarnings("ignore", category=sandbox.SandboxWeakened)
    policy = sandbox.full_access()
    if how == "confined":
        policy = sandbox.workspace_write(os.environ["FOREIGN_PLACE"])
    _block.enter_context(subprocess.installed(policy))


def pytest_unconfigure() -> None:
    _block.close()


def pytest_runtest_logreport(report: Any) -> None:
    """The last word of a test is its worst."""
    what = {"passed": "pass", "skipped": "skip", "failed": "fail"}[report.outcome]
    if report.when == "call" or what != "pass":
        with open(os.environ["FOREIGN_SAID"], "a") as said:
            print(what, report.nodeid, file=said)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[Any], config: Any) -> None:
    """Only the tests that are named in FOREIGN_ONLY, one in a line, where it is there."""
    if "FOREIGN_ONLY" in os.environ:
        with open(os.environ["FOREIGN_ONLY"]) as file:
            only = set(file.read().splitlines())
        items[:] = [item for item in items if item.nodeid in only]
