"""How a scan of the lake is cut into partitions: stretches of time by ranges of buckets, of all its sides.

Time is cut into blocks of a few time ranges of the lake.  A pair belongs to the block in which it is completed, that
of its later tuple, so a partition reads the block's tuples of both sides and, before them, those within the window.
Inside a block the lanes of the sketches are cut where a lane alone fills many row groups, and else so that row
groups that two partitions share, and both read, stay few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from nile.pyramid.lake.lake import LakeStream
from nile.pyramid.lake.part import BUCKET, Part
from nile.pyramid.lake.sketch import LANES, PartSketch, asked_products, groups_in, products, rare_products

__all__ = ["Cell", "LakeSide", "Partition", "Work", "asked_share", "meeting_share", "partitions_of"]

Array = np.ndarray[Any, Any]

MOST_ROWS = 1 << 22
"""Tuples of one partition, about: what a task holds."""
_RANGES = 4  # time ranges of a block: the one before it, read for the window, is a quarter more
_BLOCKS = 16  # a lake of fewer ranges than this many blocks of them has shorter blocks
_SHARED = 4  # rows of a partition over rows that a cut may make two of them read


@dataclass(frozen=True, slots=True)
class LakeSide:
    """A stream as a scan reads it.

    parts: files that may hold tuples asked for; sketches: of each, by name.  columns: read of every file.  since,
    until: event times asked for, ns, ends inside, None: no bound.
    """

    stream: LakeStream
    parts: tuple[Part, ...]
    sketches: dict[str, PartSketch]
    columns: tuple[str, ...]
    since: int | None
    until: int | None

    def times(self, part: Part) -> tuple[int, int]:
        """The event times asked of a file, ends inside."""
        since = part.since if self.since is None else max(part.since, self.since)
        return since, (part.until if self.until is None else min(part.until, self.until))


@dataclass(frozen=True, slots=True)
class Cell:
    """What is read of one file: rows of the buckets [low, high] in these row groups.  bytes: of their columns."""

    part: Part
    groups: tuple[int, ...]
    low: int
    high: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Work:
    """What a task needs of a partition.  begin: first event time, ns, of the tuples that complete its pairs; end: the
    first one after them; None: no bound.  cells: of each side."""

    begin: int | None
    end: int | None
    cells: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """A piece of the scan.

    work: what is read.  lanes: first and last.  age: blocks between it and the newest.  bytes: to read.  expected:
    outputs, estimated by the sketches; upper: at most so many, for certain.
    """

    work: Work
    lanes: tuple[int, int]
    age: int
    bytes: int
    expected: float
    upper: float


def partitions_of(
    sides: tuple[LakeSide, ...],
    window: int | None,
    *,
    cap: int | None = None,
    asked: Array | None = None,
    promise: Callable[[int | None, int | None], Array] | None = None,
) -> Iterator[Partition]:
    """All partitions of a join of two sides or a selection of one, oldest first.

    window: ns, None: no window; 0 for one side.  cap: expect only pairs of keys with at most so many tuples in a
    window.  asked: hashes of the keys that are asked for, None: all.  promise: what others expect of a block
    [begin, end) in each lane, in place of what the sketches of files do.
    Cost: for every two files that can meet one product of sketches, half a millisecond.
    """
    step = max(1, *(LANES >> side.stream.layout.bits for side in sides))
    blocks = _blocks(sides, window)
    for at, (begin, end) in enumerate(blocks):
        least = None if begin is None or window is None else begin - window
        met = [_met(side, least, end) for side in sides]
        if not all(met):
            continue
        expected, upper = _promised(sides, met, window, (begin, end), cap, asked)
        if promise is not None:
            expected = np.minimum(promise(begin, end), upper)
        for first, last in _lanes(sides, met, begin, end, step):
            cells = tuple(
                tuple(_cells(side, parts, first, last, least, end)) for side, parts in zip(sides, met, strict=True)
            )
            size = sum(cell.bytes for side in cells for cell in side)
            which = slice(first, last + 1)
            none = not all(cells)
            yield Partition(
                Work(begin, end, cells),
                (first, last),
                len(blocks) - 1 - at,
                size,
                0.0 if none else float(expected[which].sum()),
                0.0 if none else float(upper[which].sum()),
            )


def _blocks(sides: Sequence[LakeSide], window: int | None) -> list[tuple[int | None, int | None]]:
    """Stretches of time [begin, end) that hold all tuples asked for."""
    times = [side.times(part) for side in sides for part in side.parts]
    if window is None or not times:
        return [(None, None)]
    length = max(side.stream.layout.range_ns for side in sides)
    since, until = min(each[0] for each in times), max(each[1] for each in times)
    first = since // length
    ranges = until // length - first + 1
    rows = sum(part.rows for side in sides for part in side.parts)
    fit = max(1, MOST_ROWS * ranges // max(1, rows))
    size = length * max(min(_RANGES, fit, max(1, ranges // _BLOCKS)), -(-_RANGES * window // length))
    count = -(-ranges * length // size)
    return [(first * length + k * size, first * length + (k + 1) * size) for k in range(count)]


def asked_share(times: tuple[int, int], since: int | None, until: int | None) -> float:
    """The share of a stretch of time, ends inside, that lies in [since, until], None: no bound."""
    low = times[0] if since is None else max(since, times[0])
    high = times[1] if until is None else min(until, times[1])
    return max(0, high - low + 1) / (times[1] - times[0] + 1)


def _met(side: LakeSide, least: int | None, end: int | None) -> list[Part]:
    """The files that have tuples from `least` on and before `end`."""
    found = []
    for part in side.parts:
        since, until = side.times(part)
        if since <= until and (least is None or until >= least) and (end is None or since < end):
            found.append(part)
    return found


def _promised(
    sides: Sequence[LakeSide],
    met: Sequence[Sequence[Part]],
    window: int | None,
    block: tuple[int | None, int | None],
    cap: int | None,
    asked: Array | None,
) -> tuple[Array, Array]:
    """(expected, at most) outputs of a block in each lane."""
    expected, upper = np.zeros(LANES), np.zeros(LANES)
    begin, end = block
    for parts in product(*met):
        sketches = [side.sketches[part.name] for side, part in zip(sides, parts, strict=True)]
        times = [side.times(part) for side, part in zip(sides, parts, strict=True)]
        share = math.prod(_asked(part, each) for part, each in zip(parts, times, strict=True))
        if len(times) == 2:
            if not _can_meet(times[0], times[1], window, begin, end):
                continue
            share *= meeting_share(times[0], times[1], window, begin, end)
        if asked is not None:
            few, most = asked_products(sketches, asked)
        elif len(sketches) == 1:
            few = most = sketches[0].rows.astype(np.float64)
        else:
            few, most = products(sketches[0], sketches[1])
        if cap is not None:
            within = 1.0 if window is None else min(1.0, window / max(1, parts[0].until - parts[0].since))
            few = rare_products(sketches[0], sketches[1], cap, within)
        if len(times) == 2 and window is not None:
            most = np.minimum(most, _reachable(sketches, times, window))
        expected += np.minimum(few * share, most)
        upper += most
    return expected, upper


def _reachable(sketches: Sequence[PartSketch], times: Sequence[tuple[int, int]], window: int) -> Array:
    """At most so many pairs are inside the window, by how many tuples of a lane come at once: float64 [LANES]."""
    bounds = []
    for at in (0, 1):
        mine, theirs = times[at], times[1 - at]
        near = min(mine[1], theirs[1] + window) - max(mine[0], theirs[0] - window)  # where matches can be
        bounds.append(sketches[at].within(near) * sketches[1 - at].within(2 * window).astype(np.float64))
    most: Array = np.minimum(bounds[0], bounds[1])
    return most


def _asked(part: Part, times: tuple[int, int]) -> float:
    """The share of a file's time that is asked for."""
    return (times[1] - times[0] + 1) / (part.until - part.since + 1)


