"""Reading tuples for one query: which may matter, in which random order, and what was found so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nile.operators.aggregate.evidence import Evidence, Known, no_cells
from nile.operators.aggregate.grid import EDGE, FULL, Grid
from nile.operators.aggregate.input import AggregateInput
from nile.operators.aggregate.scope import Scope

__all__ = ["Prices", "Reader", "complete_reader", "drawn_reader", "grid_reader", "stream_reader"]

Array = np.ndarray[Any, Any]
_BLOCKS = 16
_LEAST = 10
_CHUNK = 1_024
"""Tuples drawn from a stratum before its spread is believed; smaller ones are put together."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What one tuple costs per query.  test: to see whether it satisfies; take: to take a satisfying one in."""

    test: float
    take: float


@dataclass
class Reader:
    """The tuples that one query may have to read.

    pool: int64 [p], ordinals in random order: any first m of them are a simple random sample of what the
    strata hold.  label: int64 [p], the stratum of each; sizes: int64 [labels], tuples of each stratum, which
    may be more than the pool holds of it; sure: bool [labels], strata whose tuples all satisfy.  must: ordinals
    that are read first, whatever the budget.  least, most: bounds on unread tuples, one a measure.
    """

    data: AggregateInput
    scope: Scope
    prices: Prices
    known: Known
    pool: Array
    label: Array
    sizes: Array
    sure: Array
    must: Array
    least: tuple[Array, ...]
    most: tuple[Array, ...]
    read: int = 0
    spent: float = 0.0
    _found: list[Array] = field(default_factory=list)
    _first: Array | None = None
    _evidence: Evidence | None = None

    @property
    def done(self) -> bool:
        """Whether nothing is left to read."""
        return bool(self.read >= self.pool.shape[0])

    def first(self) -> float:
        """Read what must be read; what it cost."""
        self._evidence = None
        hit = self.scope.match(self.must, self.data.code)
        self._first = self.must[hit]
        cost = self.prices.test * len(self.must) + self.prices.take * float(hit.sum())
        self.spent += cost
        return cost

    def advance(self, to: int) -> float:
        """Read the pool up to its `to`-th tuple; what it cost."""
        to = min(to, self.pool.shape[0])
        if to <= self.read:
            return 0.0
        self._evidence = None
        part = self.pool[self.read : to]
        hit = self.scope.match(part, self.data.code)
        self._found.append(hit)
        cost = self.prices.take * float(hit.sum())
        if not self.sure.all():
            tested = to - self.read if not self.sure.any() else int((~self.sure[self.label[self.read : to]]).sum())
            cost += self.prices.test * float(tested)
        self.read = to
        self.spent += cost
        return cost

    def read_while(self, left: Callable[[], float], each: float) -> None:
        """Read on for as long as there is time.  left: seconds; each: of them, that numbers take for a tuple found.

        At least a chunk is read; chunks double while the next one is expected to fit.  What is read is a beginning of
        the pool, whose order is random, so that when it ends tells nothing of what is in it.
        """
        chunk = _CHUNK
        while not self.done:
            before, found = left(), self.hits()
            self.advance(self.read + chunk)
            took = max(0.0, before - left()) + each * (self.hits() - found)
            room = left() - each * self.hits()
            if room <= took:
                return
            if room > 4.0 * took:
                chunk *= 2

    def spend(self, credit: float) -> float:
        """Read as much as `credit` pays for, never more; what was spent.

        A first quarter shows how many satisfy; how far to go is settled from that alone, so that the rest of
        the sample does not depend on what is in it.
        """
        worst = self.prices.test + self.prices.take
        left = len(self.pool) - self.read
        if left * worst <= credit:
            return self.advance(self.pool.shape[0])
        trial = int(credit / 4.0 / worst)
        before = self.hits()
        spent = self.advance(self.read + trial)
        if trial == 0:
            return spent
        rate = (self.hits() - before) / trial
        rate = min(1.0, rate + 2.0 * (max(rate * (1.0 - rate), 1.0 / trial) / trial) ** 0.5)
        each = self.prices.test + self.prices.take * rate
        return spent + self.advance(self.read + self._affordable(int((credit - spent) / each), credit - spent))

    def _affordable(self, count: int, credit: float) -> int:
        """At most `count` tuples, and no more than `credit` pays for should they satisfy oftener than expected."""
        part = self.pool[self.read : self.read + count]
        tested = ~self.sure[self.label[self.read : self.read + count]]
        costs = self.prices.test * tested + self.prices.take * self.scope.match(part, self.data.code)
        return int(np.searchsorted(np.cumsum(costs), credit, side="right"))

    def hits(self) -> int:
        """Satisfying tuples found in the pool so far."""
        return sum(int(part.sum()) for part in self._found)

    @property
    def touched(self) -> Array:
        """The ordinals read so far."""
        return np.concatenate([self.must, self.pool[: self.read]])

    def evidence(self) -> Evidence:
        """What has been read so far."""
        if self._evidence is None:
            self._evidence = self._told()
        return self._evidence

    def _told(self) -> Evidence:
        groups = self.data.groups
        hit = self._found[0] if len(self._found) == 1 else np.concatenate([np.zeros(0, bool), *self._found])
        label = self.label[: self.read]
        drawn = np.bincount(label, minlength=self.sizes.shape[0])
        into, size, drawn, sure = _merged(self.sizes, drawn, self.sure)
        first = self.must[:0] if self._first is None else self._first
        finished = bool((drawn == size).all())
        none = tuple(np.full(groups, np.inf) for _ in self.data.measures)
        at, stratum = self.pool[: self.read][hit], (into + 1)[label[hit]]
        if first.shape[0]:
            at, stratum = np.concatenate([first, at]), np.concatenate([np.zeros(first.shape[0], np.int64), stratum])
        return Evidence(
            data=self.data,
            known=self.known,
            at=at,
            stratum=stratum,
            size=np.append(self.must.shape[0], size),
            drawn=np.append(self.must.shape[0], drawn),
            certain=np.append(False, sure),
            least=none if finished else self.least,
            most=tuple(-part for part in none) if finished else self.most,
        )


