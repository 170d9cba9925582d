"""Ingest: the rows of any input in the lake, typed, ordered, each accounted for; again changes nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from nile.base.durations import MAX_DURATION
from nile.experiments.cli import main
from nile.pyramid.lake.lake import DAY, ORDINAL, TS, LakeStream
from nile.spark import ingest
from nile.spark.ingesting.ingest import DUPLICATE, LATE, Ingested
from nile.spark.progress import JobProgress
from nile.streams.manager import StreamManager, StreamSpec
from nile.summaries.errors import ConfigError, KeyTypeError, SchemaDrift, SourceError, SourceMissing, UnknownColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HOUR = 3_600 * 10**6  # microseconds
Row = dict[str, Any]


def events(seed: int, size: int, *, start: int = 0, ids: int = 10**9) -> pa.Table:
    """Disorder over three days, ties, null times and keys, event ids of which some come twice."""
    source = random.Random(seed)
    times = [None if source.random() < 0.03 else start + source.randrange(72) * HOUR for _ in range(size)]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "item": pa.array([None if source.random() < 0.1 else f"i{source.randrange(40)}" for _ in range(size)]),
            "price": pa.array([source.choice((None, 1.5, -2.0)) for _ in range(size)], pa.float64()),
            "seen": pa.array([source.randrange(10**15) for _ in range(size)], pa.timestamp("ns")),
            "day": pa.array(
                [None if source.random() < 0.1 else source.randrange(ids) for _ in range(size)], pa.int64()
            ),
        }
    )


def in_order(
    rows: Sequence[Row], *, until: Any = None, known: frozenset[Any] = frozenset(), ids: bool = False
) -> tuple[list[Row], list[Row], list[Row]]:
    """(applied, late, duplicate) by the rules as one would say them."""
    timed = sorted((row for row in rows if row["ts"] is not None), key=lambda row: row["ts"])
    applied: list[Row] = []
    late: list[Row] = []
    duplicate: list[Row] = []
    seen = set(known)
    for row in timed:
        if ids and row["day"] is not None:
            if row["day"] in seen:
                duplicate.append(row)
                continue
            seen.add(row["day"])
        (late if until is not None and row["ts"] < until else applied).append(row)
    return applied, late, duplicate


def rows_of(stream: LakeStream) -> list[Row]:
    """The user's columns of every tuple in order of ordinals, which must have no gap."""
    assert stream.verify(deep=True) == []
    names = stream.layout.schema.names
    tables = list(stream.read([ORDINAL, TS, *names]))
    table = pa.concat_tables(tables).sort_by(ORDINAL)
    assert table.column(ORDINAL).to_pylist() == list(range(stream.tuples))
    ts = table.column(TS).to_numpy()
    assert (np.diff(ts) >= 0).all()
    assert all(part.since // DAY == part.until // DAY for part in stream.parts)
    assert table.select(names).schema.equals(stream.layout.schema)
    return table.select(names).to_pylist()


def aside_of(stream: LakeStream, batch: int = -1) -> list[tuple[str, int | None, str]]:
    files = [stream.path / one["name"] for one in stream.batches[batch]["aside"]]
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return sorted(((row["reason"], row["row"], row["raw"]) for row in rows), key=lambda row: row[1] or 0)


def assert_balanced(done: Ingested) -> None:
    assert done.tuples_in == done.applied + done.late + done.duplicate + sum(done.rejected.values())
    assert str(done).startswith(f"shop: {done.tuples_in:,} in = {done.applied:,} applied + ")


def plain(table: pa.Table) -> list[Row]:
    return table.to_pylist()


def test_batches_of_parquet_become_the_stream_and_every_row_is_accounted_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    first, lake = events(1, 3_000, ids=4_000), tmp_path / "lake"
    pq.write_table(first, tmp_path / "first.parquet", row_group_size=500)
    told: list[JobProgress] = []
    done = ingest(
        tmp_path / "first.parquet", lake, stream="shop", time="ts", key="item", event_id="day", spark=spark,
        on_progress=told.append,
    )  # fmt: skip
    applied, _, duplicate = in_order(plain(first), ids=True)
    assert rows_of(done.stream) == applied
    assert (done.applied, done.late, done.duplicate) == (len(applied), 0, len(duplicate))
    assert len(duplicate) > 100
    assert done.rejected == {"null time": sum(row["ts"] is None for row in plain(first))}
    assert_balanced(done)
    aside = aside_of(done.stream)
    assert [row for reason, row, _ in aside if reason == "null time"] == [
        at for at, row in enumerate(plain(first), 1) if row["ts"] is None
    ]
    assert sum(reason == DUPLICATE for reason, _, _ in aside) == len(duplicate)
    assert {raw[:8] for reason, _, raw in aside if reason == "null time"} == {"ts=null,"}
    assert {"reading", "ordering and writing"} <= {one.stage for one in told}
    assert told[-1].done == 1.0

    # The same again changes nothing, whatever the file is called.
    before = {file: file.stat().st_mtime_ns for file in sorted(lake.rglob("*")) if file.is_file()}
    (tmp_path / "first.parquet").rename(tmp_path / "moved.parquet")
    again = ingest(tmp_path / "moved.parquet", lake, stream="shop", spark=spark)
    assert again.repeated
    assert str(again).endswith("nothing changed")
    assert (again.tuples_in, again.applied) == (done.tuples_in, done.applied)
    assert {file: file.stat().st_mtime_ns for file in sorted(lake.rglob("*")) if file.is_file()} == before

    # A second batch: ids the lake has are duplicates, times before its end are late.
    second = events(2, 1_000, start=60 * HOUR, ids=4_000)
    pq.write_table(second, tmp_path / "second.parquet")
    more = ingest(tmp_path / "second.parquet", lake, stream="shop", spark=spark)
    until = max(row["ts"] for row in applied)
    known = frozenset(row["day"] for row in applied if row["day"] is not None)
    added, late, twice = in_order(plain(second), until=until, known=known, ids=True)
    assert rows_of(more.stream) == applied + added
    assert (more.applied, more.late, more.duplicate) == (len(added), len(late), len(twice))
    assert min(len(added), len(late), len(twice)) > 30
    assert sum(reason == LATE for reason, _, _ in aside_of(more.stream)) == len(late)
    assert_balanced(more)


def test_what_is_written_depends_neither_on_splits_nor_on_tasks_and_a_broken_run_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = events(3, 2_500)
    pq.write_table(table, tmp_path / "one.parquet", row_group_size=100)
    (tmp_path / "cut").mkdir()
    for number in range(5):
        pq.write_table(table.slice(number * 500, 500), tmp_path / "cut" / f"{number}.parquet")
    asked: dict[str, Any] = {"stream": "shop", "time": "ts", "key": "item", "spark": spark}

    def stopped(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LakeStream, "commit", stopped)
        with pytest.raises(KeyboardInterrupt):
            ingest(tmp_path / "one.parquet", tmp_path / "a", **asked)
    nothing = LakeStream.open(tmp_path / "a", "shop")
    assert (nothing.tuples, nothing.batches) == (0, ())
    assert list(nothing.path.glob("_staging/*.parquet"))
    one = ingest(tmp_path / "one.parquet", tmp_path / "a", **asked)
    assert not list(one.stream.path.glob("_staging"))
    cut = ingest(str(tmp_path / "cut/*.parquet"), tmp_path / "b", rows_a_part=300, **asked)
    assert rows_of(cut.stream) == rows_of(one.stream) == in_order(plain(table))[0]
    assert len(cut.stream.parts) > 2 * len(one.stream.parts)
    assert [row[:2] for row in aside_of(cut.stream)] == [row[:2] for row in aside_of(one.stream)]


CSV = {"ts": "timestamp[us]", "item": "int32", "price": "decimal(9, 2)", "day": "date", "note": "string", "ok": "bool"}


def csv_lines(size: int) -> list[str]:
    source = random.Random(4)
    lines = [",".join(CSV)]
    for place in range(size):
        when, item, price = f"2011-12-{1 + source.randrange(5):02} 08:{source.randrange(60):02}", str(place % 7), "1.25"
        day, ok = "2011-12-09", source.choice(("true", "FALSE", ""))
        match source.randrange(20):
            case 0:
                when = source.choice(("", "soon", "2011-02-30", "9999-01-01"))
            case 1:
                item = source.choice(("x", "1.5", "2147483648", "-2147483649"))
            case 2:
                price = source.choice(("cheap", "1.255", "12345678.00", "1e1"))
            case 3:
                day = source.choice(("2011-12-09 08:00", "tomorrow", ""))
            case 4:
                ok = "maybe"
            case 5:
                lines.append(f"{when},1,2")
        lines.append(f"{when},{item},{price},{day},né{place},{ok}")
    return lines


def test_csv_is_typed_as_declared_and_what_does_not_fit_is_set_aside_with_reason_and_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = csv_lines(600)
    for name, some in (
        ("a.csv", lines[:400]),
        ("b.csv", [lines[0], '2011-12-03,3,1,,"a ""b""\nc",true', *lines[400:]]),
    ):
        (tmp_path / name).write_text("\n".join(some))
    done = ingest(
        str(tmp_path / "?.csv"), tmp_path / "lake", stream="shop", time="ts", key="item", schema=CSV, spark=spark
    )
    assert done.stream.layout.schema.field("price").type == pa.decimal128(9, 2)
    fine, bad, reasons = 0, [], []
    for number, line in enumerate(lines[1:]):
        row = number + 1 if number < 399 else number - 399 + 2
        cells = line.split(",")
        if len(cells) != 6:
            bad.append(row)
            reasons.append("wrong number of fields")
            continue
        found = [
            "unparsable time" if cells[0] in ("soon", "2011-02-30") else None,
            "cell of 'item' is no whole number" if cells[1] not in "0123456" else None,
            "cell of 'price' is no number" if cells[2] in ("cheap", "1.255", "12345678.00") else None,
            "cell of 'day' is no date" if cells[3] not in ("2011-12-09", "") else None,
            "cell of 'ok' is no boolean" if cells[5] == "maybe" else None,
            "null time" if cells[0] == "" else None,
            "time out of range" if cells[0] == "9999-01-01" else None,
        ]
        why = next((one for one in found if one), None)
        if why is None:
            fine += 1
        else:
            bad.append(row)
            reasons.append(why)
    assert done.applied == fine + 1
    assert done.rejected == {why: reasons.count(why) for why in sorted(set(reasons))}
    assert len(done.rejected) >= 7
    assert sorted(row for _, row, _ in aside_of(done.stream)) == sorted(bad)
    kept = rows_of(done.stream)
    assert sum(row["note"] == 'a "b"\nc' for row in kept) == 1


@pytest.mark.long
def test_csv_gives_the_tuples_and_reasons_of_the_direct_path(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n".join(csv_lines(600)))
    spec = StreamSpec("shop", str(tmp_path / "a.csv"), "ts", "note", None, MAX_DURATION)
    manager = StreamManager(spec)
    direct = [key for batch in manager.batches() for key in batch.key.to_pylist()]
    loose = dict.fromkeys(CSV, "string") | {"ts": "timestamp[us]"}
    text = ingest(
        tmp_path / "a.csv", tmp_path / "loose", stream="shop", time="ts", key="note", schema=loose, spark=spark
    )
    assert [row["note"] for row in rows_of(text.stream)] == direct
    assert text.rejected == manager.accounting.reasons


def test_json_lines_are_typed_and_broken_ones_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"t": 5 - at, "who": f"0{at}", "n": at if at % 2 else None, "deep": {"a": at}} for at in range(5)]
    lines = [json.dumps(row) for row in rows]
    lines += ["", '{"t": 3,', "[1]", '{"t": "soon", "who": "x"}', '{"t": 9, "who": "late", "n": 1.5}', '{"t": 7}']
    (tmp_path / "shop.jsonl").write_text("\n".join(lines))
    kinds = {"t": "int64", "who": "string", "n": "int64", "deep": "string"}
    done = ingest(
        tmp_path / "shop.jsonl", tmp_path / "lake", stream="shop", time="t", key="who", schema=kinds, spark=spark
    )
    expected = [row | {"deep": json.dumps(row["deep"]).replace(" ", "")} for row in reversed(rows)]
    assert rows_of(done.stream) == [*expected, {"t": 7, "who": None, "n": None, "deep": None}]
    assert done.rejected == {"cell of 'n' is no whole number": 1, "unparsable time": 1, "wrong number of fields": 2}
    assert [(row, reason) for reason, row, _ in aside_of(done.stream)] == [
        (6, "wrong number of fields"),
        (7, "wrong number of fields"),
        (8, "unparsable time"),
        (9, "cell of 'n' is no whole number"),
    ]


