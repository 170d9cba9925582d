"""A history that goes to disk and comes back answers like the rows themselves, whatever was done in between."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_history import SCHEMA, check, cut, made

from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.history.cold_index import ColdIndex
from nile.pyramid.history.history import History
from nile.summaries.errors import ConfigError, StoreCorrupt


def committed(history: History, directory: StoreDirectory) -> None:
    """Stage and commit, as an engine does."""
    state, files = history.stage(directory)
    directory.commit({"history": state}, files)


def reopened(path: Path, memory: int | None = None) -> tuple[History, StoreDirectory]:
    """The history of a store."""
    directory = StoreDirectory.open(path)
    state = json.loads(json.dumps(dict(directory.state)))["history"]
    return History.restore("s", SCHEMA, state=state, directory=directory, memory=memory), directory


@settings(max_examples=10)
@given(st.integers(0, 2**32), st.sampled_from([None, 1, 40_000, 400_000]))
def test_any_way_of_appending_settling_staging_and_restoring_keeps_the_rows(
    tmp_path_factory: pytest.TempPathFactory, seed: int, memory: int | None
) -> None:
    chance = np.random.default_rng(seed)
    path = tmp_path_factory.mktemp("store")
    n = int(chance.integers(1, 4_000))
    ts, batch = made(n, seed)
    directory = StoreDirectory.open(path)
    history = History("s", SCHEMA, directory=directory, indexed=["key"], memory=memory, segment=256, largest=2048)
    done = 0
    for times, piece in cut(chance, ts, batch):
        history.append(times, piece)
        done += len(piece)
        for action in chance.choice(["settle", "commit", "restart", "index", "look", "archive", "none"], 2):
            if action == "settle":
                history.settle()
            elif action == "commit":
                committed(history, directory)
            elif action == "restart":
                committed(history, directory)
                directory.close()
                history, directory = reopened(path, memory)
            elif action == "index":
                history.index(str(chance.choice(["number", "price"])))
            elif action == "archive":
                history.archive(int(chance.integers(0, ts[-1] + 2)))
            elif action == "look" and done > 600:
                check_some(history, ts[:done], batch.slice(0, done), chance)
    if "key" in history.indexed and memory == 1:
        history.archive(int(ts[n // 2]))
    held = {column: history.indices(column) for column in history.indexed}
    history.settle()
    if memory == 1:
        assert {entry["tier"] for entry in history.info() if entry["tuples"] >= 256} <= {"warm", "cold"}
    committed(history, directory)
    check(history, ts, pa.Table.from_batches([batch]), seed)
    directory.close()
    again, directory = reopened(path, memory)
    check(again, ts, pa.Table.from_batches([batch]), seed)
    committed(again, directory)
    committed(again, directory)
    for column, indices in held.items():  # what was asked for before stays readable, its files being gone
        assert sum(int(index.cell_tuples().sum()) for index in indices) == n - batch.column(column).null_count
        for index in indices:
            assert index.ordinals(0, index.keyed).shape[0] == index.keyed
    directory.close()


def check_some(history: History, ts: np.ndarray, batch: pa.RecordBatch, chance: np.random.Generator) -> None:
    """A look in between, which builds what a query would build."""
    some = chance.integers(0, len(batch), 20)
    assert history.ts(some).tolist() == ts[some].tolist()
    assert history.take(some, ["key"])["key"].to_pylist() == batch.column("key").take(pa.array(some)).to_pylist()
    assert sum(index.tuples for index in history.indices("key")) == len(batch)


def test_tiers_have_one_behaviour(tmp_path: Path) -> None:
    """Hot, warm and cold indices of the same rows: same cells, bounds, estimates and look-ups."""
    ts, batch = made(20_000, 5, keys=3_000)
    hot = History("s", SCHEMA, indexed=["key"], segment=4096, largest=16384)
    warm = History("s", SCHEMA, directory=StoreDirectory.open(tmp_path / "a"), indexed=["key"], memory=1, segment=4096,
                   largest=16384)  # fmt: skip
    cold = History("s", SCHEMA, directory=StoreDirectory.open(tmp_path / "c"), indexed=["key"], segment=4096,
                   largest=16384)  # fmt: skip
    for history in (hot, warm, cold):
        history.append(ts, batch)
        history.settle()
    assert cold.archive(int(ts[-1]) + 1) == 16384
    asked = np.unique(hot.hashes("key"))
    asked = np.concatenate([asked, asked + np.uint64(1), np.array([0, 2**64 - 1], np.uint64)])
    assert [index.tuples for index in hot.indices("key")] == [16384, 3616]
    pairs = [(a, b) for other in (warm, cold) for a, b in zip(hot.indices("key"), other.indices("key"), strict=True)]
    assert [(a.tier, b.tier) for a, b in pairs] == [("hot", "warm"), ("hot", "hot"), ("hot", "cold"), ("hot", "hot")]
    for a, b in pairs:
        for field in ("first", "since", "until", "buckets", "keys", "keyed"):
            assert getattr(a, field) == getattr(b, field)
        assert a.buckets > 1 or a.tuples < 4096
        assert (a.cell_tuples() == b.cell_tuples()).all()
        assert a.summary.page() == b.summary.page()
        for mine, theirs in zip(a.bounds(asked), b.bounds(asked), strict=True):
            assert (mine == theirs).all()
        found, same = a.look_up(asked), b.look_up(asked)
        assert (found.entries == same.entries).all()
        there = found.entries > 0
        assert b.look_up(asked[:0]).entry.shape == (0,)
        for field in ("entry", "begin", "end"):
            assert (getattr(found, field)[there] == getattr(same, field)[there]).all()
        assert (found.end[~there] == found.begin[~there]).all()
        assert (same.end[~there] == same.begin[~there]).all()
        entries = np.random.default_rng(1).integers(0, a.keys, 500)
        assert a.values(entries).equals(b.values(entries))
        assert (a.ordinals(0, a.keyed) == b.ordinals(0, b.keyed)).all()
        for bucket in range(a.buckets):
            x, y = a.cell(bucket), b.cell(bucket)
            assert (x.hashes == y.hashes).all()
            assert (x.starts == y.starts).all()
            assert (x.positions == y.positions).all()
            assert x.values.equals(y.values)
        whole, half = (index.part(0, 1, 1) for index in (a, b))
        assert (whole.rows() == half.rows()).all()
        assert whole.values().equals(half.values())
    check(cold, ts, pa.Table.from_batches([batch]))
    assert warm.memory < hot.memory


def test_staging_writes_only_what_is_new(tmp_path: Path) -> None:
    ts, batch = made(9_000, 6)
    directory = StoreDirectory.open(tmp_path / "s")
    history = History("s", SCHEMA, directory=directory, indexed=["key"], segment=2048)
    history.append(ts[:8_000], batch.slice(0, 8_000))
    committed(history, directory)
    before = set(directory.files())
    committed(history, directory)
    assert set(directory.files()) == before
    history.append(ts[8_000:8_100], batch.slice(8_000, 100))
    committed(history, directory)
    new = set(directory.files()) - before
    assert len(new) == 1
    assert directory.files()[new.pop()].length < 12_000


def test_the_lake_has_days_of_rows_clustered_by_key(tmp_path: Path) -> None:
    day = 86_400 * 10**9
    n = 6_000
    ts, batch = made(n, 11)
    ts = np.linspace(1_323_000_000 * 10**9, 1_323_000_000 * 10**9 + 3 * day, n).astype(np.int64)
    path = tmp_path / "s"
    directory = StoreDirectory.open(path)
    history = History("Läden 1/2", SCHEMA, directory=directory, indexed=["key", "number"], segment=1024)
    history.append(ts, batch)
    history.settle()
    committed(history, directory)
    before = {index.tuples for index in history.indices("number")}
    assert history.archive(int(ts[-1])) == 5 * 1024
    committed(history, directory)
    assert {index.tier for index in history.indices("number")} == {"hot"}
    assert {index.tuples for index in history.indices("number")} == before
    folders = sorted(folder.name for folder in (path / "lake").glob("*/*"))
    assert folders == ["day=2011-12-04", "day=2011-12-05", "day=2011-12-06", "day=2011-12-07"]
    files = sorted((path / "lake").glob("*/*/*.parquet"))
    rows = pa.concat_tables([pq.read_table(file, partitioning=None) for file in files])
    assert sorted(rows["_ordinal"].to_pylist()) == list(range(5 * 1024))
    assert (
        rows.sort_by("_ordinal")
        .select(SCHEMA.names)
        .column("key")
        .equals(pa.chunked_array([batch.column("key").slice(0, 5 * 1024)]))
    )
    check(history, ts, pa.Table.from_batches([batch]))
    at = history.indices("key")[0]
    assert isinstance(at, ColdIndex)
    at.release()
    read, size = at.bytes_read, sum(file.stat().st_size for file in files)
    at.cell(0)
    assert 0 < at.bytes_read - read < size / 2
    with pytest.raises(ConfigError, match="needed a directory"):
        History("s", SCHEMA, indexed=["key"]).archive(0)
    with pytest.raises(ConfigError, match="an indexed column"):
        History("s", SCHEMA, directory=directory).archive(0)


def test_local_bytes_stay_within_their_limit(tmp_path: Path) -> None:
    ts, batch = made(9_000, 12)
    directory = StoreDirectory.open(tmp_path / "s")
    history = History("s", SCHEMA, directory=directory, indexed=["key"], memory=1, local=60_000, segment=512,
                      largest=2048)  # fmt: skip
    for at in range(0, 9_000, 500):
        history.append(ts[at : at + 500], batch.slice(at, 500))
        history.settle()
        local = sum(entry["stored"] for entry in history.info() if entry["tier"] == "warm")
        assert local <= 60_000
    assert {entry["tier"] for entry in history.info()} == {"hot", "warm", "cold"}
    check(history, ts, pa.Table.from_batches([batch]))


def test_many_small_checkpoints_leave_few_files(tmp_path: Path) -> None:
    ts, batch = made(6_000, 7)
    directory = StoreDirectory.open(tmp_path / "s")
    history = History("s", SCHEMA, directory=directory, indexed=["key"], segment=512, memory=100_000)
    sizes = np.random.default_rng(0).choice([1, 7, 40, 200], 300)
    at = 0
    for size in sizes.tolist():
        history.append(ts[at : at + size], batch.slice(at, size))
        at = min(at + size, 6_000)
        history.settle()
        committed(history, directory)
        if at == 6_000:
            break
    assert len(directory.files()) < 24
    check(history, ts[:at], pa.Table.from_batches([batch.slice(0, at)]))


def test_a_flip_or_a_cut_anywhere_is_found_before_it_is_used(tmp_path: Path) -> None:
    """Every page is read: a changed byte is either padding, which nobody uses, or refused with the file's name."""
    ts, batch = made(3_000, 8)
    path = tmp_path / "s"
    directory = StoreDirectory.open(path)
    history = History("s", SCHEMA, directory=directory, indexed=["key"], memory=1, segment=1024)
    history.append(ts, batch)
    history.settle()
    committed(history, directory)
    names = sorted(directory.files())
    directory.close()
    chance = np.random.default_rng(9)
    refused = 0
    for name in names:
        file = path / name
        good = file.read_bytes()
        for at in chance.integers(0, len(good), 60).tolist():
            bad = bytearray(good)
            bad[at] ^= 1 << int(chance.integers(0, 8))
            file.write_bytes(bad)
            refused += read_all(path, ts, batch, name)
        for length in [*chance.integers(0, len(good), 10).tolist(), len(good) - 1]:
            file.write_bytes(good[:length])
            with pytest.raises(StoreCorrupt):
                reopened(path)
        file.write_bytes(good)
    assert refused > 0.9 * 60 * len(names)
    assert read_all(path, ts, batch, "") == 0


