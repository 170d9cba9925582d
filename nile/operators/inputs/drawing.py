"""Aggregates of one stream within a fraction, by this machine's prices: all of it, or a sample that is drawn first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nile.aggregates.asked import Aggregate
from nile.expressions.conditions import Condition, Value
from nile.operators.aggregate.drawn import drawn_of
from nile.operators.aggregate.input import Drawn
from nile.operators.aggregate.scope import conjuncts, contradiction
from nile.operators.inputs.aggregating import Asked, grouped, interval_of, prepare
from nile.operators.inputs.loading import Columns
from nile.operators.inputs.whole import Whole, whole_of
from nile.summaries.heavy import pa, pc

__all__ = ["Drawing", "Paid"]

Array = np.ndarray[Any, Any]

_TRIED = 2_000
"""Tuples that show how many groups a sample has."""
_LEAST = 1.0 / 3.0
"""Of what is granted beside every fraction, what is left for tuples where reading the input took all else."""


@dataclass(frozen=True, slots=True)
class Paid:
    """ns of CPU.  start: granted beside every fraction.  Of a tuple: read; mark, told whether it was drawn; draw, drawn
    of so many, and tested; find, all that is done with one that satisfies.  group: of each group, all its numbers.
    Of the exact answer, in the columns it is worked out by: begin; scan, a tuple tested; take, one that satisfies, by
    how many groups there are.
    """

    start: float
    read: float
    mark: float
    draw: Callable[[float], float]
    find: float
    group: float
    begin: float
    scan: float
    take: Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Drawing:
    """What is asked of a stream that was read.  fraction: of the exact answer's CPU; other fields are those of
    `prepare`.
    """

    columns: Columns
    aggregates: tuple[Aggregate, ...]
    queries: Sequence[tuple[str, tuple[Condition, ...]]]
    by: Sequence[Value]
    between: tuple[int | None, int | None]
    window: int | None
    prices: Paid
    fraction: float
    seed: int
    time: str
    where: str

    def asked(self) -> Asked | None:
        """A sample of as many tuples as the fraction pays for, beside what is granted to all; None: it pays for the
        exact answer, at what this takes by columns (`whole`).

        How many is settled from the number of tuples and the look of a few at conditions and groups: the same table of
        prices, the same sample.  More of a fraction draws a superset.  Where reading takes more than a fraction, what
        is granted beside each still pays for an exact answer that takes no more, so that no larger one finds less.
        """
        (first, last), covered = interval_of(self.columns.ts, self.between, self.window)
        size, rows, prices = last - first, len(self.columns), self.prices
        read = prices.read * rows
        if size == 0:
            return None
        share, groups, shown, fresh, hidden = self._seen(first, size)
        after = prices.begin + size * (prices.scan + share * prices.take(groups))
        exact = read + after
        left = prices.start + self.fraction * exact - read
        credit = max(_LEAST * prices.start, left)
        each = prices.draw(size) + share * prices.find
        wanted = _tuples(max(1.0, credit - prices.mark * size), each, prices.group, shown, fresh, hidden)
        if after <= max(prices.start, left) or wanted <= 1.0:
            return None
        allowed = self.fraction * exact / 1e6
        note = "" if left >= credit else (
            f"{self.where}: needed {self.fraction:g} of the exact answer's CPU, about {allowed:.3g} ms; "
            f"reading the stream alone takes about {read / 1e6:.3g} ms, which was spent"
        )  # fmt: skip
        at = drawn_of(size, wanted, self.seed)
        hits, told = self._satisfying(first + at)
        taken = self._taken(first + (at if hits is None else at[hits]), self._told)
        asked = prepare(
            taken, self.aggregates, [(name, ()) for name, _ in self.queries], self.by, time=self.time,
            between=(None, None), window=None, where=self.where, coded=False, drawn=Drawn(at, size, rows, note, hits),
        )  # fmt: skip
        scopes = tuple(replace(scope, covered=covered, empty=told) for scope in asked.data.scopes)
        asked.data = replace(asked.data, scopes=scopes)
        return asked

    def _satisfying(self, at: Array) -> tuple[Array | None, str]:
        """(which of these ordinals' tuples satisfy the conditions, None: there is none; why none can, else "")."""
        ((_, conditions),) = self.queries
        if not conditions:
            return None, ""
        some = self._taken(at, [name for condition in conditions for name in condition.columns])
        holds = np.ones(len(some), bool)
        for condition in conditions:
            holds &= pc.fill_null(condition.mask(some.batch), False).to_numpy(zero_copy_only=False)
        return np.flatnonzero(holds), contradiction(conjuncts(conditions), self.columns.batch.schema)

    @property
    def _told(self) -> list[str]:
        """The columns of aggregates and groups."""
        values = [aggregate.value for aggregate in self.aggregates if aggregate.value is not None]
        return [name for value in (*values, *self.by) for name in value.columns]

    def whole(self) -> Whole | None:
        """The exact answer; None where it is not worked out by columns."""
        interval, covered = interval_of(self.columns.ts, self.between, self.window)
        ((_, conditions),) = self.queries
        return whole_of(self.columns, self.aggregates, conditions, self.by, interval, covered, self.where)

    def _taken(self, at: Array, names: Sequence[str]) -> Columns:
        """Columns of these ordinals' tuples, whose times nobody asks for."""
        every = self.columns.batch
        batch = every.select(list(dict.fromkeys(names)) or every.schema.names[:1])
        return replace(self.columns, ts=np.broadcast_to(np.int64(0), at.shape), batch=batch.take(pa.array(at)))

    def _seen(self, first: int, size: int) -> tuple[float, float, float, float, float]:
        """What a few tuples, evenly spread, tell: (the share that satisfies the conditions, how many groups there are
        of those that satisfy, how many the few show, how many new ones one more tuple shows, by those shown once,
        how many there may be besides: twice what those shown once and twice tell at the least).

        Source: Chao, Scandinavian Journal of Statistics 11 (1984).
        """
        ((_, conditions),) = self.queries
        if not self.by and not conditions:
            return 1.0, 1.0, 0.0, 0.0, 0.0
        at = np.unique(np.linspace(first, first + size - 1, _TRIED).astype(np.int64))
        hits, _ = self._satisfying(at)
        share = (float(at.shape[0] if hits is None else hits.shape[0]) + 1.0) / (at.shape[0] + 1.0)
        if not self.by:
            return share, 1.0, 0.0, 0.0, 0.0
        some = self._taken(at, self._told)
        group, groups, _ = grouped(self.by, some, self.where)
        times = np.bincount(np.bincount(group, minlength=groups), minlength=3)
        fresh = float(times[1]) / len(some)
        hidden = float(times[1] * (times[1] - 1)) / float(times[2] + 1)
        return share, min(share * size, groups + min(hidden, fresh * share * size)), float(groups), fresh, hidden


def _tuples(credit: float, each: float, group: float, shown: float, fresh: float, hidden: float) -> float:
    """How many tuples `credit` pays for, at `each` and `group` for each group they show: no more than there are tuples,
    or than _TRIED tuples showed with those that more of them show at the rate of the last, or are hidden in all.
    It rises with credit.
    """
    alone = credit / (each + group)
    if alone <= shown:
        return alone
    few = (credit - group * shown) / each
    if few <= _TRIED:
        return few
    rising = (credit - group * (shown - fresh * _TRIED)) / (each + fresh * group)
    return max(rising, few - group * hidden / each)
