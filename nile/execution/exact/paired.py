"""Joins of two inputs of more rows than memory holds: in parts by their keys, put in the order of a join without limit.

Rows carry their number in their input and, of a stream, their time; from these follows where a pair stands among all
that `joined` finds.  What is found in parts is sorted by that, on disk if there is much of it.
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
from nile.execution.exact.parting import Given, all_that_fits, blocks, one_part, parts_of_all, row_hashes
from nile.execution.exact.physical import one_key
from nile.execution.exact.sorting import Sorter, together
from nile.execution.values import filtered, maker, schema_of
from nile.sql.plan import Field, Filter, Join, Limit, Outer, Plan, Project, Relation, inputs_of
from nile.summaries.heavy import pa

__all__ = [
    "Input", "Pairing", "are_hashed_alike", "can_be_paired", "combined", "keys_of", "parts_by_key", "passed", "placed",
    "sides_in_parts", "with_key",
]  # fmt: skip

Array = np.ndarray[Any, Any]
NUMBERS = ("\0left", "\0right")
"""The columns of rows' numbers in the two inputs."""
TIMES = ("\0left time", "\0right time")
"""Those of their times, int64 ns, where an input is a stream."""
_PLACE = ("\0stage", "\0time", "\0side", "\0row", "\0partner")
"""What rows are ordered by: pairs before rows without a partner; when a pair is complete and by which row."""
_CHOSEN = ("semi", "anti", "mark")
_AT_ONCE = 1 << 20
"""Pairs that are looked at at once where there is no key."""


def can_be_paired(plan: Join | Outer) -> bool:
    """Whether a join is of two inputs whose pairs need not all be looked at together."""
    chosen = isinstance(plan, Outer) and plan.kind in _CHOSEN
    return len(inputs_of(plan)) == 2 and (bool(keys_of(plan)) or chosen)


def keys_of(plan: Join | Outer) -> list[tuple[str, str]]:
    """The pairs of key columns, left and right, whose values have the same hashes where they are equal."""
    left, right = inputs_of(plan)
    kinds = [{field.name: field.type for field in each.fields} for each in (left, right)]
    pairs = [(a, b) if a in kinds[0] else (b, a) for a, b in plan.equal]
    return [(a, b) for a, b in pairs if are_hashed_alike([kinds[0][a], kinds[1][b]])]


def are_hashed_alike(kinds: Sequence[pa.DataType]) -> bool:
    """Whether equal values of these types have equal hashes: whole numbers of any width, and others of one type."""
    if all(map(pa.types.is_integer, kinds)):
        return True
    return len(set(kinds)) == 1 and not pa.types.is_nested(kinds[0])


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
        given.append(Given(with_key(batches, schema, (at,)), schema, partial(_hashes, (at,))))
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
        given = [
            Given(_cast(each.batches, schema), schema, partial(_hashes, at), kept)
            for each, schema, at, kept in zip(self._inputs, self._schemas, self._keys(), self._kept, strict=True)
        ]
        held, fits = all_that_fits(given, 2 * self._share)
        if fits:
            yield from self._at_once([together(rows, each.schema) for rows, each in zip(held, given, strict=True)])
            return
        sorter = Sorter(self._spills, self._placed, _order, self._share, most)
        given = [
            replace(each, batches=self._with_keys(chain(rows, each.batches), k, sorter))
            for k, (rows, each) in enumerate(zip(held, given, strict=True))
        ]
        if keys_of(self._plan):
            parts = parts_of_all(given, self._spills, self._share)
        else:
            parts = iter([[one_part(each, self._spills, self._share // 2) for each in given]])
        for left, right in parts:
            seen: list[Array] = []
            for mine in blocks(left, self._share // 2):
                partnered = np.zeros(mine.num_rows, np.bool_)
                for at, theirs in enumerate(blocks(right, self._share // 2)):
                    if at == len(seen):
                        seen.append(np.zeros(theirs.num_rows, np.bool_))
                    for found in self._pairs((mine, theirs), (partnered, seen[at])):
                        if ordered:
                            sorter.add(self._with_place(self._columns(found), self._place(found)))
                        else:
                            yield pa.RecordBatch.from_arrays(self._columns(found), schema=self._out)
                self._put_alone(0, mine, partnered, sorter)
            for at, theirs in enumerate(blocks(right, self._share // 2)):
                self._put_alone(1, theirs, seen[at], sorter)
        for batch in sorter.rows():
            yield batch.select(list(range(len(self._marked))))

    def _at_once(self, rows: Sequence[pa.RecordBatch]) -> Batches:
        """What memory holds, in the order in which it is found."""
        partnered = [np.zeros(each.num_rows, np.bool_) for each in rows]
        ts = [_whole(each, TIMES[k]) if self._inputs[k].timed else None for k, each in enumerate(rows)]
        for found in self._pairs(rows, partnered, ts):
            yield pa.RecordBatch.from_arrays(self._columns(found), schema=self._marked)
        for k, each in enumerate(rows):
            if (alone := self._alone(k, each, partnered[k])) is not None:
                yield pa.RecordBatch.from_arrays(alone[0], schema=self._marked)

    def _keys(self) -> list[list[int]]:
        """The places of the keys in both inputs."""
        pairs = keys_of(self._plan)
        return [[schema.get_field_index(pair[k]) for pair in pairs] for k, schema in enumerate(self._schemas)]

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

        ts: the times that order pairs; None: any order, without all pairs in memory.
        """
        left, right = rows
        if not left.num_rows or not right.num_rows:
            return
        most = left.num_rows if self._plan.equal else max(1, _AT_ONCE // right.num_rows)
        if left.num_rows > most:
            for begin in range(0, left.num_rows, most):
                end = begin + most
                yield from self._pairs((left.slice(begin, most), right), (partnered[0][begin:end], partnered[1]))
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
        """Where pairs stand: by the tuple that completes them, its newest partner first; without times by the left."""
        left, right = (_whole(found, name) for name in NUMBERS)
        none = np.zeros(left.shape[0], np.int64)
        timed = [each.timed for each in self._inputs]
        if not all(timed):
            return [none, none, none, *((right, left) if timed[1] else (left, right))]
        times = [_whole(found, name) for name in TIMES]
        by_right = times[1] >= times[0]
        return [
            none, np.maximum(*times), by_right.astype(np.int64), np.where(by_right, right, left),
            -np.where(by_right, left, right),
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


def _hashes(at: Sequence[int], batch: pa.RecordBatch) -> Array:
    return row_hashes([batch.column(k) for k in at], batch.num_rows)


def _order(batch: pa.RecordBatch) -> Array:
    return np.lexsort([_whole(batch, name) for name in _PLACE[::-1]])
