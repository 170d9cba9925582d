"""Tumbling and hopping windows: the bounds of the windows that rows are in."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.base.times import event_times
from nile.sql.plan import Hop
from nile.summaries.heavy import pa

__all__ = ["hop_rows"]

Array = np.ndarray[Any, Any]
_US = 1_000


def hop_rows(plan: Hop, below: pa.RecordBatch) -> tuple[pa.RecordBatch, Array, Array]:
    """(rows once for each window, earlier windows first, which row each is of, when its window ends in ns).

    A row without a time, which no stream has, is in no window.  Cost: O(rows x size / slide).
    """
    times = event_times(below.column(below.schema.get_field_index(plan.time)))
    known = np.arange(below.num_rows) if times.reason is None else np.flatnonzero(times.reason == 0)
    last = times.ns[known] // plan.slide * plan.slide
    back = -(-plan.size // plan.slide)  # windows that a row may be in
    starts = (last[:, None] - np.arange(back - 1, -1, -1) * plan.slide).ravel()
    rows = np.repeat(known, back)
    inside = starts + plan.size > times.ns[rows]
    starts, rows = starts[inside], rows[inside]
    bounds = [pa.array(each // _US).cast(pa.timestamp("us")) for each in (starts, starts + plan.size)]
    taken = below.take(pa.array(rows))
    names = [*taken.schema.names, *plan.names]
    return pa.RecordBatch.from_arrays([*taken.columns, *bounds], names=names), rows, starts + plan.size
