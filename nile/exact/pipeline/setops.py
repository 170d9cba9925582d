"""W-DISTINCT, W-UNION, W-INTERSECT and W-MINUS over frequency tables.

Rows are compared by value: nulls are alike, NaN too, -0.0 is 0.0 (and comes out as 0.0).  All four input and output
cases of section 4.1 arise: MINUS sends an invalid tuple when its right side gains a row, and a row comes back when
that one leaves.  A row that goes and returns within one instant is not told.
Cost: O(1) a tuple; memory O(different rows) on either side.  Source: negative tuples, Algorithms 4.1 and 4.2, whose
tables H, DL and O_S the counts of two sides replace: which of equal rows is the one that was output does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.schedule import Clock, Delta, Operator, Stateful, Stateless, empty, interleaved, merged
from nile.exact.state import arrow
from nile.exact.state.arrow import pa
from nile.exact.state.expire import joined
from nile.exact.state.held import Held, State
from nile.exact.state.rows import RowTable, grown

__all__ = ["Bag", "UnionAll"]

kernels: Any = arrow.Late("nile.exact.pipeline.setops_kernels")

_CODES = {
    "union all": 0,
    "distinct": 1,
    "union": 1,
    "intersect all": 2,
    "intersect": 3,
    "minus all": 4,
    "minus": 5,
    "semi": 6,  # as often as on the left where the right has any, as outer joins need it
    "anti": 7,
}


class Bag(Stateful):
    """One or two inputs in frequency tables.  kind: as `_CODES` names it; wanted: whether anyone reads the output."""

    KIND: ClassVar = "bag"
    HELD: ClassVar = ("_counts", "_births")
    DERIVED: ClassVar = ("wanted", "_kind", "_table", "_marked", "_born")

    def __init__(
        self, clock: Clock, kind: str, inputs: Sequence[Operator], schema: Any, *, wanted: bool = True
    ) -> None:
        super().__init__(clock, inputs, schema)
        self.wanted = wanted
        self._kind = _CODES[kind]
        self._table = RowTable(schema.types)
        self._counts = np.zeros((self._table.room, 2), np.int64)
        self._births = np.zeros(self._table.room, np.int64)
        self._marked = np.zeros(self._table.room, np.bool_)
        self._born = 0

    def apply(self, deltas: list[Delta]) -> Delta:
        words = [self._table.encode(each.rows.columns) for each in deltas]
        if len(deltas) == 2:
            order = interleaved(deltas[0], deltas[1], by_sign=self.clock.scheduling != "ita")
            ts, sign = (np.concatenate(each)[order] for each in zip(*((d.ts, d.sign) for d in deltas), strict=True))
            side = (order >= len(deltas[0])).astype(np.int8)
            codes = self._table.codes(np.concatenate(words)[order])
        else:
            ts, sign = deltas[0].ts, deltas[0].sign
            side = np.zeros(ts.shape[0], np.int8)
            codes = self._table.codes(words[0])
        if not ts.shape[0]:
            return empty(self.schema)
        self._counts = grown(self._counts, self._table.room)
        self._births = grown(self._births, self._table.room)
        self._marked = grown(self._marked, self._table.room)
        out_ts, out_sign, rows, self._born = kernels.apply_counts(
            self._kind, ts, sign, side, codes, self._counts, self._births, self._born, self._marked, self.wanted
        )  # fmt: skip
        out = Delta(out_ts, out_sign, self._rows(rows)) if rows.shape[0] else empty(self.schema)
        self._table.release(codes[(self._counts[codes] == 0).all(axis=1)])
        return out

    def contents(self) -> Any:
        live = self._live()
        return self._rows(np.repeat(live, kernels.all_standing(self._kind, self._counts[live])))

    def captured(self) -> State:
        """The rows of either side in the order they appeared, and how often each stands there."""
        live = self._live()
        return {"rows": self._rows(live), "counts": self._counts[live]}

    def restored(self, held: Held) -> None:
        rows = held.rows("rows", self.schema)
        counts = held.array("counts", "int64", (rows.num_rows, 2))
        if not self._table.put(self._table.encode(rows.columns)):
            held.refuse("rows that differ", "one of them twice")
        self._counts = grown(counts.copy(), self._table.room)
        self._births = np.arange(self._table.room)
        self._marked = grown(self._marked, self._table.room)
        self._born = rows.num_rows

    def _live(self) -> Any:
        """The codes of rows that stand on either side, in the order they appeared."""
        live = self._table.live()
        return live[np.argsort(self._births[live], kind="stable")]

    def _rows(self, codes: Any) -> Any:
        return pa.RecordBatch.from_arrays(self._table.columns(codes), schema=self.schema)

    @property
    def own(self) -> int:
        return self._table.memory + int(self._counts.nbytes + self._births.nbytes + self._marked.nbytes)


class UnionAll(Stateless):
    """The rows of both inputs, merged in time order (W-UNION): no state of its own."""

    KIND: ClassVar = "union all"
    DERIVED: ClassVar = ("clock", "inputs", "schema")

    def __init__(self, clock: Clock, inputs: Sequence[Operator], schema: Any) -> None:
        self.clock = clock
        self.inputs = tuple(inputs)
        self.schema = schema

    def step(self, to: int) -> Delta:
        """What both change up to `to`."""
        left, right = (_renamed(each.step(to), self.schema) for each in self.inputs)
        return merged(left, right, self.schema, by_sign=self.clock.scheduling != "ita")

    def time(self) -> int:
        """GetTime: of whoever is behind."""
        return min(each.time() for each in self.inputs)

    def contents(self) -> Any:
        """The rows of the left, then of the right."""
        parts = [pa.RecordBatch.from_arrays(each.contents().columns, schema=self.schema) for each in self.inputs]
        return joined(parts, self.schema)

    @property
    def memory(self) -> int:
        return sum(each.memory for each in self.inputs)


def _renamed(delta: Delta, schema: Any) -> Delta:
    rows = pa.RecordBatch.from_arrays(delta.rows.columns, schema=schema)
    return Delta(delta.ts, delta.sign, rows, delta.until)
