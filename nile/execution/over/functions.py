"""Window functions over whole inputs, column by column.

Rows are put in order once a partition and order; a frame is then a range of places for each row.  Sums over frames
that begin with the partition run on; over others they are added up frame by frame, so that no rounding is carried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.answers.tabular import refuse_beyond_memory, room_for_answers
from nile.base.nearest import nearest
from nile.base.times import event_times
from nile.execution.over.ordering import sort_columns
from nile.execution.values import column_of
from nile.expressions.tree import Constant
from nile.operators.aggregate.exact import aggregated
from nile.operators.common.rows import ranks, row_codes
from nile.sql.over import SESSIONS, Frame
from nile.sql.plan import AggregateItem, Over, OverItem
from nile.summaries.errors import SumOverflow
from nile.summaries.heavy import pa, pc

__all__ = ["frames_of", "least_or_most", "number_of", "over_rows", "over_values", "tile", "whole"]

Array = np.ndarray[Any, Any]
_AT_ONCE = 1 << 22
"""Rows of frames that are written out together."""


def over_rows(plan: Over, below: pa.RecordBatch, part: Array | None = None) -> pa.RecordBatch:
    """The rows as they came, with the values of window functions behind them.

    part: int64 [n], rows of different numbers know nothing of each other; None: one for all.
    Cost: O(n log n), and of frames that neither begin with the partition nor are it the rows of all frames.
    Raises MemoryRefused, SumOverflow.
    """
    names = [field.name for field in plan.fields]
    return pa.RecordBatch.from_arrays([*below.columns, *over_values(plan.items, below, part)], names=names)


def over_values(items: Sequence[OverItem], below: pa.RecordBatch, part: Array | None = None) -> list[pa.Array]:
    """The values of window functions alone, a column each."""
    places: dict[object, _Places] = {}
    columns = []
    for item in items:
        same = (item.by, item.order)
        if same not in places:
            places[same] = _placed(item, below, part)
        columns.append(_values(item, places[same], below))
    return columns


def frames_of(items: Sequence[OverItem], below: pa.RecordBatch) -> tuple[Array, Array]:
    """The rows that values are made of, from low to before high, int64 [n] each; below: one partition in its order."""
    p = _placed(items[0], below, None)
    low, high = p.at, p.at + 1
    for item in items:
        if item.function in ("lag", "lead"):
            offset = (number_of(item, 1) if len(item.arguments) > 1 else 1) * (-1 if item.function == "lag" else 1)
            own = p.at + min(offset, 0), p.at + max(offset, 0) + 1
        elif item.function in SESSIONS:
            own = _runs(item, p, below)[:2]
        else:
            own = _frames(item, p, below)
        low, high = np.minimum(low, own[0]), np.maximum(high, own[1])
    return np.maximum(low, 0), np.minimum(high, below.num_rows)


@dataclass(frozen=True, slots=True)
class _Places:
    """Rows of all partitions in order, one partition after the other.

    order: the row at each place; part: its partition, dense; begin, end: of the partition; peer_begin, peer_end: of
    those equal in order; first: whether a place begins a group of peers.  int64 [n] each.
    """

    order: Array
    part: Array
    begin: Array
    end: Array
    peer_begin: Array
    peer_end: Array
    first: Array

    @property
    def at(self) -> Array:
        """The places themselves."""
        return np.arange(self.order.shape[0])


def _placed(item: OverItem, below: pa.RecordBatch, part: Array | None) -> _Places:
    n = below.num_rows
    more = [] if part is None else [pa.array(part)]
    codes, _ = row_codes([*more, *(column_of(node, below) for node in item.by)], n)
    keys = sort_columns(item.order, below)
    order = np.lexsort([*keys[::-1], codes])
    part = codes[order]
    new = np.ones(n, np.bool_)
    new[1:] = part[1:] != part[:-1]
    first = new.copy()
    for key in keys:
        there = key[order]
        first[1:] |= there[1:] != there[:-1]
    if not keys:
        first = new.copy()
    begin, end = _spans(new)
    return _Places(order, np.cumsum(new) - 1, begin, end, *_spans(first), first)


def _spans(new: Array) -> tuple[Array, Array]:
    """Where the run of each place begins and ends.  new: whether a place begins one."""
    n = new.shape[0]
    starts = np.flatnonzero(new)
    run = np.cumsum(new) - 1
    return starts[run] if n else np.zeros(0, np.int64), np.append(starts[1:], n)[run] if n else np.zeros(0, np.int64)


def _values(item: OverItem, places: _Places, below: pa.RecordBatch) -> pa.Array:
    n = below.num_rows
    if not n:
        return pa.array([], item.field.type)
    found = _in_order(item, places, below)
    back = np.empty(n, np.int64)
    back[places.order] = np.arange(n)
    column = found.take(pa.array(back))
    return column if column.type == item.field.type else pc.cast(column, item.field.type, safe=False)


def _in_order(item: OverItem, p: _Places, below: pa.RecordBatch) -> pa.Array:
    """The function's value at each place."""
    at = p.at
    match item.function:
        case "row_number":
            return pa.array(at - p.begin + 1)
        case "rank":
            return pa.array(p.peer_begin - p.begin + 1)
        case "dense_rank":
            groups = np.cumsum(p.first)
            return pa.array(groups - groups[p.begin] + 1)
        case "percent_rank":
            return pa.array((p.peer_begin - p.begin) / np.maximum(p.end - p.begin - 1, 1).astype(np.float64))
        case "cume_dist":
            return pa.array((p.peer_end - p.begin) / (p.end - p.begin).astype(np.float64))
        case "ntile":
            return pa.array(tile(at - p.begin, p.end - p.begin, number_of(item, 0)))
        case "session_start" | "session_end":
            return _session(item, p, below)
        case "lag" | "lead":
            return _shifted(item, p, below)
    low, high = _frames(item, p, below)
    argument = None if not item.arguments else column_of(item.arguments[0], below).take(pa.array(p.order))
    if item.function in ("first_value", "last_value", "nth_value"):
        assert argument is not None
        if item.without_nulls:
            return _known(item, argument, low, high)
        place = {"first_value": low, "last_value": high - 1}.get(item.function)
        place = low + number_of(item, 1) - 1 if place is None else place
        return _taken(argument, place, (place < low) | (place >= high))
    return _aggregate(item, argument, p, low, high)


