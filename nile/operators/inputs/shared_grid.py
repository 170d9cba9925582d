"""One grid of a stream's column, which every approximate query over that column may read."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.choosing import Asked
from nile.pyramid.grid.manager import SummaryManager
from nile.summaries.hashing import KeyHasher, KeyTable
from nile.summaries.heavy import pa

__all__ = ["SharedSummary"]

Array = np.ndarray[Any, Any]


class SharedSummary:
    """What CREATE SUMMARY makes: name, stream, column, what is asked of the grid, and the grid.

    Of a live stream the grid counts what is pushed (`kept`), of another it is built by the first query that reads it.
    served: how many queries it has told where not to look.  Its upkeep is its own: queries pay for what they read.
    """

    def __init__(self, name: str, stream: str, column: str, asked: Asked, hasher: KeyHasher) -> None:
        self.name = name
        self.stream = stream
        self.column = column
        self.asked = asked
        self.spec = asked.spec
        self.served = 0
        self.manager: SummaryManager | None = None
        self._hasher = hasher
        self._live = False
        self._building = threading.Lock()

    def kept(self, manager: SummaryManager) -> None:
        """Somebody keeps the grid up to date."""
        self.manager, self._live = manager, True

    @property
    def live(self) -> SummaryManager | None:
        """The grid, where somebody keeps it up to date."""
        return self.manager if self._live else None

    def built(self, manager: SummaryManager) -> SummaryManager:
        """The stream, which has its end, has been counted."""
        self.manager, self._live = manager, False
        return manager

    def over(self, ts: Array, column: pa.Array, excluded: int = 0) -> SummaryManager | None:
        """The grid, if it has counted these tuples and no others; counted now where nobody keeps it.

        ts: int64 [n] ns; column: the values [n]; excluded: tuples of the stream that were read and are not among them:
        it has counted these too, and is not counted now.  None: the stream has gone on since they were read, or keeps
        less than the grid has counted; or the structure is T1, which counts nothing.
        """
        if self.spec.structure == "T1":
            return None
        with self._building:
            manager = self.manager
            if not excluded and (manager is None or not (self._live or _counted(manager, ts))):
                manager = self.counted(ts, column)
        return manager if manager is not None and _counted(manager, ts, excluded) else None

    def counted(self, ts: Array, column: pa.Array) -> SummaryManager:
        """The grid of these tuples, all that there are, of the kind and as wide as is asked for."""
        keys = KeyTable(self._hasher)
        encoded = keys.encode(column, where=f"summary '{self.name}'")
        manager = self.asked.of(keys, encoded.codes)
        manager.ingest_encoded(ts, encoded)
        manager.store.release(manager.store.tuples)
        return self.built(manager)

    @property
    def upkeep(self) -> int:
        """Counters written so far, those of the change detector included."""
        if self.manager is None:
            return 0
        side = self.manager.store.side
        return int(self.manager.store.tuples * (side.counters.shape[1] + side.detector.shape[0]))


def _counted(manager: SummaryManager, ts: Array, excluded: int = 0) -> bool:
    """Whether a grid has counted n tuples, the last of which is that of `ts`, and those excluded from these."""
    n = ts.shape[0]
    if manager.store.tuples != n + excluded:
        return False
    now = int(manager.store.side.zone[ga.NOW])
    return n == 0 or now == int(ts[-1]) or (excluded > 0 and now > int(ts[-1]))
