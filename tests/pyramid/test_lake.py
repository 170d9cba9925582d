"""The lake's layout: what is written is read, by time and bucket; commits are all or nothing; flips are found."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from nile.pyramid.lake import lake as lake_module
from nile.pyramid.lake.lake import (
    BUCKET,
    DAY,
    ORDINAL,
    TS,
    LakeStream,
    Layout,
    directory_of,
    range_name,
    streams_of,
    write_part,
)
from nile.pyramid.lake.part import Part, PartFile, buckets_of, pack_parts, unpack_parts
from nile.summaries.errors import (
    ConfigError,
    EnvelopeError,
    KeyTypeError,
    SourceError,
    SourceMissing,
    StoreCorrupt,
    StoreLocked,
    StoreWriteError,
)
from nile.summaries.hashing import hash_keys

SCHEMA = pa.schema([("item", pa.string()), ("price", pa.float64()), ("a.b", pa.int32()), ("a", pa.timestamp("ns"))])


def rows(seed: int, size: int, days: int = 3) -> tuple[np.ndarray, pa.Table]:
    """ts in order and the columns of SCHEMA, with nulls and heavy keys."""
    source = random.Random(seed)
    ts = np.sort(np.array([source.randrange(-DAY, days * DAY) for _ in range(size)], np.int64))
    items = [None if source.random() < 0.05 else f"item {int(300 * source.random() ** 2)}" for _ in range(size)]
    table = pa.table(
        {
            "item": pa.array(items),
            "price": pa.array([source.choice((None, 1.5, -2.0)) for _ in range(size)], pa.float64()),
            "a.b": pa.array(range(size), pa.int32()),
            "a": pa.array(ts, pa.timestamp("ns")),
        },
        schema=SCHEMA,
    )
    return ts, table


def layout(**changes: Any) -> Layout:
    given = {"stream": "shop", "time": "a", "key": "item", "schema": SCHEMA, "group_rows": 100, **changes}
    return Layout(**given)


def append(stream: LakeStream, ts: np.ndarray, table: pa.Table, batch: str = "b") -> LakeStream:
    """Adds tuples in order as one commit, a file a time range."""
    with stream.writing() as now:
        ranges = ts // now.layout.range_ns
        staged = []
        for number, value in enumerate(np.unique(ranges)):
            at = np.flatnonzero(ranges == value)
            path = now.staging() / f"{number}.parquet"
            part = write_part(
                path,
                now.tuples + at,
                ts[at],
                table.take(pa.array(at)),
                now.layout.key,
                bits=now.layout.bits,
                group_rows=now.layout.group_rows,
            )
            staged.append((path, part))
        return now.commit(staged, {"id": batch})


def test_what_is_written_is_read_by_time_and_by_bucket(tmp_path: Path) -> None:
    ts, table = rows(1, 2_000)
    stream = append(LakeStream.create(tmp_path, layout()), ts, table)
    buckets = (hash_keys(table.column("item").combine_chunks()) >> np.uint64(52)).astype(np.int64)
    assert len(stream.parts) == 4
    for since, until, low, high in (
        (None, None, 0, None),
        (0, DAY - 1, 0, None),
        (None, None, 100, 900),
        (-5_000, 2 * DAY, 4000, 4095),
        (DAY, None, 7, 7),
        (9 * DAY, None, 0, None),
    ):
        want = (ts >= (-DAY if since is None else since)) & (ts <= (9 * DAY if until is None else until))
        want &= (buckets >= low) & (buckets <= (4095 if high is None else high))
        names = [ORDINAL, TS, BUCKET, *SCHEMA.names]
        found = list(stream.read(names, since=since, until=until, low=low, high=high))
        got = pa.concat_tables(found) if found else None
        expected = np.flatnonzero(want)
        if got is None or not len(expected):
            assert not len(expected)
            assert got is None or not len(got)
            continue
        assert sorted(got.column(ORDINAL).to_pylist()) == expected.tolist()
        at = pa.array(got.column(ORDINAL).to_numpy())
        assert got.select(SCHEMA.names).equals(table.take(at))
        assert got.column(TS).to_numpy().tolist() == ts[at].tolist()
        assert got.column(BUCKET).to_pylist() == buckets[at].tolist()


def test_a_file_is_clustered_by_bucket_then_order_whatever_order_its_rows_came_in(tmp_path: Path) -> None:
    ts, table = rows(2, 700, days=1)
    shuffled = np.random.default_rng(3).permutation(700)
    one = write_part(tmp_path / "one.parquet", np.arange(700) + 50, ts, table, "item", group_rows=64)
    other = write_part(
        tmp_path / "two.parquet", shuffled + 50, ts[shuffled], table.take(shuffled), "item", group_rows=64
    )
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    assert pack_parts([one.named("x")])[0] == pack_parts([other.named("x")])[0]
    got = PartFile(tmp_path / "one.parquet", one).read([BUCKET, ORDINAL])
    order = list(zip(got.column(BUCKET).to_pylist(), got.column(ORDINAL).to_pylist(), strict=True))
    assert order == sorted(order)
    assert (one.first, one.last, one.since, one.until) == (50, 749, ts[0], ts[-1])
    assert (one.low, one.high) == (order[0][0], order[-1][0])


def test_a_range_of_buckets_reads_only_its_row_groups(tmp_path: Path) -> None:
    ts, table = rows(4, 5_000)
    part = write_part(tmp_path / "p.parquet", np.arange(5_000), ts, table, "item", group_rows=100)
    file = PartFile(tmp_path / "p.parquet", part)
    bucket = int(buckets_of(pa.array(["item 7"]), 12)[0])
    groups = part.groups(bucket, bucket)
    assert 1 <= len(groups) <= 5
    assert 0 < file.bytes_of(groups, ["price"]) < file.bytes_of(range(50), ["price"]) < part.bytes
    # A flip outside of what is read is not looked at; it is found when it is.
    data = bytearray((tmp_path / "p.parquet").read_bytes())
    other = 0 if 0 not in groups else 49
    begin, _ = file._span(other)[4]
    data[begin + 3] ^= 16
    (tmp_path / "q.parquet").write_bytes(data)
    flipped = PartFile(tmp_path / "q.parquet", part)
    assert flipped.read(["price"], bucket, bucket).equals(file.read(["price"], bucket, bucket))
    with pytest.raises(StoreCorrupt, match=rf"q\.parquet: needed column 'price' of row group {other}"):
        flipped.read(["price"])


def test_columns_whose_names_are_prefixes_are_not_mixed_up(tmp_path: Path) -> None:
    ts, table = rows(5, 50)
    part = write_part(tmp_path / "p.parquet", np.arange(50), ts, table, "item")
    file = PartFile(tmp_path / "p.parquet", part)
    assert file.read(["a"]).schema.names == ["a"]
    assert sorted(file.read(["a.b"]).column("a.b").to_pylist()) == list(range(50))


def test_every_flip_and_every_cut_of_a_part_is_found(tmp_path: Path) -> None:
    ts, table = rows(6, 60)
    path = tmp_path / "p.parquet"
    part = write_part(path, np.arange(60), ts, table, "item", group_rows=30)
    data = path.read_bytes()
    source = random.Random(7)
    bad = tmp_path / "bad.parquet"
    for at in source.sample(range(4, len(data)), 300):
        flipped = bytearray(data)
        flipped[at] ^= 1 << source.randrange(8)
        bad.write_bytes(flipped)
        with pytest.raises(StoreCorrupt, match=r"bad\.parquet: needed .*; got .*; it changed since"):
            PartFile(bad, part).verify()
    for size in (0, 1, 8, len(data) // 2, len(data) - 1):
        bad.write_bytes(data[:size])
        with pytest.raises(StoreCorrupt):
            PartFile(bad, part)
    bad.unlink()
    with pytest.raises(StoreCorrupt, match="readable file"):
        PartFile(bad, part)


def test_parts_survive_their_packed_form(tmp_path: Path) -> None:
    parts = []
    for number in range(3):
        ts, table = rows(number, 90 * number + 5)
        path = tmp_path / f"{number}.parquet"
        parts.append(write_part(path, np.arange(len(ts)), ts, table, "item", group_rows=40))
    listed, arrays = pack_parts(parts)
    again = unpack_parts(listed, arrays)
    for one, other in zip(parts, again, strict=True):
        for name in Part.__dataclass_fields__:
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
    with pytest.raises(ValueError):
        unpack_parts([{**listed[0], "rows": 4}], arrays)


def test_appends_continue_the_ordinals_and_the_manifest_tells_all(tmp_path: Path) -> None:
    stream = LakeStream.create(tmp_path, layout(rules={"where": "x"}))
    assert (stream.tuples, stream.until, streams_of(tmp_path)) == (0, None, ["shop"])
    total = 0
    for batch in range(3):
        ts, table = rows(batch, 120)
        append(LakeStream.open(tmp_path, "shop"), ts + batch * 4 * DAY, table, f"b{batch}")
        total += 120
    stream = LakeStream.open(tmp_path, "shop")
    assert (stream.generation, stream.tuples) == (3, total)
    assert [batch["id"] for batch in stream.batches] == ["b0", "b1", "b2"]
    assert stream.layout.rules == {"where": "x"}
    assert stream.layout.schema.equals(SCHEMA)
    ordinals = sorted(n for table in stream.read([ORDINAL]) for n in table.column(0).to_pylist())
    assert ordinals == list(range(total))
    assert stream.verify(deep=True) == []
    told = duckdb.execute(
        f"SELECT count(*), count(DISTINCT _ordinal), max(day) FROM '{stream.path}/day=*/part-*.parquet'"
    )
    assert told.fetchall()[0][:2] == (total, total)


def test_a_newest_manifest_that_broke_gives_the_generation_before_and_says_so(tmp_path: Path) -> None:
    stream = append(LakeStream.create(tmp_path, layout()), *rows(1, 50))
    before = append(stream, rows(1, 50)[0] + 9 * DAY, rows(1, 50)[1])
    newest = stream.path / f"_manifest-{before.generation % 2}"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    fallen = LakeStream.open(tmp_path, "shop")
    assert (fallen.generation, fallen.tuples) == (1, 50)
    assert fallen.recovered is not None
    assert str(newest) in fallen.recovered
    again = append(fallen, rows(1, 50)[0] + 9 * DAY, rows(1, 50)[1])
    assert again.verify(deep=True) == []
    for name in ("_manifest-0", "_manifest-1"):
        (stream.path / name).write_bytes(b"no envelope")
    with pytest.raises(StoreCorrupt, match=r"_manifest-0.*_manifest-1"):
        LakeStream.open(tmp_path, "shop")


@pytest.mark.parametrize("broken", ["move", "manifest"])
def test_a_commit_that_fails_leaves_the_stream_as_it_was_and_the_next_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    stream = append(LakeStream.create(tmp_path, layout()), *rows(1, 50))
    ts, table = rows(2, 80)
    ts = ts + 9 * DAY
    calls = 0

    def fail(*_: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1 or broken == "manifest":
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        if broken == "move":
            move = lake_module._move
            patch.setattr(lake_module, "_move", lambda file, final: fail() or move(file, final))
        else:
            patch.setattr(os, "fsync", fail)
            patch.setattr(lake_module, "_sync_directory", lambda path: None)
            patch.setattr("nile.pyramid.lake.part._sync", lambda path: None)
        with pytest.raises(StoreWriteError, match="No space left on device; make room"):
            append(stream, ts, table)
    now = LakeStream.open(tmp_path, "shop")
    assert (now.generation, now.tuples) == (1, 50)
    with now.writing() as swept:
        on_disk = {str(p.relative_to(swept.path)) for p in swept.path.glob("day=*/*.parquet")}
        assert on_disk == {part.name for part in swept.parts}
    after = append(now, ts, table)
    assert after.tuples == 130
    assert after.verify(deep=True) == []


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    stream = LakeStream.create(tmp_path, layout())
    with stream.writing(), pytest.raises(StoreLocked, match="sole right to write the stream 'shop'"), stream.writing():
        pass
    with stream.writing() as again:
        assert again.generation == 0


def test_a_gap_or_a_repeat_in_the_ordinals_is_refused(tmp_path: Path) -> None:
    stream = LakeStream.create(tmp_path, layout())
    ts, table = rows(1, 50, days=0)
    with stream.writing() as now:
        for name, first in (("gap", 1), ("twice", 0)):
            path = now.staging() / name
            part = write_part(path, np.arange(50) + first, ts, table, "item")
            with pytest.raises(ConfigError, match=r"needed (tuple 0 next|50 tuples)"):
                now.commit([(path, part)] * (1 if name == "gap" else 2), {})
    assert LakeStream.open(tmp_path, "shop").tuples == 0


@pytest.mark.parametrize("name", ["a/b", "..", "_x", ".x", "é ü", "%41", "a=b", "-"])
def test_any_name_makes_a_directory_of_its_own_inside_the_lake(tmp_path: Path, name: str) -> None:
    path = directory_of(tmp_path / "lake", name)
    assert path.parent == tmp_path / "lake"
    assert not path.name.startswith((".", "_"))
    LakeStream.create(tmp_path / "lake", layout(stream=name))
    assert streams_of(tmp_path / "lake") == [name]
    assert LakeStream.open(tmp_path / "lake", name).layout.stream == name


def test_time_ranges_have_readable_names() -> None:
    assert range_name(0) == "day=1970-01-01"
    assert range_name(-1) == "day=1969-12-31"
    assert range_name(1_323_417_660 * 10**9, 3_600 * 10**9) == "from=2011-12-09T08-00-00"
    assert range_name(1_500, 1_000) == "from=1970-01-01T00-00-00.000001000"


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match="no such directory"):
        LakeStream.open(tmp_path / "gone", "shop")
    with pytest.raises(SourceMissing, match="the lake is empty"):
        LakeStream.open(tmp_path, "shop")
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="it is a file"):
        LakeStream.create(tmp_path / "file", layout())
    LakeStream.create(tmp_path, layout(bits=3))
    stream = append(LakeStream.create(tmp_path, layout()), *rows(0, 1))
    assert stream.layout.bits == 12
    with pytest.raises(ConfigError, match="there already"):
        LakeStream.create(tmp_path, layout())
    with pytest.raises(SourceMissing, match="it has 'shop'"):
        LakeStream.open(tmp_path, "store")
    for wrong in ({"stream": ""}, {"key": "itme"}, {"bits": 0}, {"bits": 17}, {"range_ns": 0}):
        with pytest.raises(ConfigError):
            layout(**wrong)
    ts, table = rows(1, 5)
    with pytest.raises(KeyTypeError, match=r"column 'tags'.*flatten"):
        write_part(tmp_path / "x", np.arange(5), ts, table.append_column("tags", pa.array([[1]] * 5)), "item")
    with pytest.raises(KeyError, match="no column 'prize'"):
        list(append(stream, ts + 9 * DAY, table).read(["prize"]))
    (stream.path / "_manifest-1").write_bytes((stream.path / "_manifest-1").read_bytes()[:-1])
    (stream.path / "_manifest-0").unlink()
    with pytest.raises((StoreCorrupt, EnvelopeError), match="cut short"):
        LakeStream.open(tmp_path, "shop")


def test_an_empty_batch_is_a_commit_too(tmp_path: Path) -> None:
    stream = LakeStream.create(tmp_path, layout())
    with stream.writing() as now:
        aside = now.staging() / "bad.parquet"
        aside.write_bytes(b"rows")
        now.commit([], {"id": "none"}, [(aside, 3)])
    opened = LakeStream.open(tmp_path, "shop")
    assert opened.batches == ({"id": "none", "aside": [{"name": "_aside/0-0.parquet", "rows": 3, "bytes": 4}]},)
    assert list(opened.read([ORDINAL])) == []
    assert opened.verify(deep=True) == []
    (opened.path / "_aside/0-0.parquet").unlink()
    assert len(opened.verify()) == 1
