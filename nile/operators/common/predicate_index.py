"""One index over hundreds of standing predicates: elementary value intervals, and what each predicate makes of them.

Design.  The constants of all predicates cut the ordered values of one column into elementary intervals; inside
one, every predicate says the same of every value.  Intervals of which all predicates say the same are one
cell, wherever they lie.  So a value has one cell, a cell has the predicates that it satisfies (`full`) and those
that it leaves open (`edge`: the predicate has conditions over other columns too), and a predicate has runs of
cells, one run for most ranges, because cells are numbered by the first of their intervals.
Cost.  O(q k) bytes and time once, for q predicates over k distinct keys; asking is one look-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["EDGE", "FULL", "NONE", "PredicateIndex"]

Array = np.ndarray[Any, Any]

NONE, FULL, EDGE = 0, 1, 2
"""What a predicate says of a value: no tuple that has it, every one, or some (to be looked at one by one)."""


@dataclass(frozen=True, slots=True)
class PredicateIndex:
    """q predicates over k keys, i elementary intervals, c cells.

    interval: int32 [k], the elementary interval of each key, in the order of values.  cell_of_interval: int32 [i].
    cell: int32 [k], the cell of each key.  full, edge: int32, the predicates of cell j, ascending, are
    full[full_from[j]:full_from[j + 1]]; full_from, edge_from: int64 [c + 1].  runs: int32 [r, 3], the maximal
    runs of cells of predicate p are runs[run_from[p]:run_from[p + 1]]: first cell, last cell + 1, FULL or EDGE;
    run_from: int64 [q + 1].
    """

    interval: Array
    cell_of_interval: Array
    cell: Array
    full_from: Array
    full: Array
    edge_from: Array
    edge: Array
    run_from: Array
    runs: Array

    @classmethod
    def of(cls, says: Array, rank: Array) -> PredicateIndex:
        """Build it.  says: uint8 [q, k] of NONE, FULL, EDGE; rank: int64 [k], each key's place in their order."""
        order = np.argsort(rank, kind="stable")
        columns = np.ascontiguousarray(says[:, order].T)
        keys, predicates = columns.shape
        changes = np.ones(keys, bool)
        if keys:
            changes[1:] = (columns[1:] != columns[:-1]).any(axis=1) if predicates else False
        starts = np.flatnonzero(changes)
        interval = np.empty(keys, np.int32)
        interval[order] = np.cumsum(changes) - 1
        distinct = columns[starts]
        if predicates:
            rows = distinct.view(np.dtype((np.void, predicates))).ravel()
            _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
        else:
            first, inverse = np.zeros(min(1, keys), np.int64), np.zeros(starts.shape[0], np.int64)
        place = np.empty(first.shape[0], np.int32)
        by_first = np.argsort(first, kind="stable")
        place[by_first] = np.arange(first.shape[0])
        cell_of_interval = place[inverse.ravel()].astype(np.int32)
        states = distinct[first[by_first]]
        full_from, full = _members(states == FULL)
        edge_from, edge = _members(states == EDGE)
        run_from, runs = _runs(states)
        return cls(
            interval=interval,
            cell_of_interval=cell_of_interval,
            cell=cell_of_interval[interval],
            full_from=full_from,
            full=full,
            edge_from=edge_from,
            edge=edge,
            run_from=run_from,
            runs=runs,
        )

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return int(self.full_from.shape[0]) - 1

    def satisfied(self, cell: int) -> Array:
        """The predicates that every value of a cell satisfies: int32, ascending."""
        return self.full[self.full_from[cell] : self.full_from[cell + 1]]

    def open(self, cell: int) -> Array:
        """The predicates that the values of a cell leave open: int32, ascending."""
        return self.edge[self.edge_from[cell] : self.edge_from[cell + 1]]


def _members(chosen: Array) -> tuple[Array, Array]:
    rows, columns = np.nonzero(chosen)
    begins: Array = np.searchsorted(rows, np.arange(chosen.shape[0] + 1)).astype(np.int64)
    return begins, columns.astype(np.int32)


def _runs(states: Array) -> tuple[Array, Array]:
    """Maximal runs of equal, not NONE states along the cells, predicate by predicate."""
    cells, predicates = states.shape
    bordered = np.zeros((predicates, cells + 2), np.uint8)
    bordered[:, 1:-1] = states.T
    who, at = np.nonzero(bordered[:, 1:] != bordered[:, :-1])
    said = bordered[who, at + 1]
    begins = np.flatnonzero(said != NONE)
    runs = np.stack([at[begins], at[np.minimum(begins + 1, max(0, at.shape[0] - 1))], said[begins]], axis=1)
    run_from = np.searchsorted(who[begins], np.arange(predicates + 1)).astype(np.int64)
    return run_from, runs.astype(np.int32)
