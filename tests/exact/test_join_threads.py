"""Joins on several threads: the same blocks in the same order as on one, and an end to all that was begun."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.exact.join import form, listed, parts, shared, threads
from nile.exact.join.chain import encode_all, window_codes
from nile.exact.join.count import count_whole
from nile.exact.join.listed import Lists
from nile.exact.join.shared import in_all, kept_of, text_codes
from nile.exact.join.threads import Ahead, cpu_ns, of_each, pieces_of, together, useful

Array = np.ndarray[Any, Any]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Threads, slices and parts for inputs of a few tuples."""
    monkeypatch.setattr(threads, "_LEAST", 1)
    monkeypatch.setattr(shared, "_TEXTS", 1)
    monkeypatch.setattr(listed, "SIZE", 8)
    monkeypatch.setattr(form, "LONG", 16)
    return monkeypatch


def _streams(rng: np.random.Generator) -> tuple[tuple[Array, ...], tuple[Array, ...], int]:
    n, m = (int(rng.integers(0, rng.choice([9, 90]))) for _ in range(2))
    ts = tuple(np.sort(rng.integers(0, int(rng.integers(1, 60)), k)) for k in (n, m))
    codes = tuple(rng.integers(-1, int(rng.integers(1, 12)), k) for k in (n, m))
    return ts, codes, int(rng.integers(1, 25))


def _ended() -> bool:
    return not any(thread.name == "nile join" for thread in threading.enumerate())


