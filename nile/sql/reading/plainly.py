"""Desugaring: SQL's shorthands become their long forms, from sqlglot's tree to sqlglot's tree.

What is made keeps the offsets of what it is made of, so that a fault is still said at its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nile.expressions.places import Fault, NotYetFault
from nile.expressions.tokens import start_of
from nile.sql.reading.grouped_windows import grouped_windows
from nile.summaries.heavy import exp

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["plain_select", "plain_values"]


# Values.


def plain_values(tree: Any) -> None:
    """Every aggregate, and every comparison of several columns at once, that others say, in a whole tree.  O(nodes)."""
    for node in [each for each in tree.walk() if type(each).__name__ in _VALUES]:
        made = _VALUES[type(node).__name__](node)
        if made is not node and node.parent is not None:
            node.replace(made)


def _count_if(node: Any) -> Any:
    """count_if(c): of the rows for which it is true."""
    return exp.Count(this=exp.If(this=node.this, true=exp.Literal.number(1)), big_int=True)


def _least(node: Any) -> Any:
    """bool_and(c): the least truth value."""
    return exp.Min(this=exp.And(this=node.this, expression=exp.Boolean(this=True)))


def _greatest(node: Any) -> Any:
    return exp.Max(this=exp.And(this=node.this, expression=exp.Boolean(this=True)))


def _any_value(node: Any) -> Any:
    """any_value(x): the least."""
    return exp.Min(this=node.this.this) if type(node.this).__name__ == "AnyValue" else node


def _distinct(node: Any) -> Any:
    """approx_count_distinct(x): exact here."""
    return exp.Count(this=exp.Distinct(expressions=[node.this]), big_int=True)


def _quantile(node: Any) -> Any:
    """approx_quantile(x, share): exact here, a value that there is."""
    return exp.PercentileDisc(this=node.this, expression=node.args.get("quantile"))


def _within(node: Any) -> Any:
    """percentile_cont(share) WITHIN GROUP (ORDER BY x)."""
    call, keys = node.this, node.expression.expressions
    if type(call).__name__ not in ("PercentileCont", "PercentileDisc") or len(keys) != 1:
        raise NotYetFault("WITHIN GROUP of another function than percentile_cont and _disc is not there yet",
                          start_of(node))  # fmt: skip
    if keys[0].args.get("desc"):
        raise NotYetFault("DESC in WITHIN GROUP is not there yet; write one minus the share", start_of(node))
    return type(call)(this=keys[0].this, expression=call.this)


def _named(node: Any) -> Any:
    """geomean(x)."""
    if str(node.this).lower() not in ("geomean", "geometric_mean") or len(node.expressions) != 1:
        return node
    return exp.Exp(this=exp.Avg(this=exp.Ln(this=node.expressions[0])))


def _rows_equal(node: Any) -> Any:
    """(a, b) = (1, 2): each of them."""
    left, right = node.this, node.expression
    if type(left).__name__ != "Tuple" or type(right).__name__ != "Tuple":
        return node
    return _all_equal(left.expressions, right.expressions, node)


def _all_equal(left: Any, right: Any, node: Any) -> Any:
    if len(left) != len(right):
        raise Fault(f"needed as many values on both sides; got {len(left)} and {len(right)}", start_of(node))
    whole: Any = None
    for one, other in zip(left, right, strict=True):
        equal = exp.EQ(this=one.copy(), expression=other)
        whole = equal if whole is None else exp.And(this=whole, expression=equal)
    return exp.Paren(this=whole)


def _rows_in(node: Any) -> Any:
    """(a, b) IN ((1, 2), (3, 4)): one of them; a IN (VALUES (1), (2)): of a list."""
    choices = node.args.get("expressions") or []
    if len(choices) == 1 and type(choices[0]).__name__ == "Values":
        rows = choices[0].expressions
        node.set("expressions", [each.expressions[0] if len(each.expressions) == 1 else each for each in rows])
        choices = node.args["expressions"]
    if type(node.this).__name__ != "Tuple" or node.args.get("query") is not None:
        return node
    whole: Any = None
    for each in choices:
        if type(each).__name__ != "Tuple":
            raise Fault("needed rows such as (1, 2) in the list of IN; got something else", start_of(node))
        equal = _all_equal(node.this.expressions, each.expressions, node)
        whole = equal if whole is None else exp.Or(this=whole, expression=equal)
    return node if whole is None else exp.Paren(this=whole)


_VALUES: Mapping[str, Callable[[Any], Any]] = {
    "CountIf": _count_if,
    "LogicalAnd": _least,
    "LogicalOr": _greatest,
    "IgnoreNulls": _any_value,
    "ApproxDistinct": _distinct,
    "ApproxQuantile": _quantile,
    "WithinGroup": _within,
    "Anonymous": _named,
    "EQ": _rows_equal,
    "In": _rows_in,
}


# SELECT.


def plain_select(node: Any) -> Any:
    """A SELECT without names for windows, DISTINCT ON, FETCH, USING SAMPLE.  It may be changed in place."""
    for change in (_windows, grouped_windows, _distinct_on, _fetched, _sampled):
        node = change(node)
    return node


def _windows(node: Any) -> Any:
    """WINDOW w AS (...): written where it is named."""
    written = {str(each.this.this).lower(): each for each in node.args.get("windows") or ()}
    if not written:
        return node
    node.set("windows", None)
    for over in [each for each in node.find_all(exp.Window) if each.args.get("alias") is not None]:
        name = over.args["alias"]
        named = written.get(str(name.this).lower())
        if named is None:
            raise Fault(f"needed one of the windows {', '.join(written)}; got '{name.this}'", start_of(name))
        for part in ("partition_by", "order", "spec"):
            given = named.args.get(part)
            if given is not None and over.args.get(part):
                raise Fault(f"needed {part.upper()} of window '{name.this}' once; got it again", start_of(name))
            if given is not None:
                over.set(part, [each.copy() for each in given] if isinstance(given, list) else given.copy())
        over.set("alias", None)
    return node


def _distinct_on(node: Any) -> Any:
    """DISTINCT ON (keys) ... ORDER BY: the first of each, which QUALIFY row_number() = 1 says too."""
    distinct = node.args.get("distinct")
    keys = None if distinct is None else distinct.args.get("on")
    if keys is None:
        return node
    order = node.args.get("order")
    by = keys.expressions if type(keys).__name__ == "Tuple" else [keys]
    if node.args.get("qualify") is not None or node.args.get("group") is not None:
        raise NotYetFault("DISTINCT ON with GROUP BY or QUALIFY is not there yet; write row_number()", start_of(keys))
    over = exp.Window(
        this=exp.RowNumber(),
        partition_by=[each.copy() for each in by],
        order=None if order is None else order.copy(),
        over="OVER",
    )
    node.set("distinct", None)
    node.set("qualify", exp.Qualify(this=exp.EQ(this=over, expression=exp.Literal.number(1))))
    return node


def _fetched(node: Any) -> Any:
    """FETCH FIRST n ROWS ONLY."""
    limit = node.args.get("limit")
    if type(limit).__name__ != "Fetch":
        return node
    options = limit.args.get("limit_options")
    if options is not None and (options.args.get("with_ties") or options.args.get("percent")):
        raise NotYetFault("WITH TIES and PERCENT in FETCH are not there yet; write QUALIFY rank()", start_of(limit))
    node.set("limit", exp.Limit(expression=limit.args.get("count") or exp.Literal.number(1)))
    return node


def _sampled(node: Any) -> Any:
    """USING SAMPLE behind the one stream of a FROM."""
    sample, source = node.args.get("sample"), node.args.get("from_")
    if sample is None or source is None:
        return node
    if node.args.get("joins") or type(source.this).__name__ not in ("Table", "Subquery"):
        raise Fault("needed SAMPLE (10) behind each stream of a join; got USING SAMPLE behind them", start_of(sample))
    node.set("sample", None)
    source.this.set("sample", sample)
    return node
