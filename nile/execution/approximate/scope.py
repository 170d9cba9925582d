"""What an approximate operator sees of a database: the query's streams, each with the query's own condition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from nile.execution.values import all_of
from nile.expressions.conditions import Condition
from nile.expressions.tree import Column, Node, columns_of
from nile.operators.inputs.joining import Loaded, load_stream
from nile.operators.inputs.loading import Columns, load_columns
from nile.sql.plan import Filter, Group, Join, Limit, Plan, Project, Sort, Stream
from nile.streams.manager import StreamManager
from nile.summaries.errors import NotYet
from nile.summaries.heavy import pa

__all__ = ["Scope", "Shape", "condition_of", "shape_of", "substituted"]


class RegisteredStreams(Protocol):
    """What is asked of a database."""

    def manager(
        self, name: str, key: str, carry: tuple[str, ...] = (), where: Condition | None = None
    ) -> StreamManager:
        """A fresh manager over a stream, with a further condition."""

    def schema(self, name: str) -> pa.Schema:
        """The columns of a stream."""

    def time_column(self, name: str) -> str:
        """Its event-time column."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A plan taken apart: what is on top of a group, the group, and the join or stream below it.

    top: ORDER BY and LIMIT, outermost first; above: selections and projections under it, outermost first, over the
    group or else over the columns of the leaves; core: the Join, or the one Stream; where: what the rows below a group
    (or of a single stream) must satisfy, over the columns of leaves; group: with arguments over those columns.
    """

    top: tuple[Sort | Limit, ...]
    above: tuple[Filter | Project, ...]
    group: Group | None
    where: Node | None
    core: Join | Stream


def shape_of(plan: Plan) -> Shape:
    """The parts of a plan that approximate operators know.  Raises NotYet for one they do not."""
    top: list[Sort | Limit] = []
    while isinstance(plan, Sort | Limit):
        top.append(plan)
        plan = plan.input
    above: list[Filter | Project] = []
    while isinstance(plan, Filter | Project):
        above.append(plan)
        plan = plan.input
    if isinstance(plan, Group):
        where, names, core = _flattened(plan.input)
        group = replace(
            plan,
            by=tuple(replace(item, node=substituted(item.node, names)) for item in plan.by),
            aggregates=tuple(
                each if each.argument is None else replace(each, argument=substituted(each.argument, names))
                for each in plan.aggregates
            ),
        )
        return Shape(tuple(top), tuple(above), group, where, core)
    if isinstance(plan, Stream | Join):
        return Shape(tuple(top), tuple(above), None, None, plan)
    raise _not_yet(plan)


def _flattened(plan: Plan) -> tuple[Node | None, dict[str, Node], Join | Stream]:
    """(condition, what each column is, core) of selections and projections over a core, in the core's columns."""
    if isinstance(plan, Stream | Join):
        return None, {}, plan
    if isinstance(plan, Filter):
        where, names, core = _flattened(plan.input)
        return all_of(where, substituted(plan.condition, names)), names, core
    if isinstance(plan, Project):
        where, names, core = _flattened(plan.input)
        return where, {item.name: substituted(item.node, names) for item in plan.items}, core
    raise _not_yet(plan)


def _not_yet(plan: Plan) -> NotYet:
    what = {"SetOperation": "UNION, INTERSECT or EXCEPT", "Distinct": "DISTINCT", "Relation": "a stored relation"}
    name = what.get(type(plan).__name__, type(plan).__name__.lower())
    return NotYet(
        f"approximate query: needed selections, window joins and aggregates of streams; got {name}, which has no "
        "approximate operator yet; leave out WITH PREFERENCE, BUDGET and ERROR for the exact answer"
    )


def substituted(node: Node, names: Mapping[str, Node]) -> Node:
    """A tree with columns replaced by what they stand for."""
    if not names:
        return node
    return _replaced(node, names)  # type: ignore[no-any-return]


def _replaced(value: Any, names: Mapping[str, Node]) -> Any:
    if isinstance(value, tuple):
        return tuple(_replaced(each, names) for each in value)
    if isinstance(value, Column):
        return names.get(value.name, value)
    if isinstance(value, Node):
        return replace(value, **{each.name: _replaced(getattr(value, each.name), names) for each in fields(value)})
    return value


def condition_of(node: Node, alias: str) -> Condition:
    """A bound condition over "alias.column" as one over the stream's own columns."""
    prefix = f"{alias}."
    own = {name: Column(name.removeprefix(prefix)) for name in columns_of(node)}
    tree = substituted(node, dict(own))
    return Condition(repr(tree), columns_of(tree), tree)


class Scope:
    """Streams by the names that a query gives them; two of the same stream and condition share one name, the first."""

    def __init__(self, keeper: RegisteredStreams, streams: tuple[Stream, ...]) -> None:
        self._keeper = keeper
        self._named: dict[str, tuple[str, Condition | None]] = {}
        self.names: dict[str, str] = {}
        for stream in streams:
            where = None if stream.where is None else condition_of(stream.where, stream.alias)
            same = [name for name, held in self._named.items() if held == (stream.name, where)]
            self.names[stream.alias] = same[0] if same else stream.alias
            self._named.setdefault(self.names[stream.alias], (stream.name, where))

    def manager(self, name: str, key: str, carry: tuple[str, ...] = ()) -> StreamManager:
        """A fresh manager over one of them."""
        stream, where = self._named[name]
        return self._keeper.manager(stream, key, carry, where)

    def schema(self, name: str) -> pa.Schema:
        """The columns of one of them."""
        return self._keeper.schema(self._named[name][0])

    def time_column(self, name: str) -> str:
        """The event-time column of one of them."""
        return self._keeper.time_column(self._named[name][0])

    def load_columns(self, name: str, columns: tuple[str, ...], *, key: str | None = None) -> Columns:
        """Several columns of one of them, in order."""
        return load_columns(self.manager(name, key or self.time_column(name), columns), columns)

    def load(self, name: str, key: str) -> Loaded:
        """One of them read to its end."""
        return load_stream(self.manager(name, key))
