"""Queries that are asked to take less: shorter windows and lower sampling rates, as rewrites that one can read.

What would make more output with less input is refused: windows and samples under DISTINCT and sets without ALL (what
leaves sooner is told anew when it comes again), right of EXCEPT, and on the side of NOT EXISTS or an outer join whose
partners keep rows out.  Source: STREAM (CIDR 2003), section 5.1.
"""

from __future__ import annotations

from dataclasses import replace

from nile.sql import plan as ops
from nile.sql.plan import Plan, Query
from nile.summaries.errors import ConfigError

__all__ = ["reduced"]


def reduced(query: Query, window: int | None, share: float | None) -> Query:
    """The query, for its text, with no window longer than `window` (ns) and at most `share` of each stream's tuples.

    Windows of rows, and slides, stay.  Raises ConfigError where that could make more output, or changes nothing.
    """
    if window is None and share is None:
        raise ConfigError("reduced: needed window=, sample=, or both; got neither; say window='5 min'")
    plan = _plan(query.plan, window, share, None)
    whole = query.window
    if window is not None and (whole is not None or _all_are(plan, window)):
        whole = window if whole is None else min(whole, window)
    made = replace(query, plan=plan, window=whole, windowed=query.windowed or window is not None)
    if made == query:
        raise ConfigError(
            "reduced: needed a window that is longer, or a stream of which more is taken; got a query that takes no "
            "more than that; ask it as it is"
        )
    return made


def _all_are(plan: Plan, window: int) -> bool:
    return all(each.window == window for each in ops.walk(plan) if isinstance(each, ops.Windowed)) and all(
        each.window in (window, None) for each in ops.walk(plan) if isinstance(each, ops.Stream)
    )


def _plan(plan: Plan, window: int | None, share: float | None, above: str | None) -> Plan:
    """above: what stands above it that may tell more where less comes; None: nothing does."""
    match plan:
        case ops.Stream():
            return _stream(plan, window, share, above)
        case ops.Windowed(input=ops.Sample() as drawn) if _is_stream(drawn.input):
            length, low = _shorter(plan.window, window), drawn.share if share is None else min(drawn.share, share)
            _check(plan.window != length or low != drawn.share, drawn.input.fields[0].name.split(".")[0], above)
            return replace(plan, input=replace(drawn, share=low), window=length)
        case ops.Windowed():
            length = _shorter(plan.window, window)
            _check(plan.window != length, "a query in FROM", above)
            made = _below(plan.input, window, share, above)
            assert isinstance(made, ops.ToStream | ops.Sample)
            return replace(plan, input=made, window=length)
        case ops.Join():
            pairs = tuple(
                replace(each, window=each.window if window is None else min(each.window, window))
                for each in plan.constraints
            )
            _check(pairs != plan.constraints, "a pair of streams", above)
            inputs = tuple(_plan(each, window, share, above) for each in plan.inputs)
            return replace(plan, inputs=inputs, constraints=pairs)
        case ops.Hop() if share is not None:
            raise ConfigError(
                "reduced, sample: needed a stream that SAMPLE can stand behind; got one in TUMBLE or HOP; make a view "
                "of the sample, and tumble that"
            )
        case ops.Distinct():
            return _below(plan, window, share, "DISTINCT")
        case ops.SetOperation(kind="except"):
            left = _plan(plan.left, window, share, above if plan.all else "EXCEPT without ALL")
            return replace(plan, left=left, right=_plan(plan.right, window, share, "the right side of EXCEPT"))
        case ops.SetOperation() if not plan.all:
            return _below(plan, window, share, f"{plan.kind.upper()} without ALL")
        case ops.Outer():
            told = {"anti": "NOT EXISTS", "mark": "a condition over EXISTS or IN"}.get(plan.kind, "an outer join")
            kept_out = {"left": (False, True), "right": (True, False), "full": (True, True), "semi": (False, False)}
            sides = kept_out.get(plan.kind, (False, True))
            left, right = (
                _plan(each, window, share, told if side else above)
                for each, side in zip((plan.left, plan.right), sides, strict=True)
            )
            return replace(plan, left=left, right=right)
        case _:
            return _below(plan, window, share, above)


def _below(plan: Plan, window: int | None, share: float | None, above: str | None) -> Plan:
    return ops.map_inputs(plan, lambda each: _plan(each, window, share, above))


def _stream(plan: ops.Stream, window: int | None, share: float | None, above: str | None) -> Plan:
    length = _shorter(plan.window, window)
    _check(length != plan.window or share is not None, plan.alias, above)
    if share is None:
        return replace(plan, window=length)
    base = replace(plan, window=None, where=None)
    drawn = ops.Sample(ops.ToStream("istream", base), share, 0)
    made: Plan = ops.Windowed(drawn, length, plan.position)
    return made if plan.where is None else ops.Filter(made, plan.where)


def _is_stream(plan: ops.ToStream) -> bool:
    return isinstance(plan.input, ops.Stream)


def _shorter(given: ops.StreamWindow, window: int | None) -> ops.StreamWindow:
    if window is None or not (given is None or isinstance(given, int)):
        return given
    return window if given is None else min(given, window)


def _check(changes: bool, what: str, above: str | None) -> None:
    if changes and above is not None:
        raise ConfigError(
            f"reduced: needed streams of which less can only make less output; got {what!r} under {above}, where it "
            "can make more; reduce another query, or give this one more memory"
        )
