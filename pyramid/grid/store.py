"""One stream's tuple store: hot flat arrays, key directory, tuple lists, grid.  All its queries share it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.pyramid.grid import list_kernels
else:
    list_kernels = lazy("nile.pyramid.grid.list_kernels")

__all__ = ["DETECTOR_COLUMNS", "DETECTOR_ROWS", "PIECE", "TupleStore"]

Array = np.ndarray[Any, Any]
DETECTOR_ROWS = 3
DETECTOR_COLUMNS = 256
_FAR = (1 << 63) - 1
PIECE = 1 << 16
"""Tuples put into lists and counted at once; their codes stay in the cache."""


def odd_multipliers(rows: int, seed: int, salt: int) -> Array:
    """Odd uint64 multipliers, one a sketch row, drawn from (seed, salt) alike in every process."""
    rng = np.random.Generator(np.random.PCG64([seed & 0xFFFFFFFF, salt]))
    return rng.integers(0, 2**63, rows, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


class TupleStore:
    """The arrays of one stream (see `nile.pyramid.grid.arrays.Side`) and how they grow.

    Sketch memory is fixed by the spec; the directory grows with distinct keys (40 bytes each); flat arrays
    and lists grow with the tuples per query can still reach (20 to 60 bytes, and about 50, at most 150, in
    the lists).
    """

    def __init__(self, spec: SummarySpec) -> None:
        self.spec = spec
        self.tuples = 0
        self.keys = 0
        slots, shape = spec.zone_slots, spec.counters_shape
        detecting = DETECTOR_ROWS if spec.structure == "T4" else 0
        self._marks = np.zeros(256, np.int64)
        self._distinct = np.zeros(PIECE, np.int32)
        self._times = np.zeros(PIECE, np.int64)
        self.side = Side(
            ts=np.zeros(1024, np.int64),
            code=np.zeros(1024, np.int32),
            hash=np.zeros(1024, np.uint64),
            lists=np.zeros((256, 4), np.int64),
            arena=np.zeros(4096, np.int64),
            placed=np.zeros(1024, np.int32),
            meta=np.zeros(ga.META_FIELDS, np.int64),
            counters=np.zeros(shape, np.int64),
            node=np.full((slots, ga.NODE_FIELDS), ga.NO_TUPLE, np.int64),
            gran=_granularities(spec),
            zone=np.zeros(ga.ZONE_FIELDS, np.int64),
            spec=_integers(spec),
            threshold=np.array([spec.threshold], np.float64),
            multipliers=odd_multipliers(shape[1], spec.seed, 1),
            detector=np.zeros((detecting, DETECTOR_COLUMNS), np.int32),
            recent=np.zeros((detecting, 2 * DETECTOR_COLUMNS), np.int32),
            detector_multipliers=odd_multipliers(detecting, spec.seed, 2),
            moments=np.zeros((detecting, 3), np.int64),
        )

        self.side.meta[ga.VISIBLE] = ga.ALL_VISIBLE
        self._borrows = False

    def extend(self, ts: Array, codes: Array, hashes: Array, keys: int) -> int:
        """Take a batch in stream order into the flat arrays (no summary yet); returns its first ordinal.

        ts: int64 [n] ns; codes: int32 [n], -1 null; hashes: uint64 [n], 0 null; keys: distinct codes known so far.
        """
        first = self.tuples
        n = ts.shape[0]
        self._fit(n)
        side = self.side
        at = first - int(side.meta[ga.BASE])
        side.ts[at : at + n] = ts
        side.code[at : at + n] = codes
        side.hash[at : at + n] = hashes
        self.tuples = first + n
        self.reserve_keys(keys)
        return first

    def _fit(self, n: int) -> None:
        """Room for n more tuples: by moving to the front what is kept, when that is at most half, or by growing."""
        side = self.side
        base = int(side.meta[ga.BASE])
        held = self.tuples - base
        if held + n <= side.ts.shape[0]:
            return
        gone = int(side.meta[ga.KEEP_FROM]) - base
        kept = held - gone
        if 2 * kept <= held and kept + n <= side.ts.shape[0]:
            for array in (side.ts, side.code, side.hash):
                array[:kept] = array[gone:held]
            side.meta[ga.BASE] = base + gone
            return
        size = max(kept + n, 3 * kept, 1024)
        fresh = []
        for array in (side.ts, side.code, side.hash):
            fresh.append(np.empty(size, array.dtype))
            fresh[-1][:kept] = array[gone:held]
        side.meta[ga.BASE] = base + gone
        self.side = side._replace(ts=fresh[0], code=fresh[1], hash=fresh[2])

    def reserve_keys(self, keys: int) -> None:
        """Room in the directory for codes 0..keys-1."""
        self.keys = max(self.keys, keys)
        side = self.side
        if keys > side.lists.shape[0]:
            size = max(keys, 2 * side.lists.shape[0])
            self.side = side._replace(lists=_grown(side.lists, size))
            self._marks = np.zeros(size, np.int64)

    @classmethod
    def borrowing(cls, spec: SummarySpec, lent: Side) -> TupleStore:
        """One that asks a grid that others keep, and keeps none itself.  lent: as `SummaryManager.lent` gives it."""
        store = cls(replace(spec, structure="T1"))  # which has no counters
        store.side = store.side._replace(
            counters=lent.counters, node=lent.node, gran=lent.gran, zone=lent.zone, spec=lent.spec,
            multipliers=lent.multipliers,
        )  # fmt: skip
        store._borrows = True
        return store

    def code_of(self, ordinal: int) -> int:
        """The key code of a tuple held."""
        return int(self.side.code[ordinal - int(self.side.meta[ga.BASE])])

    def append(self, begin: int, end: int) -> tuple[Array, Array, int]:
        """Put tuples begin..end-1 (ordinals, taken by `extend`; at most PIECE) into the lists of their keys.

        Returns the run by keys: their codes (int32), how often each comes (int64), and how many there are; the
        arrays are work space, good until the next call.
        """
        run = (begin, end, self._marks, self._distinct, self._times)
        distinct = list_kernels.append_all(self.side, *run)
        while distinct < 0:
            # Lists of which nothing lives have no room in the new arena: more may have to be free than was said.
            self._new_arena(-distinct)
            distinct = list_kernels.append_all(self.side, *run)
        return self._distinct, self._times, distinct

    def grow_arena(self, code: int) -> None:
        """A new arena for what is alive, with room for key `code` to move to twice its room."""
        self._new_arena(2 * int(self.side.lists[code, ga.ROOM]))

    def _new_arena(self, free: int) -> None:
        side = self.side
        length = list_kernels.compact(side, free, side.arena[:0], side.placed)
        arena, placed = np.empty(length, np.int64), np.empty(length // 4, np.int32)
        list_kernels.compact(side, free, arena, placed)
        self.side = side._replace(arena=arena, placed=placed)

    def release(self, before: int) -> None:
        """Tuples with ordinals below `before` are free to go: no query can reach them any more."""
        meta = self.side.meta
        meta[ga.KEEP_FROM] = max(int(meta[ga.KEEP_FROM]), min(before, self.tuples))

    @property
    def sketch_bytes(self) -> int:
        """Bytes of grid, pyramids and detector: fixed by the spec; none of a grid that is another's."""
        if self._borrows:
            return 0
        side = self.side
        return sum(int(array.nbytes) for array in (side.counters, side.node, side.gran, side.detector, side.recent))

    @property
    def directory_bytes(self) -> int:
        """Bytes of the key directory: grows with distinct keys."""
        return int(self.side.lists.nbytes + self._marks.nbytes)

    @property
    def tuple_bytes(self) -> int:
        """Bytes of flat arrays and tuple lists: grows with the tuples held."""
        side = self.side
        return sum(int(array.nbytes) for array in (side.ts, side.code, side.hash, side.arena, side.placed))


