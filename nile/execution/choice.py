"""The planner's choice for an exact query: how it runs, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nile.exact.join.form import TOLD
from nile.execution.options import Options
from nile.sql import plan as ops
from nile.sql.plan import Plan, Query, Stream, leaves_of, walk
from nile.sql.windows import is_plain
from nile.summaries.errors import ConfigError

__all__ = ["Choice", "body_of", "choose", "is_chain", "is_flat_join"]

_COMING = "; of no other form, as tuples come one after another"
Way = Literal["pass", "whole", "join", "pipeline"]


@dataclass(frozen=True, slots=True)
class Choice:
    """How an exact query runs.

    way: `pass` (batches go through, nothing is kept), `whole` (the snapshot, column by column), `join` (the window join
    over whole streams, combinations as they complete) or `pipeline` (signed changes, tuple by tuple).  emit: what comes
    out.  algorithm, strategy: of a window join, "" for its own; scheduling: of a pipeline.  reasons: for EXPLAIN, one
    line each.
    """

    way: Way
    emit: str
    algorithm: str
    strategy: str
    scheduling: str
    reasons: tuple[str, ...]


def choose(query: Query, options: Options) -> Choice:
    """The way for a query.  Raises ConfigError for options that it cannot use."""
    body = body_of(query.plan)
    nodes = list(walk(body))
    streamed = any(isinstance(each, ops.ToStream | ops.OnClose | ops.Every) for each in walk(query.plan))
    changing = any(isinstance(each, ops.Relation) and each.changes for each in nodes)
    emit, why = _emit(query, options)
    reasons = [f"emit {emit}: {why}"]
    kept = emit == "changes" and not _is_sorted(query.plan)
    if body is not query.plan and emit != "snapshot" and not kept:
        mend = "emit='snapshot', or 'changes' with a LIMIT" if emit == "append" else "emit='snapshot', or a LIMIT"
        raise ConfigError(
            f"ORDER BY, LIMIT: needed a query that returns a snapshot; got emit={emit!r}, whose rows come one after "
            f"another; say {mend}, or leave them out"
        )
    windows = {leaf.window for leaf in nodes if isinstance(leaf, Stream)}
    bounded = any(window is not None for window in windows) or any(
        isinstance(n, ops.Join) and n.constraints for n in nodes
    )
    algorithm, how = _algorithm(nodes, options)
    scheduling, when = _scheduling(windows, options)
    if scheduling != "nta" and isinstance(query.plan, ops.OnClose | ops.Every):
        raise ConfigError(f"scheduling: needed nta for EMIT EVERY and ON WINDOW CLOSE; got {scheduling}; leave it out")
    if scheduling != "nta" and changing:
        raise ConfigError(
            f"scheduling: needed nta with a changing relation, whose rows leave unannounced; got "
            f"{scheduling}; leave it out"
        )
    named = options.scheduling is not None
    joins = options.algorithm is not None or options.windows is not None
    if joins and not any(isinstance(node, ops.Join) for node in nodes):
        raise ConfigError(
            f"algorithm, windows: needed a window join; got a query without a join; leave "
            f"{'algorithm' if options.algorithm else 'windows'}= out"
        )
    if (
        joins
        and (emit != "append" or named or not is_flat_join(body))
        and not any(isinstance(node, ops.Join) and node.constraints for node in nodes)
    ):
        raise ConfigError(
            "algorithm, windows: needed a window join that appends its combinations, with nothing but selections and "
            f"projections around it; got emit {emit!r}{' with scheduling' if named else ''}; leave them out, or say "
            "emit='append'"
        )
    passes = _is_passing(body) and (
        query.plan is body or (isinstance(query.plan, ops.Limit) and query.plan.input is body)
    )
    if streamed:
        way: Way = "pipeline"
        reasons.append("streams of relations and ticks are told as they come")
    elif changing and emit != "snapshot":
        way = "pipeline"
        reasons.append("a relation that changes: as it is at each instant")
    elif passes and not named and (emit == "append" or (emit == "snapshot" and not bounded)):
        way = "pass"
        reasons.append("one input, nothing to keep: its batches pass through")
    elif emit == "snapshot" and not named:
        way = "whole"
        reasons.append("a snapshot: what the windows hold at its instant, worked out at once, column by column")
    elif emit == "append" and not named and is_flat_join(body):
        way = "join"
        if algorithm:
            reasons.append(how)
    else:
        way = "pipeline"
        reasons.append(when)
        if any(isinstance(node, ops.Join) for node in nodes):
            reasons.append(how)
    return Choice(way, emit, algorithm, options.windows or "", scheduling, tuple(reasons))


def body_of(plan: Plan) -> Plan:
    """A plan without the ORDER BY and LIMIT at its top."""
    while isinstance(plan, ops.Sort | ops.Limit):
        plan = plan.input
    return plan


def _is_sorted(plan: Plan) -> bool:
    """Whether all rows are returned in an order, which changes have not; the first in an order are kept up to date."""
    while isinstance(plan, ops.Project):
        plan = plan.input
    return isinstance(plan, ops.Sort)


def is_chain(plan: Plan) -> bool:
    """Selections and projections over one leaf."""
    while isinstance(plan, ops.Filter | ops.Project):
        plan = plan.input
    return isinstance(plan, Stream | ops.Relation)


def _is_passing(plan: Plan) -> bool:
    """What is made of each batch of one leaf alone."""
    while isinstance(plan, ops.Filter | ops.Project | ops.Unnest):
        plan = plan.input
    return isinstance(plan, Stream | ops.Relation)


def is_flat_join(plan: Plan) -> bool:
    """Selections and projections over one join of chains, none of them in a window of rows."""
    while isinstance(plan, ops.Filter | ops.Project):
        plan = plan.input
    if not isinstance(plan, ops.Join) or not all(is_chain(each) for each in plan.inputs):
        return False
    return all(is_plain(leaf.window) for leaf in leaves_of(plan) if isinstance(leaf, Stream))


def _emit(query: Query, options: Options) -> tuple[str, str]:
    root = query.plan
    fixed = "stream" if isinstance(root, ops.ToStream) else "append" if isinstance(root, ops.OnClose) else query.emit
    if options.emit is not None and fixed not in (None, options.emit):
        raise ConfigError(
            f"emit: needed what the statement says comes out, {fixed}; got {options.emit!r}; leave one of them out"
        )
    if fixed is not None:
        return fixed, "as the statement says"
    if options.emit is not None:
        return options.emit, "as asked"
    if not query.windowed:
        return "snapshot", "a query without WINDOW, over all that is kept"
    if _adds(query.plan):
        return "append", "selections, projections and joins only add"
    return "changes", "a windowed query whose rows may be retracted"


def _adds(plan: Plan) -> bool:
    """Whether rows only come, but for windows that let go of them: selections, projections and joins of streams."""
    match plan:
        case ops.Filter() | ops.Project() | ops.Unnest() | ops.Join():
            return all(map(_adds, ops.inputs_of(plan)))
        case ops.Relation():
            return not plan.changes
        case _:
            return isinstance(plan, Stream | ops.Windowed)


def _algorithm(nodes: list[Plan], options: Options) -> tuple[str, str]:
    if options.algorithm is not None:
        return options.algorithm, f"window join {options.algorithm}: as asked"
    joins = [node for node in nodes if isinstance(node, ops.Join)]
    return "", TOLD["chain" if all(node.equal for node in joins) else "few-nested"] + _COMING


def _scheduling(windows: set[ops.StreamWindow], options: Options) -> tuple[str, str]:
    if options.scheduling is not None:
        return options.scheduling, f"scheduling {options.scheduling}: as asked"
    sizes = len(windows - {None})
    paper = (
        "one window, for which the paper finds tpa enough" if sizes < 2 else f"{sizes} windows, as the paper advises"
    )
    return "nta", (
        f"scheduling nta: {paper}; ours takes negative tuples in batches, and was measured as fast as tpa over one "
        "stream and faster over joins"
    )
