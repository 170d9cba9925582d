"""Sketches for what moments do not hold: distinct values of whole cells, and how often single keys came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nile.aggregates.asked import SETS, Aggregate
from nile.operators.aggregate.estimates import Number
from nile.operators.aggregate.grid import Grid
from nile.operators.aggregate.input import AggregateInput
from nile.summaries.costs import CostTable
from nile.summaries.countsketch import CountSketch
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa
from nile.summaries.ready import FrequentItems, HyperLogLog
from nile.summaries.summary import Summary

__all__ = ["ROWS", "CellSets", "KeyCounts"]

Array = np.ndarray[Any, Any]
LG_REGISTERS = 11
_CAPACITY = 1024
ROWS = 5
_COLUMNS = 1024
_MOST_BYTES = 1 << 28


class CellSets:
    """The distinct values of a grid's cells: how many (HyperLogLog), which are frequent (Misra-Gries).

    Memory: 2 KiB, or 16 bytes a kept value, for each cell and expression.  A sketch is filled when it is first
    merged; that changes nothing but when the work is done.
    """

    def __init__(self, data: AggregateInput, grid: Grid) -> None:
        self._data = data
        self._grid = grid
        self._held: dict[tuple[str, int, int], Summary] = {}

    @staticmethod
    def fit(grid: Grid) -> bool:
        """Whether sketches for all cells stay within 256 MiB."""
        return grid.cells << LG_REGISTERS <= _MOST_BYTES

    @staticmethod
    def upkeep(aggregates: Sequence[Aggregate], costs: CostTable) -> float:
        """What a tuple costs: an update of each HyperLogLog, a lookup and an update of each table of values."""
        made = {(each.function, each.value.text) for each in aggregates if each.value and each.function in SETS}
        return sum(costs.update + (costs.lookup if function == "top_k" else 0.0) for function, _ in made)

    @staticmethod
    def merging(aggregates: Sequence[Aggregate], grid: Grid, cells: Array, costs: CostTable) -> float:
        """What it costs to merge these cells: a register or kept value each, or a tuple each where there are fewer."""
        price = 0.0
        for aggregate in aggregates:
            if aggregate.function in SETS:
                most = 1 << LG_REGISTERS if aggregate.function == "count_distinct" else _CAPACITY
                price += costs.add * float(np.minimum(grid.tuples[cells], most).sum())
        return price

    def numbers(self, aggregate: Aggregate, m: int, cells: Array, into: Array, labels: pa.Array | None) -> list[Number]:
        """Distinct values or top_k of measure m over some cells, by group (`into`).

        Distinct values: two standard deviations, 0.954.  top_k: counts that are too low by at most what `high` says,
        which is certain; values beyond those kept are rarer than that.
        """
        empty = HyperLogLog(LG_REGISTERS) if aggregate.function == "count_distinct" else FrequentItems(_CAPACITY)
        merged = [empty.copy() for _ in range(self._data.groups)]
        for cell, group in zip(cells.tolist(), into.tolist(), strict=True):
            merged[group].add(self._of(empty, m, cell))
        return [_told(summary, aggregate, labels) for summary in merged]

    def _of(self, empty: Summary, m: int, cell: int) -> Summary:
        found = self._held.get((empty.kind, m, cell))
        if found is None:
            found = empty.empty()
            measure = self._data.measures[m]
            at = self._grid.order[self._grid.starts[cell] : self._grid.starts[cell + 1]]
            at = at[measure.valid[at]]
            assert measure.hashes is not None
            assert measure.code is not None
            # Codes are keys as good as hashes, and lead back to the values.
            found.summarize(measure.hashes[at] if empty.kind == "hll" else measure.code[at].astype(np.uint64))
            self._held[empty.kind, m, cell] = found
        return found


def _told(summary: Summary, aggregate: Aggregate, labels: pa.Array | None) -> Number:
    if isinstance(summary, HyperLogLog):
        estimate = summary.distinct()
        exact = estimate.value == 0.0
        return Number(0 if exact else float(estimate.value), Estimate.exact(0.0) if exact else estimate)
    assert isinstance(summary, FrequentItems)
    if summary.total == 0:
        return Number(None, None)
    keys, counts = summary.top(int(aggregate.argument or 1))
    names = labels.take(pa.array(keys.astype(np.int64))).to_pylist() if labels is not None else keys.tolist()
    off = float(summary.offset)
    return Number(
        [
            {"value": name, "count": float(count), "low": float(count), "high": float(count) + off}
            for name, count in zip(names, counts, strict=True)
        ],
        None,
    )


class KeyCounts:
    """How many tuples each query's one key has, from one count sketch of 5 x 1024 counters over the stream.

    Its interval is the sketch's (Chebyshev, confidence 0.95, not certified, since F2 is estimated), cut off at
    an upper bound that is certain.
    """

    def __init__(self, data: AggregateInput) -> None:
        assert data.hashes is not None
        sketch = CountSketch(rows=ROWS, columns=_COLUMNS)
        sketch.summarize(data.hashes)
        self._counts = sketch.estimate(np.concatenate([data.key_hashes(scope) for scope in data.scopes]))

    @staticmethod
    def answer(data: AggregateInput) -> bool:
        """Whether counting single keys over the whole stream is all that is asked."""
        if data.grouped or data.hashes is None or any(aggregate.value is not None for aggregate in data.aggregates):
            return False
        return all(
            scope.passes is not None
            and int(scope.passes.sum()) == 1
            and scope.residual is None
            and (scope.first, scope.last) == (0, data.n)
            for scope in data.scopes
        )

    def number(self, q: int) -> Number:
        """The count of query q's key."""
        estimate = self._counts[q]
        return Number(float(estimate.value), estimate)
