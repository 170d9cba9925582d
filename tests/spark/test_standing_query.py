"""Standing queries as a stateful operator of Structured Streaming: failed and gone on with, over real files."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_standing_parts import JOIN, LATENESS, ROWS, TABLES

import nile
from nile.spark import StreamSource, stream_query, stream_worth
from nile.spark.standing.placing import places_of
from nile.spark.standing.started import StandingResult
from nile.summaries.errors import ConfigError, SourceError, SqlError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PREFERRED = JOIN.format("WITH PREFERENCE desc a.k")


def put(folder: Path, number: int, rows: pa.Table) -> None:
    """A file that Spark takes after those of lower numbers."""
    folder.mkdir(exist_ok=True)
    pq.write_table(rows, folder / f"{number}.parquet")
    os.utime(folder / f"{number}.parquet", (time.time() - 100 + number,) * 2)


def sources(spark: SparkSession, folder: Path) -> dict[str, StreamSource]:
    read = spark.readStream.schema("ts timestamp, k string, v long").option("maxFilesPerTrigger", 1)
    return {name: StreamSource(read.parquet(str(folder / name)), "ts", LATENESS) for name in TABLES}


class Sink:
    """Rows of each micro-batch, the last time that it was handed out; it fails before batch `fails`, once."""

    def __init__(self, fails: int = -1) -> None:
        self.rows: dict[int, list[Any]] = {}
        self.fails = fails

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        rows = [tuple(row.values()) for row in frame.toArrow().to_pylist()]
        if epoch == self.fails:
            self.fails = -1
            raise RuntimeError("the driver died here")
        self.rows[epoch] = rows

    @property
    def all(self) -> Counter[tuple[Any, ...]]:
        return Counter(row for rows in self.rows.values() for row in rows)


@pytest.mark.slow
@pytest.mark.spark
def test_what_is_told_over_a_failure_is_the_exact_answer(spark: SparkSession, tmp_path: Path) -> None:
    sink = Sink(fails=1)

    def run() -> None:
        told = stream_query(PREFERRED, sources(spark, tmp_path), parts=2, budget=1.0)
        writer = told.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "progress"))
        writer.trigger(availableNow=True).start().awaitTermination()

    last = pa.Table.from_pylist([{"ts": 10**12, "k": None, "v": 0}] * 2, ROWS)
    for name, table in TABLES.items():
        put(tmp_path / name, 0, table.slice(0, 300))
        put(tmp_path / name, 1, table.slice(300, 300))
    with pytest.raises(Exception, match="the driver died here"):
        run()
    before = stream_worth(tmp_path / "progress")
    for name, table in TABLES.items():
        put(tmp_path / name, 2, table.slice(600))
        put(tmp_path / name, 3, last)
    run()
    worth = stream_worth(tmp_path / "progress")

    with nile.connect() as db:
        for name in TABLES:
            db.stream(name, ROWS, time="ts", lateness=LATENESS)
        standing = db.subscribe(JOIN.format(""))
        for name, table in TABLES.items():
            db.push(name, table)
        db.advance(1e4)
        wanted = Counter(tuple(row.values()) for batch in standing.poll() for row in batch.to_pylist())
    assert sink.all == wanted
    assert worth.outputs == worth.estimate.value == wanted.total() > before.outputs > 0
    for name in TABLES:
        assert worth.accounting[name].rejected == TABLES[name]["ts"].null_count
        assert worth.accounting[name].late == 0
    assert worth.fraction <= 1.0


@pytest.mark.slow
@pytest.mark.spark
def test_a_sample_over_a_failure_is_the_one_without(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        for name, table in TABLES.items():
            put(tmp_path / name, number, table.slice(400 * number, 400))

    def run(sink: Sink, progress: Path) -> None:
        told = stream_query(
            JOIN.format("WITH PREFERENCE weighted a.k"),
            sources(spark, tmp_path),
            parts=3,
            budget=nile.Budget(fraction=0.3),
        )
        writer = told.writeStream.foreachBatch(sink).option("checkpointLocation", str(progress))
        writer.trigger(availableNow=True).start().awaitTermination()

    whole, failing = Sink(), Sink(fails=1)
    run(whole, tmp_path / "whole")
    with pytest.raises(Exception, match="the driver died here"):
        run(failing, tmp_path / "failing")
    run(failing, tmp_path / "failing")
    assert failing.all == whole.all
    assert whole.all.total() > 100
    worth = stream_worth(tmp_path / "failing")
    assert 0.2 < worth.fraction <= 0.3
    assert worth.estimate.value == pytest.approx(sum(row[-1] * times for row, times in whole.all.items()))


@pytest.mark.spark
def test_spark_gives_each_part_to_another_task(spark: SparkSession) -> None:
    placed = spark.createDataFrame(pa.table({"part": range(6), "place": places_of(6)}))
    for tasks, most in ((6, 1), (3, 2), (2, 3), (12, 1)):
        tasked = placed.selectExpr(f"pmod(hash(part, place), {tasks}) AS task").toArrow()["task"].to_pylist()
        assert sorted(Counter(tasked).values()) == [most] * min(6, tasks)


@pytest.mark.spark
def test_what_cannot_be_asked_is_refused_before_anything_starts(spark: SparkSession, tmp_path: Path) -> None:
    for name, table in TABLES.items():
        put(tmp_path / name, 0, table.slice(0, 10))
    found = sources(spark, tmp_path)
    with pytest.raises(SqlError, match="got 'b'"):
        stream_query(PREFERRED, {"a": found["a"]})
    with pytest.raises(ConfigError, match="a DataFrame that is whole"):
        stream_query("SELECT k FROM a", {"a": StreamSource(spark.read.parquet(str(tmp_path / "a")), "ts")})
    with pytest.raises(ConfigError, match="got a DataFrame"):
        stream_query("SELECT k FROM a", {"a": found["a"].frame})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="parts: needed a number from 1 on"):
        stream_query("SELECT k FROM a", {"a": found["a"]}, parts=0)
    with pytest.raises(ConfigError, match="groups without the key"):
        stream_query("SELECT count(*) FROM a WINDOW 5", {"a": found["a"]})
    assert stream_query("SELECT ts, v FROM a WHERE v > 3", {"a": found["a"]}).schema.simpleString() == (
        "struct<ts:timestamp,v:bigint>"
    )


def database(spark: SparkSession, folder: Path, where: str | None = None) -> nile.Database:
    """Of the streams of TABLES, as Spark reads their files."""
    db = nile.connect()
    read = spark.readStream.schema("ts timestamp, k string, v long").option("maxFilesPerTrigger", 1)
    for name in TABLES:
        put(folder / name, 0, TABLES[name].slice(0, 400))
        db.register(name, read.parquet(str(folder / name)), time="ts", lateness=LATENESS, where=where)
    return db


def ask(db: nile.Database, text: str, folder: Path, into: Any, **options: Any) -> StandingResult:
    found = db.sql(text, engine="spark", checkpoint=folder / "progress", into=into, parts=2, every="10 ms", **options)
    assert isinstance(found, StandingResult)
    return found


def told(text: str, where: str | None = None) -> Counter[tuple[Any, ...]]:
    """The rows that one process tells."""
    with nile.connect() as db:
        for name in TABLES:
            db.stream(name, ROWS, time="ts", lateness=LATENESS, where=where)
        standing = db.subscribe(text)
        for name, table in TABLES.items():
            db.push(name, table)
        db.advance(1e4)
        return Counter(tuple(row.values()) for batch in standing.poll() for row in batch.to_pylist())


@pytest.mark.slow
@pytest.mark.spark
def test_a_statement_is_started_goes_on_and_tells_what_one_process_tells(spark: SparkSession, tmp_path: Path) -> None:
    last = pa.Table.from_pylist([{"ts": 10**12, "k": None, "v": 9}] * 2, ROWS)
    sink = Sink()
    with database(spark, tmp_path, "v > 3") as db:
        found = ask(db, PREFERRED, tmp_path, sink, budget=1.0)
        assert found.streaming is not None
        assert found.streaming.isActive
        found.wait(every_row=True)
        first = found.worth_now.outputs
    assert not found.streaming.isActive  # its database has ended
    assert 0 < first == sink.all.total()
    for name, table in TABLES.items():
        put(tmp_path / name, 1, table.slice(400))
        put(tmp_path / name, 2, last)
    with database(spark, tmp_path, "v > 3") as db:
        found = ask(db, PREFERRED, tmp_path, sink, budget=1.0)
        found.wait(every_row=True)
        assert sink.all == told(JOIN.format(""), "v > 3")
        worth = stream_worth(tmp_path / "progress")
        assert found.worth_now == worth
        assert worth.outputs == found.estimate.value == sink.all.total() > first
        assert found.accounting == worth.accounting
        assert found.budget.asked == 1.0
        assert found.budget.fraction == worth.fraction
        for name in TABLES:
            assert worth.accounting[name].rejected == TABLES[name]["ts"].null_count
        with pytest.raises(ConfigError, match="got one for rows: standing on Spark, rows go to Sink"):
            found.to_arrow()
        found.stop()
        assert "ended in Spark" in repr(found)


@pytest.mark.slow
@pytest.mark.spark
def test_rows_go_to_files_and_parameters_are_values(spark: SparkSession, tmp_path: Path) -> None:
    with database(spark, tmp_path) as db:
        found = db.sql(
            "SELECT ts, v FROM a WHERE v > $least", {"least": 90}, engine="spark", checkpoint=tmp_path / "progress",
            into=tmp_path / "told", parts=1,
        )  # fmt: skip
        assert isinstance(found, StandingResult)
        found.wait(every_row=True)
    values = pq.read_table(tmp_path / "told")["v"].to_pylist()
    some = [v for ts, v in zip(*(TABLES["a"].slice(0, 400)[c].to_pylist() for c in ("ts", "v")), strict=True) if ts]
    assert len(values) == found.worth_now.outputs > 10
    assert set(values) <= {v for v in some if v > 90}


@pytest.mark.spark
def test_what_is_missing_is_said_before_anything_starts(spark: SparkSession, tmp_path: Path) -> None:
    with database(spark, tmp_path) as db:
        told_of = db.sql(f"EXPLAIN {PREFERRED}", engine="spark", parts=2, budget=0.5).fetchone()
        assert told_of is not None
        assert "preference desc by count(a.k)" in told_of[0]
        assert "2 parts by the hash of a.k, b.k" in told_of[0]
        assert "needs checkpoint and into to be started" in told_of[0]
        with pytest.raises(ConfigError, match=r"checkpoint: needed a directory.*got none"):
            db.sql(PREFERRED, engine="spark")
        with pytest.raises(ConfigError, match=r"into: needed a directory for Parquet files.*got a int"):
            db.sql(PREFERRED, engine="spark", checkpoint=tmp_path / "progress", into=7)
        with pytest.raises(ConfigError, match="into: needed options that name no file here"):
            db.sql(PREFERRED, files=False, engine="spark", into="told/")
        with pytest.raises(ConfigError, match="groups without the key"):
            db.sql("SELECT count(*) FROM a WINDOW 5", engine="spark", checkpoint="p", into="q")
        with pytest.raises(ConfigError, match="bydget: needed"):
            db.sql("SELECT k FROM a", engine="spark", checkpoint="p", into="q", bydget=1)
        with pytest.raises(SourceError, match=r"a: needed rows that end.*engine='spark'"):
            db.sql("SELECT k FROM a").fetchall()
        db.register("c", {"ts": [1.0], "k": ["x"]}, time="ts")
        with pytest.raises(ConfigError, match="streaming DataFrames alone; got 'c' beside 'a'"):
            db.sql("SELECT a.k FROM a, c WHERE a.k = c.k WINDOW 5", engine="spark")
        frame = spark.readStream.schema("ts timestamp, k string").parquet(str(tmp_path / "a"))
        with pytest.raises(ConfigError, match="'d': needed the time column of a streaming DataFrame"):
            db.register("d", frame)
    assert not spark.streams.active
