"""A bar for people who wait, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sized
from typing import TypeVar

__all__ = ["shown"]

T = TypeVar("T")


def shown(items: Iterator[T], of: object, what: str) -> Iterator[T]:
    """The items, with a bar on stderr while they come, where that is a terminal.

    ``of``: what has as many, if it knows how many.
    """
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=len(of) if isinstance(of, Sized) else None)
        for item in items:
            bar.advance(task)
            yield item
