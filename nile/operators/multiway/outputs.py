"""What a join of n streams gives: batches of outputs, and what the run did."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

__all__ = ["Combinations", "MultiwayFigures"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Combinations:
    """A batch of outputs.  weight: float64 [o], 1 / inclusion probability.

    Combinations: `members` int64 [o, n], the arrival of each stream's tuple, or `places`, its place in that stream.
    Ranges: `probing` int64 [o], the arrival that completes them, and ranks [low, high) in each stream's list of its
    key, int64 [o, n] each, the probing stream's own 0, 0.
    """

    weight: Array
    members: Array | None = None
    probing: Array | None = None
    low: Array | None = None
    high: Array | None = None
    places: Array | None = None

    def __len__(self) -> int:
        return int(self.weight.shape[0])

    @property
    def ordinals(self) -> tuple[Array, ...]:
        """Of combinations: each stream's members."""
        members = self.places if self.members is None else self.members
        return () if members is None else tuple(members.T)

    def first(self, count: int) -> Combinations:
        """The first outputs of the batch."""
        whole = {field.name: getattr(self, field.name) for field in fields(self)}
        cut: dict[str, Any] = {name: None if column is None else column[:count] for name, column in whole.items()}
        return Combinations(**cut)

    def sizes(self, own: Array) -> Array:
        """How many combinations each output stands for: int64 [o].  own: int [o], the probing stream of each."""
        if self.low is None or self.high is None:
            return np.ones(len(self), np.int64)
        counts = self.high - self.low
        counts[np.arange(len(self)), own] = 1
        sizes: Array = counts.prod(axis=1)
        return sizes


@dataclass(frozen=True, slots=True)
class MultiwayFigures:
    """What a run did.  Costs are in units of its cost table.

    candidates: combinations looked at; without a condition all of them are outputs.
    """

    arrivals: int
    nulls: int
    admitted: int
    shed: tuple[int, ...]
    outputs: int
    candidates: int
    regions: int
    pruned: int
    expired: int
    evicted: int
    granted: float
    spent: float
    spent_insert: float
    spent_hit: float
    exact_cost: float
    coverage: float
    forgotten: int
    admission: float
    sampling_rate: float

    @property
    def budget_spent(self) -> float:
        """What was spent as a share of the exact answer's cost."""
        return self.spent / self.exact_cost if self.exact_cost else 0.0
