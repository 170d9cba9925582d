"""When a server's process looks for garbage: between what its loop does, and not amid a push.

CPython looks for cycles in whichever thread makes one object too many.  A thousand connections that have just come
leave so many young objects that the push which makes the next one takes 2.5 ms longer; one in sixty was slow for it.
"""

from __future__ import annotations

import asyncio
import gc
import time

__all__ = ["Collecting", "settle"]

_EVERY = 0.1  # seconds between two looks at the counters
_WHOLE = 60.0  # seconds between two collections of what is old, which hold the interpreter longest
_FAR = 200_000  # young objects that are too many even while the loop is busy: then any thread collects, as ever


class Collecting:
    """The collector's work, as the thresholds that the process had ask for it, by a timer of the loop.

    Cost: a look at three counters every 0.1 s.
    """

    def __init__(self) -> None:
        self._usual = gc.get_threshold()
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
        if (generation := self._due()) is not None:
            gc.collect(generation)
        self._timer = self._loop.call_later(_EVERY, self._turn)

    def _due(self) -> int | None:
        """The oldest generation that it is time for."""
        many = gc.get_count()
        if many[2] > self._usual[2] and time.monotonic() >= self._whole + _WHOLE:
            self._whole = time.monotonic()
            return 2
        return next((generation for generation in (1, 0) if many[generation] > self._usual[generation]), None)


def settle() -> None:
    """Keep the collector from looking through half a million objects of loaded packages while everybody waits."""
    gc.collect()
    gc.freeze()
