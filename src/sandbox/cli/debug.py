"""`sandbox debug`: what a policy compiles to, in words; or a command under one mechanism alone."""

from __future__ import annotations

import warnings

import click

from sandbox.cli.lazy import lazy_group
from sandbox.errors import SandboxWeakened

__all__ = ["command"]

# As those of `sandbox` itself. The first three need the compiled core, which a Mac has not.
COMMANDS = {
    "landlock": ("mechanisms:landlock", "What Landlock is told, or a command under it alone."),
    "mounts": ("mechanisms:mounts", "The file tree that a command sees in namespaces."),
    "seccomp": ("mechanisms:seccomp", "What the filter refuses, or a command under it alone."),
    "seatbelt": ("seatbelt", "The profile of a policy on macOS, or a command under it."),
}


@click.group("debug", cls=lazy_group(COMMANDS))
def command() -> None:
    """Show what a policy compiles to, or run a command under one mechanism alone."""
    warnings.simplefilter("ignore", SandboxWeakened)  # what is weaker is shown
