"""The flat arrays of one stream: what kernels of this floor and above read and write.

Shapes: n tuples held, k key codes, s sketch slots, m granularities.  A slot is one node of one granularity's
pyramid (heap order, root first).  A node is the sum of its two children, but for G1's root: that holds the
open zone too, so that a tuple updates one sketch only, and the open zone is root minus its children.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

__all__ = ["BASE", "COUNT", "END", "FIRST", "LAST", "START", "Side"]

# Columns of `node`.
COUNT, START, END, FIRST, LAST = 0, 1, 2, 3, 4  # tuples; ordinals [START, END); first and last ts
NODE_FIELDS = 5
NO_TUPLE = (0, (1 << 63) - 1, -(1 << 63), (1 << 63) - 1, -(1 << 63))
"""A node without tuples: the identity of sum, min, max, min, max, whatever the times."""

# Columns of `gran`, one row a granularity.  SPAN: its length, ns; REACH: its length and all before it, ns.
OFFSET, LEAVES, RING, HEAD, SIZE, SPAN, REACH = 0, 1, 2, 3, 4, 5, 6
GRAN_FIELDS = 7

# `zone`: the open zone and running counts.
ZONE_COUNT, ZONE_FIRST, ZONE_START, NOW, SLICE_COUNT, REFERENCE = 0, 1, 2, 3, 4, 5
CLOSED, CHANGES, KEPT_FROM, ADDS, FORGOTTEN, NEXT = 6, 7, 8, 9, 10, 11
ENDING, TURNING = 12, 13
ZONE_FIELDS = 14

# `spec`: what kernels need of the SummarySpec, as integers.  DETECTOR_BITS is 0 under T1 only.
BUCKET_SHIFT, CELL_SHIFT, CELL_BITS, MAX_LENGTH, ADAPTIVE, FORGETTING, DETECTOR_BITS, ROWS = 0, 1, 2, 3, 4, 5, 6, 7
SPEC_FIELDS = 8
NEVER, TWO_WINDOW, VARIANCE = 0, 1, 2

# `meta`: BASE is the ordinal of the first tuple held, TOP the used part of the arena, KEEP_FROM the first
# ordinal that a query can still reach, DROPPED_TUPLES how many entries have left the lists, PLACED how many
# keys have a place in the arena, VISIBLE the first ordinal that lists do not show yet: ALL_VISIBLE, but for a
# query that lags behind a store it shares.
BASE, TOP, KEEP_FROM, DROPPED_TUPLES, PLACED, VISIBLE = 0, 1, 2, 3, 4, 5
META_FIELDS = 6
ALL_VISIBLE = (1 << 63) - 1

# Columns of `lists`; a rank counts entries gone too, so it never changes.
PLACE, ROOM, HELD, GONE = 0, 1, 2, 3


class Side(NamedTuple):
    """One stream's tuples, key directory, tuple lists, grid, pyramids and change detector."""

    ts: Array  # int64 [n], ns
    code: Array  # int32 [n], -1 null
    hash: Array  # uint64 [n], 0 null
    lists: Array  # int64 [k, 4]: place in the arena, room, entries held, entries gone from its front
    arena: Array  # int64, ordinals
    placed: Array  # int32, the keys that have a place in the arena; a quarter of its length
    meta: Array  # int64 [6]
    counters: Array  # int64 [s, rows, cells]
    node: Array  # int64 [s, 5]
    gran: Array  # int64 [m, 7]
    zone: Array  # int64 [14]
    spec: Array  # int64 [8]
    threshold: Array  # float64 [1]
    multipliers: Array  # uint64 [rows]
    detector: (
        Array  # int32 [3, columns]: signed counters of the open zone up to the last slice end; [0, ...] but for T4
    )
    recent: Array  # int32 [3, 2 * columns]: tuples since then, those of sign + first, then those of sign -
    detector_multipliers: Array  # uint64 [3]
    moments: Array  # int64 [3, 3]: R.R, W.W and R.W of each row of the detector when it last looked