def part_of(left: Callable[[], float], readers: int) -> Callable[[], float]:
    """The seconds that the first of so many readers has left, when each gets as many."""
    others = left() * (1.0 - 1.0 / readers)
    return lambda: left() - others


def _merged(sizes: Array, drawn: Array, sure: Array) -> tuple[Array, Array, Array, Array]:
    """Neighbouring strata put together until each was read to its end or gave `_LEAST` tuples.

    Returns the new stratum of each old one, sizes, drawn, and whether all tuples satisfy.
    """
    into = np.zeros(sizes.shape[0], np.int64)
    merged: list[list[int]] = []
    waiting = False
    for i in range(sizes.shape[0]):
        if not waiting or not merged:
            merged.append([0, 0, 1])
        total = merged[-1]
        total[0] += int(sizes[i])
        total[1] += int(drawn[i])
        total[2] &= int(sure[i])
        into[i] = len(merged) - 1
        waiting = total[1] < total[0] and total[1] < _LEAST
    if waiting and len(merged) > 1:
        last = merged.pop()
        for k in range(2):
            merged[-1][k] += last[k]
        merged[-1][2] &= last[2]
        into[into == len(merged)] = len(merged) - 1
    table = np.array(merged, np.int64).reshape(-1, 3)
    return into, table[:, 0], table[:, 1], table[:, 2].astype(bool)


