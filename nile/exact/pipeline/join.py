"""W-Join of two signed inputs: symmetric, each side's rows counted in a table and listed by key.

Whatever either input sends, tuples, negative tuples or invalid ones, is looked up by value; so the join serves
windows, relations and the results of other operators alike.  Cost: O(1) a tuple and O(1) a pair; memory: a row for
each different tuple that holds on either side.  Source: negative tuples, sections 4.5 and 4.6.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.base.nearest import nearest
from nile.exact.pipeline.schedule import Clock, Delta, Operator, Stateful, empty, interleaved, until_of
from nile.exact.pipeline.sources.incoming import selected
from nile.exact.plan.algebra import Join
from nile.exact.state import arrow
from nile.exact.state.arrow import Array, pa
from nile.exact.state.expire import joined
from nile.exact.state.held import MOST, Held, State
from nile.exact.state.rows import RowTable, grown
from nile.exact.state.types import common

__all__ = ["Joining"]

kernels: Any = arrow.Late("nile.exact.pipeline.join_kernels")


class _Side:
    """One input's rows: how often each holds, and the list of its key that it is in."""

    HELD: ClassVar = ("table", "rows")
    DERIVED: ClassVar = ("schema", "timed", "at", "kinds", "heads", "keys")

    def __init__(self, schema: Any, keys: list[int], kinds: list[Any], *, timed: bool) -> None:
        self.schema = schema
        self.timed = timed
        self.table = RowTable(schema.types, exact=True, extra=1 if timed else 0)
        self.at = keys
        self.kinds = kinds
        self.rows = np.zeros((1, 4), np.int64)
        self.heads = np.full(1, -1, np.int64)
        self.keys = np.zeros(1, np.int64)

    def words(self, delta: Delta) -> Array:
        """Words of whole rows; where tuples carry the time until which they hold, that is part of the row."""
        words = self.table.encode(delta.rows.columns)
        if self.timed:
            words[:, -1] = until_of(delta)
        return words

    def key_columns(self, delta: Delta) -> list[Any]:
        return [nearest(delta.rows.column(i), kind) for i, kind in zip(self.at, self.kinds, strict=True)]

    def grow(self, keys: int) -> None:
        room = self.table.room
        self.rows, self.keys = grown(self.rows, room), grown(self.keys, room)
        self.heads = grown(self.heads, keys, -1)

    def live(self) -> Array:
        """The codes of rows that hold, by age."""
        live = self.table.live()
        return live[np.argsort(self.rows[live, 1], kind="stable")]

    def capture(self) -> State:
        """The rows that hold, by age, how often each does and, where they carry it, until when."""
        live = self.live()
        rows = pa.RecordBatch.from_arrays(self.table.columns(live), schema=self.schema)
        out: State = {"rows": rows, "counts": self.rows[live, 0]}
        return {**out, "until": self.table.kept[live, -1]} if self.timed else out

    def restore(self, held: Held) -> Delta:
        """Put captured rows into an empty table, as codes 0 to n - 1; returns them.  Raises EnvelopeError."""
        rows = held.rows("rows", self.schema)
        n = rows.num_rows
        counts = held.counts("counts", n, 1)
        until = held.array("until", "int64", (n,)) if self.timed else None
        held.end()
        delta = Delta(np.zeros(n, np.int64), np.ones(n, np.int8), rows, until)
        if not self.table.put(self.words(delta)):
            held.refuse("rows that differ", "one of them twice")
        self.rows = np.zeros((self.table.room, 4), np.int64)
        self.rows[:n, 0], self.rows[:n, 1] = counts, np.arange(n)
        return delta

    @property
    def memory(self) -> int:
        return self.table.memory + int(self.rows.nbytes + self.heads.nbytes + self.keys.nbytes)


