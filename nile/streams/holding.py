"""Sources that are held whole: in memory as long as it lasts, and from then on in temporary files that are mapped."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nile.base.machine import memory_bytes
from nile.base.mapped import Columns, can_map
from nile.base.plain import decoded_schema
from nile.base.room import allowed_room
from nile.base.sizes import format_size
from nile.base.spill import temporary_file
from nile.summaries.errors import MemoryRefused
from nile.summaries.heavy import pa

__all__ = ["Holding"]

Array = np.ndarray[Any, Any]
_TIME = "\0ts"
_PARTS = 4
"""Of what an answer may take, one part of so many may be a source's rows in memory."""


class Holding:
    """All rows of one source for one reader.  what: the source, in messages; scratch: the folder of files, None for the
    system's; counted: False of rows that are in memory already, and take no more of it.

    times: int64 [n] of each batch added; batches: their columns; once they are too many, one of each, over files.
    """

    def __init__(self, what: str, scratch: Path | None = None, *, counted: bool = True) -> None:
        self._what = what
        self._scratch = scratch
        self._counted = counted
        half, allowed = memory_bytes() // 2, allowed_room()
        self._most = half if allowed is None else min(half, allowed // _PARTS)
        self._half = half
        self._size = self._rows = 0
        self._files: Columns | None = None
        self.times: list[Array] = []
        self.batches: list[pa.RecordBatch] = []

    def add(self, ts: Array | None, batch: pa.RecordBatch) -> None:
        """Rows behind all others, with their times (None: they have none).

        Raises MemoryRefused where they take more than half of what this process may use and are of types that no file
        can hold as they are, or the disk is full.
        """
        self._rows += int(batch.num_rows)
        if self._files is not None:
            self._put(ts, batch)
            return
        if ts is not None:
            self.times.append(ts)
        self.batches.append(batch)
        if not self._counted:
            return
        self._size += sum(map(_bytes, batch.columns)) + (0 if ts is None else ts.nbytes)
        if self._size > self._most:
            self._spill(ts is not None)

    def end(self) -> int:
        """Nothing more comes; the bytes of files."""
        if self._files is None:
            return 0
        size = self._files.size
        rows = self._files.mapped()
        self._files = None
        if rows.schema.names[-1] == _TIME:
            self.times = [rows.column(rows.num_columns - 1).to_numpy()]
            rows = rows.select(list(range(rows.num_columns - 1)))
        self.batches = [rows]
        return size

    def _spill(self, timed: bool) -> None:
        schema = self.batches[0].schema
        plain = decoded_schema(schema)
        misfit = next((field for field in plain if not can_map(field.type)), None)
        if misfit is not None:
            if self._size > self._half:
                gib = 2**30
                raise MemoryRefused(
                    f"{self._what}: needed all of its rows in memory; got {self._rows:,} and more, "
                    f"{self._size / gib:.1f} GiB, of half of this machine's {2 * self._half / gib:.1f} GiB that they "
                    f"may take, with column '{misfit.name}' ({misfit.type}), which no file can stand in for; name "
                    "fewer columns, or a WHERE or WINDOW that leaves fewer rows"
                )
            return
        schema = plain.append(pa.field(_TIME, pa.int64())) if timed else plain
        times, batches = self.times, self.batches
        self.times, self.batches = [], []
        self._files = self._written(lambda: Columns(schema, partial(temporary_file, self._scratch)))
        for k, batch in enumerate(batches):
            self._put(times[k] if timed else None, batch)

    def _put(self, ts: Array | None, batch: pa.RecordBatch) -> None:
        files = self._files
        assert files is not None
        columns = [
            column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
            for column in batch.columns
        ]
        whole = pa.RecordBatch.from_arrays(
            columns if ts is None else [*columns, pa.array(ts)], names=[field.name for field in files.schema]
        )
        self._written(lambda: files.add(whole))

    def _written(self, work: Any) -> Any:
        try:
            return work()
        except (OSError, OverflowError) as error:
            folder = self._scratch or Path(tempfile.gettempdir())
            reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
            size = format_size(self._files.size if self._files is not None else 0)
            raise MemoryRefused(
                f"{self._what}: needed all of its rows, in files where memory does not hold them; got '{reason}' in "
                f"'{folder}', with {size} written; make room there, name another folder in TMPDIR, or fewer columns"
            ) from error


def _bytes(column: Any) -> int:
    """Of its values; of a dictionary, which many batches share, the places in it."""
    return int((column.indices if pa.types.is_dictionary(column.type) else column).nbytes)
