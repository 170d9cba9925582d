"""The sink of Structured Streaming: every row of a query in the store once, whatever crashed, in one order."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from child_spark_sink import SALES, Careless, differences, in_order, prepared, sales, seen, twin

import nile
import nile.spark.sink.sink as sink_module
from nile.spark import StreamSink, stream_sink
from nile.spark.sink.place import Place
from nile.summaries.errors import ConfigError, SchemaDrift, StoreError, UnknownColumn

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY = "6d3c"


class Crash(Exception):
    """A process that ends."""


@pytest.fixture
def epochs(spark: SparkSession) -> Iterator[SparkSession]:
    """A session in which a sink may be called as a streaming query calls it."""
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", QUERY)
    yield spark
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)


@contextmanager
def opened(spark: SparkSession, path: Path, **options: Any) -> Iterator[StreamSink]:
    """The sink, which is let go of as a process that ends would: without a last checkpoint."""
    frame = frame_of(spark, sales(0, 1))
    sink = stream_sink(frame, path, stream="sales", time="at", **{"lateness": "10 s", **options})
    keeper = sink.db._live._keeper
    assert keeper is not None
    try:
        prepared(sink.db)
        yield sink
    finally:
        keeper.close()


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Rows in Spark, spread over three partitions."""
    return spark.createDataFrame(table).repartition(3)


def files_in_turn(spark: SparkSession, source: Path, files: int, rows: int) -> DataFrame:
    """A streaming frame over files of sales, one file an epoch.  Spark takes them by their time, to a millisecond."""
    source.mkdir()
    first = time.time() - 60
    for number in range(files):
        pq.write_table(sales(number * rows, number * rows + rows), source / f"{number}.parquet")
        os.utime(source / f"{number}.parquet", (first + number,) * 2)
    stream = spark.readStream.schema(frame_of(spark, sales(0, 1)).schema)
    return stream.option("maxFilesPerTrigger", 1).parquet(str(source))


def pushed(sink: StreamSink) -> int:
    """Rows that came, those that wait for their turn too."""
    return sink.db._live.get(sink.stream).pushed


def shuffled(table: pa.Table, seed: int) -> pa.Table:
    """The same rows in another order."""
    order = list(range(len(table)))
    random.Random(seed).shuffle(order)
    return table.take(order)


def test_the_place_after_every_other_place_is_told_or_refused() -> None:
    def after(held: Any, query: str, epoch: int, *, rows: int = 3, digest: str = "d", new: bool = False) -> str:
        try:
            found = Place.after(held, Place(query, epoch, digest, rows), where="stream 's'", new_query=new)
        except StoreError as error:
            return (
                "set back" if "set back:" in str(error) else "other rows" if "other ones" in str(error) else "unknown"
            )
        return "done" if found.done else f"from {found.taken}"

    whole, part = Place("q", 4, "d", 3, 3).as_json(), Place("q", 4, "d", 3, 2).as_json()
    assert [after(0, "q", 0), after(0, "q", 1), after(0, "q", 1, new=True)] == ["from 0", "unknown", "from 0"]
    assert [after(whole, "q", epoch) for epoch in (0, 3, 4, 5, 6)] == ["set back"] * 2 + ["done", "from 0", "set back"]
    assert [after(part, "q", epoch) for epoch in (3, 4, 5)] == ["set back", "from 2", "set back"]
    assert [after(whole, "q", 4, rows=4), after(part, "q", 4, digest="e")] == ["other rows"] * 2
    assert [after(whole, "p", 0), after(whole, "p", 5), after(7, "q", 0)] == ["unknown"] * 3
    assert [after(whole, "p", 0, new=True), after({"line": 3}, "p", 9, new=True)] == ["from 0"] * 2
    assert Place.of(part) == Place("q", 4, "d", 3, 2)
    assert [Place.of(offset) for offset in (0, None, {"query": "q"}, {**part, "rows": "3"})] == [None] * 4


@pytest.mark.spark
def test_what_a_query_brings_is_what_the_same_rows_pushed_in_order_are(spark: SparkSession, tmp_path: Path) -> None:
    frame = files_in_turn(spark, tmp_path / "in", 4, 100)

    def run() -> None:
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "progress"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with opened(spark, tmp_path / "store") as sink:
        run()
        assert sink.accounting.late > 0
        assert sink.accounting.rejected
    pq.write_table(sales(400, 500), tmp_path / "in" / "4.parquet")
    with opened(spark, tmp_path / "store") as sink:
        run()
        assert sink.place is not None
        assert (sink.place.epoch, sink.place.rows, sink.place.done) == (4, 100, True)
        assert differences(seen(sink.db), seen(twin([sales(at, at + 100) for at in range(0, 500, 100)]))) == []


