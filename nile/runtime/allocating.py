"""How the memory of a plan is dealt out to its synopses, so that its answer is as precise as it can be.

Source: STREAM (CIDR 2003), section 5.3: a nonlinear problem for a packaged solver there.  Here bits move from the
synopsis that loses least to the one that gains most, in steps that get smaller, which needs neither derivatives nor
that more memory is always better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nile.runtime.precision import Node, expected, slots_of
from nile.summaries.errors import ConfigError

__all__ = ["allocated", "equal_split", "least_error"]

Array = np.ndarray[Any, Any]

_UNITS = 1024
"""In which a budget is counted: what something takes of it is rounded up."""
_HALVINGS = 8
_MOVES = 6
_WORTH = 0.02
"""FP + FN less than by an equal split: for less nothing is moved, since sizes are only expected."""


def equal_split(node: Node, bits: int) -> list[int]:
    """As many bits for each synopsis."""
    many = slots_of(node)
    return [bits // many + (k < bits % many) for k in range(many)]


def allocated(node: Node, domain: int, bits: int, sizes: Sequence[float] = ()) -> list[int]:
    """Bits of each synopsis of a plan, in the order of `expected`, `bits` together.

    sizes: parts to begin with, beside an equal split.  Never expected to be worse than an equal split.
    Cost: at most 2 * synopses * 48 evaluations of the plan for each beginning.  Raises ConfigError.
    """
    many = slots_of(node)
    if bits < many or many < 1:
        raise ConfigError(
            f"allocation: needed a plan with synopses and a bit for each; got {many} and {bits} bits; give more memory"
        )
    equal = equal_split(node, bits)
    begins = [equal]
    if sizes:
        parts = [max(1, int(bits * size / sum(sizes))) for size in sizes]
        parts[parts.index(max(parts))] += bits - sum(parts)
        begins.append(parts)
    best = min((_moved(node, domain, begin) for begin in begins), key=lambda each: expected(node, domain, each).error)
    gain = expected(node, domain, equal).error - expected(node, domain, best).error
    return best if gain >= _WORTH else equal


def _moved(node: Node, domain: int, begin: Sequence[int]) -> list[int]:
    held = list(begin)
    error = expected(node, domain, held).error
    step = sum(held) // 4
    for _ in range(_HALVINGS):
        for _ in range(_MOVES):
            more = [_changed(node, domain, held, k, step) for k in range(len(held))]
            less = [_changed(node, domain, held, k, -step) for k in range(len(held))]
            pairs = sorted(
                (more[into] + less[out], into, out)
                for into in range(len(held))
                for out in range(len(held))
                if into != out and held[out] > step
            )
            for _, into, out in pairs[:3]:
                moved = list(held)
                moved[into], moved[out] = moved[into] + step, moved[out] - step
                if (found := expected(node, domain, moved).error) < error - 1e-9:
                    held, error = moved, found
                    break
            else:
                break
        step = max(1, step // 2)
    return held


def _changed(node: Node, domain: int, held: list[int], k: int, step: int) -> float:
    return expected(node, domain, [*held[:k], max(1, held[k] + step), *held[k + 1 :]]).error


def least_error(curves: Sequence[Sequence[tuple[float, float]]], budget: float) -> list[int]:
    """Which point of each curve of (memory, error) to choose so that errors are least together, within a budget.

    Of equal ones the first of a curve; the first of all, where no choice is within the budget.  Memory may be below 0:
    others may have it.  Exact but for rounding.  Cost: O(points) * _UNITS.
    """
    least = [min(memory for memory, _ in curve) for curve in curves]
    free = budget - sum(least)
    if free < 0.0:
        return [0] * len(curves)
    best: Array = np.zeros(_UNITS + 1)  # the errors of curves so far, within so many units
    picks: list[tuple[list[int], Array]] = []
    for curve, own in zip(curves, least, strict=True):
        shares = [(memory - own) / max(free, 1e-300) for memory, _ in curve]
        units = [math.ceil(_UNITS * min(share, 2.0)) for share in shares]
        found, pick = np.full(_UNITS + 1, np.inf), np.zeros(_UNITS + 1, np.int64)
        for at, (takes, (_, error)) in enumerate(zip(units, curve, strict=True)):
            if takes <= _UNITS:
                errors = best[: _UNITS + 1 - takes] + error
                better = errors < found[takes:]
                found[takes:][better] = errors[better]
                pick[takes:][better] = at
        best = found
        picks.append((units, pick))
    chosen, there = [], _UNITS
    for units, pick in reversed(picks):
        at = int(pick[there])
        chosen.append(at)
        there -= units[at]
    return chosen[::-1]
