"""How tuples reach their part and outputs leave it: whole batches as Arrow's own bytes, so that no value is rounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.base.times import TIME_LIMIT, event_times
from nile.spark.settling import settle_worker
from nile.spark.standing.dealing import Counts, parts_of
from nile.spark.standing.levels import Levels
from nile.summaries.hashing import hash_keys
from nile.summaries.heavy import pa

__all__ = ["CARRIED", "OUT", "Dealer", "Opener", "as_bytes", "batches_of"]

CARRIED = "part long, place long, stream long, reached long, rows binary"
OUT = "rows binary"


@dataclass(frozen=True, slots=True)
class Dealer:
    """A task over the rows of one stream: a row (part, its place, number of the stream, 0, tuples) for each.

    Behind them every part is told, in a row of the stream -1 - its number, the latest time that the task has seen (ns),
    so that all parts take the stream to have come as far.  places: of each part, as of `places_of`.  counts: whether
    that row has what the task has counted, too: of keys, or where a salt is given of the levels that it gives them.
    """

    stream: int
    places: tuple[int, ...]
    time: str
    key: str
    counts: bool = False
    salt: int | None = None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`."""
        count = len(self.places)
        counted: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        reached: int | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            hashes = hash_keys(batch.column(self.key), where=self.key)
            part = parts_of(hashes, count)
            order = np.argsort(part, kind="stable")
            ends = np.cumsum(np.bincount(part, minlength=count))
            times = event_times(batch.column(self.time))
            good = times.ns if times.reason is None else times.ns[times.reason == 0]
            if good.shape[0]:
                reached = max(int(good.max()), -TIME_LIMIT if reached is None else reached)
            rows, parts = [], []
            for number, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
                if begin == end:
                    continue
                parts.append(number)
                rows.append(as_bytes([batch.take(pa.array(order[begin:end]))]))
            yield self._carried(parts, self.stream, 0, rows)
            if self.counts:
                there = batch.column(self.key).is_valid().to_numpy(zero_copy_only=False)
                if times.reason is not None:
                    there &= times.reason == 0
                counted.append((hashes[there], times.ns[there]))
        if reached is not None:
            told: list[bytes | None] = [None] * count
            if sum(ts.shape[0] for _, ts in counted):
                hashes, ts = (np.concatenate(each) for each in zip(*counted, strict=True))
                if self.salt is None:
                    told = [as_bytes([Counts.of(hashes, ts, count).batch()])] * count
                else:
                    told = [as_bytes([each.batch()]) for each in Levels.of(hashes, ts, count, self.salt)]
            yield self._carried(list(range(count)), -1 - self.stream, reached, told)
        settle_worker()

    def _carried(self, parts: list[int], stream: int, reached: int, rows: Sequence[bytes | None]) -> pa.RecordBatch:
        columns = [
            pa.array(parts, pa.int64()),
            pa.array([self.places[part] for part in parts], pa.int64()),
            pa.array([stream] * len(parts), pa.int64()),
            pa.array([reached] * len(parts), pa.int64()),
            pa.array(rows, pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, names=["part", "place", "stream", "reached", "rows"])


@dataclass(frozen=True, slots=True)
class Opener:
    """A task over what parts give: their outputs as rows of Spark."""

    schema: Any

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`."""
        for batch in batches:
            for cell in batch.column(0):
                for found in batches_of(cell.as_py()):
                    yield pa.RecordBatch.from_arrays(
                        [column.cast(field.type, safe=False) for column, field in
                         zip(found.columns, self.schema, strict=True)],
                        schema=self.schema,
                    )  # fmt: skip
        settle_worker()


def as_bytes(batches: list[pa.RecordBatch]) -> bytes:
    """Batches of one schema, in Arrow's own form for streams."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def batches_of(data: bytes) -> Iterator[pa.RecordBatch]:
    """What `as_bytes` was given."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        yield from reader
