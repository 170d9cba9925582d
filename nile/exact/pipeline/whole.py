"""What depends on all rows of a partition: worked out anew at each instant that changes it, and told by its difference.

Partitions of one step's instants are worked out together, each instant's as a partition of its own.  Cost: a change
costs what its partition costs, as its windows hold it; memory: the different rows of the input, and at work `_MOST`
rows or one partition.  Within an instant only what really differs is told, what goes first.
Source: negative tuples, section 2.1 (Definition 1): the answer at an instant is that over what the windows hold then;
and section 4.4, for a function without parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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

_MOST = 1 << 20


@dataclass
class _Versions:
    """Partitions as they were at instants, to be worked out together.

    rows: codes of each; instant: of the step, -1 as it was before; follows: which version it comes after, -1 none.
    """

    rows: list[Array] = field(default_factory=list)
    instant: list[int] = field(default_factory=list)
    follows: list[int] = field(default_factory=list)
    last: dict[int, int] = field(default_factory=dict)
    size: int = 0

    def add(self, part: int, rows: Array, instant: int) -> None:
        self.follows.append(self.last.get(part, -1))
        self.last[part] = len(self.rows)
        self.rows.append(rows)
        self.instant.append(instant)
        self.size += rows.shape[0]


class Recomputing(Stateful):
    """A function of whole partitions at work.  wanted: whether anyone reads changes, or only contents at the end."""

    KIND: ClassVar = "whole"
    HELD: ClassVar = ("_table", "_counts")
    DERIVED: ClassVar = ("plan", "wanted", "_by", "_parts", "_part", "_births", "_born", "_members", "_out")

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
        held, told = _Versions(), []
        for instant, (begin, end) in enumerate(pairwise(bounds)):
            touched = np.unique(parts[begin:end]).tolist() if self.wanted else []
            if held.size > _MOST:
                told.append(self._differing(held))
                held = _Versions()
            for part in touched:
                if part not in held.last:
                    held.add(part, self._held(part), -1)
            for code, sign in zip(codes[begin:end].tolist(), delta.sign[begin:end].tolist(), strict=True):
                self._count(code, 1 if sign > 0 else -1)
            for part in touched:
                held.add(part, self._held(part), instant)
        if held.rows:
            told.append(self._differing(held))
        out = self._told(told, delta.ts[bounds[:-1]])
        gone = codes[self._counts[codes] == 0]
        if self._parts is not None:
            left = [part for part in np.unique(self._part[gone]).tolist() if part not in self._members]
            self._parts.release(np.array(left, np.int64))
        self._table.release(gone)
        return out

    def _partition(self, rows: Any) -> Array:
        if self._parts is None:
            return np.zeros(rows.num_rows, np.int64)
        return self._parts.codes(self._parts.encode([rows.column(at) for at in self._by]))

    def _grow(self) -> None:
        room = self._table.room
        self._counts, self._part = grown(self._counts, room), grown(self._part, room)
        self._births = grown(self._births, room)

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

    def _held(self, part: int) -> Array:
        """The codes of a partition's rows, oldest first, each as often as it holds."""
        members = self._members.get(part, {})
        codes = np.fromiter(members, np.int64, len(members))
        return np.repeat(codes, np.maximum(self._counts[codes], 0))

    def _rows(self, codes: Array) -> Any:
        return pa.RecordBatch.from_arrays(self._table.columns(codes), schema=self.inputs[0].schema)

    def _differing(self, held: _Versions) -> tuple[Array, Array, Array]:
        """(instant, code of an output row, how often it comes, below 0 goes) by which versions differ."""
        sizes = [rows.shape[0] for rows in held.rows]
        version = np.repeat(np.arange(len(sizes)), sizes)
        made = self.plan.make(self._rows(np.concatenate(held.rows)), version)
        code = self._out.codes(self._out.encode(made.columns))
        instant, after = np.array(held.instant), np.full(len(sizes), -1, np.int64)
        follows = np.array(held.follows)
        after[follows[follows >= 0]] = np.flatnonzero(follows >= 0)
        come, go = instant[version] >= 0, after[version] >= 0
        at = np.concatenate([version[come], after[version[go]]])
        both = np.stack([instant[at], np.concatenate([code[come], code[go]])], axis=1)
        which, place = np.unique(both, axis=0, return_inverse=True)
        net = np.zeros(which.shape[0], np.int64)
        np.add.at(net, place.reshape(-1)[: come.sum()], 1)
        np.add.at(net, place.reshape(-1)[come.sum() :], -1)
        self._out.release(np.setdiff1d(code, which[net != 0, 1]))
        return which[net != 0, 0], which[net != 0, 1], net[net != 0]

    def _told(self, told: list[tuple[Array, Array, Array]], ts: Array) -> Delta:
        if not told:
            return empty(self.schema)
        instant, code, net = (np.concatenate([each[k] for each in told]) for k in range(3))
        order = np.lexsort((net > 0, instant))
        often = np.abs(net[order])
        codes = np.repeat(code[order], often)
        rows = pa.RecordBatch.from_arrays(self._out.columns(codes), schema=self.schema)
        self._out.release(codes)
        return Delta(np.repeat(ts[instant[order]], often), np.repeat(np.sign(net[order]), often).astype(np.int8), rows)

    def contents(self) -> Any:
        """All rows now, oldest first."""
        live = self._live()
        codes = np.repeat(live, self._counts[live])
        made = self.plan.make(self._rows(codes), self._part[codes])
        return joined([pa.RecordBatch.from_arrays(made.columns, schema=self.schema)], self.schema)

    def _live(self) -> Array:
        live = self._table.live()
        return live[np.argsort(self._births[live], kind="stable")]

    def captured(self) -> State:
        """The rows of the input by age, and how often each holds."""
        live = self._live()
        return {"rows": self._rows(live), "counts": self._counts[live]}

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
