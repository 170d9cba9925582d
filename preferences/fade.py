"""FADE FACTOR: how much less the past is worth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.summaries.errors import ConfigError

__all__ = ["Fade"]


@dataclass(frozen=True, slots=True)
class Fade:
    """How much less a promising region is worth for each granularity it lies back.

    priority = factor ** (granularity - 1) * density;  density: expected matches per second of zone.
    factor in (0, 1]; 1 never fades.  Source: promising tuples, section 4.1.1; there the count is not divided
    by the zone's length, which lets long old zones drown short new ones.
    """

    factor: float = 1.0

    def __post_init__(self) -> None:
        number = isinstance(self.factor, (int, float)) and not isinstance(self.factor, bool)
        if not (number and math.isfinite(self.factor) and 0.0 < self.factor <= 1.0):
            raise ConfigError(
                f"fade: needed a factor in (0, 1]; got {self.factor!r}; 1 never fades, 0.8 is the paper's"
            )

    def __call__(self, density: float, granularity: int) -> float:
        """The priority of a region of that density in granularity 1, 2, ..."""
        return density * float(self.powers(granularity)[granularity - 1])

    def powers(self, depth: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """factor ** 0 .. factor ** (depth - 1), by repeated multiplication (the same bits everywhere)."""
        out = np.ones(depth)
        for g in range(1, depth):
            out[g] = out[g - 1] * self.factor
        return out
