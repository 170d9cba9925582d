"""The rates of strata by how much a pair of the sample weighs, and the weight that a budget pays for."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import inlined, kernel

__all__ = ["solve"]

Array = np.ndarray[Any, Any]
_ROOTS = 12
_SPREAD, _ROOT, _EVEN, _CUBE, _KEPT, _COST = range(6)
"""Rows of room: what no weight changes; what is kept of a stream, and what taking in a key costs."""


@inlined
def _thinned(kept: float, many: float, left: float, right: float) -> Any:
    """(of left, of right): the parts of either stream that come in, `kept` tuples of the one with fewer."""
    fewer_right = left > right
    return min(1.0, (many if fewer_right else kept) / left), min(1.0, (kept if fewer_right else many) / right)


@inlined
def _costs(of_left: float, of_right: float, taking: float, loads: Array, s: int, k: int) -> Any:
    return taking * (of_left * loads[s, k, 0] + of_right * loads[s, k, 1])


@inlined
def _weigh(
    weight: float, keys: Array, left: Array, right: Array, pairs: Array, loads: Array, taking: float, emitting: float,
    blocks: bool, spared: float, least: float, knobs: Array, room: Array, level: Array, of_left: Array, of_right: Array,
    rate: Array,
) -> float:  # fmt: skip
    """The rates at a weight, and what all segments then cost.  See `solve`."""
    lowest, ages, whole_keys = knobs
    worth = emitting / (ages * weight * weight)
    segments, strata = keys.shape
    for s in range(segments):
        for k in range(strata):
            room[_CUBE, s, k] = pairs[s, k] * pairs[s, k] * room[_SPREAD, s, k] * worth / taking
            room[_KEPT, s, k] = np.sqrt(room[_CUBE, s, k])
        for _ in range(_ROOTS):
            for k in range(strata):
                room[_KEPT, s, k] = np.sqrt(np.sqrt(room[_CUBE, s, k] * room[_KEPT, s, k]))
        for k in range(strata):
            of_pairs, root = pairs[s, k], room[_ROOT, s, k]
            in_level = min(1.0, of_pairs * np.sqrt(whole_keys * room[_EVEN, s, k] * worth / room[_COST, s, k]))
            more = room[_KEPT, s, k]
            if not blocks:
                more = max(of_pairs * np.sqrt(worth / taking), more)
            kept = root if in_level < 1.0 else max(root, more)
            many = np.sqrt(of_pairs * max(left[s, k], right[s, k]) * worth / taking)
            many = kept if in_level < 1.0 or kept < min(left[s, k], right[s, k]) else max(kept, many)
            of_left[s, k], of_right[s, k] = _thinned(kept, many, left[s, k], right[s, k])
            level[s, k] = max(in_level, lowest)
            room[_KEPT, s, k] = kept
    drawing = 0.0
    for s in range(segments):
        level[s, 0] = max(level[s, 0], min(1.0, least / min(of_left[s, 0], of_right[s, 0])))
        of_left[s, 0] = max(of_left[s, 0], least / level[s, 0])
        of_right[s, 0] = max(of_right[s, 0], least / level[s, 0])
        drawing += keys[s, 0] * pairs[s, 0] * (level[s, 0] * of_left[s, 0] * of_right[s, 0])
    first = min(1.0, spared / max(1e-9, emitting * drawing))
    total = 0.0
    for s in range(segments):
        for k in range(strata):
            came = level[s, k] * of_left[s, k] * of_right[s, k]
            drawn = min(1.0, 1.0 / (weight * came))
            drawn = max(drawn, first) if k == 0 else drawn
            rate[s, k] = drawn
            taken = _costs(of_left[s, k], of_right[s, k], taking, loads, s, k)
            cost = keys[s, k] * (level[s, k] * taken + emitting * pairs[s, k] * came * drawn)
            total += cost if keys[s, k] > 0.0 else 0.0
    return total


@kernel
def solve(
    keys: Array, left: Array, right: Array, pairs: Array, loads: Array, budget: float, taking: float, emitting: float,
    blocks: bool, spared: float, steps: int, low: float, high: float, knobs: Array, room: Array, level: Array,
    of_left: Array, of_right: Array, rate: Array,
) -> None:  # fmt: skip
    """The rates at the least weight that a budget pays for, by halving the logarithm of [low, high] `steps` times.

    keys, left, right, pairs: float64 [s, k], loads: float64 [s, k, 2], of `nile.preferences.strata.Sizes`; knobs:
    float64 [3], the least level, and how many times drawing pairs and missing keys whole count; room: float64 [6, s,
    k], row 4 of which is left with how many tuples of a stream are kept; level, of_left, of_right, rate: float64 [s,
    k], also of strata without keys.  What they mean, and the formulas: `nile.preferences.strata`.  O(s k steps).
    """
    segments, strata = keys.shape
    unlisted = 0.0
    for s in range(segments):
        unlisted += keys[s, 0] * loads[s, 0, 0] + keys[s, 0] * loads[s, 0, 1]
        for k in range(strata):
            a, b = left[s, k], right[s, k]
            spread = max(1.0, a * b / pairs[s, k])
            root = np.sqrt(spread)
            of_a, of_b = _thinned(root, root, a, b)
            missed, gone = 1.0 / of_a - 1.0, 1.0 / of_b - 1.0
            room[_SPREAD, s, k], room[_ROOT, s, k] = spread, root
            room[_EVEN, s, k] = 1.0 + missed / a + gone / b + missed * gone / pairs[s, k]
            room[_COST, s, k] = _costs(of_a, of_b, taking, loads, s, k)
    least = min(1.0, spared / max(1e-9, taking * unlisted))
    for _ in range(steps):
        middle = np.sqrt(low * high)
        cost = _weigh(
            middle, keys, left, right, pairs, loads, taking, emitting, blocks, spared, least, knobs, room, level,
            of_left, of_right, rate,
        )  # fmt: skip
        if cost > budget:
            low = middle
        else:
            high = middle
    _weigh(
        high, keys, left, right, pairs, loads, taking, emitting, blocks, spared, least, knobs, room, level, of_left,
        of_right, rate,
    )  # fmt: skip
