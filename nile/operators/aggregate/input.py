"""What aggregates are computed from: an ordered stream, standing queries over it, and what each touch costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nile.aggregates.asked import MOMENT, Aggregate
from nile.aggregates.catalogue import CATALOGUE
from nile.operators.aggregate.scope import Scope
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SLICE
from nile.summaries.costs import CostTable
from nile.summaries.hashing import mixed
from nile.summaries.intervals import TAIL

__all__ = [
    "SAMPLE",
    "AggregateInput",
    "Drawn",
    "Measure",
    "accumulate_cost",
    "counters",
    "in_random_order",
    "is_tame",
    "large_tuples",
    "least_summary",
    "marks_of",
    "matches_of",
    "naive_cost",
    "seed_word",
    "unit_hash",
    "units",
]

Array = np.ndarray[Any, Any]

SAMPLE = 4 * SLICE
"""The first tuples, which learned borders and the marks of large values come from."""
_LARGE_SHARE = 0.02
_FEW, _SURE = 4, 6.0
"""Of all tuples, one in so many is few; and how many deviations more than are wanted are looked for."""
_TAME_SHARE = 0.1
"""Values are tame when a sample of this share of the stream can certify intervals without taking large ones apart."""
_KEPT = {name: {"count", *CATALOGUE[name].parts} for name in MOMENT}  # a cell without values is told from one of 0


@dataclass(frozen=True, slots=True)
class Measure:
    """An expression's value for every tuple.

    text: the expression.  valid: bool [n], False where null.  values: float64 [n], 0 where null or where it is
    no number; whole: int64 [n] for integers, else None.  code: int32 [n] in order of first appearance (-1
    where null) and hashes: uint64 [n], where distinct values matter, else None.  low, high: what statistics of
    the source say of any value, infinite where they say nothing.
    """

    text: str
    valid: Array
    values: Array
    whole: Array | None = None
    code: Array | None = None
    hashes: Array | None = None
    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True, slots=True)
class Drawn:
    """What an input is a sample of.  at: int64 [m], ordinals drawn, ascending, in [0, size); None: all, in order.

    size: tuples they were drawn from; rows: tuples of the stream, of which these are those in the asked time.
    note: what should be known of the cost, else "".  hits: int64 [n], the places in `at` of those that satisfy, which
    are the input; None: all were put to no condition.
    """

    at: Array | None
    size: int
    rows: int
    note: str = ""
    hits: Array | None = None

    @property
    def times(self) -> float:
        """For how many tuples each one stands."""
        return 1.0 if self.at is None else self.size / max(1, self.at.shape[0])


@dataclass(frozen=True)
class AggregateInput:
    """An ordered stream of n tuples, and all that is asked of it.

    aggregates and, for each, `of`: the number of its measure (-1 for count(*)).  group: int32 [n], groups
    numbered by first appearance; code: int32 [n] of the grid's column and rank: int64 [k], each distinct
    value's place in their order (None without such a column).  summary: a grid that others keep of that column, which
    has counted these tuples and no others; None: there is none.  drawn: what these tuples are a sample of, whose groups
    and measures alone are there, of those that satisfy; None: they are the stream.
    """

    ts: Array
    aggregates: tuple[Aggregate, ...]
    of: tuple[int, ...]
    measures: tuple[Measure, ...]
    scopes: tuple[Scope, ...]
    group: Array
    groups: int
    grouped: bool
    code: Array | None
    rank: Array | None
    hashes: Array | None = None
    summary: SummaryManager | None = None
    drawn: Drawn | None = None

    def key_hashes(self, scope: Scope) -> Array:
        """The hashes of the values that pass a scope, 0 that of null: uint64 [m].  The grid's column is there."""
        assert self.hashes is not None
        assert self.code is not None
        assert scope.passes is not None
        return self.hashes[self._first[np.flatnonzero(scope.passes)]]

    @cached_property
    def _first(self) -> Array:
        """Where each value comes first: int64 [k]."""
        assert self.code is not None
        first = np.zeros(int(self.code.max(initial=-1)) + 1, np.int64)
        first[self.code[::-1]] = np.arange(self.n)[::-1]
        return first

    @property
    def n(self) -> int:
        """Tuples of the stream."""
        return int(self.ts.shape[0])

    @property
    def tested(self) -> int:
        """Tuples of the stream, or, of a sample, those that were drawn."""
        return self.n if self.drawn is None or self.drawn.at is None else self.drawn.at.shape[0]


def counters(data: AggregateInput) -> dict[int, set[str]]:
    """Which moments the aggregates need, by measure (-1: of whole tuples, where only `count` makes sense)."""
    needed: dict[int, set[str]] = {-1: {"count"}}
    for aggregate, m in zip(data.aggregates, data.of, strict=True):
        needed.setdefault(m, set()).update(_KEPT.get(aggregate.function, ()))
    for m, measure in enumerate(data.measures):
        if m in needed and bool(measure.valid.all()):
            needed[m].discard("count")  # a column without nulls is counted with its tuples
    return needed


