"""Aggregates of a scan: what a task adds up of its partition, and what the driver makes of many such sums.

Partial sums add up over partitions; under weighted each counts 1 / the probability that its partition was drawn
(Horvitz, Thompson 1952), with the variance that goes with partitions drawn independently given the threshold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np

from nile.aggregates.catalogue import CATALOGUE, PARTS
from nile.aggregates.linear import Linear, Units, linearised, reach_of_few
from nile.base.nearest import nearest
from nile.execution.progress.quantiles import Points, quantiles
from nile.execution.values import column_of
from nile.operators.aggregate.exact import aggregated
from nile.operators.common.rows import row_codes
from nile.sql.plan import AggregateItem, Group
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa, pc

__all__ = ["POINTS", "Totals", "added", "partial", "thinned"]

Array = np.ndarray[Any, Any]

_PREFIX = {"count": "n", "total": "s", "squares": "q", "low": "m", "high": "m", "values": "v"}
"""What the column of a part of aggregate k begins with."""
_MADE = {"count": "count", "total": "sum", "squares": "variance", "low": "min", "high": "max"}
"""How Arrow makes a part."""
_MERGED = {"add": "sum", "least": "min", "greatest": "max"}
"""How Arrow puts two together."""
POINTS = 4_096
"""Values of a group that a partition tells at most; of more it tells those at as many places evenly apart."""


def partial(group: Group, batch: pa.RecordBatch) -> pa.Table:
    """What some rows add to every group.

    Columns: by0, ...; rows; and of aggregate k, as its function needs them, n{k} (values that are not null), s{k}
    (their sum), q{k} (their squared distances from their mean, added up), m{k} (the least or largest), v{k} (all), d{k}
    (the different ones, of DISTINCT).
    """
    by = {f"by{k}": column_of(item.node, batch) for k, item in enumerate(group.by)}
    codes, first = row_codes(list(by.values()), batch.num_rows)
    columns, asked = {"one": pa.array(np.ones(batch.num_rows, np.int64))}, [("one", "sum", "rows")]
    lists: dict[str, pa.Array] = {}
    for k, each in enumerate(group.aggregates):
        if each.argument is None:
            continue
        values = column_of(each.argument, batch)
        if each.distinct:
            lists[f"d{k}"] = _different(values, codes, first.shape[0])
            continue
        columns[f"of{k}"] = _in_order(values) if _is_extreme_of_doubles(each) else values
        for part in _parts(each):
            if part == "values":
                lists[f"v{k}"] = _listed(values, codes, first.shape[0])
            else:
                asked.append((f"of{k}", _MADE[part], f"{_PREFIX[part]}{k}"))
    made = _grouped(pa.table(columns), codes, asked)
    for k, each in enumerate(group.aggregates):
        if each.argument is not None and not each.distinct and "squares" in _parts(each):
            squares = pc.multiply(made[f"q{k}"], pc.cast(made[f"n{k}"], pa.float64()))
            made[f"q{k}"] = pc.fill_null(squares, 0.0)
    keys = {name: column.take(pa.array(first)) for name, column in by.items()}
    return pa.table({**keys, **made, **lists})


def _parts(each: AggregateItem) -> tuple[str, ...]:
    """Of a quantile, how many values there are too."""
    kind = CATALOGUE[each.function]
    return ("count", *kind.parts) if kind.interval == "rank" else kind.parts


def _listed(values: pa.Array, codes: Array, groups: int) -> pa.ListArray:
    """The values of each group that are not null."""
    valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
    order = np.argsort(codes[valid], kind="stable")
    starts = np.searchsorted(codes[valid][order], np.arange(groups + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(starts), values.filter(pa.array(valid)).take(pa.array(order)))


def _different(values: pa.Array, codes: Array, groups: int) -> pa.ListArray:
    """The different values of each group that are not null, as they first come."""
    if pa.types.is_floating(values.type):  # -0.0 is 0.0, and NaN one value
        values = pa.array(values.to_numpy(zero_copy_only=False) + 0.0, values.type, mask=np.asarray(values.is_null()))
    _, first = row_codes([pa.array(codes), values], len(codes))
    return _listed(values.take(pa.array(first)), codes[first], groups)


def thinned(partial: pa.Table) -> pa.Table:
    """Lists of more than POINTS values as POINTS of them, each in the middle of equally many: off by half of these."""
    for name in [each for each in partial.schema.names if each.startswith("v")]:
        lists = partial.column(name).combine_chunks()
        if len(lists) and pc.max(lists.value_lengths()).as_py() > POINTS:
            few = []
            for one in lists:
                values = one.values
                if len(values) > POINTS:
                    places = ((np.arange(POINTS) + 0.5) * len(values) / POINTS).astype(np.int64)
                    values = values.take(pc.array_sort_indices(values).take(pa.array(places)))
                few.append(values)
            starts = np.cumsum([0, *map(len, few)]).astype(np.int32)
            thin = pa.ListArray.from_arrays(pa.array(starts), pa.concat_arrays(few))
            partial = partial.set_column(partial.schema.get_field_index(name), name, thin)
    return partial


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
    whole = pa.concat_tables(tables).combine_chunks()
    by = {f"by{k}": _chunk(whole.column(f"by{k}")) for k in range(len(group.by))}
    codes, first = row_codes(list(by.values()), whole.num_rows)
    asked = [("rows", "sum", "rows")]
    other: dict[str, pa.Array] = {}
    for k, each in enumerate(group.aggregates):
        if each.distinct:
            lists = _chunk(whole.column(f"d{k}"))
            own = np.repeat(codes, lists.value_lengths().to_numpy(zero_copy_only=False))
            other[f"d{k}"] = _different(lists.flatten(), own, first.shape[0])
            continue
        for part in () if each.argument is None else _parts(each):
            name = f"{_PREFIX[part]}{k}"
            merge = PARTS[part].merge
            if merge == "union":
                lists = _chunk(whole.column(name))
                own = np.repeat(codes, lists.value_lengths().to_numpy(zero_copy_only=False))
                other[name] = _listed(lists.flatten(), own, first.shape[0])
            elif merge == "spread":
                n, s, q = (_numbers(whole.column(f"{letter}{k}")) for letter in "nsq")
                units = Units(n, s, q)
                count, total = (np.bincount(codes, amount, first.shape[0]) for amount in (n, s))
                with np.errstate(all="ignore"):
                    off = units.from_center((total / count)[codes])
                other[name] = pa.array(np.bincount(codes, off, first.shape[0]))
            else:
                asked.append((name, _MERGED[merge], name))
    made = _grouped(whole.drop_columns(list(by) + list(other)), codes, asked)
    return pa.table({**{name: column.take(pa.array(first)) for name, column in by.items()}, **made, **other})


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    made = column.combine_chunks()
    return pa.concat_arrays(made.chunks) if isinstance(made, pa.ChunkedArray) else made


def _numbers(column: Any) -> Array:
    """As doubles; null is 0."""
    numbers: Array = pc.fill_null(nearest(column, pa.float64(), safe=False), 0.0).to_numpy(zero_copy_only=False)
    return numbers


def _grouped(table: pa.Table, codes: Array, asked: Sequence[tuple[str, str, str]]) -> dict[str, pa.Array]:
    """(column, function, name) by group, in the order of codes."""
    made = table.append_column("code", pa.array(codes)).group_by("code", use_threads=False)
    rows = made.aggregate([(column, function) for column, function, _ in asked]).sort_by("code")
    return {name: _chunk(rows.column(f"{column}_{function}")) for column, function, name in asked}


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
        """What aggregates but extremes are worth, by column, one per group.

        Of counts what was found is certain; intervals of weighted sums are normal and not certified.
        """
        made = {}
        for k, each in enumerate(self.group.aggregates):
            kind = CATALOGUE[each.function]
            if kind.interval == "one-sided" or each.distinct:
                continue
            if kind.interval == "rank":
                made[each.name] = self._quantile(each, k, confidence)[1]
                continue
            linear = self._linear(each, k)
            reach = self._reach(linear.residual, confidence)
            if each.function != "count":
                held = self._amounts(f"n{k}") > 0.0
                reach = reach_of_few(reach, linear, self._of, held, confidence)
            made[each.name] = [
                Estimate(float(v), float(v - r), float(v + r), confidence if r > 0.0 else 0.0, False)
                for v, r in zip(np.nan_to_num(linear.value), np.nan_to_num(reach), strict=True)
            ]
        return made

    def _amounts(self, name: str) -> Array:
        if self._table is None or name not in self._table.schema.names:
            return np.zeros(self._of.shape[0])
        return _numbers(self._table.column(name))

    def _sum(self, amounts: Array) -> Array:
        return np.bincount(self._of, self._weight * amounts, self.groups)

    def _linear(self, each: AggregateItem, k: int) -> Linear:
        count = self._amounts("rows" if each.argument is None else f"n{k}")
        units = Units(count, self._amounts(f"s{k}"), self._amounts(f"q{k}"))
        with np.errstate(all="ignore"):
            return linearised(CATALOGUE[each.function], units, self._of, Units.none(self.groups), self._sum)

    def _reach(self, residual: Array, confidence: float) -> Array:
        """Half the interval of the total of what partitions add; 0 where all count once."""
        with np.errstate(all="ignore"):
            variance = np.bincount(self._of, residual**2 * self._weight * (self._weight - 1.0), self.groups)
            reach: Array = NormalDist().inv_cdf(0.5 + confidence / 2.0) * np.sqrt(variance)
        return reach

    def _quantile(self, each: AggregateItem, k: int, confidence: float) -> tuple[pa.Array, list[Estimate]]:
        """(the quantile of each group, what it is worth).

        The values that a partition tells stand for all that it has, off by half of what each stands for.
        """
        if self._table is None:
            return pa.nulls(self.groups, each.field.type), [Estimate.guess(0.0)] * self.groups
        kind = CATALOGUE[each.function]
        share = kind.share if each.fraction is None else each.fraction
        assert share is not None
        lists = _chunk(self._table.column(f"v{k}"))
        length, count = lists.value_lengths().to_numpy(zero_copy_only=False), self._amounts(f"n{k}")
        unit = np.repeat(np.arange(length.shape[0]), length)
        values, group = lists.flatten(), self._of[unit]
        if self._exact and (length == count).all():
            found = aggregated(each, values, group, self.groups)
            return found, [
                Estimate(told, told, told, 0.0, False)
                for told in (float(v) if isinstance(v, int | float) else 0.0 for v in found.to_pylist())
            ]
        stands = count / np.maximum(length, 1)
        off = np.where(length < count, 0.5 * stands + 1.0, 0.0)
        with np.errstate(all="ignore"):
            slack = np.nan_to_num(self._sum(off) / self._sum(count))
        points = Points(values, group, unit, stands[unit], self._weight[unit])
        reach = None if self._exact else lambda residual: self._reach(residual, confidence)
        found, made = quantiles(kind, share, points, self.groups, slack, reach, length.shape[0], confidence)
        if self._exact:  # of what was read; what was not may be anything
            made = [replace(one, confidence=0.0, certified=False) for one in made]
        return (found if found.type == each.field.type else found.cast(each.field.type, safe=False)), made

    def _column(self, each: AggregateItem, k: int, kind: pa.DataType) -> pa.Array:
        aggregate = CATALOGUE[each.function]
        if each.distinct and self._table is not None:
            lists = _chunk(self._table.column(f"d{k}"))
            own = np.repeat(self._of, lists.value_lengths().to_numpy(zero_copy_only=False))
            found = _different(lists.flatten(), own, self.groups)
            return found.value_lengths().cast(kind)
        if self._table is None:
            return pa.array([0] * self.groups, kind) if each.function == "count" else pa.nulls(self.groups, kind)
        if aggregate.interval == "rank":
            return self._quantile(each, k, 0.95)[0]
        if aggregate.interval == "one-sided" or (each.function == "sum" and self._exact):
            part = aggregate.parts[-1]
            name, function = f"{_PREFIX[part]}{k}", _MERGED[PARTS[part].merge]
            column = _grouped(pa.table({"of": self._table.column(name)}), self._of, [("of", function, "of")])["of"]
            if _is_extreme_of_doubles(each):
                column = _from_order(column)
            return column if column.type == kind else column.cast(kind, safe=False)
        value = self._linear(each, k).value
        if pa.types.is_integer(kind):
            return pa.array(np.rint(value).astype(np.int64)).cast(kind)
        few = self._sum(self._amounts(f"n{k}")) < aggregate.least
        return pa.array(value, mask=few).cast(kind, safe=False)