@pytest.mark.spark
@pytest.mark.parametrize("careless", [False, True])
def test_a_crash_between_the_store_and_sparks_own_log_counts_nothing_twice(
    spark: SparkSession, tmp_path: Path, careless: bool
) -> None:
    """The control, a sink that does not look at epochs, counts the last epoch twice."""
    frame = files_in_turn(spark, tmp_path / "in", 3, 50)
    met = []
    for crash in (1, None):
        with opened(spark, tmp_path / "store") as sink:
            if careless:
                sink.__class__ = Careless

            def take(rows: DataFrame, epoch: int, sink: StreamSink = sink, crash: int | None = crash) -> None:
                met.append(epoch)
                sink(rows, epoch)
                if epoch == crash:
                    raise Crash("after the checkpoint")

            writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "progress"))
            query = writer.trigger(availableNow=True).start()
            if crash is None:
                query.awaitTermination()
                wrong = differences(seen(sink.db), seen(twin([sales(at, at + 50) for at in (0, 50, 100)])))
                assert (wrong != []) == careless
            else:
                with pytest.raises(Exception, match="after the checkpoint"):
                    query.awaitTermination()
    assert met == [0, 1, 1, 2]


@pytest.mark.spark
def test_an_epoch_that_comes_again_in_another_order_goes_on_where_it_was_left(
    epochs: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "_A_TURN", 40)
    monkeypatch.setattr(sink_module, "_A_PUSH", 9)
    given = [sales(0, 90), sales(90, 91)]
    with opened(epochs, tmp_path / "store") as sink, monkeypatch.context() as crashing:
        crashing.setattr(nile.Database, "push", crashing_push(6, checkpoints=True))
        with pytest.raises(Crash):
            sink(frame_of(epochs, shuffled(given[0], 1)), 0)
    with opened(epochs, tmp_path / "store") as sink:
        assert sink.place is not None
        assert (sink.place.rows, sink.place.done) == (90, False)
        for number, table in enumerate(given):
            sink(frame_of(epochs, shuffled(table, 2)), number)
        assert differences(seen(sink.db), seen(twin(given))) == []


class Fed(StreamSink):
    """A sink whose epochs come from a table instead of Spark, in order."""

    given: pa.Table
    size: int

    def _ordered(self, rows: DataFrame, count: int) -> Iterator[pa.RecordBatch]:
        assert rows is None
        assert count == len(self.given)
        yield from in_order(self.given).to_batches(self.size)


def crashing_push(after: int, *, checkpoints: bool) -> Any:
    """`Database.push` that crashes after so many calls.  checkpoints: each is followed by one."""
    push, left = nile.Database.push, [after]

    def pushing(db: nile.Database, *args: Any, **more: Any) -> int:
        if not left[0]:
            raise Crash
        left[0] -= 1
        done = push(db, *args, **more)
        if checkpoints:
            db.checkpoint()
        return done

    return pushing


def fed_with_crashes(path: Path, seed: int, made: type[Fed]) -> tuple[list[pa.Table], int, dict[str, Any]]:
    """Epochs taken by a sink that crashes at random places: (epochs, crashes, what came of it)."""
    rng = random.Random(seed)
    ends = [0, *accumulate(rng.choice((0, 1, 40, 90)) for _ in range(5))]
    given = [sales(begin, end) for begin, end in pairwise(ends)]
    crashes = 0
    number = 0
    while number < len(given):
        db = prepared(nile.connect(path, checkpoint=None))
        sink = made(db, "sales", order=(), new_query=False, owned=True)
        with pytest.MonkeyPatch.context() as crashing:
            crashing.setattr(nile.Database, "push", crashing_push(rng.randrange(25), checkpoints=rng.random() < 0.5))
            try:
                while number < len(given):
                    sink.given, sink.size = given[number], rng.choice((1, 7, 50))
                    sink._take(cast(Any, None), sink._next(Place(QUERY, number, "d", len(sink.given)), "sales"))
                    db.checkpoint()
                    if rng.random() < 0.3:
                        raise Crash
                    number += 1
            except Crash:
                crashes += 1
        assert db._live._keeper is not None
        db._live._keeper.close()
    with nile.connect(path) as db:
        return given, crashes, seen(db)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 100))])
