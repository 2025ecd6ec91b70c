"""Whatever stands in a manifest or a journal, an error of ours comes of it or a valid object."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from astro_async import list_runs, read_run
from astro_async._core.events import dump_event, parse_event
from astro_async._core.lineage import active_versions, named_by
from astro_async._core.manifest import (
    Manifest,
    ManifestHead,
    dump_manifest,
    parse_head,
    parse_manifest,
    restore_record,
    snapshot_record,
)
from astro_async._core.records import RunRecord, fold, start_record
from astro_async._store.journal import read_run as read_directory
from astro_async._store.lock import read_holder
from astro_async.exceptions import AstroError

GOLDEN = Path(__file__).parent.parent / "core" / "golden"
JOURNAL = (GOLDEN / "events-1.jsonl").read_bytes()
DOCUMENT = (GOLDEN / "manifest-1.json").read_bytes()
LINES = JOURNAL.splitlines()

# What no reader expects in the place of anything.
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    2**64,
    -(2**63) - 1,
    10**400,
    1e308,
    0.5,
    "",
    "x" * 10_000,
    "\0",
    "../../etc/x",
    "\ud800",
    [],
    {},
    [[]],
    {"a": {}},
    [None] * 100,
]


def replace_somewhere(value: Any, dice: random.Random) -> Any:
    """Return a JSON value with something odd, or nothing, in one place."""
    if isinstance(value, dict) and value and dice.random() < 0.9:
        key = dice.choice(sorted(value))
        if dice.random() < 0.1:
            return {name: value[name] for name in value if name != key}
        return {**value, key: replace_somewhere(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.9:
        at = dice.randrange(len(value))
        return [*value[:at], replace_somewhere(value[at], dice), *value[at + 1 :]]
    return dice.choice(ODD)


def dump(value: Any) -> bytes:
    """Return JSON, whatever the text in it."""
    return json.dumps(value, ensure_ascii=True).encode()


def mutate(content: bytes, dice: random.Random) -> bytes:
    """Return bytes with a flip, a cut, a repetition, an insertion or a deep nesting."""
    at = dice.randrange(len(content) + 1)
    match dice.randrange(7):
        case 0:
            return content[:at] + bytes([dice.randrange(256)]) + content[at + 1 :]
        case 1:
            return content[:at]
        case 2:
            return content[:at] + content[at // 2 :]
        case 3:
            return content[:at] + dice.randbytes(dice.randrange(1, 20)) + content[at:]
        case 4:
            return content[:at] + b"\0" * dice.randrange(1, 100) + content[at + 5 :]
        case 5:
            return content[:at] + dice.choice([b"[", b'{"a":']) * 50_000 + content[at:]
        case _:
            return (
                content[:at] + dice.choice([b"\xff\xfe", b"\xed\xa0\x80", b"1" * 5_000, b"\n"]) + content[at:]
            )


seeds = st.integers(0, 2**32)
many = settings(max_examples=300, deadline=None)


def fold_all(lines: list[bytes]) -> RunRecord | None:
    """Fold lines as a reader does."""
    run: RunRecord | None = None
    for line in lines:
        event = parse_event(line)
        if run is None:
            run = start_record(event)
        else:
            fold(run, event)
    return run


@many
@given(st.binary(max_size=300))
def test_random_bytes(content: bytes) -> None:
    for parse in (parse_event, parse_manifest, parse_head):
        with pytest.raises(AstroError):
            parse(content)


@many
@given(seeds)
def test_mutated_lines(seed: int) -> None:
    dice = random.Random(seed)
    line = mutate(dice.choice(LINES), dice)
    try:
        event = parse_event(line)
    except AstroError:
        return
    # What was read can be written, and read again.
    assert parse_event(dump_event(event)) == event


@many
@given(seeds)
def test_odd_values_in_lines(seed: int) -> None:
    dice = random.Random(seed)
    value = json.loads(dice.choice(LINES))
    for _ in range(dice.randrange(1, 4)):
        value = replace_somewhere(value, dice)
    try:
        event = parse_event(dump(value))
    except AstroError:
        return
    assert parse_event(dump_event(event)) == event


@many
@given(seeds)
def test_journals_with_lines_mutated_repeated_dropped_and_in_another_order(seed: int) -> None:
    dice = random.Random(seed)
    lines = list(LINES)
    for _ in range(dice.randrange(1, 4)):
        at, other = dice.randrange(len(lines)), dice.randrange(len(lines))
        match dice.randrange(5):
            case 0:
                lines.insert(at, lines[other])
            case 1:
                del lines[at]
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines[at] = dump(replace_somewhere(json.loads(LINES[at % len(LINES)]), dice))
            case _:
                lines[at] = mutate(lines[at], dice)
    try:
        run = fold_all(lines)
    except AstroError:
        return
    check_record(run)


@many
@given(seeds)
def test_odd_values_in_manifests(seed: int) -> None:
    dice = random.Random(seed)
    value = json.loads(DOCUMENT)
    for _ in range(dice.randrange(1, 4)):
        value = replace_somewhere(value, dice)
    check_manifest(dump(value))


@many
@given(seeds)
def test_mutated_manifests(seed: int) -> None:
    check_manifest(mutate(DOCUMENT, random.Random(seed)))


def check_manifest(document: bytes) -> None:
    """A manifest is refused, or the record it stands for can be used."""
    with contextlib.suppress(AstroError):
        parse_head(document.splitlines(keepends=True)[0] if document else b"")
    try:
        manifest = parse_manifest(document)
    except AstroError:
        return
    check_record(restore_record(manifest))


def check_record(run: RunRecord | None) -> None:
    """A record that was accepted does what records do."""
    if run is None:
        return
    active_versions(run)
    named_by(run)
    assert parse_manifest(dump_manifest(snapshot_record(run, journal_bytes=0)))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=seeds)
def test_a_run_directory_of_damaged_records(seed: int, tmp_path: Path) -> None:
    """As readers of a pipeline directory see it, the list of all runs among them."""
    dice = random.Random(seed)
    directory = tmp_path / ".working" / "abc12"
    directory.mkdir(parents=True, exist_ok=True)
    journal, document = JOURNAL, DOCUMENT
    if dice.random() < 0.8:
        journal = mutate(journal, dice)
    if dice.random() < 0.8:
        document = mutate(document, dice)
    (directory / "events.jsonl").write_bytes(journal)
    (directory / "manifest.json").write_bytes(document)
    with contextlib.suppress(AstroError):
        check_record(read_run(tmp_path, "abc12"))
    with contextlib.suppress(AstroError):
        check_record(read_directory(str(directory), checks_prefix=True).record)
    summaries, notices = list_runs(tmp_path)
    assert len(summaries) + len(notices) == 1


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=100))
def test_a_holder_is_known_or_not(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "holder").write_bytes(content)
    assert read_holder(str(tmp_path / "holder")) is None


def test_the_readers_take_what_is_whole() -> None:
    assert isinstance(parse_manifest(DOCUMENT), Manifest)
    assert isinstance(parse_head(DOCUMENT.splitlines(keepends=True)[0]), ManifestHead)
    check_record(fold_all(LINES))
