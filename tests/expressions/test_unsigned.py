"""Whole numbers of 64 bits without a sign in conditions and casts: beyond 2^53 no two of them are alike."""

from __future__ import annotations

import random
import re

import duckdb
import pyarrow as pa
import pytest

import nile
from nile.expressions.conditions import parse_condition
from nile.summaries.errors import SqlError

_VALUES = [0, 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1, None]
_SIGNED = [-1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1, None]

CONDITIONS = [
    "u = 9007199254740993",
    "9007199254740992 < u",
    "u <> 9223372036854775807",
    "u = 9223372036854775808",
    "u >= 18446744073709551615",
    "u > -1",
    "u BETWEEN 9223372036854775807 AND 9223372036854775809",
    "u NOT BETWEEN s AND 18446744073709551614",
    "u IN (18446744073709551615, 1, NULL)",
    "u NOT IN (18446744073709551614, s)",
    "u = s",
    "u > s",
    "u < other",
    "u IS DISTINCT FROM s",
    "u = 9007199254740992 + 1",
    "u = NULL",
    "u > 1.5",
    "CAST(u AS VARCHAR) LIKE '%1'",
    "u || '' = '9007199254740993'",
    "TRY_CAST(u AS BIGINT) = 9007199254740993",
    "TRY_CAST(u AS INT) IS NULL",
]


def rows(seed: int, of: int = 90) -> pa.Table:
    draw = random.Random(seed)
    return pa.table(
        {
            "t": pa.array(range(of), pa.float64()),
            "u": pa.array([draw.choice(_VALUES) for _ in range(of)], pa.uint64()),
            "other": pa.array([draw.choice(_VALUES) for _ in range(of)], pa.uint64()),
            "s": pa.array([draw.choice(_SIGNED) for _ in range(of)], pa.int64()),
        }
    )


@pytest.mark.parametrize("condition", CONDITIONS)
def test_is_what_duckdb_says(condition: str) -> None:
    told = rows(1)
    wanted = duckdb.from_arrow(told).filter(condition).project("t").fetchall()
    assert 0 < len(wanted) < told.num_rows or condition == "u = NULL"
    with nile.connect() as db:
        db.register("of", told, time="t").register(
            "coded", told.set_column(1, "u", told["u"].dictionary_encode()), time="t"
        )
        db.register("kept", told, time="t", where=condition)
        for text in (
            f"SELECT t FROM of WHERE {condition}",
            f"SELECT t FROM coded WHERE {condition}",
            "SELECT t FROM kept",
        ):
            assert sorted(db.sql(text).fetchall()) == sorted(wanted), text
        renamed = re.sub(r"\bu\b", "v", condition)
        outer = f"SELECT t FROM (SELECT t, u AS v, s, other FROM of) WHERE {renamed}"
        assert sorted(db.sql(outer).fetchall()) == sorted(wanted)
        db.stream("live", told.schema, time="t")
        live = db.subscribe(f"SELECT t FROM live WHERE {condition}")
        others = [db.subscribe(f"SELECT t FROM live WHERE u = {value}") for value in range(20)]  # enough for an index
        for begin in (0, 40):
            db.push("live", told.slice(begin, 40 if not begin else None))
        db.advance(1_000.0)
        assert len(others) == 20
        assert [(row["t"],) for batch in live for row in batch.to_pylist()] == sorted(wanted)
        db.sql("CREATE SUMMARY counts ON live (u) WITH GRANULARITY '1 min' AND COLLAPSE (4, 3)")
        *_, last = db.sql(f"SELECT t FROM live WHERE {condition}").progress()
        assert sorted(last.to_arrow()["t"].to_pylist()) == sorted(t for (t,) in wanted)


def test_selections_and_conditions_on_pairs() -> None:
    told = rows(2)
    asked = {"least": "u >= 18446744073709551615", "odd": "u = 9007199254740993", "much": "u > 9223372036854775807"}
    with nile.connect() as db:
        db.register("of", told, time="t").register("a", told, time="t").register("b", rows(3), time="t")
        picked = db.select("of", on="u", predicates=asked).run(budget=1.0)
        for name, condition in asked.items():
            wanted = duckdb.from_arrow(told).filter(condition).project("t").fetchall()
            assert picked.ordinals(name).tolist() == [t for (t,) in wanted], name
        text = "SELECT a.t, b.t AS bt FROM a JOIN b ON a.s = b.s AND a.u > b.u"
        a, b = told, rows(3)  # noqa: F841 (DuckDB reads them by name)
        assert sorted(db.sql(text).fetchall()) == sorted(duckdb.sql(text).fetchall())
        having = "SELECT s, max(u) AS most FROM a GROUP BY s HAVING max(u) > 18446744073709551614"
        assert sorted(db.sql(having).fetchall(), key=str) == sorted(duckdb.sql(having).fetchall(), key=str)
        given = db.sql("SELECT count(*) AS n FROM of WHERE u >= ?", [2**64 - 1]).fetchone()
        assert given == duckdb.sql("SELECT count(*) FROM told WHERE u >= 18446744073709551615").limit(1).fetchall()[0]


def test_elsewhere_a_literal_beyond_64_bits_with_a_sign_is_refused() -> None:
    with nile.connect() as db:
        db.register("of", rows(1), time="t")
        for text in ("t > 18446744073709551615", "s = 9223372036854775808", "u + 9223372036854775808 > 1"):
            with pytest.raises(SqlError, match=r"is beyond 64 bits; write \d+\.0"):
                db.sql(f"SELECT t FROM of WHERE {text}")
        for text in ("u < 18446744073709551616", "u > -9223372036854775809"):
            with pytest.raises(SqlError, match="is beyond 64 bits"):
                db.sql(f"SELECT t FROM of WHERE {text}")


def test_spark_compares_the_column_as_it_is() -> None:
    schema = rows(1).schema
    assert parse_condition("u >= 18446744073709551615", where="here").spark(schema) == "(`u` >= 18446744073709551615BD)"
    assert parse_condition("u IN (1, 2)", where="here").spark(schema) == "(`u` IN (1L, 2L))"
    assert parse_condition("u > 1.5", where="here").spark(schema) == "(CAST(`u` AS DOUBLE) > 1.5D)"
