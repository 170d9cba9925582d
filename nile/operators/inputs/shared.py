"""One grid of a stream's column, which every approximate query over that column may read."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.hashing import KeyHasher, KeyTable
from nile.summaries.heavy import pa

__all__ = ["SharedSummary"]

Array = np.ndarray[Any, Any]


class SharedSummary:
    """What CREATE SUMMARY makes: name, stream, column, spec, and the grid.

    Of a live stream the grid counts what is pushed (`kept`), of another it is built by the first query that reads it.
    served: how many queries it has told where not to look.  Its upkeep is its own: queries pay for what they read.
    """

    def __init__(self, name: str, stream: str, column: str, spec: SummarySpec, hasher: KeyHasher) -> None:
        self.name = name
        self.stream = stream
        self.column = column
        self.spec = spec
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

    def over(self, ts: Array, column: pa.Array) -> SummaryManager | None:
        """The grid, if it has counted these tuples and no others; counted now where nobody keeps it.

        ts: int64 [n] ns; column: the values [n].  None: the stream has gone on since they were read, or keeps less than
        the grid has counted; or the structure is T1, which counts nothing.
        """
        if self.spec.structure == "T1":
            return None
        with self._building:
            manager = self.manager
            if manager is None or not (self._live or _counted(manager, ts)):
                manager = SummaryManager(self.spec, KeyTable(self._hasher))
                manager.ingest(ts, column, where=f"summary '{self.name}'")
                manager.store.release(manager.store.tuples)
                self.built(manager)
        return manager if _counted(manager, ts) else None

    @property
    def upkeep(self) -> int:
        """Counters written so far, those of the change detector included."""
        if self.manager is None:
            return 0
        side = self.manager.store.side
        return int(self.manager.store.tuples * (side.counters.shape[1] + side.detector.shape[0]))


def _counted(manager: SummaryManager, ts: Array) -> bool:
    """Whether a grid has counted n tuples, the last of which is that of `ts`."""
    n = ts.shape[0]
    return manager.store.tuples == n and (n == 0 or int(manager.store.side.zone[ga.NOW]) == int(ts[-1]))
