"""EXPLAIN: the plan as an indented tree, a node a line, with what was expected and, once run, what happened."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from nile.base.durations import format_duration
from nile.execution.choice import Choice, body_of
from nile.execution.exact.joining import joins_by
from nile.execution.exact.relational import Path
from nile.execution.statement.expected import expected
from nile.expressions.tree import Node
from nile.sql import plan as ops
from nile.sql.expression_text import aggregate_text, expression_text, identifier
from nile.sql.plan import Plan, Query, Stream, inputs_of
from nile.sql.reading.over_reading import item_text

if TYPE_CHECKING:
    from nile.execution.approximate.run import Prepared
    from nile.execution.statement.statements import Engine

__all__ = ["explain_approximate", "explain_exact", "node_text"]

_WIDTH = 100
_DEEPEST = 40  # columns of indentation


def explain_exact(engine: Engine, query: Query, choice: Choice, run: Any) -> str:
    """The tree of an exact query, and why it runs as it does.  run: what happened, or None."""
    lines = _tree(engine, query.plan, (), run)
    if run is not None and None in run.actual:
        lines.append(f"window of the output  [{run.actual[None]}]")
    scheduled = f", scheduling {choice.scheduling}" if choice.way == "pipeline" else ""
    lines.append(f"exact, way {choice.way}, emit {choice.emit}{scheduled}")
    lines += [f"  {reason}" for reason in choice.reasons]
    body = body_of(query.plan)
    while isinstance(body, ops.Filter | ops.Project):
        body = body.input
    if choice.way == "whole" and isinstance(body, ops.Join):
        lines.append(f"  {joins_by(body)}")
    if run is not None:
        lines.append(f"memory: {run.memory:,} bytes of state, {run.held:,} of input held")
        if run.costs:
            lines.append("cost: " + ", ".join(f"{name} {count:,}" for name, count in run.costs.items()))
        lines += _accounts(run.accounting)
    return _text(lines)


def explain_approximate(query: Query, prepared: Prepared, run: Any) -> str:
    """The tree of an approximate query, and its operator."""
    lines = _tree(None, query.plan, (), None)
    if query.preference is not None:
        lines.append(preference_text(query.preference))
    if query.budget is not None:
        lines.append(f"budget: {query.budget[1]:g} {query.budget[0]}")
    if query.error is not None:
        lines.append(f"error {query.error[0]:g} at confidence {query.error[1]:g}, otherwise {query.error[2]}")
    lines += prepared.operator.explain().split("\n")
    if run is None or run.answer is None:
        return _text(lines)
    budget = run.budget
    lines.append(f"asked {budget.asked:g} {budget.unit}, spent {budget.spent:.6g} ({budget.fraction:.6g} of the exact)")
    figures = asdict(run.answer.figures)
    counts = ("arrivals", "admitted", "outputs", "regions", "pruned", "zones")
    told = [f"{name} {figures[name]:,}" for name in counts if name in figures]
    if told:
        lines.append("actual: " + ", ".join(told))
    lines.append(f"cost: spent {figures['spent']:,.0f}, exact cost {figures['exact_cost']:,.0f}")
    lines.append(f"coverage {run.coverage:.6g}; memory {run.memory:,} bytes")
    return _text(lines + _accounts(run.accounting))


def _text(lines: list[str]) -> str:
    return "\n".join(part for line in lines for part in _fitted(line.lstrip(), len(line) - len(line.lstrip())))


def _accounts(accounting: Any) -> list[str]:
    return [
        f"{alias}: {one.tuples_in:,} in = {one.applied:,} applied + {one.late:,} late + {one.shed:,} shed + "
        f"{one.rejected:,} rejected"
        for alias, one in accounting.items()
    ]


def _tree(engine: Engine | None, plan: Plan, path: Path, run: Any) -> list[str]:
    told = []
    hoped = None if engine is None else expected(engine, plan)
    if hoped is not None:
        told.append(str(hoped))
    actual = None if run is None else run.actual.get(path)
    if actual is not None:
        told.append(str(actual))
    elif run is not None and path in run.counts:
        told.append(f"actual {run.counts[path]:,}")
    lines = _fitted(node_text(plan), min(2 * len(path), _DEEPEST), f"[{'; '.join(told)}]" if told else "")
    for at, each in enumerate(inputs_of(plan)):
        lines += _tree(engine, each, (*path, at), run)
    return lines


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
                aggregate_text(each.function, each.argument, each.distinct, each.fraction, _name)
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
    terms = ", ".join(f"count({t.column})" + (f" * {t.column}" if t.by == "value" else "") for t in preference.terms)
    fade = "" if preference.fade == 1.0 else f", fade {preference.fade:g}"
    return f"preference {preference.kind}{' by ' + terms if terms else ''}{fade}"


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
