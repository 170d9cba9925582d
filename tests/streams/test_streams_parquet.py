"""Parquet files and the directories that Spark writes."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nile
from nile.streams.files.parquet import ParquetSource
from nile.summaries.errors import SourceError, SourceMissing, UnknownColumn

TABLE = pa.table({"ts": pa.array([3, 1, 2], pa.timestamp("us")), "key": ["a", None, "a"], "n": [1.5, 2.5, None]})


def rows(source: ParquetSource, columns: list[str], size: int = 2) -> list[dict[str, object]]:
    return [row for raw in source.batches(columns, size) for row in raw.batch.to_pylist()]


def directory(folder: Path, *parts: pa.Table, success: bool = True) -> Path:
    for number, part in enumerate(parts):
        pq.write_table(part, folder / f"part-{number:05d}-x.snappy.parquet")
    (folder / ".part-00000.crc").write_bytes(b"x")
    if success:
        (folder / "_SUCCESS").touch()
    return folder


def test_the_asked_columns_come_in_the_asked_order_and_in_small_batches(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "t.parquet", row_group_size=2)
    source = ParquetSource(tmp_path / "t.parquet")
    batches = list(source.batches(["n", "key"], 2))
    assert [raw.batch.schema.names for raw in batches] == [["n", "key"]] * len(batches)
    assert [row for raw in batches for row in raw.rows.tolist()] == [1, 2, 3]
    assert rows(source, ["key", "ts"]) == TABLE.select(["key", "ts"]).to_pylist()
    assert all(len(raw.batch) <= 2 for raw in batches)


def test_text_of_many_values_comes_as_it_is(tmp_path: Path) -> None:
    table = pa.table({"key": [f"user-{number:06d}" for number in range(30_000)], "few": ["a"] * 30_000})
    pq.write_table(table, tmp_path / "t.parquet")
    schema = ParquetSource(tmp_path / "t.parquet").schema
    assert schema.field("key").type == pa.string()
    assert pa.types.is_dictionary(schema.field("few").type)


def test_text_of_few_values_comes_dictionary_encoded(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "t.parquet")
    source = ParquetSource(tmp_path / "t.parquet")
    assert source.schema.field("key").type == pa.dictionary(pa.int32(), pa.string())
    (raw,) = source.batches(["key"], 10)
    assert raw.batch.schema.field("key").type == source.schema.field("key").type


def test_a_file_without_rows_is_an_empty_stream(tmp_path: Path) -> None:
    pq.write_table(TABLE.slice(0, 0), tmp_path / "t.parquet")
    assert rows(ParquetSource(tmp_path / "t.parquet"), ["ts", "key"]) == []


def test_a_directory_that_spark_wrote_is_read_in_the_order_of_its_parts(tmp_path: Path) -> None:
    source = ParquetSource(directory(tmp_path, TABLE.slice(0, 1), TABLE.slice(1, 0), TABLE.slice(1, 2)))
    assert rows(source, ["ts", "key", "n"]) == TABLE.to_pylist()
    assert not source.prepared


def prepared(start: int, count: int) -> pa.Table:
    ordinals = list(range(start, start + count))
    return pa.table({"ordinal": ordinals, "ts": [10**18 + 5 * n for n in ordinals], "key": [f"k{n}" for n in ordinals]})


def test_a_prepared_stream_has_its_times_in_nanoseconds(tmp_path: Path) -> None:
    source = ParquetSource(directory(tmp_path, prepared(0, 2), prepared(2, 3)))
    assert source.prepared
    assert source.schema.field("ts").type == pa.timestamp("ns")
    found = [raw.batch["ts"].cast(pa.int64()).to_pylist() for raw in source.batches(["key", "ts"], 10)]
    assert sum(found, []) == [10**18 + 5 * n for n in range(5)]  # noqa: RUF017


def test_a_prepared_stream_that_lost_a_part_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="needed tuple 2 next, found 3; a part is missing"):
        ParquetSource(directory(tmp_path, prepared(0, 2), prepared(3, 3)))


def test_a_directory_without_the_mark_of_success_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="_SUCCESS mark is missing"):
        ParquetSource(directory(tmp_path, TABLE, success=False))


def test_parts_with_other_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="its columns differ"):
        ParquetSource(directory(tmp_path, TABLE, TABLE.select(["ts"])))


def test_any_other_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="got a directory without part-"):
        ParquetSource(tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda _: b"", "the file is empty"),
        (lambda whole: whole[: len(whole) // 2], "cut short or not Parquet"),
        (lambda whole: whole[:-1], "cut short or not Parquet"),
        (lambda _: b"ts,key\n1,2\n" * 20, "cut short or not Parquet"),
    ],
    ids=["empty", "half", "one byte short", "a CSV"],
)  # fmt: skip
def test_a_broken_file_is_refused(tmp_path: Path, damage: object, message: str) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path)
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(SourceError, match=message) as error:
        ParquetSource(path)
    assert "write or copy it again" in str(error.value)


def test_a_file_broken_inside_is_noticed_while_reading(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"n": list(range(50_000))}), path, use_dictionary=False, compression="snappy")
    content = bytearray(path.read_bytes())
    content[2_000:60_000] = bytes(58_000)
    path.write_bytes(content)
    with pytest.raises(SourceError, match="it is broken"):
        rows(ParquetSource(path), ["n"], 1_000)


def test_missing_files_and_columns_are_named(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "sales.parquet")
    with pytest.raises(SourceMissing, match=r"did you mean 'sales\.parquet'"):
        ParquetSource(tmp_path / "sale.parquet")
    with pytest.raises(UnknownColumn, match="no column 'keys'; did you mean 'key'"):
        rows(ParquetSource(tmp_path / "sales.parquet"), ["keys"])


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.dictionary(pa.int32(), pa.string())], ids=str)
@pytest.mark.parametrize("sizes", [[0], [0, 3], [3, 0, 2], [0, 0]], ids=str)
def test_row_groups_without_a_row_are_no_rows(tmp_path: Path, kind: pa.DataType, sizes: list[int]) -> None:
    keys = ["1", "2", "3"]
    path, schema = tmp_path / "s.parquet", pa.schema([("t", pa.float64()), ("k", kind)])
    at = 0
    with pq.ParquetWriter(path, schema) as writer:
        for size in sizes:
            held = pa.array([int(key) if kind == pa.int64() else key for key in keys[:size]])
            column = held.cast(pa.string()).dictionary_encode() if pa.types.is_dictionary(kind) else held.cast(kind)
            writer.write_table(pa.table([np.arange(at, at + size) * 1.0, column], schema=schema), row_group_size=100)
            at += size
    for threads in (1, 2):
        with nile.connect(threads=threads) as db:
            db.register("a", path, time="t").register("b", path, time="t")
            assert db.sql("SELECT count(*) AS n FROM a").fetchone() == (sum(sizes),)
            pairs = "SELECT a.t AS l, b.t AS r FROM a, b WHERE a.k = b.k WINDOW '10 s'"
            whole = sorted(db.sql(pairs).fetchall())
            assert (0.0, 0.0) in whole or not sum(sizes)
            within = db.sql(pairs.replace(" WINDOW", " WITH PREFERENCE desc WINDOW") + " BUDGET 1.0")
            assert sorted(within.fetchall()) == whole
