"""Under a fade factor strategies look for partners as far back as pays: true pairs, each once, worth no less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nile
from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.strategies import choice
from nile.operators.strategies.choice import Reach, reaches
from nile.operators.strategies.prices import PRICES
from nile.preferences.budget import Budget
from nile.preferences.fade import Fade
from nile.summaries.heavy import pa

N, KEYS, WINDOW = 20_000, 300, 400
WAYS = ("auto", "counts", "keys", "prefix")


@pytest.fixture(autouse=True)
def _without_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs as small as these would be answered whole."""
    monkeypatch.setattr(choice, "machine_prices", lambda: replace(PRICES, start=0.0, begin=0.0, solve=0.0, weigh=0.5))


@pytest.fixture(scope="module")
def db() -> Iterator[nile.Database]:
    share = 1.0 / np.arange(1, KEYS + 1) ** 0.8
    with nile.connect() as made:
        for seed, name in enumerate("ab"):
            rng = np.random.default_rng(seed)
            keys = rng.choice(KEYS, N, p=share / share.sum())
            made.register(name, pa.table({"ts": np.sort(rng.integers(0, 4_000, N)), "k": keys}), time="ts")
        yield made


def ages(db: nile.Database, fade: float, way: str, budget: float | str = 0.35) -> Any:
    """Of the pairs found, all true and different, in parts of the window."""
    asked = db.join("a", "b", on="k", window=WINDOW).prefer("desc", fade=fade).using(strategy=way, costs="machine")
    found = asked.run(budget)
    told = found.to_arrow()
    left, right = (told[f"{side}_ordinal"].to_numpy() for side in ("left", "right"))
    streams = [db.sql(f"SELECT ts, k FROM {name}").to_arrow() for name in "ab"]
    (left_ts, left_k), (right_ts, right_k) = (
        (stream["ts"].to_numpy().astype(np.int64), stream["k"].to_numpy()) for stream in streams
    )
    assert np.unique(left * N + right).shape[0] == left.shape[0]
    assert (left_k[left] == right_k[right]).all()
    age = np.abs(left_ts[left] - right_ts[right]) / WINDOW
    assert age.max(initial=0.0) <= 1.0
    return age


@pytest.mark.parametrize("way", WAYS)
def test_pairs_under_a_fade_factor_are_true_and_worth_no_less_than_without(db: nile.Database, way: str) -> None:
    for fade in (0.9, 0.5, 0.1):
        worth = [np.where(ages(db, each, way) <= 0.25, 1.0, fade).sum() for each in (1.0, fade)]
        assert worth[1] >= 0.97 * worth[0]
    assert worth[1] >= 1.1 * worth[0]
    assert ages(db, 0.1, way).max() <= 0.25  # what lies back is worth a tenth
    assert ages(db, 0.1, way).shape == ages(db, 0.1, way).shape


def test_all_is_found_where_all_is_paid_for(db: nile.Database) -> None:
    whole = db.join("a", "b", on="k", window=WINDOW).run().to_arrow().num_rows
    assert ages(db, 0.1, "auto", 1.0).shape[0] == ages(db, 0.1, "counts", "100 seconds").shape[0] == whole


def test_a_reach_is_worth_what_its_pairs_are_on_average() -> None:
    plan = JoinPlan(
        window=400, budget=Budget(0.1), fade=Fade(0.5), spec=default_spec(400, rate=2, depth=3), preference="desc"
    )
    assert reaches(plan, 9_999) == [  # granularities of 100, 200 and what is left of the window
        Reach(400, (100 + 0.5 * 200 + 0.25 * 100) / 400),
        Reach(100, 1.0, "of the youngest 25% of the window "),
        Reach(300, (100 + 0.5 * 200) / 300, "of the youngest 75% of the window "),
    ]
    assert reaches(replace(plan, fade=Fade(1.0)), 9_999) == [Reach(400, 1.0)]
    assert reaches(replace(plan, window=None), 150) == [
        Reach(None, (100 + 0.5 * 50) / 150),
        Reach(100, 1.0, "of the youngest 67% of the window "),
    ]


def test_outputs_by_number_are_not_counted_before_they_are_made(db: nile.Database) -> None:
    asked = db.join("a", "b", on="k", window=WINDOW).prefer("desc", fade=0.5).using(costs="machine")
    assert asked.run(nile.Budget(outputs=5_000)).to_arrow().num_rows <= 5_000
    assert "strategy auto" in asked.explain(0.1)
    assert "strategy" not in asked.explain(nile.Budget(outputs=5_000))
