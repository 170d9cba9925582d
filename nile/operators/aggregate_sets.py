"""Sketches for what moments do not hold: distinct values of whole cells, and how often single keys came."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.aggregate_estimates import Number
from nile.operators.aggregate_grid import Grid
from nile.operators.aggregate_input import AggregateInput
from summaries.costs import CostTable
from summaries.countsketch import CountSketch
from summaries.estimate import Estimate
from summaries.ready import HyperLogLog

__all__ = ["ROWS", "CellSets", "KeyCounts"]

Array = np.ndarray[Any, Any]
LG_REGISTERS = 11
ROWS = 5
_COLUMNS = 1024
_MOST_BYTES = 1 << 28


class CellSets:
    """The distinct counts of a grid's cells.  Memory: 2 KiB a cell and measure.

    A sketch is filled when it is first merged; that changes nothing but when the work is done.
    """

    def __init__(self, data: AggregateInput, grid: Grid) -> None:
        self._data = data
        self._grid = grid
        self._held: dict[tuple[int, int], HyperLogLog] = {}

    @staticmethod
    def fit(grid: Grid) -> bool:
        """Whether sketches for all cells stay within 256 MiB."""
        return grid.cells << LG_REGISTERS <= _MOST_BYTES

    @staticmethod
    def merging(grid: Grid, cells: Array, costs: CostTable) -> float:
        """What it costs to merge these cells: a register each, or a key each where there are fewer."""
        return costs.add * float(np.minimum(grid.tuples[cells], 1 << LG_REGISTERS).sum())

    def numbers(self, m: int, cells: Array, into: Array) -> list[Number]:
        """The distinct values of measure m over some cells, by group (`into`): two standard deviations, 0.954."""
        merged = [HyperLogLog(LG_REGISTERS) for _ in range(self._data.groups)]
        for cell, group in zip(cells.tolist(), into.tolist(), strict=True):
            merged[group].add(self._of(m, cell))
        numbers = []
        for sketch in merged:
            estimate = sketch.distinct()
            exact = estimate.value == 0.0
            numbers.append(Number(0 if exact else float(estimate.value), Estimate.exact(0.0) if exact else estimate))
        return numbers

    def _of(self, m: int, cell: int) -> HyperLogLog:
        found = self._held.get((m, cell))
        if found is None:
            found = HyperLogLog(LG_REGISTERS)
            measure = self._data.measures[m]
            at = self._grid.order[self._grid.starts[cell] : self._grid.starts[cell + 1]]
            assert measure.hashes is not None
            found.summarize(measure.hashes[at[measure.valid[at]]])
            self._held[m, cell] = found
        return found


class KeyCounts:
    """How many tuples each query's one key has, from one count sketch of 5 x 1024 counters over the stream.

    Its interval is the sketch's (Chebyshev, confidence 0.95, not certified, since F2 is estimated), cut off at
    an upper bound that is certain.
    """

    def __init__(self, data: AggregateInput) -> None:
        assert data.hashes is not None
        assert data.code is not None
        sketch = CountSketch(rows=ROWS, columns=_COLUMNS)
        sketch.summarize(data.hashes)
        first = np.zeros(int(data.code.max()) + 1, np.int64)
        first[data.code[::-1]] = np.arange(data.n)[::-1]
        keys = [int(np.flatnonzero(scope.passes)[0]) for scope in data.scopes if scope.passes is not None]
        self._counts = sketch.estimate(data.hashes[first[keys]])

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
