"""A summary manager brought on by parts of a stream, wherever they were read: the same bytes as tuple by tuple.

Each part says what the change detector needs of its slices (`slices_of`); taken in order (`take_slices`) they tell
where zones end.  Then every leaf of the pyramids is a range of ordinals (`leaves_of`), so tuples can be counted by
leaf in any order and place (`count_by_leaf`), the counts summed, and put in (`put_counters`): sketches are linear, and
an index node is the sum of its children.
Cost: of the order of one read of a small sketch a slice here, all else where the parts are; memory here does not grow
with tuples, but for the distinct keys.
Source: DESIGN section 2, Zones and Granularities; promising tuples, sections 3.2 to 3.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SLICE, SummarySpec
from nile.pyramid.grid.store import DETECTOR_COLUMNS, TupleStore
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.pyramid.grid import grid_kernels
else:
    grid_kernels = lazy("nile.pyramid.grid.grid_kernels")

__all__ = [
    "Leaf",
    "Slices",
    "count_by_leaf",
    "counters_for",
    "leaves_of",
    "put_counters",
    "slices_of",
    "take_keys",
    "take_slices",
]

Array = np.ndarray[Any, Any]
_AT_ONCE = 4_096  # slices in memory, 6 MB


class Slices(NamedTuple):
    """What the detector needs of consecutive tuples: see `nile.pyramid.grid.grid_kernels.sketch_slices`."""

    sketches: Array  # int16 [slices, rows, columns]
    told: Array  # int64 [slices, 7]
    rest: Array  # int32 [rows, 2 * columns]


class Leaf(NamedTuple):
    """Tuples with ordinals begin..end-1 are counted in this slot of the grid."""

    slot: int
    begin: int
    end: int


def slices_of(spec: SummarySpec, begin: int, ts: Array, codes: Array, hashes: Array) -> Slices:
    """Of tuples begin..begin + n - 1 (ordinals), n > 0.

    ts: int64 [n] ns; codes: int32 [n], -1 null; hashes: uint64 [n], 0 null.
    Cost: some 5 ns per tuple; 6 bytes per tuple of result.
    """
    side = TupleStore(spec).side
    rows = side.detector.shape[0]
    slices = -(-(begin + ts.shape[0]) // SLICE) - begin // SLICE
    found = Slices(
        np.empty((slices, rows, DETECTOR_COLUMNS), np.int16),
        np.zeros((slices, grid_kernels.TOLD), np.int64),
        np.zeros((rows, 2 * DETECTOR_COLUMNS), np.int32),
    )
    bits = int(side.spec[ga.DETECTOR_BITS])
    grid_kernels.sketch_slices(ts, codes, hashes, begin, bits, side.detector_multipliers, *found)
    return found


def take_slices(manager: SummaryManager, slices: Slices) -> None:
    """The manager's next tuples: zones and detector go on, counters of the new tuples are not there yet.

    Nothing of the tuples is held: as after `manager.store.release(manager.store.tuples)`.
    """
    store = manager.store
    for at in range(0, slices.told.shape[0], _AT_ONCE):
        # Arrays of a file are read-only, which would be another kernel, and longer than memory should be.
        sketches, told = (np.array(array[at : at + _AT_ONCE]) for array in (slices.sketches, slices.told))
        done = 0
        while done < told.shape[0]:
            done = grid_kernels.advance_slices(store.side, sketches, told, np.array(slices.rest), done)
            if store.side.zone[ga.TURNING]:
                grid_kernels.turn(store.side)
    store.tuples = int(slices.told[-1, grid_kernels.UP_TO])
    store.side.meta[ga.BASE] = store.side.meta[ga.KEEP_FROM] = store.tuples


def take_keys(manager: SummaryManager, values: pa.Array, counts: Array, *, where: str) -> None:
    """The distinct keys among the manager's next tuples, in order of first appearance, and how often each comes.

    values: Arrow [k], of the column's type; counts: int64 [k].  Raises KeyTypeError.
    """
    codes = manager.keys.encode(values, where=where).codes
    store = manager.store
    store.reserve_keys(manager.keys.known)
    store.side.lists[codes, ga.GONE] += counts
    store.side.meta[ga.DROPPED_TUPLES] += int(counts.sum())


def leaves_of(manager: SummaryManager, since: int) -> list[Leaf]:
    """Where tuples from ordinal `since` on are counted: the leaves that have some, and the open zone (G1's root)."""
    side = manager.store.side
    found = []
    for gran in side.gran.tolist():
        for age in range(gran[ga.SIZE]):
            slot = gran[ga.OFFSET] + gran[ga.LEAVES] + (gran[ga.HEAD] + age) % gran[ga.RING] - 1
            found.append((slot, *side.node[slot, [ga.START, ga.END]].tolist()))
    if side.zone[ga.ZONE_COUNT]:
        root = int(side.gran[0, ga.OFFSET])
        found.append((root, int(side.zone[ga.ZONE_START]), int(side.node[root, ga.END])))
    return [Leaf(slot, max(begin, since), end) for slot, begin, end in found if end > since]


def counters_for(spec: SummarySpec, leaves: Sequence[Leaf]) -> Array:
    """Zeros to count in, for each leaf: int64 [leaves, rows, cells]."""
    return np.zeros((len(leaves), *TupleStore(spec).side.counters.shape[1:]), np.int64)


def count_by_leaf(
    spec: SummarySpec, leaves: Sequence[Leaf], into: Array, ordinals: Array, codes: Array, key_hashes: Array
) -> None:
    """Count tuples, in any order, in the leaves that they belong to.

    into: int64 [leaves, rows, cells], as `counters_for` makes it; ordinals: int64 [n]; codes: int32 [n], -1 null;
    key_hashes: uint64 [keys], of every code.
    """
    side = TupleStore(spec).side
    for counters, leaf in zip(into, leaves, strict=True):
        inside = (ordinals >= leaf.begin) & (ordinals < leaf.end) & (codes >= 0)
        counts = np.bincount(codes[inside], minlength=key_hashes.shape[0])
        present = np.flatnonzero(counts)
        grid_kernels.add_keys(counters, side.spec, side.multipliers, key_hashes[present], counts[present])


def put_counters(manager: SummaryManager, leaves: Sequence[Leaf], counters: Array) -> None:
    """Put what was counted by leaf where it belongs: int64 [leaves, rows, cells], for every index node above too."""
    side = manager.store.side
    for leaf, own in zip(leaves, counters, strict=True):
        offset = max(offset for offset in side.gran[:, ga.OFFSET].tolist() if offset <= leaf.slot)
        position = leaf.slot - offset + 1
        while position >= 1:
            side.counters[offset + position - 1] += own
            position >>= 1
