"""Groups of a join's outputs, counted and not made, over more rows than memory holds.

As `nile.execution.exact.counting`, part by part: inputs are parted by their key, each row is given the number of
combinations that it is in, and rows with these weights are grouped as others are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from nile.base.spill import Spill, Spills
from nile.execution.exact.batches import NUMBER, Batches, fitted, numbered, numbers_of
from nile.execution.exact.counting import bases_of, known_of
from nile.execution.exact.joining import Side, combinations_of_rows
from nile.execution.exact.one_group import OneGroup
from nile.execution.exact.paired import combined, with_key
from nile.execution.exact.parting import Given, all_that_fits, are_hashed_alike, parts_by, parts_of_all, row_hashes
from nile.execution.exact.sorting import by_number, footprint, together
from nile.execution.key_columns import one_key
from nile.execution.values import column_of, schema_of, value_of
from nile.expressions.tree import Column
from nile.operators.aggregate.exact import aggregated
from nile.operators.common.rows import row_codes
from nile.sql.plan import AggregateItem, Group, Join, Project
from nile.summaries.heavy import pa

__all__ = ["CountedInParts"]

Array = np.ndarray[Any, Any]
_WEIGHT = "\0w"


@dataclass(frozen=True, slots=True)
class CountedInParts:
    """A group over a join, with the projections between them from below.  share: bytes of memory that work may take."""

    plan: Group
    join: Join
    between: Sequence[Project]
    spills: Spills
    share: int

    @property
    def keys(self) -> list[tuple[str, ...]]:
        """The columns of each input by whose hashes all can be parted; () of each where none is hashed alike."""
        join = self.join
        none: list[tuple[str, ...]] = [()] * len(join.inputs)
        if len(join.inputs) == 2:
            kinds = [{field.name: field.type for field in each.fields} for each in join.inputs]
            pairs = [(a, b) if a in kinds[0] else (b, a) for a, b in join.equal]
            alike = [(a, b) for a, b in pairs if are_hashed_alike([kinds[0][a], kinds[1][b]])]
            return [tuple(pair[k] for pair in alike) for k in (0, 1)]
        on, rest = one_key(join) if join.equal else (None, [])
        types = {field.name: field.type for each in join.inputs for field in each.fields}
        if on is None or rest or not are_hashed_alike([types[name] for name in on]):
            return none
        return [(name,) for name in on]

    def rows(self, inputs: Sequence[Batches], tell: Callable[[int], None]) -> Batches:
        """The groups in order.  inputs: the rows of each; tell: is told numbers of combinations as they are counted.

        Raises KeyTypeError, SumOverflow, MemoryRefused.
        """
        none = [Side(together([], schema_of(each.fields))) for each in self.join.inputs]
        bases = bases_of(self.plan, self.join, self.between, none)
        assert bases is not None
        used = sorted(set(bases))
        bases = bases if self.plan.aggregates else []
        empty = [self._lifted(k, none, np.zeros(0, np.int64), np.zeros(0, np.int64), used, bases) for k in used]
        types = [next((t for t in types if not pa.types.is_null(t)), types[0])
                 for types in zip(*(each.schema.types for each in empty), strict=True)]  # fmt: skip
        schema = pa.schema([pa.field(name, kind) for name, kind in zip(empty[0].schema.names, types, strict=True)])
        asked = [
            replace(each, argument=Column(f"a{k}"))
            for k, each in enumerate(self.plan.aggregates)
        ]  # fmt: skip
        found = self._weighed(inputs, used, bases, schema, tell)
        alike = not any(pa.types.is_floating(kind) for kind in types)  # zeros of two signs are equal, and are two
        given = self._merged(found, schema) if alike else found
        out = schema_of(self.plan.fields)
        groups = self._grouped(given, schema, asked)
        for batch in by_number(groups, out.append(pa.field(NUMBER, pa.int64())), len(out), self.spills, self.share):
            yield batch.select(list(range(len(out))))

    def _weighed(
        self, inputs: Sequence[Batches], used: Sequence[int], bases: Sequence[int], schema: pa.Schema,
        tell: Callable[[int], None],
    ) -> Batches:  # fmt: skip
        """Rows of the inputs that aggregates are of, with their weights."""
        join, keys = self.join, self.keys
        given = []
        for batches, each, key in zip(inputs, join.inputs, keys, strict=True):
            plain = schema_of(each.fields)
            at = [plain.get_field_index(name) for name in key]
            whole = plain.append(pa.field(NUMBER, pa.int64()))
            given.append(Given(with_key(numbered(batches, plain), whole, at), whole, partial(_hashes, at)))
        for part in parts_of_all(given, self.spills, self.share):
            share = self.share // len(part)
            for k in used:
                for mine, *_ in combined([part[k]], share):
                    weight = np.zeros(mine.num_rows, np.int64)
                    for others in combined([each for j, each in enumerate(part) if j != k], share):
                        rows = [*others[:k], mine, *others[k:]]
                        plain = [
                            Side(fitted(each, schema_of(one.fields)))
                            for each, one in zip(rows, join.inputs, strict=True)
                        ]
                        counted = combinations_of_rows(join, plain, [k])
                        assert counted is not None
                        weight += counted[0]
                    if k == used[0]:
                        tell(int(weight.sum()))
                    numbers = numbers_of(mine, mine.num_columns - 1)
                    sides = [Side(mine.select(list(range(mine.num_columns - 1)))) if j == k else Side(mine.slice(0, 0))
                             for j in range(len(part))]  # fmt: skip
                    lifted = self._lifted(k, sides, weight, numbers, used, bases)
                    columns = [
                        column if column.type == field.type else column.cast(field.type)
                        for column, field in zip(lifted.columns, schema, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _lifted(
        self, k: int, sides: Sequence[Side], weight: Array, numbers: Array, used: Sequence[int], bases: Sequence[int]
    ) -> pa.RecordBatch:
        """Keys, arguments of aggregates (null where they are of another input), weights and numbers of rows of input k
        that are in a combination; numbers of later inputs are larger.
        """
        kept = np.flatnonzero(weight)
        batch = known_of(self.join, self.between, sides, k).take(pa.array(kept))
        columns = [value_of(item, batch) for item in self.plan.by]
        for each, base in zip(self.plan.aggregates, bases, strict=True):
            if base != k:
                columns.append(pa.nulls(kept.shape[0]))
            elif each.argument is None:
                columns.append(pa.array(np.ones(kept.shape[0], np.bool_)))
            else:
                values = column_of(each.argument, batch)
                counted = each.function == "count" and not each.distinct
                columns.append(pa.array(np.ones(len(values), np.bool_), mask=values.is_null().to_numpy(False))
                               if counted else values)  # fmt: skip
        columns += [pa.array(weight[kept]), pa.array(numbers[kept] + (used.index(k) << 48))]
        names = [*(f"k{n}" for n in range(len(self.plan.by))), *(f"a{n}" for n in range(len(bases))), _WEIGHT, NUMBER]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def _merged(self, batches: Batches, schema: pa.Schema) -> Batches:
        """Rows that are equal in keys and arguments as one, as far as they are in memory together."""
        waiting: list[pa.RecordBatch] = []
        taken = 0
        for batch in batches:
            waiting.append(batch)
            taken += footprint(batch)
            if taken > self.share:
                merged = _as_one(together(waiting, schema))
                waiting, taken = [merged], footprint(merged)
                if taken > self.share // 2:
                    yield merged
                    waiting, taken = [], 0
        if waiting:
            yield _as_one(together(waiting, schema))

    def _grouped(self, batches: Batches, schema: pa.Schema, asked: Sequence[AggregateItem]) -> Batches:
        """A row for each group, and the number of its first row; in no order."""
        width = len(self.plan.by)
        if width:
            parts = parts_by(batches, schema, lambda batch: batch.columns[:width], self.spills, self.share)
        else:
            parts = self._one_part(batches, schema)
        for part in parts:
            if isinstance(part, Spill):
                yield self._of_spill(part, asked)
                continue
            rows = part.take(pa.array(np.argsort(numbers_of(part, part.num_columns - 1), kind="stable")))
            codes, first = row_codes(rows.columns[:width], rows.num_rows)
            count = first.shape[0]
            if not width:
                codes, count = np.zeros(rows.num_rows, np.int64), 1
            weight = numbers_of(rows, rows.num_columns - 2)
            columns = [key.take(pa.array(first)) for key in rows.columns[:width]]
            for each in asked:
                assert each.argument is not None
                columns.append(aggregated(each, column_of(each.argument, rows), codes, count, weight))
            number = rows.column(rows.num_columns - 1).take(pa.array(first)) if width else pa.array([0])
            yield self._told([*columns, number])

    def _one_part(self, batches: Batches, schema: pa.Schema) -> Iterator[pa.RecordBatch | Spill]:
        ((held,), fits) = all_that_fits([Given(batches, schema, partial(_hashes, ()))], self.share)
        if fits:
            yield together(held, schema)
            return
        spill = self.spills.new(schema)
        for batch in chain(held, batches):
            self.spills.put(spill, batch)
        yield spill

    def _of_spill(self, rows: Spill, asked: Sequence[AggregateItem]) -> pa.RecordBatch:
        first: pa.RecordBatch | None = None
        for batch in rows.kept():
            both = batch if first is None else together([first, batch], rows.schema)
            first = both.slice(int(np.argmin(numbers_of(both, both.num_columns - 1))), 1)
        assert first is not None
        group = OneGroup(rows, self.spills, self.share, _WEIGHT)
        keys = first.columns[: len(self.plan.by)]
        return self._told([*keys, *(group.aggregated(each) for each in asked), first.column(first.num_columns - 1)])

    def _told(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        schema = schema_of(self.plan.fields).append(pa.field(NUMBER, pa.int64()))
        return pa.RecordBatch.from_arrays(list(columns), schema=schema)


def _hashes(at: Sequence[int], batch: pa.RecordBatch) -> Array:
    return row_hashes([batch.column(k) for k in at], batch.num_rows)


def _as_one(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows that are equal but for weights and numbers as one, with the sum of the ones and the least of the others."""
    rows = rows.take(pa.array(np.argsort(numbers_of(rows, rows.num_columns - 1), kind="stable")))
    equal = rows.columns[:-2]
    codes, first = row_codes(equal, rows.num_rows)
    weight = np.zeros(first.shape[0], np.int64)
    np.add.at(weight, codes, numbers_of(rows, rows.num_columns - 2))
    kept = rows.take(pa.array(first))
    return pa.RecordBatch.from_arrays([*kept.columns[:-2], pa.array(weight), kept.column(kept.num_columns - 1)],
                                      schema=rows.schema)  # fmt: skip
