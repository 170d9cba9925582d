"""Validation of a plan, before the first tuple."""

from __future__ import annotations

import difflib
from typing import Any

from nile.aggregates.catalogue import CATALOGUE
from nile.exact.pipeline.graph import joined_by
from nile.exact.plan.algebra import (
    COLLECTED,
    RUNNING,
    Aggregate,
    GraphJoin,
    Group,
    Hop,
    Intersect,
    Join,
    Minus,
    OnClose,
    Opened,
    Outer,
    Plan,
    Project,
    Rows,
    Sample,
    Scan,
    Select,
    Stored,
    Union,
    Whole,
    Windowed,
    walk,
)
from nile.exact.state.arrow import pa
from nile.exact.state.types import added, common, comparable, numeric, ordered
from nile.summaries.errors import ConfigError, KeyTypeError, UnknownColumn

__all__ = ["check"]


def check(plan: Plan) -> None:
    """Raise what the plan would fail with later: ConfigError, KeyTypeError, UnknownColumn."""
    positions: dict[int, str] = {}
    for node in walk(plan):
        if isinstance(node, Group):
            _group(node)  # before its schema is asked for, which a function that is none has not
        _columns(node)
        match node:
            case Scan():
                if node.position in positions:
                    raise ConfigError(
                        f"stream {node.name!r}: needed a position of its own, which orders tuples of one instant; got "
                        f"{node.position}, which is {positions[node.position]!r}'s; number the streams from 0"
                    )
                positions[node.position] = node.name
                if isinstance(node.window, Rows):
                    _comparable(f"window of {node.name!r}", node.schema, node.window.by)
                    if node.window.by:
                        _comparable(f"window of {node.name!r}", node.schema, node.schema.names)
            case Windowed():
                if node.position in positions:
                    raise ConfigError(
                        f"window: needed a position of its own; got {node.position} twice; number them from 0"
                    )
                positions[node.position] = "a query"
            case Join() | Outer():
                _join(node)
            case GraphJoin():
                _graph(node)
            case Union() | Intersect() | Minus():
                _set_operation(node)
            case _:
                pass
        if isinstance(node, Whole):
            _comparable("partition", node.input.schema, node.input.schema.names)
            _comparable("partition", node.kinds, node.kinds.names)
        if isinstance(node, Opened):
            _comparable("partition", node.kinds, node.kinds.names)
        elif not isinstance(node, Scan | Stored | Select | Project | Group | Hop | OnClose | Windowed | Sample):
            _comparable(type(node).__name__.lower(), node.schema, node.schema.names)


def _columns(node: Plan) -> None:
    """Some columns, each name once."""
    names = node.schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    where = f"{type(node).__name__.lower()} {getattr(node, 'name', '')}".strip()
    if twice:
        raise ConfigError(f"{where}: needed columns of different names; got {', '.join(twice)} twice; rename one side")
    for field in node.schema if isinstance(node, Scan | Stored) else ():
        types = pa.types
        if types.is_string_view(field.type) or types.is_binary_view(field.type) or types.is_union(field.type):
            raise KeyTypeError(
                f"{where}: needed a type whose rows can be taken apart; got {field.name!r} of {field.type}; cast it to "
                "string or binary, or leave it out"
            )
    if not names:
        raise ConfigError(f"{where}: needed one column or more, which carry the number of rows; got none; keep one")


def _known(where: str, schema: Any, name: str) -> Any:
    if name not in schema.names:
        near = difflib.get_close_matches(name, schema.names, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(schema.names)}"
        raise UnknownColumn(f"{where}: needed a column of its input; got {name!r}; {hint}")
    return schema.field(name).type


def _comparable(where: str, schema: Any, names: Any) -> None:
    for name in names:
        kind = _known(where, schema, name)
        if not comparable(kind):
            raise KeyTypeError(
                f"{where}: needed columns that can be told equal; got {name!r} of type {kind}; take it apart or leave "
                "it out in a projection below"
            )


def _pair(where: str, left: Any, right: Any) -> None:
    if common(left, right) is None:
        raise KeyTypeError(f"{where}: needed types that compare; got {left} and {right}; cast one side")


def _join(node: Join | Outer) -> None:
    for left, right in node.on:
        where = f"join on {left} = {right}"
        _pair(where, _known(where, node.left.schema, left), _known(where, node.right.schema, right))
    if isinstance(node, Outer):
        twice = sorted(set(node.left.schema.names) & set(node.right.schema.names))
        if twice:
            raise ConfigError(
                f"{node.kind} join: needed columns of different names; got {', '.join(twice)} twice; rename one side"
            )


