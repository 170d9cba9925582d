"""What a push costs by how many tuples it brings, learnt while it goes on."""

from __future__ import annotations

from copy import copy

__all__ = ["Cost"]

_DECAY = 0.9
_OUTLIER = 4.0
"""Times what was expected: more is taken for this much (a pause of the machine, kernels that are compiled)."""
_LEAST = 1e-3
_SPREAD = 0.1
"""Of the mean number of tuples: with less between pushes they do not tell what a tuple costs."""


class Cost:
    """seconds = fixed + each * tuples: a line through what was measured, of which older pushes count less.

    A plan of which a sample of 10 tuples takes 3 ms may take 3 ms for 1,000, too: the mean alone would say 300 ms.
    """

    def __init__(self) -> None:
        self.fixed = 0.0
        self.each = 0.0
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return self._sums[0] > 0.0

    def of(self, tuples: float) -> float:
        """Seconds of a push of so many."""
        return self.fixed + self.each * tuples

    def twin(self) -> Cost:
        """What is known by now, to go on with."""
        return copy(self)

    def add(self, tuples: int, seconds: float) -> None:
        """A push brought so many tuples, and took so long."""
        first = not self.known
        if not first:
            seconds = min(seconds, _OUTLIER * (self.of(tuples) + _LEAST))
        news = (1.0, tuples, seconds, float(tuples) ** 2, tuples * seconds)
        weight, x, y, xx, xy = self._sums = tuple(_DECAY * old + new for old, new in zip(self._sums, news, strict=True))  # type: ignore[assignment]
        x, y, xx, xy = x / weight, y / weight, xx / weight, xy / weight
        mean = y / x if x else 0.0
        if xx - x * x > (_SPREAD * x) ** 2:
            self.each = min(max(0.0, (xy - x * y) / (xx - x * x)), mean)
        else:
            self.each = mean if first else min(self.each, mean)
        self.fixed = max(0.0, y - self.each * x)
