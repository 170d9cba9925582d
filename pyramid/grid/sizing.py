"""How wide a summary must be: for an error that is asked for, or for the memory that it may take.

The error is the standard error of one key's count over all that is kept, in one row, as a share of the tuples: the root
mean square over keys, sqrt(F2 / width) / n, where F2 is the sum of the squared counts.  What the data decides is how
concentrated they are, F2 / n ** 2: 1 where all tuples have one key, 1 / d where d keys are equally frequent.
Source: Charikar, Chen, Farach-Colton 2002, section 3.2 (the variance of a row).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.errors import ConfigError, MemoryRefused

__all__ = ["concentration_of", "for_error", "for_memory", "outgrown"]

Array = np.ndarray[Any, Any]
_COUNTER = 8
_MOST_COLUMNS = 1 << 20
_HEADROOM = 2.0
"""A summary that has become too narrow is made for data so many times as concentrated as it holds."""


def concentration_of(codes: Array) -> float:
    """F2 / n ** 2 of key codes, int32 [n], -1 null, which is not counted; 0 of none."""
    counts = np.bincount(codes[codes >= 0]).astype(np.float64)
    n = float(counts.sum())
    return float((counts**2).sum()) / n**2 if n else 0.0


def for_error(spec: SummarySpec, error: float, concentration: float = 1.0) -> SummarySpec:
    """The spec with the fewest columns whose error is at most that, for data so concentrated (1: whatever comes).

    error: above 0, below 1.  Raises MemoryRefused when these could not fit.
    """
    width = min(concentration, 1.0) / error**2
    columns = 1
    while columns * spec.buckets < width and columns < _MOST_COLUMNS:
        columns *= 2
    if columns * spec.buckets < width:
        raise MemoryRefused(
            f"summary error: needed {_MOST_COLUMNS:,} columns at most; got {error:g}, which asks for "
            f"{math.ceil(width / spec.buckets):,} in each of {spec.buckets} buckets; allow a larger error"
        )
    return replace(spec, columns=columns)


def for_memory(spec: SummarySpec, memory: int) -> SummarySpec:
    """The spec with the most columns whose counters take at most `memory` bytes.  Raises ConfigError."""
    column = _COUNTER * spec.zone_slots * spec.rows * 2 * spec.buckets
    if column > memory:
        raise ConfigError(
            f"summary memory: needed at least {column:,} bytes, which {spec.zone_slots} zones and index nodes of "
            f"{spec.rows} rows x {spec.buckets} buckets take; got {memory:,}; allow that, or lower depth, "
            "rate, max_zones, rows or buckets"
        )
    return replace(spec, columns=min(_MOST_COLUMNS, 1 << (memory // column).bit_length() - 1))


def outgrown(manager: SummaryManager, error: float) -> SummarySpec | None:
    """The wider spec that data which no longer fit ask for; None while they do, or where nothing wider could fit."""
    tuples = manager.store.tuples
    if manager.spec.structure == "T1" or not tuples or manager.error <= error * tuples:
        return None
    concentration = _HEADROOM * (manager.error / tuples) ** 2 * manager.spec.width
    try:
        wider = for_error(manager.spec, error, concentration)
    except MemoryRefused:
        return None
    return wider if wider.columns > manager.spec.columns else None
