"""Event times of every column type, and why a value says no time."""

import datetime as dt
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nile.base.durations import MAX_DURATION
from nile.base.times import TIME_LIMIT, TIME_REASONS, check_time_type, event_times
from nile.summaries.errors import SourceError

SECOND = 10**9
DAY = 86_400 * SECOND


def times(column: pa.Array) -> list[int | str]:
    found = event_times(column)
    assert found.ns.dtype == np.int64
    if found.reason is None:
        return found.ns.tolist()
    return [TIME_REASONS[why] if why else int(ns) for ns, why in zip(found.ns, found.reason, strict=True)]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None], pa.timestamp("s")), [SECOND, "null time"]),
        (pa.array([1, 2], pa.timestamp("ms")), [10**6, 2 * 10**6]),
        (pa.array([-1, 1], pa.timestamp("us")), [-1000, 1000]),
        (pa.array([5], pa.timestamp("ns")), [5]),
        (pa.array([5], pa.timestamp("ns", "Europe/Paris")), [5]),
        (pa.array([1], pa.timestamp("s", "America/New_York")), [SECOND]),
        (pa.array([dt.date(1970, 1, 2), None]), [DAY, "null time"]),
        (pa.array([dt.date(1970, 1, 2)], pa.date64()), [DAY]),
        (pa.array([1, None, -1], pa.int64()), [SECOND, "null time", -SECOND]),
        (pa.array([3], pa.int8()), [3 * SECOND]),
        (pa.array([3, 2**64 - 1], pa.uint64()), [3 * SECOND, "time out of range"]),
        (pa.array([1.5, None, math.nan]), [1_500_000_000, "null time", "NaN time"]),
        (pa.array([math.inf, -math.inf]), ["infinite time", "infinite time"]),
        (pa.array([0.1, -0.25, 1e300]), [100_000_000, -250_000_000, "time out of range"]),
        (pa.array([1.5], pa.float32()), [1_500_000_000]),
        (pa.array([1.5], pa.float16()), [1_500_000_000]),
        (pa.array(["1970-01-02", "", None, "1970-01-01T00:00:01Z"]), [DAY, "null time", "null time", SECOND]),
        (pa.array(["soon", "2011-02-30", "1970-01-02"]), ["unparsable time", "unparsable time", DAY]),
        (pa.array(["1.5", "2", "nan", "inf"]), [1_500_000_000, 2 * SECOND, "NaN time", "infinite time"]),
        (pa.array(["1e300", "5"]), ["time out of range", 5 * SECOND]),
        (pa.array(["9999-12-31", "1600-01-01", "1970-01-01"]), ["time out of range"] * 2 + [0]),
        (pa.array(["1970-01-02"]).dictionary_encode(), [DAY]),
        (pa.array(["1970-01-02"], pa.large_string()), [DAY]),
        (pa.array(["1970-01-02"], pa.string_view()), [DAY]),
        (pa.nulls(2), ["null time", "null time"]),
        (pa.array([dt.datetime(9999, 12, 31)], pa.timestamp("us")), ["time out of range"]),
        (pa.array([2**62, 0], pa.timestamp("s")), ["time out of range", 0]),
        (pa.array([], pa.float64()), []),
        (pa.array([], pa.timestamp("us")), []),
        (pa.array([], pa.string()), []),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_a_column_says_when_or_why_not(column: pa.Array, expected: list[int | str]) -> None:
    assert times(column) == expected


def test_milliseconds_taken_for_seconds_are_out_of_range_not_wrapped() -> None:
    assert times(pa.array([1_322_733_600_000])) == ["time out of range"]


def test_the_ends_of_the_range_are_exact_and_leave_room_for_a_window() -> None:
    column = pa.array([TIME_LIMIT, TIME_LIMIT + 1, -TIME_LIMIT, -TIME_LIMIT - 1], pa.timestamp("ns"))
    assert times(column) == [TIME_LIMIT, "time out of range", -TIME_LIMIT, "time out of range"]
    assert TIME_LIMIT + MAX_DURATION + 1 < 2**63
    assert -TIME_LIMIT - MAX_DURATION - 1 >= -(2**63)


@given(st.floats(-6e9, 6e9))
def test_float_seconds_are_rounded_to_the_nearest_nanosecond(seconds: float) -> None:
    whole, fraction = math.floor(seconds), seconds - math.floor(seconds)
    assert times(pa.array([seconds])) == [whole * SECOND + round(fraction * SECOND)]


@given(st.integers(-(2**61), 2**61))
def test_a_time_written_as_text_reads_back_to_the_nanosecond(ns: int) -> None:
    text = str(pa.array([ns], pa.timestamp("ns")).cast(pa.string())[0])
    assert times(pa.array([text])) == [ns]


@pytest.mark.parametrize(
    "column",
    [pa.bool_(), pa.binary(), pa.list_(pa.int64()), pa.time64("us"), pa.duration("s"), pa.decimal128(9, 2)],
    ids=str,
)
def test_a_column_that_cannot_say_when_is_refused(column: pa.DataType) -> None:
    with pytest.raises(SourceError, match=r"^stream 's': time column 'x': needed a timestamp.*got .*time="):
        check_time_type(column, where="stream 's': time column 'x'")
