"""Window functions whose frames begin with the partition, carried along while its rows pass in order.

Values are those of `nile.execution.over.functions`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nile.base.nearest import nearest
from nile.execution.over.functions import least_or_most, number_of
from nile.execution.values import column_of
from nile.sql.plan import OverItem
from nile.summaries.errors import SumOverflow
from nile.summaries.heavy import pa, pc

__all__ = ["Carried"]

Array = np.ndarray[Any, Any]


class Carried:
    """A function over the rows of one partition so far: up to each row, or to so many before it (`behind`).

    count: how many rows there will be, for cume_dist.  Memory: as many values as it is behind, and one.
    """

    def __init__(self, item: OverItem, count: int = 0, *, behind: int = 0) -> None:
        self._item = item
        self._size = count
        self._rows = self._count = 0
        self._sum: Any = None
        self._best: pa.Array | None = None
        self._behind = behind
        self._late: pa.Array | None = None

    def over(self, batch: pa.RecordBatch) -> pa.Array:
        """The value up to each of the next rows in order.  Raises SumOverflow."""
        found = self._over(batch)
        self._rows += batch.num_rows
        if not self._behind:
            return found
        if self._late is None:
            none = 0 if self._item.function == "count" else None
            self._late = pa.array([none] * self._behind, found.type)
        both = pa.concat_arrays([self._late, found])
        self._late = both.slice(len(found))
        return both.slice(0, len(found))

    def _over(self, batch: pa.RecordBatch) -> pa.Array:
        item, places = self._item, self._rows + np.arange(batch.num_rows)
        if item.function == "cume_dist":
            return pa.array((places + 1) / np.float64(self._size))
        if not item.arguments:
            return pa.array(places + 1)
        values = column_of(item.arguments[0], batch)
        match item.function:
            case "count" | "sum" | "avg":
                return self._totals(values)
            case "min" | "max":
                return self._kept(values, lambda both: least_or_most(both, least=item.function == "min"))
            case "last_value":
                return self._kept(values, pc.fill_null_forward) if item.without_nulls else values
            case "first_value" if item.without_nulls:
                return self._kept(values, _first_known)
        which = 1 if item.function == "first_value" else number_of(item, 1)
        if self._best is None:
            self._best = pa.nulls(1, values.type)
        both = pa.concat_arrays([self._best, values])
        at = which - self._rows  # in both, if it is among these rows
        place = np.full(batch.num_rows, max(at, 0) if at <= batch.num_rows else 0)
        found = both.take(pa.array(np.where(places + 1 >= which, place, 0)))
        self._best = found.slice(len(found) - 1) if len(found) else self._best
        return found

    def _kept(self, values: pa.Array, work: Callable[[pa.Array], pa.Array]) -> pa.Array:
        """Work on values behind the one that it came to before."""
        before = pa.nulls(1, values.type) if self._best is None else self._best
        found = work(pa.concat_arrays([before, values]))
        self._best = found.slice(len(values))
        return found.slice(1)

    def _totals(self, values: pa.Array) -> pa.Array:
        """count, sum and avg."""
        counts = self._count + np.cumsum(pc.is_valid(values).to_numpy(zero_copy_only=False), dtype=np.int64)
        self._count = int(counts[-1]) if len(counts) else self._count
        if self._item.function == "count":
            return pa.array(counts)
        is_whole = pa.types.is_integer(values.type) or pa.types.is_boolean(values.type)
        kind = pa.int64() if is_whole else pa.float64()
        numbers = nearest(values, kind, safe=is_whole).fill_null(0).to_numpy(zero_copy_only=False)
        if is_whole:
            largest = float(np.abs(numbers.astype(np.float64)).max(initial=0.0))
            if abs(self._sum or 0) + largest * numbers.shape[0] >= 2**62:
                numbers = numbers.astype(object)
        with np.errstate(invalid="ignore", over="ignore"):
            # What was carried comes first, as it does in a sum that runs on: no rounding is another.
            before = [] if self._sum is None else [np.array([self._sum], numbers.dtype)]
            sums = np.cumsum(np.concatenate([*before, numbers]))[len(before) :]
        if len(sums):
            self._sum = int(sums[-1]) if is_whole else sums[-1]
        if self._item.function == "avg":
            with np.errstate(invalid="ignore", over="ignore"):
                return pa.array(sums.astype(np.float64) / np.maximum(counts, 1), mask=counts == 0)
        if sums.dtype == object:
            beyond = [total for total in sums[counts > 0] if not -(1 << 63) <= total < 1 << 63]
            if beyond:
                raise SumOverflow(
                    f"sum OVER: needed totals of {values.type} within 64 bits; got {beyond[0]}; cast the column to "
                    "double"
                )
            sums = sums.astype(np.int64)
        return pa.array(sums, mask=counts == 0)


def _first_known(values: pa.Array) -> pa.Array:
    """The first value that is no null of those up to each."""
    known = pc.is_valid(values).to_numpy(zero_copy_only=False)
    first = int(np.argmax(known))
    there = np.arange(len(values)) >= first if known.any() else known
    return values.take(pa.array(np.full(len(values), first), mask=~there))
