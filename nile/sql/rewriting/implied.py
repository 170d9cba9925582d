"""Conditions that follow from others through a join: what its partners must satisfy, too.

A column that equals one of another input satisfies that one's conditions; a tuple within a window of one whose time is
bounded has a bounded time.  Streams that are joined are selected from before they are, all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple, TypeGuard

from nile.expressions.tree import (
    Between,
    Column,
    Compare,
    Comparison,
    Constant,
    In,
    Like,
    Logic,
    Node,
    Not,
    children_of,
    columns_of,
    comparisons_of,
    conjunction,
    conjuncts,
    rename,
)
from nile.sql.plan import Field, Join, Outer, Plan, Relation, Rows, Stream, map_inputs
from nile.summaries.heavy import pa

__all__ = ["Times", "with_implied"]

_COMPARES = (Between, Column, Compare, Constant, In, Like, Logic, Not)
"""Of these alone a condition is that what is equal satisfies alike: -0.0 as 0.0."""
_FROM = {"left": (0,), "anti": (0,), "mark": (0,), "right": (1,), "semi": (0, 1)}
"""Whose conditions in an outer join their partners must satisfy."""
_MOST = (1 << 63) // 1_000 - 1
"""Microseconds of the latest time."""


class Times(NamedTuple):
    """Of a stream.  kind: of the column; low, high: whole microseconds between which all times are known to be."""

    kind: pa.DataType
    low: int | None = None
    high: int | None = None


def with_implied(plan: Plan, times: Mapping[str, Times]) -> Plan:
    """The plan with the conditions that follow, where they can be asked of a stream or a relation as it is read.

    times: of the streams, by name.
    """
    plan = map_inputs(plan, lambda each: with_implied(each, times))
    if isinstance(plan, Join):
        inputs = list(plan.inputs)
        for at, to, before, after in _reaches(plan):
            _bound_times(inputs, at, to, (before, after), times)
        _spread(inputs, plan.equal, range(len(inputs)))
        return plan if inputs == list(plan.inputs) else replace(plan, inputs=tuple(inputs))
    if isinstance(plan, Outer) and plan.kind in _FROM:
        inputs = [plan.left, plan.right]
        _spread(inputs, plan.equal, _FROM[plan.kind])
        return plan if inputs == [plan.left, plan.right] else replace(plan, left=inputs[0], right=inputs[1])
    return plan


def _selectable(plan: Plan) -> TypeGuard[Stream | Relation]:
    return isinstance(plan, Relation) or (isinstance(plan, Stream) and not isinstance(plan.window, Rows))


def _selected(plan: Stream | Relation, conditions: Iterable[Node]) -> Stream | Relation:
    own = conjuncts(plan.where)
    added = [each for each in dict.fromkeys(conditions) if each not in own]
    return replace(plan, where=conjunction([*own, *added])) if added else plan


def _spread(inputs: list[Plan], equal: Sequence[tuple[str, str]], sources: Sequence[int]) -> None:
    """Conditions on one column go to those that equal it, until there is no other."""
    fields = {field.name: (at, field.type) for at, each in enumerate(inputs) for field in each.fields}
    pairs = [pair for one in equal for pair in (one, one[::-1])]
    before: list[Plan] = []
    while before != inputs:
        before = list(inputs)
        for given, other in pairs:
            (at, kind), (to, wanted) = fields[given], fields[other]
            source, target = inputs[at], inputs[to]
            if at in sources and kind == wanted and _selectable(source) and _selectable(target):
                inputs[to] = _selected(target, _renamed(source.where, given, other))


def _renamed(where: Node | None, given: str, other: str) -> Iterator[Node]:
    for each in conjuncts(where):
        if columns_of(each) == (given,) and _compares(each):
            yield rename(each, lambda column: replace(column, name=other))


def _compares(node: Node) -> bool:
    return isinstance(node, Like) or (isinstance(node, _COMPARES) and all(map(_compares, children_of(node))))


def _reaches(plan: Join) -> Iterator[tuple[int, int, int, int]]:
    """(an input, another, how much earlier its partners there may be, how much later), ns."""
    for each in plan.constraints:
        yield each.left, each.right, each.window, each.window
        yield each.right, each.left, each.window, each.window
    windows = {at: each.window for at, each in enumerate(plan.inputs) if isinstance(each, Stream)}
    for at, to in permutations(windows, 2) if not plan.constraints else ():
        own, other = windows[at], windows[to]
        if isinstance(own, int) and isinstance(other, int):  # the earlier one is still in its window
            yield at, to, other, own


def _bound_times(inputs: list[Plan], at: int, to: int, reach: tuple[int, int], times: Mapping[str, Times]) -> None:
    """Times of `to` are bounded by those of `at`, so many ns further."""
    source, target = inputs[at], inputs[to]
    if _selectable(source) and _selectable(target) and isinstance(source, Stream) and isinstance(target, Stream):
        known, own = times[source.name], times[target.name]
        time = Field(f"{target.alias}.{target.time}", own.kind)
        bounds = list(_further(source, known, own, *reach))
        if not bounds or own.kind != known.kind:
            return
        if all(field.name != time.name for field in target.fields):
            target = replace(target, fields=(*target.fields, time))
        column = Column(time.name, "timestamp")
        added = [Compare(operator, column, Constant(value, "timestamp")) for operator, value in bounds]
        inputs[to] = _selected(target, added)


def _further(source: Stream, known: Times, own: Times, before: int, after: int) -> Iterator[tuple[Comparison, int]]:
    """Bounds of the times of a stream's partners, which may be so many ns earlier or later.

    What follows from the times that all tuples have is said where it leaves some of the partners out.
    """
    for operator, bound in _bounds(source.where, f"{source.alias}.{source.time}"):
        low = operator in (">", ">=")
        value = bound + before // -1_000 if low else bound - after // -1_000
        if abs(value) <= _MOST:
            yield ">=" if low else "<=", value
    if known.low is not None and own.low is not None and own.low < (value := known.low + before // -1_000):
        yield ">=", value
    if known.high is not None and own.high is not None and own.high > (value := known.high - after // -1_000):
        yield "<=", value


def _bounds(where: Node | None, name: str) -> Iterator[tuple[Comparison, int]]:
    """(operator, microseconds) of the conditions that bound it by a time."""
    for each in conjuncts(where):
        for operator, bound in comparisons_of(each, name):
            if bound.kind == "timestamp" and isinstance(bound.value, int):
                both: tuple[Comparison, ...] = ("<=", ">=")
                yield from ((one, bound.value) for one in (both if operator == "=" else (operator,)))
