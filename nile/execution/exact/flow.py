"""A snapshot over more rows than memory holds: plans as batches that pass, with files where rows must wait.

What groups, tells rows equal or orders them keeps a share of memory and writes the rest to temporary files, parted by
hash or in sorted runs; rows come out as those of `nile.execution.exact.relational` do, in the same order, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol

import numpy as np

from nile.answers.tabular import room_for_answers, row_bytes
from nile.base.spill import Spill, Spills
from nile.execution.exact.batches import (
    NUMBER,
    Batches,
    cut,
    fitted,
    looked_at,
    marked,
    numbered,
    repeated,
)
from nile.execution.exact.counted import CountedInParts
from nile.execution.exact.counting import grouped_rows, join_below
from nile.execution.exact.hopping import hop_rows
from nile.execution.exact.joining import Side
from nile.execution.exact.one_group import OneGroup
from nile.execution.exact.over_partitions import over_in_parts
from nile.execution.exact.paired import Input, Pairing, passed, placed, sides_in_parts
from nile.execution.exact.parting import parts_by
from nile.execution.exact.piecewise_groups import Pieces
from nile.execution.exact.relational import Path, as_left, grouped, left_after
from nile.execution.exact.several import is_timed, joined_by_steps, steps_of
from nile.execution.exact.sorting import CODES, Sorter, by_number, footprint, together
from nile.execution.exact.unnesting import unnested_rows
from nile.execution.over.ordering import may_be_first, order_of
from nile.execution.reading import Readable, Reading
from nile.execution.values import filtered, maker, schema_of, value_of
from nile.expressions.tree import Column
from nile.sql import plan as ops
from nile.sql.plan import Plan, Stream, inputs_of, leaves_of, walk
from nile.summaries.heavy import pa

__all__ = ["Flow", "Home", "flows"]

Array = np.ndarray[Any, Any]
_SHARE = 8
"""Of what an answer may take, one part of so many is for the rows that an operator works on."""
_LARGEST = 512 << 20
_WORKING = 4
"""Bytes that work on a byte of rows held whole takes, at the most of what was measured."""
_SIDE = "\0s"


class Home(Readable, Protocol):
    """What is asked of a database."""

    def rows(self, name: str) -> int | None:
        """How many rows a source has, where it says so without reading."""


def flows(home: Home, plan: Plan) -> bool:
    """Whether a snapshot is worked out here: over what no window bounds, of more rows than an answer may take."""
    for node in walk(plan):
        if isinstance(node, Stream) and node.window is not None:
            return False
        if isinstance(node, ops.Join) and node.constraints:
            return False
    needed = 0
    for leaf in leaves_of(plan):
        rows = home.rows(leaf.name)
        if rows is None:
            return True
        needed += rows * (row_bytes(schema_of(leaf.fields)) + CODES)
    return needed > room_for_answers() // _WORKING


class Flow:
    """Evaluates plans.  counts: as of `nile.execution.exact.relational.Relational`."""

    def __init__(
        self,
        reading: Reading,
        counts: dict[Path, int],
        spills: Spills,
        plan: Plan,
    ) -> None:
        self._reading = reading
        self._counts = counts
        self._spills = spills
        self._share = min(room_for_answers() // _SHARE, _LARGEST)
        leaves = leaves_of(plan)
        names = [leaf.name for leaf in leaves]
        self._again = {leaf.alias for leaf in leaves if names.count(leaf.name) > 1}

    def rows(self, plan: Plan, path: Path = (), most: int | None = None) -> Batches:
        """The rows of a node; most: how many are wanted from the front, None for all.

        Raises KeyTypeError, MemoryRefused.
        """
        self._counts.setdefault(path, 0)
        for batch in self._rows(plan, path, most):
            self._counts[path] += batch.num_rows
            yield batch

    def _rows(self, plan: Plan, path: Path, most: int | None) -> Batches:
        match plan:
            case Stream() | ops.Relation():
                return self._leaf(plan)
            case ops.Join() if steps := steps_of(plan):
                given = [self._placeable(each, (*path, k)) for k, each in enumerate(plan.inputs)]
                return joined_by_steps(plan, steps, given, self._spills, self._share, self._reading.threads, most)
            case ops.Join() | ops.Outer():
                return self._paired(plan, path, most)
            case ops.Group() if (found := join_below(plan)) is not None:
                return self._grouped_join(plan, *found, path)
            case ops.SetOperation():
                left, right = (self.rows(each, (*path, k)) for k, each in enumerate(inputs_of(plan)))
                return self._combined(plan, left, right)
            case ops.Limit():
                wanted = None if plan.count is None else plan.count + plan.offset
                return cut(self.rows(plan.input, (*path, 0), wanted), plan.offset, plan.count)
        (below,) = inputs_of(plan)
        batches = self.rows(below, (*path, 0), most if isinstance(plan, ops.Project) else None)
        match plan:
            case ops.Filter():
                return (filtered(plan.condition, batch) for batch in batches)
            case ops.Project():
                return map(maker(plan.items), batches)
            case ops.Hop():
                return (hop_rows(plan, batch)[0] for batch in batches)
            case ops.Unnest():
                return (unnested_rows(plan, batch)[0] for batch in batches)
            case ops.Distinct():
                return self._distinct(plan, batches)
            case ops.Group():
                return self._grouped(plan, batches)
            case ops.Over():
                return over_in_parts(plan, batches, self._spills, self._share)
            case ops.Sort():
                return self._sorted(plan, batches, most)
        raise AssertionError(plan)  # these run as pipelines

    def _leaf(self, leaf: Stream | ops.Relation) -> Batches:
        if isinstance(leaf, Stream):
            yield from (batch for _, batch in self._stream(leaf))
        elif leaf.alias in self._again:
            yield from (batch for _, batch in self._reading.again(leaf))
        else:
            yield from self._reading.relation_batches(leaf)

    def sides_in_parts(self, join: ops.Join, path: Path) -> Iterator[list[Side]]:
        """The inputs of a join that `parts_by_key`, part by part: what joins is in one."""
        return sides_in_parts(join, [self.rows(each, (*path, k)) for k, each in enumerate(join.inputs)],
                              self._spills, self._share)  # fmt: skip

    def _paired(self, plan: ops.Join | ops.Outer, path: Path, most: int | None) -> Batches:
        """A join of two inputs, part by part, in order."""
        inputs = []
        for k, each in enumerate(inputs_of(plan)):
            rows = self._placeable(each, (*path, k))
            inputs.append(Input(placed(rows, schema_of(each.fields)), each.fields, is_timed(each)))
        return Pairing(plan, inputs, self._spills, self._share, self._reading.threads).rows(most)

    def _placeable(self, plan: Plan, path: Path) -> Iterator[tuple[pa.RecordBatch, Array | None]]:
        """The rows of an input of a join, with their times where it `is_timed`."""
        if is_timed(plan):
            yield from self._timed(plan, path)
        else:
            yield from ((batch, None) for batch in self.rows(plan, path))

    def _timed(self, plan: Plan, path: Path) -> Iterator[tuple[pa.RecordBatch, Array]]:
        """Selections and projections over a stream, with the times of their rows: int64 [n] ns."""
        self._counts.setdefault(path, 0)
        if isinstance(plan, Stream):
            found = ((batch, ts) for ts, batch in self._stream(plan))
        else:
            assert isinstance(plan, ops.Filter | ops.Project)
            found = (passed(plan, *each) for each in self._timed(plan.input, (*path, 0)))
        for batch, ts in found:
            self._counts[path] += batch.num_rows
            yield batch, ts

    def _stream(self, leaf: Stream) -> Iterator[tuple[Array, pa.RecordBatch]]:
        if leaf.alias not in self._again:  # a source that comes once is read once
            yield from ((ts, batch) for ts, batch, _ in self._reading.stream_batches(leaf))
            return
        for ts, batch in self._reading.again(leaf):
            assert ts is not None
            yield ts, batch

    def _grouped_join(self, plan: ops.Group, join: ops.Join, between: Sequence[ops.Project], path: Path) -> Batches:
        at = (*path, *(0,) * (len(between) + 1))
        none = [Side(together([], schema_of(each.fields))) for each in join.inputs]
        if grouped_rows(plan, join, between, none) is None:
            yield from self._grouped(plan, self.rows(plan.input, (*path, 0)))
            return
        paths = [at[: len(at) - k] for k in range(len(between) + 1)]
        self._counts.update(dict.fromkeys(paths, 0))

        def tell(outputs: int) -> None:
            for each in paths:
                self._counts[each] += outputs

        counted = CountedInParts(plan, join, between, self._spills, self._share)
        yield from counted.rows([self.rows(each, (*at, k)) for k, each in enumerate(join.inputs)], tell)

    def _parts(
        self, batches: Batches, schema: pa.Schema, keys: Callable[[pa.RecordBatch], Sequence[pa.Array]]
    ) -> Iterator[pa.RecordBatch | Spill]:
        return parts_by(batches, schema, keys, self._spills, self._share)

    def _in_order(self, found: Batches, schema: pa.Schema) -> Batches:
        """Rows by the numbers in their last column, which goes.  schema: with it."""
        at = len(schema) - 1
        for batch in by_number(found, schema, at, self._spills, self._share):
            yield batch.select(list(range(at)))

    def _distinct(self, plan: ops.Distinct | ops.SetOperation, batches: Batches) -> Batches:
        """Groups by all columns."""
        by = tuple(ops.Item(field, Column(field.name)) for field in plan.fields)
        return self._grouped(ops.Group(inputs_of(plan)[0], by, ()), batches)

    def _combined(self, plan: ops.SetOperation, left: Batches, right: Batches) -> Batches:
        alike = (map(partial(as_left, plan), each) for each in (left, right))
        if plan.kind == "union":
            return chain(*alike) if plan.all else self._distinct(plan, chain(*alike))
        plain = schema_of(plan.fields)
        both = plain.append(pa.field(_SIDE, pa.bool_()))
        schema = both.append(pa.field(NUMBER, pa.int64()))
        sided = (marked(each, both, right=k == 1) for k, each in enumerate(alike))
        width = len(plain)

        def keys(batch: pa.RecordBatch) -> list[pa.Array]:
            found: list[pa.Array] = batch.columns[:width]
            return found

        def found() -> Batches:
            for part in self._parts(numbered(chain(*sided), both), schema, keys):
                if isinstance(part, Spill):
                    yield from repeated(plan, part, width)
                    continue
                lefts = part.num_rows - int(part.column(width).true_count)
                kept = left_after(plan, part.select(list(range(width))), lefts)
                yield part.take(pa.array(kept))

        return (batch.select(list(range(width))) for batch in self._in_order(found(), schema))

    def _grouped(self, plan: ops.Group, batches: Batches) -> Batches:
        out = schema_of(plan.fields)
        wanted = looked_at(plan)
        narrow = pa.schema([field for field in schema_of(plan.input.fields) if field.name in wanted])
        schema = narrow.append(pa.field(NUMBER, pa.int64()))
        given = numbered(batches, narrow)
        pieces = Pieces.of(plan, narrow)
        if pieces is not None:
            yield from self._in_pieces(plan, pieces, given)
            return
        if not plan.by:
            yield from self._one_group(plan, given, schema)
            return

        def keys(batch: pa.RecordBatch) -> list[pa.Array]:
            return [value_of(item, batch) for item in plan.by]

        def found() -> Batches:
            for part in self._parts(given, schema, keys):
                if isinstance(part, Spill):
                    rows, first = self._of_spill(plan, part), next(part.kept()).slice(0, 1)
                else:
                    rows, at = grouped(plan, part)
                    first = part.take(pa.array(at))
                yield rows.append_column(NUMBER, first.column(len(narrow)))

        yield from self._in_order(found(), out.append(pa.field(NUMBER, pa.int64())))

    def _in_pieces(self, plan: ops.Group, pieces: Pieces, given: Batches) -> Batches:
        none = together([], pieces.schema)

        def found() -> Batches:
            for part in self._parts(pieces.reduced(given, self._share), pieces.schema, pieces.keys):
                rows = none
                for batch in part.kept() if isinstance(part, Spill) else [part]:
                    rows = pieces.merged(together([rows, batch], pieces.schema))
                told, number = pieces.told(rows)
                yield told.append_column(NUMBER, number)

        out = schema_of(plan.fields)
        rows = 0
        for batch in self._in_order(found(), out.append(pa.field(NUMBER, pa.int64()))):
            rows += batch.num_rows
            yield batch
        if not plan.by and not rows:
            yield grouped(plan, together([], schema_of(plan.input.fields)))[0]

    def _one_group(self, plan: ops.Group, batches: Batches, schema: pa.Schema) -> Batches:
        """Without keys there is one row, whatever there is."""
        waiting: list[pa.RecordBatch] = []
        taken = 0
        spill: Spill | None = None
        for batch in batches:
            waiting.append(batch)
            taken += footprint(batch)
            if taken > self._share:
                spill = spill or self._spills.new(schema)
                for each in waiting:
                    self._spills.put(spill, each)
                waiting, taken = [], 0
        if spill is None:
            yield grouped(plan, together(waiting, schema))[0]
            return
        for each in waiting:
            self._spills.put(spill, each)
        yield self._of_spill(plan, spill)

    def _of_spill(self, plan: ops.Group, rows: Spill) -> pa.RecordBatch:
        first = next(rows.kept()).slice(0, 1)
        group = OneGroup(rows, self._spills, self._share)
        columns = [value_of(item, first) for item in plan.by] + [group.aggregated(each) for each in plan.aggregates]
        return pa.RecordBatch.from_arrays(columns, schema=schema_of(plan.fields))

    def _sorted(self, plan: ops.Sort, batches: Batches, most: int | None) -> Batches:
        schema = schema_of(plan.fields)
        sorter = Sorter(self._spills, schema, lambda batch: order_of(plan.keys, batch), self._share, most)
        for batch in batches:
            rows = fitted(batch, schema)  # of a batch no others than its own first can be among the first of all
            sorter.add(rows if most is None else may_be_first(plan.keys, rows, most))
        yield from sorter.rows()