def _set_operation(node: Union | Intersect | Minus) -> None:
    left, right = node.left.schema, node.right.schema
    where = type(node).__name__.lower()
    if len(left) != len(right):
        raise ConfigError(
            f"{where}: needed as many columns on both sides; got {len(left)} and {len(right)}; project one side"
        )
    for a, b in zip(left, right, strict=True):
        if a.type != b.type:
            raise KeyTypeError(
                f"{where}: needed columns of one type in one place; got {a.name} of {a.type} and {b.name} of {b.type}; "
                "cast one side"
            )


def _group(node: Group) -> None:
    schema = node.input.schema
    _comparable("group by", schema, node.by)
    for each in node.aggregates:
        _aggregate(schema, each)


def _aggregate(schema: Any, each: Aggregate) -> None:
    where = f"aggregate {each.name!r}"
    if each.function not in (*RUNNING, *COLLECTED):
        near = difflib.get_close_matches(str(each.function), RUNNING, 1)
        raise ConfigError(
            f"{where}: needed one of {', '.join(RUNNING)}; got {each.function!r}; "
            + (f"did you mean {near[0]!r}?" if near else "take one of these")
        )
    if each.column is None:
        if each.function != "count":
            raise ConfigError(f"{where}: needed a column; got none for {each.function}; only count takes every row")
        return
    kind = _known(where, schema, each.column)
    aggregate = CATALOGUE[each.function]
    if aggregate.argument == "share" and not (each.share is not None and 0.0 <= each.share <= 1.0):
        raise ConfigError(f"{where}: needed a share from 0 to 1; got {each.share!r}; 0.5 is the median")
    fits = added if aggregate.is_quantile else numeric
    if {"any": True, "ordered": ordered(kind), "number": fits(kind)}[aggregate.takes] is False:
        raise KeyTypeError(
            f"{where}: needed a type with a {each.function}; got {each.column!r} of type {kind}; cast it in a "
            "projection below"
        )


def _graph(node: GraphJoin) -> None:
    n = len(node.inputs)
    where = f"window join of {n} streams"
    if n < 2:
        raise ConfigError(f"{where}: needed two inputs or more; got {n}; scan it alone")
    for each in node.inputs:
        for part in walk(each):
            if not isinstance(part, Scan | Select | Project):
                raise ConfigError(
                    f"{where}: needed streams under selections and projections; got {type(part).__name__}; window the "
                    "streams themselves and join the results"
                )
    for i, j, w in node.constraints:
        if not (0 <= i < n and 0 <= j < n) or i == j:
            raise ConfigError(f"{where}: needed a window between two of its inputs; got ({i}, {j}); number them from 0")
        if w <= 0:
            raise ConfigError(f"{where}: needed a window above 0 ns between {i} and {j}; got {w}; write '1 hour'")
    reached, ahead = set(), [0]
    while ahead:
        at = ahead.pop()
        if at not in reached:
            reached.add(at)
            ahead += [b if a == at else a for a, b, _ in node.constraints if at in (a, b)]
    if len(reached) < n:
        apart = sorted(set(range(n)) - reached)
        raise ConfigError(f"{where}: needed windows that connect all inputs; got none to {apart}; name one more window")
    if node.directed:
        _path(where, node)
    joined_by(node)
    if node.on is not None:
        if len(node.on) != n:
            raise ConfigError(f"{where}: needed one key column of each input; got {len(node.on)}; name {n}")
        kinds = [_known(where, each.schema, name) for each, name in zip(node.inputs, node.on, strict=True)]
        for kind in kinds[1:]:
            _pair(where, kinds[0], kind)


def _path(where: str, node: GraphJoin) -> None:
    pairs = [(i, j) for i, j, _ in node.constraints]
    starts, ends = [i for i, _ in pairs], [j for _, j in pairs]
    for i, j in pairs:
        if (j, i) in pairs:
            raise ConfigError(f"{where}: needed one direction; got {i} before {j} and {j} before {i}; drop one of them")
    n = len(node.inputs)
    if len(pairs) != n - 1 or len(set(starts)) != n - 1 or len(set(ends)) != n - 1:
        raise ConfigError(f"{where}: needed a path, each input after one other; got {pairs}; name a window per step")
