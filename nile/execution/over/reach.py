"""How far window functions feel a change: which rows an incremental plan must look at again."""

from __future__ import annotations

from nile.exact.plan.algebra import Reach
from nile.exact.state.held import MOST
from nile.expressions.tree import MIRRORED, Between, Column, Compare, Constant, Node, conjuncts
from nile.sql.columns import OverItem, SortKey
from nile.sql.plan import Over

__all__ = ["placed_by", "ranks_of", "reach_of"]

_RANKS = ("row_number", "rank", "dense_rank")


def placed_by(plan: Over) -> tuple[tuple[Node, ...], tuple[SortKey, ...]]:
    """What partitions and orders the rows of all functions; () where they differ in it."""
    bys, orders = {item.by for item in plan.items}, {item.order for item in plan.items}
    by = bys.pop() if len(bys) == 1 else ()
    return by, orders.pop() if len(orders) == 1 and by == plan.items[0].by else ()


def ranks_of(plan: Over) -> tuple[str, ...]:
    """The functions, where all of them are ranks in one order."""
    names = tuple(item.function for item in plan.items)
    alike = len({(item.by, item.order) for item in plan.items}) == 1
    return names if alike and all(name in _RANKS for name in names) else ()


def reach_of(plan: Over, condition: Node | None = None) -> Reach:
    """How far a change is felt.  condition: what rows must meet that anybody reads."""
    if len({(item.by, item.order) for item in plan.items}) > 1:
        return Reach()
    only = bool(ranks_of(plan))
    each = [_reach(item, only=only) for item in plan.items]
    cut = _cut(plan, condition)
    return Reach(
        max(one.back for one in each),
        max(one.ahead for one in each),
        max(one.before for one in each),
        max(one.beyond for one in each),
        any(one.peers for one in each),
        cut if all(_looks_back(item) for item in plan.items) else None,
    )


def _reach(item: OverItem, *, only: bool) -> Reach:
    """only: whether there are nothing but ranks, which know their places."""
    match item.function:
        case "row_number" | "rank" | "dense_rank":
            return Reach(0, MOST, 0 if only and item.function != "dense_rank" else MOST, 0)
        case "lag" | "lead":
            amount = item.arguments[1] if len(item.arguments) > 1 else Constant(1, "integer")
            assert isinstance(amount, Constant)
            if item.without_nulls:
                return Reach()
            offset = int(amount.value or 0) * (1 if item.function == "lag" else -1)
            behind, ahead = max(offset, 0), max(-offset, 0)
            return Reach(ahead, behind, behind, ahead)
        case "percent_rank" | "cume_dist" | "ntile" | "session_start" | "session_end":
            return Reach()
    frame = item.frame
    if frame is None or (frame.unit == "range" and frame.begin is None and frame.end == 0):
        return Reach(0, MOST, MOST, 0, peers=True) if item.order else Reach()
    if frame.unit != "rows":
        return Reach()
    begin = MOST if frame.begin is None else max(-int(frame.begin), 0)
    end = MOST if frame.end is None else max(int(frame.end), 0)
    return Reach(end, begin, begin, end)


def _looks_back(item: OverItem) -> bool:
    """Whether a row's value is of itself and what comes before it."""
    if item.function in _RANKS:
        return True
    reach = _reach(item, only=False)
    return reach.beyond == 0 and not reach.peers


def _cut(plan: Over, condition: Node | None) -> tuple[str, int] | None:
    """(a rank, the most of it) that a condition demands: rows with more are not read."""
    ranked = {item.name: item.function for item in plan.items if item.function in _RANKS}
    for node in conjuncts(condition):
        most: tuple[str, int] | None = None
        match node:
            case Between(Column(name), _, Constant(int(value))) if name in ranked:
                most = ranked[name], value
            case Compare(operator, Column(name), Constant(int(value))) if name in ranked:
                most = _at_most(ranked[name], operator, value)
            case Compare(operator, Constant(int(value)), Column(name)) if name in ranked:
                most = _at_most(ranked[name], MIRRORED[operator], value)
        if most is not None:
            return most[0], max(0, min(most[1], MOST))
    return None


def _at_most(function: str, operator: str, value: int) -> tuple[str, int] | None:
    return {"<": (function, value - 1), "<=": (function, value), "=": (function, value)}.get(operator)