def test_crashes_before_within_and_after_epochs_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    given, _, found = fed_with_crashes(tmp_path / "store", seed, Fed)
    assert differences(found, seen(twin(given))) == []


def test_a_sink_that_does_not_look_at_epochs_is_found_by_the_same_crashes(tmp_path: Path) -> None:
    class CarelesslyFed(Careless, Fed):
        pass

    wrong = 0
    for seed in range(4):
        given, crashes, found = fed_with_crashes(tmp_path / str(seed), seed, CarelesslyFed)
        wrong += differences(found, seen(twin(given))) != []
        assert crashes
    assert wrong >= 2


@pytest.mark.spark
def test_rows_have_one_order_to_the_sign_of_zero_and_text_goes_by_the_instant_it_says(
    epochs: SparkSession, tmp_path: Path
) -> None:
    at = ["9", "10", None, "1970-01-01 00:00:09.5", "10", "9", "100", "noon"] * 3
    table = pa.table({"at": at, "x": [0.0, -0.0, float("nan"), None, 0.0, -0.0, 1.5, 2.5] * 3, "n": [0, 1, 1] * 8})
    frame = epochs.createDataFrame(table)
    found = []
    for seed in range(2):
        sink = stream_sink(frame, tmp_path / str(seed), stream="s", time="at", lateness=None, order=["n"])
        with sink:
            sink(epochs.createDataFrame(shuffled(table, seed)).repartition(2), 0)
            rows = sink.db.sql("SELECT * FROM s").fetchall()
            found.append((repr(rows), sink.db.quarantine("s").to_pydict()))
            assert [row[0] for row in rows] == ["9"] * 6 + ["1970-01-01 00:00:09.5"] * 3 + ["10"] * 6 + ["100"] * 3
            assert [row[2] for row in rows[:6]] == sorted(row[2] for row in rows[:6])
            assert (sink.accounting.tuples_in, sink.accounting.rejected) == (24, 6)
    assert found[0] == found[1]
    assert "-0.0" in found[0][0]


def test_queries_beside_a_stream_that_fills_see_a_prefix_of_it(tmp_path: Path) -> None:
    with nile.connect(tmp_path / "store", checkpoint=None, memory="16MB") as db:
        prepared(db)
        stop = threading.Event()

        def fill() -> None:
            for begin in range(0, 100_000, 500):
                if stop.is_set():
                    return
                n = pa.array(range(begin, begin + 500))
                db.push("sales", {"at": n.cast(pa.float64()), "item": ["cup"] * 500, "n": n}, offset=begin)
                if begin % 2000 == 0:
                    db.checkpoint()

        thread = threading.Thread(target=fill)
        thread.start()
        try:
            lengths = [0]
            while len(lengths) < 20 or lengths[-1] < 5_000:
                found = db.sql("SELECT n FROM sales").to_arrow().column("n").to_pylist()
                assert found == list(range(len(found)))
                lengths.append(len(found))
        finally:
            stop.set()
            thread.join()
        assert lengths == sorted(lengths)


@pytest.mark.spark
def test_a_failed_epoch_goes_on_in_the_same_process_where_it_stopped(epochs: SparkSession, tmp_path: Path) -> None:
    with opened(epochs, tmp_path / "store") as sink:
        with sink.db.subscribe("SELECT item FROM sales") as heard:
            fails = [True]

            def refuse(_: pa.RecordBatch) -> None:
                if fails.pop() if fails else False:
                    raise Crash

            heard.attach(refuse)
            with pytest.raises(Crash):
                sink(frame_of(epochs, sales(0, 100)), 0)
            sink(frame_of(epochs, shuffled(sales(0, 100), 3)), 0)
        assert pushed(sink) == 100


