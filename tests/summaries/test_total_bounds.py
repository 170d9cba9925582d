"""What sketches of all tuples say of a join's total: never too little, and right on average."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.operators.common import bound_kernels
from nile.operators.common.total_bounds import COLUMNS, ROWS, total_bounds

Array = np.ndarray[Any, Any]
_S = 1_000_000_000


def _streams(rng: np.random.Generator, count: int, n: int, keys: int) -> tuple[list[Array], list[list[int | None]]]:
    ts = [np.sort(rng.integers(0, 60, n)) * _S for _ in range(count)]
    drawn = [[None if gone else int(k) for k, gone in zip(rng.integers(0, keys, n), rng.random(n) < 0.1, strict=True)]
             for _ in range(count)]  # fmt: skip
    return ts, drawn


def _combinations(ts: list[Array], keys: list[list[int | None]], window: int | None) -> int:
    found = 0
    for members in product(*(range(len(each)) for each in keys)):
        of = {keys[k][i] for k, i in enumerate(members)}
        times = [int(ts[k][i]) for k, i in enumerate(members)]
        found += len(of) == 1 and None not in of and (window is None or max(times) - min(times) <= window)
    return found


@pytest.mark.parametrize(("streams", "n", "keys"), [(2, 60, 9), (2, 80, 4_000), (3, 24, 5), (4, 12, 3)])
@pytest.mark.parametrize("window", [None, 7 * _S, 0])
def test_there_are_never_more_outputs_than_sketches_say_and_few_keys_are_told_apart(
    streams: int, n: int, keys: int, window: int | None
) -> None:
    ts, drawn = _streams(np.random.default_rng(5), streams, n, keys)
    exact = _combinations(ts, drawn, window)
    told = total_bounds(ts, [pa.chunked_array([pa.array(each, pa.int64())]) for each in drawn], window)
    assert told.most >= exact
    assert told.bytes == streams * ROWS * COLUMNS * 16
    if keys < 10:
        assert told.most == exact


def _sliding(
    ts: list[int], owner: list[int], word: list[int], window: int, multipliers: Array, cells: int
) -> tuple[float, list[float]]:
    """The twin of `slide`: of each arrival, whom its window holds, cell by cell."""
    streams, rows = multipliers.shape
    bits = 64 - int(math.log2(cells))

    def cell(k: int, r: int, w: int) -> int:
        return ((int(multipliers[k, r]) * w) & ((1 << 64) - 1)) >> bits

    total, signed = 0.0, [0.0] * rows
    for i, side in enumerate(owner):
        if side < 0:
            continue
        most, row = 1.0, [1.0] * rows
        for k in range(streams):
            if k == side:
                continue
            held = [word[j] for j in range(i) if owner[j] == k and ts[j] >= ts[i] - window]
            cells_of = [[cell(k, r, w) for w in held] for r in range(rows)]
            counts = [(cells_of[r].count(cell(k, r, word[i])), cells_of[r].count(cell(k, r, word[i]) ^ 1))
                      for r in range(rows)]  # fmt: skip
            most *= min(plus for plus, _ in counts)
            row = [own * (plus - minus) for own, (plus, minus) in zip(row, counts, strict=True)]
        total += most
        signed = [a + b for a, b in zip(signed, row, strict=True)]
    return total, signed


@pytest.mark.parametrize("streams", [2, 3])
def test_sketches_that_slide_tell_what_their_twin_tells(streams: int) -> None:
    rng = np.random.default_rng(11)
    n, cells = 250, 16
    ts = np.sort(rng.integers(0, 100, n))
    owner = rng.integers(-1, streams, n).astype(np.int8)
    word = rng.integers(0, 1 << 63, 30).astype(np.uint64)[rng.integers(0, 30, n)]
    multipliers = rng.integers(0, 1 << 63, (streams, 3)).astype(np.uint64) | np.uint64(1)
    signed = np.zeros(3)
    most = bound_kernels.slide(
        ts, owner, word, 20, multipliers, 60, np.zeros((streams, 3, cells), np.int64), signed, np.zeros(3)
    )
    wanted = _sliding(ts.tolist(), owner.tolist(), word.tolist(), 20, multipliers, cells)
    assert (most, signed.tolist()) == wanted


@pytest.mark.parametrize("streams", [2, 3])
def test_what_they_say_is_right_on_average_and_its_interval_holds(streams: int) -> None:
    rng = np.random.default_rng(3)
    n = 1_500
    ts = [np.sort(rng.integers(0, 600, n)) * _S for _ in range(streams)]
    keys = [pa.chunked_array([pa.array(np.minimum(rng.zipf(1.3, n), 3_000))]) for _ in range(streams)]
    names = "abc"[:streams]
    db = nile.connect()
    for name, at, column in zip(names, ts, keys, strict=True):
        db.register(name, pa.table({"at": pa.array(at).view(pa.timestamp("ns")), "k": column}), time="at")
    window = "60 s"
    exact = db.join(*names, on="k", window=window).run().estimate.value
    told = [total_bounds(ts, keys, 60 * _S, seed=seed) for seed in range(150)]
    values = np.array([each.about.value for each in told if each.about is not None])
    assert abs(values.mean() - exact) < 3.5 * values.std() / 150**0.5
    held = [each.about.low <= exact <= each.about.high for each in told if each.about is not None]
    assert np.mean(held) > 0.95 - 3.0 * (0.95 * 0.05 / 150) ** 0.5
    assert all(exact <= each.most <= 1.1 * exact for each in told)


def _database() -> nile.Database:
    rng = np.random.default_rng(2)
    db = nile.connect()
    for name in "ab":
        at = pa.array(np.sort(rng.integers(0, 1_000, 2_000)))
        table = {"at": at, "k": pa.array(rng.permutation(20_000)[:2_000]), "v": pa.array(rng.random(2_000))}
        db.register(name, pa.table(table), time="at")
    return db


def test_a_sample_without_an_interval_says_what_sketches_say_in_its_place() -> None:
    query = _database().join("a", "b", on="k", window="500 s").using(costs="engine").prefer("weighted")
    answer, exact = query.run(0.01), query.run().estimate.value
    assert answer.estimate.high == math.inf
    assert answer.bounds.most >= exact
    assert answer.bounds.about is not None
    (told,) = [each for each in answer.warnings if each.startswith("estimate")]
    assert f"(it is at most {answer.bounds.most:,.0f} by sketches of all tuples)" in told


def test_of_many_tuples_they_are_made_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nile.answers.join_worth._AT_ONCE", 3_999)
    query = _database().join("a", "b", on="k", window="500 s").using(costs="engine").prefer("weighted")
    answer = query.run(0.01)
    assert answer.estimate.high == math.inf
    assert "(`bounds` says it by sketches of all tuples)" in answer.warnings[-1]
    assert answer.bounds_at_once is None
    assert answer.bounds is answer.bounds_at_once
    assert f"(it is at most {answer.bounds.most:,.0f} by" in answer.warnings[-1]


def test_under_a_condition_on_the_pair_there_is_a_bound_and_no_more() -> None:
    query = _database().join("a", "b", on="k", window="500 s", where="a.v < b.v")
    answer, exact = query.prefer("desc").run(0.5), query.run().estimate.value
    assert answer.bounds.about is None
    assert answer.bounds.most >= exact


_PAIRS = "SELECT {} FROM a JOIN b ON a.k = b.k {} WINDOW '500 s' {}"


@pytest.mark.parametrize("preference", ["desc", "asc", "weighted"])
def test_sql_says_both_beside_the_estimate(preference: str) -> None:
    db = _database()
    exact = len(db.sql(_PAIRS.format("a.k", "", "")).fetchall())
    query = _PAIRS.format("a.k", "", f"WITH PREFERENCE {preference} a.k BUDGET 10 %")
    told = db.sql(query, costs="engine")
    bounds = told.bounds
    assert bounds is not None
    assert bounds.about is not None
    assert exact <= bounds.most <= 1.5 * exact
    assert bounds.about.low <= exact <= bounds.about.high
    worth = told.worth()
    assert worth is not None
    assert f"by sketches about {bounds.about.value:,.6g}, at most {bounds.most:,.6g}" in worth


def test_what_has_no_pairs_of_an_approximate_join_as_its_rows_has_none() -> None:
    db = _database()
    assert db.sql("SELECT k FROM a WHERE v > 0.5").bounds is None
    assert db.sql(_PAIRS.format("count(*)", "", "WITH PREFERENCE weighted a.k BUDGET 10 %")).bounds is None
    assert db.sql(_PAIRS.format("a.k", "", "")).bounds is None
