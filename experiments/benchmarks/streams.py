"""The synthetic streams that accuracy is measured on: two streams over 20,000 items with drift and bursts.

Items follow Zipf's law with the exponent that gives a wanted selectivity: the share of a window's tuples that
match a tuple, the sum of squared item probabilities.  Which items are popular changes, for both streams alike,
every one to two windows; gaps alternate between calm and bursts of a fifth of the gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from nile.operators.inputs.joining import Joinable, Loaded
from nile.streams.accounting import Accounting

__all__ = ["ITEMS", "WINDOW_TUPLES", "Workload", "exponent_for", "streams", "workload"]

Array = np.ndarray[Any, Any]
ITEMS = 20_000
WINDOW_TUPLES = 6_000
_GAP = 1_000_000  # ns between two tuples of a stream, on average
_CALM, _BURST = 1_200, 600  # mean tuples of a stretch
_SPEED = 5.0


@dataclass(frozen=True, slots=True)
class Workload:
    """Two streams ready to join within `window` ns; selectivity: what was asked for."""

    joined: Joinable
    window: int
    selectivity: float


def exponent_for(selectivity: float, items: int = ITEMS) -> float:
    """The Zipf exponent whose squared probabilities sum to `selectivity`, to six digits."""
    ranks = np.arange(1, items + 1, dtype=np.float64)
    low, high = 0.0, 4.0
    for _ in range(40):
        middle = (low + high) / 2
        weights = ranks**-middle
        if float((weights**2).sum() / weights.sum() ** 2) < selectivity:
            low = middle
        else:
            high = middle
    return round((low + high) / 2, 6)


def workload(selectivity: float, seed: int, *, tuples: int = 4 * WINDOW_TUPLES, items: int = ITEMS) -> Workload:
    """`tuples` of each stream; a window holds 6,000 of a stream on average."""
    window = WINDOW_TUPLES * _GAP
    return Workload(Joinable(*streams(selectivity, seed, tuples=tuples, items=items), window), window, selectivity)


def streams(selectivity: float, seed: int, *, tuples: int, items: int = ITEMS) -> tuple[Loaded, Loaded]:
    """The two streams of a workload, with a tuple each millisecond on average."""
    rng = np.random.Generator(np.random.PCG64([seed, 20]))
    weights = np.arange(1, items + 1, dtype=np.float64) ** -exponent_for(selectivity, items)
    reached = np.cumsum(weights)
    span = tuples * _GAP
    changes = np.cumsum(rng.uniform(1.0, 2.0, tuples // WINDOW_TUPLES + 2)) * WINDOW_TUPLES * _GAP
    changes = changes[changes < span]
    holders = np.stack([rng.permutation(items) for _ in range(changes.shape[0] + 1)])
    made = []
    for name in ("left", "right"):
        ts = _times(rng, tuples)
        rank = np.minimum(np.searchsorted(reached, rng.random(tuples) * reached[-1], side="right"), items - 1)
        keys = holders[np.searchsorted(changes, ts, side="right"), rank]
        accounting = Accounting(tuples_in=tuples, applied=tuples)
        made.append(Loaded(name, ts, pa.chunked_array([pa.array(keys)]), accounting))
    return made[0], made[1]


def _times(rng: np.random.Generator, tuples: int) -> Array:
    """Ordered times with mean gap `_GAP`: calm stretches, and bursts at five times their rate."""
    bursty = np.zeros(tuples, bool)
    at = 0
    while at < tuples:
        at += 1 + int(rng.exponential(_CALM))
        length = 1 + int(rng.exponential(_BURST))
        bursty[at : at + length] = True
        at += length
    gaps = rng.exponential(1.0, tuples) * np.where(bursty, 1.0 / _SPEED, 1.0)
    times: Array = np.cumsum(np.maximum(1, np.rint(gaps * (_GAP * tuples / gaps.sum())))).astype(np.int64)
    return times
