"""Moments in a value x time grid, split by group: what whole cells answer, and which tuples are left at the edges.

A tuple enters one cell: the value bucket of the grid's column, the zone, its group.  Cells are kept sparse, in
the order of (bucket, zone, group).  A query's conditions hold on all of a cell, on none of it, or cut through
it.  Cells that they hold on are answered from moments, exactly; of the others, tuples are read.

Borders come in two kinds.  `learned`: equal shares of the first tuples by value, and zones of a fixed number
of tuples, for queries that come later.  `predicates`: standing queries are known before the first tuple, so
values fall into the classes that no query tells apart and the stream into the pieces between the ends of
their time ranges; no query then cuts through a cell, but where a condition needs the tuple itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nile.operators.aggregate.input import SAMPLE, AggregateInput, large_tuples, marks_of
from nile.operators.aggregate.scope import Scope
from nile.operators.common.predicate_index import FULL as ALL
from nile.operators.common.predicate_index import PredicateIndex
from nile.summaries.moments import Moments

__all__ = ["EDGE", "FULL", "NONE", "Borders", "Grid", "Sketch", "borders_of", "edge_tuples"]

Array = np.ndarray[Any, Any]
NONE, EDGE, FULL = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Borders:
    """Where cells begin.  bucket: int32 [k], the bucket of each distinct value; zones: int64 [z + 1], ordinals."""

    bucket: Array
    buckets: int
    zones: Array

    @property
    def cells(self) -> int:
        """Bucket x zone pairs."""
        return self.buckets * (int(self.zones.shape[0]) - 1)


def borders_of(data: AggregateInput, kind: str, *, buckets: int, zone: int) -> Borders:
    """Borders of a kind, `learned` or `predicates`.  buckets, zone: of the learned kind, how many and how long."""
    n = data.n
    keys = 0 if data.rank is None else int(data.rank.shape[0])
    if kind == "predicates":
        tests = [scope.passes for scope in data.scopes if scope.passes is not None]
        cuts = np.unique([0, n, *(end for scope in data.scopes for end in (scope.first, scope.last))])
        if not tests or not keys or data.rank is None:
            return Borders(np.zeros(keys, np.int32), 1, cuts.astype(np.int64))
        index = PredicateIndex.of(np.stack(tests) * np.uint8(ALL), data.rank)
        return Borders(index.cell, index.cells, cuts.astype(np.int64))
    zones = np.append(np.arange(0, n, zone), n).astype(np.int64)
    if data.rank is None or data.code is None or not any(scope.passes is not None for scope in data.scopes):
        return Borders(np.zeros(keys, np.int32), 1, zones)
    ranks = np.sort(data.rank[data.code[:SAMPLE]])
    cuts = np.unique(ranks[np.arange(1, buckets) * ranks.shape[0] // buckets]) if ranks.shape[0] else ranks
    bucket = np.searchsorted(cuts, data.rank, side="right").astype(np.int32)
    return Borders(bucket, int(cuts.shape[0]) + 1, zones)


class Grid:
    """The cells of a stream.  Memory: 8 bytes per tuple, 24 a cell and its moments.

    bucket, zone, group: int32 [cells]; tuples: int64 [cells]; order: int64 [n], ordinals by cell and within
    a cell by arrival; starts: int64 [cells + 1] into it; moments: one a measure.  large: bool [n], the
    tuples beyond the marks of some measure, which are kept whatever the sampling rate.
    """

    def __init__(self, data: AggregateInput, borders: Borders) -> None:
        self.data = data
        self.borders = borders
        zones = borders.zones.shape[0] - 1
        n = data.n
        bucket = np.zeros(n, np.int64) if data.code is None else borders.bucket[data.code].astype(np.int64)
        zone = np.repeat(np.arange(zones), np.diff(borders.zones)) if n else np.zeros(0, np.int64)
        cell = (bucket * max(zones, 1) + zone) * max(data.groups, 1) + data.group
        self.order: Array = np.argsort(cell, kind="stable")
        present, begins = np.unique(cell[self.order], return_index=True)
        self.starts: Array = np.append(begins, n).astype(np.int64)
        self.group: Array = (present % max(data.groups, 1)).astype(np.int32)
        rest = present // max(data.groups, 1)
        self.zone: Array = (rest % max(zones, 1)).astype(np.int32)
        self.bucket: Array = (rest // max(zones, 1)).astype(np.int32)

    @property
    def cells(self) -> int:
        """Cells that hold a tuple."""
        return int(self.bucket.shape[0])

    @cached_property
    def tuples(self) -> Array:
        """Tuples of each cell."""
        return np.diff(self.starts)

    @cached_property
    def moments(self) -> tuple[Moments, ...]:
        """The moments of each measure."""
        order, starts = self.order, self.starts[:-1]
        return tuple(
            Moments.of(m.values[order], m.valid[order], starts, None if m.whole is None else m.whole[order])
            for m in self.data.measures
        )

    @cached_property
    def marks(self) -> tuple[tuple[float, float], ...]:
        """Of each measure, the values between which a tuple is ordinary."""
        return marks_of(self.data)

    @cached_property
    def large(self) -> Array:
        """Which tuples are large in some measure: bool [n]."""
        return large_tuples(self.data, self.marks)

    def state(self, scope: Scope) -> Array:
        """What a query's conditions do to each cell: int8 [cells], NONE, EDGE or FULL."""
        zones = self.borders.zones
        begin, end = zones[:-1], zones[1:]
        in_time = np.where((end <= scope.first) | (begin >= scope.last), NONE, EDGE)
        in_time = np.where((begin >= scope.first) & (end <= scope.last), FULL, in_time).astype(np.int8)
        state = in_time[self.zone]
        if scope.passes is not None and self.data.rank is not None:
            passing = np.bincount(self.borders.bucket, scope.passes, self.borders.buckets)
            known = np.bincount(self.borders.bucket, minlength=self.borders.buckets)
            in_value = np.where(passing == 0, NONE, np.where(passing == known, FULL, EDGE)).astype(np.int8)
            state = np.minimum(state, in_value[self.bucket])
        if scope.residual is not None:
            state = np.minimum(state, EDGE)
        if scope.empty:
            state = np.zeros_like(state)
        return state

    def positions(self, cells: Array) -> tuple[Array, Array]:
        """The ordinals of the tuples of some cells, and for each the place of its cell in `cells`."""
        sizes = self.tuples[cells]
        which = np.repeat(np.arange(cells.shape[0]), sizes)
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self.order[self.starts[cells][which] + within], which

    def reads(self, full: Array, scope: Scope) -> int:
        """How many sums have to be added up for whole cells.  full: the cells, int64 [f].

        A query over every value takes the sums over the buckets of a zone, one over all time the sums over
        the zones of a bucket: both are kept up as cells are finished (`margins`).
        """
        if full.shape[0] == 0:
            return 0
        cells = len(full)
        if scope.passes is None:
            cells = min(cells, len(np.unique(self.zone[full] * np.int64(self.data.groups) + self.group[full])))
        whole_time = scope.first <= 0 and scope.last >= self.data.n
        if whole_time:
            in_bucket = self.bucket[full] * np.int64(max(self.data.groups, 1)) + self.group[full]
            cells = min(cells, len(np.unique(in_bucket)))
        return cells

    @property
    def margins(self) -> int:
        """Cells added to the sums of their zone and of their bucket: two a cell, when there are two sides at all."""
        two_sided = self.borders.buckets > 1 and len(self.borders.zones) > 2
        return 2 * self.cells if two_sided else 0

    @property
    def nbytes(self) -> int:
        """Bytes of cells and moments."""
        held = self.bucket.nbytes + self.zone.nbytes + self.group.nbytes + self.starts.nbytes
        return int(held) + sum(moments.nbytes for moments in self.moments)


@dataclass(frozen=True, slots=True)
class Sketch:
    """A grid as it would be used.  cost: of upkeep and whole cells; complete: whether it answers exactly."""

    grid: Grid
    cost: float
    kept: float
    complete: bool
    variance: float


def edge_tuples(grid: Grid, state: Array, wanted: int) -> tuple[int, int]:
    """Ordinary and large tuples of the cells that have to be read."""
    cells = np.flatnonzero((state > 0) & (state <= wanted))
    at, _ = grid.positions(cells)
    large = int(grid.large[at].sum())
    return int(at.shape[0]) - large, large
