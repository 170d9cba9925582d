"""What a sample in two phases keeps besides: its cells, one for each group of strata and kind of age."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.preferences.phases import Phases, cells_of

__all__ = ["cells_of_plan", "set_off"]

Array = np.ndarray[Any, Any]
_GOLDEN = 0.6180339887498949


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
