"""An ingest that parks rows: what is recorded, told, verified and kept, and that the run goes on."""

from __future__ import annotations

import stat
from pathlib import Path

import polars as pl
import pytest

from astro_async import Verification, verify
from astro_async._store.layout import list_run_ids
from astro_async.reading import read_run
from cli.commands import HEAD, astro, document, write_pipeline

PARKING_FILE = (
    HEAD.replace("pl.Int64})]", 'pl.Int64}, on_bad_rows="quarantine", max_bad_rows=3, private=PRIVATE)]')
    + """
PRIVATE
class P(Pipeline):
    name = "scores"
    ingest_files = FILES

    def configure_steps(self):
        self.add_check("Check", expect("score must not be negative", pl.col("score") >= 0), Scores)

pipeline = P()
"""
)
SOURCE = "id,score\n1,5\nx,6\n3,7,8\n4\n5,9\n"
PART = "quarantine/ingest/scores.part-00001.parquet"
BAD_ID = "column 'id': not Int64"
FEW, MANY = (f"too {how} fields: the file has 2 columns" for how in ("few", "many"))
REASONS = {BAD_ID: 1, MANY: 1, FEW: 1}


def make_project(folder: Path, source: str = SOURCE, *, private: bool = False) -> Path:
    write_pipeline(folder, PARKING_FILE.replace("\nPRIVATE\n", "\n").replace("PRIVATE", str(private)))
    (folder / "source").mkdir()
    (folder / "source/scores.csv").write_text(source)
    return folder


def ingest(folder: Path) -> tuple[str, Path]:
    run_id = str(document("ingest", folder / "source", "-C", folder, code=3)["run_id"])
    return run_id, folder / ".working" / run_id


def look(folder: Path, run_id: str) -> Verification:
    return verify(folder, run_id)


def test_what_an_ingest_parks_is_recorded_and_told(tmp_path: Path) -> None:
    make_project(tmp_path)
    result = astro("ingest", tmp_path / "source", "-C", tmp_path, code=3)
    assert "ingested scores: 2 rows" in result.stdout
    assert "3 rows parked" in result.stdout
    (run_id,) = list_run_ids(str(tmp_path))
    root = tmp_path / ".working" / run_id
    file = read_run(tmp_path, run_id).files["scores"]
    assert (file.row_count, file.rows_quarantined, file.rows_in) == (2, 3, 5)
    assert file.reasons == REASONS
    assert [(part.path, part.rows) for part in file.parts] == [(PART, 3)]
    parked = pl.read_parquet(root / PART)
    assert parked.rows() == [
        ("scores.csv", 3, 4, "x,6", BAD_ID),
        ("scores.csv", 4, 5, "3,7,8", MANY),
        ("scores.csv", 5, 6, "4", FEW),
    ]
    assert stat.S_IMODE((root / PART).stat().st_mode) == 0o444
    assert pl.read_parquet(root / "ingested/scores.parquet").rows() == [(1, 5), (5, 9)]
    (listed,) = document("quarantine", "list", run_id, "-C", tmp_path)["quarantine"]
    assert listed["step_id"] == "ingest"
    assert (listed["rows"], listed["rows_in"], listed["reasons"]) == (3, 5, REASONS)
    (shown,) = document("quarantine", "show", run_id, "ingest", "-C", tmp_path)["files"]
    assert [row["raw_text"] for row in shown["rows"]] == ["x,6", "3,7,8", "4"]
    assert [row["line"] for row in shown["rows"]] == [3, 4, 5]
    (counted,) = document("quarantine", "stats", run_id, "-C", tmp_path)["quarantine"]
    assert counted["rows_undecided"] == 3
    (shown_file,) = document("show", run_id, "-C", tmp_path)["ingested_files"]
    assert (shown_file["rows_quarantined"], shown_file["rows_in"]) == (3, 5)
    lines = astro("show", run_id, "-C", tmp_path).stdout.splitlines()
    assert any(line.split()[:5] == ["ingest", "quarantined", "5", "2", "3"] for line in lines), lines
    statistics = document("stats", run_id, "-C", tmp_path)["statistics"]
    numbers = {(each["subject"], each["action"]): each["value"] for each in statistics}
    assert numbers["scores", "rows_quarantined"] == 3


def test_parked_rows_do_not_hold_up_the_run(tmp_path: Path) -> None:
    run_id, root = ingest(make_project(tmp_path))
    before = (root / PART).read_bytes()
    astro("run", run_id, "-C", tmp_path, code=0)
    assert read_run(tmp_path, run_id).status.value == "completed"
    assert (root / PART).read_bytes() == before
    assert look(tmp_path, run_id).findings == ()


def test_the_exit_code_can_be_waived(tmp_path: Path) -> None:
    make_project(tmp_path)
    astro("ingest", tmp_path / "source", "-C", tmp_path, "--allow-quarantined", code=0)


def test_a_check_says_how_many_rows_would_be_parked(tmp_path: Path) -> None:
    make_project(tmp_path)
    check = ("ingest", "--check", tmp_path / "source", "-C", tmp_path)
    (file,) = document(*check, "--allow-quarantined")["files"]
    assert (file["rows"], file["rows_quarantined"], file["problems"]) == (2, 3, [])
    assert "3 rows would be parked" in astro(*check, code=3).stdout


def test_more_than_the_limit_leaves_nothing_behind(tmp_path: Path) -> None:
    make_project(tmp_path, SOURCE + "y,1\n")
    result = astro("ingest", tmp_path / "source", "-C", tmp_path, code=1)
    assert "4 of 6 rows would be" in result.stderr
    assert "max_bad_rows=3" in result.stderr
    assert list((tmp_path / ".working").iterdir()) == []


def test_parked_rows_of_a_private_file_are_for_their_owner(tmp_path: Path) -> None:
    _, root = ingest(make_project(tmp_path, private=True))
    assert stat.S_IMODE((root / PART).stat().st_mode) == 0o600


def test_lines_that_could_not_be_read_are_not_for_the_desk(tmp_path: Path) -> None:
    run_id, _ = ingest(make_project(tmp_path))
    result = astro(
        "quarantine", "export", run_id, "ingest", "-o", tmp_path / "x.csv", "-C", tmp_path, code=None
    )
    assert result.exit_code != 0
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize("fault", ["missing", "changed", "other rows"])
def test_verify_finds_what_is_wrong_with_a_part(fault: str, tmp_path: Path) -> None:
    run_id, root = ingest(make_project(tmp_path))
    assert look(tmp_path, run_id).faults == ()
    part = root / PART
    whole = pl.read_parquet(part)
    part.unlink()
    if fault == "changed":
        part.write_bytes(b"PAR1 nothing PAR1")
    elif fault == "other rows":
        whole.head(1).write_parquet(part)
    faults = look(tmp_path, run_id).faults
    assert [each.path for each in faults] == [PART]
    assert faults[0].kind.value == ("missing" if fault == "missing" else "changed")


def test_another_part_is_litter(tmp_path: Path) -> None:
    run_id, root = ingest(make_project(tmp_path))
    other = root / "quarantine/ingest/scores.part-00002.parquet"
    other.write_bytes(b"")
    found = look(tmp_path, run_id).findings
    assert [(each.kind.value, each.path) for each in found] == [("litter", str(other.relative_to(root)))]
