"""`astro logs`, once and followed."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from astro_async._store.atomic import Disk
from astro_async._store.layout import holder_path, lock_path, log_path
from astro_async._store.lock import acquire_lock
from astro_async.cli.logs_command import read_log
from cli.commands import astro, ingest, make_project


def test_logs_print_the_log(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path))
    lines = astro("logs", "-C", tmp_path).stdout.splitlines()
    assert [line.partition(" INFO ")[2] for line in lines] == [
        f"STAT run={run_id} scope=file subject=scores action=row_count value=3",
        f"STAT run={run_id} scope=file subject=scores action=column_count value=2",
        f"STAT run={run_id} scope=file subject=scores action=source_size_bytes value=22",
        f"STAT run={run_id} scope=run subject={run_id} action=files_ingested value=1",
    ]
    astro("run", "-C", tmp_path, code=3)
    text = astro("logs", run_id, "-C", tmp_path).stdout
    assert text == (tmp_path / ".working" / run_id / "astro.log").read_text()
    assert f"STAT run={run_id} scope=step subject=check action=rows_quarantined value=1" in text
    # Nobody holds the lock, so there is nothing to wait for.
    assert astro("logs", run_id, "-f", "-C", tmp_path).stdout == text


def test_logs_without_a_run(tmp_path: Path) -> None:
    shown = astro("logs", "-C", tmp_path, code=1)
    assert shown.stderr.startswith(f"error: there is no run in {tmp_path}")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_log_is_followed_until_the_lock_is_free(tmp_path: Path) -> None:
    directory = str(tmp_path)
    log = Path(log_path(directory))
    log.write_text("first\n")
    lock = acquire_lock(
        lock_path(directory), holder_path(directory), disk=Disk(), since="now", what="this run"
    )
    seen: list[str] = []
    with anyio.fail_after(20):
        async for text in read_log(directory, follow=True):
            seen.append(text)
            if text == "first\n":
                log.write_text("first\nsecond\n")
            elif text == "second\n":
                log.write_text("first\nsecond\nthird\n")
                lock.release()
    assert "".join(seen) == "first\nsecond\nthird\n"
