"""The first rows in an order, kept up to date.

Rows are put in order once a step, those that hold and those that come; then each change is a place in a sorted list,
and moves one row across either end of what is shown.  Cost: O(log n) and a move of 8 n bytes a change, O(n log n) a
step, of n rows that hold; memory: the different rows of the input.  Source: negative tuples, section 2.1.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.schedule import Clock, Delta, Operator, Stateful, empty
from nile.exact.plan.algebra import First
from nile.exact.state.arrow import Array, pa
from nile.exact.state.held import MOST, Held, State
from nile.exact.state.rows import RowTable, grown

__all__ = ["Ordering"]


class Ordering(Stateful):
    """A LIMIT at work.  wanted: whether anyone reads changes, or only the contents at the end."""

    KIND: ClassVar = "first"
    HELD: ClassVar = ("_table", "_counts", "_births")
    DERIVED: ClassVar = ("plan", "wanted", "_born", "_end")

    def __init__(self, clock: Clock, plan: First, below: Operator, *, wanted: bool = True) -> None:
        super().__init__(clock, [below], plan.schema)
        self.plan = plan
        self.wanted = wanted
        self._table = RowTable(plan.schema.types, exact=True)
        self._counts = np.zeros(1, np.int64)
        self._births = np.zeros(1, np.int64)
        self._born = 0
        self._end = MOST if plan.count is None else plan.offset + plan.count

    def apply(self, deltas: list[Delta]) -> Delta:
        delta = deltas[0]
        if not len(delta):
            return empty(self.schema)
        wholly = self._end == MOST and not self.plan.offset  # then what comes and goes is told
        held = self._live() if self.wanted and not wholly else None
        codes = self._table.codes(self._table.encode(delta.rows.columns))
        self._counts = grown(self._counts, self._table.room)
        self._births = grown(self._births, self._table.room)
        begins, life = self._lives(delta, codes)
        out = empty(self.schema)
        if self.wanted and wholly:
            out = Delta(delta.ts, np.sign(delta.sign).astype(np.int8), delta.rows)
        elif held is not None:
            place = np.empty(self._table.room, np.int64)
            place[held] = np.arange(held.shape[0])
            life = np.where(life < 0, place[codes], life + held.shape[0])
            out = self._moved(delta, life, held, codes[begins])
        self._births[codes[begins]] = self._born + begins  # of several lives of one row the last counts
        self._born += len(delta)
        np.add.at(self._counts, codes, np.sign(delta.sign).astype(np.int64))
        self._table.release(codes[self._counts[codes] == 0])
        return out

    def _lives(self, delta: Delta, codes: Array) -> tuple[Array, Array]:
        """(changes with which a row that does not hold before their instant begins to; of each change which of these
        its row goes by, -1: it held before the step).

        A row that left and comes again is as old as its return, however many instants a step has.
        """
        by = np.argsort(codes, kind="stable")
        code, ts, sign = codes[by], delta.ts[by], np.sign(delta.sign[by]).astype(np.int64)
        other = np.ones(by.shape[0], np.bool_)
        other[1:] = code[1:] != code[:-1]
        begin = np.maximum.accumulate(np.where(other, np.arange(by.shape[0]), 0))
        before = np.cumsum(sign) - sign
        before += self._counts[code] - before[begin]
        new = other.copy()
        new[1:] |= ts[1:] != ts[:-1]
        starts = new & (before <= 0)
        begins = np.sort(by[starts])
        last = np.maximum.accumulate(np.where(starts, np.arange(by.shape[0]), -1))
        known = last >= begin
        life = np.full(by.shape[0], -1, np.int64)
        life[by[known]] = np.searchsorted(begins, by[last[known]])
        return begins, life

    def _moved(self, delta: Delta, life: Array, held: Array, come: Array) -> Delta:
        """What each instant of a step changes.

        held, come: codes of the rows that hold, and of those that come, oldest first; life: of each change which of
        the former, then of the latter.
        """
        known = np.concatenate([held, come])
        turn = self.plan.order(self._rows(known))
        order = known[turn]
        place = np.empty(order.shape[0], np.int64)
        place[turn] = np.arange(order.shape[0])
        often = np.where(turn < held.shape[0], self._counts[order], 0)
        listed = np.repeat(np.arange(order.shape[0]), often).tolist()
        shown, told = {}, []  # type: ignore[var-annotated]
        ts, at = delta.ts.tolist(), place[life].tolist()
        for k, (now, where, sign) in enumerate(zip(ts, at, delta.sign.tolist(), strict=True)):
            self._move(listed, where, 1 if sign > 0 else -1, shown)
            if k + 1 == len(ts) or ts[k + 1] != now:
                told += [(now, often, each) for each, often in shown.items() if often]
                shown.clear()
        if not told:
            return empty(self.schema)
        when, net, which = (np.array(each, np.int64) for each in zip(*told, strict=True))
        turn = np.lexsort((net > 0, when))
        often = np.abs(net[turn])
        rows = self._rows(order[np.repeat(which[turn], often)])
        return Delta(np.repeat(when[turn], often), np.repeat(np.sign(net[turn]), often).astype(np.int8), rows)

    def _move(self, listed: list[int], where: int, sign: int, shown: dict[int, int]) -> None:
        """A row comes to its place, or goes from it: one row each may cross the begin and the end of what is shown."""
        at = bisect_left(listed, where)
        if at < self._end:
            begin = self.plan.offset
            if sign > 0:
                crossing = where if at >= begin else listed[begin - 1] if len(listed) >= begin else None
                pushed = listed[self._end - 1] if len(listed) >= self._end else None
            else:
                crossing = where if at >= begin else listed[begin] if len(listed) > begin else None
                pushed = listed[self._end] if len(listed) > self._end else None
            for each, change in ((crossing, sign), (pushed, -sign)):
                if each is not None:
                    shown[each] = shown.get(each, 0) + change
        if sign > 0:
            insort(listed, where)
        else:
            listed.pop(at)

    def contents(self) -> Any:
        """The first rows now, in order."""
        live = self._live()
        order = live[self.plan.order(self._rows(live))]
        held = np.repeat(order, self._counts[order])
        return self._rows(held[self.plan.offset : self._end])

    def _rows(self, codes: Array) -> Any:
        return pa.RecordBatch.from_arrays(self._table.columns(codes), schema=self.schema)

    def _live(self) -> Array:
        """The codes of rows that hold, oldest first."""
        live = self._table.live()
        return live[np.argsort(self._births[live], kind="stable")]

    def captured(self) -> State:
        """The rows of the input by age, and how often each holds."""
        live = self._live()
        return {"rows": self._rows(live), "counts": self._counts[live]}

    def restored(self, held: Held) -> None:
        rows = held.rows("rows", self.schema)
        counts = held.counts("counts", rows.num_rows, 1)
        if not self._table.put(self._table.encode(rows.columns)):
            held.refuse("rows that differ", "one of them twice")
        self._counts = grown(counts.copy(), self._table.room)
        self._births = np.arange(self._table.room)
        self._born = rows.num_rows

    @property
    def own(self) -> int:
        return int(self._table.memory + self._counts.nbytes + self._births.nbytes)
