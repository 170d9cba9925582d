"""A query as canonical Nile SQL: parsed again, it gives the same plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from nile.expressions.tree import Column, Constant, Node, columns_of, conjuncts
from nile.mining.call import Mined
from nile.sql import plan as ops
from nile.sql.expression_text import aggregate_text, budget_text, duration_text, expression_text, identifier
from nile.sql.plan import Plan, Query, Stream
from nile.sql.reading.inline_relations import Listed
from nile.sql.reading.over_reading import item_text

__all__ = ["query_text"]


def query_text(query: Query) -> str:
    """The query on one line, Nile's clauses behind SQL's."""
    writer = _Writer(query.window)
    plan, emit = _told(query)
    parts = [writer.top(plan)]
    preference = query.preference
    if preference is not None:
        terms = [writer.term(term) for term in preference.terms]
        parts.append(" ".join(["WITH PREFERENCE", preference.kind, ", ".join(terms)]).rstrip())
        if preference.fade != 1.0:
            parts.append(f"FADE FACTOR {preference.fade!r}")
    if query.window is not None:
        parts.append(f"WINDOW {duration_text(query.window)}")
    parts += writer.windows
    if query.budget is not None:
        parts.append(budget_text(*query.budget))
    if query.error is not None:
        error, confidence, otherwise = query.error
        parts.append(f"ERROR {error!r} CONFIDENCE {confidence!r} ELSE {otherwise.upper()}")
    return " ".join([*parts, *emit])


def _told(query: Query) -> tuple[Plan, list[str]]:
    """The plan without what EMIT put at its top, and that clause."""
    match query.plan:
        case ops.Every():
            return query.plan.input, [f"EMIT EVERY {duration_text(query.plan.step)}"]
        case ops.OnClose():
            return _without(query.plan.input, query.plan.end), ["EMIT ON WINDOW CLOSE"]
        case _:
            return query.plan, [] if query.emit is None else [f"EMIT {query.emit.upper()}"]


def _without(plan: Plan, name: str) -> Plan:
    """A query without the column that only says when its rows end."""
    if isinstance(plan, ops.Distinct):
        return ops.Distinct(_without(plan.input, name))
    assert isinstance(plan, ops.Project)
    return ops.Project(plan.input, tuple(item for item in plan.items if item.name != name))


@dataclass(slots=True)
class _From:
    """What is collected of a FROM: its items, the conditions on them, and how their columns are written."""

    items: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    aliases: list[str] = field(default_factory=list)

    def shown(self, name: str) -> str:
        return self.names[name]

    def text(self, node: Node) -> str:
        return expression_text(node, self.shown)


class _Writer:
    """Writes the plan of one query.  window: that of the statement, which streams do not repeat."""

    def __init__(self, window: ops.StreamWindow) -> None:
        self._window = window
        self._columns: dict[str, str] = {}
        self.windows: list[str] = []

    def term(self, term: ops.Term) -> str:
        shown = self._columns.__getitem__
        counted = ", ".join(expression_text(part, shown) for part in term.parts) or shown(term.column)
        times = f" * {shown(term.column)}" if term.by == "value" else ""
        if term.factor is not None:
            times = f" * ({expression_text(term.factor, shown)})"
        return f"COUNT({counted}){times}"

    def top(self, plan: Plan) -> str:
        """A query with ORDER BY and LIMIT, and under its join the windows of pairs."""
        if isinstance(plan, ops.ToStream):
            return f"{plan.kind.upper()} ({self.top(plan.input)})"
        outputs: Sequence[ops.Item] | None = None
        limit: ops.Limit | None = None
        keys: Sequence[ops.SortKey] = ()
        if isinstance(plan, ops.Project) and isinstance(plan.input, ops.Limit | ops.Sort):
            outputs, plan = plan.items, plan.input
        if isinstance(plan, ops.Limit):
            limit, plan = plan, plan.input
        if isinstance(plan, ops.Sort):
            keys, plan = plan.keys, plan.input
        text, order = self._query(plan, keys, None if outputs is None else len(outputs))
        if order:
            text += f" ORDER BY {', '.join(order)}"
        if limit is not None and limit.count is not None:
            text += f" LIMIT {limit.count}"
        if limit is not None and limit.offset:
            text += f" OFFSET {limit.offset}"
        return text

    def _query(
        self, plan: Plan, keys: Sequence[ops.SortKey] = (), shown: int | None = None, prefix: int = 0
    ) -> tuple[str, list[str]]:
        """The plan as a SELECT or set operation, and its ORDER BY.

        shown: how many of its columns are returned; prefix: how much of their names is an alias outside.
        """
        if isinstance(plan, ops.SetOperation):
            word = plan.kind.upper() + (" ALL" if plan.all else "")
            sides = [self.top(each) for each in (plan.left, plan.right)]
            names = {each.name: identifier(each.name) for each in plan.fields}
            return f"({sides[0]}) {word} ({sides[1]})", [_key(key, names) for key in keys]
        distinct = isinstance(plan, ops.Distinct)
        if isinstance(plan, ops.Distinct):
            plan = plan.input
        if not isinstance(plan, ops.Project):
            # Only a query's own outputs are called as the user sees them.
            plan = ops.Project(plan, tuple(ops.Item(each, Column(each.name)) for each in plan.fields))
        lists = plan.input.items if isinstance(plan.input, ops.Unnest) else ()
        below: Plan = plan.input.input if isinstance(plan.input, ops.Unnest) else plan.input
        qualify: tuple[Node, ...] = ()
        if isinstance(below, ops.Filter) and isinstance(below.input, ops.Over):
            qualify, below = conjuncts(below.condition), below.input
        overs = below.items if isinstance(below, ops.Over) else ()
        if isinstance(below, ops.Over):
            below = below.input
        having: tuple[Node, ...] = ()
        if isinstance(below, ops.Filter) and isinstance(below.input, ops.Group):
            having, below = conjuncts(below.condition), below.input
        group = below if isinstance(below, ops.Group) else None
        source = self._from(below.input if isinstance(below, ops.Group) else below)
        names = dict(source.names)
        if group is not None:
            names |= {item.name: _constant(source.text(item.node), item.node) for item in group.by}
            for each in group.aggregates:
                names[each.name] = aggregate_text(
                    each.function,
                    each.argument,
                    each.distinct,
                    each.fraction,
                    source.shown,
                    each.order,
                    each.where,
                    each.separator,
                )

        def text(node: Node) -> str:
            return expression_text(node, lambda name: names[name])

        below_overs = dict(names)
        names |= {item.name: item_text(item, lambda name: below_overs[name]) for item in overs}
        names |= {item.name: f"unnest({text(item.node)})" for item in lists}
        visible = plan.items if shown is None else plan.items[:shown]
        items = [f"{text(item.node)} AS {identifier(item.name[prefix:])}" for item in visible]
        parts = [f"SELECT {'DISTINCT ' if distinct else ''}{', '.join(items)}", f"FROM {', '.join(source.items)}"]
        if source.conditions:
            parts.append(f"WHERE {' AND '.join(source.conditions)}")
        if group is not None:
            parts += _grouped(group, names, plan, having)
        if having:
            parts.append("HAVING " + " AND ".join(_closed(text(each), each) for each in having))
        if qualify:
            parts.append("QUALIFY " + " AND ".join(_closed(text(each), each) for each in qualify))
        hidden = {item.name: _constant(text(item.node), item.node) for item in plan.items}
        hidden |= {item.name: identifier(item.name) for item in visible}
        return " ".join(parts), [_key(key, hidden) for key in keys]

    def _from(self, plan: Plan) -> _From:
        source = _From()
        above: tuple[Node, ...] = ()
        if isinstance(plan, ops.Filter) and isinstance(plan.input, ops.Join):  # an Outer is a source
            above, plan = conjuncts(plan.condition), plan.input
        if not isinstance(plan, ops.Join):
            self._source(plan, source)
            return source
        for each in plan.inputs:
            self._source(each, source)
        source.conditions += [f"{source.names[a]} = {source.names[b]}" for a, b in plan.equal]
        source.conditions += [_closed(source.text(each), each) for each in (*conjuncts(plan.condition), *above)]
        if plan.constraints:
            word = "DWINDOW" if plan.directed else "WINDOW"
            pairs = [
                f"({source.aliases[each.left]}, {source.aliases[each.right]}) = {duration_text(each.window)}"
                for each in plan.constraints[: plan.given]
            ]
            self.windows.append(f"{word} {f' AND {word} '.join(pairs)}")
        return source

    def _source(self, plan: Plan, source: _From) -> None:
        """One item of a FROM and the conditions on it."""
        above: list[Node] = []
        while isinstance(plan, ops.Filter):
            above = [*conjuncts(plan.condition), *above]
            plan = plan.input
        if isinstance(plan, ops.Outer):
            self._outer(plan, source)
            source.conditions += [_closed(source.text(each), each) for each in above]
            return
        sample = plan.input if isinstance(plan, ops.Windowed) and isinstance(plan.input, ops.Sample) else None
        if sample is not None and isinstance(plan, ops.Windowed) and isinstance(sample.input.input, Stream):
            plan = replace(sample.input.input, window=plan.window)
        hop = plan if isinstance(plan, ops.Hop) else None
        plan = plan.input if isinstance(plan, ops.Hop) else plan
        if isinstance(plan, Stream | ops.Relation):
            alias, item, inside = plan.alias, self._table(plan), plan.where
            names = {each.name: each.name[len(alias) + 1 :] for each in plan.fields}
            if isinstance(plan, Stream) and isinstance(plan.window, ops.Rows):
                inside = None
        else:
            alias, item = self._derived(plan)
            cut = len(alias) + 1 if isinstance(plan, ops.Project) else 0
            names = {each.name: each.name[cut:] for each in plan.fields}
            inside = None
        if sample is not None and isinstance(plan, Stream):
            item += _sample(sample)
        if hop is not None and isinstance(plan, Stream):
            item, names = self._hop(hop, plan), names | {name: name[len(alias) + 1 :] for name in hop.names}
        written = {name: f"{identifier(alias)}.{identifier(short)}" for name, short in names.items()}
        source.names |= written
        self._columns |= written
        source.aliases.append(identifier(alias))
        source.items.append(item)
        source.conditions += [_closed(source.text(each), each) for each in (*conjuncts(inside), *above)]

    def _outer(self, plan: ops.Outer, source: _From) -> None:
        """An outer join as one item.

        Conditions on the rows that it keeps stand in WHERE, as on those they mean the same there; others in its ON.
        """
        if plan.kind == "mark":
            self._mark(plan, source)
            return
        left, right = _From(), _From()
        self._left_side(plan.left, left)
        self._source(plan.right, right)
        names = {**left.names, **right.names}
        condition = [f"{names[a]} = {names[b]}" for a, b in plan.equal]
        condition += [
            _closed(expression_text(each, lambda name: names[name]), each) for each in conjuncts(plan.condition)
        ]
        if plan.kind in ("right", "full"):
            condition += left.conditions
        else:
            source.conditions += left.conditions
        if plan.kind == "right":
            source.conditions += right.conditions
        else:
            condition += right.conditions
        source.items.append(
            f"{left.items[0]} {plan.kind.upper()} JOIN {right.items[0]} ON {' AND '.join(condition) or 'TRUE'}"
        )
        source.names |= left.names if plan.kind in ("semi", "anti") else names
        source.aliases.append("")

    def _mark(self, plan: ops.Outer, source: _From) -> None:
        """EXISTS as a value: it is written where the column that tells it is."""
        left, right = self._from(plan.left), _From()
        self._source(plan.right, right)
        names = {**left.names, **right.names}
        inside = [f"{names[a]} = {names[b]}" for a, b in plan.equal] + right.conditions
        inside += [_closed(expression_text(each, lambda name: names[name]), each) for each in conjuncts(plan.condition)]
        where = f" WHERE {' AND '.join(inside)}" if inside else ""
        source.names |= left.names | {plan.mark: f"EXISTS (SELECT 1 FROM {right.items[0]}{where})"}
        source.items += left.items
        source.conditions += left.conditions
        source.aliases += left.aliases

    def _left_side(self, plan: Plan, source: _From) -> None:
        """The left side of an outer join: inner joins are written out before it."""
        above: tuple[Node, ...] = ()
        if isinstance(plan, ops.Filter) and isinstance(plan.input, ops.Join):
            above, plan = conjuncts(plan.condition), plan.input
        if not isinstance(plan, ops.Join):
            self._source(plan, source)
            return
        parts = _From()
        for each in plan.inputs:
            self._source(each, parts)
        source.names |= parts.names
        condition = [f"{parts.names[a]} = {parts.names[b]}" for a, b in plan.equal] + parts.conditions
        condition += [_closed(parts.text(each), each) for each in (*conjuncts(plan.condition), *above)]
        first = " CROSS JOIN ".join(parts.items[:-1])
        source.items.append(f"{first} JOIN {parts.items[-1]} ON {' AND '.join(condition) or 'TRUE'}")

    def _table(self, plan: Stream | ops.Relation) -> str:
        if isinstance(plan.name, Listed):
            columns = ", ".join(map(identifier, plan.name.columns))
            return f"{plan.name.written} AS {identifier(plan.alias)}({columns})"
        parts = [plan.name if isinstance(plan.name, Mined) else identifier(plan.name)]
        if plan.alias != plan.name:
            parts.append(f"AS {identifier(plan.alias)}")
        if isinstance(plan, Stream) and (isinstance(plan.window, ops.Rows) or plan.window != self._window):
            # Under windows of pairs, and where nothing was said, a stream has none.
            parts.append(self._window_of(plan))
        return " ".join(parts)

    def _hop(self, hop: ops.Hop, stream: Stream) -> str:
        spans = [hop.size] if hop.slide == hop.size else [hop.slide, hop.size]
        given = [
            identifier(stream.name),
            identifier(stream.time),
            *(f"INTERVAL {duration_text(span)}" for span in spans),
        ]
        own = "" if stream.window == self._window else f" {self._window_of(stream)}"
        return f"{'TUMBLE' if len(spans) == 1 else 'HOP'}({', '.join(given)}) AS {identifier(stream.alias)}{own}"

    def _window_of(self, plan: Stream | ops.Windowed) -> str:
        if isinstance(plan.window, ops.Rows):
            cut = len(plan.alias) + 1 if isinstance(plan, Stream) else 0
            own = {each.name: identifier(each.name[cut:]) for each in plan.fields}
            by = f"PARTITION BY {', '.join(own[name] for name in plan.window.by)} " if plan.window.by else ""
            condition = plan.where if isinstance(plan, Stream) else None
            where = "" if condition is None else f" WHERE {expression_text(condition, lambda name: own[name])}"
            return f"[{by}ROWS {plan.window.count}{where}]"
        if isinstance(plan.window, ops.Slide):
            return f"[RANGE {duration_text(plan.window.size)} SLIDE {duration_text(plan.window.slide)}]"
        if plan.window == 0:
            return "[NOW]"
        return "[RANGE UNBOUNDED]" if plan.window is None else f"[RANGE {duration_text(plan.window)}]"

    def _derived(self, plan: Plan) -> tuple[str, str]:
        """The alias and the text of a query in FROM."""
        if not isinstance(plan, ops.Project | ops.Windowed):
            return "_t", f"({self._query(plan)[0]}) AS _t"
        alias = plan.fields[0].name.partition(".")[0] if isinstance(plan, ops.Project) else "_t"
        below = plan if isinstance(plan, ops.Windowed) else plan.input
        if isinstance(below, ops.Windowed):
            sample = below.input if isinstance(below.input, ops.Sample) else None
            stream = self.top(below.input if sample is None else sample.input)
            return alias, f"{stream} AS {identifier(alias)} {self._window_of(below)}{_sample(sample)}"
        assert isinstance(plan, ops.Project)
        if isinstance(below, ops.Limit):
            names = [item.name[len(alias) + 1 :] for item in plan.items]
            inner = [field.name for field in below.fields[: len(names)]]
            columns = "" if names == inner else f"({', '.join(map(identifier, names))})"
            return alias, f"({self.top(plan)}) AS {identifier(alias)}{columns}"
        if isinstance(below, ops.Distinct | ops.SetOperation):
            renamed = [f"{alias}.{each.name}" for each in below.fields]
            if renamed == [item.name for item in plan.items] and all(isinstance(i.node, Column) for i in plan.items):
                return alias, f"({self._query(below)[0]}) AS {identifier(alias)}"
        return alias, f"({self._query(plan, prefix=len(alias) + 1)[0]}) AS {identifier(alias)}"


def _sample(sample: ops.Sample | None) -> str:
    """SAMPLE as it is written."""
    if sample is None:
        return ""
    return f" SAMPLE ({sample.share * 100:g})" + (f" REPEATABLE ({sample.seed})" if sample.seed else "")


def _grouped(group: ops.Group, names: dict[str, str], plan: ops.Project, having: Sequence[Node]) -> list[str]:
    if group.by:
        return [f"GROUP BY {', '.join(names[item.name] for item in group.by)}"]
    used = {name for node in (*(item.node for item in plan.items), *having) for name in columns_of(node)}
    # Nothing that is returned tells that there is one group: HAVING does.
    return [] if used or having else ["HAVING TRUE"]


def _constant(text: str, node: Node) -> str:
    """A key; a whole number alone would be a position."""
    return f"CAST({text} AS BIGINT)" if isinstance(node, Constant) and node.kind == "integer" else text


def _closed(text: str, node: Node) -> str:
    """A condition as one of an AND."""
    return f"({text})" if getattr(node, "operator", "") == "OR" else text


def _key(key: ops.SortKey, names: dict[str, str]) -> str:
    text = expression_text(key.node, lambda name: names[name])
    return f"{text}{' DESC' if key.descending else ''}{'' if key.nulls_last else ' NULLS FIRST'}"
