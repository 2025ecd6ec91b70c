"""DuckDB: `store_rejects` keeps the errors of lines; what is true of a row is for the reader's own SQL."""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb  # type: ignore[import-not-found, unused-ignore]

from benchmarks.rules.task import LINES, Answer, tell

READ = """
SELECT id FROM read_csv(?, columns = {'id': 'BIGINT', 'score': 'DOUBLE', 'code': 'VARCHAR'},
    header = true, auto_detect = false, store_rejects = true)
"""


def main() -> None:
    """Read the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.csv")
        path.write_text(LINES)
        database = duckdb.connect()
        good = [row[0] for row in database.execute(READ, [str(path)]).fetchall()]
        bad = database.execute("SELECT DISTINCT line, csv_line FROM reject_errors ORDER BY line").fetchall()
    tell("duckdb", Answer(lines_good=good, lines_bad=[(line, text.rstrip("\n")) for line, text in bad]))


if __name__ == "__main__":
    main()
