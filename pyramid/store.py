"""One stream's tuple store: hot flat arrays, key directory, tuple lists, grid.  All its queries share it."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyramid.arrays import (
    ADAPTIVE as _ADAPTIVE,
)
from pyramid.arrays import (
    BASE,
    DETECTOR_BITS,
    END,
    FIRST,
    FREE_CLASSES,
    HEAD,
    LAST,
    LEAVES,
    META_FIELDS,
    NEVER,
    OFFSET,
    RING,
    ROOM,
    ROWS,
    SPAN,
    SPEC_FIELDS,
    START,
    TOP,
    TWO_WINDOW,
    VARIANCE,
    ZONE_FIELDS,
    Side,
)
from pyramid.arrays import BUCKET_SHIFT as _BUCKET_SHIFT
from pyramid.arrays import CELL_BITS as _CELL_BITS
from pyramid.arrays import CELL_SHIFT as _CELL_SHIFT
from pyramid.arrays import FORGETTING as _FORGETTING
from pyramid.arrays import MAX_LENGTH as _MAX_LENGTH
from pyramid.spec import SummarySpec

__all__ = ["DETECTOR_COLUMNS", "DETECTOR_ROWS", "TupleStore"]

Array = np.ndarray[Any, Any]
DETECTOR_ROWS = 3
DETECTOR_COLUMNS = 256
_FAR = np.iinfo(np.int64).max


def odd_multipliers(rows: int, seed: int, salt: int) -> Array:
    """Odd uint64 multipliers, one a sketch row, drawn from (seed, salt) alike in every process."""
    rng = np.random.Generator(np.random.PCG64([seed & 0xFFFFFFFF, salt]))
    return rng.integers(0, 2**63, rows, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


class TupleStore:
    """The arrays of one stream (see `pyramid.arrays.Side`) and how they grow.

    Sketch memory is fixed by the spec; the directory grows with distinct keys (32 bytes each); flat arrays
    and lists grow with the tuples a query can still reach (20 bytes, and 8 to 32 in the lists).
    """

    def __init__(self, spec: SummarySpec) -> None:
        self.spec = spec
        capacity = 1024
        keys = 256
        slots = spec.zone_slots
        sketched = spec.structure != "T1"
        shape = (slots, spec.rows, 2 * spec.width) if sketched else (slots, 1, 2)
        self.side = Side(
            ts=np.zeros(capacity, np.int64),
            code=np.full(capacity, -1, np.int32),
            hash=np.zeros(capacity, np.uint64),
            lists=np.zeros((keys, 4), np.int64),
            arena=np.zeros(4096, np.int64),
            free=np.full(FREE_CLASSES, -1, np.int64),
            meta=np.zeros(META_FIELDS, np.int64),
            counters=np.zeros(shape, np.int64),
            node=_empty_nodes(slots),
            gran=_granularities(spec),
            zone=np.zeros(ZONE_FIELDS, np.int64),
            spec=_integers(spec),
            threshold=np.array([spec.threshold]),
            multipliers=odd_multipliers(shape[1], spec.seed, 1),
            detector=np.zeros((DETECTOR_ROWS, DETECTOR_COLUMNS, 2), np.int64),
            detector_multipliers=odd_multipliers(DETECTOR_ROWS, spec.seed, 2),
        )
        self.tuples = 0
        self.keys = 0

    def extend(self, ts: Array, codes: Array, hashes: Array, keys: int) -> int:
        """Take a batch in stream order into the flat arrays (no summary yet); returns its first ordinal.

        ts: int64 [n] ns; codes: int32 [n], -1 null; hashes: uint64 [n]; keys: distinct codes known so far.
        """
        first = self.tuples
        n = ts.shape[0]
        side = self.side
        base = int(side.meta[BASE])
        needed = first - base + n
        if needed > side.ts.shape[0]:
            size = max(needed, 2 * side.ts.shape[0])
            side = side._replace(
                ts=_grown(side.ts, size), code=_grown(side.code, size), hash=_grown(side.hash, size)
            )
        at = first - base
        side.ts[at : at + n] = ts
        side.code[at : at + n] = codes
        side.hash[at : at + n] = hashes
        self.side = side
        self.tuples = first + n
        self.reserve_keys(keys)
        return first

    def reserve_keys(self, keys: int) -> None:
        """Room in the directory for codes 0..keys-1."""
        self.keys = max(self.keys, keys)
        side = self.side
        if keys > side.lists.shape[0]:
            self.side = side._replace(lists=_grown(side.lists, max(keys, 2 * side.lists.shape[0])))

    def code_of(self, ordinal: int) -> int:
        """The key code of a tuple held."""
        return int(self.side.code[ordinal - int(self.side.meta[BASE])])

    def grow_arena(self, code: int) -> None:
        """Twice the arena, and enough for key `code` to move to a bigger segment."""
        side = self.side
        size = max(2 * side.arena.shape[0], int(side.meta[TOP]) + 4 * int(side.lists[code, ROOM]) + 64)
        self.side = side._replace(arena=_grown(side.arena, size))

    def release(self, before: int) -> None:
        """Free tuples with ordinals below `before`: no query can reach them any more."""
        side = self.side
        base = int(side.meta[BASE])
        held = self.tuples - base
        side.meta[2] = max(side.meta[2], before)
        gone = min(before, self.tuples) - base
        if gone > 4096 and 2 * gone > held:
            for array in (side.ts, side.code, side.hash):
                array[: held - gone] = array[gone:held].copy()
            side.meta[BASE] = base + gone

    @property
    def sketch_bytes(self) -> int:
        """Bytes of grid, pyramids and detector: fixed by the spec."""
        side = self.side
        return int(side.counters.nbytes + side.node.nbytes + side.gran.nbytes + side.detector.nbytes)

    @property
    def directory_bytes(self) -> int:
        """Bytes of the key directory: grows with distinct keys."""
        side = self.side
        return int(side.lists.nbytes)

    @property
    def tuple_bytes(self) -> int:
        """Bytes of flat arrays and tuple lists: grows with the tuples held."""
        side = self.side
        return int(side.ts.nbytes + side.code.nbytes + side.hash.nbytes + side.arena.nbytes)


def _grown(array: Array, size: int) -> Array:
    bigger = np.zeros((size, *array.shape[1:]), array.dtype)
    bigger[: array.shape[0]] = array
    return bigger


def _empty_nodes(slots: int) -> Array:
    node = np.zeros((slots, 5), np.int64)
    node[:, START] = _FAR
    node[:, END] = -_FAR
    node[:, FIRST] = _FAR
    node[:, LAST] = -_FAR
    return node


def _granularities(spec: SummarySpec) -> Array:
    gran = np.zeros((spec.depth, 6), np.int64)
    offset = 0
    for g, leaves in enumerate(spec.leaf_capacity):
        gran[g, OFFSET] = offset
        gran[g, LEAVES] = leaves
        gran[g, RING] = spec.max_zones if g == 0 else spec.rate
        gran[g, HEAD] = 0
        gran[g, SPAN] = min(spec.span(g + 1), _FAR // 4)
        offset += 2 * leaves - 1
    return gran


def _integers(spec: SummarySpec) -> Array:
    out = np.zeros(SPEC_FIELDS, np.int64)
    log_buckets = spec.value_buckets.bit_length() - 1
    log_columns = spec.bucket_columns.bit_length() - 1
    out[_BUCKET_SHIFT] = 63 - log_buckets
    out[_CELL_SHIFT] = 63 - log_columns
    out[_CELL_BITS] = log_columns + 1
    out[_MAX_LENGTH] = spec.zone_length
    adaptive = {"two-window": TWO_WINDOW, "variance": VARIANCE}[spec.confidence]
    out[_ADAPTIVE] = adaptive if spec.structure == "T4" else NEVER
    out[_FORGETTING] = int(spec.forgetting)
    out[DETECTOR_BITS] = DETECTOR_COLUMNS.bit_length() if spec.structure != "T1" else 0
    out[ROWS] = spec.rows
    return out
