"""What depends on all rows of a partition: worked out anew at each instant that changes it, and told by its difference.

Cost: a change costs what its partition costs, as its windows hold it; memory: the different rows of the input.
Within an instant only what really differs is told, what goes first.  Source: negative tuples, section 2.1 (Definition
1): the answer at an instant is that over what the windows hold; and section 4.4, for a function without parts.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from nile.exact.pipeline.algebra import Whole
from nile.exact.pipeline.schedule import Clock, Delta, Operator, Stateful, empty
from nile.exact.state.arrow import Array, pa
from nile.exact.state.expire import joined
from nile.exact.state.held import Held, State
from nile.exact.state.rows import RowTable, grown

__all__ = ["Recomputing"]


class Recomputing(Stateful):
    """A function of whole partitions at work.  wanted: whether anyone reads changes, or only contents at the end."""

    KIND: ClassVar = "whole"
    HELD: ClassVar = ("_table", "_counts")
    DERIVED: ClassVar = ("plan", "wanted", "_by", "_parts", "_part", "_births", "_born", "_members", "_out", "_seen")

    def __init__(self, clock: Clock, plan: Whole, below: Operator, *, wanted: bool = True) -> None:
        super().__init__(clock, [below], plan.schema)
        self.plan = plan
        self.wanted = wanted
        self._by = [below.schema.get_field_index(name) for name in plan.by]
        self._table = RowTable(below.schema.types, exact=True)
        self._parts = RowTable([below.schema.field(at).type for at in self._by]) if self._by else None
        self._out = RowTable(plan.schema.types, exact=True)
        self._counts = np.zeros(1, np.int64)
        self._part = np.zeros(1, np.int64)
        self._births = np.zeros(1, np.int64)
        self._born = 0
        self._seen: list[Array] = []  # codes of outputs that this step has given
        self._members: dict[int, dict[int, None]] = {}  # rows of each partition, by age

    def apply(self, deltas: list[Delta]) -> Delta:
        delta = deltas[0]
        n = len(delta)
        if not n:
            return empty(self.schema)
        codes = self._table.codes(self._table.encode(delta.rows.columns))
        parts = self._partition(delta.rows)
        self._grow()
        self._part[codes] = parts
        bounds = [0, *(np.flatnonzero(np.diff(delta.ts)) + 1).tolist(), n] if self.wanted else [0, n]
        told: list[tuple[int, Array, Array]] = []
        for begin, end in pairwise(bounds):
            here = slice(begin, end)
            touched = np.unique(parts[here]).tolist()
            before = self._made(touched) if self.wanted else None
            for code, sign in zip(codes[here].tolist(), delta.sign[here].tolist(), strict=True):
                self._count(code, 1 if sign > 0 else -1)
            if before is not None:
                rows, signs = self._differing(before, self._made(touched))
                if rows.shape[0]:
                    told.append((int(delta.ts[begin]), rows, signs))
        out = self._told(told)
        if self._seen:
            self._out.release(np.concatenate(self._seen))
            self._seen = []
        gone = codes[self._counts[codes] == 0]
        if self._parts is not None:
            left = self._part[gone]
            self._parts.release(
                np.array([part for part in np.unique(left).tolist() if part not in self._members], np.int64)
            )
        self._table.release(gone)
        return out

    def _partition(self, rows: Any) -> Array:
        if self._parts is None:
            return np.zeros(rows.num_rows, np.int64)
        return self._parts.codes(self._parts.encode([rows.column(at) for at in self._by]))

    def _grow(self) -> None:
        room = self._table.room
        self._counts, self._part, self._births = (
            grown(each, room) for each in (self._counts, self._part, self._births)
        )

    def _count(self, code: int, by: int) -> None:
        """One more row, or one fewer."""
        part = int(self._part[code])
        members = self._members.setdefault(part, {})
        if self._counts[code] == 0:
            self._births[code] = self._born
            self._born += 1
        self._counts[code] += by
        if self._counts[code] == 0:
            members.pop(code, None)
            if not members:
                del self._members[part]
        elif code not in members:
            members[code] = None

    def _rows(self, codes: Array) -> Any:
        """Rows of the input, each as often as it holds."""
        held = np.repeat(codes, np.maximum(self._counts[codes], 0))
        return pa.RecordBatch.from_arrays(self._table.columns(held), schema=self.inputs[0].schema)

    def _made(self, parts: list[int]) -> Any:
        """What the function makes of some partitions."""
        codes = np.array([code for part in parts for code in self._members.get(part, ())], np.int64)
        return self.plan.make(self._rows(codes[np.argsort(self._births[codes], kind="stable")]))

    def _differing(self, before: Any, after: Any) -> tuple[Array, Array]:
        """(codes of output rows, signs), what goes first."""
        old, new = (self._out.codes(self._out.encode(each.columns)) for each in (before, after))
        codes, at = np.unique(np.concatenate([old, new]), return_inverse=True)
        net = np.bincount(at[old.shape[0] :], minlength=codes.shape[0]) - np.bincount(
            at[: old.shape[0]], minlength=codes.shape[0]
        )
        self._seen.append(codes)
        order = np.argsort(net > 0, kind="stable")
        often = np.abs(net[order])
        return np.repeat(codes[order], often), np.repeat(np.sign(net[order]), often).astype(np.int8)

    def _told(self, told: list[tuple[int, Array, Array]]) -> Delta:
        if not told:
            return empty(self.schema)
        codes = np.concatenate([rows for _, rows, _ in told])
        ts = np.repeat([at for at, _, _ in told], [rows.shape[0] for _, rows, _ in told])
        rows = pa.RecordBatch.from_arrays(self._out.columns(codes), schema=self.schema)
        return Delta(ts.astype(np.int64), np.concatenate([signs for _, _, signs in told]), rows)

    def contents(self) -> Any:
        """What the function makes of all partitions now."""
        made = self.plan.make(self._rows(self._live()))
        return joined([pa.RecordBatch.from_arrays(made.columns, schema=self.schema)], self.schema)

    def _live(self) -> Array:
        live = self._table.live()
        return live[np.argsort(self._births[live], kind="stable")]

    def captured(self) -> State:
        """The rows of the input by age, and how often each holds."""
        live = self._live()
        rows = pa.RecordBatch.from_arrays(self._table.columns(live), schema=self.inputs[0].schema)
        return {"rows": rows, "counts": self._counts[live]}

    def restored(self, held: Held) -> None:
        rows = held.rows("rows", self.inputs[0].schema)
        counts = held.counts("counts", rows.num_rows, 1)
        if not self._table.put(self._table.encode(rows.columns)):
            held.refuse("rows that differ", "one of them twice")
        parts = self._partition(rows)
        self._grow()
        for code, (part, often) in enumerate(zip(parts.tolist(), counts.tolist(), strict=True)):
            self._part[code], self._counts[code], self._births[code] = part, often, code
            self._members.setdefault(part, {})[code] = None
        self._born = rows.num_rows

    @property
    def own(self) -> int:
        arrays = self._counts.nbytes + self._part.nbytes + self._births.nbytes + 100 * len(self._table)
        parts = 0 if self._parts is None else self._parts.memory
        return int(arrays + parts + self._table.memory + self._out.memory)
