"""How far a stream that comes in order but for k tuples has certainly come."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nile.exact.pipeline.schedule import EARLIEST
from nile.exact.plan.constraints import Promise
from nile.exact.state.arrow import Array
from nile.exact.state.held import Held

__all__ = ["Marks"]


class Marks:
    """The greatest value of all tuples but the last k + 1: nothing below it comes.  Memory: k + 1 words."""

    HELD: ClassVar = ("_greatest",)
    DERIVED: ClassVar = ("promise",)

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self._greatest = np.zeros(0, np.int64)  # up to and with each of the last k + 1 tuples

    @property
    def within(self) -> int | None:
        """k; None: nothing is known."""
        return self.promise.constraint.within

    @property
    def now(self) -> int:
        """Nothing below this comes next."""
        return int(self._before(self._greatest)[-1])

    def push(self, values: Array) -> Array:
        """Take in int64 [n]: the mark before each of them, and the one after all: int64 [n + 1]."""
        had = self._greatest.shape[0]
        last = self._greatest[-1:] if had else np.full(1, EARLIEST)
        self._greatest = np.append(self._greatest, np.maximum.accumulate(np.append(last, values))[1:])
        before = self._before(self._greatest)[had:]
        if self.within is not None:
            self._greatest = self._greatest[-(self.within + 1) :]
        else:
            self._greatest = self._greatest[-1:]
        return before

    def _before(self, greatest: Array) -> Array:
        """The mark before each of the tuples and after all, of the last of which `greatest` tells."""
        n, out = greatest.shape[0], np.full(greatest.shape[0] + 1, EARLIEST)
        if self.within is not None and n > self.within:
            out[self.within + 1 :] = greatest[: n - self.within]
        return out

    def capture(self) -> Array:
        """What is held: int64, not falling."""
        return self._greatest.copy()

    def restore(self, held: Held, name: str) -> None:
        """Put it back.  Raises EnvelopeError."""
        self._greatest = held.rising(name)

    @property
    def memory(self) -> int:
        return int(self._greatest.nbytes)
