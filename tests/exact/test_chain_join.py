"""The exact chain join against a double loop written from the definition, and against DuckDB."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import fresh_duckdb

from nile.exact.join.chain import ExactJoin, encode, narrow_codes, window_codes
from nile.exact.join.chain_kernels import has_other_forms
from nile.exact.join.count import count_whole
from nile.summaries.errors import KeyTypeError

KEYS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, float("nan"), -float("nan")]))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "é", "e\u0301", "b\0"]))


def joined(
    left: list[tuple[int, Any]], right: list[tuple[int, Any]], kind: pa.DataType, window: int | None
) -> ExactJoin:
    sides = [sorted(rows, key=lambda row: row[0]) for rows in (left, right)]
    ts = [np.array([row[0] for row in rows], np.int64) for rows in sides]
    columns = [pa.array([row[1] for row in rows], kind) for rows in sides]
    codes_left, codes_right, keys = encode(*columns)
    return ExactJoin(ts[0], ts[1], codes_left, codes_right, keys, window)


def same(a: Any, b: Any) -> bool:
    return a is not None and b is not None and (a == b or (a != a and b != b))


def check(left: list[tuple[int, Any]], right: list[tuple[int, Any]], kind: pa.DataType, window: int | None) -> None:
    exact = joined(left, right, kind, window)
    sides = [sorted(rows, key=lambda row: row[0]) for rows in (left, right)]
    truth = {
        (i, j)
        for i, (a, x) in enumerate(sides[0])
        for j, (b, y) in enumerate(sides[1])
        if same(x, y) and (window is None or abs(a - b) <= window)
    }
    found = [pair for lefts, rights in exact.pairs() for pair in zip(lefts.tolist(), rights.tolist(), strict=True)]
    assert sorted(found) == sorted(truth)
    order = sorted(
        [(ts, side, i, key) for side, rows in enumerate(sides) for i, (ts, key) in enumerate(rows)],
        key=lambda row: row[:3],
    )
    assert exact.order().tolist() == [row[1] for row in order]
    matches, standing = exact.matches()
    for n, (ts, side, _, key) in enumerate(order):
        near = [row for row in order[: n + 1] if same(row[3], key) and (window is None or ts - row[0] <= window)]
        assert matches[n] == sum(1 for row in near if row[1] != side)
        assert standing[n] == len(near)


@given(
    left=st.lists(st.tuples(st.integers(0, 30), KEYS), max_size=25),
    right=st.lists(st.tuples(st.integers(0, 30), KEYS), max_size=25),
    window=st.sampled_from([0, 1, 7, 100, None]),
)
@settings(max_examples=150)
def test_pairs_matches_and_standing_are_what_the_definition_says(left: Any, right: Any, window: int | None) -> None:
    check(left, right, pa.float64(), window)


@given(
    left=st.lists(st.tuples(st.integers(-(2**60), 2**60), TEXTS), max_size=15),
    right=st.lists(st.tuples(st.integers(-(2**60), 2**60), TEXTS), max_size=15),
    window=st.sampled_from([0, 2**59, 2**61 - 2, None]),
)
@settings(max_examples=60)
def test_text_keys_and_the_widest_times_are_no_special_case(left: Any, right: Any, window: int | None) -> None:
    check(left, right, pa.string(), window)


@pytest.mark.parametrize("seed", range(40))
def test_random_streams_agree_with_duckdb(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, keys, window = int(rng.integers(1, 2_000)), int(rng.integers(1, 200)), int(rng.integers(0, 50))
    tables = []
    for _ in range(2):
        ts = np.cumsum(rng.integers(0, 3, n))
        key = [None if rng.random() < 0.05 else int(k) for k in rng.integers(0, keys, n)]
        tables.append(pa.table({"i": np.arange(n), "ts": ts, "key": pa.array(key, pa.int64())}))
    one, two = tables
    connection = fresh_duckdb()
    connection.register("one", one)
    connection.register("two", two)
    rows = connection.execute(
        f"select one.i, two.i from one join two on one.key = two.key and abs(one.ts - two.ts) <= {window} order by all"
    ).fetchall()
    left, right, distinct = encode(one["key"], two["key"])
    exact = ExactJoin(one["ts"].to_numpy(), two["ts"].to_numpy(), left, right, distinct, window)
    found = sorted(pair for a, b in exact.pairs() for pair in zip(a.tolist(), b.tolist(), strict=True))
    assert found == [tuple(row) for row in rows]


def test_integer_widths_are_one_type_and_text_never_equals_a_number() -> None:
    left, right, _ = encode(pa.array([1, 2], pa.int8()), pa.array([2, 300], pa.int64()))
    assert left[1] == right[0]
    with pytest.raises(KeyTypeError, match="cast one side"):
        encode(pa.array([1]), pa.array(["1"]))


@pytest.mark.parametrize("kind", [pa.int32(), pa.date32()], ids=str)
@pytest.mark.parametrize("most", [50, 2**31 - 1])
@pytest.mark.parametrize("threads", [1, 3])
def test_keys_of_32_bits_are_counted_as_they_are(kind: pa.DataType, most: int, threads: int) -> None:
    rng = np.random.default_rng(most % 97)
    known = rng.integers(0, most, 60, endpoint=True)
    ts = tuple(np.sort(rng.integers(0, 10_000, n)) for n in (900, 700))
    keys = [pa.array(rng.choice(known, len(each)).astype(np.int32)).view(kind) for each in ts]
    codes = narrow_codes([keys[0], pa.chunked_array([keys[1]])])
    assert codes is not None
    assert [each.dtype for each in codes] == [np.int32, np.int32]
    pairs = sum(
        a == b and abs(int(t) - int(u)) <= 800
        for t, a in zip(ts[0], codes[0].tolist(), strict=True)
        for u, b in zip(ts[1], codes[1].tolist(), strict=True)
    )
    assert count_whole(ts, codes, 800, threads=threads) == pairs > 0
    assert count_whole(ts, window_codes(keys), 800, threads=threads) == pairs
    sliced = narrow_codes([keys[0].slice(5, 3), keys[1].slice(2)])
    assert sliced is not None
    assert [each.tolist() for each in sliced] == [codes[0][5:8].tolist(), codes[1][2:].tolist()]


def test_other_keys_than_whole_numbers_from_0_on_are_not_counted_as_they_are() -> None:
    good = pa.array([1, 2], pa.int32())
    for other in (
        pa.array([1, None], pa.int32()), pa.array([-1, 2], pa.int32()), pa.array([1, 2]),
        pa.array([1, 2], pa.int16()), pa.nulls(2), pa.array(["a"]),
    ):  # fmt: skip
        assert narrow_codes([good, other]) is None
        assert narrow_codes([other, good]) is None
    with pytest.raises(KeyTypeError):
        narrow_codes([good, good.cast(pa.date32())])


def test_doubles_that_equal_others_of_other_bits_are_found() -> None:
    odd = [-0.0, float("nan"), -float("nan"), np.uint64(0xFFF0000000000001).view(np.float64)]
    plain = [0.0, 1.5, -1.5, float("inf"), -float("inf"), 5e-324, -5e-324, 1.7e308, -1.7e308]
    for number in plain + odd:
        twin = math.isnan(number) or (number == 0.0 and math.copysign(1.0, number) < 0.0)
        assert has_other_forms(np.array([1.0, number, 2.0]).view(np.int64)) == twin
        assert twin == any(number is each for each in odd)
    assert not has_other_forms(np.array(plain).view(np.int64))
    assert not has_other_forms(np.zeros(0, np.int64))


def test_a_dictionary_without_a_row_is_coded_beside_one_of_no_type() -> None:
    empty = pa.array([], pa.string()).dictionary_encode()
    for other in (pa.array([], pa.null()), empty, pa.array([None, None], pa.string()).dictionary_encode()):
        for columns in ([empty, other], [other, empty]):
            assert [codes.shape[0] for codes in window_codes(columns)] == [len(column) for column in columns]
            assert all((codes < 0).all() for codes in window_codes(columns))
