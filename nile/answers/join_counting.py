"""Aggregates over a whole two-stream join from each tuple's matches, without making pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.aggregates.asked import Aggregate
from nile.expressions.conditions import Value
from nile.operators.aggregate.estimates import Number
from nile.operators.aggregate.exact import aggregated, whole_totals
from nile.operators.aggregate.ordered import Ordered
from nile.operators.common.partners import partners
from nile.operators.inputs.aggregating import grouped
from nile.operators.inputs.joining import Joinable, Loaded
from nile.operators.inputs.loading import Columns
from nile.sql.plan import AggregateItem, Field
from nile.streams.accounting import Accounting
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.answers.join_outputs import JoinOutputs

__all__ = ["available", "counted_numbers"]

Array = np.ndarray[Any, Any]
_PLACE = "aggregates over a join"
_WHOLE = ("count", "count_distinct")
_SAME = ("min", "max", "quantile_disc")


def available(side: Loaded, key: str) -> pa.RecordBatch:
    """The columns of one side that an answer still has: its key, and what was carried."""
    columns = {} if side.carried is None else dict(zip(side.carried.schema.names, side.carried.columns, strict=True))
    if key not in columns:
        columns[key] = pa.concat_arrays(side.told.chunks) if side.told.num_chunks else pa.nulls(0, side.told.type)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def counted_numbers(
    answer: JoinOutputs[Any], aggregates: Sequence[Aggregate], by: Sequence[Value], aliases: Sequence[str]
) -> tuple[int, Mapping[str, pa.Array], list[list[Number]], list[Ordered | None]] | None:
    """(groups, one value a group for each key, [aggregate][group], what its values are for each that has no numbers) of
    all pairs of two streams without a condition.

    An aggregate is one of the tuples of the side that has its columns, each as often as it matches.  None where an
    aggregate is of both sides at once, where groups are of a side that it is not of, and for top_k.  O(n log n).
    """
    joined = answer.joined
    if not isinstance(joined, Joinable) or any(each.function == "top_k" for each in aggregates):
        return None
    exact = joined.exact
    batches = [_named(side, alias, answer.key) for side, alias in zip(joined.streams, aliases, strict=True)]
    grouping = {name for value in by for name in value.columns}
    bases = [
        next((k for k, batch in enumerate(batches) if needed <= set(batch.schema.names)), None)
        for needed in [grouping.union(each.columns) for each in aggregates] or [grouping]
    ]
    if None in bases or (by and len(set(bases)) > 1):
        return None
    used = sorted({base for base in bases if base is not None})
    codes, ts = (exact.left_code, exact.right_code), (exact.left_ts, exact.right_ts)
    weights = {k: partners(k, codes, ts, joined.window, joined.window) for k in used}
    groups, labels = 1, dict[str, pa.Array]()
    group = {k: np.zeros(batches[k].num_rows, np.int64) for k in used}
    if by:
        (only,) = used
        kept = weights[only] > 0
        rows = batches[only].filter(pa.array(kept))
        columns = Columns("join", ts[only][kept], rows, Accounting(), joined.left.hasher)
        own, groups, labels = grouped(by, columns, _PLACE)
        group[only][kept] = own
    numbers, kinds = [], []
    for each, base in zip(aggregates, bases, strict=bool(aggregates)):
        assert base is not None
        exact_numbers, kind = _numbers(each, batches[base], group[base], groups, weights[base])
        numbers.append(exact_numbers)
        kinds.append(kind)
    return groups, labels, numbers, kinds


def _named(side: Loaded, alias: str, key: str) -> pa.RecordBatch:
    """All columns of a side as expressions call them, and one more, so that there is always one."""
    batch = available(side, key)
    names = [f"{alias}.{name}" for name in batch.schema.names]
    return pa.RecordBatch.from_arrays([*batch.columns, pa.nulls(len(side))], names=[*names, "_"])


def _numbers(
    each: Aggregate, batch: pa.RecordBatch, group: Array, groups: int, weight: Array
) -> tuple[list[Number], Ordered | None]:
    """(one exact Number a group, what values they are where they are no numbers)."""
    values, ordered = None, None
    if each.value is not None:
        values = each.value.of(batch, where=_PLACE)
        exactly = each.value.column_of(batch, where=_PLACE)
        if exactly is not None and (each.function == "count_distinct" or pa.types.is_uint64(exactly.type)):
            values = exactly
        if len(values) != batch.num_rows:
            values = pa.repeat(values[0], batch.num_rows)
    kept = weight > 0
    if each.function == "sum" and values is not None and pa.types.is_integer(values.type):
        kept &= values.is_valid().to_numpy(zero_copy_only=False)
        totals = whole_totals(values.filter(pa.array(kept)), group[kept], groups, weight[kept])
        some = np.bincount(group[kept], minlength=groups) > 0
        return [_number(int(total) if any_ else None) for total, any_ in zip(totals, some, strict=True)], None
    gives = pa.int64() if each.function in _WHOLE else pa.float64()
    if each.function in _SAME and values is not None:
        gives = values.type
    if not (pa.types.is_integer(gives) or pa.types.is_floating(gives)):
        ordered = Ordered(gives)
    item = AggregateItem(
        Field(each.name, gives), "count" if each.function == "count_distinct" else each.function, None,
        each.function == "count_distinct", None if each.argument is None else float(each.argument),
    )  # fmt: skip
    found = aggregated(item, values, group, groups, weight).to_pylist()
    return [_number(value) if ordered is None else Number(value, None) for value in found], ordered


def _number(value: Any) -> Number:
    return Number(value, None if value is None else Estimate.exact(float(value)))
