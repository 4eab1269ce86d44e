"""`sandbox doctor`: asks the compiled core, where there is one, and hands its answer on."""

from __future__ import annotations

import sys
import warnings

import click

from sandbox.errors import SandboxWeakened, Unavailable, Unenforceable
from sandbox.host import Probe
from sandbox.live import Sandbox
from sandbox.presets import read_only

__all__ = ["command"]


def probe() -> Probe | None:
    """What the core found by trying; None where it is not built or cannot ask."""
    try:
        from sandbox.backends.explain import host_probe

        return host_probe()
    except (ImportError, OSError):
        return None


def refusal() -> tuple[str, str] | None:
    """Why namespaces are refused, found by making some, and the mend; None where they are not.

    On macOS: why a profile is, found by trying one.
    """
    if sys.platform == "darwin":
        return seatbelt_refusal()
    try:
        from sandbox.backends.namespaces import try_namespaces

        return try_namespaces()
    except (ImportError, OSError):
        return None


def seatbelt_refusal() -> tuple[str, str] | None:
    """Why no command can be confined on this Mac, and the mend; None where it can."""
    warnings.simplefilter("ignore", SandboxWeakened)
    try:
        Sandbox(read_only()).close()
    except (Unenforceable, Unavailable) as error:
        return error.cause, error.mend
    return None


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(as_json: bool) -> int:
    """What this host offers, what it lacks, and the exact line that mends each.

    Exits with 0 when commands can be confined here, else with 1.
    """
    from sandbox.cli.doctor import doctor_command

    return doctor_command(probe(), refusal(), as_json=as_json)
