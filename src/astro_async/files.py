"""A step's view of its files.

What a step reads never changes while it runs, and what it saves goes to the staging folder: it becomes a
version of the file when the step settles well, and never otherwise. Publishing is not done here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final, overload

import polars as pl

from astro_async._core.names import check_name, check_save_path
from astro_async._frames.columns import refuse_reserved
from astro_async._frames.parquet import (
    iter_frame,
    load_frame,
    read_schema,
    scan_frame,
    write_frame,
)
from astro_async._store.atomic import storage_errors
from astro_async._store.staging import FileOutput, StagedFile, Staging
from astro_async._threads import in_thread
from astro_async.exceptions import FileAccessError, PipelineError, StepError

__all__ = ["AstroFile", "AstroFileSpec", "StepFiles"]

_BATCH_ROWS: Final = 100_000
_LARGE_BYTES: Final = 100 << 20
# Up to here a pass over a file costs less in memory than as a stream, and hardly any memory.
_SMALL_ROWS: Final = 32_768
_SMALL_BYTES: Final = 4 << 20


class AstroFileSpec:
    """Names an ingested file that a step works on, and how.

    Either an instance, `AstroFileSpec("scores")`, or a subclass that says the name once:

    ```python
    class Scores(AstroFileSpec):
        ingest_name = "scores"
    ```

    Attributes:
        ingest_name: The name of the file, as an `IngestFileSpec` declares it.
        readonly: The step does not change the file: saves and quarantine are refused, and steps that only
            read run side by side.
    """

    ingest_name: ClassVar[str] = ""

    def __init__(self, ingest_name: str | None = None, *, readonly: bool = False) -> None:
        """Name a file.

        Raises:
            PipelineError: There is no name, or it cannot be a file name.
        """
        name = type(self).ingest_name if ingest_name is None else ingest_name
        if not name:
            raise PipelineError(
                f"{type(self).__name__} names no file: give ingest_name, as in AstroFileSpec('scores')"
            )
        self.ingest_name = check_name(name, what="ingest_name")  # type: ignore[misc]
        self.readonly = readonly

    def __repr__(self) -> str:
        """Return how to write it."""
        readonly = ", readonly=True" if self.readonly else ""
        return f"{type(self).__name__}({self.ingest_name!r}{readonly})"


class AstroFile:
    """One file, as the running attempt of one step sees it.

    A step sees its own saves: after `save_in_place` the file loads what was saved. The last save is what
    the step publishes. Safe to use from several threads of the step, as far as reading goes.

    `load` and the saves have async twins with an `a` before their names, for `async def` steps.

    Attributes:
        spec: How the step declared the file.
        name: Its ingest name.
    """

    __slots__ = ("_closed", "_current", "_given", "_output", "_rows", "_staging", "name", "spec")

    def __init__(self, spec: AstroFileSpec, output: FileOutput, path: str, staging: Staging) -> None:
        self.spec = spec
        self.name = output.name
        self._output = output
        self._given = self._current = path
        self._rows = output.rows_given
        self._staging = staging
        self._closed = False

    def __repr__(self) -> str:
        """Return the file's name and where its present content is."""
        return f"<AstroFile {self.name!r} at {self._current}>"

    # -- reading -------------------------------------------------------------------------------

    @property
    def active_path(self) -> Path:
        """The immutable Parquet file that the step reads now: the version it was given, or its last save."""
        return Path(self._current)

    @property
    def schema(self) -> pl.Schema:
        """Names and dtypes of the columns. Reads the footer of the file."""
        return read_schema(self._current)

    def load(self) -> pl.DataFrame:
        """Read the whole file into memory.

        Raises:
            StorageError: The file cannot be read.
        """
        return load_frame(self._current)

    def scan(self) -> pl.LazyFrame:
        """Return a plan over the file, as it is now. Reads nothing yet.

        It stays right whatever is saved later: versions never change.
        """
        return scan_frame(self._current)

    def iter_batches(self, batch_size: int = _BATCH_ROWS) -> Iterator[pl.DataFrame]:
        """Yield the rows in order, in bounded memory.

        Args:
            batch_size: Rows of a frame at most, 1 or more.

        Raises:
            StorageError: The file cannot be read.
        """
        return iter_frame(self._current, batch_size)

    def row_count(self) -> int:
        """Return the number of rows. It is known: no file is read for it."""
        return self._rows

    def is_large_file(self) -> bool:
        """Say whether the file takes 100 MiB or more on disk. For older pipelines: `scan` has no limit."""
        return os.path.getsize(self._current) >= _LARGE_BYTES

    # -- writing -------------------------------------------------------------------------------

    def save_in_place(self, dataframe: pl.DataFrame) -> None:
        """Make `dataframe` the content of the file.

        Args:
            dataframe: The rows, with any columns; their names and dtypes are the schema from now on.

        Raises:
            FileAccessError: The file is read-only, or the step has ended.
            StepError: Parquet cannot hold a column.
            StorageError: The disk refuses.
        """
        refuse_reserved(dataframe.columns if isinstance(dataframe, pl.DataFrame) else [])
        self._activate(self._write(dataframe, needs_write=True))

    def save_in_place_lazy(self, lazy_frame: pl.LazyFrame) -> None:
        """Make the result of a plan the content of the file, streamed.

        Args:
            lazy_frame: The plan. It may scan the file itself.

        Raises:
            FileAccessError: The file is read-only, or the step has ended.
            StepError: The plan fails, or Parquet cannot hold a column.
            StorageError: The disk refuses.
        """
        if isinstance(lazy_frame, pl.LazyFrame):
            refuse_reserved(lazy_frame.collect_schema().names())
        self._activate(self._write(lazy_frame, needs_write=True))

    def sink(self, lazy_frame: pl.LazyFrame) -> None:
        """Do what `save_in_place_lazy` does, errors included, under the name that Polars uses."""
        self.save_in_place_lazy(lazy_frame)

    def save_to(
        self, subfolder: str, filename: str, dataframe: pl.DataFrame, *, activate: bool = True
    ) -> Path:
        """Save under a name in the run directory, and make it the content of the file.

        Args:
            subfolder: A folder of the run directory, such as `"processed"`.
            filename: A name in it. The content is Parquet.
            dataframe: The rows.
            activate: False writes a copy without changing what later steps read; read-only files may.

        Returns:
            Where it was written, good while the step runs. Under its name it appears when the step settles.

        Raises:
            FileAccessError: The file is read-only and `activate` is true, or the step has ended.
            InvalidNameError: The name would leave the run directory.
            StepError: Parquet cannot hold a column.
            StorageError: The disk refuses.
        """
        return self._save_to(subfolder, filename, dataframe, activate=activate)

    def save_to_lazy(
        self, subfolder: str, filename: str, lazy_frame: pl.LazyFrame, *, activate: bool = True
    ) -> Path:
        """Do what `save_to` does with the result of a plan, streamed.

        Args:
            subfolder: A folder of the run directory, such as `"processed"`.
            filename: A name in it. The content is Parquet.
            lazy_frame: The plan. It may scan the file itself.
            activate: False writes a copy without changing what later steps read; read-only files may.

        Returns:
            Where it was written, good while the step runs. Under its name it appears when the step settles.

        Raises:
            FileAccessError: The file is read-only and `activate` is true, or the step has ended.
            InvalidNameError: The name would leave the run directory.
            StepError: The plan fails, or Parquet cannot hold a column.
            StorageError: The disk refuses.
        """
        return self._save_to(subfolder, filename, lazy_frame, activate=activate)

    # -- async twins ---------------------------------------------------------------------------

    async def aload(self) -> pl.DataFrame:
        """Do what `load` does, in a worker thread; the event loop goes on meanwhile."""
        return await in_thread(self.load)

    async def asave_in_place(self, dataframe: pl.DataFrame) -> None:
        """Do what `save_in_place` does, in a worker thread."""
        await in_thread(self.save_in_place, dataframe)

    async def asave_in_place_lazy(self, lazy_frame: pl.LazyFrame) -> None:
        """Do what `save_in_place_lazy` does, in a worker thread."""
        await in_thread(self.save_in_place_lazy, lazy_frame)

    async def asink(self, lazy_frame: pl.LazyFrame) -> None:
        """Do what `sink` does, in a worker thread."""
        await in_thread(self.save_in_place_lazy, lazy_frame)

    async def asave_to(
        self, subfolder: str, filename: str, dataframe: pl.DataFrame, *, activate: bool = True
    ) -> Path:
        """Do what `save_to` does, in a worker thread."""
        return await in_thread(self._save_to, subfolder, filename, dataframe, activate=activate)

    async def asave_to_lazy(
        self, subfolder: str, filename: str, lazy_frame: pl.LazyFrame, *, activate: bool = True
    ) -> Path:
        """Do what `save_to_lazy` does, in a worker thread."""
        return await in_thread(self._save_to, subfolder, filename, lazy_frame, activate=activate)

    # -- for the package -----------------------------------------------------------------------

    @property
    def output(self) -> FileOutput:
        """What the step did with the file so far. For the package itself."""
        return self._output

    @property
    def is_small(self) -> bool:
        """Whether the file is handled in memory at less cost than streamed. For the package itself."""
        # A rule that does not fit the columns is not found out where there are no rows, as in a stream.
        if not 0 < self._rows <= _SMALL_ROWS:
            return False
        with storage_errors("read", self._current):
            return os.path.getsize(self._current) <= _SMALL_BYTES

    def input_schema(self) -> pl.Schema:
        """Return the schema of what the step was given. For the package itself."""
        return read_schema(self._given)

    def scan_input(self) -> pl.LazyFrame:
        """Return a plan over what the step was given. For the package itself."""
        return scan_frame(self._given)

    def stage(self, frame: pl.DataFrame | pl.LazyFrame, *, needs_write: bool) -> StagedFile:
        """Write a frame to the staging folder. For the package itself."""
        return self._write(frame, needs_write=needs_write)

    def stage_path(self) -> str:
        """Return the path of a new file in the staging folder. For the package itself."""
        self._check_open(needs_write=True)
        return self._staging.next_path()

    def activate(self, staged: StagedFile) -> None:
        """Make a staged file the content of the file. For the package itself."""
        self._activate(staged)

    def close(self) -> None:
        """Refuse whatever a thread that outlives its step still tries to write. For the package itself."""
        self._closed = True

    def _check_open(self, *, needs_write: bool) -> None:
        if self._closed:
            raise FileAccessError(f"file {self.name!r} was written to after its step had ended")
        if needs_write and self.spec.readonly:
            raise FileAccessError(
                f"file {self.name!r} is declared readonly=True in this step: it cannot be saved or "
                "quarantined from; drop readonly, or use save_to(…, activate=False) for a copy"
            )

    def _write(self, frame: pl.DataFrame | pl.LazyFrame, *, needs_write: bool) -> StagedFile:
        self._check_open(needs_write=needs_write)
        if not isinstance(frame, pl.DataFrame | pl.LazyFrame):
            raise StepError(
                f"file {self.name!r} takes a Polars DataFrame or LazyFrame, not {type(frame).__name__}"
            )
        path = self._staging.next_path()
        written = write_frame(frame, path)
        return StagedFile(path, written.rows, written.columns, written.size_bytes)

    def _activate(self, staged: StagedFile) -> None:
        self._output.version = staged
        self._output.keeps_version = False
        self._current = staged.path
        self._rows = staged.rows

    def _save_to(
        self, subfolder: str, filename: str, frame: pl.DataFrame | pl.LazyFrame, *, activate: bool
    ) -> Path:
        name = check_save_path(subfolder, filename)
        staged = self._write(frame, needs_write=activate)
        self._output.saved[name] = staged
        if activate:
            self._activate(staged)
        return Path(staged.path)


