"""Aggregates of a scan: what a task adds up of its partition, and what the driver makes of many such sums.

Partial sums add up over partitions; under weighted each counts 1 / the probability that its partition was drawn
(Horvitz, Thompson 1952), with the variance that goes with partitions drawn independently given the threshold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from nile.aggregates.catalogue import CATALOGUE, kept_in
from nile.execution.values import column_of
from nile.sql.plan import AggregateItem, Group
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa, pc

__all__ = ["FUNCTIONS", "Totals", "added", "partial"]

Array = np.ndarray[Any, Any]

_KEPT = {"count": ("count", "n"), "total": ("sum", "s"), "low": ("min", "m"), "high": ("max", "m")}
"""How Arrow makes a part of aggregate k, and what the column begins with."""
FUNCTIONS = kept_in(*_KEPT)


def partial(group: Group, batch: pa.RecordBatch) -> pa.Table:
    """What some rows add to every group.

    Columns: by0, ...; rows; and of aggregate k, as its function needs them, n{k} (values that are not null), s{k}
    (their sum), m{k} (the least or largest).
    """
    columns: dict[str, pa.Array] = {f"by{k}": column_of(item.node, batch) for k, item in enumerate(group.by)}
    keys = list(columns)
    columns["one"] = pa.array(np.ones(batch.num_rows, np.int64))
    asked: list[tuple[str, str, str]] = [("one", "sum", "rows")]
    for k, each in enumerate(group.aggregates):
        if each.argument is None:
            continue
        values = column_of(each.argument, batch)
        columns[f"of{k}"] = _in_order(values) if _is_extreme_of_doubles(each) else values
        asked += [(f"of{k}", _KEPT[part][0], f"{_KEPT[part][1]}{k}") for part in CATALOGUE[each.function].parts]
    return _grouped(pa.table(columns), keys, asked)


def _is_extreme_of_doubles(each: AggregateItem) -> bool:
    return each.function in ("min", "max") and pa.types.is_floating(each.field.type)


def _in_order(values: pa.Array) -> pa.Array:
    """Doubles as int64 of the same order, NaN above all and -0.0 as 0.0: Arrow's min and max pass over NaN."""
    null = pc.is_null(values).to_numpy(zero_copy_only=False)
    doubles = pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False) + 0.0
    bits = np.where(np.isnan(doubles), np.nan, doubles).view(np.int64)
    return pa.array(_flipped(bits), mask=null)


def _from_order(keys: pa.Array) -> pa.Array:
    null = pc.is_null(keys).to_numpy(zero_copy_only=False)
    whole = keys.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(_flipped(whole).view(np.float64), mask=null)


def _flipped(bits: Array) -> Array:
    """The bits of doubles to int64 of their order, and back: its own inverse."""
    return np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)


def added(group: Group, partials: Iterable[pa.Table]) -> pa.Table | None:
    """Partial sums of one partition as one; None where there are none."""
    tables = list(partials)
    if not tables:
        return None
    whole = pa.concat_tables(tables)
    keys = [name for name in whole.schema.names if name.startswith("by")]
    asked = [(name, _adding(group, name), name) for name in whole.schema.names if name not in keys]
    return _grouped(whole, keys, asked)


def _adding(group: Group, name: str) -> str:
    return group.aggregates[int(name[1:])].function if name[0] == "m" else "sum"


def _grouped(table: pa.Table, keys: Sequence[str], asked: Sequence[tuple[str, str, str]]) -> pa.Table:
    made = table.group_by(list(keys), use_threads=False).aggregate(
        [(column, function) for column, function, _ in asked]
    )
    columns = {key: made.column(key) for key in keys}
    columns |= {name: made.column(f"{column}_{function}") for column, function, name in asked}
    return pa.table(columns)