def _can_meet(a: tuple[int, int], b: tuple[int, int], window: int | None, begin: int | None, end: int | None) -> bool:
    """Whether a tuple of time in `a` and one in `b` can make a pair that is completed in [begin, end)."""
    if a[0] > a[1] or b[0] > b[1]:
        return False
    if window is not None and (a[0] - b[1] > window or b[0] - a[1] > window):
        return False
    return (begin is None or max(a[1], b[1]) >= begin) and (end is None or max(a[0], b[0]) < end)


def meeting_share(
    a: tuple[int, int], b: tuple[int, int], window: int | None, begin: int | None, end: int | None
) -> float:
    """The probability that times uniform in `a` and `b` lie within the window, the later in [begin, end)."""
    if window is None:
        return 1.0
    base = min(a[0], b[0])
    whole = (a[1] - a[0] + 1) * (b[1] - b[0] + 1)

    def before(bound: int | None) -> float:
        """The area where both times are below `bound` and at most a window apart."""
        ends = [each[1] + 1 if bound is None else min(each[1] + 1, bound) for each in (a, b)]
        if ends[0] <= a[0] or ends[1] <= b[0]:
            return 0.0
        (x0, x1), (y0, y1) = ((float(s - base), float(e - base)) for s, e in zip((a[0], b[0]), ends, strict=True))

        def under(c: float) -> float:  # where x - y <= c
            return sum(
                sign * max(0.0, c - edge) ** 2 / 2.0
                for sign, edge in ((1, x0 - y1), (-1, x1 - y1), (-1, x0 - y0), (1, x1 - y0))
            )

        return max(0.0, under(float(window)) - under(-float(window)))

    return min(1.0, max(0.0, before(end) - (0.0 if begin is None else before(begin))) / whole)


