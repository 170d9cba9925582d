"""What a sample in two phases keeps besides: its cells, one for each group of strata and kind of age."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.preferences.phases import Phases, cells_of

__all__ = ["cells_of_plan", "set_off"]

Array = np.ndarray[Any, Any]
_GOLDEN = 0.6180339887498949


def cells_of_plan(phases: Phases | None, reach: float) -> dict[str, Array]:
    """The fields `share`, `group`, `cells` and `thin` of `nile.operators.join.sampling.Sampling`.

    reach: the most, in ns, that the tuples of a pair lie apart.  The heaviest strata are groups of their own.
    """
    if phases is None:
        return {
            "share": np.zeros((0, 0)),
            "group": np.zeros(0, np.int64),
            "cells": np.zeros(0),
            "thin": np.zeros(5),
        }
    groups, ages = cells_of(phases.pairs)
    group = np.full(phases.pairs.shape[0], groups - 1)
    heaviest = np.argsort(-phases.pairs, kind="stable")[: groups - 1]
    group[heaviest] = np.arange(heaviest.shape[0])
    thin = np.array([0.0, ages / (max(1.0, reach) + 1.0), 1.0, 0.0, ages])
    return {"share": phases.share, "group": group, "cells": np.zeros(groups * ages), "thin": thin}


def set_off(cells: Array, luck: float) -> None:
    """How far each cell is towards its first pair: anywhere, evenly, so that each pair has just its probability."""
    cells[:] = (luck + np.arange(cells.shape[0]) * _GOLDEN) % 1.0
