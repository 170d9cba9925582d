"""Rows of live streams that are taken back, by DELETE and by `_sign` -1: nothing is left of them."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import nile
from nile.pyramid.grid.manager_state import manager_content

SCHEMA = [("ts", pa.float64()), ("item", pa.int64()), ("price", pa.float64())]


def rows(n: int, seed: int = 1) -> pa.Table:
    draw = np.random.default_rng(seed)
    price = draw.integers(0, 5, n).astype(float)
    price[draw.random(n) < 0.1] = np.nan
    return pa.table(
        {
            "ts": np.sort(draw.integers(0, 2 * n, n)) * 1.0,
            "item": pa.array(draw.integers(0, 9, n), mask=draw.random(n) < 0.1),
            "price": price,
        }
    )


def database(store: Any = None, **options: Any) -> nile.Database:
    db = nile.connect() if store is None else nile.connect(store)
    db.stream("s", SCHEMA, time="ts", **options)
    if "m" not in db._names.summaries:
        db.sql("CREATE SUMMARY m ON s (item) WITH GRANULARITY '1 min' AND COLLAPSE (2, 2) USING columns = 16")
    return db


def everything(db: nile.Database) -> list[tuple[Any, ...]]:
    """All that is kept, NaN as text, in order."""
    told = db.sql("SELECT ts, item, price FROM s").fetchall()
    return [tuple("nan" if value != value else value for value in row) for row in told]


def assert_alike(one: nile.Database, other: nile.Database) -> None:
    """Two databases answer alike, and their summaries are the same bytes."""
    assert everything(one) == everything(other)
    for text in (
        "SELECT item, count(*) AS n, sum(price) AS p FROM s GROUP BY item ORDER BY item",
        "SELECT count(*) AS n FROM s WHERE item = 3 BUDGET 0.9",
        "SELECT a.ts, b.ts AS u FROM s AS a, s AS b WHERE a.item = b.item WITH PREFERENCE desc a.item "
        "WINDOW 5 BUDGET 0.5",
    ):
        assert str(one.sql(text).fetchall()) == str(other.sql(text).fetchall())
    (first, arrays), (second, others) = (manager_content(db.summary("m")) for db in (one, other))
    assert first == second
    assert all(np.array_equal(array, others[name]) for name, array in arrays.items())


def without(table: pa.Table, gone: Any) -> pa.Table:
    stay = np.setdiff1d(np.arange(table.num_rows), gone)
    return table.take(pa.array(stay))


@settings(max_examples=60, deadline=None)
@given(
    n=some.integers(0, 400),
    seed=some.integers(0, 1 << 30),
    share=some.sampled_from([0.0, 0.1, 0.6, 1.0]),
    keep=some.sampled_from([None, "1 hour"]),
)
def test_what_came_and_was_taken_back_leaves_no_trace(n: int, seed: int, share: float, keep: str | None) -> None:
    table = rows(n, seed)
    gone = np.flatnonzero(np.random.default_rng(seed).random(n) < share)
    one, other = database(keep=keep), database(keep=keep)
    one.push("s", table)
    back = table.take(pa.array(gone)).append_column("_sign", pa.array(np.full(gone.shape[0], -1)))
    if gone.shape[0]:
        one.push("s", back)
    # Of equal rows the newest go, which are equal: only their places among others of their instant can differ.
    rest = sorted(map(str, without(table, gone).to_pylist()))
    assert sorted(map(str, one.sql("SELECT ts, item, price FROM s").to_arrow().to_pylist())) == rest
    other.push("s", one.sql("SELECT ts, item, price FROM s").to_arrow())
    assert_alike(one, other)
    more = pa.table({"ts": [1e6, 1e6], "item": [3, 4], "price": [1.0, 2.0]})
    for db in (one, other):
        db.push("s", more)
    assert_alike(one, other)


@pytest.mark.parametrize("keep", [None, "1 hour"])
def test_delete_takes_back_what_satisfies_a_condition(keep: str | None) -> None:
    table = rows(300)
    one, other = database(keep=keep), database(keep=keep)
    one.push("s", table)
    told = one.sql("DELETE FROM s WHERE item = 3 OR price > 3")
    frame = table.to_pandas()
    goes = (frame["item"] == 3).fillna(False) | (frame["price"] > 3) | frame["price"].isna()  # NaN is the greatest
    assert told.message == f"{int(goes.sum())} rows of 's' deleted"
    other.push("s", without(table, np.flatnonzero(goes.to_numpy())))
    assert_alike(one, other)
    assert one.sql("DELETE FROM s").message == f"{300 - int(goes.sum())} rows of 's' deleted"
    assert everything(one) == []
    assert one.accounting("s").tuples_in == 300  # what came is still told


def test_a_store_remembers_that_rows_are_gone(tmp_path: Any) -> None:
    table = rows(2_000)
    other = database()
    with database(tmp_path / "store") as db:
        db.push("s", table.slice(0, 1_000))
        db.checkpoint()
        db.sql("DELETE FROM s WHERE item < 5")
    with database(tmp_path / "store") as db:
        frame = table.slice(0, 1_000).to_pandas()
        goes = np.flatnonzero((frame["item"] < 5).fillna(False).to_numpy())
        other.push("s", without(table.slice(0, 1_000), goes))
        assert_alike(db, other)
        for each in (db, other):
            each.push("s", table.slice(1_000))
        assert_alike(db, other)


@pytest.mark.parametrize("form", ["table", "dict", "rows", "pandas", "batch"])
def test_one_push_takes_rows_back_and_brings_others(form: str) -> None:
    db = database()
    db.push("s", {"ts": [1.0, 2.0], "item": [1, 2], "price": [5.0, 6.0]})
    update = {"ts": [2.0, 2.0], "item": [2, 2], "price": [6.0, 7.0], "_sign": [-1, 1]}
    made: Any = {
        "table": pa.table(update),
        "dict": update,
        "rows": pa.table(update).to_pylist(),
        "pandas": pd.DataFrame(update),
        "batch": pa.table(update).to_batches()[0],
    }[form]
    assert db.push("s", made) == 1
    assert everything(db) == [(1.0, 1, 5.0), (2.0, 2, 7.0)]


@pytest.mark.parametrize("form", ["list", "table", "payload", "pandas"])
def test_a_change_feed_is_rows_that_come_and_go(form: str) -> None:
    db = database()
    first, second = ({"ts": ts, "item": item, "price": 5.0} for ts, item in ((1.0, 1), (2.0, 2)))
    better = {**second, "ts": 3.0, "price": 9.0}
    events: list[dict[str, Any]] = [
        {"op": "r", "before": None, "after": first, "ts_ms": 1},
        {"op": "c", "before": None, "after": second, "ts_ms": 2},
        {"op": "u", "before": second, "after": better, "ts_ms": 3},
    ]
    feed: Any = {
        "list": events,
        "table": pa.Table.from_pylist(events),
        "payload": [{"schema": {}, "payload": event} for event in events],
        "pandas": pd.DataFrame(events),
    }[form]
    assert db.push("s", feed) == 2
    assert everything(db) == [(1.0, 1, 5.0), (3.0, 2, 9.0)]
    db.push("s", {"op": "d", "before": better, "after": None})
    assert everything(db) == [(1.0, 1, 5.0)]


def test_changes_of_rows_without_the_time_come_when_they_were_made_and_go_by_their_values() -> None:
    db = nile.connect()
    db.stream("s", [("at", pa.timestamp("ms")), ("id", pa.int64()), ("name", pa.string())], time="at")
    tea, cup = {"id": 1, "name": "tea"}, {"id": 2, "name": "cup"}
    db.push("s", [{"op": "c", "before": None, "after": row, "ts_ms": 1_000 + k} for k, row in enumerate((tea, cup))])
    counts = db.subscribe("SELECT count(*) AS n, max(name) AS last FROM s WINDOW 60", emit="changes")
    db.push("s", [{"op": "u", "before": cup, "after": {**cup, "name": "mug"}, "ts_ms": 2_000}])
    db.push("s", [{"op": "d", "before": tea, "after": None, "ts_ms": 3_000}])
    assert db.sql("SELECT id, name FROM s").fetchall() == [(2, "mug")]
    db.advance(9)
    (*_, row) = pa.Table.from_batches(counts.poll()).to_pylist()
    assert (row["_sign"], row["n"], row["last"]) == (1, 1, "mug")


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"op": "t", "before": None, "after": None}, "needed op 'c' or 'r'"),
        ({"op": "u", "before": None, "after": {"ts": 1.0, "item": 1, "price": 1.0}}, "REPLICA IDENTITY FULL"),
        ({"op": "c", "before": None, "after": {"item": 1, "price": 1.0}}, "needed a column 'ts'"),
        ({"op": "c", "before": None, "after": {"ts": 1.0, "price": 1.0}}, "got some without item"),
        ({"op": "d", "before": {"ts": 1.0, "item": 1, "price": 1.0}, "after": None}, "of which 0 are kept"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_and_nothing_is_done(event: dict[str, Any], message: str) -> None:
    db = database()
    good = {"op": "c", "before": None, "after": {"ts": 0.5, "item": 7, "price": 1.0}}
    with pytest.raises(nile.SourceError, match=message):
        db.push("s", [good, event])
    assert everything(db) == []


def test_a_row_that_comes_and_goes_in_one_push_is_not_there() -> None:
    db = database()
    row = {"ts": 1.0, "item": 1, "price": 5.0}
    assert db.push("s", [{**row, "_sign": sign} for sign in (1, 1, -1)]) == 1
    assert everything(db) == [(1.0, 1, 5.0)]
    with pytest.raises(nile.SourceError, match="of which 0 are kept"):  # it goes before it comes
        db.push("s", [{**row, "ts": 2.0, "_sign": sign} for sign in (-1, 1)])


def test_what_never_came_or_was_taken_back_before_is_refused_and_nothing_is_done() -> None:
    db = database()
    row = {"ts": [1.0], "item": [1], "price": [5.0]}
    db.push("s", row)
    for wrong in ({"ts": [1.0], "item": [1], "price": [5.5]}, {"ts": [1.0, 1.0], "item": [1, 1], "price": [5.0, 5.0]}):
        with pytest.raises(nile.SourceError, match=r"needed a kept row for each with _sign -1; got \d like"):
            db.push("s", {**wrong, "_sign": [-1] * len(wrong["ts"])})
    with pytest.raises(nile.NileError):  # a row that comes too early: the one that goes stays too
        db.push("s", {"ts": [1.0, 0.5], "item": [1, 1], "price": [5.0, 1.0], "_sign": [-1, 1]})
    assert everything(db) == [(1.0, 1, 5.0)]
    db.push("s", {**row, "_sign": [-1]})
    with pytest.raises(nile.SourceError, match="of which 0 are kept"):
        db.push("s", {**row, "_sign": [-1]})
    assert everything(db) == []


def test_standing_queries_of_new_rows_take_nothing_back() -> None:
    db = database()
    db.push("s", {"ts": [1.0], "item": [1], "price": [5.0]})
    standing = db.subscribe("SELECT item FROM s")  # new rows alone
    for change in (
        lambda: db.sql("DELETE FROM s WHERE item = 1"),
        lambda: db.push("s", {"ts": [1.0], "item": [1], "price": [5.0], "_sign": [-1]}),
    ):
        with pytest.raises(nile.ConfigError, match="needed standing queries that can correct what they told"):
            change()
    standing.close()
    assert db.sql("DELETE FROM s WHERE item = 1").message == "1 row of 's' deleted"


def test_what_cannot_be_deleted_from_is_refused() -> None:
    db = database()
    db.register("file", rows(5), time="ts")
    with pytest.raises(nile.UnknownStream, match="stream 'file' is not live"):
        db.sql("DELETE FROM file WHERE item = 1")
    with pytest.raises(nile.SqlError, match="needed a stream"):
        db.sql("DELETE FROM nobody")
    with pytest.raises(nile.NileError, match="nothing"):
        db.sql("DELETE FROM s WHERE nothing = 1")
    with pytest.raises(nile.SqlError, match="'FROM'"):
        db.sql("DELETE s")


@pytest.mark.parametrize("seed", range(6))
def test_rows_that_still_wait_for_their_turn_are_taken_back_like_kept_ones(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    there: dict[int, dict[str, Any]] = {}
    with nile.connect(tmp_path / "store") as db:
        db.stream("sold", [("at", "double"), ("id", "int64"), ("v", "double")], time="at", lateness="50 s")
        db.sql("CREATE SUMMARY ids ON sold (id) WITH GRANULARITY '1 min' AND COLLAPSE (4, 3)")
        told = db.subscribe("SELECT id, sum(v) AS v FROM sold GROUP BY id WINDOW '1 day'", emit="changes", name="told")
        for step in range(40):
            events = []
            touched: set[int] = set()
            for k in range(draw.randint(1, 6)):
                open_ones = [i for i in there if i not in touched]
                row = {"at": 10.0 * step + draw.randint(-30, 10), "id": 10 * step + k, "v": float(draw.randint(1, 9))}
                what = draw.choice("ccud") if open_ones else "c"
                old = None if what == "c" else there.pop(draw.choice(open_ones))
                if old is not None:
                    row = {**old, "v": old["v"] + 1}
                if what == "d" or (what == "u" and old is not None and old["at"] < 10.0 * step - 30):
                    events.append({"before": old, "after": None, "op": "d", "ts_ms": 0})
                else:
                    there[row["id"]] = row
                    events.append({"before": old, "after": row, "op": what, "ts_ms": 0})
                touched.add(row["id"])
            db.push("sold", events)
        if seed % 2:
            gone = [i for i, row in there.items() if row["v"] > 6]
            assert db.sql("DELETE FROM sold WHERE v > 6").fetchall() == [(f"{len(gone)} rows of 'sold' deleted",)]
            for i in gone:
                del there[i]
    with nile.connect(tmp_path / "store") as db:
        told = db.subscription("told")
        db.advance(1_000.0)
        wanted = sorted((row["id"], row["v"]) for row in there.values())
        assert sorted(db.sql("SELECT id, v FROM sold").fetchall()) == wanted
        state: Counter[tuple[int, float]] = Counter()
        for batch in told.poll():
            for row in batch.to_pylist():
                state[row["id"], row["v"]] += row["_sign"]
        assert sorted(state.elements()) == wanted
        accounting = db.accounting("sold")
        assert (accounting.tuples_in, accounting.late) == (accounting.applied, 0)


def test_a_query_that_only_appends_does_not_mind_what_it_was_never_told() -> None:
    with nile.connect() as db:
        db.stream("sold", [("at", "double"), ("id", "int64")], time="at", lateness="50 s")
        told = db.subscribe("SELECT id FROM sold")
        db.push("sold", {"at": [0.0, 100.0, 101.0], "id": [1, 2, 3]})
        db.push("sold", {"at": [100.0], "id": [2], "_sign": [-1]})
        assert db.sql("DELETE FROM sold WHERE id = 3 AND at > 50").fetchall() == [("1 row of 'sold' deleted",)]
        with pytest.raises(nile.NileError, match="appended rows only"):
            db.push("sold", {"at": [0.0], "id": [1], "_sign": [-1]})
        with pytest.raises(nile.NileError, match="of which 0 are kept; what never came"):
            db.push("sold", {"at": [100.0], "id": [2], "_sign": [-1]})
        db.advance(1_000.0)
        assert [row["id"] for batch in told for row in batch.to_pylist()] == [1]
