"""Checkpoints while a run goes on: sync and manifest in a worker thread, seconds apart."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread

from astro_async._executor.turns import Turns
from astro_async._store.run_store import RunStore
from astro_async._threads import in_thread
from astro_async.exceptions import StorageError

__all__ = ["Checkpoints"]

_INTERVAL_S: Final = 1.0
_MAX_INTERVAL_S: Final = 5.0
# So many events are enough to be looked at for statistics while the run goes on.
_STATISTICS_BATCH: Final = 2000
# Checkpoints of a huge run take long; they may have this share of the time.
_SHARE: Final = 0.05


class Checkpoints:
    """Makes the journal durable soon after it has grown."""

    def __init__(self, store: RunStore, on_failure: Callable[[StorageError], None], turns: Turns) -> None:
        self._store = store
        self._on_failure = on_failure
        self._turns = turns
        self._is_dirty = False
        self._dirty = anyio.Event()
        self._limiter = anyio.CapacityLimiter(1)
        # Statistics are written by a thread of their own, once there are enough of them to need one.
        self._is_full = threading.Event()
        self._recording = anyio.Event()
        self._is_stopped = False

    def note_dirty(self) -> None:
        """Note that the journal has grown. From any thread that has the turn."""
        self._is_dirty = True
        if self._store.unrecorded >= _STATISTICS_BATCH and not self._is_full.is_set():
            self._is_full.set()
            if not self._recording.is_set():
                self._turns.on_loop(self._recording.set)

    @property
    def wants_stir(self) -> bool:
        """Whether `stir` would wake anybody."""
        return self._is_dirty and not self._dirty.is_set()

    def stir(self) -> None:
        """Wake who writes what has been noted. On the event loop."""
        if self._is_dirty:
            self._dirty.set()

    async def serve(self) -> None:
        """Write checkpoints until cancelled."""
        interval_s = _INTERVAL_S
        while True:
            await self._dirty.wait()
            await anyio.sleep(interval_s)
            started = time.perf_counter()
            if not await self._write():
                return
            took_s = time.perf_counter() - started
            interval_s = min(max(_INTERVAL_S, took_s / _SHARE), _MAX_INTERVAL_S)

    async def serve_statistics(self) -> None:
        """Write statistics in batches until `stop`; the rest comes with a checkpoint."""
        await self._recording.wait()
        await in_thread(self._record_statistics)

    def stop(self) -> None:
        """Let the thread that writes statistics end. Before its task is cancelled, for it is waited for."""
        self._is_stopped = True
        self._is_full.set()

    def _record_statistics(self) -> None:
        while True:
            self._is_full.wait()
            # Cleared before the look: `stop` may come in between.
            self._is_full.clear()
            if self._is_stopped:
                return
            self._store.record_statistics()

    async def link_last(self) -> None:
        """Make the links to what is last of each file, before the journal says that the run has ended."""
        try:
            await anyio.to_thread.run_sync(self._store.finish, limiter=self._limiter)
        except StorageError as error:
            self._on_failure(error)

    async def finish(self) -> None:
        """Write the last checkpoint."""
        await self._write(is_last=True)

    async def _write(self, *, is_last: bool = False) -> bool:
        """Write what there is; return whether the disk took it."""
        with self._turns.take_on_loop():
            self._is_dirty, self._dirty = False, anyio.Event()
            manifest = self._store.take_checkpoint()
        if manifest is None:
            # What the journal has not yet makes it grow again, and that is noted.
            return True
        try:
            write = functools.partial(self._store.write_checkpoint, manifest, is_last=is_last)
            await anyio.to_thread.run_sync(write, limiter=self._limiter)
        except StorageError as error:
            self._on_failure(error)
            return False
        return True
