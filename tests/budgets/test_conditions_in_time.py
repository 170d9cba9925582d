"""Samples of pairs under a condition, within time, and what is made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.operators.strategies import tested
from nile.operators.strategies.choice import Choice
from nile.preferences.budget import Budget
from nile.preferences.key_sample import KeySample

AMPLE = (Budget(seconds=600.0), Budget(deadline=600.0))
WHERE = "a.v < b.v"


def database(n: int, *, keys: int = 60) -> nile.Database:
    db = nile.connect()
    for seed, name in enumerate("ab"):
        rng = np.random.default_rng(seed)
        given = {"t": np.arange(n) * 1.0, "k": rng.zipf(1.3, n) % keys, "v": rng.random(n)}
        db.register(name, pa.table(given), time="t")
    return db


def pairs(answer: Any) -> list[tuple[int, int]]:
    table = answer.to_arrow()
    return sorted(zip(table["left_ordinal"].to_pylist(), table["right_ordinal"].to_pylist(), strict=True))


def test_time_enough_finds_every_pair() -> None:
    query = database(800).join("a", "b", on="k", window="90 s", where=WHERE)
    whole = pairs(query.run())
    for budget in AMPLE:
        answer = query.prefer("weighted").using(costs="machine").run(budget)
        assert pairs(answer) == whole != []
        assert set(answer.to_arrow()["weight"].to_pylist()) == {1.0}
        assert answer.estimate.low <= len(whole) <= answer.estimate.high
        assert answer.strategy


@pytest.mark.parametrize("way", ["counts", "keys"])
def test_a_sample_tells_how_many_there_are_and_groups(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Choice, "way", way)
    monkeypatch.setattr(tested, "asking", lambda *_: (2_000.0, 0.5))  # so that hardly all are paid for
    query = database(20_000).join("a", "b", on="k", window="200 s", where=WHERE)
    whole = len(query.run().to_arrow())
    answer = query.prefer("weighted").using(costs="machine").run(Budget(seconds=0.1))
    found = answer.to_arrow()
    assert 0 < len(found) < whole
    assert answer.estimate.low <= whole <= answer.estimate.high
    assert answer.estimate.value == pytest.approx(found["weight"].to_numpy().sum())
    groups = answer.aggregate({"n": "count(*)"}, by="a.k").to_arrow()
    assert sum(groups["n"].to_pylist()) == pytest.approx(answer.estimate.value)


def test_asking_a_pair_is_measured_and_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    query = database(20_000).join("a", "b", on="k", window="200 s", where=WHERE).prefer("weighted")
    found = []
    for asking in (0.0, 20_000.0):
        monkeypatch.setattr(tested, "asking", lambda *_, asking=asking: (asking, 0.5))
        found.append(len(query.using(costs="machine").run(Budget(seconds=0.1)).to_arrow()))
    assert found[1] < 0.5 * found[0]
    monkeypatch.undo()
    for n in (0, 20):
        answer = database(n).join("a", "b", on="k", window="200 s", where=WHERE).prefer("desc")
        joined = answer.using(costs="machine").run(Budget(seconds=9.0)).joined
        ns, share = tested.asking(joined, 1)
        assert (ns > 0.0) == (n > 0)
        assert 0.3 < share <= 1.0


@pytest.mark.parametrize("where", ["", " AND a.v < b.v"])
@pytest.mark.parametrize("preference", ["desc", "weighted"])
def test_what_is_too_much_to_keep_is_aggregated_as_it_was_found(
    preference: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nile.answers.kept_outputs._MOST_KEPT", 1)
    db = database(60_000)
    text = (
        f"SELECT a.k, count(*) AS n FROM a, b WHERE a.k = b.k{where} GROUP BY a.k WINDOW '300 s' "
        f"WITH PREFERENCE {preference}"
    )
    result = db.sql(text, budget=Budget(seconds=0.2), costs="machine")
    assert sum(result.to_arrow()["n"].to_pylist()) > 0


def test_where_no_key_was_dropped_the_variance_is_that_of_outputs_alone() -> None:
    rng = np.random.default_rng(5)
    n, groups = 500, 7
    weight, key = 1.0 + rng.random(n), rng.integers(0, 90, n)
    amount, group = rng.normal(size=n), rng.integers(0, groups, n)
    variance, freedom = KeySample(weight, np.ones(n), key).spread(amount, group, groups)
    own = np.bincount(group, weight * (weight - 1.0) * amount**2, groups)
    assert variance == pytest.approx(own)
    assert np.isinf(freedom).all()
    # Hardly any was: nearly the same.
    near, _ = KeySample(weight, np.full(n, 1.0 - 1e-9), key).spread(amount, group, groups)
    assert near == pytest.approx(own, rel=1e-4)
