"""`make demo`: a real project's tests, confined; then an agent that goes wrong; then the cost."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

from acts import ACTS
from costs import TESTS, compare
from rich.console import Console
from rich.table import Table
from rich.text import Text
from scene import SECRET_NAME, Scene, build

import sandbox


def check_home(scene: Scene) -> None:
    """Stops before anything dangerous is played, unless HOME is the scratch one in there."""
    said = sandbox.run('printf %s "$HOME"', sandbox.workspace_write(scene.project))
    if said.out != str(scene.home):
        raise SystemExit(f"error: HOME inside is {said.out!r}, not the scratch one: nothing is run")


def show_tests(console: Console, scene: Scene) -> bool:
    """Runs the project's own tests confined."""
    console.print(Text("\nThe project's own tests, confined", style="bold"))
    policy = sandbox.workspace_write(scene.project)
    result = sandbox.run(list(TESTS), policy, cwd=scene.project)
    lines = result.text.strip().splitlines() or ["(no output)"]
    console.print(Text(f"  {lines[-1]}"))
    how = result.enforcement
    console.print(Text(f"  isolation: {how.isolation}; took {result.duration:.2f} s"))
    for weaker in how.weaker:
        console.print(Text(f"  weaker: {weaker.part}: {weaker.cause}", style="dim"))
    return result.returncode == 0


def show_acts(console: Console, scene: Scene) -> list[str]:
    """Plays the acts; returns the titles of those that were not held."""
    console.print(Text("\nAn agent goes wrong", style="bold"))
    loose = []
    for number, act in enumerate(ACTS, 1):
        seen = act.play(scene, act.command)
        shown = act.command.format(seconds="300", process="PID")
        title = Text(f"\n{number}. It {act.title}: ")
        console.print(title + Text(shown, style="cyan"), soft_wrap=True)
        shown_well = seen.held and seen.done
        verdict = f"stopped by {seen.by}" if shown_well else "NOT STOPPED, OR NOT DONE OUTSIDE"
        style = "green" if shown_well else "bold red"
        console.print(Text("   inside:  ") + Text(verdict, style=style))
        console.print(Text(f"            {seen.evidence}", style="dim"), soft_wrap=True)
        console.print(Text(f"   outside: {seen.outside}"))
        if not shown_well:
            loose.append(act.title)
    return loose


def show_costs(console: Console, scene: Scene, rounds: int) -> None:
    """What it cost, beside the same runs without a sandbox."""
    console.print(Text("\nWhat confinement cost (medians, in turns)", style="bold"))
    table = Table()
    for name in ("command", "rounds", "outside", "inside", "ratio"):
        table.add_column(name, justify="left" if name == "command" else "right")
    for cost in (
        compare("the test suite", TESTS, scene.project, rounds),
        compare("true", ("true",), scene.project, rounds * 50),
    ):
        table.add_row(
            cost.name,
            str(cost.rounds),
            f"{cost.outside * 1000:.2f} ms",
            f"{cost.inside * 1000:.2f} ms",
            f"{cost.ratio:.2f}",
        )
    console.print(table)
    console.print(Text("outside: subprocess.run with captured output and a time-out", style="dim"))


def play(base: Path, rounds: int) -> int:
    """The whole demo below an empty directory; returns the exit status."""
    console = Console(highlight=False)
    scene = build(base)
    # What is weaker is listed with the tests' result.
    warnings.simplefilter("ignore", sandbox.SandboxWeakened)
    # From here on the caller is a person whose HOME and environment hold something to lose.
    os.environ["HOME"] = str(scene.home)
    os.environ[SECRET_NAME] = scene.mark
    console.print(Text(f"Project: {scene.project.name}, in a scratch directory with its own HOME"))
    check_home(scene)
    passed = show_tests(console, scene)
    loose = show_acts(console, scene)
    if passed:
        show_costs(console, scene, rounds)
    else:
        console.print(Text("\nThe project's tests failed inside.", style="bold red"))
    if loose:
        console.print(Text(f"\nNot shown to be stopped: {', '.join(loose)}.", style="bold red"))
    return 0 if passed and not loose else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the test suite (3)")
    rounds = parser.parse_args().rounds
    base = Path(tempfile.mkdtemp(prefix="sandcore-demo-")).resolve()
    try:
        return play(base, max(1, rounds))
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