class Totals:
    """The groups so far.  partials: (place, sums) of partitions; weights: float64 [places], all 1 for what is exact."""

    def __init__(self, group: Group, partials: Sequence[tuple[int, pa.RecordBatch]], weights: Array) -> None:
        self.group = group
        self._keys = [f"by{k}" for k in range(len(group.by))]
        tables = [pa.Table.from_batches([batch]) for _, batch in partials]
        self._table = pa.concat_tables(tables) if tables else None
        places = [np.full(batch.num_rows, place) for place, batch in partials]
        self._weight = weights[np.concatenate(places)] if places else np.zeros(0)
        self._exact = bool((weights == 1.0).all())
        if self._table is not None and self._keys:
            ids = pa.array(np.arange(self._table.num_rows))
            seen = self._table.append_column("id", ids).group_by(self._keys, use_threads=False)
            made = seen.aggregate([("id", "list"), ("id", "min")]).sort_by("id_min")
            self._by = [made.column(key) for key in self._keys]
            lists = made.column("id_list").combine_chunks()
            self.groups = len(lists)
            self._of = np.empty(self._table.num_rows, np.int64)
            self._of[lists.flatten().to_numpy()] = np.repeat(np.arange(self.groups), lists.value_lengths().to_numpy())
        else:
            self._by = []
            self.groups = 0 if self._keys else 1
            self._of = np.zeros(len(self._weight), np.int64)

    def row_batch(self) -> pa.RecordBatch:
        """One row per group, in the group's fields."""
        arrays = []
        for k, field in enumerate(self.group.fields):
            if k < len(self.group.by):
                column = self._by[k].combine_chunks() if self._by else pa.array([], field.type)
                column = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
                arrays.append(column if column.type == field.type else column.cast(field.type))
                continue
            at = k - len(self.group.by)
            arrays.append(self._column(self.group.aggregates[at], at, field.type))
        return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in self.group.fields])

    def estimates(self, confidence: float) -> dict[str, list[Estimate]]:
        """What counts, sums and averages are worth, by column, one per group.

        Of counts what was found is certain; intervals of weighted sums are normal and not certified.
        """
        made = {}
        for k, each in enumerate(self.group.aggregates):
            if each.function in ("min", "max"):
                continue
            value, reach = self._value(each, k), self._reach(each, k, confidence)
            made[each.name] = [
                Estimate(float(v), float(v - r), float(v + r), confidence if r > 0.0 else 0.0, False)
                for v, r in zip(np.nan_to_num(value), np.nan_to_num(reach), strict=True)
            ]
        return made

    def _amounts(self, name: str) -> Array:
        if self._table is None:
            return np.zeros(0)
        column = pc.fill_null(self._table.column(name).cast(pa.float64(), safe=False), 0.0)
        amounts: Array = column.to_numpy()
        return amounts

    def _sum(self, amounts: Array) -> Array:
        return np.bincount(self._of, self._weight * amounts, self.groups)

    def _value(self, each: AggregateItem, k: int) -> Array:
        if each.function == "count":
            return self._sum(self._amounts("rows" if each.argument is None else f"n{k}"))
        if each.function == "sum":
            return self._sum(self._amounts(f"s{k}"))
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio: Array = self._sum(self._amounts(f"s{k}")) / self._sum(self._amounts(f"n{k}"))
        return ratio

    def _reach(self, each: AggregateItem, k: int, confidence: float) -> Array:
        """Half the interval; of a ratio by its linear part (Cochran 1977, section 6.3)."""
        if self._exact:
            return np.zeros(self.groups)
        if each.function == "avg":
            mean, number = self._value(each, k), self._sum(self._amounts(f"n{k}"))
            amounts = self._amounts(f"s{k}") - mean[self._of] * self._amounts(f"n{k}")
        else:
            name = {"count": "rows" if each.argument is None else f"n{k}", "sum": f"s{k}"}[each.function]
            amounts, number = self._amounts(name), np.ones(self.groups)
        variance = np.bincount(self._of, amounts**2 * self._weight * (self._weight - 1.0), self.groups)
        with np.errstate(invalid="ignore", divide="ignore"):
            reach: Array = NormalDist().inv_cdf(0.5 + confidence / 2.0) * np.sqrt(variance) / number
        return reach

    def _column(self, each: AggregateItem, k: int, kind: pa.DataType) -> pa.Array:
        if self._table is None:
            return pa.array([0] * self.groups, kind) if each.function == "count" else pa.nulls(self.groups, kind)
        if each.function in ("min", "max") or (each.function == "sum" and self._exact):
            name, function = (f"s{k}", "sum") if each.function == "sum" else (f"m{k}", each.function)
            table = pa.table({"of": self._table.column(name), "group": self._of})
            found = table.group_by("group", use_threads=False).aggregate([("of", function)]).sort_by("group")
            column = found.column(f"of_{function}").combine_chunks()
            column = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
            if _is_extreme_of_doubles(each):
                column = _from_order(column)
            return column if column.type == kind else column.cast(kind, safe=False)
        value = self._value(each, k)
        if pa.types.is_integer(kind):
            return pa.array(np.rint(value).astype(np.int64)).cast(kind)
        return pa.array(value, mask=self._sum(self._amounts(f"n{k}")) == 0).cast(kind, safe=False)
