"""The cost clock's pacing: how much work each arrival grants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from summaries.costs import CostTable
from summaries.errors import ConfigError

__all__ = ["REPLAYS", "Pace", "exact_costs", "grants", "retime"]

Array = np.ndarray[Any, Any]
REPLAYS = ("none", "exponential", "data")


@dataclass(frozen=True, slots=True)
class Pace:
    """How arrivals grant work.

    none: each arrival grants fraction * its own exact cost, and unspent grant is kept.  exponential: the
    merged input is re-timed with exponential gaps of mean `mean` ns, as the paper plays back its logs.  data:
    the data's own times.  Under both replays the gap after an arrival grants fraction * mean cost * gap /
    mean gap, and credit that finds no work expires.
    """

    replay: str = "none"
    mean: int = 100_000_000

    def __post_init__(self) -> None:
        if self.replay not in REPLAYS:
            raise ConfigError(
                f"replay: needed one of {', '.join(REPLAYS)}; got {self.replay!r}; none grants by exact cost"
            )
        if self.mean <= 0:
            raise ConfigError(f"replay_mean: needed a time above 0; got {self.mean} ns; the paper uses 100 ms")

    @property
    def is_replay(self) -> bool:
        """Whether the time between arrivals is what grants."""
        return self.replay != "none"


def exact_costs(matches: Array, costs: CostTable, *, ranges: bool) -> Array:
    """c_j of every arrival [n]: insert + lookup + emit * outputs, where a range record is one output."""
    outputs = (matches > 0).astype(np.float64) if ranges else matches.astype(np.float64)
    return costs.insert + costs.lookup + costs.emit * outputs


def grants(costs: Array, fraction: float, pace: Pace, times: Array) -> Array:
    """What each arrival grants: float64 [n].  costs: float64 [n] (exact); times: int64 [n] ns, merged order."""
    if not pace.is_replay or costs.shape[0] < 2:
        return fraction * costs
    gaps = np.diff(times).astype(np.float64)
    span = float(times[-1] - times[0])
    if span <= 0:
        return np.zeros(costs.shape[0])
    mean_cost = float(costs.sum()) / costs.shape[0]
    mean_gap = span / gaps.shape[0]
    return np.append(fraction * mean_cost * (gaps / mean_gap), 0.0)


def retime(arrivals: int, mean: int, seed: int) -> Array:
    """Times of `arrivals` tuples with exponential gaps of mean `mean` ns: int64 [arrivals], from 0."""
    rng = np.random.Generator(np.random.PCG64(seed))
    gaps = np.maximum(1, np.rint(-np.log1p(-rng.random(arrivals)) * mean)).astype(np.int64)
    times: Array = np.cumsum(gaps)
    return times
