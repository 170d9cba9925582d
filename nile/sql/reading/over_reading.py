"""Reading window functions: the call before OVER, its partition, order and frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from nile.expressions.literals import read_interval
from nile.expressions.places import Fault, NotYetFault
from nile.expressions.taking import Taker, start_of
from nile.expressions.tree import Constant, Node
from nile.sql.expression_text import aggregate_text, expression_text
from nile.sql.over import FUNCTIONS, SESSIONS, Frame, bound_text, over_text
from nile.sql.parsed import OverCall
from nile.sql.plan import OverItem

__all__ = ["call_text", "is_span", "item_text", "read_over", "span_of", "without_over"]

_CALLS = {
    "RowNumber": "row_number",
    "Rank": "rank",
    "DenseRank": "dense_rank",
    "PercentRank": "percent_rank",
    "CumeDist": "cume_dist",
    "Ntile": "ntile",
    "Lag": "lag",
    "Lead": "lead",
    "FirstValue": "first_value",
    "LastValue": "last_value",
    "NthValue": "nth_value",
}
_VALUED = ("lag", "lead", "first_value", "last_value", "nth_value")
_MOST = 2**31

Aggregated = Callable[[Any, int], "tuple[str, Node | None, float | None] | None"]


def read_over(node: Any, taker: Taker, depth: int, aggregate: Aggregated) -> OverCall:
    """A call and its OVER.  aggregate: reads the call if it is an aggregate.  Raises Fault."""
    _only(node, "this", "partition_by", "order", "spec", "over")
    start = start_of(node) or 0
    called, without_nulls = node.this, False
    if type(called).__name__ in ("IgnoreNulls", "RespectNulls"):
        called, without_nulls = called.this, type(called).__name__ == "IgnoreNulls"
    found = aggregate(called, depth)
    if found is None:
        function, arguments = _placed(called, taker, depth)
        if without_nulls and function not in _VALUED:
            raise Fault(f"needed {', '.join(_VALUED)} beside IGNORE NULLS; got {function}", start)
        fraction = None
    else:
        function, argument, fraction = found
        without_nulls = False  # nulls never count in aggregates
        arguments = () if argument is None else (argument,)
    order = []
    if node.args.get("order") is not None:
        for each in node.args["order"].expressions:
            key, descending, first = each, False, False
            if type(each).__name__ == "Ordered":
                _only(each, "this", "desc", "nulls_first")
                key, descending, first = each.this, bool(each.args.get("desc")), bool(each.args.get("nulls_first"))
            order.append((taker.take(key, depth), descending, not first))
    frame = None if node.args.get("spec") is None else _frame(node.args["spec"], taker, depth, len(order))
    by = tuple(taker.take(each, depth) for each in node.args.get("partition_by") or ())
    return OverCall(function, arguments, by, tuple(order), frame, fraction, start, without_nulls)


def without_over(node: Any) -> str | None:
    """What to say of a function of a row's place that stands alone; None: it is none."""
    name = type(node).__name__
    called = str(node.this).lower() if name == "Anonymous" else _CALLS.get(name, "")
    if called not in FUNCTIONS:
        return None
    return f"needed OVER (...) behind {called}(); got none; write {called}(...) OVER (ORDER BY ...)"


def _placed(node: Any, taker: Taker, depth: int) -> tuple[str, tuple[Node, ...]]:
    """A function of a row's place, and its arguments."""
    name = type(node).__name__
    if name == "Anonymous" and str(node.this).lower() in SESSIONS:
        function = str(node.this).lower()
        gaps = tuple(span_of(taker.take(each, depth)) for each in node.expressions)
        if len(gaps) != 1 or not is_span(gaps[0]):
            raise Fault(f"needed an interval above 0 in {function}(); got something else", start_of(node))
        return function, gaps
    if name not in _CALLS:
        raise Fault(
            f"needed an aggregate or one of {', '.join(FUNCTIONS)} before OVER; got something else", start_of(node)
        )
    function = _CALLS[name]
    _only(node, "this", "offset", "default")
    given = [node.args.get(each) for each in ("this", "offset", "default")]
    arguments = tuple(taker.take(each, depth) for each in given if each is not None)
    if len(arguments) < FUNCTIONS[function] or (function == "ntile" and len(arguments) != 1):
        raise Fault(f"needed {FUNCTIONS[function]} arguments for {function}(); got {len(arguments)}", start_of(node))
    counted = {"ntile": arguments[:1], "nth_value": arguments[1:2], "lag": arguments[1:2], "lead": arguments[1:2]}
    for each in counted.get(function, ()):
        least = 0 if function in ("lag", "lead") else 1
        whole = isinstance(each, Constant) and isinstance(each.value, int) and not isinstance(each.value, bool)
        if not whole or not least <= int(each.value or 0) < _MOST:  # type: ignore[union-attr]
            raise Fault(f"needed a whole number of {least} or more in {function}(); got something else", start_of(node))
    return function, arguments