@pytest.mark.spark
def test_outputs_of_a_standing_query_come_again_under_their_numbers(
    epochs: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: nile.Database) -> int:
        raise Crash

    text = "SELECT item, n FROM sales WHERE n > 20"
    told: dict[int, Any] = {}
    times: Counter[int] = Counter()
    for attempt in range(2):
        with opened(epochs, tmp_path / "store") as sink, monkeypatch.context() as crashing:
            if not attempt:
                crashing.setattr(nile.Database, "checkpoint", refuse)
            standing = sink.db.subscribe(text, name="above")
            with pytest.raises(Crash) if not attempt else nullcontext():
                sink(frame_of(epochs, shuffled(sales(0, 80), attempt)), 0)
            if attempt:
                sink(frame_of(epochs, shuffled(sales(80, 160), attempt)), 1)
            for first, batch in standing.poll_numbered():
                for number, row in enumerate(batch.to_pylist(), first):
                    times[number] += 1
                    assert told.setdefault(number, row) == row
    whole = nile.connect()
    whole.stream("sales", SALES, time="at", lateness="10 s")
    with whole.subscribe(text) as standing:
        for begin in (0, 80):
            whole.push("sales", in_order(sales(begin, begin + 80)))
        once = [row for batch in standing.poll() for row in batch.to_pylist()]
    assert [told[number] for number in sorted(told)] == once
    assert max(times.values()) == 2


@pytest.mark.spark
def test_a_query_that_is_not_the_streams_is_refused_before_anything_is_taken(
    epochs: SparkSession, tmp_path: Path
) -> None:
    context = epochs.sparkContext
    with opened(epochs, tmp_path / "store") as sink:
        with pytest.raises(StoreError, match="first epoch; got epoch 2 of query 6d3c, where the stream holds no rows"):
            sink(frame_of(epochs, sales(0, 5)), 2)
        for epoch in range(3):
            sink(frame_of(epochs, sales(epoch * 10, epoch * 10 + 10)), epoch)
        with pytest.raises(StoreError, match="epoch 2 of query 6d3c; got epoch 1; the query's checkpoint was set back"):
            sink(frame_of(epochs, sales(10, 20)), 1)
        with pytest.raises(StoreError, match="got epoch 4; the store was set back"):
            sink(frame_of(epochs, sales(40, 50)), 4)
        with pytest.raises(StoreError, match="needed the 10 rows that this epoch had when it was taken; got 11"):
            sink(frame_of(epochs, sales(20, 31)), 2)
        context.setLocalProperty("sql.streaming.queryId", "other")
        with pytest.raises(StoreError, match="epoch 0 of query other, where the stream holds epoch 2 of query 6d3c"):
            sink(frame_of(epochs, sales(0, 10)), 0)
        assert pushed(sink) == 30
    with opened(epochs, tmp_path / "store", new_query=True) as sink:
        sink(frame_of(epochs, sales(30, 40)), 0)
        assert pushed(sink) == 40
    context.setLocalProperty("sql.streaming.queryId", None)
    with opened(epochs, tmp_path / "store") as sink, pytest.raises(ConfigError, match=r"write query\.foreachBatch"):
        sink(frame_of(epochs, sales(40, 50)), 1)


@pytest.mark.spark
def test_other_columns_are_refused_with_a_diff_before_anything_is_taken(epochs: SparkSession, tmp_path: Path) -> None:
    frame = frame_of(epochs, sales(0, 10))
    with opened(epochs, tmp_path / "store") as sink:
        sink(frame.select("n", "item", "at"), 0)  # columns go by name
        for columns, said in ((("at", "item"), "- n: int64"), (("*", "1 AS m"), r"\+ m: int32")):
            with pytest.raises(SchemaDrift, match=said):
                sink(frame.selectExpr(*columns), 1)
        sink(frame.selectExpr("at", "item", "CAST(n AS INT) AS n"), 1)
        assert pushed(sink) == 20
    other = frame.selectExpr("at", "item", "CAST(n AS STRING) AS n")
    with pytest.raises(SchemaDrift, match=r"~ n: int64 -> string"):
        stream_sink(other, tmp_path / "store", stream="sales", time="at", lateness="10 s")
    with pytest.raises(UnknownColumn):
        stream_sink(frame, tmp_path / "two", stream="sales", time="att", lateness=None)
    with pytest.raises(ConfigError, match="column 'm': needed numbers, text"):
        stream_sink(frame.selectExpr("at", "array(n) AS m"), tmp_path / "two", stream="s", time="at", lateness=None)
    with pytest.raises(ConfigError, match="needed the definition that the store has"):
        stream_sink(frame, tmp_path / "store", stream="sales", time="at", lateness="1 h")
    with pytest.raises(ConfigError, match="needed a database with a store"):
        stream_sink(frame, nile.connect(), stream="sales", time="at", lateness=None)
    assert not (tmp_path / "two").exists()


def test_a_session_of_spark_connect_is_refused() -> None:
    remote = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(ConfigError, match="Connect, which runs it on the server; run the query in the process"):
        stream_sink(remote, "nowhere", stream="sales", time="at", lateness=None)