def _grown(array: Array, size: int) -> Array:
    bigger = np.zeros((size, *array.shape[1:]), array.dtype)
    bigger[: array.shape[0]] = array
    return bigger


def _granularities(spec: SummarySpec) -> Array:
    gran = np.zeros((spec.depth, ga.GRAN_FIELDS), np.int64)
    offset = 0
    reach = 0
    longest = _FAR // (2 * spec.depth)  # so that sums of spans stay inside int64
    for g, leaves in enumerate(spec.leaf_capacity):
        span = min(spec.span(g + 1), longest)
        reach += span
        row = gran[g]
        row[ga.OFFSET], row[ga.LEAVES], row[ga.SPAN], row[ga.REACH] = offset, leaves, span, reach
        row[ga.RING] = spec.max_zones if g == 0 else spec.rate
        offset += 2 * leaves - 1
    return gran


def _integers(spec: SummarySpec) -> Array:
    out = np.zeros(ga.SPEC_FIELDS, np.int64)
    sketched = spec.structure != "T1"
    log_buckets = spec.value_buckets.bit_length() - 1 if sketched else 0
    log_columns = spec.bucket_columns.bit_length() - 1 if sketched else 0
    out[ga.BUCKET_SHIFT] = 63 - log_buckets
    out[ga.CELL_SHIFT] = 63 - log_columns
    out[ga.CELL_BITS] = log_columns + 1
    out[ga.MAX_LENGTH] = spec.zone_length
    adaptive = {"two-window": ga.TWO_WINDOW, "variance": ga.VARIANCE}[spec.confidence]
    out[ga.ADAPTIVE] = adaptive if spec.structure == "T4" else ga.NEVER
    out[ga.FORGETTING] = int(spec.forgetting)
    out[ga.DETECTOR_BITS] = DETECTOR_COLUMNS.bit_length() if sketched else 0
    out[ga.ROWS] = spec.rows if sketched else 1
    return out