@pytest.mark.parametrize("many", [0, 1 << 22], ids=["slice by slice", "stretch by stretch"])
@pytest.mark.parametrize("seed", range(30))
def test_any_number_of_threads_finds_the_same_blocks(seed: int, many: int, small: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    small.setattr(listed, "_AT_ONCE", many)
    small.setattr(listed, "_SLICE", int(rng.integers(1, 40)))
    small.setattr(listed, "_ROOM", 64 * int(rng.integers(1, 9)))
    ts, codes, window = _streams(rng)
    for reach in (window, -1):
        alone = [block.tolist() for block in Lists(ts, codes, reach, threads=1).pairs()]
        for count in (2, 3, 4, 7):
            assert [block.tolist() for block in Lists(ts, codes, reach, threads=count).pairs()] == alone
    pairs = sum(len(block) for block in Lists(ts, codes, window, threads=1).pairs())
    assert [count_whole(ts, codes, window, threads=count) for count in (1, 2, 5)] == [pairs] * 3
    assert _ended()


@pytest.mark.parametrize("shared_only", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_texts_have_the_codes_of_an_encoding(seed: int, shared_only: bool, small: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    small.setattr(shared, "_SAMPLED", 2)
    stems = ["", "a", "12345678", "123456789", "a name that is longer than two words of it, ", "\0", "\0\0"]
    names = [stem + tail for stem in stems for tail in ("", "x", "yy", " and its end as other ends are")]
    kind = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()][seed % 4]
    columns = []
    for _ in range(2 + seed % 2):
        drawn = [
            names[k] if k < len(names) else None for k in rng.integers(0, len(names) + 2, int(rng.integers(0, 60)))
        ]
        columns.append(pa.array([None, "cut off", *drawn], pa.string()).cast(kind).slice(2))
    together_ = pa.chunked_array(columns).combine_chunks().dictionary_encode()
    ends = np.cumsum([len(column) for column in columns])[:-1]
    expected = np.split(together_.indices.fill_null(-1).to_numpy(zero_copy_only=False), ends)
    for count in (1, 3):
        found = text_codes(columns, shared=shared_only, threads=count)
        assert found is not None
        if not shared_only:
            assert [each.tolist() for each in found[0]] == [each.tolist() for each in expected]
            assert found[1] == max(1, len(together_.dictionary))
            continue
        everywhere = set.intersection(*(set(column.drop_null().to_pylist()) for column in columns))
        for column, codes in zip(columns, found[0], strict=True):
            assert all(code >= 0 for text, code in zip(column.to_pylist(), codes, strict=True) if text in everywhere)
        told = [
            pair
            for column, codes in zip(columns, found[0], strict=True)
            for pair in zip(column.to_pylist(), codes.tolist(), strict=True)
        ]
        coded = {(text, code) for text, code in told if code >= 0}
        assert len(coded) == len({text for text, _ in coded}) == len({code for _, code in coded})
        assert all(code < 0 for text, code in told if text is None)


@pytest.mark.parametrize("above", [60, 1 << 62], ids=["near", "far"])
@pytest.mark.parametrize("seed", range(6))
def test_any_number_of_threads_keeps_the_tuples_whose_keys_all_have(
    seed: int, above: int, small: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    small.setattr(shared, "_SAMPLED", 2)
    factor = above // 60
    codes = [rng.integers(-1, 60, int(rng.integers(20, 200))) for _ in range(2 + seed % 2)]
    codes = [np.where((each < 0) | (each % 3 == k), each, each // 9 * 3) * factor for k, each in enumerate(codes)]
    alone = in_all(codes, above, 10.0)
    assert alone is not None
    everywhere = set.intersection(*(set(each[each >= 0].tolist()) for each in codes))
    for each, places in zip(codes, alone, strict=True):
        assert set(np.flatnonzero(np.isin(each, list(everywhere))).tolist()) <= set(places.tolist())
        assert (each[places] >= 0).all()
    for count in (2, 3, 7):
        found = in_all(codes, above, 10.0, threads=count)
        assert found is not None
        assert [each.tolist() for each in found] == [each.tolist() for each in alone]
        small.setattr(shared, "_NEAR", 3)
        (kept, most), (same, also) = (kept_of(codes, alone, above, many) for many in (1, count))
        assert most == also
        assert [each.tolist() for each in kept] == [each.tolist() for each in same]


def test_what_is_made_of_each_comes_in_their_order(small: pytest.MonkeyPatch) -> None:
    assert small
    for many in (1, 2, 4):
        assert of_each(sum, [[1, 2], [], [5]], 3, many) == [3, 0, 5]
    with pytest.raises(ZeroDivisionError):
        of_each(lambda one: 1 // one, [1, 0, 2], 3, 2)


def test_texts_whose_hashes_are_alike_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "FACTORS", np.zeros(3, np.uint64))
    columns = [pa.array(["tea", "cup", None, "tea"]), pa.array(["cup", "pot"])]
    assert text_codes(columns) is None
    assert [each.tolist() for each in encode_all(columns)[0]] == [[0, 1, -1, 0], [1, 2]]
    assert [each.tolist() for each in window_codes(columns, shared=True)] == [[0, 1, -1, 0], [1, 2]]


def test_pieces_are_all_of_it_and_threads_no_more_than_are_worth_it() -> None:
    assert [(at.start, at.stop) for at in pieces_of(10, 3)] == [(0, 3), (3, 6), (6, 10)]
    assert [(at.start, at.stop) for at in pieces_of(0, 1)] == [(0, 0)]
    assert useful(8, 100) == 1
    assert useful(3, 1 << 30) == 3
    assert 1 <= useful(None, 1 << 30) <= 4


def test_what_a_thread_raises_comes_out_once_all_have_ended() -> None:
    def refuse() -> None:
        raise ValueError("no")

    done: list[int] = []
    with pytest.raises(ValueError, match="no"):
        together([lambda: done.append(1), refuse, lambda: done.append(2)])
    assert sorted(done) == [1, 2]

    def items() -> Any:
        yield 1
        refuse()

    ahead = Ahead(items(), 1)
    Ahead.start([ahead])
    assert ahead.next() == 1
    with pytest.raises(ValueError, match="no"):
        ahead.next()
    Ahead.stop([ahead, Ahead(items(), 1)])
    assert _ended()


def test_what_is_abandoned_ends_its_threads(small: pytest.MonkeyPatch) -> None:
    small.setattr(listed, "_AT_ONCE", 0)
    small.setattr(listed, "_SLICE", 4)
    small.setattr(listed, "_AHEAD", 1)
    ts, codes = (np.arange(400), np.arange(400)), (np.zeros(400, np.int64), np.zeros(400, np.int64))
    found = Lists(ts, codes, 5, threads=3).pairs()
    assert next(found).shape[0] > 0
    until = time.monotonic() + 10.0
    while _ended() and time.monotonic() < until:
        time.sleep(0.001)
    assert not _ended()
    found.close()  # type: ignore[attr-defined]
    assert _ended()


@pytest.mark.parametrize("after", [1, 3, 9])
def test_an_interrupt_comes_out_as_it_is_and_ends_all_threads(after: int, small: pytest.MonkeyPatch) -> None:
    small.setattr(listed, "_AT_ONCE", 0)
    small.setattr(listed, "_SLICE", 4)
    ts, codes = (np.arange(400), np.arange(400)), (np.zeros(400, np.int64), np.zeros(400, np.int64))
    calls = 0

    def make(block: Array) -> int:
        nonlocal calls
        calls += 1
        if calls == after:
            signal.raise_signal(signal.SIGINT)
        return int(block.shape[0])

    with pytest.raises(KeyboardInterrupt):
        for _ in Lists(ts, codes, 5, threads=3).made(make):
            pass
    assert _ended()
    assert sum(block.shape[0] for block in Lists(ts, codes, 5, threads=3).pairs()) == 11 * 400 - 30


QUERY = "SELECT a.v AS v, b.v AS w FROM a, b WHERE a.k = b.k WINDOW '40 ns'"


@pytest.mark.parametrize("keys", ["near", "far", "text"])
def test_a_database_writes_the_same_bytes_on_any_number_of_threads(
    keys: str, small: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small.setattr(parts, "SIZE", 100)
    small.setattr(form, "SHORT", 200)  # chains in parts on a machine of several cores, else lists in slices
    rng = np.random.default_rng(7)
    tables = {}
    for name in "ab":
        k = rng.integers(0, 30, 1_500)
        column = {"near": k, "far": k << 50, "text": np.array([f"key {one}" for one in k])}[keys]
        ts = pa.array(np.sort(rng.integers(0, 3_000, 1_500)), pa.timestamp("ns"))
        tables[name] = pa.table({"ts": ts, "k": column, "v": rng.random(1_500)})
    told = []
    for count in (1, 2, 3):
        with nile.connect(threads=count) as db:
            for name, table in tables.items():
                db.register(name, table, time="ts")
            path = tmp_path / f"{count}.parquet"
            db.sql(QUERY).write_parquet(path)
            joined = db.join("a", "b", on="k", window="40 ns")
            found = joined.run()
            told.append((path.read_bytes(), db.sql(QUERY).to_arrow(), found.to_arrow(), found.estimate.value))
    assert told[0] == told[1] == told[2]
    assert [each.num_chunks for each in told[0][1].columns] == [each.num_chunks for each in told[1][1].columns]


@pytest.mark.parametrize("count", [0, -1, True, 2.0, "2"])
def test_threads_are_a_whole_number(count: Any) -> None:
    with pytest.raises(nile.ConfigError, match="threads: needed a whole number of at least 1"):
        nile.connect(threads=count)


def _burn(ms: int) -> None:
    until = time.thread_time_ns() + ms * 1_000_000
    while time.thread_time_ns() < until:
        pass


def test_what_threads_spend_for_another_is_counted_on_that_one_once() -> None:
    began = cpu_ns()
    together([lambda: _burn(5), lambda: _burn(20), lambda: together([lambda: _burn(5), lambda: _burn(15)])])
    spent = (cpu_ns() - began) / 1e6
    assert 45 <= spent < 90

    def pieces() -> Iterator[int]:
        for piece in range(3):
            _burn(10)
            yield piece

    ahead = [Ahead(pieces(), 8)]
    began = cpu_ns()
    try:
        Ahead.start(ahead)
        assert [ahead[0].next() for _ in range(3)] == [0, 1, 2]
        assert 28 <= (cpu_ns() - began) / 1e6 < 60
    finally:
        Ahead.stop(ahead)
    ended = cpu_ns() - began
    assert 30 <= ended / 1e6 < 60
    with pytest.raises(ValueError, match="one that fails"):
        together([lambda: None, lambda: _fails()])
    assert (cpu_ns() - began - ended) / 1e6 < 10
    assert _ended()


def test_a_thread_on_which_the_collector_ends_its_own_join_ends_too() -> None:
    ahead: list[Ahead[int]] = []
    raised: list[BaseException] = []

    def pieces() -> Iterator[int]:
        yield 1
        try:
            Ahead.stop(ahead)
        except BaseException as error:
            raised.append(error)
        yield 2

    ahead.append(Ahead(pieces(), 8))
    Ahead.start(ahead)
    assert ahead[0].next() == 1
    ahead[0]._task.wait()
    assert raised == []
    assert _ended()


def _fails() -> None:
    raise ValueError("one that fails")


def _threads() -> set[int | None]:
    return {thread.ident for thread in threading.enumerate() if thread.name.startswith("nile join")}


def test_threads_stay_for_the_next_work() -> None:
    started = threading.Barrier(3)
    together([lambda: (started.wait(10), None)[1]] * 3)
    stayed = _threads()
    assert len(stayed) >= 2
    for _ in range(20):
        together([lambda: None, lambda: None, lambda: together([lambda: None])])
    assert _threads() == stayed
    # As many at once as are asked for, of which some stay.
    started = threading.Barrier(9)
    together([lambda: (started.wait(10), None)[1]] * 9)
    assert _ended()


def test_work_that_is_ended_before_it_begins_is_not_done() -> None:
    done: list[int] = []
    ahead: list[Ahead[int | None]] = [Ahead(iter([1, 2]), 8), Ahead(map(done.append, [1]), 8)]
    Ahead.start(ahead[:1])
    assert ahead[0].next() == 1
    Ahead.stop(ahead)
    Ahead.stop(ahead)
    assert done == []
    assert _ended()


def test_a_forked_process_has_threads_of_its_own() -> None:
    program = (
        "import os\n"
        "from nile.exact.join.threads import together\n"
        "done = []\n"
        "together([lambda: done.append(1), lambda: done.append(2)])\n"
        "child = os.fork()\n"
        "together([lambda: done.append(3), lambda: done.append(4)])\n"
        "if child:\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "os._exit(0 if sorted(done) == [1, 2, 3, 4] else 1)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


def test_columns_are_taken_where_they_are_asked_for_at_last(small: pytest.MonkeyPatch) -> None:
    small.setattr(listed, "_ROOM", 128)
    rng = np.random.default_rng(3)
    with nile.connect(threads=2) as db:
        for name in "ab":
            ts = pa.array(np.sort(rng.integers(0, 900, 400)), pa.timestamp("ns"))
            db.register(name, pa.table({"ts": ts, "k": rng.integers(0, 9, 400)}), time="ts")
        query = db.join("a", "b", on="k", window="40 ns")
        whole = query.run().to_arrow()
        answer = query.run()
        first = next(answer.outputs())
        assert answer.to_arrow() == whole == answer.to_arrow()
        assert first.left.tolist() == whole["left_ordinal"][: len(first)].to_pylist()
        assert answer.pairs().right.tolist() == whole["right_ordinal"].to_pylist()
        few = query.limit(5).run()
        assert few.to_arrow() == whole.slice(0, 5)
        assert next(few.outputs()).right.tolist() == whole["right_ordinal"][:5].to_pylist()
