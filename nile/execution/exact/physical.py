"""From a bound plan to the algebra of `nile.exact`: expressions become callables, joins become joins of two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isnan

from nile.aggregates.catalogue import CATALOGUE
from nile.base.times import event_times
from nile.exact.pipeline.figures import Path
from nile.exact.plan import algebra
from nile.exact.plan.comparing import MIRRORED, Compared, Comparing
from nile.execution.exact.hopping import hop_rows
from nile.execution.exact.promised import Promised
from nile.execution.exact.sessions import START, Sessions, sessions_of
from nile.execution.exact.unnesting import unnested_rows
from nile.execution.key_columns import equalities, one_key
from nile.execution.over.functions import over_rows
from nile.execution.over.ordering import order_of
from nile.execution.over.reach import placed_by, ranks_of, reach_of
from nile.execution.values import all_of, maker, picks, schema_of, tester
from nile.expressions.binding import kind_of
from nile.expressions.lists.values import element_kind, is_list
from nile.expressions.tree import Between, Column, Compare, Constant, Logic, Node, columns_of
from nile.sql import plan as ops
from nile.sql.plan import Field, Plan, Stream, map_inputs
from nile.summaries.errors import NotYet
from nile.summaries.heavy import pa

__all__ = ["Compiler", "window_of", "with_selections"]

_KINDS: dict[str, Callable[[], pa.DataType]] = {
    "boolean": lambda: pa.bool_(),
    "integer": lambda: pa.int64(),
    "number": lambda: pa.float64(),
    "text": lambda: pa.string(),
    "timestamp": lambda: pa.timestamp("us"),
    "date": lambda: pa.timestamp("us"),
    "null": lambda: pa.int64(),
}

_EXTREMES = ("min", "max")
"""Aggregates that equal values do not change."""


class Compiler:
    """Makes algebra of bound plans.

    schema: columns of a leaf; table: rows of a stored relation; algorithm: of window joins; promised: of the streams.
    """

    def __init__(
        self,
        schema: Callable[[Stream | ops.Relation], pa.Schema],
        table: Callable[[ops.Relation], pa.Table],
        algorithm: str,
        promised: Promised | None = None,
    ) -> None:
        self._schema = schema
        self._table = table
        self._algorithm = algorithm
        self._promised = promised
        self.made: dict[Path, algebra.Plan] = {}

    def plan(self, node: Plan, path: Path = ()) -> algebra.Plan:
        """The algebra of a node; `made` has the topmost one of each path.

        Raises NotYet for what only a snapshot can do.
        """
        made = self._plan(node, path)
        self.made[path] = made
        return made

    def _plan(self, node: Plan, path: Path) -> algebra.Plan:
        match node:
            case Stream():
                return algebra.Scan(node.alias, self._schema(node), window_of(node.window), node.position)
            case ops.Relation() if node.changes:
                return algebra.Changing(node.alias, self._schema(node))
            case ops.Relation():
                return algebra.Stored(node.alias, self._table(node))
            case ops.Filter(ops.Over() as over):
                self.made[*path, 0] = made = self._over(over, (*path, 0), node.condition)
                return algebra.Select(made, _test(node.condition))
            case ops.Filter():
                return algebra.Select(self.plan(node.input, (*path, 0)), _test(node.condition))
            case ops.Project():
                below = self.plan(node.input, (*path, 0))
                return _projected(below, node.items, schema_of(node.fields))
            case ops.Join():
                return self._graph(node, path) if node.constraints else self._join(node, path)
            case ops.Outer():
                return self._outer(node, path)
            case ops.Distinct():
                return algebra.Distinct(self.plan(node.input, (*path, 0)))
            case ops.ToStream() | ops.Sample():
                return self._stream(node, path)
            case ops.Windowed():
                return algebra.Windowed(self._stream(node.input, (*path, 0)), window_of(node.window), node.position)
            case ops.Hop():
                below = self.plan(node.input, (*path, 0))
                return algebra.Hop(below, lambda batch: hop_rows(node, batch), schema_of(node.fields), node.closes)
            case ops.Unnest():
                below = self.plan(node.input, (*path, 0))
                return algebra.Hop(below, lambda batch: unnested_rows(node, batch), schema_of(node.fields), False)
            case ops.OnClose():
                return algebra.OnClose(self.plan(node.input, (*path, 0)), node.end, schema_of(node.fields))
            case ops.Every():
                return algebra.Every(self.plan(node.input, (*path, 0)), node.step)
            case ops.Over():
                return self._over(node, path)
            case ops.Limit():
                return self._first(node, path)
            case ops.Sort():
                keys = node.keys
                return algebra.First(self.plan(node.input, (*path, 0)), lambda batch: order_of(keys, batch), None)
            case ops.SetOperation():
                return self._set(node, path)
            case ops.Group():
                return self._group(node, path)
            case _:
                raise NotYet(
                    f"{type(node).__name__.lower()}: needed a query that returns a snapshot; got one of changes; say "
                    "emit='snapshot'"
                )

    def _set(self, node: ops.SetOperation, path: Path) -> algebra.Plan:
        left, right = self.plan(node.left, (*path, 0)), self.plan(node.right, (*path, 1))
        wanted = schema_of(node.fields)
        if right.schema.types != wanted.types:
            items = tuple(
                ops.Item(field, Column(name, kind_of(field.type)))
                for field, name in zip(node.fields, right.schema.names, strict=True)
            )
            right = algebra.Project(right, maker(items), wanted)
        match node.kind:
            case "union":
                return algebra.Union(left, right, node.all)
            case "intersect":
                return algebra.Intersect(left, right, node.all)
            case _:
                return algebra.Minus(left, right, node.all)

    def _join(self, node: ops.Join, path: Path) -> algebra.Plan:
        left = self.plan(node.inputs[0], (*path, 0))
        waiting = list(node.equal)
        for k, each in enumerate(node.inputs[1:], 1):
            right = self.plan(each, (*path, k))
            have, own = set(left.schema.names), set(right.schema.names)
            on = [pair if pair[0] in have else pair[::-1] for pair in waiting if _links(pair, have, own)]
            waiting = [pair for pair in waiting if not _links(pair, have, own)]
            first = k == 1 and self._promised is not None and on
            promises = self._promised.of(node.inputs[0], each, on) if first and self._promised is not None else ()
            left = algebra.Join(left, right, tuple((a, b) for a, b in on), promises=promises)
        if node.condition is not None:
            left = algebra.Select(left, _test(node.condition))
        return left

    def _stream(self, node: ops.ToStream | ops.Sample, path: Path) -> algebra.ToStream | algebra.Sample:
        """A stream that a relation gives, or a sample of it."""
        made: algebra.ToStream | algebra.Sample
        if isinstance(node, ops.Sample):
            below = self._stream(node.input, (*path, 0))
            assert isinstance(below, algebra.ToStream)
            made = algebra.Sample(below, node.share, node.seed)
        else:
            made = algebra.ToStream(self.plan(node.input, (*path, 0)), node.kind)
        self.made[path] = made
        return made

    def _outer(self, node: ops.Outer, path: Path) -> algebra.Plan:
        left, right = self.plan(node.left, (*path, 0)), self.plan(node.right, (*path, 1))
        test = None if node.condition is None else tester(node.condition)
        if test is None and node.kind in ("semi", "anti", "mark"):
            # Of partners only the key counts: each once, so that there is one pair at most for a row.
            fields = {field.name: field for field in node.right.fields}
            keys = [fields[name] for name in dict.fromkeys(b for _, b in node.equal)]
            if keys:
                items = tuple(ops.Item(field, _column(field)) for field in keys)
                right = algebra.Distinct(algebra.Project(right, maker(items), schema_of(keys)))
        return algebra.Outer(left, right, node.kind, node.equal, test, node.mark)

    def _over(self, node: ops.Over, path: Path, condition: Node | None = None) -> algebra.Plan:
        """Window functions.  condition: that rows must meet above them."""
        by, order = placed_by(node)
        nodes = [*by, *(key.node for key in order)]
        items = tuple(ops.Item(Field(f"key{k}", _type_of(each, node.input)), each) for k, each in enumerate(nodes))
        return algebra.Whole(
            self.plan(node.input, (*path, 0)),
            len(by),
            tuple((key.descending, key.nulls_last) for key in order),
            maker(items),
            schema_of([item.field for item in items]),
            lambda batch, part: over_rows(node, batch, part),
            schema_of(node.fields),
            reach_of(node, condition),
            ranks_of(node),
        )

    def _first(self, node: ops.Limit, path: Path) -> algebra.Plan:
        """LIMIT, of rows in order where ORDER BY is below it: kept up to date, rows come and go."""
        keys = node.input.keys if isinstance(node.input, ops.Sort) else ()
        rows, at = (node.input.input, (*path, 0, 0)) if isinstance(node.input, ops.Sort) else (node.input, (*path, 0))
        return algebra.First(self.plan(rows, at), lambda batch: order_of(keys, batch), node.count, node.offset)

    def _graph(self, node: ops.Join, path: Path) -> algebra.Plan:
        on, rest = one_key(node)
        condition = all_of(*equalities(node, rest), node.condition)
        constraints = node.constraints[: node.given] if node.directed and node.given else node.constraints
        return algebra.GraphJoin(
            tuple(self.plan(each, (*path, k)) for k, each in enumerate(node.inputs)),
            on,
            tuple((each.left, each.right, each.window) for each in constraints),
            node.directed,
            None if condition is None else tester(condition),
            self._algorithm,
        )

    def _group(self, node: ops.Group, path: Path) -> algebra.Plan:
        for each in node.aggregates:
            if each.function not in (*algebra.RUNNING, *algebra.COLLECTED):
                raise NotYet(
                    f"{each.function}: needed an aggregate that can be kept up to date under changes "
                    f"({', '.join(algebra.RUNNING)}); got {each.name!r}; say emit='snapshot'"
                )
        if (sessions := sessions_of(node)) is not None:
            return self._sessions(sessions, node, path)
        return self._grouped(node, self.plan(node.input, (*path, 0)))

    def _sessions(self, sessions: Sessions, node: ops.Group, path: Path) -> algebra.Plan:
        """Groups that are sessions: counted by when they began, and told when they end."""
        below = self.plan(sessions.below, (*path, 0, 0) if isinstance(node.input, ops.Project) else (*path, 0))
        fields = [Field(f"key{k}", _type_of(each, sessions.below)) for k, each in enumerate(sessions.by)]
        keys = tuple(ops.Item(field, each) for field, each in zip(fields, sessions.by, strict=True))
        begun = pa.schema([*below.schema, pa.field(START, pa.timestamp("us"))])
        opened = algebra.Opened(below, maker(keys), schema_of(fields), sessions.gap, begun)
        grouped = self._grouped(sessions.group, opened)

        def told(batch: pa.RecordBatch) -> pa.RecordBatch:
            ends = event_times(batch.column(batch.num_columns - 1)).ns + sessions.gap
            end = pa.array(ends // 1_000).cast(pa.timestamp("us"))
            columns = [end if at < 0 else batch.column(at) for at in sessions.outputs]
            return pa.RecordBatch.from_arrays(columns, schema=schema_of(node.fields))

        return algebra.Project(grouped, told, schema_of(node.fields))

    def _grouped(self, node: ops.Group, given: algebra.Plan) -> algebra.Plan:
        """A group over its input's algebra."""
        arguments = [each for each in node.aggregates if each.argument is not None]
        items = [replace(item, field=replace(item.field, name=f"by{k}")) for k, item in enumerate(node.by)]
        names: dict[str, str] = {}
        for k, each in enumerate(arguments):
            assert each.argument is not None
            names[each.name] = f"of{k}"
            kind = _type_of(each.argument, node.input)
            adds = pa.types.is_decimal(kind) and CATALOGUE[each.function].takes == "number"
            items.append(ops.Item(Field(f"of{k}", pa.float64() if adds else kind), each.argument))
            for at, key in enumerate(each.order):
                items.append(ops.Item(Field(f"of{k}.{at}", _type_of(key.node, node.input)), key.node))
            if each.where is not None:
                items.append(ops.Item(Field(f"of{k}.where", pa.bool_()), each.where))
        # Of count(*) alone any column tells how many rows there are.
        below = _projected(given, items, schema_of([item.field for item in items])) if items else given
        by = tuple(f"by{k}" for k in range(len(node.by)))
        below = _distinct(node, below, by, names)
        present = algebra.Expand.ROW if isinstance(below, algebra.Expand) else None
        grouped = algebra.Group(
            below,
            by,
            tuple(
                algebra.Aggregate(
                    f"out{k}",
                    each.function,
                    present if (own := names.get(each.name)) is None else own,
                    each.fraction,
                    tuple((f"{own}.{at}", key.descending, key.nulls_last) for at, key in enumerate(each.order)),
                    present if each.where is None else f"{own}.where",
                    each.separator or "",
                    each.distinct,
                )
                for k, each in enumerate(node.aggregates)
            ),
        )
        made = [*by, *(f"out{k}" for k in range(len(node.aggregates)))]
        out = tuple(
            ops.Item(field, Column(name, kind_of(field.type))) for field, name in zip(node.fields, made, strict=True)
        )
        return _projected(grouped, out, schema_of(node.fields))


