"""EXPLAIN: the plan as an indented tree, one node per line, with expected and, once run, actual figures."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.base.durations import format_duration
from nile.base.explained import Explained
from nile.execution.choice import Choice
from nile.execution.exact.actual import Actual
from nile.execution.exact.relational import Path
from nile.execution.reading import own_condition
from nile.execution.statement.expected import Expected, expected
from nile.execution.statement.shapes import foreseen, taken
from nile.expressions.tree import Node
from nile.preferences.budget import Budget
from nile.sql import plan as ops
from nile.sql.expression_text import aggregate_text, expression_text, identifier
from nile.sql.plan import Plan, Query, Stream, inputs_of
from nile.sql.reading.over_reading import item_text
from nile.sql.reading.plan_json import plan_values

if TYPE_CHECKING:
    from nile.execution.approximate.run import Prepared
    from nile.execution.statement.engine import Engine

__all__ = ["explain_approximate", "explain_exact", "node_text"]

_WIDTH = 100
_DEEPEST = 40  # columns of indentation


@dataclass(frozen=True, slots=True)
class _Told:
    """A node of the plan, what was expected of it and what it did."""

    text: str
    expected: Expected | None
    sensors: tuple[int, int] | None
    actual: Actual | int | None
    inputs: tuple[_Told, ...]

    def lines(self, depth: int = 0) -> list[str]:
        """An indented tree, a node a line."""
        told = [] if self.expected is None else [str(self.expected)]
        told += [] if self.sensors is None else [f"{self.sensors[0]:,} of {self.sensors[1]:,} sensors"]
        if self.actual is not None:
            told.append(f"actual {self.actual:,}" if isinstance(self.actual, int) else str(self.actual))
        lines = _fitted(self.text, min(2 * depth, _DEEPEST), f"[{'; '.join(told)}]" if told else "")
        return lines + [line for each in self.inputs for line in each.lines(depth + 1)]

    def values(self) -> dict[str, Any]:
        """The same for JSON."""
        made: dict[str, Any] = {"node": self.text}
        if self.expected is not None:
            made["expected"] = asdict(self.expected)
        if self.sensors is not None:
            made["sensors"] = dict(zip(("read", "there"), self.sensors, strict=True))
        if self.actual is not None:
            made["actual"] = {"rows": self.actual} if isinstance(self.actual, int) else asdict(self.actual)
        return {**made, "inputs": [each.values() for each in self.inputs]}


def explain_exact(engine: Engine, query: Query, choice: Choice, run: Any) -> Explained:
    """The tree of an exact query, and why it runs as it does.  run: what happened, or None."""
    tree = _tree(engine, query.plan, (), run)
    lines = tree.lines()
    if run is not None and None in run.actual:
        lines.append(f"window of the output  [{run.actual[None]}]")
    scheduled = f", scheduling {choice.scheduling}" if choice.way == "pipeline" else ""
    lines.append(f"exact, way {choice.way}, emit {choice.emit}{scheduled}")
    lines += [f"  {reason}" for reason in choice.reasons]
    own = choice.way in ("join", "whole") and not choice.algorithm
    joins = list(foreseen(engine, query.plan)) if own else []
    if run is not None:
        joins = taken(run.shapes, query.plan, came=bool(run.actual)) if choice.way in ("join", "whole") else []
    lines += [f"  {line}" for each in joins for line in each.lines]
    values: dict[str, Any] = {"plan": tree.values(), "way": choice.way, "emit": choice.emit}
    values["reasons"] = list(choice.reasons)
    values["query"] = plan_values(query)
    if joins:
        values["joins"] = [each.values for each in joins]
    if choice.way == "pipeline":
        values["scheduling"] = choice.scheduling
    if run is not None:
        values |= {"memory": {"state": run.memory, "input": run.held, "spilled": run.spilled}, "cost": dict(run.costs)}
        values["accounting"] = _accounting(run)
        spilled = f", {run.spilled:,} spilled to files" if run.spilled else ""
        lines.append(f"memory: {run.memory:,} bytes of state, {run.held:,} of input held{spilled}")
        if run.costs:
            lines.append("cost: " + ", ".join(f"{name} {count:,}" for name, count in run.costs.items()))
        lines += _accounts(run.accounting)
    return Explained(_fitting(lines), values)


def explain_approximate(query: Query, prepared: Prepared, run: Any) -> Explained:
    """The tree of an approximate query, and its operator."""
    tree = _tree(None, query.plan, (), None)
    lines = tree.lines()
    values: dict[str, Any] = {"plan": tree.values(), "way": "approximate", "query": plan_values(query)}
    if query.preference is not None:
        values["preference"] = preference_text(query.preference)
        lines.append(preference_text(query.preference))
    if query.budget is not None:
        lines.append(f"budget: {Budget.of(*query.budget)}")
    if query.error is not None:
        lines.append(f"error {query.error[0]:g} at confidence {query.error[1]:g}, otherwise {query.error[2]}")
    operator = prepared.operator.explain().split("\n") + [f"  {rows}" for rows in prepared.stored]
    lines += operator
    values |= {"operator": operator, "budget": query.budget, "error": query.error}
    if run is None or run.answer is None:
        return Explained(_fitting(lines), values)
    budget = run.budget
    asked = Budget.of(budget.unit, budget.asked)
    lines.append(f"asked {asked}, spent {budget.spent:.6g} ({budget.fraction:.6g} of the exact)")
    figures = asdict(run.answer.figures)
    counts = ("arrivals", "admitted", "outputs", "regions", "pruned", "zones")
    told = [f"{name} {figures[name]:,}" for name in counts if name in figures]
    if told:
        lines.append("actual: " + ", ".join(told))
    lines.append(f"cost: spent {figures['spent']:,.0f}, exact cost {figures['exact_cost']:,.0f}")
    lines.append(f"coverage {run.coverage:.6g}; memory {run.memory:,} bytes")
    if strategies := getattr(run.answer, "strategy", "").splitlines():
        lines += ["strategies, by forecast; * ran:", *strategies]
        values["strategies"] = strategies
    values |= {"spent": asdict(budget), "figures": _plain(figures), "coverage": run.coverage, "memory": run.memory}
    values["accounting"] = _accounting(run)
    return Explained(_fitting(lines + _accounts(run.accounting)), values)


def _fitting(lines: list[str]) -> list[str]:
    return [part for line in lines for part in _fitted(line.lstrip(), len(line) - len(line.lstrip()))]


def _accounting(run: Any) -> dict[str, dict[str, Any]]:
    return {alias: _plain(asdict(one)) for alias, one in run.accounting.items()}


def _plain(figures: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON can hold of figures."""
    plain = ((name, each.item() if isinstance(each, np.generic) else each) for name, each in figures.items())
    return {name: each for name, each in plain if isinstance(each, bool | int | float | str | dict) or each is None}


