"""A summary manager whose zones hold summaries of any kind: the grid seen through the summaries' five functions.

Design.  Zones begin, end, age and collapse as in every grid; beside each lies one summary of the catalogue.  A run of
tuples is `summarize`d into the open zone's, zones that become one `add` theirs, and what a query asks is `estimate`d of
each zone.  For kernels and pyramids that read count sketches the estimates of all known keys are put into such a grid,
of the shape that the spec says, when it is first asked for after a change.
Cost: the summary's a tuple; O(zones) estimates a question, O(zones * keys) for a grid of estimates.
Source: promising tuples, sections 3.1 and 3.2; there every cell is a count sketch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.index import PyramidIndex
from nile.pyramid.grid.manager import Memory, SummaryManager
from nile.pyramid.grid.spec import SummarySpec
from nile.pyramid.grid.store import TupleStore, odd_multipliers
from nile.pyramid.grid.zone import Zone
from nile.summaries.estimate import Estimate
from nile.summaries.hashing import KeyTable
from nile.summaries.ordered import order_codes
from nile.summaries.summary import Summary

__all__ = ["CellManager"]

Array = np.ndarray[Any, Any]


class CellManager(SummaryManager):
    """One stream's summary, a summary of another kind in each zone.

    cell: an empty one of the kind and shape that zones hold.  spec: zones and granularities, and the shape of the
    grid of estimates that kernels read.  Keys that the key table has never seen have not come, and are not estimated.
    """

    def __init__(self, spec: SummarySpec, keys: KeyTable | None, cell: Summary) -> None:
        super().__init__(replace(spec, buckets=1, rows=1, columns=1), keys)
        self.spec = spec
        self.cell = cell
        self.cells: dict[int, Summary] = {}
        """By the first ordinal of the zone."""
        self._order: Array = np.zeros(0, np.uint64)
        self._sorted: tuple[Array, Array] = (self._order, self._order)
        self._estimates: TupleStore | None = None

    def estimate(self, keys: Array, since: int | None = None) -> Estimate:
        """How many tuples of each key (uint64 hashes [n]) arrived at or after `since`: what the zones' summaries say.

        A zone cut by `since` counts in proportion to time, its `low` not at all and its `high` whole.  Intervals add
        up, so all hold at once with the confidence of the least one, less what the number of zones takes; certified
        where every summary's is certain.
        """
        value, low, high = np.zeros(keys.shape[0]), np.zeros(keys.shape[0]), np.zeros(keys.shape[0])
        missed, sure = 0.0, True
        with self.changing:
            for zone, cell in self._held():
                if since is not None and zone.last < since:
                    continue
                told = self._asked(cell, keys)
                cut = since is not None and zone.first < since
                share = (zone.last - int(since or 0) + 1) / (zone.last - zone.first + 1) if cut else 1.0
                value += share * np.asarray(told.value)
                low += 0.0 if cut else np.asarray(told.low)
                high += np.asarray(told.high)
                missed += 1.0 - told.confidence
                sure &= told.certified and not cut
        confidence = max(0.0, 1.0 - missed)
        return Estimate(np.clip(value, low, high), low, high, confidence, sure and confidence > 0.0)

    def within(self, low: int, high: int) -> Estimate | None:
        """As in every grid; exact counts are added up over the keys in the range, O(keys)."""
        if self.cell.kind == "exact":
            with self.changing:
                codes = order_codes(self.keys.values()) if self.keys.known else np.zeros(0, np.uint64)
                mine = (codes >= np.uint64(low)) & (codes <= np.uint64(high)) if low <= high else np.zeros(0, np.int64)
                told = self.estimate(self.keys.hashes()[mine])
            return Estimate.exact(float(np.sum(told.value)))
        if not self.cell.ordered:
            return None
        ends, missed = np.zeros(3), 0.0
        with self.changing:
            for _, cell in self._held():
                part = cell.between(low, high)
                ends += [float(part.low), float(part.value), float(part.high)]
                missed += 1.0 - part.confidence
        confidence = max(0.0, 1.0 - missed)
        return Estimate(ends[1], ends[0], ends[2], confidence, confidence > 0.0)

    def without(self, keys: Array) -> tuple[Array, int]:
        """Runs of tuples that certainly have none of these keys, and how many summaries told it; as in every grid."""
        with self.changing:
            zones = self._held()
            runs = sorted((zone.start, zone.end) for zone, cell in zones if self._absent(cell, keys).all())
        return np.array(runs, np.int64).reshape(-1, 2), len(zones)

    def empty_of(self, keys: Array, *, zones: bool) -> tuple[list[tuple[int, int, Array]], int]:
        """(first ts, last ts, which keys are certainly not there) of every zone; summaries asked, for each key.

        Granularities as a whole are no cheaper to ask here, so zones are told whatever `zones` says.
        """
        del zones
        with self.changing:
            told = [(zone.first, zone.last, self._absent(cell, keys)) for zone, cell in self._held()]
        return told, len(told) * keys.shape[0]

    def lent(self) -> Side:
        """The grid of estimates as it is now: see `SummaryManager.lent`; nobody writes to it any more."""
        with self.changing:
            side = self._estimated().side
            zone, spec = np.zeros_like(side.zone), side.spec.copy()
            kept = [ga.ZONE_COUNT, ga.ZONE_FIRST, ga.ZONE_START]
            zone[kept] = side.zone[kept]
            spec[[ga.FORGETTING, ga.DETECTOR_BITS]] = 0
            return side._replace(node=side.node.copy(), gran=side.gran.copy(), zone=zone, spec=spec)

    def zones(self) -> list[Zone]:
        with self.changing:
            return [zone for g in range(self.spec.depth, 0, -1) for zone in PyramidIndex(self.store, g).zones()]

    def index(self, granularity: int) -> PyramidIndex:
        """The index over a granularity of the grid of estimates."""
        with self.changing:
            return PyramidIndex(self._estimated(), granularity)

    @property
    def error(self) -> float:
        """The root mean square over keys of half an interval's width, in tuples: 0 of exact summaries."""
        with self.changing:
            hashes = self.keys.hashes()
            if not hashes.shape[0] or not self.cells:
                return 0.0
            told = [self._asked(cell, hashes) for _, cell in self._held()]
        half = np.sum([np.asarray(each.high) - np.asarray(each.low) for each in told], axis=0) / 2.0
        return float(np.sqrt((half**2).mean()))

    @property
    def shape(self) -> str:
        told = {name: value for name, value in self.cell._params().items() if name in self.cell._shape()}
        given = ", ".join(f"{name} = {value}" for name, value in told.items() if name != "seed")
        return f"{self.cell.kind} ({given})" if given else self.cell.kind

    @property
    def memory(self) -> Memory:
        held = super().memory
        with self.changing:
            cells = sum(cell.nbytes for cell in self.cells.values())
            if self._estimates is not None:
                cells += self._estimates.side.counters.nbytes
            return replace(
                held,
                sketches=held.sketches + cells,
                directory=held.directory + self._order.nbytes + 2 * self._sorted[0].nbytes,
            )

    def adopt(self, cells: dict[int, Summary], cell: Summary) -> None:
        """Go on with the summaries of the zones by first ordinals, and with what new ones are made of."""
        self.cells, self.cell, self._estimates = dict(cells), cell, None

    def zeroed(self) -> None:
        """Forget all counts and keep the zones: what a test of who reads a summary asks for."""
        with self.changing:
            self.cells = {start: cell.empty() for start, cell in self.cells.items()}
            self._estimates = None

    def _held(self) -> list[tuple[Zone, Summary]]:
        """The zones with their summaries, oldest first."""
        return [(zone, self.cells[zone.start]) for zone in self.zones() if zone.start in self.cells]

    def _arrived(self, begin: int, end: int) -> None:
        side = self.store.side
        base = int(side.meta[ga.BASE])
        codes = side.code[begin - base : end - base]
        codes = codes[codes >= 0]
        if not codes.shape[0]:
            return
        start = int(side.zone[ga.ZONE_START])
        if start not in self.cells:
            self.cell = self.cell.fresh()
            self.cells[start] = self.cell.copy()
        self.cells[start].summarize(self._numbers()[codes])
        self._estimates = None

    def _turned(self) -> None:
        """Zones that have become one add their summaries; what has been forgotten goes."""
        before, self.cells = self.cells, {}
        starts = sorted(before)
        for zone in self.zones():
            mine = [before[start] for start in starts if zone.start <= start < zone.end]
            if not mine:
                continue
            for other in mine[1:]:
                mine[0].add(other)
            self.cells[zone.start] = mine[0]
        self._estimates = None

    def _numbers(self) -> Array:
        """What summaries take of each key code: its hash, or its number in the order of values.  uint64 [known]."""
        if not self.cell.ordered:
            return self.keys.hashes()
        known = self._order.shape[0]
        if known < self.keys.known:
            fresh = order_codes(self.keys.decode(np.arange(known, self.keys.known)))
            self._order = np.concatenate([self._order, fresh])
        return self._order

    def _by_hash(self) -> tuple[Array, Array]:
        """The hashes of all keys, ascending, and what ordered summaries take of each: uint64 [known] each."""
        if self._sorted[0].shape[0] != self.keys.known:
            order = np.argsort(self.keys.hashes(), kind="stable")
            self._sorted = (self.keys.hashes()[order], self._numbers()[order])
        return self._sorted

    def _asked(self, cell: Summary, hashes: Array) -> Estimate:
        """What a summary says of keys by their hashes; of those that never came, that they did not."""
        if not self.cell.ordered:
            return cell.estimate(hashes)
        known, numbers = self._by_hash()
        if not known.shape[0]:
            return Estimate.exact(np.zeros(hashes.shape[0]))
        at = np.minimum(np.searchsorted(known, hashes), known.shape[0] - 1)
        came = known[at] == hashes
        told = cell.estimate(np.where(came, numbers[at], np.uint64(0)))
        value, low, high = (np.where(came, np.asarray(part), 0.0) for part in (told.value, told.low, told.high))
        return Estimate(value, low, high, told.confidence, told.certified)

    def _absent(self, cell: Summary, keys: Array) -> Array:
        """Which keys a summary certainly does not have: bool [n]."""
        told = self._asked(cell, keys)
        if told.confidence < 1.0 and cell.kind not in _NEVER_TOO_LOW:
            return np.zeros(keys.shape[0], bool)  # an interval that may be missed rules nothing out
        absent: Array = np.asarray(told.high) <= 0.0
        return absent

    def _estimated(self) -> TupleStore:
        """The grid of estimates: of each zone a count sketch of what its summary says of the keys."""
        if self._estimates is None:
            self._estimates = _filled(self.spec, self.store.side, self._promised(), self.keys.hashes())
        return self._estimates

    def _promised(self) -> Sequence[tuple[Zone, Array]]:
        """Whole tuples of each known key in each zone: int64 [known]; at least one where it may be there."""
        hashes = self.keys.hashes()
        found = []
        for zone, cell in self._held():
            told = self._asked(cell, hashes)
            likely = np.rint(np.asarray(told.value)).astype(np.int64)
            found.append((zone, np.maximum(likely, (np.asarray(told.high) > 0.0).astype(np.int64))))
        return found


