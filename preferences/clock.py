"""The cost clock's pacing: how much work each arrival grants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.summaries.costs import CostTable
from nile.summaries.errors import ConfigError

__all__ = ["REPLAYS", "Bursts", "Pace", "checked_speed", "exact_costs", "grants", "retime"]

Array = np.ndarray[Any, Any]
REPLAYS = ("none", "exponential", "data")


@dataclass(frozen=True, slots=True)
class Bursts:
    """Busy and quiet phases in turn, under the exponential replay.

    share: of the tuples, those that come in bursts; factor: how many times shorter than the mean their gaps are;
    tuples: how many make one burst.  Quiet gaps are longer by as much as keeps the mean gap what it was.
    Raises ConfigError for a share outside (0, 1), a factor of 1 or less, or no tuples.
    """

    factor: float = 10.0
    share: float = 0.5
    tuples: int = 1_000

    def __post_init__(self) -> None:
        if not (_is_number(self.factor) and self.factor > 1.0):
            raise ConfigError(f"bursts: needed a factor above 1; got {self.factor!r}; 10 is ten times as fast")
        if not (_is_number(self.share) and 0.0 < self.share < 1.0):
            raise ConfigError(f"bursts: needed a share of the tuples in (0, 1); got {self.share!r}; try 0.5")
        if isinstance(self.tuples, bool) or not isinstance(self.tuples, int) or self.tuples < 1:
            raise ConfigError(f"bursts: needed 1 tuple or more in a burst; got {self.tuples!r}; try 1000")

    def __str__(self) -> str:
        return f"{self.share:.3g} of the tuples in bursts of {self.tuples}, {self.factor:g} times as fast as the mean"

    def scales(self, arrivals: int, offset: float) -> Array:
        """What the gap before each arrival is multiplied by: float64 [arrivals], of mean 1.

        offset: in [0, 1), where in its cycle of a burst and a quiet phase the input begins.
        """
        cycle = self.tuples / self.share
        busy = np.mod(np.arange(arrivals) + offset * cycle, cycle) < self.tuples
        count = int(np.count_nonzero(busy))
        if count == arrivals:  # too short an input to have a quiet phase
            return np.ones(arrivals)
        quiet = (arrivals - count / self.factor) / (arrivals - count)
        return np.where(busy, 1.0 / self.factor, quiet)


@dataclass(frozen=True, slots=True)
class Pace:
    """How arrivals grant work.

    none: each arrival grants fraction * its own exact cost, and unspent grant is kept.  exponential: the
    merged input is re-timed with exponential gaps of mean `mean` ns, as the paper plays back its logs, steadily
    or in `bursts`.  data: the data's own times.  Under both replays the gap after an arrival grants fraction *
    mean cost * gap / mean gap, and credit that finds no work expires.
    """

    replay: str = "none"
    mean: int = 100_000_000
    bursts: Bursts | None = None

    def __post_init__(self) -> None:
        if self.replay not in REPLAYS:
            raise ConfigError(
                f"replay: needed one of {', '.join(REPLAYS)}; got {self.replay!r}; none grants by exact cost"
            )
        if self.mean <= 0:
            raise ConfigError(f"replay_mean: needed a time above 0; got {self.mean} ns; the paper uses 100 ms")
        if self.bursts is not None and self.replay != "exponential":
            raise ConfigError(
                f"bursts: needed replay 'exponential', whose gaps they scale; got {self.replay!r}; "
                "ask for that replay, or leave the bursts out"
            )

    def __str__(self) -> str:
        if self.replay != "exponential":
            return {"none": "not played back in time", "data": "played back in the data's own times"}[self.replay]
        told = f"played back with exponential gaps of mean {self.mean / 1e9:g} s"
        return told if self.bursts is None else f"{told}, {self.bursts}"

    @property
    def is_replay(self) -> bool:
        """Whether the time between arrivals is what grants."""
        return self.replay != "none"


def checked_speed(speed: object) -> float:
    """How many times faster than its own pace an input is played back.  Raises ConfigError."""
    if isinstance(speed, bool) or not isinstance(speed, (int, float)) or not 0.0 < speed < math.inf:
        raise ConfigError(f"speed: needed a number above 0; got {speed!r}; 60 plays an hour in a minute")
    return float(speed)


def exact_costs(matches: Array, costs: CostTable, *, ranges: bool) -> Array:
    """c_j of every arrival [n]: insert + lookup + emit * outputs, where a range record is one output."""
    outputs = (matches > 0).astype(np.float64) if ranges else matches.astype(np.float64)
    return costs.insert + costs.lookup + costs.emit * outputs


def grants(costs: Array, fraction: float, pace: Pace, times: Array) -> Array:
    """What each arrival grants: float64 [n].  costs: float64 [n] (exact); times: int64 [n] ns, merged order."""
    if not pace.is_replay or costs.shape[0] < 2:
        return fraction * costs
    gaps = np.diff(times).view(np.uint64).astype(np.float64)  # times may lie further apart than an int64 can say
    span = float(int(times[-1]) - int(times[0]))
    if span <= 0:
        return np.zeros(costs.shape[0])
    mean_cost = float(costs.sum()) / costs.shape[0]
    mean_gap = span / gaps.shape[0]
    return np.append(fraction * mean_cost * (gaps / mean_gap), 0.0)


def retime(arrivals: int, mean: int, seed: int, bursts: Bursts | None = None) -> Array:
    """Times of `arrivals` tuples with exponential gaps of mean `mean` ns: int64 [arrivals], from 0.

    bursts: busy and quiet phases in turn; where the first begins depends on the seed.  Same seed, same times.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    gaps = -np.log1p(-rng.random(arrivals)) * mean
    if bursts is not None:
        gaps *= bursts.scales(arrivals, float(rng.random()))
    times: Array = np.cumsum(np.maximum(1, np.rint(gaps)).astype(np.int64))
    return times


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
