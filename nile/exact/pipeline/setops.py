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
from nile.exact.plan.algebra import Expand
from nile.exact.state import arrow
from nile.exact.state.arrow import pa
from nile.exact.state.expire import joined
from nile.exact.state.held import Held, State
from nile.exact.state.rows import RowTable, grown

__all__ = ["Bag", "Expanding", "Handed", "UnionAll"]

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


class Handed(Stateless):
    """What an operator sent in one step, for one of several that read it.  columns: which of them, None for all."""

    KIND: ClassVar = "handed"
    DERIVED: ClassVar = ("below", "schema", "delta", "_columns")

    def __init__(self, below: Operator, columns: Sequence[int] | None = None) -> None:
        self.below = below
        self._columns = columns
        self.schema = below.schema if columns is None else pa.schema([below.schema.field(at) for at in columns])
        self.delta = empty(self.schema)

    def hand(self, delta: Delta) -> None:
        rows = delta.rows
        if self._columns is not None:
            rows = pa.RecordBatch.from_arrays([rows.column(at) for at in self._columns], schema=self.schema)
        self.delta = delta.made_into(rows)

    def step(self, to: int) -> Delta:  # noqa: ARG002
        """What was handed over for this step."""
        return self.delta

    def time(self) -> int:
        """GetTime of whoever sent it."""
        return self.below.time()

    def contents(self) -> Any:
        """Not kept here."""
        return joined([], self.schema)

    @property
    def memory(self) -> int:
        return 0


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


class Expanding:
    """Rows, and beside them their distinct combinations (`nile.exact.plan.algebra.Expand`), each set's in a table."""

    KIND: ClassVar = "expand"
    HELD: ClassVar = ("_sets",)
    DERIVED: ClassVar = ("below", "clock", "schema", "_at", "_handed", "_apart")

    def __init__(self, clock: Clock, plan: Expand, below: Operator) -> None:
        self.below = below
        self.clock = clock
        self.schema = plan.schema
        self._at = [[below.schema.get_field_index(name) for name in names] for names in plan.sets]
        self._handed = [Handed(below, at) for at in self._at]
        self._sets = [Bag(clock, "distinct", [handed], handed.schema) for handed in self._handed]
        apart = set(plan.apart)
        self._apart = [at for at, name in enumerate(below.schema.names) if name not in apart]

    def step(self, to: int) -> Delta:
        """Everything that changes up to and at `to`."""
        delta = self.below.step(to)
        out = delta.made_into(self._of_rows(delta.rows))
        for at, handed, distinct in zip(self._at, self._handed, self._sets, strict=True):
            handed.hand(delta)
            each = distinct.step(to)
            each = each.made_into(self._padded(at, each.rows.columns, each.rows.num_rows))
            out = merged(out, each, self.schema, by_sign=self.clock.scheduling != "ita")
        return out

    def _of_rows(self, rows: Any) -> Any:
        columns = [rows.column(at) for at in self._apart]
        return self._padded([*self._apart, -1], [*columns, pa.array(np.ones(rows.num_rows, np.bool_))], rows.num_rows)

    def _padded(self, at: Sequence[int], columns: Sequence[Any], n: int) -> Any:
        """Columns at their places, with nulls in the others."""
        padded = [pa.nulls(n, field.type) for field in self.schema]
        for place, column in zip(at, columns, strict=True):
            padded[place] = column
        return pa.RecordBatch.from_arrays(padded, schema=self.schema)

    def time(self) -> int:
        """GetTime: of the operator below."""
        return self.below.time()

    def contents(self) -> Any:
        """The rows, then the combinations of each set."""
        parts = [self._of_rows(self.below.contents())]
        for at, distinct in zip(self._at, self._sets, strict=True):
            rows = distinct.contents()
            parts.append(self._padded(at, rows.columns, rows.num_rows))
        return joined(parts, self.schema)

    def capture(self) -> State:
        """The tables of the sets."""
        return {"sets": [each.capture() for each in self._sets]}

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        for each, part in zip(self._sets, held.parts("sets", len(self._sets)), strict=True):
            each.restore(part)
        held.end()

    @property
    def memory(self) -> int:
        """Bytes of state, of those below as well."""
        return self.below.memory + sum(each.memory for each in self._sets)


def _renamed(delta: Delta, schema: Any) -> Delta:
    rows = pa.RecordBatch.from_arrays(delta.rows.columns, schema=schema)
    return Delta(delta.ts, delta.sign, rows, delta.until)
