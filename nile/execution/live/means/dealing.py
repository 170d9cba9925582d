"""Memory that equal parts leave unused, dealt out to running queries so that all together err least, and taken back.

Equal parts (`bounds`) suffice for as many tuples as there is room for twice over, so about half of the bound stays
unused.  Once all queries have been as they are for a window, each says by how much it would err with more memory, and
with less (`Given.curve`): from the bytes, tuples and filled cells that it has.  `nile.runtime.allocating.least_error`
chooses a point of each curve; queries go there, samples step by step, since the next is foretold better after one, and
what is measured then is dealt with anew.  What another might still need under equal parts is left for it; where one
needs what was dealt out after all (rates have changed), all of it is taken back: filters are halved at once, a sample
goes back to its level, and its tables are made anew, as small as they may be, when what it holds has left.
Source: STREAM (CIDR 2003), section 5.3, for the plans of one query whose rates are known; here of queries that run.
"""

from __future__ import annotations

from collections.abc import Sequence

from nile.execution.live.means.gate import Gate
from nile.execution.live.means.given import LEAST, Cost, Point
from nile.runtime.allocating import least_error

__all__ = ["deal"]

_SPARE = 0.25
"""Of what one holds: so much is left for it where equal parts would let it have no more for long."""


def deal(gates: Sequence[Gate], spare: float, cost: Cost, soon: float) -> None:
    """Give what is free to plans, or take back what was given: `spare` bytes are free, less than 0 if too few.

    soon: bytes that a plan may come to hold before anyone looks again.  Cost: O(plans), as of `least_error`.
    """
    weights = sum(each.weight for each in gates)
    given = sum(max(0.0, each.extra) for each in gates)
    if given and (spare < 0 or any(_pressed(each, cost, spare, given, weights) for each in gates)):
        for each in gates:
            each.give_back()
        given = 0.0
    left = [_left_for(each, max(0.0, spare + given) * each.weight / weights, soon) for each in gates]
    for each in gates:
        each.hold(there=spare >= sum(left))
        each.shrink()
    settled = [each.settled(sum(each.came.values())) for each in gates]
    if all(settled) and spare > 0:
        for each in gates:
            each.settle()
        spare -= _optimise(gates, spare, left, cost)
    given = sum(max(0.0, each.extra) for each in gates)
    for each in gates:
        each.kept = _left_for(each, max(0.0, spare + given) * each.weight / weights, soon) if given else 0.0
        if given:
            each.stay()


def _optimise(gates: Sequence[Gate], spare: float, left: Sequence[float], cost: Cost) -> float:
    """Let plans go to where their errors are least together; bytes that they may hold more by that.

    left: bytes for each of them while it stays as it is.
    """
    given, free = 0.0, spare - sum(left)
    whole = [each.curve(cost) for each in gates]
    curves = [_worthwhile(points, each.weight) for each, points in zip(gates, whole, strict=True)]
    told = [
        [(point.bytes - (own if point.steps > 0 else 0.0), each.weight * point.error) for point in points]
        for each, points, own in zip(gates, curves, left, strict=True)
    ]
    chosen = [points[at] for points, at in zip(curves, least_error(told, max(0.0, free)), strict=True)]
    moves = [
        (each.weight * (points[0].error - to.error) / max(to.bytes, 1.0), each, each.first(points, to), own)
        for each, points, to, own in zip(gates, whole, chosen, left, strict=True)
        if to.steps
    ]
    for _, each, to, own in sorted(moves, key=lambda move: move[0], reverse=True):
        if to.steps < 0:  # what it lets go of is there the next time
            each.take(to)
        elif to.bytes - own <= free:
            each.take(to)
            free, given = free + own - to.bytes, given + to.bytes
    return given


def _worthwhile(points: list[Point], weight: float) -> list[Point]:
    """Those of a curve that one might go to."""
    now = points[0]
    return [now, *(each for each in points[1:] if each.steps < 0 or weight * (now.error - each.error) >= LEAST)]


def _pressed(gate: Gate, cost: Cost, spare: float, given: float, weights: float) -> bool:
    """Whether a plan would take more in equal parts if nothing had been given."""
    if not gate.wanting or gate.extra > 0.0:
        return False
    share = gate.weight / weights
    return max(0.0, spare) * share < gate.in_equal_parts(cost) <= (spare + given) * share


def _left_for(gate: Gate, part: float, soon: float) -> float:
    """What a plan may still take of its equal part, unless it was given more."""
    if gate.extra > 0.0:
        return 0.0
    if gate.made.window is None:
        return part
    if gate.wanting:
        return min(part, _SPARE * gate.size)
    return min(part, gate.size if gate.tables else max(gate.size, soon))  # with less any push might be too large