_NEVER_TOO_LOW = ("countmin", "countsketch")
"""Their upper bounds are certain though the intervals below them are not."""


@dataclass(frozen=True, slots=True)
class _Upon:
    """A tuple store as an index reads it."""

    spec: SummarySpec
    side: Side


def _filled(spec: SummarySpec, kept: Side, zones: Sequence[tuple[Zone, Array]], hashes: Array) -> Any:
    """A grid of the spec's shape over the same zones, in which each zone has so many tuples of each key."""
    likeness = TupleStore(spec).side
    side = kept._replace(
        counters=likeness.counters, spec=likeness.spec, multipliers=odd_multipliers(spec.rows, spec.seed, 1)
    )
    made = _Upon(spec, side)
    for g in range(1, spec.depth + 1):
        index = PyramidIndex(made, g)  # type: ignore[arg-type]
        cells = index.cells(hashes)
        for zone, counts in zones:
            if zone.granularity != g:
                continue
            into = np.zeros(side.counters.shape[1:], np.int64)
            for row in range(into.shape[0]):
                np.add.at(into[row], cells[:, row], counts)
            if zone.slot < 0:
                side.counters[index.slot(1)] += into  # the open zone is in the root alone
                continue
            position = index.leaves + zone.slot - index.slot(index.leaves)
            while position >= 1:
                side.counters[index.slot(position)] += into
                position >>= 1
    return made
