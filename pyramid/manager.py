"""The summary manager: what keeps one stream's grid, pyramids, directory and tuple lists up to date."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pyramid.arrays import CHANGES, CLOSED, FORGOTTEN, KEPT_FROM, TURNING
from pyramid.index import PyramidIndex
from pyramid.spec import SummarySpec
from pyramid.store import TupleStore
from pyramid.zone import Zone
from summaries.estimate import Estimate
from summaries.hashing import Encoded, KeyTable
from summaries.lazy import lazy

if TYPE_CHECKING:
    import pyarrow as pa

    from pyramid import grid_kernels
else:
    grid_kernels = lazy("pyramid.grid_kernels")

__all__ = ["Memory", "SummaryManager"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes held.  sketches: fixed by the spec; directory: grows with distinct keys; tuples: with what is kept."""

    sketches: int
    directory: int
    tuples: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.sketches + self.directory + self.tuples


class SummaryManager:
    """One stream's summary, built tuple by tuple in stream order.

    Answers do not depend on how the stream was cut into batches.  Cost a tuple: one append, `spec.rows`
    counter updates and as many in the change detector; a slice end (256 tuples) compares two small
    sketches; a zone's end adds its counters into log2(zones) index nodes.
    Source: promising tuples, section 3; the query-side counterpart is `nile.operators`.
    """

    def __init__(self, spec: SummarySpec, keys: KeyTable | None = None) -> None:
        self.spec = spec
        self.keys = KeyTable() if keys is None else keys
        self.store = TupleStore(spec)

    def ingest(self, ts: Array, column: pa.Array, *, where: str = "key") -> None:
        """Take a batch in stream order.  ts: int64 [n] ns, not decreasing; column: the keys [n], Arrow."""
        self.ingest_encoded(ts, self.keys.encode(column, where=where))

    def ingest_encoded(self, ts: Array, keys: Encoded) -> None:
        """The same with keys already encoded by this manager's key table."""
        store = self.store
        done = store.extend(ts, keys.codes, keys.hashes, self.keys.known)
        while done < store.tuples:
            done = grid_kernels.ingest(store.side, done, store.tuples)
            if store.side.zone[TURNING]:
                grid_kernels.turn(store.side)
            elif done < store.tuples:
                store.grow_arena(int(store.code_of(done)))

    def estimate(self, keys: Array, since: int | None = None) -> Estimate:
        """How many tuples of each key (uint64 hashes [n]) arrived at or after `since` (ns; None: all kept).

        `high` is a certain upper bound for whole zones; a zone cut by `since` counts in proportion to time,
        so the value is then an estimate of an estimate.  No interval is certified.
        """
        n = keys.shape[0]
        values = np.zeros(n)
        bounds = np.zeros(n)
        lowest = np.iinfo(np.int64).min
        grid_kernels.estimate_all(self.store.side, keys, lowest if since is None else since, values, bounds)
        return Estimate(value=values, low=np.zeros(n), high=bounds, confidence=0.0, certified=False)

    def zones(self) -> list[Zone]:
        """The zones of every granularity, oldest first; the open zone comes last."""
        return [zone for g in range(self.spec.depth, 0, -1) for zone in self.index(g).zones()]

    def index(self, granularity: int) -> PyramidIndex:
        """The multi-resolution index over granularity 1..depth."""
        return PyramidIndex(self.store, granularity)

    @property
    def changes(self) -> int:
        """Zones ended because the stream's behaviour changed."""
        return int(self.store.side.zone[CHANGES])

    @property
    def zones_closed(self) -> int:
        """Zones ended for any reason."""
        return int(self.store.side.zone[CLOSED])

    @property
    def forgotten(self) -> int:
        """Tuples that left the last granularity."""
        return int(self.store.side.zone[FORGOTTEN])

    @property
    def kept_from(self) -> int:
        """The first ordinal not forgotten."""
        return int(self.store.side.zone[KEPT_FROM])

    @property
    def memory(self) -> Memory:
        """What is held now."""
        return Memory(
            sketches=self.store.sketch_bytes,
            directory=self.store.directory_bytes + self.keys.nbytes,
            tuples=self.store.tuple_bytes,
        )
