"""Give the same bad rows and lines to this package and to others, and say what each makes of them.

    python -m benchmarks.rules --write

Writes `docs/benchmarks_rules.md`. The tools are installed in an environment of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from benchmarks.environments import EnvironmentFailedError, make_environment
from benchmarks.registry import ROOT
from benchmarks.rules.task import GOOD_IDS, ROWS

PAGE: Final = os.path.join(ROOT, "docs", "benchmarks_rules.md")
REQUIREMENTS: Final = (
    *("-e", ROOT),
    *("dataframely==3.1.2", "pandera[polars]==0.35.0", "pointblank==1.1.1", "polars==2.1.0"),
    *("dlt==1.31.0", "duckdb==2.0.1"),
)
TOOLS: Final = {
    "astro_async": "ours",
    "dataframely": "dataframely_schema",
    "pandera": "pandera_schema",
    "pointblank": "pointblank_steps",
    "dlt": "dlt_contract",
    "DuckDB": "duckdb_rejects",
    "Polars": "bare_polars",
}
JUDGES: Final = ("astro_async", "dataframely", "pandera", "pointblank", "dlt")
READERS: Final = ("astro_async", "DuckDB", "Polars")

Told = Mapping[str, Any]
Question = tuple[str, Callable[[Told], str]]


def main(arguments: list[str] | None = None) -> int:
    """Ask each tool, print the page, and write it if that is wanted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rules", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks_rules.md")
    options = parser.parse_args(arguments)
    try:
        interpreter = make_environment("rules", REQUIREMENTS)
        told = {tool: ask(interpreter, module) for tool, module in TOOLS.items()}
    except EnvironmentFailedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    page = render(told)
    sys.stdout.write(page)
    if options.write:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(page)
    return 0


def ask(interpreter: str, module: str) -> Told:
    """Return what a tool answers."""
    command = [interpreter, "-m", f"benchmarks.rules.{module}"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ROOT},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer: Told = json.loads(done.stdout.splitlines()[-1])
    return answer


# -- questions -----------------------------------------------------------------------------------


def tell_good(told: Told) -> str:
    """Say which rows are passed on."""
    if told["good"] == list(GOOD_IDS):
        return "the three, in order"
    twins = [each for each in told["good"] if each == 1]
    rest = [each for each in told["good"] if each != 1]
    return "the three, in order, and both twins" if len(twins) == 2 and rest == list(GOOD_IDS) else "others"


def tell_kept(told: Told) -> str:
    """Say how many of the bad rows are still there."""
    return f"{len(told['bad'])} of {len(ROWS) - len(GOOD_IDS)}"


def tell_reasons(told: Told) -> str:
    """Say how many reasons the row has that breaks two rules."""
    return next((f"{count} of 2" for each, count in told["bad"] if each == 5), "-")


def tell_lenient(id_: int) -> Callable[[Told], str]:
    """Say what becomes of null or NaN where null is allowed."""
    return lambda told: "bad" if id_ in told["bad_where_null_passes"] else "good"


def tell_positions(told: Told) -> str:
    """Say whether a bad row is told by its position."""
    return "yes" if told["positions"] else "no"


def tell_repaired(told: Told) -> str:
    """Say what becomes of corrected rows."""
    if told["repaired"] is None:
        return "no way"
    right = [row[0] for row in ROWS]
    corrected = iter(range(100, 200))
    right = [each if each in GOOD_IDS else next(corrected) for each in right]
    return "at their old places, once" if told["repaired"] == right else "elsewhere"


JUDGED: Final[tuple[Question, ...]] = (
    ("good rows passed on", tell_good),
    ("bad rows still there afterwards", tell_kept),
    ("reasons of the row that breaks two rules", tell_reasons),
    ("position of a bad row in the input", tell_positions),
    ("where null is allowed, null is", tell_lenient(3)),
    ("where null is allowed, NaN is", tell_lenient(4)),
    ("corrected rows, given back", tell_repaired),
)


def tell_lines_good(told: Told) -> str:
    """Say which lines are read."""
    return "nothing: an error" if told["refuses"] else f"{len(told['lines_good'])} of {len(GOOD_IDS)}"


def tell_lines_bad(told: Told) -> str:
    """Say which lines are kept, and whether good ones are among them."""
    if told["refuses"]:
        return "-"
    swallowed = sum(text.count("\n") for _, text in told["lines_bad"])
    among = f", the last with {swallowed} good lines in it" if swallowed else ""
    return f"{len(told['lines_bad'])} of 4{among}"


READ: Final[tuple[Question, ...]] = (
    ("good lines read", tell_lines_good),
    ("bad lines kept, with number and text", tell_lines_bad),
)


# -- the page ------------------------------------------------------------------------------------


def render_table(told: Mapping[str, Told], tools: tuple[str, ...], questions: tuple[Question, ...]) -> str:
    """Return a table with a column for each tool."""
    rows = [["", *(f"{tool} {told[tool]['version']}" for tool in tools)], ["---"] * (len(tools) + 1)]
    rows += [[text, *(answer(told[tool]) for tool in tools)] for text, answer in questions]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def render(told: Mapping[str, Told]) -> str:
    """Return the page."""
    return f"""# The same bad rows through other tools

<!-- Written by `python -m benchmarks.rules --write`: edit benchmarks/rules instead. -->

What other tools make of rows that break rules, and of lines that cannot be read. The first two tables
come from runs of the versions named there; the script is `benchmarks/rules`. The third comes from
documentation only.

## Rows

Nine rows: three good ones, two identical ones with the same id, a score below zero, one that is null, one
that is NaN, and one that breaks two rules at once. The rules: the id is unique, the score is there and
not below zero, the code is one of two.

{render_table(told, JUDGES, JUDGED)}

- dataframely returns the bad rows to its caller, and pointblank extracts in memory: to keep them, and to
  tell which run they are of, is left to you. pandera names them in its error; where it drops rows, they
  are gone. dlt loads the good rows and does not say what it left out.
- pointblank and dlt pass twins on. pointblank's extract of that rule has them; dlt has no rule about
  several rows.
- "No way" is no fault: these judge frames, and know of no run to take up again. `astro_async` takes the
  rules of dataframely and pandera schemas [as its own](quarantine.md#rules).

## Lines of a file

Seven lines: a value that is no number, a row too short, one too long, one with a quote that is never
closed, and good ones around them. dataframely, pandera and pointblank are given frames, so what reads the
file decides: here Polars, with `ignore_errors=True`. dlt is given rows.

{render_table(told, READERS, READ)}

## From documentation

These run within a service or on Spark, and were not run here.

| | DQX | Lakeflow expectations | Lakehouse Plumber |
|---|---|---|---|
| bad rows | a table, if one is named | passed on, dropped, or the update fails | a dead-letter table |
| reasons of a row | all | none; counts for each rule | all |
| warnings that block nothing | yes | yes | no |
| fix and run again | no | no | yes, from the dead-letter table |

```sh
python -m benchmarks.rules --write
```
"""


if __name__ == "__main__":
    sys.exit(main())
