"""Weighted joins of n streams and of graphs of windows: true combinations, within budgets, and right in the mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.operators.multiway.rates import planned

WINDOWS = {
    "clique": "WINDOW 20",
    "graph": "WINDOW (a, b) = 10 AND (b, c) = 25",
    "path": "DWINDOW (a, b) = 15 AND (b, c) = 15",
}
BASE = "SELECT a.n AS x, b.n AS y, c.n AS z FROM sa a, sb b, sc c WHERE a.item = b.item AND b.item = c.item "
DEVIATIONS = 3.0


def database(n: int, keys: int, zipf: float) -> nile.Database:
    db = nile.connect()
    for number, name in enumerate("abc", 1):
        draw = np.random.default_rng(number)
        item = draw.zipf(zipf, n) % keys if zipf else draw.integers(0, keys, n)
        table = pa.table({"ts": np.sort(draw.random(n)) * n, "item": item, "n": np.arange(n)})
        db.register(f"s{name}", table, time="ts")
    return db


def totals(db: nile.Database, shape: str, budget: float, seeds: int) -> tuple[int, Any]:
    exact = {tuple(row.values()) for row in db.sql(BASE + WINDOWS[shape]).to_arrow().to_pylist()}
    found = []
    for seed in range(seeds):
        result = db.sql(f"{BASE} {WINDOWS[shape]} WITH PREFERENCE weighted a.item BUDGET {budget}", seed=seed)
        rows = result.to_arrow()
        drawn = list(zip(*(rows.column(name).to_pylist() for name in "xyz"), strict=True))
        assert len(set(drawn)) == len(drawn)
        assert exact.issuperset(drawn)
        assert result.budget.spent <= budget * (1 + 1e-9)
        found.append(sum(rows.column("_weight").to_pylist()))
    return len(exact), np.array(found)


def off(exact: int, found: Any) -> float:
    """How many standard errors the mean is off."""
    return float((found.mean() - exact) / max(1e-9, found.std(ddof=1) / np.sqrt(found.shape[0])))


@pytest.mark.parametrize("shape", sorted(WINDOWS))
@pytest.mark.parametrize("budget", [0.05, pytest.param(0.2, marks=pytest.mark.slow), 0.5])
def test_the_mean_of_the_weights_is_right(shape: str, budget: float) -> None:
    exact, found = totals(database(400, 60, 1.4), shape, budget, 40)
    assert abs(off(exact, found)) < DEVIATIONS


@pytest.mark.long
@pytest.mark.parametrize("shape", sorted(WINDOWS))
@pytest.mark.parametrize("keys", [(20, 0.0), (100, 1.4)])
def test_the_mean_is_right_over_two_hundred_seeds(shape: str, keys: tuple[int, float]) -> None:
    db = database(600, *keys)
    for budget in (0.05, 0.2, 0.5):
        exact, found = totals(db, shape, budget, 200)
        assert abs(off(exact, found)) < DEVIATIONS, budget


def test_rates_that_are_planned_can_be_paid_and_leave_nothing_that_is_free() -> None:
    draw = np.random.default_rng(1)
    for _ in range(200):
        n, streams = int(draw.integers(1, 400)), int(draw.integers(2, 6))
        emitting = draw.exponential(1.0, n) * draw.integers(0, 2, n) * 10 ** draw.uniform(0, 5)
        key = draw.integers(-1, 30, n)
        taking, price = 3_000.0, 1_000.0
        exact = emitting.sum() + taking * (key >= 0).sum()
        granted = float(draw.random() * exact)
        level, kept, rate = planned(emitting, key, granted, taking, price, streams)
        assert 0.0 < level <= 1.0
        assert 0.0 < kept <= 1.0
        assert 0.0 < rate <= 1.0
        spent = level * kept * taking * (key >= 0).sum() + level * kept**streams * rate * emitting.sum()
        assert spent <= granted or rate == 1e-9 or emitting.sum() == 0.0
    assert planned(np.ones(10), np.zeros(10, int), 1e9, 1.0, 1.0, 3) == (1.0, 1.0, 1.0)


PLAIN = {**WINDOWS, "condition": "AND a.n <= b.n WINDOW 20", "nothing": "AND a.n < 0 - b.n WINDOW 20"}


@pytest.mark.parametrize("shape", sorted(PLAIN))
@pytest.mark.parametrize("asked", [1, 30, 1_000_000])
def test_a_sample_of_so_many_outputs_is_drawn_evenly_from_all(shape: str, asked: int) -> None:
    db = database(120, 12, 0.0)
    exact = [tuple(row.values()) for row in db.sql(BASE + PLAIN[shape]).to_arrow().to_pylist()]
    place = {each: at for at, each in enumerate(sorted(exact))}
    means = []
    for seed in range(40 if asked < len(exact) else 1):
        result = db.sql(f"{BASE} {PLAIN[shape]} WITH PREFERENCE weighted a.item BUDGET {asked} OUTPUTS", seed=seed)
        rows = result.to_arrow()
        drawn = [place[each] for each in zip(*(rows.column(name).to_pylist() for name in "xyz"), strict=True)]
        assert len(set(drawn)) == len(drawn) == min(asked, len(exact)) == result.budget.spent
        weights = rows.column("_weight").to_numpy()
        assert weights == pytest.approx(len(exact) / max(1, len(drawn)))
        assert result.estimate == nile.Estimate.exact(float(len(exact)))
        assert not result.warnings
        means.append(float(np.mean(drawn)) if drawn else 0.0)
    whole = max(1, len(exact))
    error = np.sqrt((whole**2 - 1) / 12 / (min(asked, whole) * len(means)))
    assert abs(np.mean(means) - (whole - 1) / 2 * bool(exact)) <= DEVIATIONS * error


@pytest.mark.parametrize("fade", ["", "FADE FACTOR 0.5"])
def test_aggregates_of_so_many_outputs_stand_for_all_pairs(fade: str) -> None:
    db = database(400, 60, 1.4)
    plain = "FROM sa a, sb b WHERE a.item = b.item AND a.n < b.n WINDOW 20"
    exact = len(db.sql(f"SELECT a.n {plain}"))
    told = db.sql(f"SELECT count(*) AS pairs {plain} WITH PREFERENCE weighted a.item {fade} BUDGET 50 OUTPUTS")
    assert told.fetchall() == [(exact,)]
