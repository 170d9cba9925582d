"""What a plan was given beyond its equal part of the memory, until that is taken back (`dealing`)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from nile.execution.live.means.weighing import Weighed

__all__ = ["LEAST", "SAFE", "Cost", "Given", "Point"]

SAFE = 0.9
"""Of the tuples that there is room for: a sample is now and then larger than on average."""
LEAST = 1e-3
"""Of an error: for less nobody is given anything, and so much more is none."""
_OVER = 1.1
"""Times the bytes that were foretold, at most."""
_AHEAD = 3
"""Steps that are looked ahead."""
Cost = Callable[..., tuple[float, float]]
"""(bytes with which a plan may hold so many tuples, how many it may hold then), of the plan, the tuples and, at most,
of the share that these may be of what it may hold; inf, 0: not known, or far more than it holds."""


class Point(NamedTuple):
    """What a plan errs by with so many bytes more than it holds: after so many steps (of twice the sample or filter),
    with so many tuples of a sample at most.
    """

    bytes: float
    error: float
    steps: int = 0
    limit: float = 0.0


class Given(ABC):
    """A plan as memory is dealt out to it.  A filter that has taken its place overrides what is said of samples."""

    made: Weighed
    weight: float
    bytes: int

    def __init__(self) -> None:
        self.groups: Callable[[], int] = lambda: 1
        """How many rows a query has that groups."""
        self.compact: Callable[[], None] = lambda: None
        """Make the plan's tables anew, as small as they may be."""
        self.batch = 0
        """Tuples of the newest batch."""
        self.short = False
        """Whether there was too little memory for that, though time enough."""
        self.tables = 0
        """Most tuples that were held at once since its tables were made."""
        self.goal = 0
        """How many it may hold whatever its equal part is; 0: as that allows."""
        self.down = 0
        """The level that these suffice for."""
        self.allowed = 0.0
        """Bytes that it may hold by that."""
        self.kept = 0.0
        """Bytes that are left for it, where others were given any."""
        self.lean = False
        """Whether it gives back what it was given."""
        self.doublings = 0
        """Of its filter, by what it was given."""
        self._before = (0, 0)
        """(tuples, bytes) that it held, at most, before anything was given."""
        self._how: Any = None
        self._bytes = self._since = self._came = 0

    @property
    @abstractmethod
    def at(self) -> int:
        """When its newest tuple came (ns)."""

    @property
    @abstractmethod
    def rate(self) -> float:
        """Tuples a ns that come of all streams."""

    @property
    @abstractmethod
    def last_level(self) -> int:
        """The highest of the newest batches of its streams."""

    @property
    def apart(self) -> int:
        """Bytes of the plan beside `bytes`, which what is let in does not change."""
        return 0

    @abstractmethod
    def held(self, at: int | None = None) -> int:
        """Tuples that were let in and are in the windows still (at: as of an instant, ns)."""

    @property
    def cells(self) -> int:
        """Bytes of its filter's cells, if there is one."""
        return 0

    @property
    def lent(self) -> int:
        """Bytes of those that were given."""
        return 0

    @property
    def size(self) -> int:
        """Bytes of it."""
        return self.bytes + self.apart

    @property
    def how(self) -> Any:
        """What has to stay as it is before anything is given."""
        return self.last_level, self.lean

    def settled(self, came: int) -> bool:
        """Whether it has been as it is for a window, or nothing comes.  came: all tuples so far.  Asked once a deal."""
        idle, self._came = came == self._came, came
        if self.how != self._how or self.size > _OVER * self._bytes:
            self._how, self._bytes, self._since = self.how, self.size, self.at
        return self.made.window is None or idle or self.at - self._since >= self.made.window

    @property
    def wanting(self) -> bool:
        """Whether it errs since it has too little memory."""
        return self.short and self.last_level > 0 and self.made.window is not None and not self.lean

    @property
    def many(self) -> float:
        """Tuples in its windows, were all let in."""
        return self.rate * (self.made.window or 0) + self.batch

    def next(self, steps: int = 1) -> float:
        """Tuples that it holds so many levels down."""
        return 2.0 ** (steps - self.last_level) * self.many

    def error(self, level: int) -> float:
        """What it errs by at a level, 1 where nothing is known.

        A sample of 2**-k misses the rest of its rows; counts and sums of groups err by their standard error, as far as
        tuples count as many.
        """
        if not self.made.grouped:
            return 1.0 - 2.0**-level
        each = max(self.many / max(1, self.groups()), 1.0)
        return min(1.0, math.sqrt((2.0**level - 1.0) / each))

    def curve(self, cost: Cost) -> list[Point]:
        """What it errs by, as it is and after steps that it may take, by what was measured of it while it runs."""
        level = self.last_level
        found = [Point(0.0, self.error(level))]
        if not self.wanting:
            return found
        for steps in range(1, min(level, _AHEAD) + 1):
            takes, limit = cost(self, self.next(steps))
            if takes == math.inf:
                break
            found.append(Point(takes, self.error(level - steps), steps, limit))
        return found

    def in_equal_parts(self, cost: Cost) -> float:
        """Bytes with which equal parts let it take a step."""
        return cost(self, self.next(), SAFE)[0]

    def first(self, points: Sequence[Point], to: Point) -> Point:
        """Where it goes first on its way to a point of its curve: what the next step takes is measured after one."""
        del to
        return points[1]

    def take(self, to: Point) -> None:
        """Go to a point of its curve."""
        if not self.extra:
            self._before = self.tables, self.size
        self.goal, self.down, self.allowed = math.floor(to.limit), self.last_level - 1, self.size + to.bytes

    def stay(self) -> None:
        """Let it stay at its level, though its equal part becomes smaller, in as many bytes as it holds."""
        if not self.goal and self.wanting:
            self._before = self.tables, self.size
            self.goal = max(self.tables, math.ceil(2.0**-self.last_level * self.many))
            self.down, self.allowed = self.last_level, float(self.size)

    def settle(self) -> None:
        """Its windows are full: of what it was given it needs no more than it holds."""
        if self.extra:
            self.allowed = min(self.allowed, max(_OVER * self.size, float(self._before[1])))

    def hold(self, *, there: bool) -> None:
        """If it took more than was foretold, let it hold that, or, where that is not there for it, give all back."""
        if self.goal and self.size > _OVER * self.allowed:
            if there:
                self.allowed = float(self.size)
            else:
                self.give_back()

    @property
    def extra(self) -> float:
        """Bytes that it holds, or may hold, by what it was given."""
        return max(0.0, self.allowed - self._before[1]) if self.goal else 0.0

    @property
    def reserved(self) -> float:
        """Bytes that it was given and does not hold yet."""
        return max(0.0, self.allowed - self.size) if self.goal else 0.0

    def give_back(self) -> None:
        """Hold no more than without what it was given, as soon as what is held has left."""
        self.lean = self.lean or self.extra > 0.0
        self.goal, self.allowed = 0, 0.0

    def limited(self, limit: float) -> float:
        """How many tuples it may hold, of which its equal part would let it hold `limit`."""
        return min(limit, self._before[0]) if self.lean else max(limit, self.goal)

    def shrink(self) -> None:
        """Once what had been given is gone, hold no tables for it."""
        if self.lean and self.held() <= self._before[0]:
            self.compact()
            self.lean = False
            self.made_anew()
            self.tables = self._before[0]

    @abstractmethod
    def made_anew(self) -> None:
        """Its tables were: what comes is measured beside what they take now."""