def with_selections(plan: Plan) -> Plan:
    """A plan whose streams come whole, with their conditions above them: time moves on with every tuple.

    Windows of rows count what a condition leaves, so there it stays.
    """
    match plan:
        case Stream() if plan.where is not None and not isinstance(plan.window, ops.Rows):
            return ops.Filter(replace(plan, where=None), plan.where)
        case _:
            return map_inputs(plan, with_selections)


def window_of(window: ops.StreamWindow) -> algebra.Window:
    """A stream's window in the algebra."""
    match window:
        case None:
            return algebra.Unbounded()
        case ops.Rows():
            return algebra.Rows(window.count, window.by)
        case ops.Slide():
            return algebra.Slide(window.size, window.slide)
        case _:
            return algebra.Range(window)


def _test(condition: Node) -> algebra.Test:
    """A condition as a test, by numpy where it only compares columns with numbers."""
    return tester(condition) if (found := _compared(condition)) is None else Comparing(found, tester(condition))


def _compared(node: Node) -> tuple[Compared, ...] | None:
    """The comparisons with numbers that must all be true, if that is all there is."""
    match node:
        case Logic("AND", items):
            parts = [_compared(item) for item in items]
            return tuple(each for part in parts for each in part or ()) if None not in parts else None
        case Between(item, low, high):
            return _compared(Logic("AND", (Compare(">=", item, low), Compare("<=", item, high))))
        case Compare(operator, Constant() as one, Column() as other):
            return _compared(Compare(MIRRORED[operator], other, one))
        case Compare(operator, Column(name, "number", unsigned=False), Constant(int() | float() as value)):
            return None if isnan(value) else (Compared(name, operator, float(value)),)
        case Compare(operator, Column(name, "integer"), Constant(int() as value, "integer")):
            return (Compared(name, operator, value),)
        case _:
            return None


