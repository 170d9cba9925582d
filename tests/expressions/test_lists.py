"""Functions of lists and unnest: what DuckDB says, at once, standing, and in the text that a plan is written as."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from judge import fresh_duckdb
from sql_random import cell

import nile
from nile.expressions.lists import functions
from nile.expressions.lists.functions import LISTS
from nile.sql.catalog import Entry
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text

_WHOLE = [[1, 2, 3], [], None, [2, 2, None, 1], [None], [3], [5, -1, 2**62]]
_DOUBLES = [[1.0, math.nan], [], None, [0.0, -0.0, 2.5], [None], [math.inf], [-1.5, 1.0]]
ROWS = pa.table(
    {
        "ts": pa.array(range(1, 8), pa.int64()),
        "l": pa.array(_WHOLE, pa.list_(pa.int64())),
        "m": pa.array([[2], [1], [1], [None, 1], None, [3, 4], []], pa.list_(pa.int64())),
        "d": pa.array(_DOUBLES, pa.list_(pa.float64())),
        "s": pa.array([["a", "b"], [], None, ["b", "a", None, "é"], [None], ["a"], ["", "b"]], pa.list_(pa.string())),
        "b": pa.array([[True, False], [], None, [True, None], [None], [False], [True]], pa.list_(pa.bool_())),
        "n": pa.array([1, 2, None, -1, 0, 3, 2], pa.int64()),
        "t": pa.array(["a", "b", None, "x/y", "", "a/b", "="]),
    }
)
PAIRS = pa.table({"k": [1, 2, 3], "x": [1, 2, 2]})
CATALOG: Any = SimpleNamespace(
    entries={"r": Entry("r", ROWS.schema, "ts"), "q": Entry("q", PAIRS.schema, None)}, summaries={}, views={}
)
CALLS = [
    *(call for rule in LISTS.values() for call in rule.examples),
    "CASE WHEN n > 1 THEN l ELSE [] END", "coalesce(l, [7])", "l || m", "[1, 2.5]", "CAST(l AS VARCHAR[])",
    "CAST(l AS DOUBLE[])", "list_contains([n, 3], 3)", "string_split(t, '/')[1]", "len(l) + 1", "[DATE '2020-01-01']",
    "array_to_string(d, ' ')", "list_contains(l, 2.0)", "list_has_any(l, [2, NULL])", "[NULL, 1][n]",
    "len(CAST([] AS BIGINT[]))", "l[n:][1]", "list_slice(l, n, n + 1)", "[TIMESTAMP '2020-01-01', DATE '2020-01-02']",
]  # fmt: skip
QUERIES = [
    "SELECT n, unnest(l) AS x FROM r",
    "SELECT n, unnest(l) AS x, unnest(m) AS y FROM r",
    "SELECT unnest(l) + n AS z FROM r",
    "SELECT r.n FROM r, unnest(r.l) AS u(x)",
    "SELECT r.n, u FROM r, unnest(l) AS u",
    "SELECT r.n, u.x FROM r CROSS JOIN UNNEST(r.l) AS u(x) WHERE u.x > 1 AND r.n < 4",
    "SELECT r.n, u.x FROM r LEFT JOIN unnest(r.l) AS u(x) ON TRUE",
    "SELECT r.n, u.x FROM r JOIN unnest(r.l) AS u(x) ON u.x = r.n",
    "SELECT x, count(*) AS c FROM r, unnest(r.l) AS u(x) GROUP BY x",
    "SELECT u.x, q.k FROM r, unnest(r.l) AS u(x), q WHERE u.x = q.x",
    "SELECT u.x, q.k FROM r JOIN q ON r.n = q.k, unnest(r.l) AS u(x) WHERE u.x = q.x",
    "SELECT u.x FROM r JOIN q ON r.n = q.k CROSS JOIN unnest([r.n, q.x]) AS u(x)",
    "SELECT r.n, x FROM r, unnest([1, 2]) AS u(x)",
    "SELECT r.n, u.x FROM r, q, unnest([r.n, q.x]) AS u(x) WHERE r.n = q.k",
    "SELECT w, count(*) AS c FROM (SELECT unnest(string_split(t, '/')) AS w FROM r) GROUP BY w",
    "SELECT n FROM (SELECT n, unnest(l) AS x FROM r) WHERE n > 1",
    "SELECT DISTINCT unnest(l) AS x FROM r",
    "SELECT n, row_number() OVER (PARTITION BY n ORDER BY ts) AS c, unnest(l) AS x FROM r",
    "SELECT a.x, b.y FROM (SELECT n, unnest(l) AS x FROM r) a JOIN (SELECT n, unnest(m) AS y FROM r) b ON a.n = b.n",
    "SELECT r.n, u.x, v.y FROM r, unnest(r.l) AS u(x), unnest(r.m) AS v(y)",
    "SELECT n FROM r WHERE n IN (SELECT x FROM unnest([1, 3]) AS u(x))",
    "SELECT unnest(l) AS x FROM r UNION ALL SELECT unnest(m) FROM r",
    "SELECT unnest(l) AS x FROM r EXCEPT SELECT unnest(m) FROM r",
    "SELECT n, x FROM r, LATERAL unnest(r.l) AS u(x)",
    "SELECT unnest(l) AS x, x + 1 AS y FROM r",
    "SELECT n, list(x ORDER BY x) AS z FROM r, unnest(r.l) AS u(x) WHERE x IS NOT NULL GROUP BY n",
    "SELECT unnest(list(n ORDER BY n)) AS x FROM r",
]


def alike(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, float):
        return (math.isnan(ours) and math.isnan(theirs)) or math.isclose(ours, theirs, rel_tol=1e-14)
    return bool(ours == theirs)


def judge() -> duckdb.DuckDBPyConnection:
    connection = fresh_duckdb()
    connection.register("r", ROWS)
    connection.register("q", PAIRS)
    return connection


def counted(rows: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(map(cell, row)) for row in rows)


def test_functions_of_lists_are_what_duckdb_says() -> None:
    connection, wrong = judge(), []
    with nile.connect() as db:
        db.register("r", ROWS)
        for call in CALLS:
            theirs = [row[0] for row in connection.execute(f"SELECT {call} FROM r").fetchall()]
            ours = [row[0] for row in db.sql(f"SELECT {call} AS x FROM r").fetchall()]
            none = db.sql(f"SELECT {call} AS x FROM r WHERE n > 100").fetchall()
            if none or not all(map(alike, ours, theirs)):
                wrong.append((call, ours, theirs))
    assert wrong == []


def test_unnest_is_what_duckdb_says_at_once_and_standing() -> None:
    connection, wrong = judge(), []
    with nile.connect() as db:
        db.register("q", PAIRS)
        db.stream("r", ROWS.schema, time="ts")
        standing = [db.subscribe(f"{query} WINDOW 100", emit="changes") for query in QUERIES]
        for at in range(ROWS.num_rows):
            db.push("r", ROWS.slice(at, 1))
        asked = [counted(db.sql(query).fetchall()) for query in QUERIES]
        texts = [statement_text(read_statement(query, CATALOG)) for query in QUERIES]
        assert [read_statement(text, CATALOG) for text in texts] == [
            read_statement(query, CATALOG) for query in QUERIES
        ]
        again = [counted(db.sql(text).fetchall()) for text in texts]
    for query, subscription, once, twice in zip(QUERIES, standing, asked, again, strict=True):
        wanted = counted(connection.execute(query).fetchall())
        kept: Counter[tuple[Any, ...]] = Counter()
        for batch in subscription.poll():
            for row in batch.to_pylist():
                ts, sign, *values = row.values()
                if ts.value <= 50_000_000_000:
                    kept[tuple(map(cell, values))] += sign
        if not wanted == once == twice == +kept:
            wrong.append((query, wanted, once, twice, +kept))
    assert wrong == []


def test_a_function_of_lists_is_in_the_documentation() -> None:
    with open("docs/sql.md", encoding="utf-8") as file:
        told = file.read().replace("`", " ").replace("\n", " ")
    assert [name for name in LISTS if f" {name} " not in told] == []


def test_whole_numbers_beyond_64_bits_have_no_sum() -> None:
    with nile.connect() as db:
        rows = db.sql(
            "SELECT list_sum([9223372036854775807, 1]) AS a, list_sum([9223372036854775807, -1]) AS b"
        ).fetchall()
    assert rows == [(None, 2**63 - 2)]


def test_lists_that_would_grow_beyond_bounds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "_MOST", 10_000)
    query = "SELECT n, [1, 2, 3, 4] AS l FROM generate_series(1, 1000) AS t(n)"
    for _ in range(2):
        query = f"SELECT n, l || l AS l FROM ({query}) AS t"
    with nile.connect() as db, pytest.raises(nile.MemoryRefused, match="at most 10,000 elements"):
        db.sql(query).to_arrow()
