from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nile.base.durations import MAX_DURATION, format_duration, parse_duration
from nile.summaries.errors import ConfigError

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6 hours", 6 * 3600 * SECOND),
        ("100 ms", 100_000_000),
        ("1h", 3600 * SECOND),
        ("1 hour 30 min", 5400 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("1 day, 2 hours and 3 seconds", 93_603 * SECOND),
        ("2 min", 120 * SECOND),
        ("0.5 s", SECOND // 2),
        (".25 h", 900 * SECOND),
        ("1. s", SECOND),
        ("3600", 3600 * SECOND),
        ("  2 Weeks ", 14 * 86_400 * SECOND),
        ("5 µs", 5_000),
        ("5 μs", 5_000),
        ("1 ns", 1),
        (3600, 3600 * SECOND),
        (0.1, 100_000_000),
        (timedelta(milliseconds=3), 3_000_000),
        (timedelta(days=2), 172_800 * SECOND),
    ],
)
def test_a_duration_reads_as_nanoseconds(text: object, expected: int) -> None:
    assert parse_duration(text, where="window") == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad",
    [
        *[
            "",
            " ",
            "soon",
            "6 parsecs",
            "6 h 5",
            "-1 s",
            "1 month",
            "2 years",
            "1e3",
            "h",
            "6,,h",
            "0",
            "0 s",
        ],
        *[0, -1, 0.0, float("nan"), float("inf"), -float("inf"), 10**400, 1e-10, 1e30, "9" * 200, "100 years"],
        *[True, None, [1], timedelta(0), timedelta(days=-1), "99999999999999 h", MAX_DURATION],
    ],
)
def test_what_is_no_duration_is_refused_and_the_setting_named(bad: object) -> None:
    with pytest.raises(ConfigError, match=r"^lateness of 'store1': needed a duration"):
        parse_duration(bad, where="lateness of 'store1'")  # type: ignore[arg-type]


def test_months_get_a_hint_to_write_days() -> None:
    with pytest.raises(ConfigError, match="write days"):
        parse_duration("1 month", where="window")


def test_the_error_is_also_a_value_error() -> None:
    with pytest.raises(ValueError, match="window"):
        parse_duration("x", where="window")


@pytest.mark.parametrize(
    ("ns", "expected"),
    [
        (3600 * SECOND, "1 h"),
        (600 * SECOND, "10 min"),
        (100_000_000, "100 ms"),
        (5400 * SECOND, "1 h 30 min"),
        (7 * 86_400 * SECOND, "7 d"),
        (1, "1 ns"),
        (0, "0 s"),
        (-SECOND, "-1 s"),
    ],
)
def test_a_duration_is_written_in_the_units_people_use(ns: int, expected: str) -> None:
    assert format_duration(ns) == expected


@given(st.integers(1, MAX_DURATION))
def test_what_is_written_reads_back_to_the_nanosecond(ns: int) -> None:
    assert parse_duration(format_duration(ns), where="window") == ns


@pytest.mark.parametrize("none", [0, 0.0, "0", "0 s", timedelta(0), np.int64(0)])
def test_nothing_is_a_duration_where_that_means_something(none: Any) -> None:
    assert parse_duration(none, where="lateness", least=0) == 0
    for bad in (-1, "-1 s", 1e-10, "soon", float("nan")):
        with pytest.raises(ConfigError, match=r"^lateness: needed a duration of 0 or more"):
            parse_duration(bad, where="lateness", least=0)


def test_numbers_of_numpy_are_seconds_as_others_are() -> None:
    given = [parse_duration(one, where="window") for one in (np.float32(0.5), np.int16(2), np.float64(0.1))]
    assert given == [SECOND // 2, 2 * SECOND, SECOND // 10]