def _distinct(node: ops.Group, below: algebra.Plan, by: tuple[str, ...], names: Mapping[str, str]) -> algebra.Plan:
    """The groups' rows, each once where aggregates are of different values; beside them, where others are of all.

    by: the columns of the groups; names: of each aggregate's argument.
    """
    sets: dict[Node, list[str]] = {}
    for each in node.aggregates:
        if each.distinct and each.argument is not None and _repeats(each):
            sets.setdefault(each.argument, []).append(names[each.name])
    if not sets:
        return below
    alike = len({each.argument for each in node.aggregates}) == 1
    if alike and all(each.function in _EXTREMES or (each.distinct and _repeats(each)) for each in node.aggregates):
        return algebra.Distinct(below)
    apart = tuple(name for each in sets.values() for name in each)
    return algebra.Expand(below, tuple((*by, *each) for each in sets.values()), apart)


def _repeats(each: ops.AggregateItem) -> bool:
    """Whether it counts equal values more than once, unless told otherwise; lists leave them out by themselves."""
    return each.function not in _EXTREMES and not CATALOGUE[each.function].is_collected


def _type_of(node: Node, below: Plan) -> pa.DataType:
    """The Arrow type of an expression over a plan's rows."""
    if isinstance(node, Column):
        return next(field.type for field in below.fields if field.name == node.name)
    if is_list(node.kind):
        fine = any(field.type == pa.list_(pa.timestamp("ns")) for field in below.fields)
        inner = _KINDS[element_kind(node.kind)]()
        return pa.list_(pa.timestamp("ns") if fine and inner == pa.timestamp("us") else inner)
    return _KINDS[node.kind]()


def _projected(below: algebra.Plan, items: Sequence[ops.Item], schema: pa.Schema) -> algebra.Project:
    reads = frozenset(name for item in items for name in columns_of(item.node))
    return algebra.Project(below, maker(items), schema, reads, picks(items, below.schema))


def _links(pair: tuple[str, str], have: set[str], own: set[str]) -> bool:
    return (pair[0] in have and pair[1] in own) or (pair[1] in have and pair[0] in own)


def _column(field: Field) -> Column:
    return Column(field.name, kind_of(field.type))
