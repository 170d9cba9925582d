"""Rows set aside, kept to be looked at: in memory while they are few, in an unnamed temporary file beyond."""

from __future__ import annotations

from typing import IO

from nile.base.spill import temporary_file
from nile.summaries.heavy import pa

MEMORY_LIMIT = 32 << 20
"""Bytes kept in memory by one log."""


class RowLog:
    """Record batches of one schema with an int64 column `row`, appended and read back in order of `row`."""

    def __init__(self, schema: pa.Schema, *, memory_limit: int = MEMORY_LIMIT) -> None:
        """`memory_limit`: bytes before rows move to the temporary file, which vanishes with the log."""
        self._schema = schema
        self._memory_limit = memory_limit
        self._batches: list[pa.RecordBatch] = []
        self._size = 0
        self._file: IO[bytes] | None = None
        self._spills: list[int] = []

    def append(self, batch: pa.RecordBatch) -> None:
        """Keeps `batch`. O(its bytes)."""
        if len(batch) == 0:
            return
        self._batches.append(batch)
        self._size += batch.nbytes
        if self._size > self._memory_limit:
            self._spill()

    def table(self) -> pa.Table:
        """Everything kept, ordered by `row`."""
        stored = []
        if self._file is not None:
            for start in self._spills:
                self._file.seek(start)
                stored.append(pa.ipc.open_stream(self._file).read_all())
        kept = pa.Table.from_batches(self._batches, schema=self._schema)
        return pa.concat_tables([*stored, kept]).sort_by("row")

    def _spill(self) -> None:
        if self._file is None:
            self._file = temporary_file()
        self._spills.append(self._file.seek(0, 2))
        with pa.ipc.new_stream(self._file, self._schema) as writer:
            for batch in self._batches:
                writer.write_batch(batch)
        self._batches, self._size = [], 0
