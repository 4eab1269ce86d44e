"""Groups of commands that are imported when they are called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

import click

__all__ = ["lazy_group"]


def lazy_group(table: Mapping[str, tuple[str, str]]) -> type[click.Group]:
    """A group with these commands, in this order.

    ``table``: the name of each, its module below `sandbox.cli` (and the attribute, where it is not
    `command`), its line in the help.
    """

    class LazyGroup(click.Group):
        def list_commands(self, ctx: click.Context) -> list[str]:
            return list(table)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            if cmd_name not in table:
                return None
            module, _, attribute = table[cmd_name][0].partition(":")
            found = getattr(import_module(f"sandbox.cli.{module}"), attribute or "command")
            assert isinstance(found, click.Command)
            return found

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            with formatter.section("Commands"):  # from the table: the help imports nothing
                formatter.write_dl([(name, line) for name, (_, line) in table.items()])

    return LazyGroup
