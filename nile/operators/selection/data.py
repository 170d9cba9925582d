"""What standing selections read and what they give: the stream with its predicates, outputs, figures, and prices."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nile.operators.common.predicate_index import EDGE, FULL
from nile.pyramid.grid.manager import SummaryManager
from nile.summaries.costs import CostTable

__all__ = ["SelectionFigures", "SelectionInput", "Selections", "index_costs", "naive_costs", "value_buckets"]

Array = np.ndarray[Any, Any]


def _nothing() -> Array:
    return np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class SelectionInput:
    """An ordered stream of n tuples and q predicates over its k distinct keys.

    ts: int64 [n] ns; code: int32 [n], keys numbered by first appearance (a null is a key here); rank: int64
    [k], each key's place in their order; says: uint8 [q, k], what a predicate says of a key: NONE, FULL or EDGE (see
    predicate_index); magnitude: float64 [k], |value| of a key; hashes: uint64 [k], of a key.
    verdict: uint8 [m, n], whether a tuple satisfies a predicate that has conditions over other columns too, and
    verdict_row: int32 [q], the row of a predicate there, -1 for none.  learned: how many predicates do not follow
    from the order of keys, so that an index has to put them to every new key.  summary: a grid that others keep of
    the keys, which has counted these tuples and no others; None: there is none.
    """

    ts: Array
    code: Array
    rank: Array
    says: Array
    magnitude: Array
    hashes: Array = field(default_factory=_nothing)
    verdict: Array = field(default_factory=lambda: np.zeros((0, 0), np.uint8))
    verdict_row: Array = field(default_factory=_nothing)
    learned: int = 0
    summary: SummaryManager | None = None

    def beginning(self, tuples: int) -> SelectionInput:
        """The first tuples of the stream, under the same predicates."""
        return replace(
            self, ts=self.ts[:tuples], code=self.code[:tuples], verdict=self.verdict[:, :tuples], summary=None
        )

    @property
    def rows(self) -> Array:
        """`verdict_row`, also where no predicate has one: int32 [q]."""
        return self.verdict_row if self.verdict_row.shape[0] else np.full(self.says.shape[0], -1, np.int32)

    @property
    def matches(self) -> Array:
        """How many queries each tuple satisfies: int64 [n]."""
        own = self.says[self.rows < 0]
        found: Array = (own == FULL).sum(axis=0, dtype=np.int64)[self.code]
        return found + self.verdict.sum(axis=0, dtype=np.int64) if self.verdict.shape[0] else found

    def truth(self, query: int) -> Array:
        """Which tuples satisfy a query: bool [n]."""
        row = int(self.rows[query])
        return np.asarray(self.verdict[row] != 0 if row >= 0 else self.says[query][self.code] == FULL)


@dataclass(frozen=True, slots=True)
class Selections:
    """A batch of outputs.  query: int32 [n]; ordinal: int64 [n], the tuple; at: int64 [n], arrivals by then.

    last: of records (`output="ranges"`) the place after the last tuple, `ordinal` being the place of the first; -1
    for a record of one tuple, which is `ordinal`; None where all outputs are tuples.
    """

    query: Array
    ordinal: Array
    at: Array
    last: Array | None = None

    def __len__(self) -> int:
        return int(self.query.shape[0])

    def first(self, count: int) -> Selections:
        """The first outputs of the batch."""
        last = None if self.last is None else self.last[:count]
        return Selections(self.query[:count], self.ordinal[:count], self.at[:count], last)

    def expand(self, order: Array) -> Selections:
        """The tuples that records stand for.  order: int64, the ordinal at each place.  O(tuples)."""
        if self.last is None:
            return self
        single = self.last < 0
        sizes = np.where(single, 1, self.last - self.ordinal)
        which = np.repeat(np.arange(sizes.shape[0]), sizes)
        step = np.arange(which.shape[0]) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        place = self.ordinal[which] + step
        inside = ~single[which]
        ordinal = place.copy()
        ordinal[inside] = order[place[inside]]
        return Selections(self.query[which], ordinal, self.at[which])


@dataclass(frozen=True, slots=True)
class SelectionFigures:
    """What a run did.  Costs are in units of its cost table.

    outputs: tuples given, however many to a record; records: of all outputs, those that are ranges; evaluated,
    scanned: predicates put to a distinct key, to a tuple; regions read (on summaries), visited, undone (their rounds
    ended first); rounds: dispatches; lost: (tuple, query) that an opponent had no time for; turned_away: tuples that
    admission refused; changes: zones that ended because the stream changed; ruled_out: tuples that a shared summary
    tells to satisfy nothing.
    """

    arrivals: int
    shed: int
    outputs: int
    records: int
    evaluated: int
    scanned: int
    regions_read: int
    regions_visited: int
    regions_undone: int
    rounds: int
    lost: int
    turned_away: int
    changes: int
    granted: float
    spent: float
    spent_summary: float
    exact_cost: float
    ruled_out: int = 0

    @property
    def budget_spent(self) -> float:
        """What was spent as a share of what `naive` needs for everything."""
        return self.spent / self.exact_cost if self.exact_cost else 0.0


def naive_costs(data: SelectionInput, costs: CostTable, *, windowed: bool) -> Array:
    """The base of a budget, c_j of every tuple: float64 [n].

    insert + queries * scan + (emit, and scan for its expiry when there is a window) * matches: what `naive`
    spends when it feeds every tuple to every query, whose outputs are tuples also where others give ranges.
    """
    output = costs.emit + (costs.scan if windowed else 0.0)
    return np.asarray(costs.insert + data.says.shape[0] * costs.scan + output * data.matches)


def index_costs(data: SelectionInput, costs: CostTable, *, windowed: bool) -> Array:
    """What a predicate index spends to answer everything, of every tuple: float64 [n].

    insert + look-up (a new key: and the learned predicates; never more than putting all others to the tuple) + scan *
    predicates left open + output * matches.
    """
    output = costs.emit + (costs.scan if windowed else 0.0)
    edges = (data.says == EDGE).sum(axis=0, dtype=np.int64)[data.code]
    first = np.zeros(data.code.shape[0], bool)
    first[np.unique(data.code, return_index=True)[1]] = True
    finding = np.minimum(costs.lookup + first * data.learned * costs.scan, (data.says.shape[0] - edges) * costs.scan)
    return np.asarray(costs.insert + finding + edges * costs.scan + output * data.matches)


def value_buckets(data: SelectionInput, buckets: int, sample: int) -> Array:
    """The value bucket of every key: int32 [k].  Borders are equal shares of the first `sample` tuples."""
    ranks = np.sort(data.rank[data.code[:sample]])
    cuts = np.unique(ranks[np.arange(1, buckets) * ranks.shape[0] // buckets]) if ranks.shape[0] else ranks
    found: Array = np.searchsorted(cuts, data.rank, side="right").astype(np.int32)
    return found
