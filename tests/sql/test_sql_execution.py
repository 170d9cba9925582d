"""How exact SQL runs: ways, algorithms, windows between pairs, emit modes, accounting."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from judge import fresh_duckdb
from sql_random import cell, tables

import nile
from nile.exact.join.wjoin import ALGORITHMS
from nile.summaries.errors import SqlError

SECOND = 1_000_000_000
SALES = {
    "ts": [0.0, 0.0, 1.0, 5.0, 30.0],
    "item": ["tea", "cup", None, "tea", "tea"],
    "price": [1.0, 2.0, 3.0, 4.0, 5.0],
}


def rows_of(table: Any) -> Counter[tuple[Any, ...]]:
    columns = [[cell(value) for value in column.to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True))


def asked(connection: Any, text: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(cell(value) for value in row) for row in connection.execute(text).fetchall())


@pytest.fixture
def sales() -> nile.Database:
    db = nile.connect()
    db.register("sales", SALES, time="ts")
    db.register("returns", {"ts": [2.0, 6.0, 31.0], "item": ["tea", "tea", "cup"]}, time="ts")
    db.register("items", {"item": ["tea", "cup", "pot"], "kind": ["drink", "china", None]})
    return db


@pytest.fixture(scope="module")
def both() -> tuple[nile.Database, Any]:
    rng = random.Random(7)
    db, connection = nile.connect(), duckdb.connect()
    for name, table in tables(rng, 40).items():
        connection.register(name, table)
        db.register(name, table, time=None if name == "r" else "ts")
    return db, connection


FORMS = {
    "binary": ("s1 a, s2 b", "WINDOW 7", "abs(a.ts - b.ts) <= 7", "ab"),
    "uniform clique": (
        "s1 a, s2 b, s3 c", "WINDOW 9", "abs(a.ts - b.ts) <= 9 AND abs(b.ts - c.ts) <= 9 AND abs(a.ts - c.ts) <= 9",
        "abc",
    ),
    "clique": (
        "s1 a, s2 b, s3 c", "WINDOW (a, b) = 5 AND (b, c) = 9 AND (a, c) = 12",
        "abs(a.ts - b.ts) <= 5 AND abs(b.ts - c.ts) <= 9 AND abs(a.ts - c.ts) <= 12", "abc",
    ),
    "path": (
        "s1 a, s2 b, s3 c", "WINDOW (a, b) = 5 AND (b, c) = 9", "abs(a.ts - b.ts) <= 5 AND abs(b.ts - c.ts) <= 9",
        "abc",
    ),
    "directed path": (
        "s1 a, s2 b, s3 c", "DWINDOW (a, b) = 8 AND (b, c) = 9",
        "abs(a.ts - b.ts) <= 8 AND abs(b.ts - c.ts) <= 9 AND ((a.ts <= b.ts AND b.ts <= c.ts) OR "
        "(a.ts >= b.ts AND b.ts >= c.ts))", "abc",
    ),
}  # fmt: skip


@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
@pytest.mark.parametrize("form", FORMS)
def test_every_algorithm_finds_what_duckdb_finds_in_every_form_of_windows(
    both: tuple[nile.Database, Any], form: str, algorithm: str | None
) -> None:
    db, connection = both
    inputs, windows, times, names = FORMS[form]
    equal = " AND ".join(f"a.k = {other}.k" for other in names[1:])
    ids = ", ".join(f"{name}.id AS {name}" for name in names)
    found = db.sql(f"SELECT {ids} FROM {inputs} WHERE {equal} {windows}", algorithm=algorithm)
    wanted = asked(connection, f"SELECT {ids} FROM {inputs} WHERE {equal} AND {times}")
    assert wanted
    assert rows_of(found.to_arrow()) == wanted


@pytest.mark.parametrize("form", FORMS)
def test_joins_by_time_and_a_condition_alone(both: tuple[nile.Database, Any], form: str) -> None:
    db, connection = both
    inputs, windows, times, names = FORMS[form]
    condition = " AND ".join(f"a.n + {other}.n = 4" for other in names[1:])
    ids = ", ".join(f"{name}.id AS {name}" for name in names)
    found = db.sql(f"SELECT {ids} FROM {inputs} WHERE {condition} {windows}")
    assert rows_of(found.to_arrow()) == asked(connection, f"SELECT {ids} FROM {inputs} WHERE {condition} AND {times}")


@pytest.mark.parametrize("scheduling", ["ita", "tpa", "nta"])
def test_every_scheduling_ends_in_the_same_state(both: tuple[nile.Database, Any], scheduling: str) -> None:
    db, connection = both
    text = "SELECT k, count(*) AS n, sum(n) AS s FROM s1 GROUP BY k"
    changes = db.sql(f"{text} WINDOW 10", scheduling=scheduling).to_arrow()
    kept: Counter[tuple[Any, ...]] = Counter()
    for _, sign, *row in zip(*(column.to_pylist() for column in changes.columns), strict=True):
        kept[tuple(row)] += sign
    (last,) = connection.execute("SELECT max(ts) FROM s1").fetchone()
    wanted = asked(connection, text.replace("FROM s1", f"FROM s1 WHERE ts >= {last - 10}"))
    if scheduling != "ita":  # which takes back only when something arrives
        assert +kept == wanted


def test_combinations_come_in_the_order_they_complete(sales: nile.Database) -> None:
    found = sales.sql("SELECT a.ts AS a, b.ts AS b FROM sales a, returns b WHERE a.item = b.item WINDOW 10").fetchall()
    assert [max(a, b) for a, b in found] == sorted(max(a, b) for a, b in found)
    assert len(found) == 4


def test_a_join_keeps_a_window_and_no_more() -> None:
    db = nile.connect()
    n = 20_000
    for name in ("a", "b"):
        db.register(name, {"ts": np.arange(n, dtype=np.int64), "k": np.arange(n) % 100}, time="ts")
    result = db.sql("SELECT a.k FROM a, b WHERE a.k = b.k WINDOW 100")
    assert len(result) == 3 * n - 2 * 100
    assert result.memory < 200_000


def test_a_snapshot_is_what_the_windows_hold_at_the_last_event_time(sales: nile.Database) -> None:
    text = "SELECT item, count(*) AS n FROM sales GROUP BY item WINDOW 25"
    assert sales.sql(text, emit="snapshot").fetchall() == [("tea", 2)]
    assert sales.sql(text, emit="snapshot").emit == "snapshot"


def test_changes_carry_time_and_sign_before_the_row(sales: nile.Database) -> None:
    result = sales.sql("SELECT price FROM sales WINDOW 2", emit="changes")
    table = result.to_arrow()
    assert result.columns == ["_ts", "_sign", "price"]
    assert table.schema.types == [pa.timestamp("ns"), pa.int8(), pa.float64()]
    times = table["_ts"].cast(pa.int64()).to_pylist()
    assert times == sorted(times)
    assert (2 * SECOND + 1, -1, 1.0) in list(
        zip(times, *(table[c].to_pylist() for c in ("_sign", "price")), strict=True)
    )


def test_what_is_emitted_by_itself(sales: nile.Database) -> None:
    emits = {
        "SELECT item FROM sales": "snapshot",
        "SELECT item FROM sales WINDOW 5": "append",
        "SELECT DISTINCT item FROM sales WINDOW 5": "changes",
        "SELECT count(*) AS n FROM sales": "snapshot",
        "SELECT count(*) AS n FROM sales WINDOW 5": "changes",
    }
    assert {text: sales.sql(text).emit for text in emits} == emits


def test_a_limit_stops_reading() -> None:
    read: list[int] = []

    def batches() -> Any:
        for at in range(6):
            read.append(at)
            yield {"ts": np.full(70_000, float(at)), "x": np.arange(70_000) + at}

    db = nile.connect()
    db.register("s", batches, time="ts")
    read.clear()
    assert db.sql("SELECT x FROM s LIMIT 3 OFFSET 1").fetchall() == [(1,), (2,), (3,)]
    assert len(read) < 6


def test_order_and_limit_need_a_snapshot(sales: nile.Database) -> None:
    with pytest.raises(nile.ConfigError, match="emit='snapshot'"):
        sales.sql("SELECT item FROM sales ORDER BY item WINDOW 5")
    rows = sales.sql("SELECT item, price FROM sales ORDER BY item, price DESC WINDOW 25", emit="snapshot").fetchall()
    assert rows == [("tea", 5.0), ("tea", 4.0)]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("SELECT item FROM sales", {"emit": "apend"}, "emit: needed one of .*did you mean 'append'"),
        ("SELECT item FROM sales", {"algorithm": "chain"}, "needed a window join; got a query without a join"),
        ("SELECT item FROM sales", {"windows": "lca"}, "leave windows= out"),
        ("SELECT item FROM sales", {"method": "paper"}, "method: needed a query WITH PREFERENCE"),
        ("SELECT item FROM sales", {"emitt": "append"}, "did you mean 'emit'"),
        (
            "SELECT a.item FROM sales a, returns b WHERE a.item < b.item WINDOW 5",
            {"algorithm": "xjoin"},
            "equality of keys",
        ),
        (
            "SELECT a.item FROM sales a, returns b WHERE a.item = b.item WINDOW 5",
            {"algorithm": "xjoin", "emit": "snapshot"},
            "say emit='append'",
        ),
    ],
)
def test_options_that_a_query_cannot_use_are_refused(
    sales: nile.Database, text: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(nile.NileError, match=message):
        sales.sql(text, **options).to_arrow()


def test_different_values_beside_all_rows_are_kept_up_to_date(sales: nile.Database) -> None:
    text = "SELECT count(DISTINCT item) AS d, count(*) AS n FROM sales WINDOW 5"
    state: Counter[tuple[int, int]] = Counter()
    for row in sales.sql(text).to_arrow().to_pylist():
        state[row["d"], row["n"]] += row["_sign"]
    assert +state == Counter(sales.sql(text, emit="snapshot").fetchall())
    assert all(n in (0, 1) for n in state.values())


def test_different_values_are_counted_as_they_come_and_go(sales: nile.Database) -> None:
    table = sales.sql("SELECT count(DISTINCT item) AS n FROM sales WINDOW 2").to_arrow()
    kept = {sign * n for sign, n in zip(table["_sign"].to_pylist(), table["n"].to_pylist(), strict=True)}
    assert 2 in kept
    assert sales.sql("SELECT sum(DISTINCT price) AS n FROM sales").fetchall() == [(15.0,)]


def test_every_tuple_is_accounted_for() -> None:
    db = nile.connect()
    db.register("s", {"ts": [5.0, None, 1.0, 6.0, 7.0], "x": [1, 2, 3, 4, 5]}, time="ts", lateness="1 s")
    for text in ("SELECT x FROM s", "SELECT count(*) AS n FROM s", "SELECT count(*) AS n FROM s WINDOW 3"):
        result = db.sql(text)
        result.to_arrow()
        told = result.accounting["s"]
        told.check()
        assert (told.tuples_in, told.applied, told.late, told.rejected) == (5, 3, 1, 1)


def test_rows_of_a_relation_that_are_no_rows_are_rejected(tmp_path: Any) -> None:
    file = tmp_path / "items.csv"
    file.write_text("item,weight\ntea,1.5\ncup,heavy\njar,2\n" + "pot,1\n" * 200)
    db = nile.connect()
    db.register("items", str(file))
    result = db.sql("SELECT item, weight FROM items WHERE item <> 'pot'")
    rows = result.fetchall()
    told = result.accounting["items"]
    told.check()
    assert told.applied + told.rejected == 203
    assert ("tea", 1.5) in rows or ("tea", "1.5") in rows


def test_a_stream_that_is_named_twice_is_read_once() -> None:
    db = nile.connect()
    db.register("s", iter([{"ts": [0.0, 1.0], "x": [1, 1]}]), time="ts")
    assert len(db.sql("SELECT a.x FROM s a, s b WHERE a.x = b.x WINDOW 5")) == 4


def test_explain_shows_the_tree_the_way_and_why(sales: nile.Database) -> None:
    text = "SELECT a.price FROM sales a, returns b WHERE a.item = b.item AND a.price > 1 WINDOW 10"
    lines = sales.sql(text).explain().split("\n")
    assert lines[0].startswith("project a.price  [about")
    assert [line.strip().split(" ")[0] for line in lines[:4]] == ["project", "join", "stream", "stream"]
    assert "where a.price > 1" in lines[2]
    assert "exact, way join, emit append" in lines
    analyzed = sales.sql("EXPLAIN ANALYZE " + text).message or ""
    assert "actual 2" in analyzed.split("\n")[0]
    assert "a: 5 in = 5 applied + 0 late + 0 shed + 0 rejected" in analyzed
    assert "memory: " in analyzed
    assert "cost: " in analyzed
    assert sales.sql("EXPLAIN " + text).fetchall() == [("\n".join(lines),)]


def test_explain_of_a_pipeline_names_the_scheduling(sales: nile.Database) -> None:
    told = sales.sql("SELECT count(*) AS n FROM sales WINDOW 5").explain()
    assert "way pipeline, emit changes, scheduling nta" in told
    assert (
        "scheduling tpa: as asked" in sales.sql("SELECT count(*) AS n FROM sales WINDOW 5", scheduling="tpa").explain()
    )


def test_sums_and_means_of_huge_whole_numbers_are_exact_or_refused() -> None:
    db = nile.connect()
    signed = pa.array([2**62 - 1, -(2**62), 2**63 - 1], pa.int64())
    huge = pa.array([2**63, 2**63 - 1, 1], pa.uint64())
    db.register("s", pa.table({"k": [0, 0, 1], "n": signed, "u": huge}))
    assert db.sql("SELECT k, sum(n) AS n, avg(n) AS m FROM s GROUP BY k").fetchall() == [
        (0, -1, -0.5),
        (1, 2**63 - 1, float(2**63 - 1)),
    ]
    assert db.sql("SELECT k, avg(u) AS m FROM s GROUP BY k").fetchall() == [(0, 2.0**63), (1, 1.0)]
    with pytest.raises(nile.SumOverflow, match="got 18446744073709551615"):
        db.sql("SELECT k, sum(u) AS n FROM s GROUP BY k").fetchall()


def test_a_date_moves_by_a_number_of_days_that_is_written_out() -> None:
    days = pa.array([date(2024, 2, 27), None, date(1969, 12, 31)])
    told = pa.table({"t": [1.0, 2.0, 3.0], "due": days, "ts": days.cast(pa.timestamp("us")), "n": [1, 2, 3]})
    with nile.connect() as db:
        db.register("told", told, time="t")
        for asked in (
            "due + 3",
            "3 + due",
            "due - 60",
            "due + -1",
            "CAST(due + 1 AS VARCHAR)",
            "due + 1 > DATE '1970-01-01'",
        ):
            found = db.sql(f"SELECT {asked} AS x FROM told").to_arrow()["x"]
            assert found.to_pylist() == [x for (x,) in duckdb.from_arrow(told).project(asked).fetchall()], asked
        assert db.sql("SELECT due + 3 AS x FROM told").schema.field("x").type == pa.date32()
        for refused in ("ts + 3", "due + n", "3 - due", "due + 99999999", "due * 2", "due + 1.5"):
            with pytest.raises(SqlError, match=r"got .*, which is .*; move it by an interval, a date also by days"):
                db.sql(f"SELECT {refused} AS x FROM told")
        with pytest.raises(SqlError, match="column 8: needed FROM and a stream to take columns from; got 'n' without"):
            db.sql("SELECT n")


@pytest.mark.parametrize("seed", range(20))
def test_the_first_in_an_order_are_those_of_all_in_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.choice([0, 3, 50, 5_000]))
    columns = {
        "ts": pa.array(np.arange(n, dtype=float)),
        "a": pa.array(rng.integers(0, 5, n), mask=rng.random(n) < rng.choice([0.0, 0.3, 1.0])),
        "b": pa.array(np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n).round(1)), mask=rng.random(n) < 0.1),
        "c": pa.array([f"t{at}" for at in rng.integers(0, 20, n)], pa.string(), mask=rng.random(n) < 0.2),
    }
    table = pa.table(columns)
    keys = ", ".join(
        f"{key} {rng.choice(['ASC', 'DESC'])} NULLS {rng.choice(['FIRST', 'LAST'])}"
        for key in rng.choice(["a", "b", "c"], int(rng.integers(1, 4)), replace=False)
    )
    text = f"SELECT ts, a, c FROM s ORDER BY {keys}, ts LIMIT {rng.choice([0, 1, 7, 60])} OFFSET {rng.choice([0, 3])}"
    with nile.connect() as db, fresh_duckdb() as con:
        con.register("s", table)
        wanted = con.execute(text).fetchall()
        assert db.register("s", table, time="ts").sql(text).fetchall() == wanted
        assert nile.connect(memory="1MB").register("s", table).sql(text).fetchall() == wanted
