"""What probes a history: its keys as an index in memory has them are those that its rows have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.operators.history.keys import ProbeKeys
from nile.pyramid.history import history_kernels
from nile.pyramid.history.history import History
from nile.pyramid.history.keys import HotIndex

SEGMENT = 512
KINDS = [pa.string(), pa.large_string(), pa.binary(), pa.int32(), pa.float64(), pa.decimal128(21, 2), pa.bool_()]


def column(kind: pa.DataType, n: int, seed: int) -> pa.Array:
    """Keys that repeat, one in nine null."""
    chance = np.random.default_rng(seed)
    drawn = chance.integers(0, 2 if pa.types.is_boolean(kind) else 60, n)
    nulls = chance.integers(0, 9, n) == 0
    if pa.types.is_floating(kind):
        return pa.array(np.where(drawn == 3, -0.0, np.where(drawn == 4, np.nan, drawn / 8)), kind, mask=nulls)
    if kind == pa.binary():
        return pa.array([f"key {k}".encode() for k in drawn], kind, mask=nulls)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.array([f"key {k}" for k in drawn], kind, mask=nulls)
    return pa.array(drawn, pa.int64(), mask=nulls).cast(kind)


def history(kind: pa.DataType, n: int = 1_300) -> tuple[History, pa.Array]:
    """Rows with one key, indexed: the last are in the open index."""
    keys = column(kind, n, 5)
    made = History("s", pa.schema([("k", kind)]), indexed=["k"], segment=SEGMENT, largest=SEGMENT)
    made.append(np.arange(n, dtype=np.int64), pa.record_batch([keys], names=["k"]))
    return made, keys


def told(keys: ProbeKeys) -> tuple[Any, ...]:
    """All that probing keys say."""
    return (keys.hashes.tolist(), keys.starts.tolist(), keys.rows.tolist(), keys.ordinals.tolist(),
            [str(value) for value in keys.values])  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("begin", "end"), [(1_024, 1_300), (1_100, 1_200), (1_299, 1_300), (600, 700)])
def test_keys_of_rows_are_the_same_by_their_index_as_by_reading_them(kind: pa.DataType, begin: int, end: int) -> None:
    made, keys = history(kind)
    read = ProbeKeys(keys.slice(begin, end - begin), np.arange(begin, end), made.hasher)
    index = next(each for each in made.indices("k") if each.first <= begin and end <= each.end)
    assert isinstance(index, HotIndex)
    found = index.within(begin, end)
    if end - begin == 1:
        assert found is None  # more rows would be passed over than that one takes to be read
        return
    assert found is not None
    assert told(ProbeKeys.of_index(found, made.hasher)) == told(read)


@pytest.mark.parametrize("kind", [pa.string(), pa.decimal128(21, 2), pa.int32()], ids=str)
def test_keys_by_an_index_are_told_from_others_by_value(kind: pa.DataType) -> None:
    made, _ = history(kind)
    old, *_, new = made.indices("k")
    assert isinstance(new, HotIndex)
    found = new.within(1_024, 1_300)
    assert found is not None
    for keys in (ProbeKeys.of_index(found, made.hasher), ProbeKeys.of_index(found, made.hasher).chosen(np.arange(9))):
        looked = old.look_up(keys.hashes)
        which = np.flatnonzero(looked.entries == 1)
        assert keys.same(which, old, kind, looked.entry[which]).all()
        other = looked.entry[np.roll(which, 1)]
        differs = looked.entry[which] != other
        if not pa.types.is_integer(kind):  # the hash of a number is the number
            assert not keys.same(which[differs], old, kind, other[differs]).any()


@pytest.mark.parametrize("seed", range(5))
def test_rows_within_is_what_its_twin_in_python_finds(seed: int) -> None:
    chance = np.random.default_rng(seed)
    counts = chance.integers(0, 6, 40)
    starts = np.concatenate([[0], np.cumsum(counts)])
    entry = chance.permutation(np.repeat(np.arange(40), counts))
    rows = np.argsort(entry, kind="stable").astype(np.uint32)  # ascending in an entry
    low, high = sorted(chance.integers(0, int(starts[-1]) + 1, 2).tolist())
    entries, ends, out = np.empty(40, np.int64), np.empty(41, np.int64), np.empty(high - low, np.int64)
    n = history_kernels.rows_within(starts, rows, low, high, entries, ends, out)
    own = [[int(row) for row in rows[starts[e] : starts[e + 1]] if low <= row < high] for e in range(40)]
    assert entries[:n].tolist() == [e for e in range(40) if own[e]]
    assert np.diff(ends[: n + 1]).tolist() == [len(each) for each in own if each]
    assert out[: ends[n]].tolist() == [row for each in own for row in each]


def test_outliers_put_off_for_a_frequent_guess_are_found_in_the_end_and_the_others_first() -> None:
    """A sketch of 256 counters over thousands of keys takes most for frequent; what is told in the end is exact."""
    n = 6_000
    db = nile.connect()
    for name in ("a", "b"):
        db.stream(name, [("ts", pa.timestamp("us")), ("k", pa.int64())], time="ts")
    chance = np.random.default_rng(2)
    rare = np.arange(n // 40) + 1_000_000
    both = {}
    for name in ("a", "b"):
        keys = chance.integers(0, 50, n)
        keys[chance.permutation(n)[: rare.shape[0]]] = rare
        both[name] = keys
        ts = pa.array(np.arange(n), pa.int64()).cast(pa.timestamp("us"))
        db.push(name, pa.table({"ts": ts, "k": keys}))
    text = "SELECT a.k FROM a, b WHERE a.k = b.k WITH PREFERENCE asc a.k"
    counts = np.bincount(np.concatenate([both["a"], both["b"]]))
    progress = db.sql(text, outlier_cap=4).progress(every=0)
    found: list[int] = []
    covered = 0.0
    for partial in progress:
        assert partial.coverage >= covered
        assert partial.estimate.low <= rare.shape[0] <= partial.estimate.high
        covered = partial.coverage
        found += [key for batch in partial.rows for key in batch.column(0).to_pylist()]
    assert covered == 1.0
    assert sorted(found) == rare.tolist()
    assert all(counts[key] == 2 for key in found)
