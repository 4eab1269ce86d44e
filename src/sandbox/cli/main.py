"""The command `sandbox`: the group of its commands, and how all of them end.

Exit statuses are those of `env` and `timeout`, so that no failure of ours looks like one of the
command's: 125 is always ours (bad usage, a policy that cannot be enforced, a bug of this package),
126 and 127 say that the program cannot be executed or found. Each comes with one line on stderr
that begins with `sandbox:`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

import click

from sandbox.cli.lazy import lazy_group
from sandbox.cli.text import complain
from sandbox.cli.waiting import Ended, die_of, flush_output
from sandbox.errors import SandboxException, WorkspaceRefused

__all__ = ["main"]

OURS = 125
_BROKEN_PIPE = 141  # as a shell reports SIGPIPE

# Name of the command, its module below `sandbox.cli` (and the attribute, where it is not
# `command`), its line in the help.
COMMANDS = {
    "run": ("run", "Run a command confined."),
    "compile": ("compile", "Compile a policy to a file, for sandcore-exec."),
    "exec-path": ("compile:path_command", "Where sandcore-exec is."),
    "policy": (
        "policy",
        "The policy in force and where it comes from; checks profiles.",
    ),
    "exec": ("exec", "Run one tool call of an agent: assessed, approved, confined, recorded."),
    "shell": ("shell", "A loop in which each line is one tool call."),
    "log": ("log", "What sessions recorded, and whether somebody changed it."),
    "trust": ("trust", "What was approved for good: list, add, remove."),
    "debug": ("debug", "Show what a policy compiles to, or run under one mechanism alone."),
    "doctor": ("checkup", "What this host offers, what it lacks, and how to mend it."),
    "bench": ("bench", "What confinement costs on this machine."),
}


def _version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from sandbox.cli.version import version_line

        click.echo(version_line())
        context.exit()


@click.group(
    cls=lazy_group(COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Version, and what this host confines with.",
)
def group() -> None:
    """Run commands confined by the operating system."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; the console script and `python -m sandbox` call it.

    `arguments` are those after the program's name, by default the process's own. Returns the exit
    status; does not return where a signal is to end this process.
    """
    fill_standard_streams()
    return guarded(lambda: _dispatch(arguments))


def _dispatch(arguments: Sequence[str] | None) -> int:
    words = None if arguments is None else list(arguments)
    done = group.main(args=words, prog_name="sandbox", standalone_mode=False)
    return done if isinstance(done, int) else 0


def guarded(call: Callable[[], int]) -> int:
    """The exit status of `call`, whatever comes out of it."""
    try:
        status = call()
        flush_output()
    except Ended as ended:
        die_of(ended.number)
    except SandboxException as error:
        hint = " (here: cd into it, or --read-only)" if isinstance(error, WorkspaceRefused) else ""
        complain(f"{error}{hint}")
        return error.exit_status
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return OURS
    except click.ClickException as error:
        complain(_usage(error))
        return OURS
    except (KeyboardInterrupt, click.Abort):
        die_of(signal.SIGINT)
    except (BrokenPipeError, SystemExit):  # click makes an exit of it
        # What is still buffered has no reader: it must not fail once more when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return _BROKEN_PIPE
    except Exception as error:  # a bug must not look like the command's own failure
        if isinstance(error, ImportError) and (error.name or str(error)).startswith("_sandcore"):
            complain(f"this is about the compiled core, which Linux alone has: {error}")
            return OURS
        import traceback

        traceback.print_exc()
        complain(f"this is a bug of sandbox: {type(error).__name__}: {error}")
        return OURS
    return status


def _usage(error: click.ClickException) -> str:
    """One line: what is wrong, and where the help is."""
    context = getattr(error, "ctx", None)
    name = context.command_path if context is not None else "sandbox"
    return f"{error.format_message().removesuffix('.')} (see `{name} --help`)"


def fill_standard_streams() -> None:
    """Opens /dev/null in the place of a standard stream that is closed.

    Or the next file that is opened becomes the command's standard output.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
