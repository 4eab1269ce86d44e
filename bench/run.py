"""`make bench`: what this package costs on this machine, as ratios within one run.

    bench/run.py [--quick] [--json FILE] [spawning] [staying] [dropin] [callers] [inside]
                 [launching] [flood] [many] [calls]

Prints a table for each part and saves all figures. A figure beside its target is met when its
median is on the right side; quartiles say how much the machine wavered.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import calls
import dropin
import flood
import inside
import launching
import many
import spawning
import staying
from measure import Figure
from rich.console import Console
from rich.table import Table

import sandbox

HERE = Path(__file__).resolve().parent
CALLERS = {
    "small": [],
    "2 GiB resident": ["--resident", "2"],
    "20,000 open files": ["--open", "20000"],
    "1,000 writable roots": ["--roots", "1000"],
}


def callers(rounds: int) -> list[Figure]:
    """The spawning figures in callers that are large in one way each, in turns."""
    found = []
    for title, options in CALLERS.items():
        words = [sys.executable, str(HERE / "spawning.py"), "--rounds", str(rounds), *options]
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
        for one in json.loads(done.stdout):
            found.append(Figure(**{**one, "name": f"{one['name']} ({title})", "target": None}))
    return found


PARTS: dict[str, tuple[str, Callable[[int], list[Figure]], int, int]] = {
    # title, what measures, rounds, rounds when in a hurry
    "spawning": (
        "One command, over the floor",
        lambda n: spawning.measure(n, 20, 0, "spawn"),
        40,
        5,
    ),
    "staying": ("Sandboxes that stay", staying.measure, 30, 4),
    "dropin": ("The drop-in, over subprocess itself", dropin.measure, 30, 4),
    "callers": ("The same in large callers", callers, 20, 3),
    "inside": ("While a command runs, beside outside", inside.measure, 15, 2),
    "launching": ("sandcore-exec, start to exit", launching.measure, 20, 3),
    "flood": ("Output", flood.measure, 9, 3),
    "calls": ("A tool call of a session, over the floor", calls.measure, 30, 4),
    "many": ("Many at a time, of the floor's throughput", many.measure, 9, 3),
}


def show(console: Console, title: str, figures: Sequence[Figure]) -> None:
    """A table of figures."""
    table = Table(title=title, title_justify="left")
    for heading in ("", "median", "quartiles", "target"):
        table.add_column(heading, justify="left" if not heading else "right")
    for one in figures:
        target = "" if one.target is None else f"{one.target:.2f}"
        table.add_row(one.name, f"{one.ratio:.2f}", f"{one.low:.2f} to {one.high:.2f}", target)
    console.print(table)


def main() -> None:
    """Measures the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="few rounds: a look, not a figure")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"))
    given = parser.parse_args()
    unknown = set(given.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    warnings.simplefilter("ignore", sandbox.SandboxWeakened)
    console = Console()
    saved: dict[str, object] = {"kernel": platform.release(), "python": platform.python_version()}
    for name in given.parts or PARTS:
        title, measure, rounds, few = PARTS[name]
        figures = measure(few if given.quick else rounds)
        show(console, title, figures)
        saved[name] = [one.as_dict() for one in figures]
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(saved, indent=1))
    console.print(f"saved in {given.json}")


if __name__ == "__main__":
    main()
