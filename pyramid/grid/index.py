"""The multi-resolution index over one granularity, seen from Python (the kernels use its arrays directly)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.zone import Zone

if TYPE_CHECKING:
    from nile.pyramid.grid.store import TupleStore

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
        return int(self._gran[ga.LEAVES])

    def slot(self, node: int) -> int:
        """The grid slot of a node."""
        return int(self._gran[ga.OFFSET]) + node - 1

    def children(self, node: int) -> tuple[int, ...]:
        """The two nodes below, or none for a leaf."""
        return () if node >= self.leaves else (2 * node, 2 * node + 1)

    def count(self, node: int) -> int:
        """Tuples summarised below a node."""
        return int(self.store.side.node[self.slot(node), ga.COUNT])

    def counters(self, node: int) -> Array:
        """The node's sketch: int64 [rows, cells], a view."""
        view: Array = self.store.side.counters[self.slot(node)]
        return view

    def cells(self, hashes: Array) -> Array:
        """Where each key (uint64 [n]) lands: int64 [n, rows].  Pure numpy, the kernels' twin."""
        side = self.store.side
        bucket = (hashes >> np.uint64(1)) >> np.uint64(side.spec[ga.BUCKET_SHIFT])
        inner = (hashes[:, None] * side.multipliers[None, :]) >> np.uint64(side.spec[ga.CELL_SHIFT])
        return ((bucket << np.uint64(side.spec[ga.CELL_BITS]))[:, None] | inner).astype(np.int64)

    def upper_bound(self, node: int, hashes: Array) -> Array:
        """At most so many tuples of each key (uint64 [n]) are below a node: int64 [n]."""
        bound: Array = self._own(self.slot(node), self.cells(hashes)).min(axis=0)
        return bound

    def cover(self, since: int) -> list[tuple[int, float]]:
        """The fewest grid slots that hold the granularity's tuples with ts >= since, and each one's share.

        A slot wholly inside has share 1; a zone cut by `since` the part of its time that is inside.  The open
        zone, which has no slot, is in the root alone: it is left out unless the root is the answer.
        """
        node = self.store.side.node
        root = self.slot(1)
        if not node[root, ga.COUNT] or node[root, ga.LAST] < since:
            return []
        if node[root, ga.FIRST] >= since:
            return [(root, 1.0)]
        found = []
        waiting = [1] if self.leaves == 1 else [3, 2]
        while waiting:
            position = waiting.pop()
            slot = self.slot(position)
            first, last = int(node[slot, ga.FIRST]), int(node[slot, ga.LAST])
            if not node[slot, ga.COUNT] or last < since:
                continue
            if first >= since or position >= self.leaves:
                found.append((slot, _inside(first, last, since)))
            else:
                waiting += [2 * position + 1, 2 * position]
        return found

    def estimate(self, hashes: Array, since: int) -> tuple[Array, Array]:
        """Tuples of each key (uint64 [n]) with ts >= since, over the granularity.

        Returns the signed sum of each row, float64 [rows, n], whose median is the estimate, and an upper
        bound, int64 [n], which counts zones cut by `since` whole.  One read a slot of `cover`.
        """
        cells = self.cells(hashes)
        rows = np.zeros((cells.shape[1], cells.shape[0]))
        bound = np.zeros(cells.shape[0], np.int64)
        side = self.store.side
        root = self.slot(1)
        cover = self.cover(since)
        for slot, share in cover:
            own = self._own(slot, cells)
            rows += share * (own - self._own(slot, cells ^ 1))
            bound += own.min(axis=0)
        zone = side.zone
        if (
            self.granularity == 1
            and zone[ga.ZONE_COUNT]
            and side.node[root, ga.LAST] >= since
            and (root, 1.0) not in cover
        ):
            share = _inside(int(zone[ga.ZONE_FIRST]), int(side.node[root, ga.LAST]), since)
            own, other = (self._open(at) for at in (cells, cells ^ 1))
            rows += share * (own - other)
            bound += own.min(axis=0)
        return rows, bound

    def in_zone(self, zone: Zone, hashes: Array) -> Array:
        """Tuples of each key (uint64 [n]) in one of `zones()`: float64 [n].

        The median over sketch rows, cut to what the zone certainly has at most.  One read of a sketch a key.
        """
        cells = self.cells(hashes)
        own, other = (self._open(at) if zone.slot < 0 else self._own(zone.slot, at) for at in (cells, cells ^ 1))
        estimate: Array = np.clip(np.median(own - other, axis=0), 0.0, own.min(axis=0))
        return estimate

    def sketch(self, zone: Zone) -> Array:
        """The counters of one of `zones()`: int64 [rows, cells]."""
        if zone.slot >= 0:
            held: Array = self.store.side.counters[zone.slot]
            return held
        open_zone = self.counters(1).copy()
        for node in self.children(1):
            open_zone -= self.counters(node)
        return open_zone

    @property
    def span(self) -> tuple[int, int]:
        """The ts of the first and the last tuple that is summarised, ns."""
        row = self.store.side.node[self.slot(1)]
        return int(row[ga.FIRST]), int(row[ga.LAST])

    def counts_in(self, zone: Zone | None, hashes: Array) -> Array:
        """What each row counts of each key (uint64 [n]) in one of `zones()`, None: in all: int64 [rows, n].

        The least of a key is at least how often it came.
        """
        cells = self.cells(hashes)
        if zone is not None and zone.slot < 0:
            return self._open(cells)
        return self._own(self.slot(1) if zone is None else zone.slot, cells)

    def without(self, hashes: Array) -> tuple[list[tuple[int, int]], int]:
        """Zones that certainly have none of these keys (uint64 [n]), as ordinals [begin, end); how many sketches told.

        Best first is no matter here: a node is left as soon as its upper bounds are all 0.
        """
        cells = self.cells(hashes)
        open_zone = [zone for zone in self.zones() if zone.slot < 0]
        leaf = {zone.slot: (zone.start, zone.end) for zone in self.zones() if zone.slot >= 0}
        found: list[tuple[int, int]] = []
        read, waiting = 0, [1]
        while waiting:
            node = waiting.pop()
            if not self.count(node):
                continue
            read += 1
            if not self._own(self.slot(node), cells).min(axis=0).any():
                below = [node]
                while below[0] < self.leaves:
                    below = [child for each in below for child in self.children(each)]
                found += [leaf[self.slot(each)] for each in below if self.slot(each) in leaf]
                if node == 1:
                    found += [(zone.start, zone.end) for zone in open_zone]
                    open_zone = []
            else:
                waiting += self.children(node)
        for zone in open_zone:
            read += 1
            if not self._open(cells).min(axis=0).any():
                found.append((zone.start, zone.end))
        return found, read

    def _open(self, cells: Array) -> Array:
        """The counters of the open zone, which has no slot: G1's root minus its closed zones.  int64 [rows, n]."""
        root = self.slot(1)
        held = self._own(root, cells)
        for node in self.children(1):
            held = held - self._own(self.slot(node), cells)
        return held

    def _own(self, slot: int, cells: Array) -> Array:
        """A slot's counters at cells [n, rows]: int64 [rows, n]."""
        counters = self.store.side.counters[slot]
        own: Array = counters[np.arange(counters.shape[0])[:, None], cells.T]
        return own

    def zones(self) -> list[Zone]:
        """The zones, oldest first; for granularity 1 the open zone comes last, if it has tuples."""
        gran = self._gran
        node = self.store.side.node
        found = []
        for i in range(int(gran[ga.SIZE])):
            leaf = (int(gran[ga.HEAD]) + i) % int(gran[ga.RING])
            slot = self.slot(self.leaves + leaf)
            row = node[slot]
            found.append(
                Zone(
                    self.granularity, slot, int(row[ga.START]), int(row[ga.END]), int(row[ga.FIRST]), int(row[ga.LAST]),
                    int(row[ga.COUNT]),
                )
            )  # fmt: skip
        zone = self.store.side.zone
        if self.granularity == 1 and zone[ga.ZONE_COUNT]:
            root = node[self.slot(1)]
            found.append(
                Zone(
                    1, -1, int(zone[ga.ZONE_START]), int(root[ga.END]), int(zone[ga.ZONE_FIRST]), int(root[ga.LAST]),
                    int(zone[ga.ZONE_COUNT]),
                )
            )  # fmt: skip
        return found


def _inside(first: int, last: int, since: int) -> float:
    """The share of the time [first, last] that is not before `since` (at most `last`)."""
    return 1.0 if first >= since else (last - since + 1) / (last - first + 1)
