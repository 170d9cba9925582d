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
from nile.summaries.errors import ConfigError, SqlError

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
