"""Plots of a comparison, as SVG: who runs how many commands, and how evenly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["draw"]

OURS, STANDARD, PEERS = "#0b6e4f", "#888888", "#b4552d"


def draw(saved: dict[str, Any], place: Path) -> list[Path]:
    """Draws what a run has saved; the same figures give the same files. None without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return []

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "sandcore"
    matplotlib.rcParams["font.size"] = 9
    place.mkdir(parents=True, exist_ok=True)
    drawn = [_throughput(saved, place), _latency(saved, place), _tail(saved, place)]
    return [path for path in drawn if path is not None]


def _color(row: dict[str, Any]) -> str:
    return {"ours": OURS, "standard": STANDARD}.get(row["kind"], PEERS)


def _save(figure: Any, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    return path


def _throughput(saved: dict[str, Any], place: Path) -> Path:
    """Parts of the floor's throughput, by how many are in flight."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5))
    axes = figure.add_subplot()
    for row in saved["faces"]:
        points = sorted((int(most), one["of_floor"]) for most, one in row["runs"].items())
        if len(points) > 1:
            style = "-" if row["kind"] == "ours" else "--"
            xs, ys = zip(*points, strict=True)
            axes.plot(xs, ys, style, color=_color(row), marker=".", linewidth=1)
            axes.annotate(row["name"], (xs[-1], ys[-1]), fontsize=6, color=_color(row))
    axes.set_xscale("log", base=2)
    axes.set_xlabel("commands in flight")
    axes.set_ylabel("throughput, of the bare C floor's")
    axes.set_ylim(bottom=0)
    return _save(figure, place / "throughput.svg")


def _latency(saved: dict[str, Any], place: Path) -> Path:
    """One command at a time: median and 99th percentile, in floors."""
    from matplotlib.figure import Figure

    rows = sorted(
        (row for row in saved["faces"] if "1" in row["runs"]),
        key=lambda row: float(row["runs"]["1"]["p50"]),
        reverse=True,
    )
    figure = Figure(figsize=(8, 0.28 * len(rows) + 1))
    axes = figure.add_subplot()
    for at, row in enumerate(rows):
        one = row["runs"]["1"]
        axes.plot([one["p50"], one["p99"]], [at, at], color=_color(row), linewidth=1)
        axes.plot(one["p50"], at, "o", color=_color(row))
        refused = row.get("refused")
        count = f" ({sum(refused.values())} of {len(refused)})" if isinstance(refused, dict) else ""
        axes.annotate(f" {one['p50']:.1f}{count}", (one["p99"], at), fontsize=7, va="center")
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.set_xscale("log")
    axes.set_xlabel("one command, in floors: median to 99th percentile (probes refused)")
    axes.set_xlim(right=axes.get_xlim()[1] * 4)
    return _save(figure, place / "latency.svg")


def _tail(saved: dict[str, Any], place: Path) -> Path | None:
    """How evenly the most in flight are served."""
    from matplotlib.figure import Figure

    most = str(max((int(key) for row in saved["faces"] for key in row["runs"]), default=0))
    rows = [row for row in saved["faces"] if most in row["runs"]]
    if not rows:
        return None
    figure = Figure(figsize=(8, 0.3 * len(rows) + 1))
    axes = figure.add_subplot()
    axes.barh(
        [row["name"] for row in rows],
        [row["runs"][most]["p99"] for row in rows],
        color=[_color(row) for row in rows],
    )
    axes.set_xlabel(f"99th percentile with {most} in flight, of the floor's median with as many")
    return _save(figure, place / "tail.svg")
