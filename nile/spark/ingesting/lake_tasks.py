"""What the tasks of an ingest do: tuples in order in, files of the lake out, and only their descriptions back.

Spark sends a bound method as the name of its class and the fields of its object, so no code travels.

Tasks write Parquet themselves; what returns to the driver is a row per file.  A task that is retried writes
files of its own, and those of the attempt that failed are never named in a manifest.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nile.pyramid.lake.part import Part, pack_parts, unpack_parts, unwritten, write_part
from nile.summaries.envelope import pack, unpack
from nile.summaries.heavy import pa, pq, pyspark

__all__ = ["ASIDE_ROWS", "PART_ROWS", "AsideJob", "PartJob", "part_of"]

Batches = Iterator["pa.RecordBatch"]
PART_ROWS = "file string, part binary"
ASIDE_ROWS = "file string, rows bigint"
_KIND = "lake part"


@dataclass(frozen=True, slots=True)
class PartJob:
    """How tuples become files.  starts: the first ordinal of each task; the other fields are the layout's."""

    staging: str
    starts: tuple[int, ...]
    schema: pa.Schema
    key: str
    range_ns: int
    bits: int
    group_rows: int

    def write(self, batches: Batches) -> Batches:
        """For `mapInArrow` over (ts BIGINT, v0, v1, ...) in order: PART_ROWS out."""
        ordinal = self.starts[pyspark.TaskContext.get().partitionId()]
        for ts, rows in self._ranges(batches):
            file = Path(self.staging) / f"{uuid.uuid4().hex}.parquet"
            numbers = np.arange(ordinal, ordinal + len(ts), dtype=np.int64)
            part = write_part(file, numbers, ts, rows, self.key, bits=self.bits, group_rows=self.group_rows)
            ordinal += len(ts)
            listed, arrays = pack_parts([part])
            packed = pack(_KIND, {"parts": listed}, arrays)
            yield pa.record_batch({"file": [str(file)], "part": pa.array([packed], pa.binary())})

    def _ranges(self, batches: Batches) -> Iterator[tuple[np.ndarray, pa.Table]]:
        """The tuples of each time range, one after another."""
        waiting: list[pa.RecordBatch] = []
        current = None
        for batch in batches:
            ts = batch.column(0).to_numpy()
            ranges = ts // self.range_ns
            edges = [0, *(np.flatnonzero(np.diff(ranges)) + 1).tolist(), len(ts)]
            for begin, end in pairwise(edges):
                if begin == end:
                    continue
                if current is not None and ranges[begin] != current:
                    yield self._typed(waiting)
                    waiting = []
                current = ranges[begin]
                waiting.append(batch.slice(begin, end - begin))
        if waiting:
            yield self._typed(waiting)

    def _typed(self, waiting: list[pa.RecordBatch]) -> tuple[np.ndarray, pa.Table]:
        table = pa.Table.from_batches(waiting)
        columns = [
            table.column(at + 1).cast(field.type if not _is_ticks(field.type) else pa.int64()).cast(field.type)
            for at, field in enumerate(self.schema)
        ]
        return table.column(0).to_numpy(), pa.table(columns, schema=self.schema)


@dataclass(frozen=True, slots=True)
class AsideJob:
    """How rows that a batch does not take become files."""

    staging: str

    def write(self, batches: Batches) -> Batches:
        """For `mapInArrow` over (reason, row, raw): ASIDE_ROWS out."""
        file = Path(self.staging) / f"aside-{uuid.uuid4().hex}.parquet"
        rows = 0
        writer = None
        try:
            for batch in batches:
                writer = writer or pq.ParquetWriter(file, batch.schema, compression="zstd")
                writer.write_batch(batch)
                rows += len(batch)
            if writer is not None:
                writer.close()
        except OSError as error:
            raise unwritten(file, error, "rejected rows") from None
        if rows:
            yield pa.record_batch({"file": [str(file)], "rows": pa.array([rows], pa.int64())})


def part_of(row: Any) -> tuple[Path, Part]:
    """A row of PART_ROWS as `LakeStream.commit` takes it."""
    envelope = unpack(bytes(row["part"]), where=row["file"])
    (part,) = unpack_parts(envelope.params["parts"], envelope.arrays)
    return Path(row["file"]), part


def _is_ticks(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))
