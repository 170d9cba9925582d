"""Outer, semi and anti joins: a W-Join, and beside it frequency tables of the rows that have no partner.

A row of a side that keeps its rows stands alone as long as no pair has it: what W-Join sends is counted against what
the side sends (the `anti` table of `nile.exact.pipeline.setops`), so a negative tuple on one side can make a positive
one of the other.  Cost: that of the join, and O(1) a tuple and a pair; memory: the join's, and the different rows of
each side that keeps its rows.  Source: negative tuples, section 4; outer joins as SQL defines them.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.join import Joining
from nile.exact.pipeline.schedule import Clock, Delta, Operator, empty, merged
from nile.exact.pipeline.setops import Bag, Handed
from nile.exact.plan.algebra import Join, Outer
from nile.exact.state.arrow import pa
from nile.exact.state.expire import joined
from nile.exact.state.held import Held, State

__all__ = ["OuterJoining"]


class OuterJoining:
    """An outer join at work."""

    KIND: ClassVar = "outer"
    HELD: ClassVar = ("_join", "_alone")
    DERIVED: ClassVar = ("plan", "clock", "inputs", "schema", "_sides", "_pairs")

    def __init__(self, clock: Clock, plan: Outer, left: Operator, right: Operator) -> None:
        self.plan = plan
        self.clock = clock
        self.inputs = (left, right)
        self.schema = plan.schema
        self._sides = (Handed(left), Handed(right))
        self._join = Joining(clock, Join(plan.left, plan.right, plan.on, plan.test), *self._sides)
        width = len(left.schema)
        columns = (range(width), range(width, width + len(right.schema)))
        kept = {"right": (1,), "full": (0, 1), "mark": (0, 0)}.get(plan.kind, (0,))
        self._pairs = {at: Handed(self._join, columns[at]) for at in kept}
        kinds = {"semi": ("semi",), "mark": ("semi", "anti")}.get(plan.kind, ("anti", "anti"))
        self._alone = [
            (at, kind, Bag(clock, kind, [self._sides[at], self._pairs[at]], self.inputs[at].schema))
            for at, kind in zip(kept, kinds, strict=False)
        ]

    @property
    def pairs(self) -> int:
        """Pairs made."""
        return self._join.pairs

    @property
    def _only_rows(self) -> bool:
        return self.plan.kind in ("semi", "anti", "mark")

    def step(self, to: int) -> Delta:
        """Everything that changes up to and at `to`."""
        for side, below in zip(self._sides, self.inputs, strict=True):
            side.hand(below.step(to))
        pairs = self._join.step(to)
        out = empty(self.schema) if self._only_rows else pairs.made_into(self._full(pairs.rows.columns))
        for handed in self._pairs.values():
            handed.hand(pairs)
        for at, kind, bag in self._alone:
            alone = bag.step(to)
            alone = alone.made_into(self._padded(alone.rows, at, kind))
            out = merged(out, alone, self.schema, by_sign=self.clock.scheduling != "ita")
        return out

    def _full(self, columns: list[Any]) -> Any:
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _padded(self, rows: Any, at: int, kind: str) -> Any:
        """Rows of one side with nulls in place of the other's columns, or with their mark."""
        if self.plan.kind == "mark":
            return self._full([*rows.columns, pa.array(np.full(rows.num_rows, kind == "semi"))])
        if self._only_rows:
            return rows
        missing = [pa.nulls(rows.num_rows, field.type) for field in self.inputs[1 - at].schema]
        return self._full([*rows.columns, *missing] if at == 0 else [*missing, *rows.columns])

    def time(self) -> int:
        """GetTime."""
        return self._join.time()

    def contents(self) -> Any:
        """The pairs that hold, then the rows without a partner."""
        parts = [] if self._only_rows else [self._full(self._join.contents().columns)]
        parts += [self._padded(bag.contents(), at, kind) for at, kind, bag in self._alone]
        return joined(parts, self.schema)

    def capture(self) -> State:
        """The join's state, and the tables of rows without a partner."""
        return {"join": self._join.capture(), "alone": [bag.capture() for _, _, bag in self._alone]}

    def restore(self, held: Held) -> None:
        """Put what was captured into a new operator of the same definition.  Raises EnvelopeError."""
        self._join.restore(held.part("join"))
        for (_, _, bag), part in zip(self._alone, held.parts("alone", len(self._alone)), strict=True):
            bag.restore(part)
        held.end()

    @property
    def memory(self) -> int:
        return sum(each.memory for each in self.inputs) + self._join.memory + sum(b.memory for _, _, b in self._alone)
