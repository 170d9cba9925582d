"""Which files a history of so many rows has, when none of it was written before its time: what a build makes.

The same rules as `RowStore.write_ahead`, `RowStore.join` and `IndexStore.collapse` follow step by step.
"""

from __future__ import annotations

from nile.pyramid.history.index_store import RATE
from nile.pyramid.history.rows_store import AHEAD, LARGE, MANY

__all__ = ["Run", "index_runs", "rows_runs"]

Run = tuple[int, int]
"""Rows from..to - 1 (ordinals)."""


def index_runs(tuples: int, segment: int, largest: int) -> list[Run]:
    """The sealed indices of `tuples` rows, oldest first: as long as they may be, then shorter ones."""
    size = segment
    while RATE * size <= largest:
        size *= RATE
    runs: list[Run] = []
    at = 0
    while size >= segment:
        for _ in range((tuples - at) // size):
            runs.append((at, at + size))
            at += size
        size //= RATE
    return runs


def rows_runs(tuples: int, segment: int, largest: int) -> list[Run]:
    """The files of `tuples` rows, oldest first."""
    unit = -(-AHEAD // segment) * segment
    joined = min(MANY, largest // unit) if unit < LARGE else 0
    runs: list[Run] = []
    at = 0
    while joined > 1 and tuples - at >= MANY * unit:
        runs.append((at, at + joined * unit))
        at += joined * unit
    while at < tuples:
        runs.append((at, min(tuples, at + unit)))
        at = runs[-1][1]
    return runs
