"""Which statements have progressive answers, and by which operator."""

from __future__ import annotations

from dataclasses import replace

from nile.answers.progress import Progressive
from nile.execution.approximate.lookups import Lookups
from nile.execution.approximate.shape import Shape, shape_of
from nile.execution.options import Options
from nile.execution.progress.aggregate import ProgressiveAggregate
from nile.execution.progress.join import ProgressiveJoin
from nile.execution.progress.rounds import ProgressiveRounds, RoundsHome
from nile.execution.progress.selection import ProgressiveRows
from nile.sql.plan import Join, Limit, Query
from nile.summaries.errors import ConfigError, NotYet

__all__ = ["progressive"]

_UNUSED = ("method", "guide", "costs", "replay", "by")


def progressive(engine: RoundsHome, query: Query, options: Options) -> Progressive:
    """A statement as an answer that grows, checked.  Raises NotYet and ConfigError that say why it cannot be one."""
    if query.budget or query.error or options.budget is not None:
        raise ConfigError(
            "progress: needed a query without BUDGET and ERROR, it goes on to the full answer; got one; leave them "
            "out, and stop when there is enough"
        )
    if options.emit not in (None, "snapshot"):
        raise ConfigError(
            f"progress: needed the one snapshot of all that is kept; got emit={options.emit!r}; leave emit out"
        )
    options.refuse(_UNUSED, "a run under a budget; got progress(), which has none")
    try:
        lookups = Lookups(engine, query.plan, settled=query.windowed)
        query = replace(query, plan=lookups.plan)
        shape = shape_of(query.plan)
        for rows in lookups.rows:
            rows.check()
    except NotYet as error:
        reason = str(error).removeprefix("approximate query: ").split("; leave out")[0]
        raise NotYet(f"progress: {reason}; read the result with to_arrow()") from None
    if shape.group is None and query.preference is None and any(isinstance(step, Limit) for step in shape.top):
        raise ConfigError(
            "progress: needed WITH PREFERENCE with LIMIT, to say what to find first; got none; say WITH "
            "PREFERENCE, or leave LIMIT out and stop when there is enough"
        )
    if query.preference is not None and any(term.factor is not None for term in query.preference.terms):
        raise NotYet(
            "progress: needed a preference over counts, which indices of the history keep; got one over what tuples "
            "are worth, for which every tuple is read first; leave the factor out, or say BUDGET"
        )
    if isinstance(shape.core, Join) and _in_rounds(query, shape):
        return ProgressiveRounds(engine, query, shape, options)
    if query.preference is not None and any(term.parts for term in query.preference.terms):
        raise NotYet(
            "progress: needed a preference over one column, of which the history keeps an index; got one over "
            "expressions, which it has none of; name a column, or none"
        )
    if query.windowed:
        raise NotYet(
            "progress: needed all that is kept of one stream; got a WINDOW, whose rows are the latest alone and soon "
            "read; bound its time in WHERE, or read the result with batches()"
        )
    if shape.group is not None:
        return ProgressiveAggregate(engine, query, shape, options)
    if isinstance(shape.core, Join):
        return ProgressiveJoin(engine, query, shape, options)
    if options.output is not None or options.outlier_cap is not None:
        raise ConfigError("output, outlier_cap: needed a join; got a selection, which has none; leave them out")
    return ProgressiveRows(engine, query, shape, options)


def _in_rounds(query: Query, shape: Shape) -> bool:
    """Whether a join has no order over key indices that its outputs could be found in: windows, streams, groups."""
    assert isinstance(shape.core, Join)
    return query.windowed or bool(shape.core.constraints) or len(shape.core.inputs) != 2 or shape.group is not None
