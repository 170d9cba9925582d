"""Window functions over one partition whose rows memory does not hold: in one pass over its rows in order.

Values are those of `nile.execution.over.functions`, bit for bit.  A frame without a beginning is carried along, one
with two ends is looked at with as many rows as it needs, and what all rows tell is worked out before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from nile.answers.tabular import beyond_room, room_for_answers
from nile.base.spill import Spill, Spills
from nile.execution.exact.batches import Batches, looked_at
from nile.execution.exact.one_group import OneGroup
from nile.execution.exact.parting import Given, all_that_fits
from nile.execution.exact.sorting import Sorter, footprint, together
from nile.execution.over.carried import Carried
from nile.execution.over.functions import frames_of, number_of, over_values, tile, whole
from nile.execution.over.ordering import order_of, sort_columns
from nile.execution.values import column_of
from nile.sql.over import FUNCTIONS, SESSIONS
from nile.sql.plan import Group, OverItem, Relation
from nile.summaries.heavy import pa, pc

__all__ = ["OnePartition", "beside"]

Array = np.ndarray[Any, Any]
_PLACES = ("row_number", "rank", "dense_rank", "percent_rank", "ntile")
_SIZED = ("percent_rank", "ntile", "cume_dist")
_CARRIED = ("count", "sum", "avg", "min", "max", "first_value", "last_value", "nth_value")
_WORKING = 2
"""Bytes that work on a byte of footprint takes."""


@dataclass(frozen=True, slots=True)
class OnePartition:
    """All rows of a partition, for functions of one order.  schema: of the rows; share: bytes that work may take.

    rising: whether rows come in the order of the functions.
    Cost: a sort of the rows on disk, unless they are rising, and of bounded frames the rows of all of them.
    """

    items: Sequence[OverItem]
    schema: pa.Schema
    spills: Spills
    share: int
    rising: bool = False

    @property
    def keeps_order(self) -> bool:
        """Whether rows come out as they came in."""
        return self.rising or not self.items[0].order

    def rows(self, batches: Batches) -> Batches:
        """The rows with a column behind them for each function, named as it is; in no order unless it `keeps_order`.

        Raises SumOverflow; MemoryRefused for functions that must see all rows, and frames of too many.
        """
        items = [replace(item, by=()) for item in self.items]
        ((held,), fits) = all_that_fits([Given(batches, self.schema, _none)], self.share)
        if not fits and any(_way(item) == "held" for item in items):
            held, fits = self._held(items, chain(held, batches)), True
        if fits:
            rows = together(held, self.schema)
            yield beside(rows, items, over_values(items, rows))
            return
        all_rows = _All(items, self.schema, self.spills, self.share)
        found = _cut(self._in_order(items, chain(held, batches), all_rows), self.share)
        for way, work in _WORK.items():
            own = [item for item in items if _way(item) == way]
            if own:
                found = work(found, own, all_rows)
        yield from found

    def _in_order(self, items: Sequence[OverItem], batches: Batches, all_rows: _All) -> Batches:
        """The rows in order, all of them seen before where a function needs that."""
        if self.keeps_order:
            if not all_rows.needed:
                return batches
            spill = self.spills.new(self.schema)
            for batch in batches:
                all_rows.see(batch)
                self.spills.put(spill, batch)
            return spill.popped()
        keys = items[0].order
        sorter = Sorter(self.spills, self.schema, lambda batch: order_of(keys, batch), self.share)
        for batch in batches:
            all_rows.see(batch)
            sorter.add(batch)
        return sorter.rows()

    def _held(self, items: Sequence[OverItem], batches: Batches) -> list[pa.RecordBatch]:
        names = [item for item in items if _way(item) == "held"]
        taken: list[pa.RecordBatch] = []
        size = rows = 0
        for batch in batches:
            taken.append(batch)
            size += _WORKING * footprint(batch)
            rows += batch.num_rows
            if size > room_for_answers():
                taken.clear()
                raise beyond_room(
                    f"{names[0].function} OVER: needed all rows of a partition in memory, as its frame has no bound or "
                    "NULLs are left out", rows, size,
                    "bound the frame on both sides, add PARTITION BY, or ask for fewer rows", so_far=True,
                )  # fmt: skip
        return taken


def _cut(batches: Batches, share: int) -> Batches:
    """The rows in batches that each take no more than a share."""
    for batch in batches:
        most = max(1, share * batch.num_rows // max(1, footprint(batch)))
        for begin in range(0, batch.num_rows, most):
            yield batch.slice(begin, most)


def _none(batch: pa.RecordBatch) -> Array:
    return np.zeros(batch.num_rows, np.uint64)


def beside(rows: pa.RecordBatch, items: Sequence[OverItem], values: Sequence[pa.Array]) -> pa.RecordBatch:
    """The rows, and a column for each function in its type."""
    typed = [
        each if each.type == item.field.type else pc.cast(each, item.field.type, safe=False)
        for item, each in zip(items, values, strict=True)
    ]
    names = [*rows.schema.names, *(item.name for item in items)]
    return pa.RecordBatch.from_arrays([*rows.columns, *typed], names=names)


def _all_alike(rows: pa.RecordBatch, items: Sequence[OverItem], values: Sequence[pa.Array]) -> pa.RecordBatch:
    """The rows, all with the same values.  values: an array of one for each function."""
    zeros = pa.array(np.zeros(rows.num_rows, np.int64))
    return beside(rows, items, [each.take(zeros) for each in values])


def _way(item: OverItem) -> str:
    """How a function is worked out: by its "place", from rows "near", "carried" up to each row or its last "peer", from
    "all" rows, or with all of them "held".
    """
    frame, function = item.frame, item.function
    if function in _PLACES:
        return "place"
    if function == "cume_dist":
        return "peer"
    if function in SESSIONS:
        return "near"
    if function in ("lag", "lead"):
        return "held" if item.without_nulls else "near"
    begin: float | None = None
    end: float | None = 0 if item.order else None
    unit = "range"
    if frame is not None:
        begin, end, unit = frame.begin, frame.end, frame.unit
    if begin is not None and end is not None:
        return "near"
    if begin is None and end is None:
        plain = function in ("first_value", "last_value") and not item.without_nulls
        return "all" if plain or function not in FUNCTIONS else "held"
    if begin is not None or function not in _CARRIED or (function == "nth_value" and item.without_nulls):
        return "held"
    if unit != "rows":
        return "peer" if end == 0 else "held"
    return "carried" if end is not None and end <= 0 else "held"


class _All:
    """What all rows of a partition tell: how many there are, the first and last of them, and aggregates.

    needed: whether they must be seen before the first can go.
    """

    def __init__(self, items: Sequence[OverItem], schema: pa.Schema, spills: Spills, share: int) -> None:
        own = [item for item in items if _way(item) == "all"]
        self.needed = bool(own) or any(item.function in _SIZED for item in items)
        self.count = 0
        self.schema, self.spills, self.share = schema, spills, share
        self._keys = items[0].order
        self._ends: list[pa.RecordBatch] = []
        self._asked = tuple(whole(item) for item in own if item.function not in FUNCTIONS)
        wanted = looked_at(Group(Relation("", "", ()), (), self._asked))
        self._narrow = [schema.get_field_index(name) for name in schema.names if name in wanted] or [0]
        self._rows = spills.new(pa.schema([schema.field(at) for at in self._narrow])) if self._asked else None

    def see(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self.count += batch.num_rows
        if self._rows is not None:
            self.spills.put(self._rows, batch.select(self._narrow))
        if self.needed:
            both = together([*self._ends, batch], self.schema)
            order = order_of(self._keys, both)
            self._ends = [both.slice(int(order[0]), 1), both.slice(int(order[-1]), 1)]

    def value(self, item: OverItem) -> pa.Array:
        """The one value of a function: an array of one."""
        if item.function in FUNCTIONS:
            return column_of(item.arguments[0], self._ends[item.function == "last_value"])
        assert self._rows is not None
        return OneGroup(self._rows, self.spills, self.share).aggregated(whole(item))


def _by_all(batches: Batches, items: Sequence[OverItem], all_rows: _All) -> Batches:
    """Functions of which all rows have the same value."""
    values = [all_rows.value(item) for item in items]
    for batch in batches:
        yield _all_alike(batch, items, values)


def _first_of_peers(keys: Sequence[Any], last: pa.RecordBatch | None, batch: pa.RecordBatch) -> Array:
    """Whether each row differs in order from the one before: bool [n].  last: the row before the first."""
    both = batch if last is None else together([last, batch], batch.schema)
    first = np.zeros(both.num_rows, np.bool_)
    first[:1] = last is None
    for column in sort_columns(keys, both):
        first[1:] |= column[1:] != column[:-1]
    return first[both.num_rows - batch.num_rows :]


def _by_place(batches: Batches, items: Sequence[OverItem], all_rows: _All) -> Batches:
    """Ranks, and what else follows from how many rows there are before."""
    at = begin = groups = 0
    last: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        first = _first_of_peers(items[0].order, last, batch)
        places = at + np.arange(batch.num_rows)
        begins = np.maximum.accumulate(np.where(first, places, begin))
        dense = groups + np.cumsum(first)
        values = []
        for item in items:
            match item.function:
                case "row_number":
                    values.append(pa.array(places + 1))
                case "rank":
                    values.append(pa.array(begins + 1))
                case "dense_rank":
                    values.append(pa.array(dense))
                case "percent_rank":
                    values.append(pa.array(begins / np.float64(max(all_rows.count - 1, 1))))
                case _:
                    values.append(pa.array(tile(places, np.full_like(places, all_rows.count), number_of(item, 0))))
        at, begin, groups, last = at + batch.num_rows, int(begins[-1]), int(dense[-1]), batch.slice(batch.num_rows - 1)
        yield beside(batch, items, values)


def _nearby(batches: Batches, items: Sequence[OverItem], _: _All) -> Batches:
    """Functions of rows around each row: of those in memory the ones are told whose rows are all there."""
    held: pa.RecordBatch | None = None
    done = 0
    waiting: list[pa.RecordBatch] = []
    new = 0
    for batch, is_last in _with_last(batches):
        waiting.append(batch)
        new += batch.num_rows
        if not is_last and held is not None and new < held.num_rows:  # each row is looked at twice, no more
            continue
        held = together(waiting if held is None else [held, *waiting], batch.schema)
        waiting, new = [], 0
        if (size := _WORKING * footprint(held)) > room_for_answers():
            raise beyond_room(
                f"{items[0].function} OVER: needed the rows of a frame in memory, and as many again", held.num_rows,
                size, "make the frame narrower, or ask for fewer rows", so_far=True,
            )  # fmt: skip
        low, high = frames_of(items, held)
        end = held.num_rows
        if not is_last and end:
            end = max(done, int(np.searchsorted(np.maximum.accumulate(high), end)))
        yield beside(held, items, over_values(items, held)).slice(done, end - done)
        begin = min(end, int(low[end:].min(initial=end)))
        held, done = held.slice(begin), end - begin


def _with_last(batches: Batches) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Each batch, and whether it is the last."""
    before: pa.RecordBatch | None = None
    for batch in batches:
        if before is not None:
            yield before, False
        before = batch
    if before is not None:
        yield before, True


