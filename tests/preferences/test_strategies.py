"""Strategies of a join within CPU time: every one tells true pairs, with weights that are right on average."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from thinning import rounds, thinned

import nile
from nile.operators.strategies import choice
from nile.operators.strategies.forecast import Forecast, choose
from nile.operators.strategies.prices import PRICES
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

Array = np.ndarray[Any, Any]
N, KEYS, WINDOW = 3_000, 300, 0.5
WAYS = ("auto", "exact", "counts", "keys", "summary")
PREFERENCES = ("desc", "weighted", "asc")


@pytest.fixture(autouse=True)
def _without_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs as small as these would be answered whole: a look costs more than their join, and every run is granted
    something beside its fraction."""
    monkeypatch.setattr(
        choice, "machine_prices", lambda: replace(PRICES, start=0.0, begin=0.0, solve=0.0, seen=2.0, weigh=0.2)
    )


def _keys(seed: int, skew: float = 0.9) -> Array:
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, KEYS + 1) ** skew
    return np.random.default_rng(5).permutation(KEYS)[rng.choice(KEYS, N, p=share / share.sum())]


def _database(convert: Any = pa.array) -> nile.Database:
    db = nile.connect()
    for seed, name in enumerate("ab"):
        rng = np.random.default_rng(seed + 10)
        ts = np.sort(rng.integers(0, 3_000_000_000, N))
        db.register(name, pa.table({"ts": pa.array(ts).cast(pa.timestamp("ns")), "k": convert(_keys(seed))}), time="ts")
    return db


def _run(db: nile.Database, preference: str, strategy: str, budget: Any, window: Any = WINDOW, **more: Any) -> Any:
    return db.join("a", "b", on="k", window=window).prefer(preference).using(strategy=strategy, **more).run(budget)


def _pairs(answer: Any) -> list[tuple[int, int]]:
    table = answer.to_arrow()
    return list(zip(table["left_ordinal"].to_pylist(), table["right_ordinal"].to_pylist(), strict=True))


@cache
def _all(window: float | None = WINDOW) -> tuple[Array, Array]:
    """By brute force: whether each pair joins, and whether it is an outlier: bool [N, N]."""
    ts = [np.sort(np.random.default_rng(seed + 10).integers(0, 3_000_000_000, N)) for seed in (0, 1)]
    key = [_keys(0), _keys(1)]
    w = 1 << 62 if window is None else int(window * 1e9)
    joins = (key[0][:, None] == key[1][None, :]) & (np.abs(ts[0][:, None] - ts[1][None, :]) <= w)
    outlier = np.zeros_like(joins)
    for left, right in np.argwhere(joins):
        now, k = max(ts[0][left], ts[1][right]), key[0][left]
        last = ts[0][left] > ts[1][right]  # the left one completes the pair; of equal times the right one does
        ends = (
            (left + 1, np.searchsorted(ts[1], now, "left"))
            if last
            else (np.searchsorted(ts[0], now, "right"), right + 1)
        )
        standing = sum(
            int(np.count_nonzero(key[s][np.searchsorted(ts[s], now - w, "left") : ends[s]] == k)) for s in (0, 1)
        )
        outlier[left, right] = standing <= 4
    return joins, outlier


@pytest.mark.parametrize(("preference", "strategy"), thinned(product(PREFERENCES, WAYS), 3))
def test_no_pair_is_false_or_told_twice_and_nobody_is_lost(preference: str, strategy: str) -> None:
    db, (joins, outlier) = _database(), _all()
    for budget in (0.05, 0.2, 0.5, 0.9, nile.Budget(outputs=40)):
        answer = _run(db, preference, strategy, budget)
        pairs = _pairs(answer)
        assert len(set(pairs)) == len(pairs)
        allowed = outlier if preference == "asc" else joins
        assert all(allowed[pair] for pair in pairs)
        for told in answer.accounting.values():
            assert told.tuples_in == told.applied + told.shed == N
        if isinstance(budget, nile.Budget):
            assert len(pairs) <= 40


@pytest.mark.parametrize("window", [WINDOW, None])
@pytest.mark.parametrize("strategy", thinned(["auto", "exact", "counts", "keys"], 2))
def test_the_whole_budget_gives_the_whole_answer(strategy: str, window: float | None) -> None:
    db, (joins, outlier) = _database(), _all(window)
    for preference in PREFERENCES:
        wanted = {tuple(map(int, pair)) for pair in np.argwhere(outlier if preference == "asc" else joins)}
        answer = _run(db, preference, strategy, 1.0, window)
        assert set(_pairs(answer)) == wanted
        told = answer.estimate
        assert told.value == len(wanted)
        assert told.high in (len(wanted), np.inf if preference == "asc" and strategy == "keys" else len(wanted))