def span_of(node: Node) -> Node:
    """A text such as '5 s' as an interval; anything else as it is.  Raises Fault."""
    if isinstance(node, Constant) and isinstance(node.value, str):
        return read_interval(node.value, "")
    return node


def is_span(node: Node) -> bool:
    """Whether a node is an interval above 0."""
    return isinstance(node, Constant) and node.kind == "interval" and int(node.value or 0) > 0


def _frame(spec: Any, taker: Taker, depth: int, keys: int) -> Frame:
    _only(spec, "kind", "start", "start_side", "end", "end_side")
    kind = str(spec.args.get("kind")).lower()
    units: dict[str, Literal["rows", "range", "groups"]] = {"rows": "rows", "range": "range", "groups": "groups"}
    unit = units[kind]
    if unit == "groups" and not keys:
        raise Fault("needed ORDER BY for GROUPS BETWEEN; got none", start_of(spec))
    begin, first = _bound(spec, "start", taker, depth)
    end, second = _bound(spec, "end", taker, depth) if spec.args.get("end") is not None else (0, False)
    offset = any(each not in (None, 0) for each in (begin, end))
    if unit == "range" and offset and keys != 1:
        raise Fault("needed one column in ORDER BY for RANGE with an offset; got another number", start_of(spec))
    if unit != "range" and (first or second or isinstance(begin, float) or isinstance(end, float)):
        raise Fault(f"needed whole numbers in {kind.upper()} BETWEEN; got something else", start_of(spec))
    if begin is not None and end is not None and begin > end:
        raise Fault("needed a frame whose end is not before its begin; got another", start_of(spec))
    return Frame(unit, begin, end, first or second)


def _bound(spec: Any, which: str, taker: Taker, depth: int) -> tuple[int | float | None, bool]:
    """(offset, whether it is an interval): of n PRECEDING, n FOLLOWING, CURRENT ROW, UNBOUNDED ..."""
    value, side = spec.args.get(which), str(spec.args.get(f"{which}_side") or "").upper()
    if isinstance(value, str):
        if value.upper() == "CURRENT ROW":
            return 0, False
        if (which, side) not in (("start", "PRECEDING"), ("end", "FOLLOWING")):
            raise Fault(
                "needed UNBOUNDED PRECEDING at the begin, or FOLLOWING at the end; got the other", start_of(spec)
            )
        return None, False
    if value is None:
        raise Fault("needed a bound such as 2 PRECEDING behind ROWS, RANGE or GROUPS; got none", start_of(spec))
    node = taker.take(value, depth)
    if not isinstance(node, Constant) or isinstance(node.value, bool) or not isinstance(node.value, int | float):
        raise Fault("needed a number or an interval before PRECEDING or FOLLOWING; got something else", start_of(value))
    if node.value < 0:
        raise Fault(f"needed an offset of 0 or more; got {node.value}; PRECEDING is before the row", start_of(value))
    return (-node.value if side == "PRECEDING" else node.value), node.kind == "interval"


def call_text(call: OverCall, shown: Callable[[str], str]) -> str:
    """The whole as SQL.  shown: how columns are written."""
    if call.function in FUNCTIONS:
        given = ", ".join(expression_text(each, shown) for each in call.arguments)
        text = f"{call.function}({given}{' IGNORE NULLS' if call.without_nulls else ''})"
    else:
        argument = call.arguments[0] if call.arguments else None
        text = aggregate_text(call.function, argument, False, call.fraction, shown)
    order = [
        expression_text(key, shown) + (" DESC" if down else "") + ("" if last else " NULLS FIRST")
        for key, down, last in call.order
    ]
    return over_text(
        text, [expression_text(each, shown) for each in call.by], order, call.frame, frame_text(call.frame)
    )


def item_text(item: OverItem, shown: Callable[[str], str]) -> str:
    """A bound window function as SQL.  shown: how columns are written."""
    order = tuple((key.node, key.descending, key.nulls_last) for key in item.order)
    call = OverCall(item.function, item.arguments, item.by, order, item.frame, item.fraction, 0, item.without_nulls)
    return call_text(call, shown)


def frame_text(frame: Frame | None) -> tuple[str, str]:
    """The bounds of a frame as SQL."""
    if frame is None:
        return "", ""
    amounts = []
    for offset in (frame.begin, frame.end):
        size = abs(offset or 0)
        amounts.append(expression_text(Constant(size, "interval" if frame.interval else "integer"), str))
    return bound_text(frame.begin, amounts[0], begin=True), bound_text(frame.end, amounts[1], begin=False)


def _only(node: Any, *allowed: str) -> None:
    for argument, value in node.args.items():
        if value and argument not in allowed:
            what = {"alias": "WINDOW name AS (...)", "exclude": "EXCLUDE", "first": "FIRST"}.get(
                argument, argument.upper()
            )
            raise NotYetFault(f"{what} before or in OVER is not there yet; write the window out", start_of(node))
