"""The rules, in order: a tuple of pure functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nile.base.durations import MAX_DURATION
from nile.expressions.tree import columns_of
from nile.sql.catalog import Catalog
from nile.sql.plan import Constraint, Join, Plan, Query, Stream, map_inputs, walk
from nile.sql.rewriting.pruning import prune
from nile.sql.rewriting.pushing import merge_projections, push_selections

__all__ = ["REWRITES", "rewrite"]

_MOST_ROUNDS = 8

Rewrite = Callable[[Query, Catalog], Query]


def rewrite(query: Query, catalog: Catalog) -> Query:
    """The query after all REWRITES, in order, until they change nothing.  Pure."""
    for _ in range(_MOST_ROUNDS):
        before = query
        for step in REWRITES:
            query = step(query, catalog)
        if query == before:
            break
    return query


def push_down(query: Query, _: Catalog) -> Query:
    """Selections to the streams that they are about, before their windows; the rest to the joins."""
    return replace(query, plan=push_selections(query.plan))


def merge(query: Query, _: Catalog) -> Query:
    """Projections of projections into one."""
    return replace(query, plan=merge_projections(query.plan))


def prune_columns(query: Query, catalog: Catalog) -> Query:
    """Streams read only the columns that are needed, a preference's among them."""
    terms = () if query.preference is None else query.preference.terms
    static = {} if terms else {entry.name: set(entry.static) for entry in catalog.entries.values() if entry.static}
    used = [node for term in terms for node in (*term.parts, term.factor) if node is not None]
    parts = {name for node in used for name in columns_of(node)}
    return replace(query, plan=prune(query.plan, parts | {term.column for term in terms}, static))


def complete_windows(query: Query, _: Catalog) -> Query:
    """Every two streams of a join with pairwise windows get one, along the shortest path of those given.

    Source: window joins (TR 02-010), section 5.2: a graph of windows that is connected is made complete.
    """
    return replace(query, plan=_completed(query.plan))


def _completed(plan: Plan) -> Plan:
    plan = map_inputs(plan, _completed)
    if not isinstance(plan, Join) or not plan.constraints:
        return plan
    given = plan.constraints[: plan.given]
    count = len(plan.inputs)
    far: list[list[int | None]] = [[None if a != b else 0 for b in range(count)] for a in range(count)]
    for each in given:
        far[each.left][each.right] = each.window
        if not plan.directed:
            far[each.right][each.left] = each.window
    for middle in range(count):
        for a in range(count):
            for b in range(count):
                first, second, now = far[a][middle], far[middle][b], far[a][b]
                if first is not None and second is not None and (now is None or first + second < now):
                    far[a][b] = min(first + second, MAX_DURATION)
    known = {frozenset((each.left, each.right)) for each in given}
    added = []
    for a in range(count):
        for b in range(count):
            window = far[a][b]
            if window is not None and a != b and frozenset((a, b)) not in known:
                known.add(frozenset((a, b)))
                added.append(Constraint(a, b, window))
    return replace(plan, constraints=(*given, *added))


def pick_summaries(query: Query, catalog: Catalog) -> Query:
    """For each stream of a query with a preference the summary that serves it, as (alias, summary).

    It is on a column that the preference names, else one that is joined, else one that is selected by.
    """
    if query.preference is None or not catalog.summaries:
        return query
    nodes = walk(query.plan)
    wanted = [term.column for term in query.preference.terms]
    wanted += [name for join in nodes if isinstance(join, Join) for pair in join.equal for name in pair]
    picked = []
    for stream in (node for node in nodes if isinstance(node, Stream)):
        columns = [*wanted, *(columns_of(stream.where) if stream.where is not None else ())]
        for column in columns:
            names = [
                summary.name
                for summary in catalog.summaries.values()
                if summary.stream == stream.name and f"{stream.alias}.{summary.column}" == column
            ]
            if names:
                picked.append((stream.alias, names[0]))
                break
    return replace(query, summaries=tuple(picked))


REWRITES: tuple[Rewrite, ...] = (merge, push_down, prune_columns, complete_windows, pick_summaries)
