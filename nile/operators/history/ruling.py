"""What the grid of CREATE SUMMARY tells a query of a history: where values cannot be, and which keys are nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nile.operators.history.keys import ProbeKeys

if TYPE_CHECKING:
    from nile.pyramid.grid.manager import SummaryManager

__all__ = ["NOWHERE", "found_somewhere", "left_of", "outside", "runs_without"]

Array = np.ndarray[Any, Any]
NOWHERE: Array = np.zeros((0, 2), np.int64)
"""No run: nothing is ruled out."""


def runs_without(grid: SummaryManager, keys: ProbeKeys) -> Array:
    """Ordinals [begin, end) of the stream that certainly have none of these keys: int64 [runs, 2], ascending, apart."""
    runs = grid.without(keys.hashes)[0]
    if not runs.shape[0]:
        return NOWHERE
    first = np.flatnonzero(np.append(True, runs[1:, 0] > runs[:-1, 1]))
    return np.stack([runs[first, 0], runs[np.append(first[1:], runs.shape[0]) - 1, 1]], axis=1)


def left_of(runs: Array, begin: int, end: int) -> list[tuple[int, int]]:
    """What of the ordinals [begin, end) lies in no run."""
    low, high = np.searchsorted(runs[:, 1], begin, side="right"), np.searchsorted(runs[:, 0], end)
    edges = [begin, *runs[low:high].ravel().tolist(), end]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]


def outside(runs: Array, ordinals: Array) -> Array:
    """Those of some ordinals (int64 [n]) that lie in no run."""
    if not runs.shape[0]:
        return ordinals
    at = np.searchsorted(runs[:, 1], ordinals, side="right")
    inside = (at < runs.shape[0]) & (ordinals >= runs[np.minimum(at, runs.shape[0] - 1), 0])
    left: Array = ordinals[~inside]
    return left


def found_somewhere(grid: SummaryManager, keys: ProbeKeys) -> ProbeKeys:
    """The keys that the stream of a grid, which has forgotten nothing, may have at all."""
    absent = np.ones(len(keys), bool)
    for _, _, nowhere in grid.empty_of(keys.hashes, zones=False)[0]:
        absent &= nowhere
    return keys.chosen(np.flatnonzero(~absent)) if absent.any() else keys