def _up_to_each(batches: Batches, items: Sequence[OverItem], all_rows: _All) -> Batches:
    """Frames from the first row to each, or to one so many rows before it."""
    behind = [0 if item.frame is None or item.frame.end is None else -int(item.frame.end) for item in items]
    carried = [Carried(item, all_rows.count, behind=far) for item, far in zip(items, behind, strict=True)]
    for batch in batches:
        yield beside(batch, items, [each.over(batch) for each in carried])


def _up_to_peers(batches: Batches, items: Sequence[OverItem], all_rows: _All) -> Batches:
    """Frames from the first row to the last that is equal in order; these wait for it, on disk if there are many."""
    carried = [Carried(item, all_rows.count) for item in items]
    last: pa.RecordBatch | None = None
    told: list[pa.Array] = []
    waiting = _Waiting(all_rows)
    for batch in batches:
        n = batch.num_rows
        if not n:
            continue
        starts = np.flatnonzero(_first_of_peers(items[0].order, last, batch))
        values = [each.over(batch) for each in carried]
        if starts.shape[0]:
            first, end = int(starts[0]), int(starts[-1])
            # Those that waited are equal to the first rows here, if any come before the first that differs.
            told = [each.slice(first - 1, 1) for each in values] if first else told
            for rows in chain(waiting.all(), [batch.slice(0, first)] if first else ()):
                yield _all_alike(rows, items, told)
            ends = pa.array(np.repeat(starts[1:] - 1, np.diff(starts)))
            yield beside(batch.slice(first, end - first), items, [each.take(ends) for each in values])
            waiting.put(batch.slice(end))
        else:
            waiting.put(batch)
        told = [each.slice(n - 1) for each in values]
        last = batch.slice(n - 1)
    for rows in waiting.all():
        yield _all_alike(rows, items, told)


class _Waiting:
    """Rows in order that wait, more than a share of memory on disk."""

    def __init__(self, all_rows: _All) -> None:
        self._by = all_rows
        self._held: list[pa.RecordBatch] = []
        self._taken = 0
        self._spill: Spill | None = None

    def put(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._taken += footprint(batch)
        if self._taken > self._by.share:
            self._spill = self._spill or self._by.spills.new(batch.schema)
            for each in self._held:
                self._by.spills.put(self._spill, each)
            self._held, self._taken = [], 0

    def all(self) -> Batches:
        """All that wait; then none do."""
        spill, held = self._spill, self._held
        self._spill, self._held, self._taken = None, [], 0
        yield from chain(spill.popped() if spill is not None else (), held)


_WORK: dict[str, Callable[[Batches, Sequence[OverItem], _All], Batches]] = {
    "place": _by_place, "near": _nearby, "carried": _up_to_each, "peer": _up_to_peers, "all": _by_all,
}  # fmt: skip
