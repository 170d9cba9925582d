"""Memory that equal parts leave unused, dealt out to the queries whose errors it lessens most, and taken back.

Equal parts (`bounds`) suffice for as many tuples as there is room for twice over, so about half of the bound stays
unused.  Once all queries have been as they are for a window, what is left goes, in steps of twice the sample or twice
the filter, to who errs least by it for its bytes.  A step takes what the same rule takes that equal parts go by, so it
is no surer to be too large.  What another might still need under equal parts is left for it; where one needs what was
dealt out after all (rates have changed), all of it is taken back: filters are halved at once, a sample goes back to its
level, and its tables are made anew, as small as they may be, when what it holds has left.
Source: STREAM (CIDR 2003), section 5.3, for the plans of one query whose rates are known; here of queries that run.
"""

from __future__ import annotations

from collections.abc import Sequence

from nile.execution.live.means.gate import Gate
from nile.execution.live.means.given import Cost

__all__ = ["deal", "errs_less"]

_LEAST = 1e-3
"""Of an error: for less nobody is given anything."""
_SPARE = 0.25
"""Of what one holds: so much is left for it where equal parts would let it have no more for long."""


def deal(gates: Sequence[Gate], spare: float, cost: Cost, soon: float) -> None:
    """Give what is free to plans, or take back what was given: `spare` bytes are free, less than 0 if too few.

    soon: bytes that a plan may come to hold before anyone looks again.  Cost: O(plans log plans).
    """
    weights = sum(each.weight for each in gates)
    given = sum(each.extra for each in gates)
    if given and (spare < 0 or any(_pressed(each, cost, spare, given, weights) for each in gates)):
        for each in gates:
            each.give_back()
        given = 0.0
    for each in gates:
        each.shrink()
    settled = [each.settled(sum(each.came.values())) for each in gates]
    if all(settled) and spare > 0:
        for each in gates:
            each.settle()
        left = {id(each): _left_for(each, (spare + given) * each.weight / weights, soon) for each in gates}
        steps = [(each, *each.step(cost)) for each in gates if each.wanting]
        for each, takes, limit in sorted(steps, key=lambda step: errs_less(*step[:2]), reverse=True):
            if errs_less(each, takes) > 0.0 and takes <= spare - sum(left.values()) + left[id(each)]:
                each.give(takes, limit)
                spare, left[id(each)] = spare - takes, 0.0
    given = sum(each.extra for each in gates)
    for each in gates:
        each.kept = _left_for(each, max(0.0, spare + given) * each.weight / weights, soon) if given else 0.0
        if given:
            each.stay()


def errs_less(gate: Gate, cost: float) -> float:
    """By how much a plan errs less for each byte of its next step; 0 where that is too little."""
    gain = gate.weight * gate.gain
    return gain / max(cost, 1.0) if gain >= _LEAST else 0.0


def _pressed(gate: Gate, cost: Cost, spare: float, given: float, weights: float) -> bool:
    """Whether a plan would take more in equal parts if nothing had been given."""
    if not gate.wanting or gate.extra:
        return False
    share = gate.weight / weights
    return max(0.0, spare) * share < gate.in_equal_parts(cost) <= (spare + given) * share


def _left_for(gate: Gate, part: float, soon: float) -> float:
    """What a plan may still take of its equal part, unless it was given more."""
    if gate.extra:
        return 0.0
    if gate.made.window is None:
        return part
    return min(part, _SPARE * gate.size if gate.wanting else max(gate.size, soon))
