"""What people touch: registering what they have, results and their hand-over, the builder."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from sql_catalog import connect_catalog

import nile

TABLE = pa.table(
    {
        "ts": pa.array([0, 1_000_000, 2_000_000], pa.timestamp("us")),
        "item": ["tea", "cup", "tea"],
        "price": [1.0, 2.5, 4.0],
    }
)


def batches() -> Iterator[pa.RecordBatch]:
    yield from TABLE.to_batches(max_chunksize=2)


def written(folder: Path) -> Path:
    for number, part in enumerate((TABLE.slice(0, 2), TABLE.slice(2)), 1):
        pq.write_table(part, folder / f"sales{number}.parquet")
    pq.write_table(TABLE, folder / "whole.parquet")
    return folder


SOURCES: dict[str, Callable[[Path], Any]] = {
    "path": lambda folder: written(folder) / "whole.parquet",
    "glob": lambda folder: str(written(folder) / "sales*.parquet"),
    "pandas": lambda _: TABLE.to_pandas(),
    "polars": lambda _: pl.from_arrow(TABLE),
    "polars, not computed yet": lambda _: pl.from_arrow(TABLE).lazy(),  # type: ignore[union-attr]
    "table": lambda _: TABLE,
    "reader": lambda _: TABLE.to_reader(),
    "dataset": lambda folder: ds.dataset(written(folder) / "whole.parquet"),
    "duckdb": lambda folder: duckdb.sql(f"SELECT * FROM '{written(folder) / 'whole.parquet'}'"),
    "iterator of batches": lambda _: batches(),
    "callable": lambda _: batches,
    "dict": lambda _: TABLE.to_pydict(),
}  # fmt: skip


@pytest.mark.parametrize("kind", SOURCES)
def test_what_people_have_can_be_registered(kind: str, tmp_path: Path) -> None:
    db = nile.connect()
    db.register("sales", SOURCES[kind](tmp_path), time="ts")
    assert db.sql("SELECT item, price FROM sales WHERE price > 1").fetchall() == [("cup", 2.5), ("tea", 4.0)]


def test_files_that_differ_are_no_glob(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    pq.write_table(TABLE.drop_columns("item"), tmp_path / "b.parquet")
    with pytest.raises(nile.SourceError, match="needed the same columns in all files"):
        nile.connect().register("s", str(tmp_path / "*.parquet"), time="ts")
    with pytest.raises(nile.SourceMissing, match="there is none"):
        nile.connect().register("s", str(tmp_path / "*.csv"), time="ts")


def test_without_a_time_it_is_a_stored_relation() -> None:
    db = nile.connect().register("sales", TABLE)
    assert (db.streams, db.relations) == ((), ("sales",))
    assert db.sql("SELECT count(*) AS n FROM sales").fetchone() == (3,)
    with pytest.raises(nile.UnknownStream, match="registered without time="):
        db.join("sales", "sales", on="item")


def test_names_and_times_are_checked_when_they_are_registered() -> None:
    db = nile.connect()
    with pytest.raises(nile.UnknownColumn, match="did you mean 'ts'"):
        db.register("s", TABLE, time="tss")
    with pytest.raises(nile.SourceError, match="needed a timestamp"):
        db.register("s", pa.table({"ts": [[1]]}), time="ts")
    with pytest.raises(nile.ConfigError, match="plain name"):
        db.register("s t", TABLE)
    with pytest.raises(nile.ConfigError, match="needed no lateness"):
        db.register("s", TABLE, lateness=1)


# --- results --------------------------------------------------------------------------------------------------


def counted() -> tuple[nile.Database, list[int]]:
    """A database that notes how often its stream is read."""
    read: list[int] = []

    def make() -> Iterator[Any]:
        read.append(1)
        yield TABLE

    db = nile.connect().register("sales", make, time="ts")
    db.sql("SELECT item FROM sales").to_arrow()  # the first reading takes what registering opened
    read.clear()
    return db, read


def test_showing_a_result_runs_nothing() -> None:
    db, read = counted()
    result = db.sql("SELECT item, price FROM sales")
    assert "not run yet" in repr(result)
    assert "<th>item" in result._repr_html_()
    assert result.columns == ["item", "price"]
    assert "project" in result.explain()
    assert read == []
    result.to_arrow()
    assert "3 rows" in repr(result)
    assert "tea | 1.0" in repr(result)
    assert "<td>2.5</td>" in result._repr_html_()


def test_text_in_a_result_cannot_break_the_page() -> None:
    db = nile.connect().register("s", {"x": ["<script>"]})
    result = db.sql("SELECT x FROM s")
    result.to_arrow()
    assert "<script>" not in result._repr_html_()


def test_a_table_once_found_is_shared_by_all_that_ask() -> None:
    db, read = counted()
    result = db.sql("SELECT item, price FROM sales")
    assert result.to_arrow() is result.to_arrow()
    assert result.to_pandas()["price"].tolist() == [1.0, 2.5, 4.0]
    assert result.to_polars()["price"].to_list() == [1.0, 2.5, 4.0]
    assert result.to_duckdb().fetchall() == [("tea", 1.0), ("cup", 2.5), ("tea", 4.0)]
    assert duckdb.sql("SELECT sum(price) FROM result").fetchall() == [(7.5,)]
    assert pa.table(result).num_rows == 3
    assert pl.DataFrame(result).shape == (3, 2)
    assert len(result) == 3
    assert len(read) == 1


def test_rows_come_one_by_one_and_together() -> None:
    db, _ = counted()
    result = db.sql("SELECT item, ts FROM sales")
    assert result.fetchone() == ("tea", datetime(1970, 1, 1))
    assert result.fetchmany(5) == [("cup", datetime(1970, 1, 1, 0, 0, 1)), ("tea", datetime(1970, 1, 1, 0, 0, 2))]
    assert result.fetchone() is None
    assert len(result.fetchall()) == 3
    assert sum(batch.num_rows for batch in result) == 3


def test_an_empty_result_has_its_columns() -> None:
    db, _ = counted()
    result = db.sql("SELECT item, price + 1 AS more FROM sales WHERE price > 100")
    assert result.fetchall() == []
    assert result.to_polars().columns == ["item", "more"]
    assert result.schema == pa.schema([("item", pa.string()), ("more", pa.float64())])


def test_a_result_outlives_its_database() -> None:
    with nile.connect() as db:
        db.register("sales", TABLE, time="ts")
        result = db.sql("SELECT item FROM sales")
        result.to_arrow()
    assert len(result) == 3


def address(column: pl.Series) -> int:
    return int(column.to_arrow().buffers()[1].address)


def test_numbers_and_times_are_handed_over_without_a_copy() -> None:
    n = 300_000
    table = pa.table(
        {
            "ts": pa.array(np.arange(n) * 1_000, pa.timestamp("us")),
            "x": np.arange(n, dtype=np.float64),
            "k": pa.array(np.arange(n, dtype=np.int32), mask=np.arange(n) % 7 == 0),
        }
    )
    db = nile.connect().register("s", table, time="ts")
    for text in ("SELECT ts, x, k FROM s", "SELECT x, ts AS at, k FROM s WINDOW 3600"):
        result = db.sql(text)
        arrow = result.to_arrow()
        polars = result.to_polars()
        for name, source in zip(
            result.columns, ("ts", "x", "k") if "at" not in text else ("x", "ts", "k"), strict=True
        ):
            assert arrow[name].num_chunks == 1
            assert arrow[name].chunk(0).buffers()[1].address == table[source].chunk(0).buffers()[1].address
            assert address(polars[name]) == arrow[name].chunk(0).buffers()[1].address
        assert arrow.num_rows == n


def test_handing_over_does_not_double_memory() -> None:
    n = 2_000_000
    db = nile.connect().register("s", {"ts": np.arange(n), "x": np.arange(n, dtype=np.float64)}, time="ts")
    result = db.sql("SELECT ts, x * 2 AS y FROM s")
    found = result.to_arrow()
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    polars = result.to_polars()
    reader = pa.RecordBatchReader.from_stream(result).read_all()
    traced = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pa.total_allocated_bytes() - before < 0.05 * found.nbytes
    assert traced < 0.05 * found.nbytes
    assert (polars.height, reader.num_rows) == (n, n)


# --- the builder ----------------------------------------------------------------------------------------------


def built(db: nile.Database) -> dict[str, Any]:
    """Builders beside the statements that they stand for."""
    a = db.query("store1", alias="a")
    join = a.join("store2", on="item_id", alias="b").window("1 hour")
    return {
        "SELECT * FROM store1": db.query("store1"),
        "SELECT item_id, price * 2 AS twice FROM store1 WHERE price > 3 AND quantity > 1": (
            db.query("store1").where("price > 3").where("quantity > 1").select("item_id", twice="price * 2")
        ),
        "SELECT a.item_id, b.ts FROM store1 a, store2 b WHERE a.item_id = b.item_id WINDOW '1 hour'": (
            join.select("a.item_id", "b.ts")
        ),
        "SELECT item_id, count(*) AS n FROM store1 GROUP BY item_id HAVING count(*) > 1 "
        "ORDER BY n DESC LIMIT 2 OFFSET 1": (
            db.query("store1").group_by("item_id").agg(n="count(*)").having("count(*) > 1").order_by("n DESC")
            .limit(2, 1)
        ),
        "SELECT DISTINCT item_id FROM store1 WINDOW 60": db.query("store1").select("item_id").distinct().window(60),
        "SELECT item_id FROM store1 EXCEPT ALL SELECT item_id FROM items": (
            db.query("store1").select("item_id").except_(db.query("items").select("item_id"), all=True)
        ),
        "SELECT item_id FROM store1 INTERSECT SELECT item_id FROM items": (
            db.query("store1").select("item_id").intersect(db.query("items").select("item_id"))
        ),
        "SELECT item_id FROM store1 UNION SELECT item_id FROM items": (
            db.query("store1").select("item_id").union(db.query("items").select("item_id"))
        ),
        "SELECT a.seq FROM store1 a, store2 b WHERE a.item_id = b.item_id WITH PREFERENCE desc a.item_id "
        "FADE FACTOR 0.8 WINDOW 3600 BUDGET 0.1": (
            join.prefer("desc", "a.item_id").fade(0.8).budget(0.1).select("a.seq")
        ),
        "SELECT a.seq FROM store1 a, store2 b, sensors c WHERE a.item_id = b.item_id "
        "WINDOW (a, b) = 60 AND (b, c) = 30": (
            a.join("store2", alias="b", on="item_id").join("sensors", alias="c").window(a_b=60, b_c=30).select("a.seq")
        ),
        "SELECT a.seq FROM store1 a, store2 b, sensors c WHERE a.item_id = b.item_id "
        "DWINDOW (a, b) = 60 AND (b, c) = 30": (
            a.join("store2", alias="b", on="item_id").join("sensors", alias="c").dwindow(a_b=60, b_c=30).select("a.seq")
        ),
        "SELECT sum(price) AS s FROM store1 ERROR 0.05 CONFIDENCE 0.9 ELSE EXACT": (
            db.query("store1").agg(s="sum(price)").error(0.05, 0.9, "exact")
        ),
    }  # fmt: skip


def test_builder_and_sql_come_to_the_same_plan() -> None:
    db = connect_catalog()
    for text, builder in built(db).items():
        assert builder.plan() == db.sql(text).query, f"{text}\n{builder.sql()}"


def test_builder_and_sql_give_the_same_rows() -> None:
    db = connect_catalog()
    for text, builder in built(db).items():
        if "sensors" not in text and "ERROR" not in text:
            assert repr(builder.run().fetchall()) == repr(db.sql(text).fetchall()), text


def test_a_builder_is_never_changed() -> None:
    db = connect_catalog()
    base = db.query("store1").select("item_id")
    base.where("price > 3").window(60).limit(1)
    assert base.sql() == "SELECT item_id FROM store1"
    assert str(base) == base.sql()


def test_a_builder_says_what_it_cannot_say() -> None:
    db = connect_catalog()
    with pytest.raises(nile.ConfigError, match="with an underscore between"):
        db.query("store1", alias="a").join("store2", alias="b").window(a_x=60)
    with pytest.raises(nile.ConfigError, match="give one"):
        db.query("store1").window()
    with pytest.raises(nile.ConfigError, match="say it after the operation"):
        db.query("store1").union(db.query("store1").window(60))
    with pytest.raises(nile.SqlError):
        db.query("store1").select("nothing_like_it").run()


def test_parameters_are_values() -> None:
    db = connect_catalog()
    assert db.sql(
        "SELECT seq FROM store1 WHERE item_id = ? AND seq < $2".replace("$2", "?"), ["tea", 4]
    ).fetchall() == [
        (1,),
        (3,),
    ]
    assert db.query("store1").where("item_id = $item").select("seq").run({"item": "box"}).fetchall() == [(8,)]


def test_pandas_goes_in_and_out() -> None:
    frame = pd.DataFrame({"ts": pd.to_datetime([0, 1], unit="s"), "x": [1, 2]})
    db = nile.connect().register("s", frame, time="ts")
    back = db.sql("SELECT ts, x FROM s").to_pandas()
    assert back["x"].tolist() == [1, 2]
    assert back["ts"].tolist() == frame["ts"].tolist()


def test_a_result_keeps_the_names_it_was_asked_of() -> None:
    db = nile.connect().register("s", {"t": [0.0, 1.0], "k": ["a", "b"]}, time="t")
    exact = db.sql("SELECT k FROM s")
    most = db.sql("SELECT a.k FROM s a, s b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW 1")
    db.register("s", {"t": [0.0], "other": [1]}, time="t", replace=True)
    assert exact.fetchall() == [("a",), ("b",)]
    db.close()
    assert sorted(most.fetchall()) == [("a",), ("b",)]
