"""The picture of a session: for each graph, the microseconds a step of each system.

Run as a program it is the part that needs matplotlib, in an environment of its own: it reads rows as JSON
from the standard input and writes the file that it is given.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.registry import OURS, ROOT
from benchmarks.session import Summary

__all__ = ["PLOT_REQUIREMENTS", "draw_plot"]

PLOT_REQUIREMENTS: Final = ("matplotlib==3.11.2",)

_OURS_COLOUR: Final = "#c2410c"
_DURABLE_COLOUR: Final = "#1e3a5f"
_OTHER_COLOUR: Final = "#94a3b8"
_COLUMNS: Final = 3


def draw_plot(interpreter: str, summaries: Sequence[Summary], path: str) -> None:
    """Have the interpreter of the plot's environment draw the summaries into an SVG or PNG file."""
    rows = [
        {
            "shape": summary.shape.name,
            "system": summary.peer.text,
            "us": summary.us_per_step,
            "colour": _colour(summary),
        }
        for summary in summaries
    ]
    command = [interpreter, "-m", "benchmarks.plot", path]
    subprocess.run(command, input=json.dumps(rows), text=True, check=True, cwd=ROOT)


def _colour(summary: Summary) -> str:
    if summary.peer.name == OURS:
        return _OURS_COLOUR
    return _OTHER_COLOUR if summary.peer.is_durable in ("no", "files only") else _DURABLE_COLOUR


def _draw(rows: Sequence[dict[str, Any]], path: str) -> None:
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("agg")
    # The same rows give the same file.
    matplotlib.rcParams.update({"svg.hashsalt": "benchmarks", "svg.fonttype": "none", "font.size": 8})
    pyplot = importlib.import_module("matplotlib.pyplot")
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    height = -(-len(shapes) // _COLUMNS)
    figure, grid = pyplot.subplots(height, _COLUMNS, figsize=(12, 2.3 * height), squeeze=False)
    for axes in grid.flat:
        axes.set_visible(False)
    for axes, shape in zip(grid.flat, shapes, strict=False):
        axes.set_visible(True)
        bars = sorted((row for row in rows if row["shape"] == shape), key=lambda row: -row["us"])
        drawn = axes.barh([row["system"] for row in bars], [row["us"] for row in bars])
        for bar, row in zip(drawn, bars, strict=True):
            bar.set_color(row["colour"])
        axes.bar_label(drawn, [f" {row['us']:,.0f}" for row in bars])
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xlim(1, max(row["us"] for row in rows) * 8)
        axes.set_title(shape, loc="left", fontweight="bold")
        axes.spines[["top", "right"]].set_visible(False)
    legend = {"astro_async": _OURS_COLOUR, "durable": _DURABLE_COLOUR, "not durable": _OTHER_COLOUR}
    patches = importlib.import_module("matplotlib.patches")
    handles = [patches.Patch(color=colour, label=label) for label, colour in legend.items()]
    figure.legend(handles=handles, loc="upper right", ncols=3, frameon=False)
    figure.suptitle("microseconds a step, logarithmic: shorter is better", x=0.01, ha="left")
    figure.tight_layout()
    figure.savefig(path, dpi=80, metadata={"Date": None} if path.endswith(".svg") else None)


if __name__ == "__main__":
    _draw(json.load(sys.stdin), sys.argv[1])
