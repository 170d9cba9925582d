"""Preparing streams on Spark: the same tuples, accounts and errors as the direct path, however Spark cuts them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from nile.base.durations import MAX_DURATION
from nile.expressions.conditions import parse_condition
from nile.spark.ingesting.prepare import Prepared, PrepareSpec, prepare
from nile.streams.files.parquet import ParquetSource
from nile.streams.manager import StreamManager, StreamSpec
from nile.summaries.errors import (
    ConfigError,
    ExpressionError,
    KeyTypeError,
    NileError,
    SourceError,
    SourceMissing,
    UnknownColumn,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECOND = 1_000_000_000


def spec_of(path: Path, where: str | None = None, time: str = "ts", key: str = "item") -> PrepareSpec:
    condition = parse_condition(where, where="where of stream 'left'") if where else None
    return PrepareSpec("left", path, time, key, condition)


def tuples_of(prepared: Prepared) -> list[tuple[int, int, Any]]:
    """What was written, in the order of the part files' names."""
    tables = [pq.read_table(part) for part in sorted(prepared.path.glob("part-*.parquet"))]
    table = pa.concat_tables(tables)
    assert table.schema.names == ["ordinal", "ts", "key"]
    assert table.schema.types[:2] == [pa.int64(), pa.int64()]
    assert (prepared.path / "_SUCCESS").exists()
    assert prepared.tuples_in == prepared.rows + sum(prepared.rejected.values())
    rows = list(zip(*(table[name].to_pylist() for name in table.schema.names), strict=True))
    assert len(rows) == prepared.rows
    ts = [row[1] for row in rows]
    assert (prepared.first_ts, prepared.last_ts) == ((ts[0], ts[-1]) if ts else (None, None))
    return rows


def quarantine_of(prepared: Prepared) -> list[tuple[str, int, str]]:
    table = pq.read_table(prepared.quarantine_path)
    assert table.schema.names == ["reason", "row", "raw"]
    return list(zip(*(table[name].to_pylist() for name in table.schema.names), strict=True))


def directly(spec: PrepareSpec) -> tuple[list[tuple[int, int, Any]], StreamManager]:
    """The tuples of the direct path, for a source that may be in any order."""
    manager = StreamManager(StreamSpec(spec.name, str(spec.path), spec.time, spec.key, spec.where, MAX_DURATION))
    rows = []
    for batch in manager.batches():
        keys = batch.key.to_pylist()
        rows += [(batch.ordinal + i, int(ts), key) for i, (ts, key) in enumerate(zip(batch.ts, keys, strict=True))]
    return rows, manager


def assert_as_directly(prepared: Prepared, spec: PrepareSpec, *, raw: bool) -> None:
    expected, manager = directly(spec)
    assert tuples_of(prepared) == expected
    assert prepared.tuples_in == manager.accounting.tuples_in
    assert prepared.rejected == manager.accounting.reasons
    rejected = manager.quarantine()
    columns = ["reason", "row", "raw"] if raw else ["reason", "row"]
    aside = zip(*(rejected[name].to_pylist() for name in columns), strict=True)
    assert [row[: len(columns)] for row in quarantine_of(prepared)] == list(aside)


# --- Parquet ----------------------------------------------------------------------------------------------


def shuffled(seed: int, size: int) -> pa.Table:
    """Disorder within a day, many ties, null times and keys, a column to filter on."""
    source = random.Random(seed)
    times = [None if source.random() < 0.05 else source.randrange(-100, 100) * 60 * 10**6 for _ in range(size)]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "item": pa.array([None if source.random() < 0.1 else f"i{source.randrange(9)}" for _ in range(size)]),
            "side": pa.array([source.choice((0, 1, None)) for _ in range(size)], pa.int8()),
            "key": pa.array([source.randrange(3) for _ in range(size)]),
            "why": pa.array([str(place) for place in range(size)]),
        }
    )


