"""`sandbox log`: what sessions did, and whether the log of it is as it was written."""

from __future__ import annotations

import json
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

import click

from sandbox.cli.records import shown
from sandbox.cli.text import complain
from sandbox.printed import printable
from sandbox.session.chain import Line, Reader, Verified, verify
from sandbox.session.events import KINDS

__all__ = ["command"]

_LOOK_AGAIN = 0.2  # seconds between two looks at a log that is followed
_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_directory = click.argument("directory", metavar="[DIR]", required=False)


def _when(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """Seconds since 1970 of a time that a person wrote."""
    if value is None:
        return None
    if ago := _AGO.fullmatch(value):
        return time.time() - float(ago[1]) * _SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError):
        forms = "2026-01-31, 2026-01-31T14:05, or so long ago: 90s, 10m, 2h, 3d"
        raise click.BadParameter(f"{value!r} is no time: {forms}") from None


@click.group("log")
def command() -> None:
    """Show what sessions recorded, and check that nobody changed it.

    DIR is the directory of a log, by default the user's own.
    """


@command.command("show")
@_directory
@click.option("--session", metavar="ID", help="Of this session; the beginning of its id is enough.")
@click.option(
    "--event", "events", multiple=True, type=click.Choice(list(KINDS)), help="Of this kind."
)
@click.option(
    "--since", callback=_when, metavar="WHEN", help="Not before: a date, a time, 10m, 2h."
)
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N of them.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is written from now on.")
@click.option("--json", "as_json", is_flag=True, help="The lines as they are in the log.")
def show(
    directory: str | None,
    session: str | None,
    events: tuple[str, ...],
    since: float | None,
    last: int | None,
    follow: bool,
    as_json: bool,
) -> int:
    """Show records, one in a line. Does not check them: see `sandbox log verify`."""

    def wanted(line: Line) -> bool:
        record = line.record
        if record is None:
            return True  # whatever it is, it is not to be overlooked
        return (
            (not session or record.session.startswith(session))
            and (not events or record.__struct_config__.tag in events)
            and (since is None or record.time >= since)
        )

    put = _put_json if as_json else _printer()
    with Reader(directory) as reader:
        found: Iterable[Line] = filter(wanted, reader.lines())
        for line in found if last is None else deque(found, last):
            put(line)
        for line in _follow(reader) if follow else ():
            if wanted(line):
                put(line)
    return 0


def _follow(reader: Reader) -> Iterator[Line]:
    """What is written from now on, for ever."""
    while True:
        time.sleep(_LOOK_AGAIN)
        yield from reader.lines()


def _put_json(line: Line) -> None:
    if line.record is None:
        complain(f"segment {line.segment} line {line.number} is no record")
    else:
        click.echo(line.raw, nl=False)


def _printer() -> Callable[[Line], None]:
    if not sys.stdout.isatty():

        def plain(line: Line) -> None:
            where, event, what, _ = shown(line)
            click.echo(f"{where} {event} {what}")

        return plain

    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)

    def coloured(line: Line) -> None:
        where, event, what, bad = shown(line)
        parts = ((f"{where} ", "dim"), (event, "bold"), (f" {what}", "red" if bad else ""))
        console.print(Text.assemble(*parts), soft_wrap=True)

    return coloured


@command.command("verify")
@_directory
@click.option("--expect", metavar="HASH", help="The digest of a head that was kept elsewhere.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def check(directory: str | None, expect: str | None, as_json: bool) -> int:
    """Check that no record was changed, removed, moved or put in. Exits with 1 if one was.

    Who can write to the log can forge all of it. Keep the digest of the head that is printed in
    another place, and give it to --expect later: every record up to it is then as it was.
    """
    found = verify(directory, expect)
    click.echo(json.dumps(_document(found)) if as_json else _text(found))
    return 0 if found.ok else 1


def _document(found: Verified) -> dict[str, object]:
    return {
        "schema": "sandbox-log-verify/1",
        "ok": found.ok,
        "records": found.records,
        "segments": found.segments,
        "head": found.head,
        "recovered": found.recovered,
        "wrong": found.wrong,
        "problems": [problem._asdict() for problem in found.problems],
    }


def _text(found: Verified) -> str:
    lines = []
    for segment, line, what in found.problems:
        where = f"segment {segment} line {line}: " if line else f"segment {segment}: "
        lines.append(printable((where if segment else "") + what))
    if found.wrong > len(found.problems):
        lines.append(f"and {found.wrong - len(found.problems)} more")
    lines.append(f"{'in order' if found.ok else 'NOT in order'}: {found.records} records")
    lines[-1] += f" in {found.segments} segments, put right {found.recovered} times"
    lines.append(f"head {found.head}")
    return "\n".join(lines)
