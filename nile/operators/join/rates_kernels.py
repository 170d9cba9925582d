"""What arrivals add to the variance of totals of live samples of keys (`nile.operators.join.rates_met`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nile.preferences.arrival_kernels import unit
from nile.summaries.kernels import U8, kernel

Array = np.ndarray[Any, Any]


@kernel
def meet_rates(matches: Array, share: Array, key: Array, salt: int, level: float, by_key: Array) -> float:
    """Adds to by_key, by the hash of each key, the root of what its tuples add; returns the share met last.

    matches: float64 [n]; share: float64 [n], of keys, that a tuple came in with, 0 of a refused one; key: uint64 [n];
    salt: of the keys' places, below 0 where tuples are refused by coins of their own, too; level: the share met before.
    A key that was refused lies at or above the level: this has fallen to there at least.
    """
    cells = U8(by_key.shape[0])
    for i in range(matches.shape[0]):
        if share[i] > 0.0:
            level = share[i]
        elif salt >= 0:
            level = min(level, max(1e-9, unit(key[i], salt)))
        by_key[np.int64(key[i] % cells)] += matches[i] * math.sqrt((1.0 - level) / level)
    return level