def _accounts(accounting: Any) -> list[str]:
    return [
        f"{alias}: {one.tuples_in:,} in = {one.applied:,} applied + {one.late:,} late + {one.shed:,} shed + "
        f"{one.rejected:,} rejected"
        for alias, one in accounting.items()
    ]


def _tree(engine: Engine | None, plan: Plan, path: Path, run: Any) -> _Told:
    sensors = None
    if isinstance(plan, Stream | ops.Relation) and engine is not None and (source := engine.sensors(plan.name)):
        read, there = source.narrowed([own_condition(plan)]).counts()
        sensors = (read if isinstance(plan, Stream) else 0, there)
    actual = None if run is None else run.actual.get(path, run.counts.get(path))
    inputs = tuple(_tree(engine, each, (*path, at), run) for at, each in enumerate(inputs_of(plan)))
    return _Told(node_text(plan), None if engine is None else expected(engine, plan), sensors, actual, inputs)


def _fitted(text: str, indent: int = 0, told: str = "") -> list[str]:
    """Lines of at most `_WIDTH` columns: the text, broken where it must be, and what is told of it."""
    begin, further = " " * indent, " " * (indent + 4)
    line = f"{begin}{text}" + (f"  {told}" if told else "")
    if len(line) <= _WIDTH and "\n" not in line:
        return [line]
    lines = textwrap.wrap(text, _WIDTH, initial_indent=begin, subsequent_indent=further, break_on_hyphens=False)
    return lines + textwrap.wrap(told, _WIDTH, initial_indent=further, subsequent_indent=further)