def accumulate_cost(aggregates: Sequence[Aggregate], costs: CostTable, *, grouped: bool) -> float:
    """What it costs to take one satisfying tuple into all aggregates of a query.

    An update for each moment (a sum and an avg of one expression share theirs); keeping a value for a
    quantile is an insert; a set or table of values takes a lookup and an update; so does finding the group a
    lookup.  The same price for every method, the naive one included.
    """
    moments: set[tuple[str, str]] = set()
    price = costs.lookup if grouped else 0.0
    for aggregate in aggregates:
        text = "" if aggregate.value is None else aggregate.value.text
        moments.update((text, kept) for kept in _KEPT.get(aggregate.function, ()))
        kind = CATALOGUE[aggregate.function]
        if kind.is_quantile:
            price += costs.insert
        elif kind.is_set:
            price += costs.lookup + costs.update
    return price + costs.update * len(moments)


def least_summary(n: int, costs: CostTable, rows: int) -> float:
    """What any grid or sketch of n tuples costs at the least.  rows: of a sketch."""
    return n * min(costs.update, costs.update_sketch(rows))


def naive_cost(data: AggregateInput, costs: CostTable, matches: Sequence[int]) -> float:
    """The base of a budget: every tuple fed to every query.

    n * queries * scan + accumulate * matches: what `naive_costs` of standing selections is, but that naive
    keeps no tuple (no insert) and adds a match to its counters where a selection would emit it.
    matches: satisfying tuples of each query.
    """
    taken = accumulate_cost(data.aggregates, costs, grouped=data.grouped) * float(sum(matches))
    return costs.scan * data.tested * len(data.scopes) + taken


def matches_of(data: AggregateInput, q: int) -> int:
    """How many tuples satisfy query q: the base of the budget, known to the judge alone."""
    scope = data.scopes[q]
    if scope.empty:
        return 0
    at = np.arange(scope.first, scope.last)
    return int(scope.match(at, data.code).sum())


def unit_hash(n: int, seed: int) -> Array:
    """A number in [0, 1) for each ordinal: float64 [n], splitmix64, the same everywhere.

    A tuple is sampled at rate p when its number is below p: any cut into batches draws the same sample, a
    larger rate draws a superset, and given how many were drawn each set of that size was equally likely.
    """
    return units(np.arange(1, n + 1, dtype=np.uint64), seed)


def in_random_order(n: int, seed: int, most: int | None = None) -> Array:
    """The ordinals by their `unit_hash`, of equals the smaller first: int64 [n].  20 to 35 ns each.

    most: how many are wanted, None: all; where these are few, they and some more come: 10 ns an ordinal.
    By the upper 32 bits in two passes, each of which sorts 16; what these leave alike is rare.
    """
    unit = unit_hash(n, seed)
    if most is not None and _FEW * most < n:
        some = np.flatnonzero(unit < (most + _SURE * (most + 1) ** 0.5) / n)
        if some.shape[0] >= most:
            first: Array = some[unit[some].argsort(kind="stable")]
            return first
    upper = (unit * 2.0**32).astype(np.uint32)
    halves = [np.ascontiguousarray(((upper >> shift) & 0xFFFF).astype(np.uint16)) for shift in (0, 16)]
    order: Array = halves[0].argsort(kind="stable")
    order = order[halves[1][order].argsort(kind="stable")]
    alike = np.flatnonzero(upper[order[1:]] == upper[order[:-1]])
    if alike.shape[0]:  # runs of them, one after the other
        at = np.union1d(alike, alike + 1)
        some = order[at]
        order[at] = some[np.lexsort((some, unit[some]))]
    return order


def seed_word(seed: int) -> Any:
    """What a seed adds to the words of `units`: uint64."""
    return np.uint64((seed * 0xD1B54A32D192ED03) % 2**64)


def units(words: Array, seed: int) -> Array:
    """A number in [0, 1) for each word (uint64 [n]): float64 [n], splitmix64 of the word and the seed."""
    with np.errstate(over="ignore"):
        z = mixed((words + seed_word(seed)) * np.uint64(0x9E3779B97F4A7C15))
    return np.asarray((z >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def marks_of(data: AggregateInput) -> tuple[tuple[float, float], ...]:
    """Of each measure, the values between which a tuple is ordinary; beyond them it is large.

    Of the first tuples' values the 2 % farthest from their median are beyond the marks.  Large tuples are read
    whenever they matter, never sampled: a sample that may or may not hold the one big order is worth little,
    and what is left has a known bound.
    """
    marks = []
    for measure in data.measures:
        seen = measure.values[:SAMPLE][measure.valid[:SAMPLE]]
        seen = seen[np.isfinite(seen)]
        if seen.shape[0] < SLICE // 4:
            marks.append((-math.inf, math.inf))
            continue
        middle = float(np.median(seen))
        reach = float(np.quantile(np.abs(seen - middle), 1.0 - _LARGE_SHARE))
        marks.append((middle - reach, middle + reach))
    return tuple(marks)


def large_tuples(data: AggregateInput, marks: tuple[tuple[float, float], ...]) -> Array:
    """Which tuples are beyond the marks of some measure (NaN is): bool [n]."""
    found = np.zeros(data.n, bool)
    for measure, (low, high) in zip(data.measures, marks, strict=True):
        found |= measure.valid & ~((measure.values >= low) & (measure.values <= high))
    return found


def is_tame(measure: Measure, n: int) -> bool:
    """Whether the source's bounds on a measure are near enough to the spread of its first values."""
    seen = measure.values[:SAMPLE][measure.valid[:SAMPLE]]
    if seen.shape[0] < 2 or not math.isfinite(measure.low) or not math.isfinite(measure.high):
        return False
    middle, spread = float(seen.mean()), float(seen.std())
    reach = max(measure.high - middle, middle - measure.low)
    return reach**2 <= TAIL * _TAME_SHARE * n * spread**2
