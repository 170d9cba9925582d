"""INSERT INTO: rows written out, rows of a query, and queries that fill a stream from then on, one after another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from judge import fresh_duckdb

import nile
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text

SALES = pa.schema([("ts", pa.timestamp("us")), ("item", pa.string()), ("price", pa.float64())])
DEAR = pa.schema([("at", pa.timestamp("us")), ("item", pa.string()), ("note", pa.string())])
MINUTES = pa.schema([("ends", pa.timestamp("us")), ("item", pa.string()), ("n", pa.int64())])
PIPELINE = (
    "INSERT INTO dear (item, at) SELECT item, ts FROM sales WHERE price > 2",
    "INSERT INTO minutes SELECT window_end, item, count(*) FROM TUMBLE(dear, at, INTERVAL '1 minute') "
    "GROUP BY window_end, item EMIT ON WINDOW CLOSE",
)


def made(where: Path | None = None) -> nile.Database:
    db = nile.connect() if where is None else nile.connect(where)
    for name, schema in (("sales", SALES), ("dear", DEAR), ("minutes", MINUTES)):
        db.stream(name, schema, time=schema.names[0])
    return db


def sales(seed: int, n: int = 400) -> pa.Table:
    random = np.random.default_rng(seed)
    ts = np.cumsum(random.integers(0, 9, n)) * 1_000_000
    items = random.choice(["tea", "cup", "jar"], n)
    return pa.table(
        [pa.array(ts).cast(SALES[0].type), pa.array(items), pa.array(random.integers(0, 6, n) / 1.5)], schema=SALES
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_pipeline_of_queries_gives_what_duckdb_gives_however_it_is_cut_and_restarted(
    seed: int, tmp_path: Path
) -> None:
    """Its rows are counted once: restarts come between any two pushes."""
    random, rows = np.random.default_rng(seed), sales(seed)
    db = made(tmp_path / "store")
    for text in PIPELINE:
        db.sql(text)
    cuts = np.sort(random.integers(0, rows.num_rows, 5))
    for begin, end in zip([0, *cuts], [*cuts, rows.num_rows], strict=True):
        db.push("sales", rows.slice(begin, end - begin))
        if random.random() < 0.5:
            db.close()
            db = nile.connect(tmp_path / "store")
    db.advance("1971-01-01")
    assert db.accounting("dear").applied == len(db.sql("SELECT * FROM dear").fetchall())
    oracle = fresh_duckdb()
    oracle.register("sales", rows)
    dear = oracle.sql("SELECT ts, item, NULL FROM sales WHERE price > 2 ORDER BY ts").fetchall()
    assert sorted(db.sql("SELECT * FROM dear").fetchall()) == sorted(dear)
    minutes = "date_trunc('minute', ts) + INTERVAL 1 MINUTE"
    expected = oracle.sql(f"SELECT {minutes}, item, count(*) FROM sales WHERE price > 2 GROUP BY ALL").fetchall()
    assert sorted(db.sql("SELECT * FROM minutes").fetchall()) == sorted(expected)
    assert [row[:2] for row in db.sql("SHOW QUERIES").fetchall()] == [("dear_1", "dear"), ("minutes_1", "minutes")]


def test_what_is_left_gets_through_when_a_database_in_memory_closes() -> None:
    told: list[dict[str, object]] = []
    db = made()
    db.subscribe("SELECT item FROM dear", lambda batch: told.extend(batch.to_pylist()))
    db.sql(PIPELINE[0])
    db.push("sales", sales(1, 9))
    before = len(told)
    db.close()
    assert before < len(told) == sum(price > 2 for price in sales(1, 9)["price"].to_pylist())


def test_values_and_finite_queries_are_pushed_once() -> None:
    db = made()
    db.sql(
        "INSERT INTO sales VALUES ('2024-01-01 00:00:00', upper('tea'), 1 + 1.5), (TIMESTAMP '2024-01-02', NULL, ?)",
        [3],
    )
    db.sql("INSERT INTO sales (price, ts) VALUES (1, '2024-01-03')")
    assert [row[1:] for row in db.sql("SELECT * FROM sales").fetchall()] == [("TEA", 2.5), (None, 3.0), (None, 1.0)]
    db.register("stock", {"day": sales(2, 5)["ts"], "item": ["a", "b", "c", "d", "e"]}, time="day")
    assert (
        db.sql("INSERT INTO dear (at, item) SELECT day, item FROM stock WHERE item > 'b'").message
        == "3 rows inserted into 'dear'"
    )
    assert [row[1] for row in db.sql("SELECT * FROM dear").fetchall()] == ["c", "d", "e"]


def test_a_query_that_is_dropped_fills_no_more() -> None:
    db = made()
    db.sql(PIPELINE[0])
    with pytest.raises(nile.NileError, match="reads or fills, before it can go; got 'dear_1'"):
        db.sql("DROP STREAM dear")
    db.sql("DROP QUERY dear_1")
    db.push("sales", sales(1))
    assert db.sql("SELECT * FROM dear").fetchall() == []
    assert db.sql("SHOW QUERIES").fetchall() == []
    db.sql("DROP QUERY IF EXISTS dear_1")
    db.sql("DROP STREAM dear")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT INTO nothing VALUES (1)", "line 1, column 13: needed a stream"),
        (
            "INSERT INTO sales (ts, nothing) VALUES (1, 2)",
            "line 1, column 24: needed columns of sales .*; got 'nothing'",
        ),
        ("INSERT INTO sales (ts, ts) VALUES (1, 2)", "line 1, column 24: .*each once; got 'ts'"),
        ("INSERT INTO sales VALUES (1, 2)", "line 1, column 26: needed 3 values in a row; got 2"),
        ("INSERT INTO sales VALUES (1, item, 2)", "line 1, column 30: needed a value in VALUES"),
        ("INSERT INTO sales VALUES (1, , 2)", "line 1, column 30: needed a value"),
        ("INSERT INTO sales VALUES ('2024-01-01', 'a', 'b')", "row 1: needed double for column 'price'; got 'b'"),
        ("INSERT INTO sales SELECT ts FROM sales", "line 1, column 19: needed a query of 3 columns for sales; got 1"),
        ("INSERT INTO sales SELECT ts, item, price FROM sales", "got 'sales', a circle"),
        ("INSERT INTO dear SELECT item, item, item FROM sales", r"needed timestamp\[us\] for column 'at'; got string"),
        (
            "INSERT INTO minutes SELECT ts, item, count(*) FROM sales GROUP BY ts, item",
            "needed a query of new rows; got one of changes",
        ),
        ("INSERT INTO dear TABLE sales", "needed VALUES or a query"),
        ("DROP QUERY nothing", "there is no standing query 'nothing'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_inserted(text: str, message: str) -> None:
    db = made()
    with pytest.raises(nile.NileError, match=message):
        db.sql(text)
    assert db.sql("SELECT count(*) FROM sales").fetchall() == [(0,)]


def test_a_query_that_cannot_go_on_ends_alone_and_the_push_says_so() -> None:
    db = made()
    db.sql(
        "INSERT INTO dear (item, at) SELECT item, CASE WHEN price > 2 THEN ts - INTERVAL '1 day' ELSE ts END FROM sales"
    )
    with pytest.raises(nile.NileError, match="stream 'dear'"):
        db.push("sales", sales(3))
    assert len(db.sql("SELECT * FROM sales").fetchall()) == 400
    assert db.sql("SHOW QUERIES").fetchall() == []


def test_statements_read_again_are_the_same() -> None:
    db = made()
    for text in (
        *PIPELINE,
        "INSERT INTO sales (ts, price) VALUES (TIMESTAMP '2024-01-01', 1.5), (NULL, -2)",
        "DROP QUERY q",
    ):
        statement = read_statement(text, db._names)
        assert read_statement(statement_text(statement), db._names) == statement


CHAIN = (
    "CREATE VIEW dearer AS SELECT ts, item, price FROM sales WHERE price > 1",
    "INSERT INTO dear (item, at) SELECT item, ts FROM dearer",
    "CREATE MATERIALIZED VIEW sold AS SELECT item, count(*) AS n FROM dear GROUP BY item",
    "CREATE VIEW most AS SELECT item, n FROM sold WHERE n > 3",
    "INSERT INTO minutes SELECT window_end, item, count(*) FROM TUMBLE(dear, at, INTERVAL '1 minute') "
    "GROUP BY window_end, item EMIT ON WINDOW CLOSE",
    "CREATE MATERIALIZED VIEW busy AS SELECT item, max(n) AS most FROM minutes GROUP BY item",
)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 12))])
def test_views_and_pipelines_that_read_each_other_go_on_after_every_restart(seed: int, tmp_path: Path) -> None:
    """Each statement and each push is in another life of the store, and the same chain in memory tells the same."""
    random, rows = np.random.default_rng(seed), sales(seed, 200)
    memory, where = made(), tmp_path / "store"
    made(where).close()
    for text in CHAIN:
        memory.sql(text)
        with nile.connect(where) as db:
            db.sql(text)
    begun = 0
    while begun < rows.num_rows:
        end = begun + int(random.integers(1, 60))
        with nile.connect(where) as db:
            for each in (memory, db):
                each.push("sales", rows.slice(begun, end - begun))
        begun = end
    with nile.connect(where) as db:
        for each in (memory, db):
            each.advance("1971-01-01")
        oracle = fresh_duckdb()
        oracle.register("sales", rows)
        kept = "SELECT ts, item FROM sales WHERE price > 1"
        wanted = {
            "sold": f"SELECT item, count(*) FROM ({kept}) GROUP BY item",
            "most": f"SELECT item, count(*) FROM ({kept}) GROUP BY item HAVING count(*) > 3",
            "busy": "SELECT item, max(n) FROM (SELECT item, count(*) AS n FROM "
            f"({kept}) GROUP BY item, date_trunc('minute', ts)) GROUP BY item",
        }
        for name, query in wanted.items():
            found = sorted(db.sql(f"SELECT * FROM {name}").fetchall())
            assert found == sorted(memory.sql(f"SELECT * FROM {name}").fetchall()), name
            assert found == sorted(oracle.execute(query).fetchall()), name
        assert sorted(db.sql("SHOW VIEWS").to_arrow().to_pydict()["name"]) == ["dearer", "most"]
        assert db.sql("SHOW QUERIES").to_arrow().num_rows == memory.sql("SHOW QUERIES").to_arrow().num_rows == 4
