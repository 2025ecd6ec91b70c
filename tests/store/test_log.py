"""The log: one line a record, whatever the text, and a log that cannot be written harms nobody."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from astro_async._core.statistics import Statistic
from astro_async._core.text import escape_controls
from astro_async._store.atomic import Disk
from astro_async._store.log import LogTail, RunLog
from core.samples import TIME
from store.disks import RefusingDisk


class Bench:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = RunLog(str(path), Disk())
        self.logger = logging.Logger("run", logging.DEBUG)
        self.logger.addHandler(self.log)

    def lines(self) -> list[str]:
        return self.path.read_text("utf-8").split("\n")[:-1]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "astro.log")
    yield bench
    bench.log.close()


def stat(value: float, *, subject: str = "validate", action: str = "rows_quarantined") -> Statistic:
    return Statistic("step", subject, action, value, TIME)


def test_a_statistic_is_a_line_of_a_fixed_form(bench: Bench) -> None:
    bench.log.write_statistics("abc12", [stat(3)])
    (line,) = bench.lines()
    assert line == f"{TIME} INFO STAT run=abc12 scope=step subject=validate action=rows_quarantined value=3"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (3.0, "3"), (-1, "-1"), (0.25, "0.25"), (12.345, "12.345"), (123456789012, "123456789012")],
)
def test_numbers_are_written_plainly(bench: Bench, value: float, text: str) -> None:
    bench.log.write_statistics("abc12", [stat(value)])
    assert bench.lines()[0].endswith(f" value={text}")


def test_statistics_are_written_in_order_and_none_writes_nothing(bench: Bench) -> None:
    bench.log.write_statistics("abc12", [])
    assert bench.lines() == []
    bench.log.write_statistics("abc12", [stat(1), stat(2)])
    assert [line[-7:] for line in bench.lines()] == ["value=1", "value=2"]


def test_a_statistic_stays_on_its_line(bench: Bench) -> None:
    bench.log.write_statistics("abc12", [stat(1, subject="a\nb", action="\x1b[31mred\u202e")])
    (line,) = bench.lines()
    assert line.endswith(r"subject=a\nb action=\x1b[31mred\u202e value=1")


def test_a_record_is_one_line(bench: Bench) -> None:
    bench.logger.warning("[%s] %d rows", "validate", 3)
    (line,) = bench.lines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING \[validate\] 3 rows", line)


def test_control_characters_are_escaped(bench: Bench) -> None:
    bench.logger.info("one\ntwo\r\x1b[2Jthree\t\0\u2028\u202e\x85 größe 日本")
    (line,) = bench.lines()
    assert line.endswith(r" INFO one\ntwo\r\x1b[2Jthree\t\x00\u2028\u202e\x85 größe 日本")
    assert line.isprintable()


def test_text_that_is_no_unicode_is_written(bench: Bench) -> None:
    bench.logger.info("caf\udce9.csv")
    assert bench.lines()[0].endswith(r"caf\udce9.csv")


def test_a_traceback_stays_on_its_line(bench: Bench) -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        bench.logger.exception("it failed")
    (line,) = bench.lines()
    assert r"it failed\nTraceback (most recent call last):\n" in line
    assert line.endswith(r"ValueError: first\nsecond")


def test_one_separator_line_for_each_invocation(bench: Bench) -> None:
    bench.log.start_invocation("first\nrun")
    bench.logger.info("between")
    bench.log.start_invocation("second run")
    lines = bench.lines()
    assert (lines[0], lines[2]) == (r"-------- first\nrun --------", "-------- second run --------")
    assert len(lines) == 3


def test_a_second_log_appends(bench: Bench) -> None:
    bench.logger.info("one")
    other = Bench(bench.path)
    other.logger.info("two")
    bench.logger.info("three")
    other.log.close()
    assert [line.split()[-1] for line in bench.lines()] == ["one", "two", "three"]


def test_a_log_that_is_full_harms_nobody(tmp_path: Path) -> None:
    disk = RefusingDisk(lambda operation, _path: operation == "append to")
    log = RunLog(str(tmp_path / "astro.log"), disk)
    logger = logging.Logger("run")
    logger.addHandler(log)
    logger.error("text")
    log.write_statistics("abc12", [stat(1)])
    log.start_invocation("again")
    log.close()
    assert (tmp_path / "astro.log").read_bytes() == b""


def test_a_closed_log_harms_nobody(bench: Bench) -> None:
    bench.log.close()
    bench.log.close()
    bench.logger.error("late")
    bench.log.write_statistics("abc12", [stat(1)])
    assert bench.lines() == []


def test_a_record_that_cannot_be_formatted_harms_nobody(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As everywhere in `logging`: a slip in a call of the author's is no failure of the step.
    with open(os.devnull, "w") as nowhere:
        monkeypatch.setattr(sys, "stderr", nowhere)
        bench.logger.info("%d rows", "three")
    bench.logger.info("next")
    assert bench.lines()[-1].endswith("next")


@pytest.mark.parametrize("text", ["", "plain", "größe 日本 🚀", "back\\slash"])
def test_plain_text_is_left_alone(text: str) -> None:
    assert escape_controls(text) == text


def test_the_tail_of_a_log_that_grows(bench: Bench) -> None:
    bench.logger.info("of an earlier invocation")
    tail = LogTail(str(bench.path), 3)
    tail.look()
    assert list(tail.lines) == []
    bench.log.start_invocation("run k3x9a")
    bench.logger.info("one \x1b[2J")
    bench.log.write_statistics("k3x9a", [stat(3)])
    bench.logger.error("[boom] attempt 1: Traceback (most recent call last):\n  File")
    tail.look()
    assert [line.split("Z ", 1)[1] for line in tail.lines] == ["INFO one \\x1b[2J"]
    with open(bench.path, "ab") as file:
        # A line that is being written is left for the next look.
        file.write(b"2026-11-29T23:47:04.250Z INFO ha")
        file.flush()
        tail.look()
        assert len(tail.lines) == 1
        file.write(b"lf \x1b\xff\n")
    tail.look()
    assert tail.lines[-1] == "2026-11-29T23:47:04.250Z INFO half \\x1b\\xff"


def test_of_very_much_only_the_end_is_looked_at(bench: Bench) -> None:
    tail = LogTail(str(bench.path), 2)
    for number in range(3000):
        bench.logger.info("%d %s", number, "x" * 200)
    tail.look()
    assert [line.split(" ")[2] for line in tail.lines] == ["2998", "2999"]
    whole = LogTail(str(bench.path), 10_000)
    for number in range(3000):
        bench.logger.info("%d %s", number, "x" * 200)
    whole.look()
    numbers = [int(line.split(" ")[2]) for line in whole.lines]
    assert numbers == list(range(numbers[0], 3000))
    assert numbers[0] > 0


def test_a_log_that_is_not_there_has_no_tail(tmp_path: Path) -> None:
    tail = LogTail(str(tmp_path / "astro.log"), 2)
    tail.look()
    assert not tail.lines
