"""The form every approximate number takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.summaries.errors import ConfigError

__all__ = ["Estimate"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """A number known only approximately, with the interval it is claimed to lie in.

    value, low, high: one float, or float64 [n] each, in the unit of the quantity (tuples, unless the method
    that returns it says otherwise); low <= value <= high.  The error is on the quantity itself, absolute,
    and for each element alone: with n elements about n * (1 - confidence) may fall outside at once.
    confidence: the probability, over the random seed, that the truth lies in [low, high]; 1.0 for a
    certainty, 0.0 where nothing is claimed and the interval is only a hint.
    certified: True when that probability is proven under assumptions the method names; False when a
    quantity the proof needs was itself estimated.  Equal when every field is equal, element by element.
    Raises ConfigError when the fields differ in shape or confidence is outside [0, 1].
    """

    value: float | Array
    low: float | Array
    high: float | Array
    confidence: float
    certified: bool

    def __post_init__(self) -> None:
        # As nearly all are; shapes cost more than all the rest.
        plain = isinstance(self.value, float) and isinstance(self.low, float) and isinstance(self.high, float)
        shapes = [] if plain else [np.shape(part) for part in (self.value, self.low, self.high)]
        if len(set(shapes)) > 1:
            raise ConfigError(
                f"estimate: value, low and high need one shape; got {shapes[0]}, {shapes[1]}, {shapes[2]}; "
                "broadcast them first"
            )
        if not 0.0 <= self.confidence <= 1.0:
            raise ConfigError(
                f"estimate: confidence is a probability in [0, 1]; got {self.confidence!r}; divide a percentage by 100"
            )

    @classmethod
    def exact(cls, value: float | Array) -> Estimate:
        """A number that is known: the interval is the number, confidence 1."""
        return cls(value, value, value, 1.0, True)

    @classmethod
    def between(cls, value: float, low: float, high: float) -> Estimate:
        """A number that certainly lies in [low, high]; either end may be infinite."""
        return cls(value, low, high, 1.0, True)

    @classmethod
    def guess(cls, value: float) -> Estimate:
        """A number about which nothing is claimed: the interval is everything, confidence 0."""
        return cls(value, -math.inf, math.inf, 0.0, False)

    @property
    def relative_error(self) -> float:
        """The larger distance from the value to an end of the interval, over |value|.  Of a single number.

        0 for a number that is known, NaN included; infinite where nothing is claimed, and for a value of 0
        that is not known.
        """
        value, low, high = float(self.value), float(self.low), float(self.high)
        if low == high or (math.isnan(value) and self.confidence == 1.0):
            return 0.0
        reach = max(value - low, high - value)
        return reach / abs(value) if value else math.inf

    def covers(self, truth: float | Array) -> Array:
        """Whether the truth lies in the interval: bool, of the shape of `value`."""
        return np.asarray((self.low <= truth) & (truth <= self.high))

    def __getitem__(self, at: Any) -> Estimate:
        """The estimates at an index, slice or mask of an array-valued Estimate."""
        value, low, high = (np.asarray(part)[at] for part in (self.value, self.low, self.high))
        if np.ndim(value) == 0:
            value, low, high = float(value), float(low), float(high)
        return Estimate(value, low, high, self.confidence, self.certified)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Estimate):
            return NotImplemented
        return (self.confidence, self.certified) == (other.confidence, other.certified) and all(
            np.array_equal(mine, theirs)
            for mine, theirs in (
                (self.value, other.value),
                (self.low, other.low),
                (self.high, other.high),
            )
        )
