"""Joins of two inputs of more rows than memory holds: in parts by their keys, put in the order of a join without limit.

Rows carry their number in their input and, of a stream, their time; from these follows where a pair stands among all
that `joined` finds.  What is found in parts is sorted by that, on disk if there is much of it.  Inputs without a key
that is hashed are joined block by block (Kim, On optimizing an SQL-like nested query, TODS 7, 1982): of tables, and of
a stream beside one, all pairs of one block come before those of the next, so no more than a block's are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from nile.base.spill import Spill, Spills
from nile.execution.exact.batches import Batches, fitted
from nile.execution.exact.joining import Side, joined
from nile.execution.exact.outer import has_partner
from nile.execution.exact.parting import (
    Given,
    all_that_fits,
    are_hashed_alike,
    blocks,
    computed_keys,
    one_part,
    parts_of_all,
    row_hashes,
)
from nile.execution.exact.sorting import Sorter, together
from nile.execution.key_columns import one_key
from nile.execution.values import column_of, filtered, maker, schema_of
from nile.expressions.binding import kind_of
from nile.expressions.tree import Column, Node
from nile.sql.plan import Field, Filter, Join, Limit, Outer, Plan, Project, Relation, inputs_of
from nile.summaries.heavy import pa

__all__ = [
    "Input", "Pairing", "combined", "keys_of", "parts_by_key", "passed", "placed", "sides_in_parts", "with_key",
]  # fmt: skip

Array = np.ndarray[Any, Any]
NUMBERS = ("\0left", "\0right")
"""The columns of rows' numbers in the two inputs."""
TIMES = ("\0left time", "\0right time")
"""Those of their times, int64 ns, where an input is a stream."""
_PLACE = ("\0stage", "\0time", "\0side", "\0row", "\0partner")
"""What rows are ordered by: pairs before rows without a partner; when a pair is complete and by which row."""
_CHOSEN = ("semi", "anti", "mark")


def keys_of(plan: Join | Outer) -> list[tuple[Node, Node]]:
    """What must be equal of the left and of the right input of two, and has the same hashes where it is equal."""
    left, right = inputs_of(plan)
    kinds = [{field.name: field.type for field in each.fields} for each in (left, right)]
    pairs = [(a, b) if a in kinds[0] else (b, a) for a, b in plan.equal]
    alike = [(a, b) for a, b in pairs if are_hashed_alike([kinds[0][a], kinds[1][b]])]
    columns = [(Column(a, kind_of(kinds[0][a])), Column(b, kind_of(kinds[1][b]))) for a, b in alike]
    return [*columns, *computed_keys(plan)]


def parts_by_key(plan: Plan) -> bool:
    """Whether the join below selections and projections has one key that is hashed alike: its parts join alone."""
    while isinstance(plan, Filter | Project | Limit):
        plan = plan.input
    if not isinstance(plan, Join) or plan.constraints or not plan.equal:
        return False
    on, _ = one_key(plan)
    fields = {field.name: field.type for field in plan.fields}
    return on is not None and are_hashed_alike([fields[name] for name in on])


