"""Times of Parquet files are read once while these are unchanged, and keys; columns are decoded one after the other."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from file_readings import readings

import nile
from nile.base import unchanged
from nile.base.room import within
from nile.base.unchanged import Kept, stamp_of
from nile.expressions.conditions import parse_condition
from nile.streams import manager
from nile.streams.files import parquet as streams_parquet
from nile.streams.files.parquet import ParquetSource
from nile.streams.manager import StreamManager, StreamSpec
from nile.summaries.errors import SourceError, TimestampOrderError

LONG_AGO = 1_500_000_000_123_456_789  # ns, when a file was changed that may be taken to stay as it is


def _table(n: int, kind: pa.DataType | None = None, factor: int = 1) -> pa.Table:
    kind = kind or pa.timestamp("ns")
    ts = pa.array(np.arange(n) * 1_000_000_000).view(pa.timestamp("ns")).cast(pa.timestamp(kind.unit)).view(kind)
    return pa.table({"ts": ts, "k": np.arange(n) % 7, "v": np.arange(n) * factor, "name": [f"n{k}" for k in range(n)]})


def _written(path: Path, table: pa.Table, changed: int = LONG_AGO, **how: Any) -> Path:
    parquet.write_table(table, path, **how)
    os.utime(path, ns=(changed, changed))
    return path


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are as old as they say: the system sets when they were changed in another sense, to now."""
    monkeypatch.setattr(unchanged, "_FINE", -1.0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    return readings(monkeypatch)


def _read(source: ParquetSource, key: str, carry: tuple[str, ...] = (), **spec: Any) -> tuple[list[Any], ...]:
    one = StreamManager(StreamSpec("s", source, "ts", key, carry=carry, **spec))
    batches = list(one.whole())
    carried = [batch.carried for batch in batches if batch.carried is not None]
    assert [batch.ordinal for batch in batches] == [sum(map(len, batches[:k])) for k in range(len(batches))]
    assert one.accounting.applied == sum(map(len, batches)) == one.accounting.tuples_in
    return (
        [int(ts) for batch in batches for ts in batch.ts],
        [cell for batch in batches for cell in batch.key.to_pylist()],
        [row for batch in carried for row in batch.to_pylist()],
    )


KINDS = [pa.timestamp("ns"), pa.timestamp("us"), pa.timestamp("ms", "Europe/Oslo"), pa.timestamp("s")]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    ("key", "carry"), [("k", ()), ("k", ("v", "name")), ("ts", ("v",)), ("ts", ()), ("k", ("ts",))]
)
def test_the_second_reading_gives_what_the_first_gave_without_times_and_keys(
    kind: pa.DataType, key: str, carry: tuple[str, ...], tmp_path: Path, asked: list[tuple[str, ...]]
) -> None:
    source = ParquetSource(_written(tmp_path / "s.parquet", _table(1_000, kind), row_group_size=300))
    first = _read(source, key, carry)
    assert "ts" in asked.pop()
    assert _read(source, key, carry) == first
    assert [set(each) for each in asked] == ([set(carry)] if carry else [])
    assert first[0] == [k * 1_000_000_000 for k in range(1_000)]


def test_pieces_that_are_less_than_the_file_have_their_own_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "_LONG", 10)
    source = ParquetSource(_written(tmp_path / "s.parquet", _table(1_000), row_group_size=100))
    whole = [StreamManager(StreamSpec("s", source, "ts", "k", carry=("v",))).whole(150) for _ in range(2)]
    first, second = ([(b.ts.tolist(), b.key.to_pylist(), b.carried.to_pylist()) for b in each] for each in whole)
    assert len(first) == len(second) == 7
    assert first == second
    assert [row for *_, rows in first for row in rows] == [{"v": k} for k in range(1_000)]


