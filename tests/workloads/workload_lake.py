"""Lakes for tests, written without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from nile.pyramid.lake.lake import LakeStream, Layout, write_part

SECOND = 10**9
START = 1_600_000_000 * SECOND


def write_lake(
    root: Path,
    name: str,
    ts: np.ndarray[Any, Any],
    columns: dict[str, Any],
    *,
    range_s: int = 3_600,
    group_rows: int = 500,
    bits: int = 12,
) -> LakeStream:
    """A stream of rows that are in order: a file a time range, ts in ns from START; the first column is the key."""
    table = pa.table({"at": pa.array(ts + START).cast(pa.timestamp("ns")), **columns})
    key = next(iter(columns))
    layout = Layout(name, "at", key, table.schema, range_s * SECOND, bits, group_rows)
    stream = LakeStream.create(root, layout)
    with stream.writing() as now:
        staged = []
        ranges = (ts + START) // layout.range_ns
        for number in np.unique(ranges).tolist():
            at = np.flatnonzero(ranges == number)
            file = now.staging() / f"{number}.parquet"
            rows = table.take(pa.array(at))
            part = write_part(file, at, ts[at] + START, rows, key, bits=bits, group_rows=group_rows, sync=False)
            staged.append((file, part))
        return now.commit(staged, {"id": name})