def _session(item: OverItem, p: _Places, below: pa.RecordBatch) -> pa.Array:
    """When the run that each row is in begins, or ends: an interval after its last row."""
    begin, end, times, ns = _runs(item, p, below)
    found = times[begin] if item.function == "session_start" else times[end - 1] + ns
    return pa.array(found // 1_000).cast(pa.timestamp("us"))


def _runs(item: OverItem, p: _Places, below: pa.RecordBatch) -> tuple[Array, Array, Array, int]:
    """(where the run of each place begins and ends, the times of places, the interval, both in ns)."""
    (gap,), (key,) = item.arguments, item.order
    assert isinstance(gap, Constant)
    ns = 1_000 * int(gap.value or 0)
    times = event_times(column_of(key.node, below)).ns[p.order]
    new = p.at == p.begin
    new[1:] |= times[1:] - times[:-1] >= ns
    return *_spans(new), times, ns


def number_of(item: OverItem, which: int) -> int:
    """An argument that is a whole number."""
    node = item.arguments[which]
    assert isinstance(node, Constant)
    return int(node.value)  # type: ignore[arg-type]


def _taken(values: pa.Array, place: Array, none: Array) -> pa.Array:
    return values.take(pa.array(np.where(none, 0, place), mask=none))


def tile(place: Array, size: Array, tiles: int) -> Array:
    """Buckets of like sizes, the larger ones first, from 1."""
    least, more = size // tiles, size % tiles
    large = more * (least + 1)
    found: Array = np.where(place < large, place // (least + 1), more + (place - large) // np.maximum(least, 1)) + 1
    return found


def _shifted(item: OverItem, p: _Places, below: pa.RecordBatch) -> pa.Array:
    offset = number_of(item, 1) if len(item.arguments) > 1 else 1
    place = p.at - offset if item.function == "lag" else p.at + offset
    none = (place < p.begin) | (place >= p.end)
    rows = pa.array(p.order)
    argument = column_of(item.arguments[0], below).take(rows)
    if item.without_nulls and offset:
        where, before = _valid_places(argument)
        which = before[p.at] - offset if item.function == "lag" else before[p.at + 1] + offset - 1
        none = (which < before[p.begin]) | (which >= before[p.end])
        values = _of_known(argument, where, which, none)
    else:
        values = _taken(argument, place, none)
    if len(item.arguments) < 3:
        return values
    default = pc.cast(column_of(item.arguments[2], below).take(rows), values.type, safe=False)
    return pc.if_else(pa.array(none), default, values)


def _known(item: OverItem, argument: pa.Array, low: Array, high: Array) -> pa.Array:
    """The first, last or n-th value of each frame that is not null."""
    where, before = _valid_places(argument)
    first, end = before[low], before[high]
    which = {"first_value": first, "last_value": end - 1}.get(item.function)
    which = first + number_of(item, 1) - 1 if which is None else which
    return _of_known(argument, where, which, (which < first) | (which >= end))


def _valid_places(argument: pa.Array) -> tuple[Array, Array]:
    """(the places of values, how many there are before each place and in all: one longer)."""
    valid = pc.is_valid(argument).to_numpy(zero_copy_only=False)
    return np.flatnonzero(valid), np.concatenate([[0], np.cumsum(valid, dtype=np.int64)])


def _of_known(argument: pa.Array, where: Array, which: Array, none: Array) -> pa.Array:
    """The values of those numbers among all that are not null."""
    if not where.shape[0]:
        return pa.nulls(len(argument), argument.type)
    return _taken(argument, where[np.where(none, 0, which)], none)


def _frames(item: OverItem, p: _Places, below: pa.RecordBatch) -> tuple[Array, Array]:
    """The places of each row's frame: from low to before high."""
    frame = item.frame
    if frame is None:
        return p.begin, p.peer_end if item.order else p.end
    if frame.unit == "rows":
        low = p.begin if frame.begin is None else np.clip(p.at + int(frame.begin), p.begin, p.end)
        high = p.end if frame.end is None else np.clip(p.at + int(frame.end) + 1, p.begin, p.end)
        return low, np.maximum(low, high)
    low, high = _groups(frame, p) if frame.unit == "groups" else _range(item, frame, p, below)
    return low, np.maximum(low, high)


def _groups(frame: Frame, p: _Places) -> tuple[Array, Array]:
    """Frames that count peers as one."""
    starts = np.append(np.flatnonzero(p.first), p.at.shape[0])
    group = np.cumsum(p.first) - 1
    low = p.begin if frame.begin is None else np.maximum(group + int(frame.begin), group[p.begin])
    high = p.end if frame.end is None else np.minimum(group + int(frame.end), group[p.end - 1]) + 1
    low = low if frame.begin is None else np.minimum(starts[np.minimum(low, starts.shape[0] - 1)], p.end)
    high = high if frame.end is None else np.maximum(starts[np.maximum(high, 0)], p.begin)
    return low, high


def _range(item: OverItem, frame: Frame, p: _Places, below: pa.RecordBatch) -> tuple[Array, Array]:
    low = p.begin if frame.begin is None else p.peer_begin.copy()
    high = p.end if frame.end is None else p.peer_end.copy()
    if all(each in (None, 0) for each in (frame.begin, frame.end)):
        return low, high
    (key,) = item.order
    column = column_of(key.node, below)
    if frame.interval:
        column = pc.cast(column, pa.timestamp("us")).cast(pa.int64())
    valid = pc.is_valid(column).to_numpy(zero_copy_only=False)[p.order]
    values = column.fill_null(0).to_numpy(zero_copy_only=False)[p.order]
    values = -values if key.descending else values
    for start in np.unique(p.begin).tolist():
        end = int(p.end[start])
        known = start + np.flatnonzero(valid[start:end])
        if not known.shape[0]:
            continue
        first, last = int(known[0]), int(known[-1]) + 1
        those = values[first:last]
        if frame.begin not in (None, 0):
            low[first:last] = first + np.searchsorted(those, those + frame.begin, side="left")
        if frame.end not in (None, 0):
            high[first:last] = first + np.searchsorted(those, those + frame.end, side="right")
    return low, high


def _aggregate(item: OverItem, argument: pa.Array | None, p: _Places, low: Array, high: Array) -> pa.Array:
    if argument is None:
        return pa.array(high - low)
    asked = whole(item)
    # By the frame and not by where it happens to end: rows of other partitions must not change a rounding.
    running = item.frame is None or item.frame.begin is None
    of_all = running and (not item.order if item.frame is None else item.frame.end is None)
    others = item.function not in ("count", "sum", "avg", "min", "max")
    if of_all or (others and np.array_equal(low, p.begin) and np.array_equal(high, p.end)):
        return aggregated(asked, argument, p.part, int(p.part[-1]) + 1).take(pa.array(p.part))
    match item.function:
        case "count":
            return pa.array(_counted(argument, low, high))
        case "sum" | "avg":
            return _summed(item, argument, p, low, high, running=running)
        case "min" | "max":
            return _extreme(argument, p, low, high, least=item.function == "min", running=running)
    total = int((high - low).sum())
    if item.frame is None or item.frame.begin is None or item.frame.end is None:  # the square of the rows, in time too
        refuse_beyond_memory(24 * total, total)
    step = max(1, min(room_for_answers() // 96, _AT_ONCE))
    cuts = np.flatnonzero(np.diff(np.cumsum(high - low) // step)) + 1
    found = []
    for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), high.shape[0]], strict=True):
        own, sizes = low[begin:end], (high - low)[begin:end]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows = argument.take(pa.array(np.repeat(own, sizes) + within))
        found.append(aggregated(asked, rows, np.repeat(np.arange(sizes.shape[0]), sizes), sizes.shape[0]))
    return pa.concat_arrays(found)


def whole(item: OverItem) -> AggregateItem:
    """The aggregate alone, over all rows."""
    argument = item.arguments[0] if item.arguments else None
    return AggregateItem(item.field, item.function, argument, False, item.fraction)


def _counted(argument: pa.Array, low: Array, high: Array) -> Array:
    """How many values of each frame are not null."""
    before = np.concatenate([[0], np.cumsum(pc.is_valid(argument).to_numpy(zero_copy_only=False), dtype=np.int64)])
    found: Array = before[high] - before[low]
    return found


def _summed(item: OverItem, argument: pa.Array, p: _Places, low: Array, high: Array, *, running: bool) -> pa.Array:
    counts = _counted(argument, low, high)
    none = counts == 0
    if pa.types.is_integer(argument.type) or pa.types.is_boolean(argument.type):
        values = pc.cast(argument, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        if float(np.abs(values.astype(np.float64)).max(initial=0.0)) * values.shape[0] >= 2**62:
            values = values.astype(object)
        before = np.concatenate([np.zeros(1, values.dtype), np.cumsum(values)])
        totals = before[high] - before[low]
        if item.function == "avg":
            return pa.array(totals.astype(np.float64) / np.maximum(counts, 1), mask=none)
        for total in totals[~none] if totals.dtype == object else ():
            if not -(1 << 63) <= total < 1 << 63:
                raise SumOverflow(
                    f"sum OVER: needed totals of {argument.type} within 64 bits; got {total}; cast the column to double"
                )
        return pa.array(totals.astype(np.int64), mask=none)
    numbers = nearest(argument, pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore", over="ignore"):
        if running:
            sums = np.empty(numbers.shape[0])
            for start in np.unique(p.begin).tolist():
                sums[start : p.end[start]] = np.cumsum(numbers[start : p.end[start]])
            totals = sums[np.maximum(high - 1, 0)]
        else:
            totals = _reduced(np.add, np.append(numbers, 0.0), low, high)
        totals = totals / np.maximum(counts, 1) if item.function == "avg" else totals
    return pa.array(totals, mask=none)


def least_or_most(values: pa.Array, *, least: bool) -> pa.Array:
    """The least, or greatest, of all values up to each; null before any."""
    n = len(values)
    none, at = np.zeros(n, np.int64), np.arange(n)
    p = _Places(at, none, none, np.full(n, n), at, at + 1, at == 0)
    return _extreme(values, p, none, at + 1, least=least, running=True)


def _extreme(argument: pa.Array, p: _Places, low: Array, high: Array, *, least: bool, running: bool) -> pa.Array:
    """The least or greatest of each frame; of equals (zeros of two signs are) the first in order."""
    rank, n = ranks(argument), len(argument)
    none = _counted(argument, low, high) == 0
    nothing = np.iinfo(np.int64).max if least else -1
    places = np.arange(n)
    ranked = np.where(rank < 0, nothing, rank * (n + 1) + (places if least else n - places))
    work = np.minimum if least else np.maximum
    if running:
        best = np.empty(n, np.int64)
        for start in np.unique(p.begin).tolist():
            best[start : p.end[start]] = work.accumulate(ranked[start : p.end[start]])
        best = best[np.maximum(high - 1, 0)]
    else:
        best = _reduced(work, np.append(ranked, nothing), low, high)
    place = best % (n + 1) if least else n - best % (n + 1)
    return _taken(argument, place, none)


def _reduced(work: Any, values: Array, low: Array, high: Array) -> Array:
    """`work` over values[low:high] of each row, anything where that is empty.  values: one longer than places."""
    bounds = np.stack([low, np.maximum(high, low)], axis=1).ravel()
    found: Array = work.reduceat(values, np.minimum(bounds, values.shape[0] - 1))[::2]
    return found