def read_all(path: Path, ts: np.ndarray, batch: pa.RecordBatch, name: str) -> int:
    """Read all of a store: 1 when it refuses, naming the file; else all has to be right."""
    directory = None
    try:
        history, directory = reopened(path)
        for index in history.indices("key"):
            index.bounds(np.zeros(1, np.uint64))
        check(history, ts, pa.Table.from_batches([batch]))
    except StoreCorrupt as error:
        return int(name in str(error) and "nile store" in str(error))
    finally:
        if directory is not None:
            directory.close()
    return 0


def test_a_store_needs_its_own_directory(tmp_path: Path) -> None:
    history = History("s", SCHEMA)
    with pytest.raises(ConfigError, match="needed the directory"):
        history.stage()
    with StoreDirectory.open(tmp_path / "a") as one, StoreDirectory.open(tmp_path / "b") as other:
        history.stage(one)
        with pytest.raises(ConfigError, match="another"):
            history.stage(other)
        with pytest.raises(StoreCorrupt, match="needed its state"):
            History.restore("s", SCHEMA, state={}, directory=one)


def test_an_index_asked_for_late_is_made_within_the_memory_limit(tmp_path: Path) -> None:
    ts, batch = made(6_000, 13)
    directory = StoreDirectory.open(tmp_path / "s")
    history = History("s", SCHEMA, directory=directory, memory=1, segment=512, largest=2048)
    history.append(ts, batch)
    history.settle()
    history.index("key")
    assert [(index.tier, index.tuples) for index in history.indices("key")] == [
        ("warm", 2048), ("warm", 2048), ("warm", 512), ("warm", 512), ("warm", 512), ("hot", 368)]  # fmt: skip
    check(history, ts, pa.Table.from_batches([batch]))