def _lanes(
    sides: Sequence[LakeSide],
    met: Sequence[Sequence[Part]],
    begin: int | None,
    end: int | None,
    step: int,
) -> Iterator[tuple[int, int]]:
    """Ranges of lanes, first and last, that together are all of them.  step: lanes that no cut may part."""
    rows = np.zeros(LANES, np.int64)
    groups = total = 0
    for side, parts in zip(sides, met, strict=True):
        for part in parts:
            groups += len(part.group_rows)
            total += part.rows
            if (begin is None or part.until >= begin) and (end is None or part.since < end):
                rows += side.sketches[part.name].rows
    files = sum(map(len, met))
    enough = min(MOST_ROWS, _SHARED * files * max(1, total // max(1, groups)))
    first, held = 0, 0
    for lane in range(0, LANES, step):
        here = int(rows[lane : lane + step].sum())
        if lane > first and (held >= enough or here >= enough):
            yield first, lane - 1
            first, held = lane, 0
        held += here
    yield first, LANES - 1


def _cells(
    side: LakeSide, parts: Sequence[Part], first: int, last: int, least: int | None, end: int | None
) -> Iterator[Cell]:
    """What is read of one side for a range of lanes."""
    bits = side.stream.layout.bits
    low, high = first * (1 << bits) // LANES, (last + 1) * (1 << bits) // LANES - 1
    for part in parts:
        sketch = side.sketches[part.name]
        since, until = side.times(part)
        since = since if least is None else max(since, least)
        groups = groups_in(part, sketch, low, high, since, until if end is None else min(until, end - 1))
        if not groups:
            continue
        chosen = np.array(groups)
        cut = bool((part.group_low[chosen] < low).any() or (part.group_high[chosen] > high).any())
        names = {*side.columns, *([BUCKET] if cut else [])}
        at = [sketch.columns.index(name) for name in names]
        yield Cell(part, tuple(groups), low, high, int(sketch.sizes[chosen][:, at].sum()))