class StepFiles(Sequence[AstroFile | None]):
    """The files of a step, by position and by name; an optional file that was not delivered is None.

    A file is opened when it is first asked for: a step that looks at none costs none.

    Attributes:
        lock: Of the step: held to open a file, and to number a part of its quarantine.
    """

    __slots__ = ("_names", "_open", "_opened", "lock")

    def __init__(self, names: tuple[str, ...], open_file: Callable[[int], AstroFile | None]) -> None:
        self._names = names
        self._open = open_file
        self._opened: dict[int, AstroFile | None] = {}
        self.lock = threading.Lock()

    # A step knows which of its files are optional; a union with None here would burden all others.
    @overload
    def __getitem__(self, key: int | str) -> AstroFile: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[AstroFile]: ...
    def __getitem__(self, key: int | str | slice) -> AstroFile | Sequence[AstroFile]:
        """Return a file by position or by ingest name; None if it is optional and was not delivered.

        Raises:
            KeyError: The step has no file of that name.
            IndexError: The step has fewer files.
        """
        if isinstance(key, slice):
            return [self[i] for i in range(*key.indices(len(self)))]
        if isinstance(key, str):
            try:
                key = self._names.index(key)
            except ValueError:
                raise KeyError(
                    f"this step has no file {key!r}; it has {', '.join(map(repr, self._names)) or 'none'}"
                ) from None
        return self._file(range(len(self))[key])  # type: ignore[return-value]

    def __len__(self) -> int:
        """Return the number of files that the step declares."""
        return len(self._names)

    def __iter__(self) -> Iterator[AstroFile]:
        """Yield the files in the order in which the step declares them."""
        for position in range(len(self)):
            yield self._file(position)  # type: ignore[misc]

    def owns(self, file: object) -> bool:
        """Tell whether a file is one of these. For the package itself."""
        return file is not None and any(file is own for own in list(self._opened.values()))

    def close(self) -> None:
        """Refuse whatever a thread that outlives its step still tries to write. For the package itself."""
        # Also lets go of the attempt that opens the files, so that its memory is free at once.
        self._open = _refuse_to_open
        if self._opened:
            for file in list(self._opened.values()):
                if file is not None:
                    file.close()

    def _file(self, position: int) -> AstroFile | None:
        # Two threads of a step must get the same object: what is quarantined from it is numbered together.
        with self.lock:
            if position not in self._opened:
                self._opened[position] = self._open(position)
            return self._opened[position]


def _refuse_to_open(position: int) -> AstroFile | None:
    raise FileAccessError("a file was asked for after its step had ended")
