"""The snapshot query at an instant, by its definition over lists of rows: nothing is kept from instant to instant."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from statistics import median
from typing import Any

from nile.exact.plan.algebra import (
    Distinct,
    GraphJoin,
    Group,
    Intersect,
    Join,
    Minus,
    Plan,
    Project,
    Range,
    Rows,
    Scan,
    Select,
    Stored,
    Union,
)
from nile.exact.state.arrow import pa

__all__ = ["instants", "snapshot"]

Row = tuple[Any, ...]
Tuples = dict[str, list[tuple[int, Row]]]


def canon(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def key(row: Row) -> Row:
    return tuple(canon(value) for value in row)


def batch(rows: list[Row], schema: Any) -> Any:
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def rows_of(table: Any) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


_MEMO: dict[tuple[Any, str], Any] = {}
"""What tests and projections said of single rows: they depend on nothing else."""


def forget() -> None:
    """Forget what callables of another case said."""
    _MEMO.clear()


def each_row(rows: list[Row], schema: Any, function: Any, read: Any) -> list[Any]:
    """function of each row, asked once for rows that look the same."""
    names = [(function, repr(row)) for row in rows]
    new = dict(zip(names, rows, strict=True))
    new = {name: row for name, row in new.items() if name not in _MEMO}
    if new:
        _MEMO.update(zip(new, read(function(batch(list(new.values()), schema))), strict=True))
    return [_MEMO[name] for name in names]


def tested(rows: list[Row], schema: Any, test: Any) -> list[Row]:
    if test is None:
        return rows
    yes = each_row(rows, schema, test, lambda found: found.to_pylist())
    return [row for row, keep in zip(rows, yes, strict=True) if keep]


def made(rows: list[Row], plan: Project) -> list[Row]:
    return each_row(rows, plan.input.schema, plan.make, rows_of)


def snapshot(plan: Plan, tuples: Tuples, now: int) -> list[Row]:
    """The rows of the plan at the instant `now`; tuples: of each stream all (ts, row), in order."""
    match plan:
        case Scan():
            seen = [row for row in tuples[plan.name] if row[0] <= now]
            if isinstance(plan.window, Range):
                seen = [row for row in seen if row[0] + plan.window.ns >= now]
            if isinstance(plan.window, Rows):
                seen = seen[-plan.window.n :]
            return [row for _, row in seen]
        case Stored():
            return rows_of(plan.table)
        case Select():
            return tested(snapshot(plan.input, tuples, now), plan.schema, plan.test)
        case Project():
            return made(snapshot(plan.input, tuples, now), plan)
        case Join():
            left, right = snapshot(plan.left, tuples, now), snapshot(plan.right, tuples, now)
            at = [(plan.left.schema.names.index(a), plan.right.schema.names.index(b)) for a, b in plan.on]
            pairs = [
                a + b
                for a in left
                for b in right
                if all(a[i] is not None and b[j] is not None and canon(a[i]) == canon(b[j]) for i, j in at)
            ]
            return tested(pairs, plan.schema, plan.test)
        case GraphJoin():
            return tested(graph(plan, tuples, now), plan.schema, plan.test)
        case Distinct():
            return list({key(row): row for row in snapshot(plan.input, tuples, now)}.values())
        case Union() | Intersect() | Minus():
            return bag(plan, snapshot(plan.left, tuples, now), snapshot(plan.right, tuples, now))
        case Group():
            return grouped(plan, snapshot(plan.input, tuples, now))


def timed(plan: Plan, tuples: Tuples, now: int) -> list[tuple[int, Row]]:
    """The tuples of a chain over a Scan, with their times, of all times up to `now`."""
    match plan:
        case Scan():
            return [row for row in tuples[plan.name] if row[0] <= now]
        case Select():
            below = timed(plan.input, tuples, now)
            return [each for each in below if tested([each[1]], plan.schema, plan.test)]
        case Project():
            below = timed(plan.input, tuples, now)
            return [(ts, made([row], plan)[0]) for ts, row in below]
        case _:
            raise TypeError(plan)


def graph(plan: GraphJoin, tuples: Tuples, now: int) -> list[Row]:
    out = []
    at = [each.schema.names.index(name) for each, name in zip(plan.inputs, plan.on or (), strict=plan.on is not None)]
    sides = [timed(each, tuples, now) for each in plan.inputs]
    farthest = sum(w for _, _, w in plan.constraints)
    sides = [[each for each in side if each[0] >= now - farthest] for side in sides]
    for members in product(*sides):
        if plan.on is not None:
            keys = {canon(row[i]) for (_, row), i in zip(members, at, strict=True)}
            if None in keys or len(keys) > 1:
                continue
        times = [(members[i][0], members[j][0]) for i, j, _ in plan.constraints]
        if not all(min(a, b) >= now - w for (a, b), (_, _, w) in zip(times, plan.constraints, strict=True)):
            continue
        if plan.directed and not (all(a <= b for a, b in times) or all(a >= b for a, b in times)):
            continue
        out.append(sum((row for _, row in members), ()))
    return out


def bag(plan: Union | Intersect | Minus, left: list[Row], right: list[Row]) -> list[Row]:
    first = {key(row): row for row in (*right, *left)}
    a, b = Counter(map(key, left)), Counter(map(key, right))
    out = []
    for each, row in first.items():
        l, r = a[each], b[each]  # noqa: E741
        match plan:
            case Union():
                n = l + r if plan.all else 1
            case Intersect():
                n = min(l, r) if plan.all else min(l, r, 1)
            case Minus():
                n = max(0, l - r) if plan.all else int(l > 0 and r == 0)
        out += [row] * n
    return out


def grouped(plan: Group, rows: list[Row]) -> list[Row]:
    names = plan.input.schema.names
    at = [names.index(name) for name in plan.by]
    groups: dict[Row, list[Row]] = {} if plan.by else {(): []}
    for row in rows:
        groups.setdefault(key(tuple(row[i] for i in at)), []).append(row)
    out = []
    for members in groups.values():
        head = tuple(members[0][i] for i in at) if members else ()
        out.append((*head, *(aggregate(each, names, members) for each in plan.aggregates)))
    return out


def aggregate(each: Any, names: list[str], rows: list[Row]) -> Any:
    if each.column is None:
        return len(rows)
    values = [row[names.index(each.column)] for row in rows]
    values = [value for value in values if value is not None]
    if each.function == "count":
        return len(values)
    if not values:
        return None
    order = sorted(values, key=lambda v: (isinstance(v, float) and math.isnan(v), v))
    match each.function:
        case "min":
            return order[0]
        case "max":
            return order[-1]
        case "median":
            if isinstance(values[0], int | float):
                if math.isnan(order[len(order) // 2]):
                    return math.nan
                return float(median(order))
            low, high = order[(len(order) - 1) // 2], order[len(order) // 2]
            return low + (high - low) / 2
        case "sum" | "avg":
            if all(isinstance(value, int) for value in values):
                total: Any = sum(values)
            elif any(math.isnan(v) for v in values) or {math.inf, -math.inf} <= set(values):
                total = math.nan
            elif infinite := {math.inf, -math.inf} & set(values):
                total = infinite.pop()
            else:
                total = math.fsum(values)
            return total if each.function == "sum" else total / len(values)
        case _:
            raise ValueError(each.function)


def instants(plan: Plan, tuples: Tuples) -> list[int]:
    """Every time at which the snapshot may change: arrivals, and the first ns after a window has passed."""
    times = set()
    windows: dict[str, set[int]] = {}
    match plan:
        case GraphJoin():
            for each in plan.inputs:
                at = each
                while not isinstance(at, Scan):
                    at = at.input  # type: ignore[union-attr]
                windows.setdefault(at.name, set()).update(w for _, _, w in plan.constraints)
        case Scan():
            windows[plan.name] = {plan.window.ns} if isinstance(plan.window, Range) else set()
        case Join() | Union() | Intersect() | Minus():
            times |= {*instants(plan.left, tuples), *instants(plan.right, tuples)}
        case Stored():
            pass
        case _:
            times |= set(instants(plan.input, tuples))
    for name, lengths in windows.items():
        for ts, _ in tuples[name]:
            times |= {ts, *(ts + w + 1 for w in lengths)}
    return sorted(times)
