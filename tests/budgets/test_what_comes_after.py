"""Aggregating what a join finds is part of the time that was given for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.answers import join_query
from nile.operators.drive.clock import Clock
from nile.operators.strategies.after import NOTHING, After, Owing, keys_among
from nile.operators.strategies.prices import PRICES
from nile.preferences.budget import Budget

AGGREGATES = {"n": "count(*)", "s": "sum(b.v)"}


def database(n: int, streams: str = "abc") -> nile.Database:
    db = nile.connect()
    for seed, name in enumerate(streams):
        rng = np.random.default_rng(seed)
        given = {"t": np.arange(n) * 1.0, "k": rng.zipf(1.3, n) % 400, "v": rng.random(n)}
        db.register(name, pa.table(given), time="t")
    return db


def test_what_is_owed_counts_as_worked_until_it_is_paid() -> None:
    clock = Clock(Budget(seconds=1.0), cpu=lambda: 100)
    assert (clock.elapsed, clock.worked, clock.cpu) == (0, 1, 0)
    clock.owed = 40.0
    assert (clock.elapsed, clock.worked, clock.cpu) == (40.0, 1, 0)


def test_groups_are_owed_as_often_as_keys_are_found() -> None:
    clock = Clock(Budget(seconds=1.0), cpu=lambda: 0)
    owing = Owing(After(2.0, 100.0), clock)
    owing.found(3)
    assert clock.owed == 3 * 2.0 + 3 * 100.0  # each may be of a key of its own
    owing.among(3, lambda more: min(2, more))
    owing.found(10)
    assert clock.owed == 10 * 2.0 + 5 * 100.0
    Owing(NOTHING, clock).found(10)
    Owing(After(1.0), None).found(10)
    assert clock.owed == 520.0


def test_as_many_are_drawn_as_are_paid_for_with_their_groups() -> None:
    by_key = np.random.default_rng(1).zipf(1.4, 3_000).clip(max=10**6).astype(np.int64)
    found, after = float(by_key.sum()), After(3.0, 500.0)
    for rest in (1e4, 1e6, 1e8):
        drawn = after.paid(rest, 10.0, by_key)
        took = drawn * 10.0 + 500.0 * keys_among(by_key, drawn, found)
        assert took == pytest.approx(rest, rel=0.05)
    assert After(3.0).paid(1e6, 10.0, by_key) == 1e5
    assert after.priced(100.0, 10.0) == 3.0 + 50.0
    assert After.aggregates(PRICES, 2, 1, 0).group == 0.0
    assert After.aggregates(PRICES, 2, 1, 1).group == 2 * PRICES.group


@pytest.mark.parametrize("where", [None, "a.v < b.v"])
@pytest.mark.parametrize("preference", ["desc", "weighted"])
@pytest.mark.parametrize("streams", ["ab", "abc"])
def test_fewer_are_found_where_more_is_done_with_them(
    streams: str, preference: str, where: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = database(30_000).join(*streams, on="k", window="150 s", where=where).prefer(preference)
    found = []
    for dearer in (1.0, 1e5):
        after = After(30.0 * dearer, 100.0 * dearer)
        monkeypatch.setattr(join_query, "After", _Fixed(after))
        asked = query.using(costs="machine").aggregate(AGGREGATES, by="a.k")
        answer = asked.run(Budget(seconds=1.0))
        assert answer.answer.clock is not None
        assert answer.answer.clock.owed == 0.0
        found.append(answer._outputs)
    assert 0 < found[1] < 0.5 * found[0]


class _Fixed:
    """What is done then costs this, whatever it is."""

    def __init__(self, after: After) -> None:
        self._after = after

    def aggregates(self, *_: Any) -> After:
        return self._after


def test_aggregating_is_charged_but_at_prices_of_tuples(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = database(20_000).join("a", "b", on="k", window="150 s").prefer("weighted").using(costs="machine")
    answer = asked.aggregate(AGGREGATES, by="a.k").run(Budget(seconds=0.3))
    pairs = answer.answer.clock
    assert pairs is not None
    before = pairs.cpu
    assert before == pairs.cpu > 0  # at rest
    assert answer.budget.cpu_seconds == pytest.approx(before / 1e9, rel=0.5)
    found: dict[str, list[float]] = {"machine": [], "engine": []}
    for dearer in (1.0, 1e4):
        monkeypatch.setattr(join_query, "After", _Fixed(After(dearer, dearer)))
        for costs, numbers in found.items():
            numbers.append(asked.using(costs=costs).aggregate(AGGREGATES, by="a.k").run(0.3)._outputs)
    assert 0 < found["machine"][1] < found["machine"][0]
    assert found["engine"][0] == found["engine"][1]


def test_aggregates_of_a_fraction_are_right_on_average() -> None:
    asked = database(20_000).join("a", "b", on="k", window="150 s").prefer("weighted").using(costs="machine")
    whole = len(asked.using(costs="engine").run(1.0).to_arrow())
    assert 0 < asked.aggregate({"n": "count(*)"}).run(0.05)._outputs < whole
    every = asked.aggregate({"s": "sum(b.v)"}).run(1.0).to_arrow()["s"][0].as_py()
    numbers = {"n": "count(*)", "s": "sum(b.v)"}
    told = [asked.using(seed=seed).aggregate(numbers).run(0.05).to_arrow() for seed in range(20)]
    for name, truth in (("n", whole), ("s", every)):
        values = [table[name][0].as_py() for table in told]
        assert abs(np.mean(values) - truth) <= 3.0 * np.std(values, ddof=1) / 20**0.5 + 1e-6 * truth