def sides_in_parts(join: Join, inputs: Sequence[Batches], spills: Spills, share: int) -> Iterator[list[Side]]:
    """The inputs of a join that `parts_by_key`, part by part, in no order; rows without a key are in none."""
    on, _ = one_key(join)
    assert on is not None
    given = []
    for batches, plan, key in zip(inputs, join.inputs, on, strict=True):
        schema = schema_of(plan.fields)
        at = schema.get_field_index(key)
        column = Column(key, kind_of(schema.field(at).type))
        given.append(Given(with_key(batches, schema, (at,)), schema, partial(_hashes, (column,))))
    for part in parts_of_all(given, spills, share):
        for some in combined(part, share // len(part)):
            yield [Side(rows, np.arange(rows.num_rows)) for rows in some]


def combined(part: Sequence[pa.RecordBatch | Spill], share: int) -> Iterator[list[pa.RecordBatch]]:
    """Every combination of blocks, one of each input."""
    if not part:
        yield []
        return
    for block in blocks(part[0], share):
        for rest in combined(part[1:], share):
            yield [block, *rest]


def with_key(batches: Batches, schema: pa.Schema, key: Sequence[int]) -> Batches:
    """Rows whose key, of the columns at these places, is not null anywhere: that equals nothing."""
    for batch in batches:
        rows = fitted(batch, schema)
        for at in key:
            rows = rows.filter(rows.column(at).is_valid()) if rows.column(at).null_count else rows
        yield rows


def placed(rows: Iterator[tuple[pa.RecordBatch, Array | None]], schema: pa.Schema) -> Batches:
    """The columns of a schema, the number of each row, and its time where there are times."""
    begin = 0
    for batch, ts in rows:
        places = [pa.array(np.arange(begin, begin + batch.num_rows))] + ([] if ts is None else [pa.array(ts)])
        begin += batch.num_rows
        columns = [*fitted(batch, schema).columns, *places]
        yield pa.RecordBatch.from_arrays(columns, names=[str(k) for k in range(len(columns))])


def passed(plan: Filter | Project, batch: pa.RecordBatch, ts: Array) -> tuple[pa.RecordBatch, Array]:
    """A selection or projection of rows with times."""
    if isinstance(plan, Project):
        return maker(plan.items)(batch), ts
    kept = filtered(plan.condition, batch.append_column(TIMES[0], pa.array(ts)))
    return kept.select(list(range(batch.num_columns))), kept.column(batch.num_columns).to_numpy()


@dataclass(frozen=True, slots=True)
class Input:
    """One of the two inputs.  batches: its columns, then the number of each row, then its time if it is timed."""

    batches: Batches
    fields: tuple[Field, ...]
    timed: bool


class Pairing:
    """One join at work.  kind: "inner", or that of an Outer; share: bytes of memory that work may take.

    Cost: that of the join, and each row of both inputs written once, each row found once beyond a share.
    """

    def __init__(
        self, plan: Join | Outer, inputs: Sequence[Input], spills: Spills, share: int, threads: int | None
    ) -> None:
        self.kind = plan.kind if isinstance(plan, Outer) else "inner"
        self._plan = plan
        self._inputs = inputs
        self._spills = spills
        self._share = share
        self._threads = threads
        self._out = schema_of(plan.fields)
        self._schemas = [self._with_places(each, k) for k, each in enumerate(inputs)]
        relations = [
            Relation(name, name, tuple(Field(field.name, field.type) for field in schema))
            for name, schema in zip(NUMBERS, self._schemas, strict=True)
        ]
        self._join = Join(tuple(relations), plan.equal, plan.condition)
        chosen = self.kind in _CHOSEN
        self._kept = (self.kind in ("left", "full", "anti", "mark"), self.kind in ("right", "full"))
        place = [pa.field(name, pa.int64()) for name in _PLACE]
        own = schema_of(inputs[0].fields) if chosen else self._out
        self._marked = own.append(pa.field(plan.mark, pa.bool_())) if self.kind == "mark" else own  # type: ignore[union-attr]
        self._placed = pa.schema([*self._marked, *place])

    @staticmethod
    def _with_places(given: Input, k: int) -> pa.Schema:
        places = [pa.field(NUMBERS[k], pa.int64())] + [pa.field(TIMES[k], pa.int64())] * given.timed
        return pa.schema([*schema_of(given.fields), *places])

    def rows(self, most: int | None = None, *, ordered: bool = True) -> Batches:
        """The rows in order; most: how many are wanted from the front, None for all.

        ordered: False where pairs of an inner join may come in any order; then none of them is written.
        Raises KeyTypeError, MemoryRefused.
        """
        keys = keys_of(self._plan)
        given = [
            Given(_cast(each.batches, schema), schema, partial(_hashes, [pair[k] for pair in keys]), kept)
            for k, (each, schema, kept) in enumerate(zip(self._inputs, self._schemas, self._kept, strict=True))
        ]
        held, fits = all_that_fits(given, 2 * self._share)
        if fits:
            yield from self._at_once([together(rows, each.schema) for rows, each in zip(held, given, strict=True)])
            return
        sorter = self._sorter(most)
        given = [
            replace(each, batches=self._with_keys(chain(rows, each.batches), k, sorter))
            for k, (rows, each) in enumerate(zip(held, given, strict=True))
        ]
        first, block_by_block = 0, False
        if keys:
            parts = parts_of_all(given, self._spills, self._share)
        else:
            parts = iter([[one_part(each, self._spills, self._share // 2) for each in given]])
            timed = [each.timed for each in self._inputs]
            first, block_by_block = int(timed == [False, True]), not all(timed)
        for part in parts:
            there = self._share // 2
            seen: list[Array] = []
            for mine in blocks(part[first], there):
                partnered = np.zeros(mine.num_rows, np.bool_)
                some = self._sorter(most) if block_by_block else sorter
                for at, theirs in enumerate(blocks(part[1 - first], there)):
                    if at == len(seen):
                        seen.append(np.zeros(theirs.num_rows, np.bool_))
                    rows, marks = [mine, theirs][:: 1 - 2 * first], [partnered, seen[at]][:: 1 - 2 * first]
                    in_order = block_by_block and not self._plan.equal and part[1 - first] is theirs
                    ts = [self._times(k, each) for k, each in enumerate(rows)] if in_order else None
                    for found in self._pairs(rows, marks, ts):
                        if in_order or not ordered:
                            yield pa.RecordBatch.from_arrays(self._columns(found), schema=self._out)
                        else:
                            some.add(self._with_place(self._columns(found), self._place(found)))
                if block_by_block:
                    yield from self._without_place(some)
                self._put_alone(first, mine, partnered, sorter)
            for at, theirs in enumerate(blocks(part[1 - first], there)):
                self._put_alone(1 - first, theirs, seen[at], sorter)
        yield from self._without_place(sorter)

    def _sorter(self, most: int | None) -> Sorter:
        return Sorter(self._spills, self._placed, _order, self._share, most)

    def _without_place(self, sorter: Sorter) -> Batches:
        return (batch.select(list(range(len(self._marked)))) for batch in sorter.rows())

    def _times(self, k: int, rows: pa.RecordBatch) -> Array | None:
        return _whole(rows, TIMES[k]) if self._inputs[k].timed else None

    def _at_once(self, rows: Sequence[pa.RecordBatch]) -> Batches:
        """What memory holds, in the order in which it is found."""
        partnered = [np.zeros(each.num_rows, np.bool_) for each in rows]
        for found in self._pairs(rows, partnered, [self._times(k, each) for k, each in enumerate(rows)]):
            yield pa.RecordBatch.from_arrays(self._columns(found), schema=self._marked)
        for k, each in enumerate(rows):
            if (alone := self._alone(k, each, partnered[k])) is not None:
                yield pa.RecordBatch.from_arrays(alone[0], schema=self._marked)

    def _with_keys(self, batches: Batches, k: int, sorter: Sorter) -> Batches:
        """Rows whose keys are all there; others have no partner and go straight to the sorter."""
        names = self._schemas[k].names
        at = [names.index(next(name for name in pair if name in names)) for pair in self._plan.equal]
        for rows in batches:
            there = np.ones(rows.num_rows, np.bool_)
            for place in at:
                if rows.column(place).null_count:
                    there &= rows.column(place).is_valid().to_numpy(zero_copy_only=False)
            if there.all():
                yield rows
                continue
            without = rows.filter(pa.array(~there))
            self._put_alone(k, without, np.zeros(without.num_rows, np.bool_), sorter)
            yield rows.filter(pa.array(there))

    def _pairs(
        self,
        rows: Sequence[pa.RecordBatch],
        partnered: Sequence[Array],
        ts: Sequence[Array | None] | None = None,
    ) -> Batches:
        """The pairs of two pieces of the inputs, where they are wanted; marks who has a partner, bool [n] each.

        ts: the times that order pairs, of each input; None: any order, without all pairs in memory.
        """
        left, right = rows
        if not left.num_rows or not right.num_rows:
            return
        times = [np.arange(each.num_rows) for each in rows] if ts is None else ts
        sides = [Side(each, its) for each, its in zip(rows, times, strict=True)]
        chosen = self.kind in _CHOSEN
        if isinstance(self._plan, Outer) and chosen and self._plan.condition is None:
            partnered[0][has_partner(self._plan, *sides)] = True
            return
        numbers = [_whole(each, name) for each, name in zip(rows, NUMBERS, strict=True)]
        wanted = frozenset(NUMBERS[:1]) if chosen else None
        for found in joined(self._join, sides, wanted=wanted, threads=self._threads):
            for marks, number, name in zip(partnered[: 1 if chosen else 2], numbers, NUMBERS, strict=False):
                marks[np.searchsorted(number, _whole(found, name))] = True
            if not chosen:
                yield found

    def _columns(self, found: pa.RecordBatch) -> list[pa.Array]:
        return [found.column(found.schema.get_field_index(field.name)) for field in self._out]

    def _place(self, found: pa.RecordBatch) -> list[Array]:
        """Where pairs stand: by the tuple that completes them, with a key its newest partner first; else by left."""
        left, right = (_whole(found, name) for name in NUMBERS)
        none = np.zeros(left.shape[0], np.int64)
        timed = [each.timed for each in self._inputs]
        if not all(timed):
            return [none, none, none, *((right, left) if timed[1] else (left, right))]
        times = [_whole(found, name) for name in TIMES]
        by_right = times[1] >= times[0]
        partner = np.where(by_right, left, right)
        return [
            none, np.maximum(*times), by_right.astype(np.int64), np.where(by_right, right, left),
            -partner if self._plan.equal else partner,
        ]  # fmt: skip

    def _alone(self, k: int, rows: pa.RecordBatch, partnered: Array) -> tuple[list[pa.Array], Array] | None:
        """(columns, numbers) of what is wanted of the rows of one input beside pairs; None: nothing."""
        width = len(self._inputs[k].fields)
        marks: list[pa.Array] = []
        if self.kind == "mark" and k == 0:
            chosen, marks = rows, [pa.array(partnered)]
        elif self.kind in _CHOSEN and k == 0:
            chosen = rows.filter(pa.array(partnered == (self.kind == "semi")))
        elif self.kind not in _CHOSEN and self._kept[k]:
            chosen = rows.filter(pa.array(~partnered))
            marks = [pa.nulls(chosen.num_rows, field.type) for field in self._inputs[1 - k].fields]
        else:
            return None
        own = chosen.columns[:width]
        columns = [*own, *marks] if k == 0 else [*marks, *own]
        return (columns, _whole(chosen, NUMBERS[k])) if chosen.num_rows else None

    def _put_alone(self, k: int, rows: pa.RecordBatch, partnered: Array, sorter: Sorter) -> None:
        if (alone := self._alone(k, rows, partnered)) is not None:
            columns, numbers = alone
            none = np.zeros(numbers.shape[0], np.int64)
            sorter.add(self._with_place(columns, [none + 1 + k, none, none, numbers, none]))

    def _with_place(self, columns: Sequence[pa.Array], place: Sequence[Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*columns, *map(pa.array, place)], schema=self._placed)


def _whole(rows: pa.RecordBatch, name: str) -> Array:
    """A column of whole numbers: int64 [n]."""
    found: Array = rows.column(rows.schema.get_field_index(name)).to_numpy(zero_copy_only=False)
    return found


def _cast(batches: Batches, schema: pa.Schema) -> Batches:
    for batch in batches:
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _hashes(keys: Sequence[Node], batch: pa.RecordBatch) -> Array:
    return row_hashes([column_of(key, batch) for key in keys], batch.num_rows)


def _order(batch: pa.RecordBatch) -> Array:
    return np.lexsort([_whole(batch, name) for name in _PLACE[::-1]])