@pytest.mark.parametrize(
    "budget", [0.3, 0.9, nile.Budget(seconds=5.0), nile.Budget(outputs=3), nile.Budget(deadline=5.0)]
)
@pytest.mark.parametrize("strategy", ["auto", "exact", "counts", "keys"])
def test_asc_estimates_how_many_pairs_of_outliers_there_are(strategy: str, budget: Any) -> None:
    db, (_, outlier) = _database(), _all()
    answer = _run(db, "asc", strategy, budget)
    told = answer.estimate
    found = len(_pairs(answer))
    assert told.certified
    assert found <= told.value <= outlier.sum() <= told.high
    assert told.high in ((np.inf,) if strategy == "keys" else (outlier.sum(), np.inf))
    assert strategy not in ("exact", "counts") or told == nile.Estimate.exact(float(outlier.sum()))


@pytest.mark.parametrize("seeds", rounds(400))
@pytest.mark.parametrize("strategy", thinned(["counts", "keys", "auto"], 3))
def test_weights_are_right_on_average(strategy: str, seeds: int) -> None:
    db, (joins, _) = _database(), _all()
    left = np.nonzero(joins)[0]
    truth = np.array([joins.sum(), (left % 7 == 0).sum(), np.bincount(_keys(0)[left], minlength=KEYS)[7]])
    sums, totals = [], []
    for seed in range(seeds):
        answer = _run(db, "weighted", strategy, 0.7 if strategy == "counts" else 0.35, seed=seed)
        table = answer.to_arrow()
        weight, ordinal = (table[name].to_numpy() for name in ("weight", "left_ordinal"))
        sums.append([weight.sum(), weight[ordinal % 7 == 0].sum(), weight[_keys(0)[ordinal] == 7].sum()])
        totals.append(answer.estimate.value)
    found = np.array(sums)
    error = found.std(axis=0, ddof=1) / np.sqrt(len(sums))
    assert (np.abs(found.mean(axis=0) - truth) <= 3.0 * error + 1e-9).all()
    assert abs(np.mean(totals) - truth[0]) <= 3.0 * np.std(totals, ddof=1) / np.sqrt(len(totals)) + 1e-9


@pytest.mark.parametrize("preference", PREFERENCES)
def test_more_budget_finds_no_less_and_the_same_seed_the_same(preference: str) -> None:
    db, (joins, outlier) = _database(), _all()
    whole = int((outlier if preference == "asc" else joins).sum())
    found = []
    for budget in (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0):
        answer = _run(db, preference, "auto", budget)
        assert answer.to_arrow().equals(_run(db, preference, "auto", budget).to_arrow())
        pairs = answer.to_arrow()["weight"].to_numpy().shape[0]
        paid = answer.budget.fraction <= 1.1 * budget
        # A pass over the input costs more: as much was spent, or where that is a third of it, all; and that is said.
        assert paid or pairs == whole or answer.budget.fraction < 0.4
        assert paid or any("a pass over the" in warning for warning in answer.warnings)
        found.append(pairs)
    assert found[-1] == whole
    if preference != "weighted":
        assert found == sorted(found)


@pytest.mark.parametrize(
    "convert",
    [
        lambda keys: pa.array([f"key {key}" for key in keys]),
        lambda keys: pa.array([f"key {key}" for key in keys]).dictionary_encode(),
        lambda keys: pa.array(keys * 0.5),
        lambda keys: pa.array(keys.astype(np.int32), mask=keys % 11 == 0),
        lambda keys: pa.array([None if key % 11 == 0 else f"key {key}" for key in keys]),
        lambda keys: pa.nulls(len(keys)),
    ],
)
def test_keys_of_every_type(convert: Any) -> None:
    db = _database(convert)
    exact = set(_pairs(db.join("a", "b", on="k", window=WINDOW).run()))
    for strategy in ("counts", "keys"):
        for preference in PREFERENCES:
            answer = _run(db, preference, strategy, 0.5)
            assert set(_pairs(answer)) <= exact
            for told in answer.accounting.values():
                assert told.tuples_in == told.applied + told.shed
        assert set(_pairs(_run(db, "desc", strategy, 1.0))) == exact


def test_sql_names_a_strategy_and_the_answer_tells_what_stood_to_choose() -> None:
    db = _database()
    text = f"SELECT a.k, b.ts FROM a, b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW {WINDOW}"
    whole = len(_pairs(db.join("a", "b", on="k", window=WINDOW).run()))
    assert 0 < len(db.sql(text, budget=0.5, strategy="keys").to_arrow()) < whole
    assert "strategy keys" in db.sql(f"EXPLAIN {text}", budget=0.5, strategy="keys").to_arrow().to_pylist().__repr__()
    answer = _run(db, "desc", "auto", 0.5)
    told = answer.strategy
    assert all(f" {way}: " in told for way in ("exact", "counts", "keys", "prefix", "summary", "promise"))
    assert told.count("*") == 1


def test_the_best_that_is_paid_for_is_chosen() -> None:
    db = _database()
    answer = _run(db, "desc", "auto", 0.5)
    for grant in (1e3, 1e5, 1e12):
        best = choose(answer._join.choice.candidates, grant)
        finding = ("counts", "keys", "prefix")
        assert best.strategy in ("exact", *finding)
        paid = [each for each in answer._join.choice.candidates if each.cost <= grant and each.strategy in finding]
        assert best.cost <= grant or (best.strategy == "exact" and not any(each.quality for each in paid))


