"""The table of plain functions: every example of it is what DuckDB says, at once and of a literal alone."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from judge import fresh_duckdb

import nile
from nile.expressions.functions import PLAIN

TEXTS = [
    "", "a", "ab", "a/b/c", "//", " a b ", "éa", "xéx", "x=1&a=2&b=3", "a=7", "banana", "A1b22", "\n", "a\nb", None,
    "(x)", "日本/語",
]  # fmt: skip
NUMBERS = [0.0, -0.0, 1.0, -2.5, 9.0, 1e300, math.inf, -math.inf, math.nan, None, 0.5, 2.0, 3.0, 4.0, 10.0, 100.0, 7.25]
TIMES = [datetime(2024, 1 + at % 12, 1 + at * 5 % 28, at, at, at, at) if at != 5 else None for at in range(len(TEXTS))]
TIMES[0], TIMES[1] = datetime(2020, 12, 31, 23, 59, 59), datetime(1969, 12, 28, 1, 2, 3)
TABLE = pa.table(
    {
        "t": pa.array(TEXTS),
        "v": pa.array(NUMBERS),
        "n": pa.array([None, *range(-3, len(TEXTS) - 4)], pa.int64()),
        "ts": pa.array(TIMES, pa.timestamp("us")),
    }
)


def alike(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return (math.isnan(ours) and math.isnan(theirs)) or ours == theirs or math.isclose(ours, theirs, rel_tol=1e-14)
    return bool(ours == theirs)


@pytest.mark.parametrize("call", [call for rule in PLAIN.values() for call in rule.examples])
def test_an_example_is_what_duckdb_says(call: str) -> None:
    connection = fresh_duckdb()
    connection.register("r", TABLE)
    theirs = [row[0] for row in connection.execute(f"SELECT {call} FROM r").fetchall()]
    with nile.connect() as db:
        db.register("r", TABLE)
        ours = [row[0] for row in db.sql(f"SELECT {call} AS x FROM r").fetchall()]
        again = db.sql(f"SELECT count(*) FROM r WHERE ({call}) IS NULL").fetchall()
    assert [(a, b) for a, b in zip(ours, theirs, strict=True) if not alike(a, b)] == []
    assert again == [(sum(each is None for each in theirs),)]


def test_every_function_of_the_table_has_an_example_and_is_in_the_documentation() -> None:
    with open("docs/sql.md", encoding="utf-8") as file:
        told = file.read()
    assert all(rule.examples for rule in PLAIN.values())
    assert [name for name in PLAIN if f" {name} " not in told.replace("`", " ").replace("\n", " ")] == []


def test_a_pattern_that_backtracking_would_never_end_takes_linear_time() -> None:
    with nile.connect() as db:
        db.register("r", {"t": ["a" * 200_000 + "b"]})
        assert db.sql("SELECT count(*) FROM r WHERE regexp_matches(t, '^(a+)+$')").fetchall() == [(0,)]


@pytest.mark.parametrize(
    "call",
    [
        "repeat(repeat(repeat('a', 1000), 1000), 1000)",
        f"replace(replace(replace(repeat('a', 1000), 'a', '{'a' * 1000}'), 'a', '{'a' * 1000}'), 'a', 'bb')",
        f"regexp_replace(repeat(repeat('a', 1000), 100), 'a', '{'b' * 9000}', 'g')",
    ],
)
def test_text_that_would_grow_beyond_bounds_is_refused_before_it_is_made(call: str) -> None:
    with nile.connect() as db:
        db.register("r", TABLE)
        with pytest.raises(nile.MemoryRefused):
            db.sql(f"SELECT {call} AS x FROM r").fetchall()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("split_part(t, '/', 0)", "but 0 in split_part"),
        ("split_part(t, '', 1)", "of 1 to"),
        ("split_part(t, t, 1)", "a text literal"),
        ("regexp_matches(t, '(')", "a regular expression"),
        ("regexp_replace(t, 'a', 'b', 'i')", "one of 'g'"),
        ("lpad(t, 3, 'ab')", "of 1 to 1 characters"),
        ("reverse(n)", "reverse() needs text"),
        ("quarter(t)", "quarter() needs a timestamp"),
        ("log(3, n)", "divide ln"),
        ("split_parts(t, '/', 1)", "did you mean split_part()"),
    ],
)
def test_what_a_function_does_not_take_is_said(call: str, told: str) -> None:
    with nile.connect() as db:
        db.register("r", TABLE)
        with pytest.raises(nile.NileError) as caught:
            db.sql(f"SELECT {call} AS x FROM r").fetchall()
    assert told in str(caught.value)
