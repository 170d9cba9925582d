"""From a loaded stream and what was asked of it to the input of a run: evaluate, encode, take conditions apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nile.aggregates.asked import SETS, Aggregate
from nile.aggregates.catalogue import CATALOGUE
from nile.expressions.conditions import Condition, Value
from nile.expressions.tree import Column, is_unsigned
from nile.operators.aggregate.input import AggregateInput, Drawn, Measure
from nile.operators.aggregate.ordered import Ordered, in_order, is_told_as_is
from nile.operators.aggregate.scope import Scope, conjuncts, grid_column, scope_of
from nile.operators.common.rows import ranks_of, row_codes
from nile.operators.inputs.expression_bounds import bounds_of
from nile.operators.inputs.loading import Columns
from nile.operators.inputs.shared_grid import SharedSummary
from nile.pyramid.grid.manager import SummaryManager
from nile.summaries.hashing import KeyTable
from nile.summaries.heavy import pa, pc

__all__ = ["Asked", "constant", "grouped", "interval_of", "measure_of", "prepare"]

Array = np.ndarray[Any, Any]


class Asked:
    """A run's input with the labels that turn its numbers back into values.

    labels: for each measure, its distinct values by code, or what its numbers stand for (None: for themselves).
    by: names and, for each, one value a group.  on: the grid's column, None without one.  coded: makes the same with
    that column's values told apart, where they were not and a run under more budget may ask for them.
    """

    def __init__(
        self,
        data: AggregateInput,
        labels: list[pa.Array | Ordered | None],
        by: dict[str, pa.Array],
        on: str | None,
        coded: Callable[[], Asked] | None = None,
    ) -> None:
        self.data = data
        self.labels = labels
        self.by = by
        self.on = on
        self.coded = coded


def prepare(
    columns: Columns,
    aggregates: tuple[Aggregate, ...],
    queries: Sequence[tuple[str, tuple[Condition, ...]]],
    by: Sequence[Value],
    *,
    time: str,
    between: tuple[int | None, int | None],
    window: int | None,
    where: str,
    shared: SharedSummary | None = None,
    coded: bool = True,
    drawn: Drawn | None = None,
) -> Asked:
    """Everything a run needs.

    between: moments in ns, ends included; window: ns back from the last tuple in it; shared: a summary of the column
    that most queries restrict; coded: whether that column's values are told apart, which no plain sample asks for.
    drawn: what the columns are a sample of; conditions on time are tested like others then.
    """
    batch, ts = columns.batch, columns.ts
    part = drawn is not None and drawn.at is not None
    restricted = None if part else grid_column(queries, time)
    on = restricted if coded else None
    code: Array | None = None
    rank: Array | None = None
    hashes: Array | None = None
    values: pa.Array | None = None
    summary: SummaryManager | None = None
    if on is not None and len(columns):
        table = KeyTable(columns.hasher)
        encoded = table.encode(batch.column(on), where=f"{where}, column '{on}'")
        code, hashes = encoded.codes, encoded.hashes
        values = table.decode(np.arange(table.known))
        code, values = _with_null(code, values)
        rank = ranks_of(values)
        if shared is not None:
            summary = shared.over(ts, batch.column(on))
    interval, covered = interval_of(ts, between, window)
    scopes: list[Scope] = []
    for name, conditions in queries:
        parts = conjuncts(conditions)
        scopes.append(
            scope_of(
                name, parts, batch, ts, time="" if part else time, on=restricted, values=values, interval=interval,
                covered=covered,
            )
        )  # fmt: skip
    group, groups, labels_by = grouped(by, columns, where)
    measures: list[Measure] = []
    labels: list[pa.Array | Ordered | None] = []
    of: list[int] = []
    numbers: dict[tuple[str, str], int] = {}
    for aggregate in aggregates:
        if aggregate.value is None:
            of.append(-1)
            continue
        key = (aggregate.value.text, _looked_at(aggregate, batch, where))
        if key not in numbers:
            numbers[key] = len(measures)
            # Of what was not drawn nothing is known.
            measure, label = measure_of(aggregate.value, columns, aggregate.function, where=where, bounded=not part)
            measures.append(measure)
            labels.append(label)
        of.append(numbers[key])
    data = AggregateInput(
        ts=ts,
        aggregates=aggregates,
        of=tuple(of),
        measures=tuple(measures),
        scopes=tuple(scopes),
        group=group,
        groups=groups,
        grouped=bool(by),
        code=code,
        rank=rank,
        hashes=hashes,
        summary=summary,
        drawn=drawn,
    )
    return Asked(data, labels, labels_by, on)


def _looked_at(aggregate: Aggregate, batch: pa.RecordBatch, where: str) -> str:
    """What an aggregate looks at of its values, by which those of one expression share a measure."""
    assert aggregate.value is not None
    kind, tree = CATALOGUE[aggregate.function], aggregate.value.bound(batch.schema, where=where)
    if kind.is_set:
        return "codes"
    alike = tree.kind in ("integer", "number") and not is_unsigned(tree)
    if (
        alike and tree.kind == "integer" and kind.takes == "ordered"
    ):  # whole numbers that doubles do not hold are places
        column = isinstance(tree, Column)
        alike = column and not is_told_as_is(aggregate.value.of(batch, where=where), aggregate.function)
    return "numbers" if alike else f"{kind.takes}, {kind.gives}"


def measure_of(
    value: Value, columns: Columns, function: str, *, where: str, bounded: bool = True
) -> tuple[Measure, pa.Array | Ordered | None]:
    """An expression over n rows as a Measure for an aggregate, and its distinct values where they are coded, or what
    its numbers stand for where they are no values.  bounded: whether bounds are of use.
    """
    batch, n = columns.batch, len(columns)
    coded = function in SETS
    array = value.of(batch, where=where) if value.columns else constant(value, n, where)
    exactly = value.column_of(batch, where=where)
    exactly = array if exactly is None else exactly
    valid: Array = pc.is_valid(array).to_numpy(zero_copy_only=False)
    values, whole = np.zeros(n), None
    if (ordered := in_order(array if pa.types.is_decimal(exactly.type) else exactly, function)) is not None:
        whole, told = ordered
        return Measure(value.text, valid, whole.astype(np.float64), whole), told
    if pa.types.is_integer(array.type):
        whole = pc.fill_null(array, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        values = whole.astype(np.float64)
    elif pa.types.is_floating(array.type):
        values = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False)
    bounded = bounded and n > 0
    low, high = bounds_of(value.bound(batch.schema, where=where), batch) if bounded else (-np.inf, np.inf)
    if not coded:
        return Measure(value.text, valid, values, whole, low=low, high=high), None
    table = KeyTable(columns.hasher)
    encoded = table.encode(exactly, where=f"{where}, '{value.text}'")
    labels = table.decode(np.arange(table.known))
    return Measure(value.text, valid, values, whole, encoded.codes, encoded.hashes, low, high), labels


def constant(value: Value, n: int, where: str) -> pa.Array:
    """An expression without columns, such as sum(1): as often as there are tuples."""
    one = value.of(pa.RecordBatch.from_arrays([pa.nulls(1)], names=["_"]), where=where)
    return pa.repeat(one[0], n)


def interval_of(ts: Array, between: tuple[int | None, int | None], window: int | None) -> tuple[tuple[int, int], float]:
    """The ordinals that the time range and the window leave, and the share of the window that there is data for."""
    begin, end = between
    first = 0 if begin is None else int(np.searchsorted(ts, begin, side="left"))
    last = ts.shape[0] if end is None else int(np.searchsorted(ts, end, side="right"))
    if window is None or last == 0:
        return (first, max(first, last)), 1.0
    now = int(ts[last - 1])
    first = max(first, int(np.searchsorted(ts, now - window, side="left")))
    return (first, max(first, last)), min(1.0, (now - int(ts[0])) / window) if window else 1.0


def grouped(by: Sequence[Value], columns: Columns, where: str) -> tuple[Array, int, dict[str, pa.Array]]:
    """Groups numbered by first appearance; null is a value like others."""
    n = len(columns)
    if not by or n == 0:
        empty = {value.text: pa.nulls(0) for value in by}
        return np.zeros(n, np.int32), 0 if by else 1, empty
    arrays = [value.key_of(columns.batch, where=where) if value.columns else constant(value, n, where) for value in by]
    key, first = row_codes(arrays, n)
    rows = pa.array(first)
    named = {value.text: array.take(rows) for value, array in zip(by, arrays, strict=True)}
    return key.astype(np.int32), int(first.shape[0]), named


def _with_null(codes: Array, values: pa.Array) -> tuple[Array, pa.Array]:
    """Null as one more value, the last."""
    null = codes < 0
    if not null.any():
        return codes, values
    return np.where(null, len(values), codes).astype(np.int32), pa.concat_arrays([values, pa.nulls(1, values.type)])
