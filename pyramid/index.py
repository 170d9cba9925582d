"""The multi-resolution index over one granularity, seen from Python (the kernels use its arrays directly)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pyramid.arrays import (
    BUCKET_SHIFT,
    CELL_BITS,
    CELL_SHIFT,
    COUNT,
    END,
    FIRST,
    HEAD,
    LAST,
    LEAVES,
    NEXT,
    NOW,
    OFFSET,
    RING,
    SIZE,
    START,
    ZONE_COUNT,
    ZONE_FIRST,
    ZONE_START,
)
from pyramid.zone import Zone

if TYPE_CHECKING:
    from pyramid.store import TupleStore

__all__ = ["PyramidIndex"]

Array = np.ndarray[Any, Any]


class PyramidIndex:
    """A binary tree over the zones of a granularity; every node's sketch is the sum of its children's.

    Node 1 is the root; node p has children 2p and 2p + 1; leaves are zones.  Only time is merged upwards:
    a node keeps all value buckets, because a sketch of c columns over two merged buckets errs like the sum
    of both and reads no fewer counters.
    Law: `upper_bound` of a node is never below one of a child, which best-first descent needs.
    Source: promising tuples, section 3.4 (pyramid of Tanimoto and Pavlidis); there values merge as well.
    """

    def __init__(self, store: TupleStore, granularity: int) -> None:
        if not 1 <= granularity <= store.spec.depth:
            raise IndexError(f"granularity: needed 1 to {store.spec.depth}; got {granularity}")
        self.store = store
        self.granularity = granularity
        self._gran = store.side.gran[granularity - 1]

    @property
    def nodes(self) -> range:
        """All node numbers, root first."""
        return range(1, 2 * self.leaves)

    @property
    def leaves(self) -> int:
        """How many zones the tree has places for."""
        return int(self._gran[LEAVES])

    def slot(self, node: int) -> int:
        """The grid slot of a node."""
        return int(self._gran[OFFSET]) + node - 1

    def children(self, node: int) -> tuple[int, ...]:
        """The two nodes below, or none for a leaf."""
        return () if node >= self.leaves else (2 * node, 2 * node + 1)

    def count(self, node: int) -> int:
        """Tuples summarised below a node."""
        return int(self.store.side.node[self.slot(node), COUNT])

    def counters(self, node: int) -> Array:
        """The node's sketch: int64 [rows, cells], a view."""
        view: Array = self.store.side.counters[self.slot(node)]
        return view

    def cells(self, hashes: Array) -> Array:
        """Where each key (uint64 [n]) lands: int64 [n, rows].  Pure numpy, the kernels' twin."""
        side = self.store.side
        bucket = (hashes >> np.uint64(1)) >> np.uint64(side.spec[BUCKET_SHIFT])
        inner = (hashes[:, None] * side.multipliers[None, :]) >> np.uint64(side.spec[CELL_SHIFT])
        return ((bucket << np.uint64(side.spec[CELL_BITS]))[:, None] | inner).astype(np.int64)

    def upper_bound(self, node: int, hashes: Array) -> Array:
        """At most so many tuples of each key (uint64 [n]) are below a node: int64 [n]."""
        cells = self.cells(hashes)
        counters = self.counters(node)
        bound: Array = np.min([counters[r, cells[:, r]] for r in range(counters.shape[0])], axis=0)
        return bound

    def zones(self) -> list[Zone]:
        """The zones, oldest first; for granularity 1 the open zone comes last, if it has tuples."""
        gran = self._gran
        node = self.store.side.node
        found = []
        for i in range(int(gran[SIZE])):
            leaf = (int(gran[HEAD]) + i) % int(gran[RING])
            slot = self.slot(self.leaves + leaf)
            row = node[slot]
            found.append(
                Zone(
                    self.granularity, slot, int(row[START]), int(row[END]), int(row[FIRST]), int(row[LAST]),
                    int(row[COUNT]),
                )
            )  # fmt: skip
        zone = self.store.side.zone
        if self.granularity == 1 and zone[ZONE_COUNT]:
            found.append(
                Zone(
                    1, -1, int(zone[ZONE_START]), int(zone[NEXT]), int(zone[ZONE_FIRST]), int(zone[NOW]),
                    int(zone[ZONE_COUNT]),
                )
            )  # fmt: skip
        return found
