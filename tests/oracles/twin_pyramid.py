"""A summary manager that is obviously right: zones are lists of tuples, sketches are made from scratch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SLICE, SummarySpec
from nile.pyramid.grid.store import DETECTOR_COLUMNS, DETECTOR_ROWS

Array = np.ndarray[Any, Any]
MASK = (1 << 64) - 1


@dataclass
class Tuples:
    """A zone: its keyed tuples (ordinal, ts, hash) in order."""

    held: list[tuple[int, int, int]] = field(default_factory=list)

    def described(self, granularity: int) -> tuple[int, int, int, int, int, int]:
        """Granularity, ordinals [start, end), first and last ts, count: as `nile.pyramid.grid.zone.Zone` has them."""
        held = self.held
        return granularity, held[0][0], held[-1][0] + 1, held[0][1], held[-1][1], len(held)


def median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    assert len(ordered) % 2
    return ordered[len(ordered) // 2]


def dot(a: list[int], b: list[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def two_window(reference: list[list[int]], recent: list[list[int]], n: int, m: int) -> float:
    """1 / (1 + z**2), z the median over rows of the unbiased squared distance in its standard deviations."""
    if n < 2 or m < 2:
        return 1.0
    distances, masses = [], []
    for r, w in zip(reference, recent, strict=True):
        p = (float(dot(r, r)) - n) / (float(n) * (n - 1))
        q = (float(dot(w, w)) - m) / (float(m) * (m - 1))
        distances.append(p + q - 2.0 * float(dot(r, w)) / (float(n) * m))
        masses.append(p)
    distance, mass = median(distances), max(median(masses), 0.0)
    if distance <= 0.0:
        return 1.0
    z = distance / ((1.0 / n + 1.0 / m) * math.sqrt(2.0 * (mass + 1.0 / len(reference[0]))))
    return 1.0 / (1.0 + z * z)


def variance(reference: list[list[int]], recent: list[list[int]], n: int, m: int) -> float:
    """The smaller over the larger of the two unbiased repeat rates."""
    if n < 2 or m < 2:
        return 1.0
    p = max(median((float(dot(r, r)) - n) / (float(n) * (n - 1)) for r in reference), 1.0 / (float(n) * n))
    q = max(median((float(dot(w, w)) - m) / (float(m) * (m - 1)) for w in recent), 1.0 / (float(m) * m))
    return min(p, q) / max(p, q)


class Twin:
    """What SummaryManager does, one tuple at a time, on plain lists.

    multipliers: the detector's, from the manager it is compared with.
    """

    def __init__(self, spec: SummarySpec, multipliers: Array) -> None:
        self.spec = spec
        self.multipliers = [int(m) for m in multipliers]
        self.granularities: list[list[Tuples]] = [[] for _ in range(spec.depth)]
        self.open = Tuples()
        self.ordinal = 0
        self.changes = self.closed = self.forgotten = self.kept_from = 0
        self.reference: list[list[int]] = []
        self.recent: list[list[int]] = []
        self.reference_count = self.recent_count = 0
        self._forget_reference()
        self._forget_recent()

    def take(self, ts: int, h: int | None) -> None:
        """One tuple; h None: a null key."""
        if h is not None:
            self.open.held.append((self.ordinal, ts, h))
            self.recent_count += 1
            for r, multiplier in enumerate(self.multipliers):
                cell = ((multiplier * h) & MASK) >> (64 - DETECTOR_COLUMNS.bit_length())
                self.recent[r][cell % DETECTOR_COLUMNS] += 1 if cell < DETECTOR_COLUMNS else -1
        self.ordinal += 1
        if self.ordinal % SLICE == 0:
            self._end_slice(ts)

    def zones(self) -> list[tuple[int, int, int, int, int, int]]:
        """All zones as `Tuples.described`, as SummaryManager.zones orders them."""
        found = []
        for g in range(self.spec.depth, 0, -1):
            found += [zone.described(g) for zone in self.granularities[g - 1]]
        return [*found, self.open.described(1)] if self.open.held else found

    def _end_slice(self, now: int) -> None:
        ending = False
        if self.spec.structure == "T4" and self.recent_count:
            if self.reference_count:
                measure = two_window if self.spec.confidence == "two-window" else variance
                confidence = measure(self.reference, self.recent, self.reference_count, self.recent_count)
                if confidence < self.spec.threshold:
                    self.changes += 1
                    ending = True
            for reference, recent in zip(self.reference, self.recent, strict=True):
                for c, value in enumerate(recent):
                    reference[c] += value
            self.reference_count += self.recent_count
        self._forget_recent()
        if self.spec.structure == "T1":
            return
        if self.open.held and now - self.open.held[0][1] >= self.spec.zone_length:
            ending = True
        if ending:
            self._retire(now)
            self._close()

    def _close(self) -> None:
        self._forget_reference()
        if not self.open.held:
            return
        if len(self.granularities[0]) == self.spec.max_zones:
            self._merge_oldest(0)
        self.granularities[0].append(self.open)
        self.open = Tuples()
        self.closed += 1

    def _retire(self, now: int) -> None:
        reach = 0
        for g, zones in enumerate(self.granularities):
            reach += self.spec.span(g + 1)
            while zones and now - zones[0].held[-1][1] >= reach:
                if g + 1 < self.spec.depth:
                    self._collapse(g)
                elif self.spec.forgetting:
                    self._forget_oldest(g)
                else:
                    break

    def _collapse(self, g: int) -> None:
        """The oldest zone of g joins the current zone of g + 1, or a new one when that has had its time."""
        moving = self.granularities[g][0]
        zones = self.granularities[g + 1]
        each = self.spec.span(g + 2) // self.spec.rate
        if not zones or moving.held[0][1] - zones[-1].held[0][1] >= each:
            if len(zones) == self.spec.rate:
                if g + 2 < self.spec.depth:
                    self._collapse(g + 1)
                elif self.spec.forgetting:
                    self._forget_oldest(g + 1)
                else:
                    self._merge_oldest(g + 1)
            zones.append(Tuples())
        zones[-1].held += moving.held
        del self.granularities[g][0]

    def _forget_oldest(self, g: int) -> None:
        gone = self.granularities[g].pop(0).held
        self.forgotten += len(gone)
        self.kept_from = gone[-1][0] + 1

    def _merge_oldest(self, g: int) -> None:
        zones = self.granularities[g]
        zones[1].held[:0] = zones[0].held
        del zones[0]

    def _forget_reference(self) -> None:
        self.reference = [[0] * DETECTOR_COLUMNS for _ in range(DETECTOR_ROWS)]
        self.reference_count = 0

    def _forget_recent(self) -> None:
        self.recent = [[0] * DETECTOR_COLUMNS for _ in range(DETECTOR_ROWS)]
        self.recent_count = 0


def sketch_of(manager: SummaryManager, hashes: Iterable[int]) -> Array:
    """The counters of a zone with these keys, made from scratch: int64 [rows, cells]."""
    index = manager.index(1)
    counters = np.zeros_like(index.counters(1))
    cells = index.cells(np.fromiter(hashes, np.uint64))
    for r in range(counters.shape[0]):
        np.add.at(counters[r], cells[:, r], 1)
    return counters
