"""How long the prompt waits: `astro --help` beside `--help` of a bare Typer program of two commands.

Both are started in turn, so that a noisy machine disturbs both alike; the ratio of the medians counts.
Run as `python -m benchmarks.prompt [ROUNDS]`.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Final

BARE: Final = '''
import typer

app = typer.Typer(rich_markup_mode=None)


@app.command()
def one() -> None:
    """Do one thing."""


@app.command()
def two() -> None:
    """Do another."""


app()
'''


def measure(command: Sequence[str], cwd: str) -> tuple[float, float]:
    """Return the seconds that a command took by the clock, and of processor time."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL)
    elapsed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print a line for each command, with its ratio to the bare program."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as folder:
        bare = os.path.join(folder, "bare.py")
        with open(bare, "w", encoding="utf-8") as file:
            file.write(BARE)
        astro = [sys.executable, "-m", "astro_async"]
        commands = {
            "bare --help": [sys.executable, bare, "--help"],
            "astro --help": [*astro, "--help"],
            "astro list": [*astro, "list"],
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for number in range(rounds + 1):
            for name, command in commands.items():
                taken = measure(command, folder)
                if number:  # the first round compiles
                    found[name].append(taken)
    base = [statistics.median(column) for column in zip(*found["bare --help"], strict=True)]
    print(f"{'':<14}{'elapsed':>9}{'ratio':>7}{'cpu':>9}{'ratio':>7}   medians of {rounds}")
    for name, pairs in found.items():
        clock, cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"{name:<14}{clock:>8.3f}s{clock / base[0]:>7.2f}{cpu:>8.3f}s{cpu / base[1]:>7.2f}")


if __name__ == "__main__":
    main()
