"""What is done with the outputs of a join once they were found: time that is owed, so that finding leaves it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nile.operators.drive.clock import Clock
from nile.operators.strategies.prices import Prices

__all__ = ["NOTHING", "After", "Owing", "keys_among"]

Array = np.ndarray[Any, Any]
_ROUNDS = 6
"""In which as many outputs are found as are paid for with the groups that they have."""


@dataclass(frozen=True, slots=True)
class After:
    """ns of CPU.  each: of an output; group: of a group of them, 0 where there are none: each key is taken for one;
    handed: of an output's columns, which are handed out as it is found, so that nothing of that is owed; columns: of
    each stream how many of numbers and of text, those aside that joining tells.
    """

    each: float = 0.0
    group: float = 0.0
    handed: float = 0.0
    columns: tuple[tuple[int, int], ...] = ()

    @classmethod
    def aggregates(cls, prices: Prices, aggregates: int, columns: int, by: int) -> After:
        """So many aggregates of so many columns, in groups by so many expressions."""
        each = prices.made + aggregates * prices.summed + columns * prices.gathered + by * prices.grouped
        return cls(each, aggregates * prices.group if by else 0.0)

    def over(self, tuples: Sequence[int], prices: Prices) -> After:
        """The same where the columns are of streams of so many tuples."""
        if not self.columns:
            return self
        each = zip(tuples, self.columns, strict=True)
        handed = sum(
            numbers * prices.handing(n, text=False) + texts * prices.handing(n, text=True)
            for n, (numbers, texts) in each
        )
        return replace(self, handed=handed, columns=())

    def priced(self, outputs: float, keys: float) -> float:
        """Per output, where there are so many, of so many keys."""
        return self.each + self.handed + self.group * min(1.0, keys / max(1.0, outputs))

    def paid(self, rest: float, each: float, by_key: Array) -> float:
        """How many outputs, drawn evenly, so many ns pay for.  each: ns of one; by_key: how many each key has."""
        found, drawn = float(by_key.sum()), rest / each
        for _ in range(_ROUNDS if self.group else 0):
            drawn = rest / (each + self.group * keys_among(by_key, drawn, found) / max(1.0, drawn))
        return drawn


def keys_among(by_key: Array, drawn: float, found: float) -> float:
    """About how many keys have any of so many outputs, drawn evenly from all that were found."""
    return float(np.minimum(1.0, by_key * min(1.0, drawn / max(1.0, found))).sum())


NOTHING = After()
"""Outputs are handed out as they are found."""


class Owing:
    """What is owed on a question's clock, as outputs are found."""

    def __init__(self, after: After, clock: Clock | None) -> None:
        self._after, self._clock = after, clock
        self._before, self._begin = 0.0, 0
        self._keys: Callable[[int], float] = float

    def among(self, outputs: int, keys: Callable[[int], float]) -> None:
        """So many were found; how many keys so many more have is told by `keys`."""
        self._before += self._keys(outputs - self._begin)
        self._begin, self._keys = outputs, keys

    def found(self, outputs: int) -> None:
        """So many were found, in all."""
        if self._clock is not None and self._after is not NOTHING:
            groups = min(float(outputs), self._before + self._keys(outputs - self._begin))
            self._clock.owed = outputs * self._after.each + groups * self._after.group
