"""Event times: any column of times, as int64 nanoseconds since 1970 in UTC.

    timestamps   any unit, with or without zone (without: UTC)
    dates        midnight
    numbers      seconds since 1970; floats are rounded to the nearest nanosecond
    text         cell by cell an ISO timestamp or a number of seconds (see `cells`)

A value that says no time gets a reason instead. Times keep clear of the ends of int64 (see TIME_LIMIT),
so that a time plus a window never overflows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nile.base.cells import NUMBER, NUMBER_WORD, parse_cells, parse_instants
from nile.base.durations import MAX_DURATION, NS_PER_SECOND
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa, pc

TIME_LIMIT = 2**63 - 1 - (MAX_DURATION + 2)
"""Event times t have |t| <= TIME_LIMIT nanoseconds (1750 to 2189), so t + window + 1 fits int64."""

NULL_TIME = "null time"
NAN_TIME = "NaN time"
INFINITE_TIME = "infinite time"
UNPARSABLE_TIME = "unparsable time"
TIME_OUT_OF_RANGE = "time out of range"
TIME_REASONS = ("", NULL_TIME, NAN_TIME, INFINITE_TIME, UNPARSABLE_TIME, TIME_OUT_OF_RANGE)
_NULL, _NAN, _INFINITE, _UNPARSABLE, _OUTSIDE = range(1, len(TIME_REASONS))

_TICKS = {"s": NS_PER_SECOND, "ms": 1_000_000, "us": 1_000, "ns": 1}


@dataclass(frozen=True, slots=True)
class EventTimes:
    """Event times of one batch: `ns` (int64, meaningless where a reason is given) and why rows have none.

    `reason` (uint8) indexes TIME_REASONS, 0 for a good time; it is None when every time is good.
    """

    ns: np.ndarray
    reason: np.ndarray | None


def check_time_type(column: pa.DataType, *, where: str) -> None:
    """Raises SourceError unless a column of this type can say when. `where` names stream and column."""
    types = pa.types
    plain = column.value_type if types.is_dictionary(column) else column
    if not (
        types.is_timestamp(plain)
        or types.is_date(plain)
        or types.is_integer(plain)
        or types.is_floating(plain)
        or _is_text(plain)
        or types.is_null(plain)
    ):
        raise SourceError(
            f"{where}: needed a timestamp, a date, a number of seconds since 1970 or ISO text; got {column}; "
            "convert the column, or name another with time="
        )


def event_times(column: pa.Array) -> EventTimes:
    """The event times of one column, whose type `check_time_type` accepts. Vectorised, O(rows)."""
    types = pa.types
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if _is_text(kind):
        return _from_text(column.cast(pa.string()))
    nulls = None if column.null_count == 0 else column.is_null().to_numpy(zero_copy_only=False)
    if types.is_null(kind):
        return EventTimes(np.zeros(len(column), np.int64), np.full(len(column), _NULL, np.uint8))
    if types.is_floating(kind):
        doubles = column if kind == pa.float64() else column.cast(pa.float64())
        seconds = (doubles if nulls is None else pc.fill_null(doubles, 0.0)).to_numpy(zero_copy_only=False)
        ns, reason = _from_floats(seconds)
    else:
        ticks, size = _ticks(column)
        ns, reason = _scaled(ticks, size)
    if nulls is not None:
        reason = np.zeros(len(ns), np.uint8) if reason is None else reason
        reason[nulls] = _NULL
    return EventTimes(ns, reason)


def instants(ns: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Event times, int64 [n] ns, as a column of timestamps of a type that has them all."""
    return pa.array(ns).view(pa.timestamp("ns", kind.tz)).cast(kind)


def _ticks(column: pa.Array) -> tuple[np.ndarray, int]:
    """A column of whole ticks as int64 (0 where null) and nanoseconds a tick."""
    kind, types = column.type, pa.types
    if types.is_timestamp(kind):
        size = _TICKS[kind.unit]
        whole = column.view(pa.int64())
    elif types.is_date32(kind):
        size, whole = 86_400 * NS_PER_SECOND, column.cast(pa.int32()).cast(pa.int64())
    elif types.is_date64(kind):
        size, whole = _TICKS["ms"], column.cast(pa.int64())
    elif types.is_uint64(kind):
        # Anything above int64 is far out of range; the clamp keeps it so.
        clamped = np.minimum(pc.fill_null(column, 0).to_numpy(zero_copy_only=False), np.uint64(2**63 - 1))
        return clamped.astype(np.int64), NS_PER_SECOND
    else:
        size, whole = NS_PER_SECOND, column.cast(pa.int64())
    if column.null_count:
        whole = pc.fill_null(whole, 0)
    ticks: np.ndarray = whole.to_numpy(zero_copy_only=False)
    return ticks, size


def _scaled(ticks: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray | None]:
    limit = TIME_LIMIT // size
    if len(ticks) == 0 or (ticks.min() >= -limit and ticks.max() <= limit):
        return (ticks if size == 1 else ticks * size), None
    outside = (ticks < -limit) | (ticks > limit)
    return np.where(outside, 0, ticks) * size, np.where(outside, np.uint8(_OUTSIDE), np.uint8(0))


def _from_floats(seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """ns = floor(s) * 10**9 + rint((s - floor(s)) * 10**9): the fraction is exact before it is rounded."""
    limit = TIME_LIMIT // NS_PER_SECOND
    good = np.abs(seconds) <= limit  # false for NaN
    everything = bool(good.all())
    safe = seconds if everything else np.where(good, seconds, 0.0)
    whole = np.floor(safe)
    ns = whole.astype(np.int64) * NS_PER_SECOND + np.rint((safe - whole) * NS_PER_SECOND).astype(np.int64)
    if everything:
        return ns, None
    reason = np.zeros(len(seconds), np.uint8)
    reason[~good] = _OUTSIDE
    reason[np.isinf(seconds)] = _INFINITE
    reason[np.isnan(seconds)] = _NAN
    return ns, reason


def _from_text(cells: pa.Array) -> EventTimes:
    ns, shaped, outside = parse_instants(cells)
    outside |= shaped & ((ns < -TIME_LIMIT) | (ns > TIME_LIMIT))
    if shaped.all() and not outside.any():
        return EventTimes(ns, None)
    reason = np.zeros(len(ns), np.uint8)
    empty = pc.fill_null(pc.equal(pc.ascii_trim_whitespace(cells), ""), True).to_numpy(zero_copy_only=False)
    numeric = pc.match_substring_regex(pc.ascii_trim_whitespace(cells), f"{NUMBER}|{NUMBER_WORD}")
    numeric = pc.fill_null(numeric, False).to_numpy(zero_copy_only=False)
    reason[~shaped] = _UNPARSABLE
    if numeric.any():
        numbers, _ = parse_cells(cells.filter(pa.array(numeric)), pa.float64())
        ns = ns.copy()
        ns[numeric], why = _from_floats(numbers.to_numpy(zero_copy_only=False))
        reason[numeric] = 0 if why is None else why
    reason[outside] = _OUTSIDE
    reason[empty] = _NULL
    return EventTimes(np.where(reason == 0, ns, 0), reason if reason.any() else None)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))
