"""When a server's process looks for garbage: between what its loop does, and not amid a push.

CPython looks for cycles in whichever thread makes one object too many.  A thousand connections that have just come
leave so many young objects that the push which makes the next one takes 2.5 ms longer; one in sixty was slow for it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from itertools import accumulate
from operator import mul

__all__ = ["Collecting", "settle"]

_EVERY = 0.02  # seconds between two looks at the counter: what comes meanwhile is looked through in a few milliseconds
_WHOLE = 10.0  # seconds between two collections of what is old, which hold the interpreter longest
_FAR = 200_000  # young objects that are too many even while the loop is busy: then any thread collects, as ever


class Collecting:
    """The collector's work by a timer of the loop, after as many new objects as the process's thresholds ask for.

    Many come between two looks: the older generations are due by objects, and not by collections of the younger.
    Cost: a look at a counter fifty times a second.
    """

    def __init__(self) -> None:
        self._usual = gc.get_threshold()
        self._due = tuple(accumulate(self._usual, mul))
        self._new = [0, 0, 0]
        """Objects since the last collection of each generation."""
        self._loop = asyncio.get_running_loop()
        self._whole = time.monotonic()
        if self._usual[0]:  # else somebody has turned it off
            gc.set_threshold(max(_FAR, self._usual[0]), *self._usual[1:])
            self._timer = self._loop.call_later(_EVERY, self._turn)

    def stop(self) -> None:
        """The thresholds are as they were."""
        if self._usual[0]:
            self._timer.cancel()
            gc.set_threshold(*self._usual)

    def _turn(self) -> None:
        many = gc.get_count()[0]
        now = [new + many for new in self._new]
        if many > self._due[0]:
            rested = time.monotonic() >= self._whole + _WHOLE
            oldest = 2 if rested and now[2] > self._due[2] else 1 if now[1] > self._due[1] else 0
            gc.collect(oldest)
            self._new = [0] * (oldest + 1) + now[oldest + 1 :]
            if oldest == 2:
                self._whole = time.monotonic()
        self._timer = self._loop.call_later(_EVERY, self._turn)


def settle() -> None:
    """Keep the collector from looking through half a million objects of loaded packages while everybody waits."""
    gc.collect()
    gc.freeze()
