"""Schema version 1: a journal and a manifest as they were written, readable for ever."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec

from astro_async._core.events import (
    AnyEvent,
    FileFlow,
    FileIngested,
    PartWritten,
    RowsPatched,
    RuleCount,
    RunCreated,
    RunFinished,
    RunIngested,
    RunPlanned,
    SavedFile,
    StatRecorded,
    StepBlocked,
    StepFinished,
    StepInterrupted,
    StepRetrying,
    StepSkipped,
    StepStarted,
    VersionsDropped,
    VersionWritten,
    dump_event,
    kind_of,
    parse_event,
)
from astro_async._core.manifest import dump_manifest, parse_manifest, restore_record, snapshot_record
from astro_async._core.names import RunId
from astro_async._core.records import IngestedFile, Patch, RunRecord, StepRecord, fold, start_record
from astro_async._core.status import RunStatus, StepStatus
from core.strategies import EVENTS

GOLDEN = Path(__file__).parent / "golden"
JOURNAL = (GOLDEN / "events-1.jsonl").read_bytes()
MANIFEST = (GOLDEN / "manifest-1.json").read_bytes()


def at(seq: int, time: str, step_id: str | None = None, attempt: int | None = None) -> dict[str, Any]:
    return {
        "seq": seq,
        "time": f"2026-01-02T{time}Z",
        "run_id": "abc12",
        "step_id": step_id,
        "attempt": attempt,
    }


LOADED = FileFlow(
    "scores",
    "ingested/scores.parquet",
    100,
    100,
    0,
    VersionWritten("versions/scores/load.2.parquet", 100, 5, 1300),
    saved=(
        SavedFile("processed/scores.parquet", "versions/scores/load.2.parquet", 1300),
        SavedFile("processed/copy.parquet", "versions/scores/load.2.2.parquet", 640),
    ),
)
VALIDATED = FileFlow(
    "scores",
    "versions/scores/load.2.parquet",
    100,
    97,
    3,
    VersionWritten("versions/scores/validate.1.parquet", 97, 5, 1290),
    parts=(
        PartWritten(
            "quarantine/validate/scores.part-00001.parquet",
            2,
            400,
            "quarantine/validate/scores.part-00001.rows",
        ),
        PartWritten("quarantine/validate/scores.part-00002.parquet", 1, 380),
    ),
    reasons={"negative score": 2, 'say "why"': 1},
)
TIDIED = (
    FileFlow("größe", "ingested/größe.parquet", 0, 0, 0, None, rows_filtered=0),
    FileFlow(
        "scores",
        "versions/scores/validate.1.parquet",
        97,
        90,
        0,
        VersionWritten("versions/scores/tidy.1.parquet", 90, 5, 1200),
        rows_filtered=7,
        filtered="filtered/tidy/scores.parquet",
    ),
)
EXPECTED: list[AnyEvent] = [
    RunCreated(
        **at(1, "03:04:05.000000"),
        pipeline_name="scores pipeline",
        source_directory="/data/in",
        run_date="2026-01-02",
        params={"threshold": 0.5, "labels": ["a", "b"], "strict": True, "note": None},
    ),
    FileIngested(
        **at(2, "03:04:05.000001"),
        name="scores",
        source_path="/data/in/scores.csv",
        source_size_bytes=2048,
        version=VersionWritten("ingested/scores.parquet", 100, 4, 1234),
    ),
    FileIngested(
        **at(3, "03:04:05.000002"),
        name="größe",
        source_path="/data/in/größe.csv",
        source_size_bytes=10,
        version=VersionWritten("ingested/größe.parquet", 0, 1, 99),
    ),
    RunIngested(**at(4, "03:04:06.000000")),
    RunPlanned(
        **at(5, "03:05:00.000000"),
        again={"new": ["load", "validate", "extra", "tidy", "report"]},
        params={"threshold": 0.5},
        jobs=2,
        pid=4242,
        host="worker-1",
    ),
    StepStarted(**at(6, "03:05:01.000000", "load", 1)),
    StepRetrying(
        **at(7, "03:05:02.000000", "load", 1),
        detail="retry at 2026-01-02T03:05:03.000000Z",
        error="ConnectionError: refused",
    ),
    StepStarted(**at(8, "03:05:03.000000", "load", 2)),
    StepFinished(
        **at(9, "03:05:04.000000", "load", 2),
        status=StepStatus.COMPLETE,
        duration_ms=1000.25,
        files=(LOADED,),
        stats=(StatRecorded("step", "load", "orders_matched", 97.0),),
    ),
    StepSkipped(**at(10, "03:05:04.000001", "extra"), detail="not delivered: extra"),
    StepStarted(**at(11, "03:05:05.000000", "validate", 1)),
    StepStarted(**at(12, "03:05:05.000001", "tidy", 1)),
    StepFinished(
        **at(13, "03:05:06.000000", "validate", 1),
        status=StepStatus.QUARANTINED,
        duration_ms=12.0,
        detail="3 of 100 rows of 'scores' quarantined",
        files=(VALIDATED,),
    ),
    StepBlocked(
        **at(14, "03:05:06.000001", "report"),
        detail="blocked by validate, which is quarantined",
    ),
    StepFinished(
        **at(15, "03:05:07.000000", "tidy", 1),
        status=StepStatus.COMPLETE,
        duration_ms=7.5,
        files=TIDIED,
    ),
    RunFinished(
        **at(16, "03:05:08.000000"),
        status=RunStatus.FAILED,
        duration_ms=8000.0,
    ),
    RunPlanned(
        **at(17, "04:00:00.000000"),
        again={"quarantined": ["validate"], "new": ["audit"], "blocked": ["report"], "input": ["tidy"]},
        params={"threshold": 0.75},
        jobs=1,
        pid=4343,
        host="worker-1",
        removed=["extra"],
        order=["load", "validate", "audit", "tidy", "report"],
    ),
    StepStarted(**at(18, "04:00:01.000000", "validate", 2)),
    StepFinished(
        **at(19, "04:00:02.000000", "validate", 2),
        status=StepStatus.FAILED,
        duration_ms=3.0,
        detail="RuleError: a rule is broken",
    ),
    StepStarted(**at(20, "04:00:03.000000", "audit", 1)),
    StepInterrupted(**at(21, "04:00:04.000000", "audit", 1), detail="interrupted"),
    RunFinished(
        **at(22, "04:00:05.000000"),
        status=RunStatus.INTERRUPTED,
        duration_ms=5000.5,
        detail="stopped by SIGTERM",
    ),
    VersionsDropped(
        **at(23, "05:00:00.000000"),
        paths=["versions/scores/tidy.1.parquet", "versions/größe/tidy.1.parquet"],
        size_bytes=1300,
    ),
    RowsPatched(
        **at(24, "06:00:00.000000", "validate"),
        file="scores",
        path="patches/validate/scores.1.parquet",
        rows=3,
        discarded=1,
        because="not ours",
    ),
    RowsPatched(
        **at(25, "06:00:01.000000", "validate"),
        file="scores",
        path="patches/validate/scores.2.parquet",
        rows=2,
        discarded=0,
    ),
]
RECORD = RunRecord(
    run_id=RunId("abc12"),
    pipeline_name="scores pipeline",
    status=RunStatus.INTERRUPTED,
    source_directory="/data/in",
    run_date="2026-01-02",
    params={"threshold": 0.75},
    created_at="2026-01-02T03:04:05.000000Z",
    ingested_at="2026-01-02T03:04:06.000000Z",
    files={
        "scores": IngestedFile(
            name="scores",
            source_path="/data/in/scores.csv",
            parquet_path="ingested/scores.parquet",
            row_count=100,
            column_count=4,
            source_size_bytes=2048,
            size_bytes=1234,
        ),
        "größe": IngestedFile(
            name="größe",
            source_path="/data/in/größe.csv",
            parquet_path="ingested/größe.parquet",
            row_count=0,
            column_count=1,
            source_size_bytes=10,
            size_bytes=99,
        ),
    },
    steps={
        "load": StepRecord(
            "load",
            StepStatus.COMPLETE,
            None,
            2,
            "2026-01-02T03:05:03.000000Z",
            "2026-01-02T03:05:04.000000Z",
            (LOADED,),
        ),
        "validate": StepRecord(
            "validate",
            StepStatus.FAILED,
            "RuleError: a rule is broken",
            2,
            "2026-01-02T04:00:01.000000Z",
            "2026-01-02T04:00:02.000000Z",
        ),
        "audit": StepRecord("audit", StepStatus.PENDING, "interrupted", 1),
        "tidy": StepRecord("tidy", StepStatus.PENDING, None, 1),
        "report": StepRecord("report", StepStatus.PENDING, None, 0),
    },
    removed={"extra": 0},
    detail="stopped by SIGTERM",
    seq=25,
    patches=[
        Patch(
            "validate",
            "scores",
            "patches/validate/scores.1.parquet",
            3,
            1,
            "not ours",
            "2026-01-02T06:00:00.000000Z",
        ),
        Patch(
            "validate",
            "scores",
            "patches/validate/scores.2.parquet",
            2,
            0,
            None,
            "2026-01-02T06:00:01.000000Z",
        ),
    ],
    dropped={"versions/scores/tidy.1.parquet", "versions/größe/tidy.1.parquet"},
    finished_at="2026-01-02T04:00:05.000000Z",
)


def test_every_kind_of_event_is_in_the_golden_journal() -> None:
    assert {kind_of(event) for event in EXPECTED} == set(EVENTS)


def test_the_golden_journal_is_read_exactly() -> None:
    assert [parse_event(line) for line in JOURNAL.splitlines()] == EXPECTED


def test_the_golden_journal_is_written_byte_for_byte() -> None:
    assert b"".join(dump_event(event) + b"\n" for event in EXPECTED) == JOURNAL


def test_the_golden_journal_folds_to_the_record() -> None:
    record = start_record(EXPECTED[0])
    for event in EXPECTED[1:]:
        fold(record, event)
    assert record == RECORD


def test_the_golden_manifest_is_read_exactly() -> None:
    manifest = parse_manifest(MANIFEST)
    assert restore_record(manifest) == RECORD
    assert manifest.journal_bytes == len(JOURNAL)
    assert manifest.step_counts == {"complete": 1, "failed": 1, "pending": 3}
    assert manifest.rows_quarantined == 0
    assert [file.active_path for file in manifest.ingested_files] == [
        "versions/scores/load.2.parquet",
        "ingested/größe.parquet",
    ]


def test_the_golden_manifest_is_written_byte_for_byte() -> None:
    assert (
        dump_manifest(snapshot_record(RECORD, journal_bytes=len(JOURNAL), journal_crc32=zlib.crc32(JOURNAL)))
        == MANIFEST
    )
    assert dump_manifest(parse_manifest(MANIFEST)) == MANIFEST


# Later than the golden files, and optional: journals with and without are of the same schema version.
CHECKED = (
    b'{"kind":"step_finished","seq":9,"time":"2026-01-02T03:04:05Z","run_id":"abc12","step_id":"check",'
    b'"attempt":1,"status":"quarantined","duration_ms":1.5,"files":[{"name":"scores",'
    b'"read":"ingested/scores.parquet","rows_in":3,"rows_out":2,"rows_quarantined":1,"published":'
    b'{"path":"versions/scores/check.1.parquet","rows":2,"columns":4,"size_bytes":900,"tail_crc32":4294967295},'
    b'"parts":[{"path":"quarantine/check/scores.part-00001.parquet","rows":1,"size_bytes":400,'
    b'"tail_crc32":17}],"saved":[{"name":"processed/a.parquet",'
    b'"path":"versions/scores/check.1.1.parquet","size_bytes":640,"tail_crc32":0}],'
    b'"reasons":{"negative score":1},"conserves_rows":true}]}'
)


def test_checksums_and_the_mark_of_a_check() -> None:
    event = parse_event(CHECKED)
    assert event == StepFinished(
        seq=9,
        time="2026-01-02T03:04:05Z",
        run_id="abc12",
        step_id="check",
        attempt=1,
        status=StepStatus.QUARANTINED,
        duration_ms=1.5,
        files=(
            FileFlow(
                "scores",
                "ingested/scores.parquet",
                3,
                2,
                1,
                VersionWritten("versions/scores/check.1.parquet", 2, 4, 900, 4294967295),
                parts=(PartWritten("quarantine/check/scores.part-00001.parquet", 1, 400, None, 17),),
                saved=(SavedFile("processed/a.parquet", "versions/scores/check.1.1.parquet", 640, 0),),
                reasons={"negative score": 1},
                conserves_rows=True,
            ),
        ),
    )
    assert dump_event(event) == CHECKED


def test_the_manifest_keeps_the_checksum_of_an_ingested_file() -> None:
    manifest = parse_manifest(MANIFEST)
    record = restore_record(manifest)
    file = record.files["scores"]
    assert file.tail_crc32 is None
    record.files["scores"] = msgspec.structs.replace(file, tail_crc32=17)
    checked = snapshot_record(record, journal_bytes=manifest.journal_bytes)
    assert restore_record(parse_manifest(dump_manifest(checked))) == record
    assert dump_manifest(checked).count(b'"tail_crc32":17') == 1


# Later still, and optional as well.
JUDGED = (
    b'{"kind":"step_finished","seq":9,"time":"2026-01-02T03:04:05Z","run_id":"abc12","step_id":"check",'
    b'"attempt":1,"status":"complete","duration_ms":1.5,"files":[{"name":"scores",'
    b'"read":"ingested/scores.parquet","rows_in":3,"rows_out":3,"rows_quarantined":0,"published":null,'
    b'"conserves_rows":true,"rules":[{"reason":"negative score","rows":0},'
    b'{"reason":"say \\"why\\"","rows":2,"severity":"warn"}]}]}'
)


def test_the_counts_of_rules() -> None:
    event = parse_event(JUDGED)
    assert isinstance(event, StepFinished)
    (flow,) = event.files
    assert flow.rules == (RuleCount("negative score", 0), RuleCount('say "why"', 2, "warn"))
    assert dump_event(event) == JUDGED
    # In a manifest as in the journal; the older ones, without, are read above.
    step = StepRecord("check", StepStatus.COMPLETE, files=(flow,))
    record = msgspec.structs.replace(restore_record(parse_manifest(MANIFEST)), steps={"check": step})
    manifest = snapshot_record(record, journal_bytes=1)
    assert restore_record(parse_manifest(dump_manifest(manifest))) == record


# Later still: what an ingest parks.
PARKED = (
    b'{"kind":"file_ingested","seq":2,"time":"2026-01-02T03:04:05Z","run_id":"abc12","name":"scores",'
    b'"source_path":"/data/in/scores.csv","source_size_bytes":48,"version":{"path":"ingested/scores.parquet",'
    b'"rows":2,"columns":2,"size_bytes":600},"rows_quarantined":3,"parts":[{"path":'
    b'"quarantine/ingest/scores.part-00001.parquet","rows":3,"size_bytes":900,"tail_crc32":17}],'
    b'"reasons":{"column \'id\': not Int64":3},"rows_in":5}'
)


def test_the_rows_that_an_ingest_parks() -> None:
    event = parse_event(PARKED)
    assert isinstance(event, FileIngested)
    part = PartWritten("quarantine/ingest/scores.part-00001.parquet", 3, 900, tail_crc32=17)
    assert (event.rows_quarantined, event.parts, event.rows_in) == (3, (part,), 5)
    assert dump_event(event) == PARKED
    run = start_record(EXPECTED[0])
    fold(run, event)
    assert run.files["scores"].parts == (part,)
    assert part.path in set(run.named_paths())
    manifest = snapshot_record(run, journal_bytes=1)
    assert restore_record(parse_manifest(dump_manifest(manifest))) == run


# Later still: a decision that is taken back.
WITHDRAWN = (
    b'{"kind":"rows_patched","seq":26,"time":"2026-01-02T06:00:02Z","run_id":"abc12","step_id":"validate",'
    b'"attempt":2,"file":"scores","path":"patches/validate/scores.3.parquet","rows":2,"discarded":0,'
    b'"because":"a slip","amended_waiting":1,"withdrawn":2,"withdrawn_waiting":1,"standing":3}'
)


def test_a_decision_that_is_taken_back() -> None:
    event = parse_event(WITHDRAWN)
    assert isinstance(event, RowsPatched)
    assert (event.withdrawn, event.withdrawn_waiting, event.standing) == (2, 1, 3)
    assert dump_event(event) == WITHDRAWN
    run = restore_record(parse_manifest(MANIFEST))
    fold(run, event)
    path = "patches/validate/scores.3.parquet"
    assert run.patches[-1] == Patch(
        "validate", "scores", path, 2, 0, "a slip", "2026-01-02T06:00:02Z", 2, 1, 0, 2, 1, 3
    )
    manifest = snapshot_record(run, journal_bytes=1)
    assert restore_record(parse_manifest(dump_manifest(manifest))) == run
