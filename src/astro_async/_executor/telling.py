"""Calls a pipeline's `on_finish` when an invocation has ended, and again where it failed before.

Whatever becomes of it, the verdict on the run stands.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from astro_async._core.notice import derive_notice
from astro_async._core.records import RunRecord
from astro_async._store.atomic import Disk
from astro_async._store.catalogue import load_run
from astro_async._store.layout import run_directory
from astro_async._store.untold import forget_notice, note_notice, scan_untold
from astro_async._threads import in_thread
from astro_async.exceptions import AstroError, StorageError
from astro_async.pipeline import Pipeline
from astro_async.reading import exit_code_of

__all__ = ["FinishCaller"]

CHANNEL: Final = "on_finish"


@dataclass(frozen=True, slots=True)
class FinishCaller:
    """Calls `on_finish` of a pipeline, in a worker thread, or on the loop if it is async.

    Attributes:
        pipeline: The pipeline.
        pipeline_dir: Absolute.
        disk: The seam.
        logger: Told what goes wrong.
        make_result: Makes what `on_finish` is given of a run's record.
    """

    pipeline: Pipeline
    pipeline_dir: str
    disk: Disk
    logger: logging.Logger
    make_result: Callable[[RunRecord], Any]

    async def tell(self, record: RunRecord, result: Any) -> None:
        """Call it for a run that has just ended."""
        if self.pipeline.on_finish is None:
            return
        directory = run_directory(self.pipeline_dir, record.run_id)
        notice = derive_notice(record, exit_code_of(record))
        try:
            await in_thread(note_notice, directory, CHANNEL, notice, self.disk)
        except StorageError as error:
            self.logger.warning("on_finish will not be called again if it fails now: %s", error)
        if await self._call(result, directory):
            await self.tell_untold()

    async def tell_untold(self) -> None:
        """Call it for the runs for which it failed, until it fails again."""
        if self.pipeline.on_finish is None:
            return
        for run_id, _ in await in_thread(scan_untold, self.pipeline_dir, CHANNEL):
            try:
                record = await in_thread(load_run, self.pipeline_dir, run_id)
            except AstroError:
                continue
            directory = run_directory(self.pipeline_dir, run_id)
            if not await self._call(self.make_result(record), directory):
                return

    async def _call(self, result: Any, directory: str) -> bool:
        call = self.pipeline.on_finish
        if call is None:
            return False
        is_async = inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)
        try:
            await (call(result) if is_async else in_thread(call, result))
            await in_thread(forget_notice, directory, CHANNEL, self.disk)
        except (Exception, SystemExit) as error:
            text = " ".join(str(error).split())
            self.logger.warning(
                "on_finish raised %s: %s (the next `astro run` calls it again)", type(error).__name__, text
            )
            return False
        return True