def test_a_directory_is_as_its_parts_are(tmp_path: Path, asked: list[tuple[str, ...]]) -> None:
    table = _table(1_000)
    for part, begin in enumerate((0, 300, 300, 900)):
        end = (300, 300, 900, 1_000)[part]
        _written(tmp_path / f"part-{part:05}.parquet", table.slice(begin, end - begin))
    (tmp_path / "_SUCCESS").touch()
    source = ParquetSource(tmp_path)
    first = _read(source, "v", ("name",))
    assert _read(source, "v", ("name",)) == first
    assert first[1] == list(range(1_000))
    assert ["ts" in columns for columns in asked] == [True, False]
    _written(tmp_path / "part-00002.parquet", table.slice(300, 600), LONG_AGO + 1)
    assert _read(source, "v", ("name",)) == first
    assert "ts" in asked[-1]


@pytest.mark.parametrize("spec", [{"lateness": 0}, {"where": parse_condition("v >= 0", where="t")}])
def test_streams_that_are_selected_or_repaired_read_their_times(
    spec: dict[str, Any], tmp_path: Path, asked: list[tuple[str, ...]]
) -> None:
    source = ParquetSource(_written(tmp_path / "s.parquet", _table(100)))
    assert _read(source, "k", ("v",)) == _read(source, "k", ("v",))
    assert _read(source, "k", ("v",), **spec)[0] == _read(source, "k", ("v",))[0]
    assert ["ts" in columns for columns in asked] == [True, False, True, False]


def test_under_a_limit_of_memory_nothing_is_kept(tmp_path: Path, asked: list[tuple[str, ...]]) -> None:
    source = ParquetSource(_written(tmp_path / "s.parquet", _table(100)))
    with within(1 << 30):
        assert _read(source, "k") == _read(source, "k")
    assert all("ts" in columns for columns in asked)


def test_times_that_are_missing_are_counted_in_every_reading(tmp_path: Path) -> None:
    table = _table(100)
    table = table.set_column(0, "ts", pa.array([None, *table["ts"].to_pylist()[1:]], pa.timestamp("ns")))
    source = ParquetSource(_written(tmp_path / "s.parquet", table))
    for _ in range(2):
        one = StreamManager(StreamSpec("s", source, "ts", "k"))
        assert sum(map(len, one.whole())) == 99
        assert one.accounting.rejected == 1


def test_a_file_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    path = _written(tmp_path / "s.parquet", _table(100))
    source = ParquetSource(path)
    assert _read(source, "v")[1] == list(range(100))
    late = _table(100, factor=3)
    late = late.set_column(0, "ts", pa.array(np.arange(100) + 5).view(pa.timestamp("ns")))
    _written(path, late, LONG_AGO + 1)
    assert _read(source, "v")[:2] == (list(range(5, 105)), list(range(0, 300, 3)))
    _written(path, late.take(pa.array(range(99, -1, -1))), LONG_AGO + 2)
    with pytest.raises(TimestampOrderError):
        _read(source, "v")


def test_a_file_that_was_replaced_by_a_longer_one_has_all_of_its_times(tmp_path: Path) -> None:
    path = _written(tmp_path / "s.parquet", _table(100))
    source = ParquetSource(path)
    _written(path, _table(150), LONG_AGO + 1)
    first = _read(source, "ts")
    assert _read(source, "ts") == first
    assert len(first[0]) == len(first[1]) == 150


def test_a_file_that_changes_while_it_is_read_beside_its_times_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _written(tmp_path / "s.parquet", _table(100))
    source = ParquetSource(path)
    _read(source, "v")
    opened = streams_parquet._open

    def changing(*given: Any) -> Any:
        _written(path, _table(100, factor=2), LONG_AGO + 1)
        return opened(*given)

    monkeypatch.setattr(streams_parquet, "_open", changing)
    with pytest.raises(SourceError, match="changed while it was read"):
        _read(source, "v", ("k",))


