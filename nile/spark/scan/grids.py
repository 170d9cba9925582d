"""What grids of streams promise of a scan's partitions: those of `nile build`, or of CREATE SUMMARY on a lake's stream.

A zone of one stream and one of the other promise, in each value bucket, the product of their sketches, as much of it as
lies within the window and the block; a bucket's promise is spread evenly over the lanes that it covers.  What a
partition holds at most, and its bytes, the lake's own sketches tell.
Source: promising tuples, sections 3.2 to 3.4; Alon, Gibbons, Matias, Szegedy, PODS 1999 (sizes of joins from sketches).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, Protocol

import numpy as np

from nile.operators.inputs.shared_grid import SharedSummary
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.lake.lake import LakeStream
from nile.pyramid.lake.sketch import LANES, lane_of
from nile.spark.building.target import is_of
from nile.spark.scan.partitions import asked_share, meeting_share
from nile.spark.scan.query import ScanQuery

__all__ = ["Promise", "grids_of", "promise_of"]

Array = np.ndarray[Any, Any]
Promise = Callable[[int | None, int | None], Array]
"""Expected outputs of each lane, float64 [LANES], that are completed in [begin, end), ns."""
_MOST_KEYS = 256  # asked for: of more the lake's own sketches tell


class Grids(Protocol):
    """Where grids are kept."""

    offsets: Mapping[str, Any]

    def shared(self, name: str, column: str) -> SharedSummary | None:
        """The summary of a stream's column."""


def grids_of(names: Grids, query: ScanQuery) -> tuple[SharedSummary, ...] | None:
    """The grids of both sides by the key that the lake is clustered by, each of all its tuples; None: not of both.

    asc asks for rare keys, which no product of sketches tells.
    """
    found = []
    for side, lake in zip(query.task.sides, query.streams, strict=True):
        built = [name for name, offset in names.offsets.items() if is_of(offset, lake)]
        summaries = (names.shared(name, side.key) for name in (side.stream.name, *built))
        whole = next((one for one in summaries if one is not None and _is_whole(one, lake)), None)
        if whole is not None:
            found.append(whole)
    if len(found) < len(query.streams) or query.kind == "asc":
        return None
    shapes = {(one.spec.rows, one.spec.value_buckets, one.spec.seed) for one in found}
    asked = query.asked
    return tuple(found) if len(shapes) == 1 and (asked is None or asked.shape[0] <= _MOST_KEYS) else None


def _is_whole(summary: SharedSummary, lake: LakeStream) -> bool:
    grid = summary.manager
    if grid is None or grid.spec.structure == "T1" or grid.forgotten:
        return False
    return grid.store.tuples == lake.tuples


def promise_of(summaries: tuple[SharedSummary, ...], query: ScanQuery) -> Promise:
    """What these grids promise, worked out once for every two zones.  O(zones ** sides * counters of a sketch)."""
    sides = query.task.sides
    grids = [one.manager for one in summaries if one.manager is not None]
    bounds = [(side.since, side.until) for side in sides]
    times, told = [], []
    asked = query.asked
    columns = min(grid.spec.bucket_columns for grid in grids)
    for grid, (since, until) in zip(grids, bounds, strict=True):
        zones = [zone for zone in grid.zones() if zone.summarised]
        shares = [asked_share((zone.first, zone.last), since, until) for zone in zones]
        times.append([(zone.first, zone.last) for zone in zones])
        if asked is not None:
            of_zones = [grid.index(zone.granularity).in_zone(zone, asked) for zone in zones]
        else:
            of_zones = [_sketch(grid, zone, columns, signed=len(grids) == 2) for zone in zones]
        told.append([share * each for share, each in zip(shares, of_zones, strict=True)])
    cells = [[_lanes(each, asked) for each in combined] for combined in _combined(told)]

    def promise(begin: int | None, end: int | None) -> Array:
        found = np.zeros(LANES)
        if len(times) == 1:
            for time, own in zip(times[0], cells[0], strict=True):
                found += own * asked_share(time, begin, None if end is None else end - 1)
            return found
        for (i, a), (k, b) in product(enumerate(times[0]), enumerate(times[1])):
            found += cells[i][k] * meeting_share(a, b, query.task.window, begin, end)
        return found

    return promise


def _sketch(grid: SummaryManager, zone: Any, columns: int, *, signed: bool) -> Array:
    """A zone's counters by bucket, folded to so many columns: float64 [rows, buckets, columns]; unsigned: counts."""
    made = grid.index(zone.granularity).sketch(zone).astype(np.float64)
    made = made.reshape(made.shape[0], grid.spec.value_buckets, -1)
    while made.shape[2] > 2 * columns:  # a cell is the leading bits of a product, so neighbours are one cell of half
        made = made[:, :, 0::2] + made[:, :, 1::2]
    both: Array = made[:, :, 0::2] - made[:, :, 1::2] if signed else made[:, :, 0::2] + made[:, :, 1::2]
    return both


def _combined(told: list[list[Array]]) -> list[list[Array]]:
    """Of one side what each zone has, of two the products of every two zones: of buckets, or of keys asked for."""
    if len(told) == 1:
        return [[each.sum(axis=2)[0] if each.ndim == 3 else each for each in told[0]]]
    return [
        [np.median((a * b).sum(axis=2), axis=0).clip(0.0) if a.ndim == 3 else a * b for b in told[1]] for a in told[0]
    ]


def _lanes(amounts: Array, asked: Array | None) -> Array:
    """Amounts by bucket, or by key asked for, as amounts by lane: float64 [LANES]."""
    if asked is not None:
        return np.bincount(lane_of(asked), amounts, LANES)
    buckets = amounts.shape[0]
    if buckets >= LANES:
        return np.asarray(amounts.reshape(LANES, -1).sum(axis=1))
    return np.repeat(amounts * (buckets / LANES), LANES // buckets)
