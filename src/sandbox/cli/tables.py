"""What `sandbox debug` shows: tables on a terminal, plain lines in a pipe, from the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandbox.printed import printable
from sandbox.result import Weaker

if TYPE_CHECKING:
    from rich.table import Table

    from sandbox.backends.explain import LandlockView, MountView, SeccompView

__all__ = [
    "Section",
    "as_table",
    "as_text",
    "landlock_sections",
    "mount_sections",
    "seccomp_sections",
    "show",
]

_WIDEST = 60  # characters to which a column of plain text is padded

Row = tuple[str, ...]
Section = tuple[str, Sequence[str], Sequence[Row]]  # title, names of the columns, rows


def landlock_sections(view: LandlockView, tmp: str) -> list[Section]:
    """What is handled, what each class of rule grants, the rules, and what is not enforced.

    `tmp` is the private temporary directory, which differs from one sandbox to the next.
    """
    if not view.handled:
        return [("Nothing is confined under this policy.", (), ())]
    handled = [
        ("files", ", ".join(view.handled)),
        ("network", ", ".join(view.network) or "not handled"),
        ("scopes", ", ".join(view.scopes) or "none"),
    ]
    grants = {(rule.access, _kind(rule.directory)): ", ".join(rule.rights) for rule in view.rules}
    rules = [
        (rule.access, _kind(rule.directory), "(private TMPDIR)" if rule.path == tmp else rule.path)
        for rule in view.rules
    ]
    weaker = [(part.part, part.cause, part.mend) for part in view.weaker]
    return [
        (f"Landlock ABI {view.abi}: refused unless a rule allows it", ("", "rights"), handled),
        (
            "What a rule allows, by class",
            ("class", "on", "rights"),
            [(*key, rights) for key, rights in sorted(grants.items())],
        ),
        (f"Rules: {len(rules)}", ("class", "on", "path"), rules),
        ("Not enforced", ("part", "cause", "mend"), weaker),
    ]


_MOUNTS = {
    "write": "writable",
    "read": "read-only",
    "socket": "a socket of the host, may be connected to",
    "pin": "cannot be renamed",
    "mask": "hidden",
    "hollow": "empty but for what is shown in it",
    "scratch": "private, writable",
    "devices": "private: the usual devices, own terminals",
    "proc": "private: own processes",
}


def mount_sections(views: Sequence[MountView], weaker: Sequence[Weaker]) -> list[Section]:
    """What is mounted on top of the host's tree, which is read-only, and what is not enforced."""
    if not views:
        return [("Nothing is confined under this policy.", (), ())]
    rows = [
        (_MOUNTS[view.kind] + (f", {view.size >> 20} MiB" if view.size else ""), view.path)
        for view in views
    ]
    parts = [(part.part, part.cause, part.mend) for part in weaker]
    return [
        (f"All else is the host's, read-only. Mounts: {len(rows)}", ("what", "path"), rows),
        ("Not enforced", ("part", "cause", "mend"), parts),
    ]


def _kind(directory: bool) -> str:
    return "directory" if directory else "file"


def seccomp_sections(view: SeccompView) -> list[Section]:
    """What is refused, what arguments decide, and how long the program is."""
    if not view.program:
        return [("Nothing is filtered under this policy.", (), ())]
    here = [call for call in view.calls if call.number >= 0]
    refused = [
        (call.name, str(call.number), call.action, call.reason)
        for call in here
        if call.action in ("EPERM", "ENOSYS")
    ]
    ruled = [
        (call.name, str(call.number), call.rule, call.reason)
        for call in here
        if call.action == "rule"
    ]
    allowed = sum(call.action == "allow" for call in here)
    head = (
        f"Filter of {len(view.program)} instructions, network {view.network}; "
        f"allowed: {allowed} calls; all that are not reviewed: ENOSYS"
    )
    return [
        (head, (), ()),
        (f"Refused: {len(refused)}", ("call", "number", "errno", "reason"), refused),
        (
            f"Decided by arguments, else EPERM: {len(ruled)}",
            ("call", "number", "allowed", "reason"),
            ruled,
        ),
    ]


def as_text(sections: Sequence[Section]) -> str:
    """Plain text: columns in line, nothing wrapped, so that `grep` finds whole rows."""
    blocks = []
    for title, names, rows in sections:
        lines = [title]
        cells = [tuple(printable(cell) for cell in row) for row in rows]
        columns = list(zip(*cells, strict=True)) if cells else [()] * len(names)
        widths = [min(_WIDEST, max(map(len, column), default=0)) for column in columns]
        for row in cells:
            padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            lines.append("  " + "  ".join(padded).rstrip())
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def as_table(names: Sequence[str], rows: Sequence[Row]) -> Table:
    """A table for a terminal; no cell is read as markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in names:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*[Text(printable(cell)) for cell in row])
    return table


def show(sections: Sequence[Section]) -> None:
    """Prints sections as tables on this terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for index, (title, names, rows) in enumerate(sections):
        console.print(Text(("\n" if index else "") + title, style="bold"))
        if rows:
            console.print(as_table(names, rows))
