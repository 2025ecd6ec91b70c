"""Names that become paths: what is let through, and what is refused."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astro_async._core.names import (
    check_distinct,
    check_name,
    check_run_id,
    check_save_path,
    slugify,
)
from astro_async.exceptions import InvalidNameError

HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "a\\b",
    "/etc",
    "~",
    "a\0",
    "\0",
    "a\n",
    "\na",
    "a b",
    " a",
    "-a",
    ".hidden",
    "a:b",
    "a*",
    "\u202ea",
    "a\u200b",
    "\udc80",
    "e\u0301\u0302",
]


@pytest.mark.parametrize(
    ("label", "slug"),
    [
        ("Validate", "validate"),
        ("Validate the Scores", "validate-the-scores"),
        ("  spaces   and\ttabs ", "spaces-and-tabs"),
        ("snake_case", "snake_case"),
        ("Größe & Maß", "groe-ma"),
        ("Café №5", "cafe-no5"),
        ("--a--b--", "a-b"),
        ("../../etc/passwd", "etc-passwd"),
        ("a\0b", "a-b"),
        ("3 rows", "3-rows"),
    ],
)
def test_slugs(label: str, slug: str) -> None:
    assert slugify(label) == slug


@pytest.mark.parametrize("label", ["", "   ", "---", "…", "日本語", "\0", "/"])
def test_a_label_without_a_letter_or_digit_needs_an_explicit_id(label: str) -> None:
    with pytest.raises(InvalidNameError, match="step_id="):
        slugify(label)


@given(st.text())
def test_a_slug_is_a_safe_name_or_is_refused(label: str) -> None:
    try:
        slug = slugify(label)
    except InvalidNameError:
        return
    assert set(slug) <= set(string.ascii_lowercase + string.digits + "-_")
    assert slugify(slug) == slug
    if slug != "ingest" and len(slug) <= 200:
        assert check_name(slug, what="step_id") == slug


@pytest.mark.parametrize("what", ["step_id", "ingest_name"])
@pytest.mark.parametrize("name", ["a", "A", "_a", "9", "a-b_c", "a" * 200, "größe", "данные", "日本"])
def test_names_that_are_safe(name: str, what: str) -> None:
    assert check_name(name, what=what) == name


@pytest.mark.parametrize("what", ["step_id", "ingest_name"])
@pytest.mark.parametrize("name", HOSTILE)
def test_names_that_are_not_safe(name: str, what: str) -> None:
    with pytest.raises(InvalidNameError, match=what):
        check_name(name, what=what)


def test_a_dot_separates_step_and_attempt_so_only_ingest_names_have_one() -> None:
    assert check_name("a.b", what="ingest_name") == "a.b"
    with pytest.raises(InvalidNameError, match="step_id"):
        check_name("a.b", what="step_id")


@pytest.mark.parametrize("name", ["ingest", "INGEST", "Ingest"])
def test_reserved_names(name: str) -> None:
    with pytest.raises(InvalidNameError, match="reserved"):
        check_name(name, what="step_id")


@pytest.mark.parametrize("name", ["a" * 201, "ä" * 101, "日" * 67])
def test_names_are_measured_in_bytes(name: str) -> None:
    with pytest.raises(InvalidNameError, match="longer than 200 bytes"):
        check_name(name, what="ingest_name")


@pytest.mark.parametrize("run_id", ["abc12", "00000", "zzzzz"])
def test_run_ids(run_id: str) -> None:
    assert check_run_id(run_id) == run_id


@pytest.mark.parametrize(
    "run_id",
    ["", "abc1", "abc123", "ABC12", "ab/12", "../..", "..", "abc1\n", "abc12\n", "abc1\0", "äbc12", "٣٣٣٣٣"],
)
def test_what_is_no_run_id(run_id: str) -> None:
    with pytest.raises(InvalidNameError, match="is not a run id"):
        check_run_id(run_id)


@given(st.text(max_size=8))
def test_a_run_id_is_five_characters_or_refused(run_id: str) -> None:
    allowed = set(string.ascii_lowercase + string.digits)
    if len(run_id) == 5 and set(run_id) <= allowed:
        assert check_run_id(run_id) == run_id
    else:
        with pytest.raises(InvalidNameError):
            check_run_id(run_id)


@pytest.mark.parametrize(
    ("subfolder", "filename", "path"),
    [
        ("processed", "scores.parquet", "processed/scores.parquet"),
        ("processed/2026/q1", "scores", "processed/2026/q1/scores"),
        ("out", "größe.parquet", "out/größe.parquet"),
        ("Out-1", "a.b.c", "Out-1/a.b.c"),
        ("my out", "all 2026 (final).parquet", "my out/all 2026 (final).parquet"),
        ("a:b", "a*, b+c=d", "a:b/a*, b+c=d"),
    ],
)
def test_save_paths(subfolder: str, filename: str, path: str) -> None:
    assert check_save_path(subfolder, filename) == path


@pytest.mark.parametrize(
    "part", [each for each in [*HOSTILE, "a" * 201] if each not in ("a b", "a:b", "a*", "e\u0301\u0302")]
)
def test_no_part_of_a_save_path_leaves_the_run(part: str) -> None:
    for subfolder, filename in [
        (part, "x.parquet"),
        ("processed", part),
        (f"processed/{part}", "x.parquet"),
        (f"{part}/processed", "x.parquet"),
    ]:
        if part == "a/b" and filename == "x.parquet":
            continue  # a subfolder may have several parts
        with pytest.raises(InvalidNameError):
            check_save_path(subfolder, filename)


@pytest.mark.parametrize("subfolder", ["processed/", "/processed", "processed//x", "processed/../x"])
def test_a_subfolder_is_relative_and_plain(subfolder: str) -> None:
    with pytest.raises(InvalidNameError, match="inside the run directory"):
        check_save_path(subfolder, "x.parquet")


@pytest.mark.parametrize(
    "folder",
    [
        "ingested",
        "versions",
        "current",
        "snapshots",
        "quarantine",
        "filtered",
        "staging",
        "Versions",
        "QUARANTINE",
        "versions/scores",
    ],
)
def test_folders_of_the_run_are_refused(folder: str) -> None:
    with pytest.raises(InvalidNameError, match="belongs to the run"):
        check_save_path(folder, "x.parquet")


@pytest.mark.parametrize(
    "folder",
    ["manifest.json", "manifest.json.tmp", "events.jsonl", "astro.log", "run.lock", "run.holder.json"],
)
def test_a_folder_named_like_a_file_of_the_run_is_refused(folder: str) -> None:
    # Taken as a folder, such a name keeps the run from writing its manifest ever again.
    with pytest.raises(InvalidNameError):
        check_save_path(folder, "x.parquet")


def test_a_save_path_too_long_for_any_file_system_is_refused() -> None:
    with pytest.raises(InvalidNameError):
        check_save_path("/".join(["deep"] * 1000), "x.parquet")


@given(st.text(max_size=12), st.text(max_size=12))
def test_a_save_path_stays_below_or_is_refused(subfolder: str, filename: str) -> None:
    try:
        path = check_save_path(subfolder, filename)
    except InvalidNameError:
        return
    parts = path.split("/")
    assert len(parts) >= 2
    assert not any(part in ("", ".", "..") or "\0" in part for part in parts)


def test_distinct_names_pass() -> None:
    check_distinct(["a", "b", "a-b", "ab"], what="step_id")


@pytest.mark.parametrize(
    "names",
    [
        ["a", "a"],
        ["a", "b", "".join(["a", ""])],
        ["step-one", "x", "".join(["step", "-one"])],
    ],
)
def test_equal_names_are_refused(names: list[str]) -> None:
    with pytest.raises(InvalidNameError, match="is used twice"):
        check_distinct(names, what="step_id")


@pytest.mark.parametrize(
    "names",
    [
        ["Scores", "scores"],
        ["STRASSE", "straße"],
        ["größe", "GRÖSSE"],
        ["caf\u00e9", "cafe\u0301"],
    ],
)
def test_names_that_differ_only_by_case_or_form_are_refused(names: list[str]) -> None:
    with pytest.raises(InvalidNameError) as caught:
        check_distinct(names, what="ingest_name")
    assert all(repr(name) in str(caught.value) for name in names)
