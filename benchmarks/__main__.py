"""The command: choose shapes and systems, measure, print, and with `--write` keep the page."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Sequence

from benchmarks.environments import EnvironmentFailedError, make_environment
from benchmarks.machine import describe_machine
from benchmarks.plot import PLOT_REQUIREMENTS, draw_plot
from benchmarks.registry import DEFAULT_PEERS, PEERS, QUICK_PEERS, ROOT
from benchmarks.report import render_page, render_table
from benchmarks.session import MeasurementFailedError, run_session
from benchmarks.shapes import QUICK_SHAPES, SHAPES

_QUICK_NOTE = (
    "quick: graphs of a few steps in this interpreter, only ourselves and the floors, one run each. "
    "It shows that the suite works and that no step is skipped; its times say nothing about speed.\n"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a session and return the exit code: 0, or 1 if a measurement or an installation failed."""
    options = _parse(arguments)
    chosen = QUICK_SHAPES if options.quick else SHAPES
    names = options.peer or (QUICK_PEERS if options.quick else DEFAULT_PEERS)
    peers = [peer for peer in PEERS.values() if peer.name in names]
    shapes = [shape for shape in chosen.values() if not options.shape or shape.name in options.shape]
    runs = 1 if options.quick else options.runs
    # Before our own processes are what the machine is busy with.
    machine = describe_machine()
    try:
        interpreters = {}
        for peer in peers:
            _tell(f"environment of {peer.name}")
            interpreters[peer.name] = (
                sys.executable if options.quick else make_environment(peer.name, peer.requirements)
            )
        plotter = make_environment("plot", PLOT_REQUIREMENTS) if options.write else None
        session = run_session(peers, shapes, runs=runs, interpreters=interpreters, tell=_tell)
    except (EnvironmentFailedError, MeasurementFailedError) as error:
        _tell(str(error))
        return 1
    sys.stdout.write("\n" + render_table(session))
    if options.quick:
        sys.stdout.write("\n" + _QUICK_NOTE)
    if plotter is not None:
        directory = os.path.join(ROOT, "docs")
        draw_plot(plotter, session.summaries, os.path.join(directory, "benchmarks.svg"))
        with open(os.path.join(directory, "benchmarks.md"), "w", encoding="utf-8") as file:
            file.write(render_page(session, machine, runs=runs))
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure astro_async and its peers side by side."
    )
    parser.add_argument("--quick", action="store_true", help="tiny graphs, to see that the suite works")
    parser.add_argument(
        "--shape", action="append", metavar="NAME", help=f"repeatable; default all: {', '.join(SHAPES)}"
    )
    optional = ", ".join(name for name in PEERS if name not in DEFAULT_PEERS)
    parser.add_argument(
        "--peer",
        action="append",
        metavar="NAME",
        help=f"repeatable; default: {', '.join(DEFAULT_PEERS)}; there are also {optional}",
    )
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="rounds (default 5)")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    options = parser.parse_args(arguments)
    if options.quick and options.write:
        parser.error("--quick measures nothing worth writing")
    if options.runs < 1:
        parser.error("--runs is 1 or more")
    known_shapes = QUICK_SHAPES if options.quick else SHAPES
    known_peers = QUICK_PEERS if options.quick else tuple(PEERS)
    _refuse_unknown(parser, "shape", options.shape, known_shapes)
    _refuse_unknown(parser, "peer", options.peer, known_peers)
    return options


def _refuse_unknown(
    parser: argparse.ArgumentParser, what: str, given: Sequence[str] | None, known: Collection[str]
) -> None:
    unknown = [name for name in given or () if name not in known]
    if unknown:
        parser.error(f"no {what} {', '.join(unknown)}; there are {', '.join(known)}")


def _tell(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