def test_parquet_gives_the_tuples_and_accounts_of_the_direct_path(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "shop.parquet"
    pq.write_table(shuffled(1, 3_000), path, row_group_size=700)
    # Columns named like ours must not be taken for ours.
    spec = spec_of(path, "side = 0 AND key <> 2 AND why <> '17'")
    prepared = prepare(spark, spec, tmp_path / "out")
    assert_as_directly(prepared, spec, raw=False)
    assert prepared.rejected["null time"] > 10
    assert quarantine_of(prepared)[0][2].startswith("ts=null, item=i")


def test_what_is_written_does_not_depend_on_the_partitioning(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "shop.parquet"
    pq.write_table(shuffled(2, 3_000), path, row_group_size=100)
    whole = tuples_of(prepare(spark, spec_of(path), tmp_path / "whole"))
    with small_splits(spark):
        cut = prepare(spark, spec_of(path), tmp_path / "cut", rows_a_part=300)
    assert tuples_of(cut) == whole
    assert len(list(cut.path.glob("part-*.parquet"))) >= 8
    assert ParquetSource(cut.path).prepared


def test_equal_times_stay_in_one_part_and_in_order(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "still.parquet"
    pq.write_table(pa.table({"ts": [5] * 90 + [4] * 10, "item": range(100)}), path)
    prepared = prepare(spark, spec_of(path), tmp_path / "out", rows_a_part=10)
    assert [key for _, _, key in tuples_of(prepared)] == [*range(90, 100), *range(90)]


@contextmanager
def small_splits(spark: SparkSession, size: int = 2_000) -> Iterator[None]:
    """Spark cuts files into pieces of `size` bytes and reads each in its own task."""
    settings = {"spark.sql.files.maxPartitionBytes": str(size), "spark.sql.files.openCostInBytes": str(size)}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            assert old is not None
            spark.conf.set(name, old)


KEYS: dict[str, tuple[pa.DataType, list[Any], pa.DataType]] = {
    "int8": (pa.int8(), [1, None], pa.int8()),
    "uint32": (pa.uint32(), [2**32 - 1, None], pa.int64()),
    "uint64": (pa.uint64(), [2**64 - 1, None], pa.decimal128(20)),
    "float32": (pa.float32(), [0.5, None], pa.float32()),
    "boolean": (pa.bool_(), [True, None], pa.bool_()),
    "bytes": (pa.binary(), [b"\x00\xff", None], pa.binary()),
    "date": (pa.date32(), [date(2011, 12, 9), None], pa.date32()),
    "timestamp": (pa.timestamp("us"), [datetime(2011, 12, 9), None], pa.timestamp("us")),
    "decimal": (pa.decimal128(9, 2), [Decimal("1.25"), None], pa.decimal128(9, 2)),
}


def test_keys_keep_their_type(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "keys.parquet"
    columns = {name: pa.array(values, kind) for name, (kind, values, _) in KEYS.items()}
    pq.write_table(pa.table({"ts": [1, 2], **columns}), path)
    for name in ("uint64", "bytes", "timestamp", "decimal"):
        prepared = prepare(spark, spec_of(path, key=name), tmp_path / name)
        assert [key for _, _, key in tuples_of(prepared)] == KEYS[name][1]
        (part,) = prepared.path.glob("part-*.parquet")
        assert pq.read_schema(part).field("key").type == KEYS[name][2]


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.duration("s"), pa.time64("us"), pa.float16()], ids=str)
def test_a_key_type_that_spark_cannot_carry_is_refused(spark: SparkSession, tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "odd.parquet"
    pq.write_table(pa.table({"ts": [1], "item": pa.array([1], kind)}), path)
    with pytest.raises(KeyTypeError, match="key column 'item': Spark cannot carry"):
        prepare(spark, spec_of(path), tmp_path / "out")


def test_conditions_on_times_select_as_on_the_direct_path(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "times.parquet"
    far = [0, 1_000, -1, None, 2**62]
    kinds = [pa.timestamp(unit, zone) for unit in ("ms", "us") for zone in (None, "UTC")]
    times = {str(kind): pa.array(far, kind) for kind in kinds}
    times["ns"] = pa.array([0, 1_000, -1_000, None, 10**18], pa.timestamp("ns"))
    pq.write_table(pa.table({"ts": range(5), "item": range(5), **times}), path)
    where = " AND ".join(f"\"{name}\" >= TIMESTAMP '1970-01-01'" for name in times)
    spec = spec_of(path, where)
    prepared = prepare(spark, spec, tmp_path / "out")
    assert_as_directly(prepared, spec, raw=True)
    assert [key for _, _, key in tuples_of(prepared)] == [0, 1, 4]


def test_a_condition_on_times_finer_than_spark_knows_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "fine.parquet"
    pq.write_table(pa.table({"ts": pa.array([1, 1_000], pa.timestamp("ns")), "item": [1, 2]}), path)
    with pytest.raises(NileError, match="compares times to the microsecond"):
        prepare(spark, spec_of(path, "ts < TIMESTAMP '2011-12-09'"), tmp_path / "out")
    assert tuples_of(prepare(spark, spec_of(path), tmp_path / "out")) == [(0, 1, 1), (1, 1_000, 2)]


def test_files_may_have_names_that_spark_takes_for_patterns_or_passes_over(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("_hidden.parquet", "a:b [1]{x}*,?.parquet"):
        path = tmp_path / "d{i}r" / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"ts": [3, 1], "item": ["a", "b"]}), path)
        prepared = prepare(spark, spec_of(path), tmp_path / "out [1]")
        assert tuples_of(prepared) == [(0, SECOND, "b"), (1, 3 * SECOND, "a")]


def test_a_directory_that_spark_wrote_is_one_source_and_so_is_a_prepared_stream(
    spark: SparkSession, tmp_path: Path
) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    for number in range(3):
        table = pa.table({"ts": pa.array([7, None], pa.int64()), "item": [2 * number, 2 * number + 1]})
        pq.write_table(table, parts / f"part-{number}.parquet")
    (parts / "_SUCCESS").touch()
    spec = spec_of(parts)
    first = prepare(spark, spec, tmp_path / "first")
    assert_as_directly(first, spec, raw=False)
    assert [key for _, _, key in tuples_of(first)] == [0, 2, 4]
    assert [row for _, row, _ in quarantine_of(first)] == [2, 4, 6]
    again = prepare(spark, spec_of(first.path, key="key"), tmp_path / "again")
    assert tuples_of(again) == tuples_of(first)


def test_a_stream_without_tuples_is_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "none.parquet"
    pq.write_table(pa.table({"ts": pa.array([], pa.int64()), "item": pa.array([], pa.string())}), path)
    empty = prepare(spark, spec_of(path), tmp_path / "out")
    assert (empty.rows, empty.tuples_in, empty.rejected) == (0, 0, {})
    assert tuples_of(empty) == []
    assert quarantine_of(empty) == []
    assert ParquetSource(empty.path).prepared
    pq.write_table(pa.table({"ts": [1], "item": ["a"]}), path)
    assert tuples_of(prepare(spark, spec_of(path, "item = 'b'"), tmp_path / "out")) == []


# --- CSV --------------------------------------------------------------------------------------------------


def csv_lines(size: int) -> list[str]:
    """Rows with every defect: misfits in time, key and condition, wrong numbers of fields, odd white space."""
    source = random.Random(4)
    lines = ["when,item,price,note"]
    # The first rows decide the types, so these are sound.
    lines += [f"2011-12-{1 + i % 28:02} 08:{i % 60:02},{i % 7},{i % 9}.5,n{i}" for i in range(10_000)]
    for place in range(size):
        when = f"2011-12-{1 + source.randrange(28):02} 08:{source.randrange(60):02}"
        item, price = str(source.randrange(7)), f"{source.randrange(9)}.5"
        match source.randrange(14):
            case 0:
                when = source.choice(("", "soon", "2011-02-30", "9999-01-01", "1600-01-01 00:00"))
            case 1:
                item = source.choice(("", "x", "1.5", "9223372036854775808", " 3 "))
            case 2:
                price = source.choice(("", "cheap", "nan", "-inf", "1e3"))
            case 3:
                lines.append(source.choice(("", "   ", "lost", f"{when},1", f"{when},1,2,3,4", ",,,", ",")))
        lines.append(f"{when},{item},{price},né{place}")
    return lines


def write_csv(path: Path, lines: Sequence[str], end: str = "\n") -> Path:
    path.write_bytes(end.join(lines).encode())
    return path


@pytest.mark.parametrize("where", [None, "price > 3 OR note = 'né7'"], ids=str)
def test_plain_csv_gives_the_tuples_accounts_and_quarantine_of_the_direct_path(
    spark: SparkSession, tmp_path: Path, where: str | None
) -> None:
    path = write_csv(tmp_path / "shop.csv", csv_lines(3_000), "\r\n" if where else "\n")
    spec = spec_of(path, where, time="when")
    with small_splits(spark, 60_000):
        prepared = prepare(spark, spec, tmp_path / "out", rows_a_part=4_000)
    assert_as_directly(prepared, spec, raw=True)
    assert set(prepared.rejected) >= {
        "wrong number of fields",
        "unparsable time",
        "null time",
        "time out of range",
        "cell of 'item' is no whole number",
    }


def test_quoted_csv_with_line_ends_in_cells_gives_the_same_as_the_direct_path(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = csv_lines(1_000)
    lines[5_000] = '2011-12-05 08:20,"3",1.5,"a ""word"", a comma\r\nand a line"'
    lines[5_001] = '2011-12-05 08:21,3,1.5,one,two,"three\nfour"'
    lines[5_002] = '2011-12-05 08:22,3,1.5,5" pipe'
    path = write_csv(tmp_path / "shop.csv", lines)
    spec = spec_of(path, "price > 1 AND note <> 'n9'", time="when")
    prepared = prepare(spark, spec, tmp_path / "out")
    assert_as_directly(prepared, spec, raw=True)
    assert ("wrong number of fields", 5_001, '2011-12-05 08:21,3,1.5,one,two,"three\nfour"') in quarantine_of(prepared)


def test_csv_bytes_that_are_no_text_and_a_byte_order_mark_are_read_as_on_the_direct_path(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "bytes.csv"
    path.write_bytes(b"\xef\xbb\xbf\nts,item\n1,a\n2,\xff\n3,\xc3\xa9\n\n4,b,\xfe\n5,c")
    spec = spec_of(path)
    prepared = prepare(spark, spec, tmp_path / "out")
    assert_as_directly(prepared, spec, raw=True)
    assert prepared.rejected == {"cell of 'item' is no UTF-8 text": 1, "wrong number of fields": 1}


def test_csv_with_one_column_and_text_times_works(spark: SparkSession, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "one.csv", ["ts", "x", "1.5", "", "  ", "2011-12-09 08:01", "3,4", "-2"])
    spec = spec_of(path, key="ts")
    prepared = prepare(spark, spec, tmp_path / "out")
    assert_as_directly(prepared, spec, raw=True)
    assert prepared.rows == 3


def test_retail_and_the_same_as_csv_are_the_same_stream(spark: SparkSession, tmp_path: Path, retail: Path) -> None:
    few = pq.read_table(retail, columns=["ts", "item_id", "vstore"]).slice(0, 60_000)
    pyarrow.csv.write_csv(few, tmp_path / "few.csv")
    pq.write_table(few, tmp_path / "few.parquet")
    streams = []
    for name in ("few.csv", "few.parquet"):
        spec = spec_of(tmp_path / name, "vstore = 0", key="item_id")
        prepared = prepare(spark, spec, tmp_path / "out")
        assert_as_directly(prepared, spec, raw=True)
        streams.append(tuples_of(prepared))
    assert streams[0] == streams[1]


def test_nothing_of_a_users_is_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    pq.write_table(pa.table({"ts": [1], "item": [1]}), path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    for out, message in ((tmp_path / "mine", r"other things in it \('thesis.txt'\)"), (path, "is also read")):
        with pytest.raises(ConfigError, match=message):
            prepare(spark, spec_of(path), out)
    prepared = prepare(spark, spec_of(path), tmp_path / "out")
    with pytest.raises(ConfigError, match="is also read"):
        prepare(spark, spec_of(prepared.path, key="key"), prepared.path)
    assert tuples_of(prepare(spark, spec_of(path), prepared.path)) == [(0, SECOND, 1)]


# --- what cannot be prepared ------------------------------------------------------------------------------


def broken_sources(directory: Path) -> Iterator[tuple[PrepareSpec, type[Exception]]]:
    good = directory / "good.parquet"
    pq.write_table(pa.table({"ts": [1], "item": ["a"], "list": [[1]]}), good)
    (directory / "empty.parquet").touch()
    (directory / "empty.csv").touch()
    (directory / "cut.parquet").write_bytes(good.read_bytes()[:-20])
    (directory / "open.csv").write_text('ts,item\n1,"a\n2,b\n')
    (directory / "notes.txt").write_text("ts,item\n1,a\n")
    (directory / "folder").mkdir()
    yield spec_of(directory / "gone.parquet"), SourceMissing
    for name in ("empty.parquet", "empty.csv", "cut.parquet", "open.csv", "notes.txt", "folder"):
        yield spec_of(directory / name), SourceError
    yield spec_of(good, key="itme"), UnknownColumn
    yield spec_of(good, time="when"), UnknownColumn
    yield spec_of(good, "prize > 3"), UnknownColumn
    yield spec_of(good, "item > 3"), ExpressionError
    yield spec_of(good, key="list"), KeyTypeError
    yield spec_of(good, time="list"), SourceError


def test_mistakes_raise_what_the_direct_path_raises(spark: SparkSession, tmp_path: Path) -> None:
    count = 0
    for spec, expected in broken_sources(tmp_path):
        with pytest.raises(expected) as direct:
            directly(spec)
        with pytest.raises(expected) as through_spark:
            prepare(spark, spec, tmp_path / "out")
        assert str(through_spark.value) == str(direct.value)
        count += 1
    assert count == 13


def test_a_parquet_file_broken_inside_is_named_without_a_stack(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "rotten.parquet"
    pq.write_table(pa.table({"ts": range(50_000), "item": [f"i{i}" for i in range(50_000)]}), path)
    data = bytearray(path.read_bytes())
    data[40 : len(data) // 2] = bytes(len(data) // 2 - 40)
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"rotten\.parquet: needed a whole file; it is broken inside") as caught:
        prepare(spark, spec_of(path), tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "_SUCCESS").exists()


def test_progress_is_told_in_words(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    pq.write_table(pa.table({"ts": [1, None], "item": [1, 2]}), path)
    told: list[str] = []
    prepare(spark, spec_of(path), tmp_path / "out", told.append)
    assert told == ["left: reading one.parquet", "left: ordering 1 tuples, 1 rejected"]
