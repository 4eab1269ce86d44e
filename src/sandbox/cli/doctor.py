"""`sandbox doctor`: what this host offers, what it lacks, and the line that mends each."""

from __future__ import annotations

import dataclasses
import json
import sys

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sandbox.advice import Finding, confinable, findings
from sandbox.host import HostFacts, Probe, Reader, gather

MARKS = {"ok": "green", "info": "cyan", "warn": "yellow", "fail": "bold red"}


def verdict(found: tuple[Finding, ...], isolation: str) -> str:
    """The last line for people; ``isolation``: the strongest that could be had, or empty."""
    if not confinable(found):
        return "Commands cannot be confined on this host."
    count = sum(finding.level == "warn" for finding in found)
    how = f", isolation {isolation}" if isolation else ""
    warnings = f"; warnings: {count}" if count else ""
    return f"Commands can be confined on this host{how}{warnings}."


def as_document(facts: HostFacts, found: tuple[Finding, ...], isolation: str) -> str:
    """The findings as JSON."""
    document = {
        "schema": "sandbox-doctor/1",
        "confinable": confinable(found),
        "isolation": isolation if confinable(found) else "",
        "system": facts.system,
        "distribution": facts.distribution,
        "release": facts.release,
        "machine": facts.machine,
        "findings": [dataclasses.asdict(finding) for finding in found],
    }
    return json.dumps(document, indent=2)


def as_lines(found: tuple[Finding, ...], isolation: str) -> str:
    """The findings as plain text, for pipes: nothing is wrapped, so that mends can be copied."""
    lines = []
    for finding in found:
        lines.append(f"{finding.level:4}  {finding.id}: {finding.what}")
        lines.extend(f"      {label}: {text}" for label, text in details(finding))
    return "\n".join([*lines, verdict(found, isolation)])


def details(finding: Finding) -> list[tuple[str, str]]:
    """The labelled lines below a finding."""
    pairs = [("why", finding.why), ("mend", finding.mend)]
    return [(label, text) for label, text in pairs if text]


def as_table(found: tuple[Finding, ...]) -> Table:
    """The findings as a table for a terminal. The mends are not in it: cells wrap."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("", "part", "what", "why it matters"):
        table.add_column(title, overflow="fold")
    for finding in found:
        mark = Text(finding.level, style=MARKS[finding.level])
        table.add_row(mark, finding.id, Text(finding.what), Text(finding.why))
    return table


def show(found: tuple[Finding, ...], isolation: str) -> None:
    """Prints the table, then each mend on a line of its own that the terminal may wrap."""
    console = Console(highlight=False)
    console.print(as_table(found))
    for finding in found:
        if finding.mend:
            console.print(Text(f"\nto mend {finding.id}:", style=MARKS[finding.level]))
            console.print(Text(finding.mend), soft_wrap=True)
    console.print(Text(f"\n{verdict(found, isolation)}", style="bold"))


def doctor_command(
    probe: Probe | None,
    refusal: tuple[str, str] | None = None,
    *,
    as_json: bool = False,
    reader: Reader | None = None,
) -> int:
    """Prints what this host offers and lacks.

    probe: what the compiled core found by trying; None when there is none.
    refusal: why namespaces were refused when they were tried, and the mend; None: they were not.
    as_json: print one JSON document instead of text.
    reader: where the other facts come from; the host by default.
    Returns the exit status: 0 when commands can be confined here, else 1.
    """
    facts = gather(probe, reader)
    found = findings(facts)
    if refusal is not None and probe is not None and probe.userns:
        # The namespace can be made, and what belongs into it cannot.
        why = "isolation is `landlock` therefore"
        found = (*found, Finding("namespaces", "info", refusal[0], why, refusal[1]))
    if refusal is not None and facts.system == "Darwin" and confinable(found):
        why = "a profile was tried on a command that does nothing"
        found = (*found, Finding("profile", "fail", refusal[0], why, refusal[1]))
    isolation = "seatbelt" if facts.system == "Darwin" and confinable(found) else ""
    if probe is not None:
        isolation = "namespaces" if probe.userns and refusal is None else "landlock"
    if as_json:
        click.echo(as_document(facts, found, isolation))
    elif sys.stdout.isatty():
        show(found, isolation)
    else:
        click.echo(as_lines(found, isolation))
    return 0 if confinable(found) else 1
