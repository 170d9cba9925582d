"""How a batch shrinks on its way through operators: its progress chart, and the lower envelope that Chain goes by.

A chart has a point before and after each operator: time worked on the batch so far, and how much of it is left.  From
each point of the envelope the next is the one that is reached by the steepest descent; what lies between two of them
is a chain of operators.  Source: STREAM (CIDR 2003), section 4.2; the bulletin (2003), section 3 (chains).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from nile.summaries.errors import ConfigError

__all__ = ["Chart", "Meter", "Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of a path.  cost: time that it works on what a batch is when it comes; selectivity: of that is left.

    What the last one makes is the answer, which is not queued.  A step of no cost is done at once.
    """

    cost: float
    selectivity: float


@dataclass(frozen=True, slots=True)
class Chart:
    """times, sizes: of each point, from (0, 1) to (all the work, 0)."""

    times: tuple[float, ...]
    sizes: tuple[float, ...]

    @classmethod
    def of(cls, steps: Sequence[Step]) -> Chart:
        """Of a path.  Raises ConfigError for none, and for a negative cost or selectivity."""
        if not steps or any(not (each.cost >= 0 and each.selectivity >= 0) for each in steps):
            raise ConfigError(
                f"progress chart: needed operators, costs and selectivities of 0 or more; got {list(steps)}; check them"
            )
        times, sizes = [0.0], [1.0]
        for each in steps:
            times.append(times[-1] + each.cost)
            sizes.append(sizes[-1] * each.selectivity)
        return cls(tuple(times), (*sizes[:-1], 0.0))

    def corners(self) -> list[int]:
        """The points of the lower envelope, from the first to the last.  Cost: O(operators squared)."""
        found = [0]
        while found[-1] < len(self.times) - 1:
            begin = found[-1]
            found.append(max(range(begin + 1, len(self.times)), key=lambda end: (self._descent(begin, end), end)))
        return found

    def priorities(self) -> tuple[float, ...]:
        """Of each operator how steeply its chain falls, size a unit of time: what Chain runs first."""
        found: list[float] = []
        corners = self.corners()
        for begin, end in pairwise(corners):
            found += [self._descent(begin, end)] * (end - begin)
        return tuple(found)

    def excess(self) -> float:
        """How far batches in the midst of chains, one in each, can lie above the envelope: at most 1 if none grows."""
        total = 0.0
        corners = self.corners()
        for begin, end in pairwise(corners):
            total += max(self.sizes[begin:end]) - self.sizes[end]
        return total

    def _descent(self, begin: int, end: int) -> float:
        falls, takes = self.sizes[begin] - self.sizes[end], self.times[end] - self.times[begin]
        if takes > 0:
            return falls / takes
        return math.inf if falls >= 0 else -math.inf


class Meter:
    """Costs and selectivities of a path's operators as they are measured, the last ones counting most.

    memory: how many observations it takes for what was before to count for 1 / e of what comes.
    """

    def __init__(self, steps: Sequence[Step], *, memory: float = 20.0) -> None:
        self._keep = math.exp(-1 / memory)
        self._seen = [(each.cost, 1.0, each.selectivity) for each in steps]  # time, what came, what went: decayed

    def observe(self, operator: int, took: float, came: float, went: float) -> None:
        """An operator worked `took` on `came` and made `went` of it, in sizes of the batch that it came from."""
        if came > 0:
            self._seen[operator] = tuple(  # type: ignore[assignment]
                self._keep * old + (1 - self._keep) * new
                for old, new in zip(self._seen[operator], (took, came, went), strict=True)
            )

    def chart(self) -> Chart:
        """The chart of what was measured: `came` differs from operator to operator, so times are made up of ratios."""
        steps, left = [], 1.0
        for took, came, went in self._seen:
            steps.append(Step(took / came * left if came else 0.0, went / came if came else 0.0))
            left *= steps[-1].selectivity
        return Chart.of(steps)