def node_text(plan: Plan) -> str:
    """One node in words."""
    match plan:
        case Stream():
            name = plan.name if plan.name == plan.alias else f"{plan.name} as {plan.alias}"
            where = "" if plan.where is None else f", where {_shown(plan.where)}"
            return f"stream {name} by {plan.time}, {window_text(plan.window)}{where}"
        case ops.Relation():
            name = plan.name if plan.name == plan.alias else f"{plan.name} as {plan.alias}"
            where = "" if plan.where is None else f", where {_shown(plan.where)}"
            return f"stored relation {name}{where}"
        case ops.Filter():
            return f"select {_shown(plan.condition)}"
        case ops.Project():
            return "project " + ", ".join(_named(_shown(item.node), item.name) for item in plan.items)
        case ops.Join():
            return _join_text(plan)
        case ops.Outer():
            parts = [f"{a} = {b}" for a, b in plan.equal]
            parts += [] if plan.condition is None else [_shown(plan.condition)]
            return f"{plan.kind} join: " + ("; ".join(parts) or "every combination")
        case ops.Distinct():
            return "distinct"
        case ops.SetOperation():
            return plan.kind + (" all" if plan.all else "")
        case ops.Group():
            by = ", ".join(_shown(item.node) for item in plan.by)
            told = ", ".join(
                aggregate_text(
                    each.function,
                    each.argument,
                    each.distinct,
                    each.fraction,
                    _name,
                    each.order,
                    each.where,
                    each.separator,
                )
                for each in plan.aggregates
            )
            return f"group{' by ' + by if by else ''}: {told or 'no aggregate'}"
        case ops.ToStream():
            return plan.kind
        case ops.Sample():
            return f"sample of {plan.share:g}"
        case ops.Windowed():
            return f"stream of a query, {window_text(plan.window)}"
        case ops.Hop():
            told = f"windows of {format_duration(plan.size)}"
            told += "" if plan.slide == plan.size else f" every {format_duration(plan.slide)}"
            return told + f" by {_name(plan.time)}" + (", which close" if plan.closes else "")
        case ops.Unnest():
            return "unnest: " + ", ".join(_named(_shown(item.node), item.name) for item in plan.items)
        case ops.OnClose():
            return "when windows close"
        case ops.Every():
            return f"every {format_duration(plan.step)}"
        case ops.Over():
            return "over: " + ", ".join(_over_text(item) for item in plan.items)
        case ops.Sort():
            keys = [_shown(key.node) + (" desc" if key.descending else "") for key in plan.keys]
            return "order by " + ", ".join(keys)
        case ops.Limit():
            count = "all" if plan.count is None else str(plan.count)
            return f"limit {count}" + (f" after {plan.offset}" if plan.offset else "")


def _over_text(item: ops.OverItem) -> str:
    return f"{item_text(item, _name)} as {item.name}"


def _join_text(plan: ops.Join) -> str:
    parts = [f"{a} = {b}" for a, b in plan.equal]
    if plan.condition is not None:
        parts.append(_shown(plan.condition))
    names = [_leaf_name(each) for each in plan.inputs]
    given = plan.constraints[: plan.given] if plan.given else plan.constraints
    windows = [f"({names[c.left]}, {names[c.right]}) {format_duration(c.window)}" for c in given]
    followed = len(plan.constraints) - len(given)
    if windows:
        word = "dwindow " if plan.directed else "window "
        parts.append(word + " and ".join(windows) + (f", {followed} more follow" if followed else ""))
    return f"join of {len(plan.inputs)}" + (": " + "; ".join(parts) if parts else ": every combination")


def _leaf_name(plan: Plan) -> str:
    while not isinstance(plan, Stream | ops.Relation):
        below = inputs_of(plan)
        plan = below[0]
    return plan.alias


def window_text(window: ops.StreamWindow) -> str:
    """A stream's window in words."""
    if window is None:
        return "all that is kept"
    match window:
        case ops.Rows():
            by = ", ".join(_name(name) for name in window.by)
            return f"last {window.count} rows" + (f" of each {by}" if by else "")
        case ops.Slide():
            return f"window {format_duration(window.size)} every {format_duration(window.slide)}"
        case 0:
            return "now"
        case _:
            return f"window {format_duration(window)}"


def preference_text(preference: ops.Preference) -> str:
    """A preference in words."""
    counted = [", ".join(map(_shown, t.parts)) or t.column for t in preference.terms]
    told = zip(counted, preference.terms, strict=True)
    terms = ", ".join(f"count({text}){_times(text, t)}" for text, t in told)
    fade = "" if preference.fade == 1.0 else f", fade {preference.fade:g}"
    return f"preference {preference.kind}{' by ' + terms if terms else ''}{fade}"


def _times(counted: str, term: ops.Term) -> str:
    if term.factor is not None:
        return f" * ({_shown(term.factor)})"
    return f" * {counted}" if term.by == "value" else ""


def _name(column: str) -> str:
    """A column as it is called: alias.name, of an aggregate its text."""
    alias, dot, name = column.partition(".")
    if column.endswith(")") and "(" in alias:
        return column
    return f"{identifier(alias)}.{identifier(name)}" if dot else identifier(alias)


def _shown(node: Node) -> str:
    return expression_text(node, _name)


def _named(text: str, name: str) -> str:
    return text if text == identifier(name) or text.endswith(f".{identifier(name)}") else f"{text} as {name}"
