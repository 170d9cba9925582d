"""Histories against a list of rows: the same answers in every tier, whatever was done in between."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nile.experiments.faults.places import at_place
from nile.pyramid.history.history import History
from nile.pyramid.history.hot_rows import Tail
from nile.pyramid.history.keys import HotIndex, KeyIndex, buckets_for
from nile.pyramid.lake.key_sketch import _MULTIPLIERS, LEVELS, IndexSketch, cells_for
from nile.pyramid.lake.key_sketch_kernels import level_codes
from nile.summaries.errors import ConfigError, KeyTypeError, TimestampOrderError, UnknownColumn
from nile.summaries.hashing import hash_keys

SCHEMA = pa.schema([("ts", pa.timestamp("ns")), ("key", pa.string()), ("number", pa.int64()), ("price", pa.float64())])


def made(n: int, seed: int, start: int = 0, keys: int = 40) -> tuple[np.ndarray, pa.RecordBatch]:
    """n rows in order: text keys with nulls, whole numbers, floats with NaN and both zeros."""
    chance = np.random.default_rng(seed)
    ts = start + np.cumsum(chance.integers(0, 5, n))
    ranks = chance.zipf(1.4, n) % keys
    key = pa.array([f"k{rank:03d}" for rank in ranks], mask=chance.random(n) < 0.05)
    price = np.where(chance.random(n) < 0.1, np.nan, np.round(chance.normal(0, 2, n)) * chance.choice([-1.0, 1.0], n))
    columns = [pa.array(ts, pa.timestamp("ns")), key, pa.array(chance.integers(-3, 4, n)), pa.array(price)]
    return ts, pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def cut(chance: np.random.Generator, ts: np.ndarray, batch: pa.RecordBatch) -> list[tuple[np.ndarray, pa.RecordBatch]]:
    """The same rows as batches cut anywhere."""
    at, pieces = 0, []
    while at < len(batch):
        n = int(chance.integers(1, max(2, len(batch) // 3)))
        pieces.append((ts[at : at + n], batch.slice(at, n)))
        at += n
    return pieces


def key_of(value: Any) -> Any:
    """Equal for equal keys: one NaN, one zero."""
    if isinstance(value, float):
        return "nan" if value != value else value + 0.0
    return value


def check_index(indices: list[KeyIndex], column: pa.Array) -> None:
    """Indices cover the rows once, and every cell, look-up and bound is that of the rows themselves."""
    hashes = hash_keys(column)
    values = [key_of(value) for value in column.to_pylist()]
    at = 0
    for index in indices:
        assert index.first == at
        at = index.end
        rows = range(index.first, index.end)
        exact = Counter(values[row] for row in rows if values[row] is not None)
        seen: list[int] = []
        cell_tuples = index.cell_tuples()
        assert cell_tuples.shape == (index.buckets,)
        for bucket in range(index.buckets):
            cell = index.cell(bucket)
            assert cell.starts[0] == 0
            assert cell_tuples[bucket] == cell.starts[-1] == cell.positions.shape[0]
            assert (cell.hashes[1:] >= cell.hashes[:-1]).all()
            assert (index.bucket_of(cell.hashes) == bucket).all()
            for e, value in enumerate(cell.values.to_pylist()):
                mine = cell.positions[cell.starts[e] : cell.starts[e + 1]]
                assert (np.diff(mine) > 0).all()
                assert {values[row] for row in mine} == {key_of(value)}
                assert (hashes[mine] == cell.hashes[e]).all()
                seen += mine.tolist()
        assert sorted(seen) == [row for row in rows if values[row] is not None]
        distinct = [value for value in dict.fromkeys(values) if value is not None]
        first = {value: row for row, value in reversed(list(enumerate(values)))}
        asked = hashes[[first[value] for value in distinct]] if distinct else np.zeros(0, np.uint64)
        (estimate, upper), found = index.bounds(asked), index.look_up(asked)
        by_hash = Counter(hashes[row] for row in rows if values[row] is not None)
        for i, value in enumerate(distinct):
            assert upper[i] >= by_hash[asked[i]] >= exact[value]
            assert 0 <= estimate[i] <= upper[i]
            assert found.end[i] - found.begin[i] == by_hash[asked[i]]
            entries = np.arange(found.entry[i], found.entry[i] + found.entries[i])
            assert (exact[value] > 0) == (value in [key_of(v) for v in index.values(entries).to_pylist()])
            mine = index.ordinals(int(found.begin[i]), int(found.end[i]))
            assert mine.tolist() == [row for row in mine.tolist() if hashes[row] == asked[i]]
        assert index.keys == len(exact)
        assert index.keyed == sum(exact.values())
    assert at == len(column)


def check(history: History, ts: np.ndarray, table: pa.Table, seed: int = 0) -> None:
    """A history against its rows."""
    chance = np.random.default_rng(seed)
    n = len(table)
    assert history.tuples == n
    kept = list(history.batches())
    assert sum(len(batch) for _, batch in kept) == n
    if n:
        assert np.concatenate([times for times, _ in kept]).tolist() == ts.tolist()
        assert same(pa.Table.from_batches([batch for _, batch in kept]), table)
    for _ in range(4):
        begin, end = sorted(chance.integers(0, n + 1, 2).tolist())
        part = list(history.batches(["number", "key"], begin, end))
        expected = table.select(["number", "key"]).slice(begin, end - begin)
        assert same(pa.Table.from_batches([batch for _, batch in part], expected.schema), expected)
        since, until = sorted(chance.integers(-3, int(ts[-1]) + 3 if n else 3, 2).tolist())
        assert history.between(since, until) == (
            int(np.searchsorted(ts, since, "left")),
            max(int(np.searchsorted(ts, until, "right")), int(np.searchsorted(ts, since, "left"))),
        )
        if n:
            some = chance.integers(0, n, int(chance.integers(0, 50)))
            assert history.ts(some).tolist() == ts[some].tolist()
            assert same(history.take(some), table.take(some))
            assert same(history.take(some, ["price"]), table.select(["price"]).take(some))
    assert history.between() == (0, n)
    for column in history.indexed:
        flat = table[column].combine_chunks()
        assert history.hashes(column).tolist() == hash_keys(flat).tolist()
        check_index(history.indices(column), flat)


def same(left: pa.Table, right: pa.Table) -> bool:
    """Equal as rows, NaN like NaN."""
    return left.schema.equals(right.schema) and repr(left.to_pylist()) == repr(right.to_pylist())


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(0, 3_000), st.sampled_from([256, 512]))
def test_a_hot_history_is_its_rows(seed: int, n: int, segment: int) -> None:
    chance = np.random.default_rng(seed)
    ts, batch = made(n, seed)
    history = History("s", SCHEMA, indexed=["key"], segment=segment, largest=2048)
    pieces = cut(chance, ts, batch)
    late = int(chance.integers(0, len(pieces) + 1))
    for i, (times, piece) in enumerate(pieces):
        if i == late:
            history.index("price")
        history.append(times, piece)
        if chance.random() < 0.2:
            history.indices("key")
    history.index("number")
    check(history, ts, pa.Table.from_batches([batch]), seed)


def test_indices_do_not_depend_on_how_batches_were_cut() -> None:
    ts, batch = made(5_000, 1)
    histories = []
    for seed in range(3):
        history = History("s", SCHEMA, indexed=["key"], segment=256, largest=4096)
        for times, piece in cut(np.random.default_rng(seed), ts, batch):
            history.append(times, piece)
        histories.append(history)
    one, *others = ([(i.first, i.tuples, i.since, i.until, i.hashes.tolist(), i.rows.tolist())
                     for i in h.indices("key") if isinstance(i, HotIndex)] for h in histories)  # fmt: skip
    assert [index[1] for index in one] == [4096, 256, 256, 256, 136]
    for other in others:
        assert other == one


def test_colliding_hashes_keep_two_entries() -> None:
    class Same:
        seed, secret = 0, b""

        def strings(self, data: np.ndarray, offsets: np.ndarray) -> np.ndarray:  # noqa: ARG002
            return np.full(offsets.shape[0] - 1, 7 << 60, np.uint64)

    history = History("s", pa.schema([("key", pa.string())]), hasher=Same(), indexed=["key"], segment=256)  # type: ignore[arg-type]
    keys = ["a", "b", "a", "c"] * 300
    ts = np.arange(len(keys))
    history.append(ts, pa.record_batch({"key": keys}))
    index, tail = history.indices("key")
    assert (index.tuples, tail.tuples) == (1024, 176)
    found = index.look_up(np.array([7 << 60, 5], np.uint64))
    assert found.entries.tolist() == [3, 0]
    assert (found.end - found.begin).tolist() == [1024, 0]
    cell = index.cell(int(index.bucket_of(np.array([7 << 60], np.uint64))[0]))
    assert cell.values.to_pylist() == ["a", "b", "c"]
    for e, value in enumerate("abc"):
        rows = cell.positions[cell.starts[e] : cell.starts[e + 1]]
        assert rows.tolist() == [row for row in range(1024) if keys[row] == value]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 1000)), max_size=300), st.integers(0, 300))
def test_the_bound_of_a_sum_is_certain_and_not_below_a_part(counts: list[tuple[int, int]], at: int) -> None:
    hashes = np.array([h for h, _ in counts], np.uint64)
    times = np.array([c for _, c in counts], np.int64)
    whole = IndexSketch.of(hashes, times, 512)
    left, right = IndexSketch.of(hashes[:at], times[:at], 512), IndexSketch.of(hashes[at:], times[at:], 512)
    assert (whole.codes >= np.maximum(left.codes, right.codes)).all()
    exact = Counter()
    for h, c in counts:
        exact[h] += c
    estimate, upper = whole.bounds(hashes)
    assert all(upper[i] >= exact[h] for i, (h, _) in enumerate(counts))
    assert (upper >= left.bounds(hashes)[1]).all()
    assert (upper >= right.bounds(hashes)[1]).all()
    assert (estimate <= upper).all()


def bounds_twin(codes: np.ndarray, key: int) -> tuple[int, int]:
    """(estimate, upper) of one key, as the kernel counts them."""
    cells = codes.shape[1]
    own, other = [], []
    for multiplier, row in zip(_MULTIPLIERS.tolist(), codes.tolist(), strict=True):
        cell = (multiplier * key) % (1 << 64) >> (65 - cells.bit_length())
        own.append(int(LEVELS[row[cell]]))
        other.append(int(LEVELS[row[cell ^ 1]]))
    middle = sorted(a - b for a, b in zip(own, other, strict=True))[1]
    return max(0, min(middle, *own)), min(own)


def test_the_kernel_of_bounds_is_its_python_twin() -> None:
    chance = np.random.default_rng(5)
    for cells, keys in ((256, 40), (256, 900), (1_024, 600)):
        hashes = chance.integers(0, 2**64, keys, dtype=np.uint64)
        sketch = IndexSketch.of(hashes, chance.geometric(0.02, keys), cells)
        asked = np.concatenate([hashes, chance.integers(0, 2**64, 300, dtype=np.uint64)])
        estimate, upper = sketch.bounds(asked)
        assert list(zip(estimate.tolist(), upper.tolist(), strict=True)) == [
            bounds_twin(sketch.codes, key) for key in asked.tolist()
        ]
        assert (upper == 0).sum() > 0 or keys > cells


def test_the_code_of_a_counter_is_the_least_level_that_is_not_below_it() -> None:
    levels = LEVELS[:241]
    near = np.concatenate([levels - 1, levels, levels + 1])
    counters = near[(near >= 0) & (near < 1 << 32)].astype(np.uint32)
    codes = np.empty(counters.shape[0], np.uint8)
    level_codes(counters, codes)
    assert codes.tolist() == np.searchsorted(levels, counters).tolist()


def test_rare_keys_are_ruled_out_of_most_cells() -> None:
    """Of absent keys at most the stated 6 % remain possible, in the worst of widths."""
    chance = np.random.default_rng(3)
    for keys in (1_000, 1_024, 40_000):
        hashes = chance.integers(0, 2**64, keys, dtype=np.uint64)
        sketch = IndexSketch.of(hashes, np.ones(keys, np.int64), cells_for(keys))
        absent = chance.integers(0, 2**64, 20_000, dtype=np.uint64)
        assert np.mean(sketch.bounds(absent)[1] > 0) < 0.065


def test_shapes_follow_from_sizes() -> None:
    assert [buckets_for(n) for n in (0, 1, 4_095, 4_096, 131_072, 8_388_608, 1 << 30)] == [1, 1, 1, 2, 64, 4096, 4096]
    assert [cells_for(n) for n in (0, 1, 128, 129, 1 << 20, 1 << 23)] == [256, 256, 256, 512, 1 << 21, 1 << 21]


def test_bad_input_is_named_and_nothing_is_taken() -> None:
    ts, batch = made(10, 0)
    history = History("s", SCHEMA, indexed=["key"])
    with pytest.raises(ConfigError, match="a row each"):
        history.append(ts[:5], batch)
    with pytest.raises(ConfigError, match="needed the columns"):
        history.append(ts, batch.select(["ts", "key"]))
    with pytest.raises(ConfigError, match="of types"):
        history.append(ts, batch.set_column(2, "number", pa.array(range(10), pa.int32())))
    with pytest.raises(TimestampOrderError, match="never decrease"):
        history.append(ts[::-1].copy(), batch)
    with pytest.raises(UnknownColumn, match="needed one of ts, key"):
        history.take(np.zeros(0, np.int64), ["nothing"])
    with pytest.raises(UnknownColumn, match="call index"):
        history.indices("price")
    with pytest.raises(KeyTypeError):
        History("s", pa.schema([("l", pa.list_(pa.int8()))]), indexed=["l"])
    with pytest.raises(ConfigError, match="whole slices"):
        History("s", SCHEMA, segment=100)
    assert history.tuples == 0
    history.append(ts, batch)
    with pytest.raises(TimestampOrderError):
        history.append(ts, batch)
    with pytest.raises(IndexError, match="ordinals from 0 to 9"):
        history.take(np.array([10]))
    with pytest.raises(IndexError, match="bucket"):
        history.indices("key")[0].cell(1)


def test_a_slice_of_a_large_batch_does_not_keep_all_of_it() -> None:
    ts, batch = made(200_000, 2)
    history = History("s", SCHEMA)
    history.append(ts[:300], batch.slice(0, 300))
    list(history.batches())
    assert history.memory < 200_000


def test_dictionaries_are_decoded() -> None:
    schema = pa.schema([("key", pa.dictionary(pa.int32(), pa.string()))])
    history = History("s", schema, indexed=["key"])
    for start in range(0, 20, 10):
        keys = pa.array([f"k{i}" for i in range(start, start + 10)]).dictionary_encode()
        history.append(np.arange(start, start + 10), pa.record_batch({"key": keys}))
    assert history.schema.field("key").type == pa.string()
    assert history.take(np.array([13, 2]))["key"].to_pylist() == ["k13", "k2"]
    check_index(history.indices("key"), pa.array([f"k{i}" for i in range(20)]))


def test_a_counter_of_one_byte_is_rounded_up_by_an_eighth_at_most_and_nothing_stays_nothing() -> None:
    assert (np.diff(LEVELS[:241]) > 0).all()
    assert LEVELS.max() == (1 << 32) - 1
    counts = np.array([0, 1, 2, 15, 16, 17, 31, 33, 255, 257, 99_999, 8_388_608, 8_388_609, (1 << 32) - 1])
    counts = np.concatenate([counts, np.random.default_rng(3).integers(1, 1 << 32, 500)])
    for count in counts.tolist():
        sketch = IndexSketch.of(np.array([77], np.uint64), np.array([count]), 256)
        (estimate,), (upper,) = (bound.tolist() for bound in sketch.bounds(np.array([77], np.uint64)))
        assert count <= upper <= count + count // 8
        assert estimate == upper


def test_a_reader_who_is_interrupted_anywhere_loses_no_rows_and_doubles_none() -> None:
    schema = pa.schema([("n", pa.int64())])

    def filled() -> Tail:
        tail = Tail(schema, 0)
        for first in (0, 40, 70, 80):
            n = np.arange(first, first + 10)
            tail.append(n * 1_000, pa.RecordBatch.from_arrays([pa.array(n)], schema=schema))
            if first == 40:
                tail.parts()
        return tail

    def told(tail: Tail) -> list[int]:
        return [n for part in tail.parts() for n in part.batch.column("n").to_pylist()]

    def stopped() -> None:
        raise KeyboardInterrupt

    rows = told(filled())
    assert len(rows) == 40
    for at in range(at_place(filled().parts, None, stopped)):
        tail = filled()
        with contextlib.suppress(KeyboardInterrupt):
            at_place(tail.parts, at, stopped)
        assert told(tail) == rows


def _of(numbers: np.ndarray) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(numbers)], names=["n"])


def test_long_batches_stay_where_they_lie_when_a_segment_ends_and_short_ones_are_put_together() -> None:
    history = History("a", pa.schema([("n", pa.int64())]), segment=131_072)
    whole, at = np.arange(140_000), 0
    places = []
    for n in (20_000, 100, 30_000, 5_000, 5_100, 70_000, 9_800):
        batch = _of(whole[at : at + n])
        places.append(batch.column(0).buffers()[1].address)
        history.append(whole[at : at + n], batch)
        at += n
    parts = history._rows.parts().found
    assert [part.tuples for part, _, _ in parts] == [20_000, 100, 30_000, 10_100, 70_000, 872, 8_928]
    lies = [part.batch.column(0).buffers()[1].address for part, _, _ in parts]
    assert [lies[k] for k in (0, 2, 4)] == [places[k] for k in (0, 2, 5)]
    assert [ts.tolist() for ts, _ in history.batches()] == [each.column(0).to_pylist() for _, each in history.batches()]
    assert np.concatenate([ts for ts, _ in history.batches()]).tolist() == whole.tolist()
    assert 0 <= history._rows.nbytes - 16 * whole.shape[0] < 1_000


@pytest.mark.parametrize("n", [1_000, 20_000])
def test_a_slice_of_much_more_is_copied_and_what_is_cut_here_is_not(n: int) -> None:
    history = History("a", pa.schema([("n", pa.int64())]), segment=131_072)
    much = _of(np.arange(1_000_000))
    history.append(np.arange(n), much.slice(5_000, n))
    history.append(np.arange(n, n + 150_000), own := _of(np.arange(n, n + 150_000)))
    at = own.column(0).buffers()[1].address
    (first, _, _), *others = history._rows.parts().found
    assert first.batch.get_total_buffer_size() < 8 * n + 1_000
    assert [part.batch.column(0).buffers()[1].address for part, _, _ in others] == [at, at]
    assert sum(part.tuples for part, _, _ in others) == 150_000
