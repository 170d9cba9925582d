"""By which columns the tuples of a statement's streams can be dealt out, so that each part answers for itself.

A part answers alone if whatever meets has one value in common: a join on it, groups and partitions by it.  So each
node of a plan has ways to deal out its streams: for every stream a column, and the columns of the node that still have
the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from nile.expressions.tree import Column, Node
from nile.sql.plan import (
    Distinct,
    Every,
    Filter,
    Group,
    Hop,
    Item,
    Join,
    OnClose,
    Outer,
    Over,
    Plan,
    Project,
    Query,
    Rows,
    SetOperation,
    Stream,
    ToStream,
    Unnest,
    Windowed,
)
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa
from nile.summaries.key_types import key_family

__all__ = ["dealt_by"]


@dataclass(frozen=True, slots=True)
class _Way:
    """by: of each alias (stream, column, kind); carried: the columns of the node whose value is that of the part."""

    by: tuple[tuple[str, str, str, pa.DataType], ...]
    carried: frozenset[str]


class _Refused(Exception):
    """What cannot be dealt out."""


def dealt_by(query: Query) -> dict[str, str]:
    """Of each stream of a query, the column by whose values its tuples are dealt out.

    Raises ConfigError where no column will do, with what stands in the way.
    """
    try:
        ways = [chosen for way in _ways(query.plan) if (chosen := _chosen(way)) is not None]
    except _Refused as refused:
        raise _none(str(refused)) from None
    if not ways:
        raise _none("a stream that occurs twice, keyed by different columns")
    return min(ways, key=lambda each: sorted(each.items()))


def _none(why: str) -> ConfigError:
    return ConfigError(
        "standing query on Spark: needed a query whose parts by a key answer for themselves (selections, joins on one "
        f"key, groups that contain it); got {why}; ask it of the outputs, or push the streams into one database"
    )


def _chosen(way: _Way) -> dict[str, str] | None:
    out: dict[str, str] = {}
    for _, stream, column, _ in way.by:
        if out.setdefault(stream, column) != column:
            return None
    return out


def _ways(plan: Plan) -> list[_Way]:
    """How the streams below a node can be dealt out.  Raises _Refused."""
    match plan:
        case Stream():
            return list(_of_stream(plan))
        case Filter() | Every() | ToStream() | Hop() | OnClose() | Unnest():
            return _ways(plan.input)
        case Windowed():
            return [way for way in _ways(plan.input) if _window_holds(plan.window, way.carried)]
        case Project():
            return [_Way(way.by, _renamed(plan.items, way.carried)) for way in _ways(plan.input)]
        case Group():
            return _with(
                [_Way(way.by, _renamed(plan.by, way.carried)) for way in _ways(plan.input)],
                "groups without the key",
            )
        case Distinct():
            return _with(_ways(plan.input), "DISTINCT without the key")
        case Over():
            return _with(
                [way for way in _ways(plan.input) if all(_has(item.by, way.carried) for item in plan.items)],
                "OVER without PARTITION BY the key",
            )
        case Join():
            return _joined(plan.inputs, plan.equal)
        case Outer():
            return [
                _Way(way.by, way.carried & {field.name for field in plan.fields})
                for way in _joined((plan.left, plan.right), plan.equal, outer=plan.kind)
            ]
        case SetOperation():
            return _of_set(plan)
        case _:
            raise _Refused(
                {"Limit": "LIMIT", "Sort": "ORDER BY", "Relation": "a stored relation", "Sample": "a SAMPLE"}.get(
                    type(plan).__name__, type(plan).__name__
                )
            )


def _of_stream(plan: Stream) -> Iterator[_Way]:
    for field in plan.fields:
        column = field.name.removeprefix(f"{plan.alias}.")
        try:
            key_family(field.type, where=column)
        except Exception:
            continue  # of a type that is no key
        if _window_holds(plan.window, {field.name}):
            yield _Way(((plan.alias, plan.name, column, field.type),), frozenset({field.name}))
    if not isinstance(plan.window, Rows):  # each tuple by itself: what only selects is dealt out evenly
        yield _Way(((plan.alias, plan.name, plan.time, None),), frozenset())


def _window_holds(window: object, carried: Iterable[str]) -> bool:
    """Whether the window of a part is that part of the window: the last rows are those of all."""
    return not isinstance(window, Rows) or any(each in carried for each in window.by)


def _renamed(items: tuple[Item, ...], carried: frozenset[str]) -> frozenset[str]:
    return frozenset(item.name for item in items if isinstance(item.node, Column) and item.node.name in carried)


def _has(nodes: tuple[Node, ...], carried: frozenset[str]) -> bool:
    return any(isinstance(node, Column) and node.name in carried for node in nodes)


def _with(ways: list[_Way], otherwise: str) -> list[_Way]:
    """Those whose node still has the value."""
    kept = [way for way in ways if way.carried]
    if not kept:
        raise _Refused(otherwise)
    return kept


def _joined(inputs: tuple[Plan, ...], equal: tuple[tuple[str, str], ...], outer: str = "") -> list[_Way]:
    """Ways of the inputs that an equality links, all of them on one value."""
    out = []
    for ways in product(*(_ways(each) for each in inputs)):
        linked, waiting = set(ways[0].carried), list(ways[1:])
        while waiting:
            for way in waiting:
                if any((a in linked and b in way.carried) or (b in linked and a in way.carried) for a, b in equal):
                    linked |= way.carried
                    waiting.remove(way)
                    break
            else:
                break
        by = tuple(each for way in ways for each in way.by)
        if waiting or len({key_family(kind, where="key") for *_, kind in by if kind is not None}) > 1:
            continue
        # Nulls beside rows without a partner: then the other side's column does not have the value.
        sides = {"left": ways[:1], "right": ways[1:], "full": ()}.get(outer, ways)
        out.append(_Way(by, frozenset(name for way in sides for name in way.carried)))
    if not out:
        raise _Refused("a join whose streams have no key in common, or keys of different kinds")
    return out


def _of_set(plan: SetOperation) -> list[_Way]:
    """Both sides by the column in the same place; UNION ALL asks for none."""
    places = [{field.name: at for at, field in enumerate(side.fields)} for side in (plan.left, plan.right)]
    out = []
    for left, right in product(_ways(plan.left), _ways(plan.right)):
        both = {places[0][name] for name in left.carried} & {places[1][name] for name in right.carried}
        if both or (plan.all and plan.kind == "union"):
            names = [field.name for field in plan.fields]
            out.append(_Way(left.by + right.by, frozenset(names[at] for at in both)))
    if not out:
        raise _Refused(f"{plan.kind.upper()} of rows without the key")
    return out