@pytest.mark.parametrize(
    ("cost", "found", "best"),
    [
        (100.0, 0.8, "exact"),
        (100.0, 0.99, "exact"),
        (80.0, 0.81, "keys"),
        (80.0, 0.75, "exact"),
        (60.0, 0.75, "keys"),
        (100.0, 0.996, "keys"),
        (100.0, 1.0, "keys"),
    ],
)
def test_the_whole_answer_is_taken_for_a_little_more_unless_a_part_clearly_finds_more_for_its_cost(
    cost: float, found: float, best: str
) -> None:
    exact, keys = Forecast("exact", 115.0, 100.0, 1.0, ""), Forecast("keys", cost, 100.0 * found, found, "")
    assert choose([exact, keys], 100.0, 20.0).strategy == best
    assert choose([exact, keys], 100.0, 10.0).strategy == "keys"


@pytest.mark.parametrize("fraction", [0.02, 0.1, 0.5, 0.9])
def test_a_prefix_has_every_pair_of_what_comes_first(fraction: float) -> None:
    db = _database()
    every = _pairs(db.join("a", "b", on="k", window=WINDOW).run())
    answer = _run(db, "desc", "prefix", fraction)
    found = _pairs(answer)
    came = [each.tuples_in - each.shed for each in answer.accounting.values()]
    assert fraction == 0.9 or sum(came) < sum(each.tuples_in for each in answer.accounting.values())
    assert answer.budget.fraction <= 1.1 * max(fraction, 0.1)  # a look alone costs so much of so small a join
    assert set(found) == {(left, right) for left, right in every if left < came[0] and right < came[1]}
    assert all(each.tuples_in == each.applied + each.shed for each in answer.accounting.values())
    assert answer.estimate.low <= len(every) <= answer.estimate.high


def test_an_estimate_needs_no_pair() -> None:
    answer = _run(_database(), "desc", "summary", 0.5)
    truth = _all()[0].sum()
    assert len(answer.to_arrow()) == 0
    assert answer.estimate.low <= truth <= answer.estimate.high


def test_what_no_strategy_can_do_is_refused() -> None:
    db = _database()
    query = db.join("a", "b", on="k", window=WINDOW).prefer("desc")
    with pytest.raises(ConfigError, match=r"needed preference desc with 'prefix'.*got 'weighted'"):
        query.prefer("weighted").using(strategy="prefix").run(0.5)
    with pytest.raises(ConfigError, match="strategy: needed one of auto"):
        query.using(strategy="best").run(0.5)
    with pytest.raises(ConfigError, match="got output 'ranges'"):
        query.returning("ranges").using(strategy="auto").run(0.5)
    with pytest.raises(ConfigError, match="got method 'paper'"):
        query.using(strategy="auto", method="paper").run(0.5)


def test_a_small_input_is_answered_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "machine_prices", lambda: replace(PRICES, start=1e7))
    answer = _run(_database(), "desc", "auto", 0.05)
    assert len(answer.to_arrow()) == _all()[0].sum() == answer.estimate.value


def test_aggregates_over_a_sample_of_keys() -> None:
    db, (joins, _) = _database(), _all()
    query = db.join("a", "b", on="k", window=WINDOW).prefer("weighted").using(strategy="keys")
    table = query.aggregate({"n": "count(*)", "most": "max(a.k)"}).run(0.5).to_arrow()
    assert 0.5 < table["n"][0].as_py() / joins.sum() < 2.0


def test_a_budget_in_outputs_draws_as_many_as_it_says() -> None:
    db, (joins, _) = _database(), _all()
    for preference in ("weighted", "desc"):
        answer = _run(db, preference, "auto", nile.Budget(outputs=20))
        assert len(_pairs(answer)) == 20
        assert answer.estimate.value == joins.sum()
    weights = [
        sum(_run(db, "weighted", "auto", nile.Budget(outputs=20), seed=s).to_arrow()["weight"].to_pylist())
        for s in (1, 2)
    ]
    assert weights == pytest.approx([joins.sum()] * 2, rel=0.06)


def test_a_budget_in_outputs_of_three_streams_draws_as_many_from_all() -> None:
    db = _database()
    db.register(
        "c", pa.table({"ts": pa.array(np.arange(300) * 10**7).cast(pa.timestamp("ns")), "k": _keys(2)[:300]}), time="ts"
    )
    query = db.join("a", "b", "c", on="k", window=WINDOW).prefer("weighted")
    whole = len(query.run().to_arrow())
    answer = query.run(nile.Budget(outputs=20))
    rows = answer.to_arrow()
    assert rows.num_rows == 20 < whole
    assert answer.estimate == nile.Estimate.exact(float(whole))
    assert sum(rows["weight"].to_pylist()) == pytest.approx(whole)