def test_tables_and_frames_are_inputs_whatever_the_session_is_set_to(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        query = "SELECT timestamp_seconds(id * 40000) AS ts, CAST(id AS INT) AS item, TIMESTAMP_NTZ '2011-12-09' AS at"
        frame = spark.sql(f"{query} FROM range(0, 50, 1, 3)")
        asked: dict[str, Any] = {"stream": "shop", "time": "ts", "key": "item"}
        done = ingest(frame, tmp_path / "lake", **asked)
        frame.createOrReplaceTempView("nile_test_shop")
        again = ingest("nile_test_shop", tmp_path / "lake", **asked, spark=spark)
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.catalog.dropTempView("nile_test_shop")
    rows = rows_of(done.stream)
    assert [row["item"] for row in rows] == list(range(50))
    assert [int(row["ts"].timestamp()) for row in rows] == [at * 40_000 for at in range(50)]
    assert str(rows[0]["at"]) == "2011-12-09 00:00:00"
    assert again.repeated


def test_drift_stops_with_a_diff_or_follows_its_rule(spark: SparkSession, tmp_path: Path) -> None:
    one = pa.table({"ts": [1, 2], "item": ["a", "b"], "price": pa.array([1, 2], pa.int32()), "note": ["x", "y"]})
    pq.write_table(one, tmp_path / "one.parquet")
    lake = tmp_path / "lake"
    ingest(tmp_path / "one.parquet", lake, stream="shop", time="ts", key="item", spark=spark)
    other = pa.table(
        {"item": ["c", "d", "e"], "ts": [3, 4, 5], "price": pa.array([3.0, 3.5, None]), "store": [1, 2, 3]}
    )
    pq.write_table(other, tmp_path / "two.parquet")
    with pytest.raises(SchemaDrift) as stopped:
        ingest(tmp_path / "two.parquet", lake, stream="shop", spark=spark)
    first, *lines = str(stopped.value).splitlines()
    assert first.endswith("fix the input, or declare added=ignore, dropped=null, retyped=cast, reordered=follow")
    assert lines == [
        "  + store: int64  (added)",
        "  - note: string  (dropped)",
        "  ~ price: int32 -> double  (retyped)",
        "  order: item, ts, price  (reordered)",
    ]
    rules = {"added": "ignore", "dropped": "null", "retyped": "cast", "reordered": "follow"}
    done = ingest(tmp_path / "two.parquet", lake, stream="shop", drift=rules, spark=spark)
    assert done.rejected == {"cell of 'price' is no whole number": 1}
    assert rows_of(done.stream)[2:] == [
        {"ts": 3, "item": "c", "price": 3, "note": None},
        {"ts": 5, "item": "e", "price": None, "note": None},
    ]


def test_mistakes_are_named_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    good = tmp_path / "good.parquet"
    pq.write_table(pa.table({"ts": [1], "item": ["a"], "list": [[1]], "other": [1.5]}), good)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "list.json").write_text("[1, 2]\n")
    lake, fine = tmp_path / "lake", {"ts": "int64", "item": "string"}
    cases: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (tmp_path / "gone.parquet", {}, SourceMissing, "did you mean 'good.parquet'"),
        ("nothing_of_that_name", {}, SourceMissing, "or a table"),
        (tmp_path / "notes.txt", {}, SourceError, r"\.parquet, \.csv or \.json files"),
        (tmp_path / "list.json", {}, SourceError, "an object per line"),
        (5, {}, SourceError, "got int"),
        (good, {}, ConfigError, "column 'list': needed numbers"),
        (good, {"schema": fine}, SchemaDrift, r"\+ other: double"),
        (good, {"schema": fine, "key": "itme"}, UnknownColumn, "did you mean 'item'"),
        (good, {"schema": fine, "event_id": "id"}, UnknownColumn, "no column 'id'"),
        (good, {"schema": {**fine, "price": "dubble"}}, ConfigError, "did you mean 'double'"),
        (good, {"schema": fine, "time": None}, ConfigError, "needed the time column"),
        (good, {"schema": fine, "drift": {"added": "keep"}}, ConfigError, "needed stop or ignore; got 'keep'"),
        (good, {"schema": fine, "ranges": "soon"}, ConfigError, "ranges: needed a duration"),
        (good, {"schema": fine, "bits": 40}, ConfigError, "1 to 16 bits"),
    ]
    for source, changes, kind, message in cases:
        asked = {"stream": "shop", "time": "ts", "key": "item", **changes}
        with pytest.raises(kind, match=message):
            ingest(source, lake, spark=spark, **asked)
    assert not lake.exists()
    ingest(good, lake, stream="shop", time="ts", key="item", schema=fine, drift={"added": "ignore"}, spark=spark)
    with pytest.raises(ConfigError, match="key: the stream was made with item; got other"):
        ingest(good, lake, stream="shop", key="other", spark=spark)


