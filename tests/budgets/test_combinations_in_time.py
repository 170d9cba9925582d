"""Combinations of n streams within time: those of the exact answer, each once, counted before any is written."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.exact.join.clique import ExactClique
from nile.operators.strategies import several
from nile.operators.strategies.prices import PRICES
from nile.operators.strategies.several import KeyCombinations
from nile.preferences.budget import Budget
from nile.summaries.errors import BudgetError, MemoryRefused

AMPLE = (Budget(seconds=600.0), Budget(deadline=600.0), Budget(seconds_per_tuple=1.0))
ENDS = np.iinfo(np.int64)


def streams(n: int, seed: int, *, sizes: int = 40, keys: int = 6) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Times, many of them equal, and codes, of which some are none."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(sizes // 2, sizes, n)
    ts = tuple(np.sort(rng.integers(0, sizes, m)) for m in lengths)
    return ts, tuple(np.where(rng.random(m) < 0.1, -1, rng.integers(0, keys, m)) for m in lengths)


def brute(ts: Any, codes: Any, window: int | None, cap: int) -> list[tuple[int, ...]]:
    """Every choice of a tuple of each stream, looked at."""
    found = []
    for places in product(*(range(each.shape[0]) for each in ts)):
        keys = {int(codes[k][at]) for k, at in enumerate(places)}
        times = [int(ts[k][at]) for k, at in enumerate(places)]
        if len(keys) > 1 or min(keys) < 0 or (window is not None and max(times) - min(times) > window):
            continue
        last = max((times[k], k, at) for k, at in enumerate(places))
        since = ENDS.min if window is None else last[0] - window
        standing = sum(
            1
            for k, own in enumerate(ts)
            for at in range(own.shape[0])
            if {int(codes[k][at])} == keys and own[at] >= since and (int(own[at]), k, at) <= last
        )
        if not cap or standing <= cap:
            found.append(places)
    return sorted(found)


def told(parts: Any) -> list[tuple[int, ...]]:
    return [tuple(row) for part in parts for row in part.places.tolist()]


@pytest.mark.parametrize("room", [1, 7, 65_536])
@pytest.mark.parametrize("window", [None, 0, 5])
@pytest.mark.parametrize("cap", [0, 4, 7])
@pytest.mark.parametrize("n", [2, 3])
def test_every_combination_is_written_once(
    n: int, cap: int, window: int | None, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several, "_FIRST", room)
    monkeypatch.setattr(several, "_ROOM", room)
    for seed in range(3):
        ts, codes = streams(n, seed, sizes=24)
        found = KeyCombinations(ts, codes, window, cap)
        every = brute(ts, codes, window, cap)
        assert sorted(told(found.written())) == every
        assert found.combinations == len(every)
        of_key = np.bincount([codes[0][places[0]] for places in every], minlength=found.by_key.shape[0])
        assert found.by_key.tolist() == of_key.tolist()


@pytest.mark.parametrize("n", [3, 5])
def test_they_are_as_many_as_the_judge_counts_where_most_keys_are_not_in_all_streams(n: int) -> None:
    for seed in range(4):
        ts, codes = streams(n, seed, sizes=4_000, keys=2_500)
        judge = ExactClique(ts, codes, 1_500)
        found = KeyCombinations(ts, codes, 1_500)
        members = np.concatenate([np.zeros((0, n), np.int64), *(judge.ordinal[own] for _, own in judge.members())])
        assert sorted(told(found.written())) == sorted(map(tuple, members.tolist()))
        assert found.combinations == judge.combinations > 0


def test_the_keys_with_most_per_tuple_come_first_and_of_outliers_the_rarest() -> None:
    ts, codes = streams(3, 1, sizes=300, keys=12)
    sizes = sum(np.bincount(each[each >= 0], minlength=12) for each in codes)
    best = KeyCombinations(ts, codes, 60)
    order = list(dict.fromkeys(codes[0][row[0]] for row in told(best.written())))
    worth = (best.by_key / sizes)[order]
    assert (worth[1:] <= worth[:-1] * (1.0 + 1.0 / 16.0)).all()  # ranked to a sixteenth
    rare = list(dict.fromkeys(codes[0][row[0]] for row in told(KeyCombinations(ts, codes, 60, 9).written())))
    assert (np.diff(sizes[rare]) >= 0).all()
    assert len(rare) > 3


def test_times_at_both_ends_are_compared_without_overflow() -> None:
    ts = tuple(np.array([ENDS.min, ENDS.min + 1, 0, ENDS.max]) for _ in range(3))
    codes = tuple(np.zeros(4, np.int64) for _ in range(3))
    for window in (1, ENDS.max, None):
        every = brute(ts, codes, window, 0)
        assert sorted(told(KeyCombinations(ts, codes, window).written())) == every


@pytest.mark.parametrize("parts", [1, 3, 8])
def test_samples_of_one_draw_have_each_combination_once(parts: int) -> None:
    ts, codes = streams(3, 2, sizes=60)
    found, which = KeyCombinations(ts, codes, 20), np.zeros(0, np.uint8)
    every = sorted(told(found.written()))
    drawn = [
        row
        for k in range(parts)
        for row in told(found.drawn(which, np.ones(1) / parts, np.ones(1), (0.37 + k) / parts))
    ]
    assert sorted(drawn) == every != []
    (part,) = found.drawn(which, np.array([0.1]), np.array([10.0]), 0.5)
    assert abs(part.weight.sum() - found.combinations) <= 10.0
    assert set(told([part])) <= set(every)


def test_what_cannot_be_counted_is_refused() -> None:
    ts = tuple(np.zeros(20_000, np.int64) for _ in range(5))
    with pytest.raises(MemoryRefused, match=r"join of 5 streams: needed fewer than 2\*\*53"):
        KeyCombinations(ts, tuple(np.zeros(20_000, np.int64) for _ in range(5)), None)


def database(n: int, *, text: bool = False, keys: int = 40) -> nile.Database:
    db = nile.connect()
    for seed, name in enumerate("abc"):
        rng = np.random.default_rng(seed)
        key = pa.array(rng.zipf(1.3, n) % keys, mask=rng.random(n) < 0.05)
        ts = np.sort(rng.integers(0, n, n)).astype(np.float64)
        given = {"t": ts, "k": key.cast(pa.string()) if text else key, "v": rng.random(n)}
        db.register(name, pa.table(given), time="t")
    return db


def rows(answer: Any) -> list[tuple[Any, ...]]:
    table = answer.to_arrow().drop_columns(["weight"])
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("where", [None, "a.v < b.v and b.v < c.v"])
@pytest.mark.parametrize("preference", ["desc", "asc", "weighted"])
def test_time_enough_finds_what_the_whole_budget_finds(preference: str, where: str | None, text: bool) -> None:
    db = database(400, text=text)
    query = db.join("a", "b", "c", on="k", window="20 s", where=where).prefer(preference)
    whole = query.using(costs="engine").run(1.0)
    for budget in AMPLE:
        answer = query.using(costs="machine").run(budget)
        assert rows(answer) == rows(whole) != []
        assert "counts" in answer.strategy
        assert answer.recall == 1.0
        assert answer.budget.unit == budget.unit
        assert answer.figures.outputs == len(rows(whole))
        assert answer.estimate.low <= len(rows(whole)) <= answer.estimate.high
        assert answer.estimate.certified or where is not None
        assert all(each.shed == 0 for each in answer.accounting.values())


@pytest.mark.parametrize("preference", ["desc", "weighted"])
def test_less_time_finds_some_and_knows_how_many_there_are(preference: str) -> None:
    db = database(6_000)
    query = db.join("a", "b", "c", on="k", window="400 s").prefer(preference)
    answer = query.using(costs="machine").run(Budget(seconds=0.08))
    table = answer.to_arrow()
    whole = query.run(1.0).joined.candidates
    assert 0 < len(table) < whole
    assert answer.estimate == nile.Estimate.exact(float(whole))
    if preference == "weighted":
        weight = table["weight"].to_numpy()
        assert abs(weight.sum() - whole) <= weight.max() * 16  # of each part it may be one more or less
        told_by = answer.aggregate({"n": "count(*)"}).to_arrow()["n"].to_pylist()[0]
        assert told_by == pytest.approx(weight.sum())


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is granted beside a fraction."""
    monkeypatch.setattr(several, "machine_prices", lambda: replace(PRICES, start=0.0, begin=0.0))


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize("where", [None, "a.v < c.v"])
@pytest.mark.parametrize("preference", ["desc", "asc"])
def test_more_of_the_exact_cost_finds_no_less(preference: str, where: str | None) -> None:
    db = database(900 if preference == "asc" else 200, keys=300)
    query = db.join("a", "b", "c", on="k", window="90 s" if preference == "asc" else "12 s", where=where)
    query = query.prefer(preference, outlier_cap=6)
    whole = set(rows(query.using(costs="engine").run(1.0)))
    machine, found = query.using(costs="machine"), []
    for fraction in (1e-6, 0.2, 0.5, 0.9, 0.99):
        answer = machine.run(fraction)
        found.append(rows(answer))
        assert set(found[-1]) <= whole
        assert found[-1] == rows(machine.run(fraction))
        assert answer.strategy
        assert answer.budget.spent <= 1.001 * max(fraction, answer.budget.parts["insert"] * 1.1)
        if fraction == 1e-6:
            assert [told for told in answer.warnings if "to count all combinations" in told]
        if where is None:
            assert answer.estimate.value == answer.exact_outputs
    assert sorted(map(len, found)) == [len(each) for each in found]
    assert 0 < len(found[0]) < len(found[-1])


@pytest.mark.usefixtures("free")
def test_a_sample_of_a_fraction_has_weights_of_the_whole() -> None:
    query = database(600).join("a", "b", "c", on="k", window="60 s", where="a.v < c.v")
    answer = query.prefer("weighted").using(costs="machine").run(0.5)
    whole, seeds = answer.exact_outputs, 60
    assert answer.figures.outputs < whole
    told = [answer.again(seed=seed).estimate.value for seed in range(seeds)]
    assert abs(np.mean(told) - whole) <= 3.0 * np.std(told, ddof=1) / seeds**0.5


def test_time_below_counting_all_is_refused() -> None:
    query = database(20_000).join("a", "b", "c", on="k", window="1 s").prefer("desc").using(costs="machine")
    with pytest.raises(BudgetError, match=r"needed at least .* seconds to pass over 60,000 tuples and find anything"):
        query.run(Budget(seconds=1e-5))
    sql = "SELECT a.k FROM a, b, c WHERE a.k = b.k AND b.k = c.k WINDOW '1 s' WITH PREFERENCE desc a.k"
    with pytest.raises(BudgetError, match="60,000 tuples"):
        database(20_000).sql(sql, budget=Budget(seconds=1e-5), costs="machine").to_arrow()