def test_a_change_that_would_not_show_has_no_stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _written(tmp_path / "s", _table(1))
    assert stamp_of([path]) is not None
    monkeypatch.setattr(unchanged, "_FINE", 1_000.0)  # it has just been written
    assert stamp_of([path]) is None
    monkeypatch.setattr(unchanged, "_FINE", -1.0)
    os.utime(path, ns=(1_500_000_000_000_000_000,) * 2)  # whole seconds: three of them are waited for
    assert stamp_of([path]) is None
    monkeypatch.setattr(unchanged, "_COARSE", -1.0)
    assert stamp_of([path]) is not None
    assert stamp_of([path, tmp_path / "none"]) is None
    os.utime(path, ns=(time.time_ns() + 10**12,) * 2)  # by another clock
    assert stamp_of([path]) is None


def test_all_owners_together_keep_no_more_than_their_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "memory_bytes", lambda: 64 * 800)
    monkeypatch.setattr(Kept, "_all", type(Kept._all)())
    stamp, owners = ((1,),), [Kept() for _ in range(3)]
    for owner in owners[:2]:
        owner.put("ts", stamp, np.arange(50))
    assert [owner.get("ts", stamp) is not None for owner in owners] == [True, True, False]
    owners[2].put("ts", stamp, np.arange(20))
    assert [owner.get("ts", stamp) is not None for owner in owners] == [False, True, True]
    owners[2].put("at", stamp, np.arange(81))
    assert all(owner.get("ts", stamp) is None for owner in owners)
    assert owners[2].get("at", stamp) is not None
    owners[2].put("at", stamp, np.arange(101))
    assert owners[2].get("at", stamp) is None
    owners[1].put("ts", stamp, np.arange(3))
    assert owners[1].get("ts", ((2,),)) is None


@pytest.mark.parametrize("groups", [1, 7, 400, 1_000])
def test_columns_one_after_the_other_are_the_same_rows(
    groups: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table(1_000).append_column("in", pa.array([{"a": k, "b": str(k)} for k in range(1_000)]))
    table = table.append_column("in.a", pa.array(range(1_000)))
    empty = table.slice(0, 0)
    with parquet.ParquetWriter(tmp_path / "s.parquet", table.schema) as file:
        for begin in range(0, 1_000, groups):
            file.write_table(table.slice(begin, groups))
            file.write_table(empty)
    source = ParquetSource(tmp_path / "s.parquet")
    names = ["v", "name", "ts", "in"]

    def rows(most: int, threads: int) -> tuple[list[Any], list[int], int]:
        read = list(source.batches(names, most, threads))
        assert all(raw.batch.num_rows <= most for raw in read)
        told = [row for raw in read for row in raw.batch.to_pylist()]
        return told, [int(at) for raw in read for at in raw.rows], len(read)

    expected = table.select(names).to_pylist(), list(range(1, 1_001))
    for most in (1, 50, 999, 1_000, 5_000):
        assert rows(most, 1)[:2] == rows(most, 2)[:2] == expected
    assert rows(5_000, 1)[2] == 1
    monkeypatch.setattr(streams_parquet, "_MOST_TOGETHER", 1)
    assert rows(5_000, 1)[:2] == expected


def test_queries_are_answered_alike_from_kept_times(tmp_path: Path, asked: list[tuple[str, ...]]) -> None:
    for name, factor in (("a", 1), ("b", 3)):
        _written(tmp_path / f"{name}.parquet", _table(2_000, factor=factor))
    with nile.connect() as db:
        for name in "ab":
            db.register(name, tmp_path / f"{name}.parquet", time="ts")
        text = "SELECT a.v AS v, b.v AS w FROM a, b WHERE a.k = b.k WINDOW '20 s'"
        told = [(db.sql(text).to_arrow(), db.join("a", "b", on="k", window="20 s").run().estimate.value) for _ in "12"]
    assert told[0] == told[1]
    assert told[0][0].num_rows == told[0][1] > 1_000
    assert "ts" in asked[0]
    assert "ts" not in asked[-1]