class Joining(Stateful):
    """A join at work.  come, go: whether anyone reads the pairs that come, and those that go.

    once: of the pairs of a tuple one is told, with how many there are, in O(1): whoever reads needs no more.
    """

    KIND: ClassVar = "join"
    HELD: ClassVar = ("pairs", "_sides")
    DERIVED: ClassVar = ("plan", "come", "go", "once", "_keys", "_born", "_totals")

    def __init__(
        self, clock: Clock, plan: Join, left: Operator, right: Operator, *, come: bool = True, go: bool = True,
        once: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(clock, [left, right], plan.schema)
        self.plan = plan
        self.come, self.go, self.once = come, go, once
        self.pairs = 0
        kinds = [common(left.schema.field(a).type, right.schema.field(b).type) for a, b in plan.on]
        timed = not clock.negative
        self._sides = [
            _Side(each.schema, [each.schema.get_field_index(on[i]) for on in plan.on], kinds, timed=timed)
            for i, each in enumerate((left, right))
        ]
        self._keys = RowTable(kinds) if kinds else None
        self._born = 0
        self._totals = np.zeros((1, 2), np.int64)

    def apply(self, deltas: list[Delta]) -> Delta:
        order = interleaved(deltas[0], deltas[1], by_sign=self.clock.scheduling != "ita")
        if not order.shape[0]:
            return empty(self.schema)
        n = len(deltas[0])
        keys = self._codes_of_keys(deltas)
        rows = np.concatenate([s.table.codes(s.words(d)) for s, d in zip(self._sides, deltas, strict=True)])
        order = order[keys[order] >= 0]  # null keys never join
        side = (order >= n).astype(np.int8)
        ts, sign = (np.concatenate(each)[order] for each in zip(*((d.ts, d.sign) for d in deltas), strict=True))
        until = np.concatenate([until_of(d) for d in deltas])[order] if not self.clock.negative else None
        for each in self._sides:
            each.grow(1 if self._keys is None else self._keys.room)
        if self.once:
            self._totals = grown(self._totals, 1 if self._keys is None else self._keys.room)
        left, right = self._sides
        left.keys[rows[:n]], right.keys[rows[n:]] = keys[:n], keys[n:]
        at, out_left, out_right, times, self._born = kernels.apply_join(
            side, sign, rows[order], keys[order], self._born,
            left.rows, left.heads, right.rows, right.heads, self.come, self.go, self._totals, self.once,
        )  # fmt: skip
        out = self._told(ts[at], np.sign(sign[at]), out_left, out_right, None if until is None else until[at])
        if self.once:
            out = out.standing_for(times)
        self._forget(rows, n, keys)
        return out

    def _codes_of_keys(self, deltas: list[Delta]) -> Array:
        """The code of each row's key, the left's then the right's; -1 where a part of it is null."""
        if self._keys is None:
            return np.zeros(sum(len(each) for each in deltas), np.int64)
        words = np.concatenate(
            [self._keys.encode(side.key_columns(d)) for side, d in zip(self._sides, deltas, strict=True)]
        )
        whole = ~self._keys.encoder.nulls(words)
        codes = np.full(words.shape[0], -1, np.int64)
        codes[whole] = self._keys.codes(words if whole.all() else words[whole])
        return codes

    def _told(self, ts: Array, sign: Array, left: Array, right: Array, until: Array | None) -> Delta:
        self.pairs += ts.shape[0]
        if not ts.shape[0]:
            return empty(self.schema)
        rows = self._rows(left, right)
        if until is not None:  # a pair holds as long as both its sides do
            a, b = (side.table.kept[codes, -1] for side, codes in zip(self._sides, (left, right), strict=True))
            until = np.minimum(a, b)
        if self.plan.test is not None:
            yes = selected(rows, self.plan.test)
            if not yes.all():
                rows = rows.filter(pa.array(yes))
                ts, sign = ts[yes], sign[yes]
                until = None if until is None else until[yes]
        return Delta(ts, sign, rows, until)

    def _rows(self, left: Array, right: Array) -> Any:
        columns = [*self._sides[0].table.columns(left), *self._sides[1].table.columns(right)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _forget(self, rows: Array, n: int, keys: Array) -> None:
        """Release rows that no longer hold, and keys that no row has."""
        for side, own in zip(self._sides, (rows[:n], rows[n:]), strict=True):
            side.table.release(own[side.rows[own, 0] == 0])
        if self._keys is not None:
            whole = keys[keys >= 0]
            left, right = (side.heads for side in self._sides)
            self._keys.release(whole[(left[whole] < 0) & (right[whole] < 0)])

    def contents(self) -> Any:
        """The pairs that hold now, by the age of the left row."""
        left, right = self._sides
        live = left.live()
        if not live.shape[0] or not len(right.table):
            return joined([], self.schema)
        rows = self._rows(*kernels.all_pairs(live, left.keys[live], left.rows, right.rows, right.heads))
        if self.plan.test is None or not rows.num_rows:
            return rows
        return rows.filter(pa.array(selected(rows, self.plan.test)))

    def captured(self) -> State:
        """The rows of both sides; lists of equal keys follow from their ages."""
        return {"pairs": self.pairs, "sides": [each.capture() for each in self._sides]}

    def restored(self, held: Held) -> None:
        self.pairs = held.integer("pairs", 0, MOST)
        deltas = [side.restore(part) for side, part in zip(self._sides, held.parts("sides", 2), strict=True)]
        keys = self._codes_of_keys(deltas)
        if (keys < 0).any():
            held.refuse("keys that are not null", "a null")
        for side, own in zip(self._sides, np.split(keys, [len(deltas[0])]), strict=True):
            side.grow(1 if self._keys is None else self._keys.room)
            side.keys[: own.shape[0]] = own
            kernels.list_rows(own, side.rows, side.heads)
        if self.once:
            self._totals = np.zeros((1 if self._keys is None else self._keys.room, 2), np.int64)
            for k, (side, own) in enumerate(zip(self._sides, np.split(keys, [len(deltas[0])]), strict=True)):
                np.add.at(self._totals[:, k], own, side.rows[: own.shape[0], 0])
        self._born = max(map(len, deltas))

    @property
    def own(self) -> int:
        keys = 0 if self._keys is None else self._keys.memory
        return keys + int(self._totals.nbytes) + sum(side.memory for side in self._sides)
