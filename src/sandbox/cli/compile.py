"""`sandbox compile`: a policy to a file for `sandcore-exec`. `sandbox exec-path`: where that is."""

from __future__ import annotations

import os

import click

from sandbox.cli.options import absolute, policy_options
from sandbox.cli.text import complain, weaker_lines
from sandbox.errors import InvalidPath
from sandbox.policy import SandboxPolicy

__all__ = ["command", "path_command"]


@click.command("compile")
@policy_options
@click.option("-o", "--output", metavar="FILE", required=True, help="Where to write it.")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what is not enforced.")
def command(policy: SandboxPolicy, output: str, verbose: bool) -> int:
    """Compile a policy to a file, for sandcore-exec.

    The policy is that of `sandbox run` with the same options in this directory. The file holds for
    this machine, this user and the paths as they are now. With --isolation auto it has a part for
    namespaces and one for landlock, and the launcher takes the strongest that the host gives.
    """
    from sandbox.backends.compiled import compile_file

    target = absolute(os.path.expanduser(output))
    try:
        compiled = compile_file(policy, target, os.getcwd())
    except OSError as error:
        raise InvalidPath(output, error.strerror or str(error)) from None
    if verbose:
        for enforcement in compiled.enforcements:
            for line in weaker_lines(enforcement):
                complain(line)
        if compiled.tmp:
            complain(f"in landlock TMPDIR is {compiled.tmp}; nobody empties it")
    return 0


@click.command("exec-path")
def path_command() -> int:
    """Print where sandcore-exec is.

    A program of its own, which starts without Python: sandcore-exec --policy FILE -- CMD...
    """
    from sandbox.backends.compiled import launcher_path

    click.echo(launcher_path())
    return 0
