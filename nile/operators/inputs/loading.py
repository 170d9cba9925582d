"""Several columns of a stream at once, in the order of its tuples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.base.plain import decoded_schema
from nile.operators.inputs.joining import load_stream
from nile.streams.accounting import Accounting
from nile.streams.files.parquet import ParquetSource
from nile.streams.manager import StreamManager
from nile.summaries.hashing import PUBLIC, KeyHasher
from nile.summaries.heavy import pa

__all__ = ["Columns", "are_times_kept", "load_columns"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Columns:
    """A whole stream in order.  ts: int64 [n] ns; batch: the asked columns, [n]; accounting: what was read; hasher: of
    its keys."""

    name: str
    ts: Array
    batch: pa.RecordBatch
    accounting: Accounting
    hasher: KeyHasher = PUBLIC

    def __len__(self) -> int:
        return int(self.ts.shape[0])


def load_columns(manager: StreamManager, columns: Sequence[str]) -> Columns:
    """Read a stream to its end.  manager: one that carries `columns`.  Raises what it raises."""
    loaded = load_stream(manager)
    batch = loaded.carried
    if batch is None and columns:
        schema = pa.schema([manager.source.schema.field(name) for name in columns])
        batch = pa.RecordBatch.from_pylist([], schema=decoded_schema(schema))
    elif batch is None:
        # A batch without columns has no length; this one is never looked into.
        batch = pa.RecordBatch.from_arrays([pa.nulls(len(loaded))], names=["_"])
    return Columns(loaded.name, loaded.ts, batch, loaded.accounting, loaded.hasher)


def are_times_kept(manager: StreamManager) -> bool:
    """Whether event times are kept of files as they are now: those that were just read for that, too."""
    source = manager.source
    if not isinstance(source, ParquetSource) or (stamp := source.stamp) is None:
        return False
    return source.times.get(manager.spec.time, stamp) is not None
