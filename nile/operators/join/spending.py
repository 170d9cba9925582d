"""What a sampled join plans to spend, and where: from each part of its input on, and what is to be left at the end.

And what a sample in two phases keeps besides: its cells, one for each group of strata and kind of age.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.operators.common.data import JoinInput
from nile.operators.common.plan import JoinPlan
from nile.preferences.phases import Phases, cells_of

__all__ = ["BLOCKS", "cells_of_plan", "kept_back", "planned_from", "set_off"]

Array = np.ndarray[Any, Any]
BLOCKS = 256
"""Parts of the input of which each knows what is planned to be spent in it."""

_SURELY = 3.0  # standard deviations
_GOLDEN = 0.6180339887498949


def kept_back(taking: float, emitting: float, scanning: float | None, lines: int, cells: int) -> float:
    """What is to be left at the end: what draws may have cost beyond what was expected, and two tuples.

    Rates follow what draws should have cost (`nile.operators.join.sample_kernels`), so what they did cost is off at
    the end by what ticks are: those of a line in a stretch that begins and ends anywhere in its units have variance
    1 / 3, those of a cell, which has one a unit, 1 / 6.  A run with less left would stop short of its last pairs.
    """
    if scanning is None:
        return 2.0 * taking + _SURELY * emitting * math.sqrt(lines / 3.0)
    return 2.0 * taking + _SURELY * math.sqrt(scanning**2 * lines / 3.0 + emitting**2 * cells / 6.0)


def planned_from(
    plan: JoinPlan, data: JoinInput, begins: Array, ends: Array, taking: Array, emitting: Array, held: Array
) -> tuple[Array, Array]:
    """What is planned to be spent from each of BLOCKS + 1 places on: tuples come evenly, pairs where they are.

    And what is held of it.  taking, emitting, held: float64 [s], of each segment.
    """
    n = data.order.shape[0]
    places = np.linspace(0, n, BLOCKS + 1).astype(np.int64)
    lengths = np.maximum(1, ends - begins)
    by_tuple = np.repeat(taking / lengths, ends - begins)
    pairs = data.costs - (plan.costs.insert + plan.costs.lookup)
    found = np.maximum(1e-9, np.add.reduceat(pairs, begins)) if n else np.ones(1)
    by_pair = pairs * np.repeat(emitting / found, ends - begins)
    reached = np.concatenate([[0.0], np.cumsum(by_tuple + by_pair)])
    kept = np.concatenate([[0.0], np.cumsum(held)])
    return reached[-1] - reached[places], kept[-1] - np.interp(places, np.append(0, ends), kept)


def cells_of_plan(phases: Phases | None, reach: float) -> dict[str, Array]:
    """The fields `share`, `of`, `cells` and `thin` of `nile.operators.join.sampling.Sampling`.

    reach: the most, in ns, that the tuples of a pair lie apart.
    """
    if phases is None:
        none = np.zeros(0)
        return {"share": np.zeros((0, 0)), "of": np.zeros((0, 2), np.int64), "cells": none, "thin": np.zeros(5)}
    group, ages = cells_of(phases.pairs)
    first = np.cumsum(ages) - ages
    thin = np.array([0.0, 1.0 / (max(1.0, reach) + 1.0), 1.0, 0.0, 0.0])
    return {
        "share": phases.share,
        "of": np.column_stack([first[group], ages[group]]),
        "cells": np.zeros(ages.sum()),
        "thin": thin,
    }


def set_off(cells: Array, luck: float) -> None:
    """How far each cell is towards its first pair: anywhere, evenly, so that each pair has just its probability."""
    cells[:] = (luck + np.arange(cells.shape[0]) * _GOLDEN) % 1.0
