"""Aggregates over one stream that converge: blocks in a random order, intervals until all have been read."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from nile.aggregates.catalogue import CATALOGUE, RUNNING
from nile.aggregates.linear import Units
from nile.answers.progress import Progressive
from nile.base.nearest import nearest
from nile.execution.approximate.shape import Shape
from nile.execution.approximate.topped import topped
from nile.execution.options import Options
from nile.execution.progress.input import Histories, Kept, bounded, check_stream, own_columns, renamed
from nile.execution.progress.quantiles import Points, quantiles
from nile.execution.progress.selection import figures_text, grids_text
from nile.execution.values import all_of, column_of, filtered, schema_of, value_of
from nile.expressions.tree import conjuncts
from nile.operators.aggregate.exact import aggregated
from nile.operators.common.rows import row_codes
from nile.operators.history.blocks import Blocks, UnitTotals, blocks_of
from nile.operators.history.lookup import HistoryFigures
from nile.operators.history.ruling import left_of
from nile.operators.history.sums import DoubleSums, WholeSums
from nile.sql.plan import AggregateItem, Query, Stream
from nile.summaries.errors import NotYet, SumOverflow
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa, pc

__all__ = ["ProgressiveAggregate"]

Array = np.ndarray[Any, Any]


class ProgressiveAggregate(Progressive):
    """SELECT aggregates FROM stream WHERE condition GROUP BY keys.

    Each answer is the estimate of the whole from the blocks read so far, and replaces the one before; the last is
    exact.  coverage: the share of the tuples that were read.
    """

    replaces = True

    def __init__(self, engine: Kept, query: Query, shape: Shape, options: Options) -> None:
        """Checked, nothing read.  Raises NotYet."""
        assert isinstance(shape.core, Stream)
        assert shape.group is not None
        check_stream(shape.core)
        self._stream = shape.core
        self._group = shape.group
        self._shape = shape
        self._where = shape.where
        for each in shape.group.aggregates:
            if each.function not in RUNNING or each.distinct:
                collected = CATALOGUE[each.function].is_collected
                why = "an aggregate in the order of rows" if collected else "the number of distinct values"
                raise NotYet(
                    f"progress: needed aggregates that settle as tuples come ({', '.join(RUNNING)}); got "
                    f"{each.name}: {why} cannot be estimated from a sample; read the result with to_arrow()"
                )
        if query.preference is not None and query.preference.kind != "weighted":
            raise NotYet(
                f"progress: needed aggregates of a random sample, WITH PREFERENCE weighted or none; got "
                f"{query.preference.kind}; leave it out"
            )
        self._confidence = 0.95 if options.confidence is None else options.confidence
        self._seed = options.seed or 0
        self._time = engine.entries[self._stream.name].schema.field(self._stream.time).type
        self._histories = Histories(engine, (self._stream,), {})
        self.schema = schema_of(query.plan.fields)
        self.figures = HistoryFigures()
        self._read = 0
        self._asked = -1
        self._finished = False
        self._news = False
        self._running: list[_Running] = []
        self._keys: list[Any] = []
        self._groups = 0
        self._seen_tuples = 0
        self._shown: Mapping[str, Sequence[Estimate]] = {}

    def steps(self) -> Generator[None]:
        yield from self._histories.open()
        history = self._histories[self._stream.name]
        since, until, rest = bounded(self._stream, self._time)
        begin, end = history.between(since, until)
        self._asked = end - begin
        blocks = blocks_of(begin, end, self._seed)
        condition = all_of(rest, self._where)
        self._running = [_Running(each, blocks) for each in self._group.aggregates]
        self._groups = 0 if self._group.by else 1
        names = own_columns(self._stream)
        runs = self._histories.without(self._stream, conjuncts(condition))
        for low, high in zip(blocks.begin.tolist(), blocks.end.tolist(), strict=True):
            # What a summary rules out is known without being read: none of it meets the condition.
            left = left_of(runs, low, high)
            parts = [
                renamed(self._stream, batch.columns, names)
                for first, end in left
                for _, batch in history.batches(names, first, end)
            ] or [renamed(self._stream, history.take(blocks.begin[:0], names).columns, names)]
            batch = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
            self._add(batch if condition is None else filtered(condition, batch))
            self._read += high - low
            read = sum(end - first for first, end in left)
            self.figures.tuples += read
            self.figures.passed += high - low - read
            self._news = True
            yield None
        self._finished = self._news = True

    def _add(self, batch: pa.RecordBatch) -> None:
        """One block."""
        codes = np.zeros(batch.num_rows, np.int64)
        if self._group.by:
            own = [value_of(item, batch) for item in self._group.by]
            codes, first = row_codes(own, batch.num_rows)
            distinct = [column.take(pa.array(first)) for column in own]
            if not self._keys:
                self._keys = [column.slice(0, 0) for column in distinct]
            together = [pa.concat_arrays([a, b]) for a, b in zip(self._keys, distinct, strict=True)]
            number, firsts = row_codes(together, self._groups + first.shape[0])
            self._keys = [column.take(pa.array(firsts)) for column in together]
            codes = number[self._groups :][codes]
            self._groups = firsts.shape[0]
        self._seen_tuples += batch.num_rows
        for running in self._running:
            argument = running.item.argument
            running.add(None if argument is None else column_of(argument, batch), codes, self._groups)

    def take(self) -> list[pa.RecordBatch]:
        """The answer as it is now, through the projections, ORDER BY and LIMIT above the groups."""
        self._news = False
        if not self._running:
            if self._asked < 0:
                return []
            self._running = [_Running(each, blocks_of(0, 0, 0)) for each in self._group.aggregates]
        columns, estimates = [], {}
        for running in self._running:
            column, estimate = running.answer(self._groups, self._confidence, complete=self._is_complete)
            columns.append(column)
            estimates[running.item.name] = estimate
        keys = self._keys or [pa.nulls(0, item.field.type) for item in self._group.by]
        batch = pa.RecordBatch.from_arrays([*keys, *columns], schema=schema_of(self._group.fields))
        batch, names, rows = topped(self._shape, batch, self.schema)
        self._shown = {
            shown: [estimates[name][row] for row in rows] for shown, name in names.items() if name in estimates
        }
        return [batch]

    @property
    def _is_complete(self) -> bool:
        return self._read == self._asked

    @property
    def has_news(self) -> bool:
        return self._news

    @property
    def coverage(self) -> float:
        if self._asked < 0:
            return 0.0
        return 1.0 if self._finished or not self._asked else self._read / self._asked

    @property
    def estimates(self) -> Mapping[str, Sequence[Estimate]]:
        return self._shown

    @property
    def estimate(self) -> Estimate:
        if not self._group.by and len(self._shown) == 1:
            (only,) = self._shown.values()
            if only:
                return only[0]
        if self._asked < 0:
            return Estimate.between(0.0, 0.0, float("inf"))
        groups = float(self._groups)
        if self._finished or not self._group.by:
            return Estimate.exact(groups)
        return Estimate.between(groups, groups, groups + self._asked - self._read)

    def explain(self) -> list[str]:
        return [
            f"progressive aggregates over the history of {self._stream.name}: blocks in a random order, the numbers "
            "settle",
            *grids_text(self._histories, self.figures),
            *(figures_text(self.figures, self.coverage) if self._asked >= 0 else []),
        ]


class _Running:
    """One aggregate as blocks come."""

    def __init__(self, item: AggregateItem, blocks: Blocks) -> None:
        self.item = item
        self._blocks = blocks
        self._units = UnitTotals(blocks)
        self._counts = np.zeros(0, np.int64)
        self._sums: DoubleSums | WholeSums = DoubleSums()
        self._found: pa.Array | None = None
        self._kind = CATALOGUE[item.function]
        self._blocks_of: list[tuple[pa.Array, Array]] = []

    def add(self, values: pa.Array | None, codes: Array, groups: int) -> None:
        """A block's values (None: count(*)) and the groups of its rows.  Quantiles keep all values."""
        if groups > self._counts.shape[0]:
            self._counts = np.concatenate([self._counts, np.zeros(groups - self._counts.shape[0], np.int64)])
        if values is not None and values.null_count:
            valid = values.is_valid()
            values, codes = values.filter(valid), codes[valid.to_numpy(zero_copy_only=False)]
        size = np.bincount(codes, minlength=groups)
        self._counts += size
        if self._kind.interval == "one-sided":
            self._extremes(values, codes, groups)
            return
        here = np.flatnonzero(size)
        count = size[here].astype(np.float64)
        units = Units(count, np.zeros(here.shape[0]), np.zeros(here.shape[0]))
        if self._kind.interval == "rank":
            self._blocks_of.append((values, codes))
        elif self._kind.is_spread:
            units = self._spread(values, codes, size, here)
        elif self.item.function != "count":
            units = Units(count, self._add_up(values, codes, groups)[here], units.squares)
        self._units.add(here, units)

    def _spread(self, values: Any, codes: Array, size: Array, here: Array) -> Units:
        numbers = nearest(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        with np.errstate(all="ignore"):
            total = np.bincount(codes, numbers, size.shape[0])
            off = (numbers - (total / np.maximum(size, 1))[codes]) ** 2
            return Units(size[here].astype(np.float64), total[here], np.bincount(codes, off, size.shape[0])[here])

    def _add_up(self, values: Any, codes: Array, groups: int) -> Array:
        """Add to the sums; this block's, roughly."""
        whole = pa.types.is_integer(values.type) or pa.types.is_boolean(values.type)
        if whole and self.item.function == "sum":
            if not isinstance(self._sums, WholeSums):
                self._sums = WholeSums()
            numbers = pc.cast(values, pa.int64(), safe=False).to_numpy(zero_copy_only=False)
            self._sums.add(numbers, codes, groups)
            return np.bincount(codes, numbers.astype(np.float64), groups)
        doubles = nearest(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        self._sums.add(doubles, codes, groups)
        with np.errstate(all="ignore"):
            return np.bincount(codes, doubles, groups)

    def _extremes(self, values: Any, codes: Array, groups: int) -> None:
        held = self._found
        if held is not None:
            at = np.flatnonzero(held.is_valid().to_numpy(zero_copy_only=False))
            values = pa.concat_arrays([held.take(pa.array(at)).cast(values.type), values])
            codes = np.concatenate([at, codes])
        self._found = aggregated(self.item, values, codes, groups)

    def answer(self, groups: int, confidence: float, *, complete: bool) -> tuple[pa.Array, list[Estimate]]:
        """(the aggregate of each group in the type of its field, what each is worth).  complete: all was read."""
        item, kind = self.item, self.item.field.type
        if self._kind.interval == "one-sided":
            return self._extreme(groups, complete)
        if self._kind.interval == "rank":
            return self._quantiles(groups, confidence, complete)
        counts = np.zeros(groups, np.int64)
        counts[: self._counts.shape[0]] = self._counts
        if item.function == "count":
            if complete:
                return pa.array(counts).cast(kind), [Estimate.exact(float(n)) for n in counts.tolist()]
            made = self._units.counts(groups, confidence)
            return pa.array([round(float(e.value)) for e in made], pa.int64()).cast(kind), made
        null = counts < (self._kind.least if complete else 1)
        if complete:
            return self._exact(groups, counts, null)
        made = self._units.numbers(self._kind, groups, confidence)
        value = np.array([float(each.value) for each in made])
        if pa.types.is_integer(kind):
            big = ~(np.abs(value) < 2.0**63)
            value = np.where(big, 0.0, np.rint(value)).astype(np.int64)
            null = null | big
        array = pa.array(value, mask=null)
        return (array if array.type == kind else pc.cast(array, kind, safe=False)), made

    def _quantiles(self, groups: int, confidence: float, complete: bool) -> tuple[pa.Array, list[Estimate]]:
        """Of all values as the exact answer has them; of a sample each block stands for others."""
        blocks = self._blocks_of or [(pa.array([], _type_of(self.item)), np.zeros(0, np.int64))]
        values = pa.concat_arrays([part.cast(blocks[0][0].type) for part, _ in blocks])
        codes = np.concatenate([codes for _, codes in blocks])
        if complete:
            found = aggregated(self.item, values, codes, groups)
            return found, [Estimate.exact(number) for number in _numbers(found)]
        sample = self._units.sampled(groups)
        number = np.repeat(np.arange(len(blocks)), [part.shape[0] for _, part in blocks]) - self._units.known
        # A unit is a block of a group; those of one block are numbered by group, as they were added.
        cell, drawn = number * groups + codes, number >= 0
        unit = np.full(codes.shape[0], -1, np.int64)
        _, unit[drawn] = np.unique(cell[drawn], return_inverse=True)
        points = Points(
            values, codes, unit, np.ones(codes.shape[0]), np.where(drawn, self._units.weight, 1.0)
        )  # fmt: skip
        share = self._kind.share if self.item.fraction is None else self.item.fraction
        assert share is not None

        def reach(residual: Array) -> Array:
            return sample.totals(residual, np.inf).reach(confidence)

        found, made = quantiles(
            self._kind, share, points, groups, np.zeros(groups), reach, sample.group.shape[0], confidence
        )  # fmt: skip
        return (found if found.type == self.item.field.type else pc.cast(found, self.item.field.type, safe=False)), made

    def _exact(self, groups: int, counts: Array, null: Array) -> tuple[pa.Array, list[Estimate]]:
        kind = self.item.field.type
        totals = self._sums.totals()
        if isinstance(self._sums, WholeSums):
            whole = [*totals, *([0] * (groups - len(totals)))]
            for total in whole:
                if not -(2**63) <= total < 2**63:
                    raise SumOverflow(f"sum: needed a total within 64 bits; got {total}; cast the column to double")
            array = pa.array(whole, pa.int64(), mask=null)
            told = [Estimate.exact(float(total)) for total in whole]
        else:
            doubles = np.zeros(groups)
            doubles[: len(totals)] = totals
            if self._kind.is_spread:
                doubles = self._units.exact(self._kind, groups)
            if self.item.function == "avg":
                with np.errstate(all="ignore"):
                    doubles = doubles / counts
            array = pa.array(doubles, mask=null)
            told = [Estimate.exact(value) for value in doubles.tolist()]
        return (array if array.type == kind else pc.cast(array, kind, safe=False)), told

    def _extreme(self, groups: int, complete: bool) -> tuple[pa.Array, list[Estimate]]:
        kind = self.item.field.type
        found = pa.nulls(groups, kind) if self._found is None else self._found
        if len(found) < groups:
            found = pa.concat_arrays([found, pa.nulls(groups - len(found), found.type)])
        numbers = _numbers(found)
        low, high = (float("-inf"), None) if self.item.function == "min" else (None, float("inf"))
        made = []
        for number in numbers:
            if complete:
                made.append(Estimate.exact(number))
            elif number != number:
                made.append(Estimate.guess(number))
            else:
                made.append(Estimate.between(number, number if low is None else low, number if high is None else high))
        return found, made


def _numbers(found: pa.Array) -> list[float]:
    """Values as numbers; NaN where they are none."""
    return [
        float(each) if isinstance(each, int | float) and not isinstance(each, bool) else float("nan")
        for each in found.to_pylist()
    ]


def _type_of(item: AggregateItem) -> pa.DataType:
    """The type of values that never came."""
    return item.field.type if CATALOGUE[item.function].gives == "same" else pa.float64()
