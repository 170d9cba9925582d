"""Functions over a partition's rows, such as ranks: kept in order, and recomputed where a change has effect.

Each partition's rows stand in order.  An instant's changes find their places, and only rows within reach of these are
looked at, as they were before and as they are after it; what differs is told, what goes first.  Ranks come from the
places themselves.  Cost: O(log n) a change and what is within its reach (`algebra.Reach`), in a partition of n rows;
memory: the different rows of the input, and at work `_MOST` rows or one instant of one partition.
Source: negative tuples, section 2.1 (Definition 1): the answer at an instant is that over what the windows hold then;
and section 4.4, for a function without parts.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.schedule import Clock, Delta, Operator, Stateful, empty
from nile.exact.plan.algebra import Whole
from nile.exact.state import arrow
from nile.exact.state.arrow import Array, pa
from nile.exact.state.expire import joined
from nile.exact.state.held import Held, State
from nile.exact.state.order_keys import OrderKeys
from nile.exact.state.rows import RowTable, grown
from nile.exact.state.words import Encoder

__all__ = ["Placing"]

kernels: Any = arrow.Late("nile.exact.state.rank_kernels")

_MOST = 1 << 18
_SEEN, _NOT_PLACED = 5, -2
_RANKS = ("row_number", "rank", "dense_rank")


class Placing(Stateful):
    """A function of partitions at work.  wanted: whether anyone reads changes, or only contents at the end."""

    KIND: ClassVar = "whole"
    HELD: ClassVar = ("_table", "_nodes")
    DERIVED: ClassVar = ("plan", "wanted", "_parts", "_part", "_orders", "_words", "_roots", "_born", "_reach")

    def __init__(self, clock: Clock, plan: Whole, below: Operator, *, wanted: bool = True) -> None:
        super().__init__(clock, [below], plan.schema)
        self.plan = plan
        self.wanted = wanted
        kinds = plan.kinds.types
        self._table = RowTable(below.schema.types, exact=True)
        self._parts = RowTable(kinds[: plan.by]) if plan.by else None
        self._orders = [OrderKeys(kind) for kind in kinds[plan.by :]]
        self._part = np.zeros(1, np.int64)
        self._words = np.zeros((1, 2 * len(self._orders)), np.int64)  # of each key where nulls go, and its value
        self._nodes = np.full((1, 7), _NOT_PLACED, np.int64)
        self._roots = np.full(1, -1, np.int64)
        self._born = np.zeros(1, np.int64)
        reach = plan.reach
        cut = (0, 0) if reach.cut is None else (_RANKS.index(reach.cut[0]) + 1, reach.cut[1])
        self._reach = np.array([reach.back, reach.ahead, reach.before, reach.beyond, reach.peers, *cut], np.int64)

    def apply(self, deltas: list[Delta]) -> Delta:
        delta = deltas[0]
        n = len(delta)
        if not n:
            return empty(self.schema)
        codes = self._codes(delta.rows)
        parts = self._part[codes]
        new = np.ones(n, np.bool_)
        new[1:] = delta.ts[1:] != delta.ts[:-1]
        instant = np.cumsum(new) - 1
        turn = _as_they_come(parts, instant)
        parts, codes, sign, instant = parts[turn], codes[turn], delta.sign[turn], instant[turn]
        new[1:] = (parts[1:] != parts[:-1]) | (instant[1:] != instant[:-1])
        begins = np.append(np.flatnonzero(new), n)
        told, done = [], 0
        while done < begins.shape[0] - 1:
            first = done
            done, rows, versions = kernels.move(
                begins, first, _MOST, parts, codes, sign, self.wanted, self._reach, self._roots, self._nodes,
                self._words, self._born,
            )  # fmt: skip
            if rows.shape[0]:
                told.append(self._told(rows, versions, delta.ts[turn[begins[first:done]]]))
        self._release(codes, parts)
        return _together(told, self.schema)

    def _codes(self, rows: Any) -> Array:
        """The codes of rows, all of them with their partition and the words of their order."""
        codes = self._table.codes(self._table.encode(rows.columns))
        room = self._table.room
        self._part, self._words = grown(self._part, room), grown(self._words, room)
        self._nodes = grown(self._nodes, room, _NOT_PLACED)
        fresh = self._nodes[codes, _SEEN] == _NOT_PLACED
        if fresh.any():
            self._place(codes[fresh], rows.filter(pa.array(fresh)))
        return codes

    def _place(self, codes: Array, rows: Any) -> None:
        """Partitions and order of rows that are new."""
        self._nodes[codes] = (0, 0, -1, -1, 0, -1, 0)
        self._words[codes] = 0
        by = self.plan.by
        keys = self.plan.keys(rows).columns if self.plan.kinds else []
        if self._parts is not None:
            self._part[codes] = self._parts.codes(self._parts.encode(keys[:by]))
            self._roots = grown(self._roots, self._parts.room, -1)
        words = np.empty((codes.shape[0], self._words.shape[1]), np.int64)
        for k, column in enumerate(keys[by:]):
            descending, nulls_last = self.plan.order[k]
            null = column.is_null().to_numpy(zero_copy_only=False)
            values = self._orders[k].of(column, partial(self._held, k), partial(self._moved, k))
            words[:, 2 * k] = null == nulls_last
            words[:, 2 * k + 1] = np.where(null, 0, ~values if descending else values)
        self._words[codes] = words

    def _known(self, k: int) -> Array:
        """Codes of rows whose k-th key is not null; those that are new have none yet."""
        live = self._table.live()
        live = live[self._nodes[live, 0] != 0]
        return live[self._words[live, 2 * k] != self.plan.order[k][1]]

    def _held(self, k: int) -> Array:
        keys = self._words[self._known(k), 2 * k + 1]
        return ~keys if self.plan.order[k][0] else keys

    def _moved(self, k: int, table: Array) -> None:
        keys = table[self._held(k)]
        self._words[self._known(k), 2 * k + 1] = ~keys if self.plan.order[k][0] else keys

    def _told(self, rows: Array, versions: Array, ts: Array) -> Delta:
        """What really differs.  ts: int64 [versions / 2]."""
        columns: list[Any] = []
        if self.plan.ranks:
            values = rows[:, [1 + _RANKS.index(each) for each in self.plan.ranks]]
        else:
            sizes = versions[:, 1] - versions[:, 0]
            version = np.repeat(np.arange(sizes.shape[0]), sizes)
            made = self.plan.make(self._rows(rows[:, 0]), version)
            columns = made.columns[len(self.inputs[0].schema) :]
            values = Encoder([column.type for column in columns], exact=True).encode(columns)
        which, sign = np.empty(rows.shape[0], np.int64), np.empty(rows.shape[0], np.int8)
        count = kernels.differing(rows, np.ascontiguousarray(values), versions, self._nodes, which, sign)
        which, sign = which[:count], sign[:count]
        when = ts[np.searchsorted(_ends(versions), which, side="right")]
        turn = np.lexsort((sign, when))
        which, sign, when = which[turn], sign[turn], when[turn]
        if self.plan.ranks:
            columns = [pa.array(each) for each in values[which].T]
        else:
            columns = [column.take(pa.array(which)) for column in columns]
        columns = [*self._table.columns(rows[which, 0]), *columns]
        return Delta(when, sign, pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def _rows(self, codes: Array) -> Any:
        return pa.RecordBatch.from_arrays(self._table.columns(codes), schema=self.inputs[0].schema)

    def _release(self, codes: Array, parts: Array) -> None:
        """Forget rows that hold no more, and partitions without any."""
        gone = codes[self._nodes[codes, 0] == 0]
        self._nodes[gone, _SEEN] = _NOT_PLACED
        self._table.release(gone)
        if self._parts is not None:
            empty_now = parts[self._roots[parts] < 0]
            if (self._nodes[codes, 0] < 0).any():  # rows that went before they came have a partition too
                empty_now = np.setdiff1d(empty_now, self._part[self._table.live()])
            self._parts.release(empty_now)

    def contents(self) -> Any:
        """All rows now, oldest first."""
        live = self._live()
        codes = np.repeat(live, np.maximum(self._nodes[live, 0], 0))
        made = self.plan.make(self._rows(codes), self._part[codes])
        return joined([pa.RecordBatch.from_arrays(made.columns, schema=self.schema)], self.schema)

    def _live(self) -> Array:
        live = self._table.live()
        return live[np.argsort(self._nodes[live, 1], kind="stable")]

    def captured(self) -> State:
        """The rows of the input by age, and how often each holds."""
        live = self._live()
        return {"rows": self._rows(live), "counts": self._nodes[live, 0].copy()}

    def restored(self, held: Held) -> None:
        rows = held.rows("rows", self.inputs[0].schema)
        counts = held.counts("counts", rows.num_rows, 1)
        codes = self._codes(rows)
        if len(self._table) != rows.num_rows:
            held.refuse("rows that differ", "one of them twice")
        stack = np.empty(1024, np.int64)
        self._nodes[codes, 0], self._nodes[codes, 1] = counts, np.arange(codes.shape[0])
        kernels.insert_all(self._part, codes, self._roots, self._nodes, self._words, stack)
        self._born[0] = rows.num_rows

    @property
    def own(self) -> int:
        arrays = self._part.nbytes + self._words.nbytes + self._nodes.nbytes + self._roots.nbytes
        parts = 0 if self._parts is None else self._parts.memory
        return int(arrays + parts + self._table.memory + sum(each.memory for each in self._orders))


def _as_they_come(parts: Array, instant: Array) -> Array:
    """The order of changes by instant, and in it by partition, the one that is touched first first: int64 [n].

    Codes of partitions are given again once released, so they depend on how the input was cut into steps.
    """
    turn = np.lexsort((parts, instant))
    parts, instant = parts[turn], instant[turn]
    new = np.ones(turn.shape[0], np.bool_)
    new[1:] = (parts[1:] != parts[:-1]) | (instant[1:] != instant[:-1])
    first = turn[new][np.cumsum(new) - 1]
    return turn[np.lexsort((first, instant))]


def _ends(versions: Array) -> Array:
    """Where the rows of each group end: int64 [groups], not falling."""
    return np.maximum.accumulate(np.maximum(versions[::2, 1], versions[1::2, 1]))


def _together(told: list[Delta], schema: Any) -> Delta:
    if not told:
        return empty(schema)
    if len(told) == 1:
        return told[0]
    ts, sign = (np.concatenate([getattr(each, name) for each in told]) for name in ("ts", "sign"))
    turn = np.lexsort((sign, ts))  # partitions of one instant may have come apart
    rows = joined([each.rows for each in told], schema).take(pa.array(turn))
    return Delta(ts[turn], sign[turn], rows)