def test_a_parquet_file_broken_inside_is_named_and_nothing_of_it_is_visible(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("a.parquet", "b.parquet"):
        table = pa.table({"ts": range(20_000), "item": [f"i{at}" for at in range(20_000)]})
        pq.write_table(table, tmp_path / name)
    data = bytearray((tmp_path / "b.parquet").read_bytes())
    data[40 : len(data) // 2] = bytes(len(data) // 2 - 40)
    (tmp_path / "b.parquet").write_bytes(data)
    with pytest.raises(SourceError) as caught:
        ingest(str(tmp_path / "*.parquet"), tmp_path / "lake", stream="shop", time="ts", key="item", spark=spark)
    before, _, rest = str(caught.value).partition(" it is broken inside: ")
    assert before == f"stream 'shop': {tmp_path / 'b.parquet'}: needed a whole file;"
    cause, _, mend = rest.rpartition("; ")
    assert cause
    assert mend == "write or copy it again"
    assert "\n" not in str(caught.value)
    assert LakeStream.open(tmp_path / "lake", "shop").tuples == 0


def test_an_input_without_rows_makes_a_stream_without_tuples(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"ts": pa.array([], pa.int64()), "item": pa.array([], pa.string())}), tmp_path / "n.parquet"
    )
    done = ingest(tmp_path / "n.parquet", tmp_path / "lake", stream="shop", time="ts", key="item", spark=spark)
    assert (done.tuples_in, done.files, done.stream.tuples) == (0, 0, 0)
    assert len(done.stream.batches) == 1


