"""The summary manager: what keeps one stream's grid, pyramids, directory and tuple lists up to date."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.directory import KeyDirectory
from nile.pyramid.grid.index import PyramidIndex
from nile.pyramid.grid.spec import SummarySpec
from nile.pyramid.grid.store import PIECE, TupleStore
from nile.pyramid.grid.zone import Zone
from nile.summaries.errors import ConfigError, KeyTypeError, TimestampOrderError
from nile.summaries.estimate import Estimate
from nile.summaries.hashing import Encoded, KeyTable
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.pyramid.grid import grid_kernels
else:
    grid_kernels = lazy("nile.pyramid.grid.grid_kernels")

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
    One thread may ingest while others ask: estimates, zones and the directory are those between two batches.  What
    `index`, `store` and `keys` give is of this moment; hold `changing` while you read them.
    """

    def __init__(self, spec: SummarySpec, keys: KeyTable | None = None) -> None:
        self.spec = spec
        self.keys = KeyTable() if keys is None else keys
        self.store = TupleStore(spec)
        self.changing = threading.RLock()
        self._lent: list[weakref.ref[Array]] = []

    def ingest(self, ts: Array, column: pa.Array, *, where: str = "key") -> None:
        """Take a batch in stream order.  ts: int64 [n] ns, not decreasing; column: the keys [n], Arrow.

        Raises TimestampOrderError for a time before that of the last tuple (while it is held), ConfigError for
        times that are not int64 [n] or keys of another number, KeyTypeError for a column that cannot be a key,
        and then takes nothing of the batch.
        """
        with self.changing:
            self._check_times(ts, len(column))
            self._take(ts, self.keys.encode(column, where=where))

    def ingest_encoded(self, ts: Array, keys: Encoded) -> None:
        """The same with keys already encoded by this manager's key table.

        Raises likewise, and KeyTypeError for a code that the table has not given.
        """
        with self.changing:
            n = keys.codes.shape[0]
            self._check_times(ts, n)
            self._check_codes(keys)
            self._take(ts, keys)

    def _check_codes(self, keys: Encoded) -> None:
        if keys.codes.shape[0] and not -1 <= int(keys.codes.min()) <= int(keys.codes.max()) < self.keys.known:
            raise KeyTypeError(
                f"ingest: needed key codes -1 to {self.keys.known - 1}, as this manager's key table gives; "
                f"got {keys.codes.min()} to {keys.codes.max()}; encode the column with manager.keys.encode"
            )

    def release(self, before: int) -> None:
        """Free the tuples older than `before` (ns): no query asks for them any more.  Summaries stay."""
        with self.changing:
            side = self.store.side
            base = int(side.meta[ga.BASE])
            if self.store.tuples > base and side.ts[0] < before:
                held = side.ts[: self.store.tuples - base]
                self.store.release(base + int(np.searchsorted(held, min(before, (1 << 63) - 1), side="left")))

    def estimate(self, keys: Array, since: int | None = None) -> Estimate:
        """How many tuples of each key (uint64 hashes [n]) arrived at or after `since` (ns; None: all kept).

        Median over sketch rows, cut to [0, high].  `high` is a certain upper bound; a zone cut by `since`
        counts in proportion to time, so the value is then an estimate of an estimate.  No interval is
        certified.  Cost: one read of a sketch for each slot of the granularities' covers.
        Raises KeyTypeError for keys that are not uint64 [n].
        """
        if not (isinstance(keys, np.ndarray) and keys.dtype == np.uint64 and keys.ndim == 1):
            came = f"{keys.dtype} {list(keys.shape)}" if isinstance(keys, np.ndarray) else type(keys).__name__
            raise KeyTypeError(
                f"estimate: keys are hashes, a numpy array of uint64 [n]; got {came}; "
                "turn a column into hashes with nile.summaries.hashing.hash_keys"
            )
        lowest = -(1 << 63) if since is None else since
        with self.changing:
            parts = [self.index(g).estimate(keys, lowest) for g in range(1, self.spec.depth + 1)]
        high = np.sum([bound for _, bound in parts], axis=0).astype(np.float64)
        value = np.clip(np.median(np.sum([rows for rows, _ in parts], axis=0), axis=0), 0.0, high)
        return Estimate(value=value, low=np.zeros(keys.shape[0]), high=high, confidence=0.0, certified=False)

    def within(self, low: int, high: int) -> Estimate | None:
        """How many tuples have values in a range, whenever they came: one float; None: sketches know no order.

        low, high: numbers of values (`nile.summaries.ordered.order_codes`), ends included.
        """
        del low, high
        return None

    def without(self, keys: Array) -> tuple[Array, int]:
        """Runs of tuples that certainly have none of these keys (uint64 hashes [n]), and how many sketches told it.

        int64 [runs, 2], ordinals [begin, end) in order, zones each.  Pyramids are descended from their roots: what
        lies below a node whose upper bounds are all 0 is not looked at.  Structure T1 knows of no run.
        """
        if self.spec.structure == "T1":
            return np.zeros((0, 2), np.int64), 0
        with self.changing:
            found = [self.index(g).without(keys) for g in range(1, self.spec.depth + 1)]
        runs = sorted(run for part, _ in found for run in part)
        return np.array(runs, np.int64).reshape(-1, 2), sum(read for _, read in found)

    def empty_of(self, keys: Array, *, zones: bool) -> tuple[list[tuple[int, int, Array]], int]:
        """(first ts, last ts, which keys are certainly not there) of the parts of what is kept; counters read.

        keys: uint64 hashes [n], told as bool [n]; zones: of every zone, else of every granularity as a whole.  All
        tuples but forgotten ones lie in some part.  A row that has none of a key spares the reading of the next.
        """
        told, read = [], 0
        with self.changing:
            for index in (self.index(g) for g in range(1, self.spec.depth + 1)):
                if zones:
                    parts = [(zone.first, zone.last, index.counts_in(zone, keys)) for zone in index.zones()]
                else:
                    parts = [(*index.span, index.counts_in(None, keys))] if index.count(1) else []
                for first, last, rows in parts:
                    there = np.logical_and.accumulate(rows > 0, axis=0)
                    read += keys.shape[0] + int(there[:-1].sum())
                    told.append((first, last, ~there[-1]))
        return told, read

    def lent(self) -> Side:
        """The grid as it is now, for queries that have tuples of their own: it counts nothing more and forgets nothing.

        Its counters are shared until the next batch comes, which copies them if any query still holds them.
        Read it by `nile.pyramid.grid.region_kernels.read_between`.
        """
        with self.changing:
            side = self.store.side
            counters = side.counters[:]
            self._lent.append(weakref.ref(counters))
            zone, spec = np.zeros_like(side.zone), side.spec.copy()
            kept = [ga.ZONE_COUNT, ga.ZONE_FIRST, ga.ZONE_START]
            zone[kept] = side.zone[kept]
            spec[[ga.FORGETTING, ga.DETECTOR_BITS]] = 0
            return side._replace(counters=counters, node=side.node.copy(), gran=side.gran.copy(), zone=zone, spec=spec)

    def directory(self, since: int | None = None) -> KeyDirectory:
        """Exact counts of the tuples in the lists that arrived at or after `since` (ns; None: all that are held)."""
        with self.changing:
            return KeyDirectory.of(self.store, self.keys.hashes(), since)

    def zones(self) -> list[Zone]:
        """The zones of every granularity, oldest first; the open zone comes last."""
        with self.changing:
            return [zone for g in range(self.spec.depth, 0, -1) for zone in self.index(g).zones()]

    def index(self, granularity: int) -> PyramidIndex:
        """The multi-resolution index over granularity 1..depth."""
        return PyramidIndex(self.store, granularity)

    @property
    def error(self) -> float:
        """The standard error of one key's count over all that is kept, in tuples: sqrt(F2 / columns of a row).

        F2, the sum of the squared counts, is that of the sketch itself; the root mean square over value buckets.
        """
        if self.spec.structure == "T1":
            return float("inf")
        with self.changing:
            held = np.sum([self.index(g).counters(1) for g in range(1, self.spec.depth + 1)], axis=0)
        signed = (held[:, 0::2] - held[:, 1::2]).astype(np.float64)
        return float(np.sqrt(np.median((signed**2).sum(axis=1)) / self.spec.bucket_columns / self.spec.value_buckets))

    @property
    def shape(self) -> str:
        """What one zone is kept in, in words: rows x columns over all buckets."""
        return f"{self.spec.rows} x {self.spec.width}"

    @property
    def changes(self) -> int:
        """Zones ended because the stream's behaviour changed."""
        return int(self.store.side.zone[ga.CHANGES])

    @property
    def zones_closed(self) -> int:
        """Zones ended for any reason."""
        return int(self.store.side.zone[ga.CLOSED])

    @property
    def forgotten(self) -> int:
        """Tuples that left the last granularity."""
        return int(self.store.side.zone[ga.FORGOTTEN])

    @property
    def kept_from(self) -> int:
        """The first ordinal not forgotten."""
        return int(self.store.side.zone[ga.KEPT_FROM])

    @property
    def memory(self) -> Memory:
        """What is held now."""
        return Memory(
            sketches=self.store.sketch_bytes,
            directory=self.store.directory_bytes + self.keys.nbytes,
            tuples=self.store.tuple_bytes,
        )

    def _take(self, ts: Array, keys: Encoded) -> None:
        store = self.store
        if any(counters() is not None for counters in self._lent):
            store.side = store.side._replace(counters=store.side.counters.copy())
        self._lent.clear()
        done = store.extend(ts, keys.codes, keys.hashes, self.keys.known)
        while done < store.tuples:
            end = grid_kernels.advance(store.side, done, min(done + PIECE, store.tuples))
            run = store.append(done, end)
            grid_kernels.count(store.side, done, end, self.keys.hashes(), *run)
            self._arrived(done, end)
            if store.side.zone[ga.TURNING]:
                grid_kernels.turn(store.side)
                self._turned()
            done = end

    def _arrived(self, begin: int, end: int) -> None:
        """Tuples of these ordinals have come into the open zone."""

    def _turned(self) -> None:
        """Zones have ended, moved on or merged."""

    def _check_times(self, ts: Array, n: int) -> None:
        if not (isinstance(ts, np.ndarray) and ts.dtype == np.int64 and ts.shape == (n,)):
            came = f"{ts.dtype} {list(ts.shape)}" if isinstance(ts, np.ndarray) else type(ts).__name__
            raise ConfigError(
                f"ingest: needed times as int64 [{n}] nanoseconds, one for each key; got {came}; "
                "cast them, and hand on as many times as keys"
            )
        if n == 0:
            return
        store = self.store
        before = ts[:-1] > ts[1:]
        at = int(before.argmax()) + 1 if before.any() else 0
        held = store.tuples - int(store.side.meta[ga.BASE])
        reached = int(store.side.ts[held - 1]) if held else int(ts[0])
        if at or ts[0] < reached:
            earlier = int(ts[at - 1]) if at else reached
            raise TimestampOrderError(
                f"ingest: tuple {store.tuples + at} has ts {ts[at]} ns, before {earlier} already read; "
                "sort the batch, or declare a lateness where the stream is read"
            )
