"""Aggregates of one stream within a fraction, by this machine's prices: all of it, or a sample that is drawn first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nile.aggregates.asked import Aggregate
from nile.expressions.conditions import Condition, Value
from nile.operators.aggregate.drawn import drawn_of
from nile.operators.aggregate.input import Drawn
from nile.operators.inputs.aggregating import Asked, grouped, interval_of, prepare
from nile.operators.inputs.loading import Columns
from nile.summaries.heavy import pa

__all__ = ["Drawing", "Paid"]

_TRIED = 2_000
"""Tuples that show how many groups a sample has."""
_LEAST = 0.5
"""Of what is granted beside every fraction, what is left for tuples where reading the input took all else."""


@dataclass(frozen=True, slots=True)
class Paid:
    """ns of CPU.  start: granted beside every fraction.  Of a tuple: read; scan, the exact answer at the least; look,
    all that is done with one that is looked at; draw, besides.  group: of each group, all its numbers.
    """

    start: float
    read: float
    scan: float
    look: float
    draw: float
    group: float


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
        """A sample of as many tuples as the fraction pays for, beside what is granted to all; None: it pays for all.

        How many is settled from the number of tuples and the look of a few at their groups: the same table of prices,
        the same sample.  More of a fraction draws a superset.
        """
        (first, last), covered = interval_of(self.columns.ts, self.between, self.window)
        size, rows, prices = last - first, len(self.columns), self.prices
        read = prices.read * rows
        exact = read + prices.scan * size
        each = prices.look + self._groups(first, size) * prices.group
        left = prices.start + self.fraction * exact - read
        credit = max(_LEAST * prices.start, left)
        if each * size <= credit:
            return None
        allowed = self.fraction * exact / 1e6
        note = "" if left >= credit else (
            f"{self.where}: needed {self.fraction:g} of the exact answer's CPU, about {allowed:.3g} ms; "
            f"reading the stream alone takes about {read / 1e6:.3g} ms, which was spent"
        )  # fmt: skip
        at = drawn_of(size, credit / (each + prices.draw), self.seed)
        taken = self._taken(first + at)
        asked = prepare(
            taken, self.aggregates, self.queries, self.by, time=self.time, between=(None, None), window=None,
            where=self.where, coded=False, drawn=Drawn(at, size, rows, note),
        )  # fmt: skip
        scopes = tuple(replace(scope, covered=covered) for scope in asked.data.scopes)
        asked.data = replace(asked.data, scopes=scopes)
        return asked

    def _taken(self, at: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Columns:
        return replace(self.columns, ts=self.columns.ts[at], batch=self.columns.batch.take(pa.array(at)))

    def _groups(self, first: int, size: int) -> float:
        """How many new groups one more tuple shows, by those of a few that show one alone."""
        if not self.by or size == 0:
            return 0.0
        some = self._taken(np.unique(np.linspace(first, first + size - 1, _TRIED).astype(np.int64)))
        group, groups, _ = grouped(self.by, some, self.where)
        return float((np.bincount(group, minlength=groups) == 1).sum()) / len(some)