def _bounds(
    data: AggregateInput, marks: tuple[tuple[float, float], ...] | None
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Of each measure, how low and high a tuple that is not large can lie, by group."""
    ends = marks or tuple((-np.inf, np.inf) for _ in data.measures)
    least = tuple(np.full(data.groups, max(m.low, end[0])) for m, end in zip(data.measures, ends, strict=True))
    most = tuple(np.full(data.groups, min(m.high, end[1])) for m, end in zip(data.measures, ends, strict=True))
    return least, most


def complete_reader(data: AggregateInput, scope: Scope, prices: Prices) -> Reader:
    """Every tuple in the query's time range, in order: what the naive way looks at and finds."""
    return stream_reader(data, scope, prices, np.arange(data.n), np.array([0, data.n]))


def drawn_reader(
    data: AggregateInput, scope: Scope, prices: Prices, sizes: Array, drawn: Array, label: Array
) -> Reader:
    """What an input tells that was drawn, and put to its conditions, before; nothing is left to read.

    sizes, drawn: int64 [strata], tuples of the stream and those drawn; label: int64 [n], the stratum of each.
    """
    assert data.drawn is not None
    least, most = _bounds(data, None)
    free = data.drawn.hits is None
    into, size, drawn, sure = _merged(sizes, drawn, np.full(sizes.shape[0], free))
    stratum = label if size.shape[0] == sizes.shape[0] else into[label]
    none, known = np.zeros(0, np.int64), no_cells(data.groups)
    return Reader(
        data, scope, prices, known, none, none, sizes, sure, none, least, most,
        spent=prices.take * data.n + prices.test * data.tested * (not free),
        _evidence=Evidence(data, known, np.arange(data.n), stratum, size, drawn, sure, least, most),
    )  # fmt: skip


def stream_reader(
    data: AggregateInput,
    scope: Scope,
    prices: Prices,
    order: Array,
    zones: Array,
    large: Array | None = None,
    marks: tuple[tuple[float, float], ...] | None = None,
    ruled_out: Array | None = None,
) -> Reader:
    """A sample of the stream itself.

    order: int64 [n], ordinals by their random number; zones: int64 [z + 1], where zones begin.  Zones outside
    the time range are never read.  The two at its ends are strata of their own, those between are cut into up
    to 16; in these, without another condition, every tuple satisfies and none needs a test.  large: bool [n],
    with their marks, tuples that are read whatever the budget and are no part of the sample.  ruled_out: int64
    [runs, 2], ordinals [begin, end) of tuples that certainly do not satisfy: they are never read, and count nowhere.
    """
    first, last = (scope.first, scope.last) if not scope.empty else (0, 0)
    begin = int(np.searchsorted(zones, first, side="right")) - 1
    end = int(np.searchsorted(zones, last, side="left"))
    if last <= first:
        cuts = np.zeros(1, np.int64)
    else:
        inner_begin = begin + int(zones[begin] < first)
        inner_end = end - int(zones[end] > last)
        inner = np.unique(np.linspace(inner_begin, max(inner_begin, inner_end), _BLOCKS + 1).astype(np.int64))
        cuts = np.unique(np.concatenate([zones[[begin, end]], zones[inner]]))
    low, high = int(cuts[0]), int(cuts[-1])
    pool = order if high - low == data.n else order[(order >= low) & (order < high)]
    inside = (cuts[:-1] >= first) & (cuts[1:] <= last)
    least, most = _bounds(data, marks)
    sizes, must = np.diff(cuts), np.zeros(0, np.int64)
    if large is not None or ruled_out is not None:
        wanted, apart = np.ones(data.n, bool), np.zeros(data.n, bool) if large is None else large
        for run in () if ruled_out is None else ruled_out:
            wanted[run[0] : run[1]] = False
        must = np.flatnonzero((wanted & apart)[low:high]) + low
        pooled = wanted & ~apart
        pool = pool[pooled[pool]]
        sizes = np.add.reduceat(np.append(pooled[low:high], False), cuts[:-1] - low, dtype=np.int64)
    return Reader(
        data=data,
        scope=scope,
        prices=prices,
        known=no_cells(data.groups),
        pool=pool,
        label=np.repeat(np.arange(cuts.shape[0] - 1), np.diff(cuts))[pool - low],
        sizes=sizes,
        sure=inside & (not scope.tests_tuples),
        must=must,
        least=least,
        most=most,
    )


def grid_reader(
    data: AggregateInput, scope: Scope, prices: Prices, grid: Grid, unit: Array, kept: float, *, moments: bool
) -> Reader:
    """Whole cells from their moments, the tuples of cells that the conditions cut through from the kept ones.

    unit: float64 [n], the tuples' random numbers; kept: those below it are there to be read, and the large
    ones.  moments: False reads tuples of whole cells too, which quantiles and sets of values need.
    """
    state = grid.state(scope)
    full = np.flatnonzero(state == FULL) if moments else np.zeros(0, np.int64)
    edge = np.flatnonzero(state == EDGE if moments else state != 0)
    groups = data.groups
    into = grid.group[full].astype(np.int64)
    rows = np.bincount(into, grid.tuples[full], groups).astype(np.int64)
    known = Known(rows, full, into, grid.moments if moments else ())
    at, which = grid.positions(edge)
    large = grid.large[at]
    # A bucket that the values cut through is a stratum; so is a zone at an end of the time range.
    zones = grid.borders.zones.shape[0]
    bucket = grid.bucket[edge].astype(np.int64)
    cut = np.zeros(grid.borders.buckets, bool)
    if scope.passes is not None:
        passing = np.bincount(grid.borders.bucket, scope.passes, grid.borders.buckets)
        cut = (passing > 0) & (passing < np.bincount(grid.borders.bucket, minlength=grid.borders.buckets))
    key = np.where(cut[bucket] | (scope.residual is not None), zones + bucket, grid.zone[edge])
    _, label = np.unique(key, return_inverse=True)
    label = label.reshape(-1)
    labels = int(label.max(initial=-1)) + 1
    ordinary = np.bincount(which[~large], minlength=edge.shape[0])
    sizes = np.bincount(label, ordinary, labels).astype(np.int64)
    there = ~large & (unit[at] < kept)
    pool, pool_label = at[there], label[which[there]]
    order = np.argsort(unit[pool], kind="stable")
    least, most = _cell_bounds(data, grid, edge[ordinary > 0])
    return Reader(
        data=data,
        scope=scope,
        prices=prices,
        known=known,
        pool=pool[order],
        label=pool_label[order],
        sizes=sizes,
        sure=np.zeros(labels, bool),
        must=at[large],
        least=least,
        most=most,
    )


def _cell_bounds(data: AggregateInput, grid: Grid, cells: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Of each measure, how low and high an ordinary tuple of these cells lies at most, by group."""
    least, most = [], []
    for m in range(len(data.measures)):
        low, high = np.full(data.groups, np.inf), np.full(data.groups, -np.inf)
        mark_low, mark_high = grid.marks[m]
        with np.errstate(invalid="ignore"):
            some = grid.moments[m].count[cells] > grid.moments[m].nans[cells]
        chosen = cells[some]
        group = grid.group[chosen]
        np.minimum.at(low, group, np.maximum(grid.moments[m].low[chosen], mark_low))
        np.maximum.at(high, group, np.minimum(grid.moments[m].high[chosen], mark_high))
        least.append(low)
        most.append(high)
    return tuple(least), tuple(most)
