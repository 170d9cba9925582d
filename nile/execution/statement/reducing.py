"""Queries that are asked to take less: shorter windows and lower sampling rates, as rewrites that one can read.

What would make more output with less input is refused: windows and samples under DISTINCT and sets without ALL (what
leaves sooner is told anew when it comes again), right of EXCEPT, on the side of NOT EXISTS or an outer join whose
partners keep rows out, under LIMIT, where others take a place, and under conditions on what many rows make (HAVING,
window functions, compared subqueries), but for those that a subset cannot satisfy where the whole does not.
Source: STREAM (CIDR 2003), section 5.1.
"""

from __future__ import annotations

from dataclasses import replace

from nile.expressions.tree import MIRRORED, Column, Compare, Logic, Node, columns_of, conjuncts
from nile.sql import plan as ops
from nile.sql.plan import Plan, Query
from nile.summaries.errors import ConfigError

__all__ = ["reduced"]

_MADE = "a condition on what many rows make (HAVING, OVER, a subquery that is compared)"
_FALLS = {"count": (">", ">="), "max": (">", ">="), "min": ("<", "<=")}
"""Comparisons with a number that a subset satisfies only where the whole does."""

_Source = tuple[ops.Group | ops.Over, str]
"""(what makes a column of many rows, by which aggregate; "" of a window function, and of an expression)."""


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
    for source in _unproven(plan, scaled=share is not None):
        _plan(source.input, window, share, above or _MADE)
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
        case ops.Limit():
            return _below(plan, window, share, "LIMIT")
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


def _unproven(plan: Plan, *, scaled: bool) -> list[ops.Group | ops.Over]:
    """What makes columns by which a node tells rows apart, so that with less input it may find more of them.

    scaled: whether counts are of a sample, and so may be above the true ones.
    """
    made = {name: each for one in ops.inputs_of(plan) for name, each in _made(one).items()}
    tests: tuple[Node, ...] = ()
    names: list[str] = []
    match plan:
        case ops.Filter():
            tests = conjuncts(plan.condition)
        case ops.Join() | ops.Outer():
            tests, names = conjuncts(plan.condition), [name for pair in plan.equal for name in pair]
        case ops.Group():
            names = [name for item in plan.by for name in columns_of(item.node)]
        case ops.SetOperation() if plan.kind != "union":
            names = list(made)
        case _:
            return []
    names += [name for test in tests if not _falls(test, made, scaled) for name in columns_of(test)]
    return [source for name in names for source, _ in made.get(name, ())]


def _made(plan: Plan) -> dict[str, tuple[_Source, ...]]:
    """The columns of a node that are made of many rows."""
    below = {name: each for one in ops.inputs_of(plan) for name, each in _made(one).items()}
    match plan:
        case ops.Project():
            return _of_items(plan.items, below)
        case ops.Group():
            return _of_items(plan.by, below) | {
                # of numbers that are made themselves nothing is known
                each.name: ((plan, "" if below.keys() & _columns(each.nodes) else each.function),)
                for each in plan.aggregates
            }
        case ops.Over():
            return below | {item.name: ((plan, ""),) for item in plan.items}
        case ops.Unnest():
            return below | _of_items(plan.items, below)
        case ops.SetOperation():
            sides = zip(plan.left.fields, plan.right.fields, strict=True)
            both = {a.name: below.get(a.name, ()) + below.get(b.name, ()) for a, b in sides}
            return {name: each for name, each in both.items() if each}
        case _:
            return below


def _columns(nodes: tuple[Node, ...]) -> set[str]:
    return {name for node in nodes for name in columns_of(node)}


def _of_items(items: tuple[ops.Item, ...], below: dict[str, tuple[_Source, ...]]) -> dict[str, tuple[_Source, ...]]:
    found = {}
    for item in items:
        if isinstance(item.node, Column):
            sources = below.get(item.node.name, ())
        else:
            sources = tuple((source, "") for name in columns_of(item.node) for source, _ in below.get(name, ()))
        if sources:
            found[item.name] = sources
    return found


def _falls(test: Node, made: dict[str, tuple[_Source, ...]], scaled: bool) -> bool:
    """Whether a condition is true of a subset only where it is of the whole."""
    if not made.keys() & set(columns_of(test)):
        return True
    if isinstance(test, Logic):
        return all(_falls(each, made, scaled) for each in test.items)
    if not isinstance(test, Compare) or test.operator in ("=", "<>"):
        return False
    one, other = test.left, test.right
    operator = test.operator
    if not (isinstance(one, Column) and one.name in made):
        one, other, operator = other, one, MIRRORED[operator]
    if not isinstance(one, Column) or one.name not in made or made.keys() & set(columns_of(other)):
        return False
    return all(operator in _FALLS.get(by, ()) and not (scaled and by == "count") for _, by in made[one.name])


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
