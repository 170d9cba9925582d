"""Expressions that say in few words what others say: each becomes nodes that everything downstream knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from nile.expressions.allowed import CALLED, PARTS
from nile.expressions.functions import PLAIN
from nile.expressions.lists.spellings import LIST_NAMES, LIST_SPELLINGS, list_call
from nile.expressions.named_functions import check_literal
from nile.expressions.places import Fault
from nile.expressions.tokens import start_of
from nile.expressions.tree import Arithmetic, Call, Cast, Compare, Constant, IsNull, Logic, Node, Not

__all__ = ["SPELLINGS", "Takes", "called_by_name"]

_EMPTY = Constant("", "text")
_CLOCKS = ("now", "today", "get_current_timestamp", "transaction_timestamp")


class Takes(Protocol):
    """What takes nodes apart, as these readers use it."""

    def take(self, node: Any, depth: int = 0) -> Node:
        """The tree of a node."""

    def only(self, node: Any, *allowed: str) -> Any:
        """The first allowed argument, once it is sure that there are no others."""

    def text_literal(self, node: Any, of: str) -> str:
        """The value of a text literal."""


def _same(taker: Takes, node: Any, depth: int) -> Node:
    """a IS NOT DISTINCT FROM b: equal, or both null; never null."""
    left = taker.take(taker.only(node, "this", "expression"), depth)
    right = taker.take(node.expression, depth)
    both = Logic("AND", (IsNull(left), IsNull(right)))
    return Call("coalesce", (Compare("=", left, right), both))


def _differ(taker: Takes, node: Any, depth: int) -> Node:
    return Not(_same(taker, node, depth))


def _is(taker: Takes, node: Any, depth: int) -> Node:
    """IS NULL; IS TRUE and IS FALSE, which are never null."""
    item = taker.take(taker.only(node, "this", "expression"), depth)
    wanted = type(node.expression).__name__
    if wanted == "Null":
        return IsNull(item)
    if wanted != "Boolean":
        raise Fault("needed NULL, TRUE or FALSE after IS; got something else", start_of(node))
    return Call("coalesce", (item if node.expression.this else Not(item), Constant(False, "boolean")))


def _concat(taker: Takes, node: Any, depth: int) -> Node:
    """concat(a, b): as text, what is null left out."""
    taker.only(node, "expressions", "coalesce")
    parts = [_as_text(taker.take(each, depth)) for each in node.expressions]
    return Call("concat", tuple(Call("coalesce", (part, _EMPTY)) for part in (parts or [_EMPTY])))


def _concat_ws(taker: Takes, node: Any, depth: int) -> Node:
    """concat_ws(separator, a, b): what is null left out, with its separator."""
    taker.only(node, "expressions", "coalesce")
    between = taker.text_literal(node.expressions[0], "the separator of concat_ws()")
    if len(node.expressions) < 2:
        raise Fault("needed values behind the separator of concat_ws(); got none", start_of(node))
    parts = []
    for each in node.expressions[1:]:
        joined = Call("concat", (Constant(between, "text"), _as_text(taker.take(each, depth))))
        parts.append(Call("coalesce", (joined, _EMPTY)))
    whole = Call("concat", tuple(parts))
    return Call("substring", (whole, Constant(len(between) + 1, "integer")))


def _as_text(value: Node) -> Node:
    return value if isinstance(value, Constant) and value.kind == "text" else Cast(value, "text", 0)


def _date_diff(taker: Takes, node: Any, depth: int) -> Node:
    """date_diff('hour', begin, end)."""
    taker.only(node, "this", "expression", "unit", "date_part_boundary")
    unit = _constant(node.args.get("unit"))
    begin, end = taker.take(node.expression, depth), taker.take(node.this, depth)
    check_literal("date_diff", node, unit, PLAIN["date_diff"].literals[0])
    return Call("date_diff", (unit, begin, end))


def _added(taker: Takes, node: Any, depth: int) -> Node:
    """date_add(time, INTERVAL '1 day')."""
    taker.only(node, "this", "expression", "unit")
    return Arithmetic("+", taker.take(node.this, depth), taker.take(node.expression, depth))


def _bucket(taker: Takes, node: Any, depth: int) -> Node:
    """time_bucket(INTERVAL '10 minutes', time)."""
    taker.only(node, "this", "expression")
    width, value = taker.take(node.this, depth), taker.take(node.expression, depth)
    check_literal("time_bucket", node.this, width, PLAIN["time_bucket"].literals[0])
    return Call("time_bucket", (width, value))


def _from_unix(taker: Takes, node: Any, depth: int) -> Node:
    """to_timestamp(seconds), make_timestamp(microseconds); epoch_ms(time), which the parser takes for a third."""
    taker.only(node, "this", "scale")
    scale = getattr(node.args.get("scale"), "this", None)
    name = {"3": "epoch_ms", "6": "make_timestamp"}.get(str(scale), "to_timestamp")
    return Call(name, (taker.take(node.this, depth),))


def _pi(taker: Takes, node: Any, _: int) -> Node:
    taker.only(node, "")
    return Constant(3.141592653589793, "number")


def _no_clock(_: Takes, node: Any, __: int) -> Node:
    raise Fault(
        "needed values that are the same whenever they are computed; got the time of the clock; give it as a "
        "parameter, or take the time of the stream",
        start_of(node),
    )


def _no_dice(_: Takes, node: Any, __: int) -> Node:
    raise Fault(
        "needed values that are the same whenever they are computed; got random numbers; write SAMPLE (10) behind the "
        "stream",
        start_of(node),
    )


def called_by_name(taker: Takes, node: Any, depth: int) -> Node | None:
    """A function that the parser knows nothing of; None: nor does Nile."""
    name, given = str(node.this).lower(), list(node.expressions)
    if name in _CLOCKS:
        return _no_clock(taker, node, depth)
    if name in ("date_part", "datepart") and len(given) == 2:
        unit = taker.text_literal(given[0], f"{name}()").lower()
        if unit not in PARTS:
            raise Fault(f"{name}() needs one of {', '.join(PARTS)}, got {unit!r:.40}", start_of(node))
        return Call(PARTS[unit], (taker.take(given[1], depth),))
    if name in LIST_NAMES:
        return list_call(taker, LIST_NAMES[name], given, node, depth)
    function = CALLED.get(name)
    if function is None:
        return None
    rule = PLAIN[function]
    if len(given) != len(rule.takes) + len(rule.literals):
        needed = len(rule.takes) + len(rule.literals)
        raise Fault(f"needed {name}() with {needed} arguments; got {len(given)}", start_of(node))
    taken = [taker.take(each, depth) for each in given]
    for written, value, wanted in zip(rule.split(given)[1], rule.split(taken)[1], rule.literals, strict=True):
        check_literal(name, written, value, wanted)
    return Call(function, tuple(taken))


def _constant(unit: Any) -> Constant:
    return Constant(str(getattr(unit, "name", "") or "day").lower(), "text")


def _full_match(taker: Takes, node: Any, depth: int) -> Node:
    """a SIMILAR TO 'pattern': the whole of a text."""
    item = taker.take(taker.only(node, "this", "expression"), depth)
    pattern = taker.take(node.expression, depth)
    check_literal("regexp_full_match", node.expression, pattern, PLAIN["regexp_full_match"].literals[0])
    return Call("regexp_full_match", (item, pattern))


def _counted(taker: Takes, node: Any, depth: int) -> Node:
    """chr(65)."""
    taker.only(node, "expressions")
    if len(node.expressions) != 1:
        raise Fault(f"needed chr() with 1 argument; got {len(node.expressions)}", start_of(node))
    return Call("chr", (taker.take(node.expressions[0], depth),))


SPELLINGS: Mapping[str, Callable[[Takes, Any, int], Node]] = {
    **LIST_SPELLINGS,
    "Is": _is,
    "NullSafeEQ": _same,
    "NullSafeNEQ": _differ,
    "Concat": _concat,
    "ConcatWs": _concat_ws,
    "DateDiff": _date_diff,
    "DateAdd": _added,
    "DateBin": _bucket,
    "UnixToTime": _from_unix,
    "SimilarTo": _full_match,
    "RegexpFullMatch": _full_match,
    "Chr": _counted,
    "Pi": _pi,
    "Rand": _no_dice,
    **dict.fromkeys(("CurrentTimestamp", "CurrentDate", "CurrentTime", "Localtimestamp"), _no_clock),
}
"""By what sqlglot calls them."""
