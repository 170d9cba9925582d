"""What a run knows about one query before it says anything: whole cells, tuples read, and how they were drawn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nile.operators.aggregate.input import AggregateInput
from nile.summaries.intervals import StratifiedSample
from nile.summaries.moments import Moments

__all__ = ["Evidence", "Known", "no_cells"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Known:
    """Cells on which a query's conditions hold: which ones, and how many tuples by group (int64 [groups]).

    cells: int64 [c], of the grid's; into: int64 [c], their groups; moments: of all of the grid's cells, one a measure.
    """

    rows: Array
    cells: Array
    into: Array
    moments: tuple[Moments, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """Tuples read, in strata, beside what is known of whole cells.

    at: int64 [m], ordinals of the satisfying tuples read.  size, drawn: int64 [strata]; stratum: int64 [m].
    certain: bool [strata], those all of whose tuples are known to satisfy the query.  least, most: one a
    measure, float64 [groups]: how low and high an unread tuple that may satisfy could lie (+inf and -inf
    where there is none).
    """

    data: AggregateInput
    known: Known
    at: Array
    stratum: Array
    size: Array
    drawn: Array
    certain: Array
    least: tuple[Array, ...]
    most: tuple[Array, ...]

    @cached_property
    def is_complete(self) -> bool:
        """Whether every tuple that may satisfy the query was read or is in a known cell."""
        return bool((self.drawn == self.size).all())

    @cached_property
    def _open(self) -> Array:
        return np.asarray((self.drawn < self.size)[self.stratum])

    @cached_property
    def _is_sample(self) -> bool:
        """Whether no stratum of which tuples were read was read to its end."""
        return bool(((self.drawn < self.size) | (self.drawn == 0)).all())

    @cached_property
    def left(self) -> Array:
        """Ordinals of the satisfying tuples drawn from strata that were not read to their end."""
        return self.at if self._is_sample else self.at[self._open]

    @cached_property
    def _done(self) -> Array:
        """Ordinals of the satisfying tuples of strata that were."""
        return self.at[:0] if self._is_sample else self.at[~self._open]

    @cached_property
    def sample(self) -> StratifiedSample:
        """The sample of what was not read to its end; `left` are its tuples."""
        kept = self.drawn < self.size
        number = np.cumsum(kept) - 1
        return StratifiedSample(
            size=self.size[kept],
            drawn=self.drawn[kept],
            stratum=self.stratum if kept.all() else number[self.stratum[self._open]],
            group=self._group(None),
            groups=self.data.groups,
        )

    @cached_property
    def sure(self) -> Array:
        """`certain` of the strata of `sample`."""
        return self.certain[self.drawn < self.size]

    @cached_property
    def rows(self) -> Array:
        """Satisfying tuples known for certain, by group: int64 [groups]."""
        read = self._group(self._done)
        return np.asarray(self.known.rows + np.bincount(read, minlength=self.data.groups))

    @cached_property
    def present(self) -> Array:
        """Groups of which a satisfying tuple is known: bool [groups]."""
        return np.asarray((self.rows > 0) | (self.sample.seen() > 0))

    def of(self, column: Array) -> Array:
        """A column of the input for `left`."""
        every = self.data.drawn is not None and self.data.drawn.at is not None and self._is_sample
        return column if every else column[self.left]

    def _group(self, at: Array | None) -> Array:
        """The groups of tuples, None: of `left`; int64."""
        if self.data.groups == 1:
            return np.zeros((self.left if at is None else at).shape[0], np.int64)
        found = self.of(self.data.group) if at is None else self.data.group[at]
        return np.asarray(found.astype(np.int64, copy=False))

    def base(self, m: int) -> Moments:
        """The moments of measure m over the satisfying tuples known for certain, by group."""
        return self._bases[m]

    @cached_property
    def _bases(self) -> list[Moments]:
        read = self._done
        bases = []
        for m, measure in enumerate(self.data.measures):
            parts = Moments.each(
                measure.values[read], measure.valid[read], None if measure.whole is None else measure.whole[read]
            )
            cells, into = np.arange(read.shape[0]), self._group(read)
            if self.known.cells.shape[0]:
                cells = np.concatenate([self.known.cells, cells + self.known.moments[m].count.shape[0]])
                into = np.concatenate([self.known.into, into])
                parts = self.known.moments[m].with_more(parts)
            bases.append(parts.merged(cells, into, self.data.groups))
        return bases


def no_cells(groups: int) -> Known:
    """Nothing known of any cell."""
    return Known(np.zeros(groups, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
