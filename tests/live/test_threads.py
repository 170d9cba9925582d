"""Histories and summaries that one thread fills while others read them, sources that several read: all see it whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.operators.history.desc import DescendingJoin
from nile.operators.history.join import HistorySide, Pairs
from nile.pyramid.disk import StoreDirectory
from nile.pyramid.history.cold_index import ColdIndex
from nile.pyramid.history.history import History
from nile.streams.source import Source, open_source
from nile.summaries.errors import SourceError
from nile.summaries.hashing import hash_keys

SCHEMA = pa.schema([("key", pa.int64()), ("other", pa.string())])
ROWS, BATCH, LARGER, SEGMENT = 50_000, 200, 1_000, 1_024


def rows() -> tuple[np.ndarray, np.ndarray]:
    """(times, keys): new keys all the time, so that tables of keys grow under their readers."""
    chance = np.random.default_rng(3)
    return np.arange(ROWS), np.where(chance.random(ROWS) < 0.5, np.arange(ROWS), chance.integers(0, 50, ROWS))


def fill(history: History) -> None:
    ts, keys = rows()
    for at in range(0, ROWS, BATCH):
        own = keys[at : at + BATCH]
        columns = [pa.array(own), pa.array(own % 7).cast(pa.string())]
        history.append(ts[at : at + BATCH], pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        if at % (20 * BATCH) == 0:
            history.settle()


@contextmanager
def beside(*work: Callable[[], object]) -> Iterator[threading.Event]:
    """Run in threads of their own while the block runs, and raise what they raise.  Yields: the first has ended."""
    ended, wrong = threading.Event(), []

    def run(one: Callable[[], object], first: bool) -> None:
        try:
            one()
        except BaseException as error:
            wrong.append(error)
        finally:
            if first:
                ended.set()

    threads = [threading.Thread(target=run, args=(one, at == 0)) for at, one in enumerate(work)]
    for thread in threads:
        thread.start()
    try:
        yield ended
    finally:
        for thread in threads:
            thread.join()
    if wrong:
        raise wrong[0]


def test_indices_are_of_one_moment_while_rows_come() -> None:
    _, keys = rows()
    history = History("h", SCHEMA, indexed=["key"], segment=SEGMENT, largest=16 * SEGMENT)
    looked = 0
    with beside(lambda: fill(history)) as ended:
        while not ended.is_set():
            before = history.tuples
            found = history.indices("key")
            after = history.tuples
            assert [index.first for index in found] == [0, *(index.end for index in found[:-1])][: len(found)]
            assert not found or before <= found[-1].end <= after
            for index in found[-1:]:
                ordinals = index.ordinals(0, index.keyed)
                assert sorted(ordinals.tolist()) == list(range(index.first, index.end))
                edges = np.flatnonzero(np.diff(keys[ordinals])).shape[0] + 1
                assert index.keys == edges == np.unique(keys[ordinals]).shape[0]
            looked += bool(found)
    assert looked > 10


def test_a_column_that_is_indexed_while_rows_come_misses_none_of_them() -> None:
    history = History("h", SCHEMA, indexed=["key"], segment=SEGMENT, largest=16 * SEGMENT)
    with beside(lambda: fill(history)) as ended:
        while history.tuples < ROWS // 4 and not ended.is_set():
            pass
        with beside(lambda: history.index("other"), lambda: history.index("other")):
            pass
    indices = history.indices("other")
    assert indices[-1].end == ROWS
    assert sum(index.keyed for index in indices) == ROWS


@pytest.mark.parametrize("local", [None, 150_000], ids=["warm", "cold"])
def test_joins_over_a_history_that_goes_to_files_are_those_of_their_moment(tmp_path: Path, local: int | None) -> None:
    _, keys = rows()
    asked = History("asked", SCHEMA, indexed=["key"])
    wanted = np.arange(40)
    asked.append(np.arange(40), pa.record_batch([pa.array(wanted), pa.array(["x"] * 40)], schema=SCHEMA))
    joined = 0
    with StoreDirectory.open(tmp_path / "shop") as directory:
        history = History("h", SCHEMA, directory=directory, indexed=["key"], memory=300_000, local=local,
                          segment=SEGMENT, largest=16 * SEGMENT)  # fmt: skip

        def join() -> None:
            nonlocal joined
            end = history.tuples
            join = DescendingJoin(HistorySide(asked, "key", 0, 40), HistorySide(history, "key", 0, end))
            pairs: list[tuple[int, int]] = []
            for out in join.steps():
                if isinstance(out, Pairs):
                    pairs += zip(out.left.tolist(), out.right.tolist(), strict=True)
                    assert (keys[history.take(out.right, ["key"])["key"].to_numpy()] >= 0).all()
            assert sorted(pairs) == [(int(k), int(i)) for k in wanted for i in np.flatnonzero(keys[:end] == k)]
            joined += 1

        def joins() -> None:
            while not ended.is_set():
                join()

        with beside(lambda: fill(history)) as ended, beside(joins, joins):
            pass
        join()
        if local is not None:
            assert any(isinstance(index, ColdIndex) for index in history.indices("key"))
    assert joined > 4


def test_a_database_is_asked_while_another_thread_pushes() -> None:
    _, keys = rows()
    with nile.connect() as db:
        for name in "ab":
            db.stream(name, [("at", pa.int64()), ("key", pa.int64())], time="at")

        def push() -> None:
            for at in range(0, ROWS, LARGER):
                for name in "ab":
                    db.push(name, {"at": np.arange(at, at + LARGER), "key": keys[at : at + LARGER]})

        asked = 0
        with beside(push) as ended:
            while not ended.is_set():
                for order in ("", "desc a.key", "asc a.key", "weighted a.key"):
                    before = db.accounting("b").applied
                    preference = f"WITH PREFERENCE {order}" if order else ""
                    text = f"SELECT a.at AS i, b.at AS j FROM a, b WHERE a.key = b.key AND a.key > 60 {preference}"
                    *_, last = db.sql(text).progress()
                    table = last.to_arrow()
                    assert table["i"].equals(table["j"])  # such a key comes once
                    found = np.sort(table["i"].to_numpy())
                    assert np.array_equal(found, np.flatnonzero(keys[: len(keys)] > 60)[: found.shape[0]])
                    assert not before or found[-1] >= before - LARGER
                    asked += 1
    assert asked


def test_a_summary_is_asked_while_another_thread_pushes() -> None:
    _, keys = rows()
    with nile.connect() as db:
        db.stream("a", [("at", pa.int64()), ("key", pa.int64())], time="at")
        db.sql("CREATE SUMMARY S ON a (key) WITH GRANULARITY '1000 s' AND COLLAPSE (4, 3)")
        summary = db.summary("S")
        wanted = np.arange(40)
        hashes = hash_keys(pa.array(wanted))

        def push() -> None:
            for at in range(0, ROWS, LARGER):
                db.push("a", {"at": np.arange(at, at + LARGER), "key": keys[at : at + LARGER]})

        def true(n: int) -> np.ndarray:
            return np.bincount(keys[:n][keys[:n] < 40], minlength=40)

        asked = 0
        with beside(push) as ended:
            while not ended.is_set():
                before = db.accounting("a").applied
                with summary.changing:
                    kept = summary.kept_from
                    zones, told = summary.zones(), summary.estimate(hashes)
                after = db.accounting("a").applied + LARGER
                assert before - kept <= sum(zone.end - zone.start for zone in zones) <= after - kept
                assert (told.high >= true(before) - true(kept)).all()
                summary.directory()
                asked += 1
    assert asked


WHOLE = pa.table({"at": np.arange(300), "key": np.arange(300) % 7})
BATCHES = WHOLE.to_batches(max_chunksize=50)


def read(source: Source, found: list[int], barrier: threading.Barrier) -> None:
    """Adds the number of rows read; -1 where the source refuses to be read again."""
    barrier.wait()
    try:
        found.append(sum(len(raw.batch) for raw in source.batches(["at"], 40)))
    except SourceError:
        found.append(-1)


def counts(source: Source) -> list[int]:
    found: list[int] = []
    barrier = threading.Barrier(4)
    with beside(*[lambda: read(source, found, barrier)] * 4):
        pass
    return sorted(found)


@pytest.mark.parametrize(
    "data",
    [WHOLE, WHOLE.to_pydict(), BATCHES, lambda: WHOLE, lambda: iter(BATCHES)],
    ids=["table", "dict", "batches", "function", "function of an iterator"],
)
def test_every_thread_reads_all_of_a_source(data: Any) -> None:
    for _ in range(200):
        assert counts(open_source(data, name="s")) == [300] * 4


@pytest.mark.parametrize("make", [WHOLE.to_reader, lambda: iter(BATCHES)], ids=["reader", "iterator"])
def test_what_can_be_read_once_is_read_by_one_thread(make: Callable[[], Any]) -> None:
    for _ in range(200):
        assert counts(open_source(make(), name="s")) == [-1, -1, -1, 300]
