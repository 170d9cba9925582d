"""Pairs written key after key: every one once, the most promising keys first, with the times and keys they have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nile
from nile.exact.join.listed import Lists
from nile.operators.strategies import by_key, key_kernels
from nile.operators.strategies.by_key import KeyPairs

Array = np.ndarray[Any, Any]
_ENDS = np.iinfo(np.int64)


def _found(ts: list[Array], codes: list[Array], window: int | None, most: int, told: Any = None) -> list[Any]:
    lists = Lists((ts[0], ts[1]), (codes[0], codes[1]), -1, threads=1, told=told)
    times = ts if told is None else [_spread(own, at) for own, at in zip(ts, told, strict=True)]
    values = codes[0] * 7 if told is None else _spread(codes[0] * 7, told[0])
    return list(KeyPairs(lists, (times[0], times[1]), window, pa.array(values)).written(most))


def _spread(own: Array, at: Array) -> Array:
    """Own values at places `at`, as a stream has them of which these are some tuples."""
    out = np.zeros(int(at.max(initial=0)) + 1, np.int64)
    out[at] = own
    return out


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), window=st.sampled_from([None, 0, 3, 40]), room=st.sampled_from([1, 5, 64]))
def test_every_pair_comes_once_with_its_times_and_key(seed: int, window: int | None, room: int) -> None:
    rng = np.random.default_rng(seed)
    ts = [np.sort(rng.integers(0, 60, rng.integers(0, 50))) for _ in range(2)]
    if seed % 3 == 0:  # as far apart as times can be
        ts = [np.sort(rng.choice([_ENDS.min, _ENDS.min + 2, 0, _ENDS.max - 1, _ENDS.max], 20)) for _ in range(2)]
    codes = [rng.integers(-1, 6, each.shape[0]) for each in ts]
    told = tuple(np.sort(rng.choice(200, each.shape[0], replace=False)) for each in ts) if seed % 2 else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_key, "_ROOM", room)
        parts = _found(ts, codes, window, 1 << 40, told)
    left, right, key, left_ts, right_ts = (
        np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)])
        for name in ("left", "right", "key", "left_ts", "right_ts")
    )
    wanted = {
        (i, j)
        for i in range(ts[0].shape[0])
        for j in range(ts[1].shape[0])
        if codes[0][i] == codes[1][j] >= 0 and (window is None or abs(int(ts[0][i]) - int(ts[1][j])) <= window)
    }
    if told is not None:  # back to ordinals
        left, right = (np.searchsorted(at, own) for at, own in zip(told, (left, right), strict=True))
    assert sorted(zip(left.tolist(), right.tolist(), strict=True)) == sorted(wanted)
    assert (key == codes[0][left] * 7).all()
    assert (left_ts == ts[0][left]).all()
    assert (right_ts == ts[1][right]).all()
    assert all(1 <= len(part) <= room for part in parts)


def test_the_keys_with_most_pairs_per_tuple_come_first_and_no_more_than_asked_for() -> None:
    counts = {0: (1, 30), 1: (20, 20), 2: (5, 5), 3: (40, 0)}  # pairs per tuple: .97, 10, 2.5, none
    codes = [np.repeat(list(counts), [own[side] for own in counts.values()]) for side in (0, 1)]
    ts = [np.arange(each.shape[0]) for each in codes]
    [part] = _found(ts, codes, None, 1 << 40)
    assert (part.key // 7).tolist() == [1] * 400 + [2] * 25 + [0] * 30
    [some] = _found(ts, codes, None, 410)
    assert len(some) == 410
    assert (some.left == part.left[:410]).all()
    assert (some.right == part.right[:410]).all()


@pytest.mark.parametrize("alike", [False, True])
def test_the_kernels_do_what_they_do_in_python(monkeypatch: pytest.MonkeyPatch, alike: bool) -> None:
    rng = np.random.default_rng(3)
    ts = tuple(np.sort(rng.integers(0, 1000, 300)) for _ in range(2))
    codes = tuple(rng.integers(0, 12, 300) for _ in range(2))
    lists = Lists((ts[0], ts[1]), (codes[0], codes[1]), -1, threads=1)
    times = [own[at] for own, at in zip(ts, lists.listed, strict=True)]

    def run(count: Any, write: Any) -> tuple[Array, Array]:
        pairs = np.zeros(12, np.int64)
        begin, many = (np.zeros(300, np.int32) for _ in range(2))
        found = count(lists.rows[0], *times, 50, begin, many, pairs)
        out, progress = np.zeros((5, found), np.int64), np.zeros(3, np.uint64)
        assert found == pairs.sum()
        assert found == write(
            np.arange(12), lists.rows[0], begin, many, *times, *lists.listed, codes[0], alike, progress, *out
        )  # fmt: skip
        return pairs, out

    compiled = run(key_kernels.pairs_by_key, key_kernels.write_keys)
    for part in ("_since", "_until"):  # which only kernels can call
        monkeypatch.setattr(key_kernels, part, getattr(key_kernels, part).py_func)
    plain = run(key_kernels.pairs_by_key.py_func, key_kernels.write_keys.py_func)
    assert all((one == other).all() for one, other in zip(compiled, plain, strict=True))


@pytest.mark.parametrize(
    "convert",
    [
        lambda keys: pa.array(keys),
        lambda keys: pa.array(keys * 0.5),
        lambda keys: pa.array(keys.astype(np.int32)),
        lambda keys: pa.array(keys).cast(pa.timestamp("s")),
        lambda keys: pa.array(keys, mask=keys % 5 == 0),
        lambda keys: pa.array([f"key {key}" for key in keys]),
        lambda keys: pa.array(["x" * int(key) for key in keys])[1:],
        lambda keys: pa.array([b"x" * int(key % 3) for key in keys], mask=keys % 7 == 0),
        lambda keys: pa.array(["x" * int(9 * key) for key in keys]),
        lambda keys: pa.chunked_array([pa.array(keys[:100]), pa.array(keys[100:])]),
    ],
)
@pytest.mark.parametrize("strategy", ["counts", "keys", "prefix"])
def test_rows_are_those_of_the_exact_answer(strategy: str, convert: Any) -> None:
    db = nile.connect()
    for seed, name in enumerate("ab"):
        rng = np.random.default_rng(seed)
        ts = pa.array(np.sort(rng.integers(0, 10**9, 2_000))).cast(pa.timestamp("ns"))
        db.register(name, pa.table({"ts": ts, "k": convert(rng.integers(0, 40, 2_001))[-2_000:]}), time="ts")
    query = db.join("a", "b", on="k", window=0.02)
    every = {tuple(row.values()) for row in query.run().to_arrow().to_pylist()}
    rows = query.prefer("desc").using(strategy=strategy).run(1.0 if strategy == "counts" else 0.9).to_arrow()
    assert rows.schema == query.run().schema
    found = [tuple(row.values()) for row in rows.to_pylist()]
    assert len(set(found)) == len(found) > 0
    assert set(found) <= every
    if strategy == "counts":
        assert set(found) == every


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string()])
@pytest.mark.parametrize("long", [1, 90])
def test_texts_of_a_sample_are_those_of_its_left_tuples(kind: Any, long: int) -> None:
    rng = np.random.default_rng(5)
    codes = [rng.integers(0, 50, 900) for _ in range(2)]
    ts = [np.arange(900) for _ in range(2)]
    keys = pa.array(["x"] * 3 + [long * f"k{code}" for code in codes[0]]).cast(kind)[3:]
    found = KeyPairs(Lists(tuple(ts), tuple(codes), -1, threads=1), (ts[0], ts[1]), 60, keys)
    which = np.zeros(0, np.uint8)
    for rate in (1.0, 0.02):
        parts = list(found.drawn(which, np.array([rate]), np.array([1.0 / rate]), 0.3))
        assert sum(map(len, parts)) == pytest.approx(rate * found.pairs, abs=1.0)
        for part in parts:
            told = keys.take(pa.array(part.left)) if part.key is None else part.key
            assert told.type == kind
            assert told.to_pylist() == [keys[int(at)].as_py() for at in part.left]
            assert (part.key is None) == (long > 1 or kind == pa.large_string())