def test_a_key_that_cannot_be_one_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"ts": [1], "item": pa.array([1], pa.duration("s"))}), tmp_path / "odd.parquet")
    with pytest.raises((ConfigError, KeyTypeError), match="column 'item'"):
        ingest(tmp_path / "odd.parquet", tmp_path / "lake", stream="shop", time="ts", key="item", spark=spark)


def test_the_command_tells_the_account_and_mistakes_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    assert spark is not None  # the command shares the session
    (tmp_path / "shop.csv").write_text("ts,item,n\n1,a,5\nsoon,b,6\n2,b,x\n")
    asked = ["ingest", str(tmp_path / "shop.csv"), str(tmp_path / "lake"), "--stream", "shop"]
    typed = [*asked, "--time", "ts", "--key", "item"]
    typed += [part for column in ("ts=int64", "item=string", "n=int64") for part in ("--column", column)]
    done = CliRunner().invoke(main, typed)
    assert done.exit_code == 0, done.output
    assert (
        "shop: 3 in = 1 applied + 0 late + 0 duplicate + 2 rejected (1 cell of 'n' is no whole number, " in done.output
    )
    again = CliRunner().invoke(main, [*asked, "--json"])
    account = json.loads(again.output.splitlines()[-1])
    assert (account["repeated"], account["in"], account["applied"], account["tuples"]) == (True, 3, 1, 1)
    wrong = CliRunner().invoke(main, [*asked, "--drift", "added"])
    assert wrong.exit_code == 2
    assert "nile: --drift: needed NAME=VALUE; got 'added'" in wrong.output
