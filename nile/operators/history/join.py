"""Joins of two histories on equal keys, in growing pieces: what both orders of visiting them share.

The probing side, the one of which fewer tuples are asked about, is read in chunks, the latest first; its distinct keys
are looked up in the key indices of the other side.  Source: promising tuples, sections 3 and 4.2: the summaries say
which cells are worth reading, the preference says in which order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nile.operators.history.keys import ProbeKeys
from nile.operators.history.lookup import HistoryFigures, Matches, segments_of
from nile.operators.history.ruling import found_somewhere
from nile.pyramid.history.keys import HotIndex, Within
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.history import kernels
    from nile.pyramid.grid.manager import SummaryManager
    from nile.pyramid.history.history import History
else:
    kernels = lazy("nile.operators.history.kernels")

__all__ = ["CHUNK", "HistoryJoin", "HistorySide", "Output", "Pairs", "Ranges"]

Array = np.ndarray[Any, Any]

CHUNK = 1 << 18
"""Probing tuples worked on at a time: bounds the memory of keys and bounds, 16 bytes per key and segment."""
OUTPUTS = 32_768
"""Pairs or records of one step."""


@dataclass(frozen=True, slots=True)
class HistorySide:
    """One side: tuples [begin, end) of a history, joined by `column`.

    select: which of them take part, asked of the columns `columns` as a boolean Arrow array; None: all.  grid: a
    summary of the column that counts the whole history, if there is one.
    """

    history: History
    column: str
    begin: int
    end: int
    columns: tuple[str, ...] = ()
    select: Callable[[pa.RecordBatch], pa.BooleanArray] | None = None
    grid: SummaryManager | None = None

    @property
    def tuples(self) -> int:
        """How many it asks about, before `select`."""
        return max(0, self.end - self.begin)


class Pairs(NamedTuple):
    """Pairs of ordinals: int64 [n] of the left and of the right history."""

    left: Array
    right: Array


class Ranges(NamedTuple):
    """Records of ranges: one output for all matches of a probing tuple in one segment.

    ordinal: int64 [n], the probing tuple; key: Arrow [n]; zone: int64 [n], the first ordinal of the segment; first,
    last: int64 [n], places in that segment's list of rows by key.  It stands for last - first + 1 pairs.
    """

    ordinal: Array
    key: pa.Array
    zone: Array
    first: Array
    last: Array


Output = Pairs | Ranges


class HistoryJoin(ABC):
    """A join in steps.  Outputs of a step are never taken back, and `coverage` never falls.

    left, right: the sides as the answer has them.  output: "pairs" or "ranges".
    """

    _heavy_first = False
    """Whether lists of heavy keys are read ahead rather than digests."""

    def __init__(self, left: HistorySide, right: HistorySide, *, output: str = "pairs", whole: bool = False) -> None:
        """whole: whether its segments tell of all tuples of the other side's history, asked about or not."""
        self.figures = HistoryFigures()
        self.output = output
        self.swapped = right.tuples < left.tuples
        self.probe, self.other = (right, left) if self.swapped else (left, right)
        begin, end = (0, self.other.history.tuples) if whole else (self.other.begin, self.other.end)
        self._segments = segments_of(
            self.other.history, self.other.column, begin, end, self.figures, heavy_first=self._heavy_first
        )
        self._passed = 0

    @abstractmethod
    def steps(self) -> Iterator[Output | None]:
        """Bounded pieces of work (a few milliseconds each) and what each found; None: nothing."""

    @property
    @abstractmethod
    def coverage(self) -> float:
        """The share of the answer that is certain to have been reported (see each order): 0 to 1."""

    @property
    @abstractmethod
    def estimate(self) -> Estimate:
        """How many pairs there are in all."""

    def _chunks(self) -> Iterator[tuple[int, int]]:
        """Ordinals of the probing side, the latest chunk first."""
        end = self.probe.end
        while end > self.probe.begin:
            begin = max(self.probe.begin, end - CHUNK)
            yield begin, end
            end = begin

    def _keys(self, begin: int, end: int) -> Generator[None, None, ProbeKeys]:
        """The keys of probing tuples [begin, end) that take part and may have a match; a step a block that is read."""
        probe = self.probe
        if (indexed := self._indexed(begin, end)) is not None:
            self.figures.tuples += end - begin
            return self._possible(ProbeKeys.of_index(indexed, probe.history.hasher))
        names = list(dict.fromkeys((probe.column, *probe.columns)))
        ordinals, columns = [np.zeros(0, np.int64)], []
        at = begin
        for _, read in probe.history.batches(names, begin, end):
            batch, own = read, np.arange(at, at + read.num_rows)
            at += read.num_rows
            self.figures.tuples += read.num_rows
            if probe.select is not None:
                mask = probe.select(batch).fill_null(False)
                batch, own = batch.filter(mask), own[mask.to_numpy(zero_copy_only=False)]
            columns.append(batch.column(0))
            ordinals.append(own)
            if at < end:
                yield None
        kind = probe.history.schema.field(probe.column).type
        column = pa.concat_arrays(columns) if columns else pa.array([], kind)
        return self._possible(ProbeKeys(column, np.concatenate(ordinals), probe.history.hasher))

    def _indexed(self, begin: int, end: int) -> Within | None:
        """The keys of probing tuples [begin, end), as an index of their own that is in memory has them."""
        probe = self.probe
        if probe.select is not None or probe.column not in probe.history.indexed:
            return None
        for index in reversed(probe.history.indices(probe.column)):
            if index.first <= begin:
                return index.within(begin, end) if isinstance(index, HotIndex) and end <= index.end else None
        return None

    def _possible(self, keys: ProbeKeys) -> ProbeKeys:
        """Those of the keys that the summary of the other side leaves possible."""
        if self.other.grid is None:
            return keys
        possible = found_somewhere(self.other.grid, keys)
        self.figures.passed += len(keys) - len(possible)
        return possible

    def _emit(self, keys: ProbeKeys, segment: Array, found: Matches) -> Iterator[Output]:
        """Outputs of runs, in this order.  segment: int64 [m], whose each run is."""
        if self.output == "ranges":
            return self._ranges(keys, segment, found)
        return self._pairs(keys, segment, found)

    def _ranges(self, keys: ProbeKeys, segment: Array, found: Matches) -> Iterator[Ranges]:
        firsts = np.array([each.index.first for each in self._segments], np.int64)
        for low, high, row_begin, row_end in _pieces(keys.rows[found.key], keys.starts[found.key]):
            part, zone = found.chosen(slice(low, high)), firsts[segment[low:high]]
            size = int((row_end - row_begin).sum())
            key, ordinal, zones, first, last = (np.empty(size, np.int64) for _ in range(5))
            kernels.records(
                row_begin, row_end, keys.ordinals, zone, part.key, part.begin, part.end, ordinal, key, zones, first,
                last,
            )  # fmt: skip
            self.figures.outputs += size
            yield Ranges(ordinal, keys.values.take(pa.array(key)), zones, first, last)

    def _pairs(self, keys: ProbeKeys, segment: Array, found: Matches) -> Iterator[Pairs]:
        length = found.end - found.begin
        sizes = keys.rows[found.key] * length
        upto = np.cumsum(sizes)
        at = 0
        while at < sizes.shape[0]:
            if sizes[at] > OUTPUTS:
                yield from self._large(keys, int(segment[at]), found.chosen(slice(at, at + 1)))
                at += 1
                continue
            before = int(upto[at - 1]) if at else 0
            high = max(at + 1, int(np.searchsorted(upto, before + OUTPUTS, side="right")))
            part, owner = found.chosen(slice(at, high)), segment[at:high]
            order = np.argsort(owner, kind="stable")
            part, owner = part.chosen(order), owner[order]
            others = [
                self._segments[s].ordinals(part.begin[owner == s], part.end[owner == s])
                for s in np.unique(owner).tolist()
            ]
            ends = np.cumsum(part.end - part.begin)
            yield self._crossed(
                keys, keys.starts[part.key], keys.starts[part.key + 1], ends - (part.end - part.begin), ends,
                np.concatenate(others),
            )  # fmt: skip
            at = high

    def _large(self, keys: ProbeKeys, segment: int, run: Matches) -> Iterator[Pairs]:
        """The pairs of one run that has many."""
        key = int(run.key[0])
        low, high = int(keys.starts[key]), int(keys.starts[key + 1])
        for begin in range(int(run.begin[0]), int(run.end[0]), OUTPUTS):
            end = min(int(run.end[0]), begin + OUTPUTS)
            others = self._segments[segment].ordinals(np.array([begin]), np.array([end]))
            rows = max(1, OUTPUTS // (end - begin))
            for at in range(low, high, rows):
                yield self._crossed(
                    keys, np.array([at]), np.array([min(high, at + rows)]), np.array([0]),
                    np.array([others.shape[0]]), others,
                )  # fmt: skip

    def _crossed(
        self, keys: ProbeKeys, row_begin: Array, row_end: Array, begin: Array, end: Array, others: Array
    ) -> Pairs:
        size = int(((row_end - row_begin) * (end - begin)).sum())
        rows, matches = np.empty(size, np.int64), np.empty(size, np.int64)
        kernels.cross(row_begin, row_end, keys.ordinals, begin, end, others, rows, matches)
        self.figures.outputs += size
        return Pairs(matches, rows) if self.swapped else Pairs(rows, matches)


def _pieces(rows: Array, starts: Array) -> Iterator[tuple[int, int, Array, Array]]:
    """Cut runs of `rows` records each into pieces of at most OUTPUTS: (runs low..high, rows begin, end of each)."""
    upto = np.cumsum(rows)
    at = 0
    while at < rows.shape[0]:
        if rows[at] > OUTPUTS:
            for begin in range(0, int(rows[at]), OUTPUTS):
                end = min(int(rows[at]), begin + OUTPUTS)
                yield at, at + 1, starts[at : at + 1] + begin, starts[at : at + 1] + end
            at += 1
            continue
        before = int(upto[at - 1]) if at else 0
        high = max(at + 1, int(np.searchsorted(upto, before + OUTPUTS, side="right")))
        yield at, high, starts[at:high], starts[at:high] + rows[at:high]
        at = high


def together(parts: list[tuple[int, Matches]]) -> tuple[Array, Matches]:
    """Runs of several segments as one: (segment of each, runs)."""
    if not parts:
        none = np.zeros(0, np.int64)
        return none, Matches(none, none, none, none)
    segment = np.concatenate([np.full(found.key.shape[0], s, np.int64) for s, found in parts])
    columns = [np.concatenate(column) for column in zip(*(found for _, found in parts), strict=True)]
    return segment, Matches(*columns)
