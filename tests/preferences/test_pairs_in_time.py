"""Pairs of two streams under a condition, within time: those of the exact answer, the best first, none made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.operators.strategies import choice, tested
from nile.operators.strategies.prices import PRICES
from nile.preferences.budget import Budget
from nile.summaries.errors import BudgetError

AMPLE = (Budget(seconds=600.0), Budget(deadline=600.0), Budget(seconds_per_tuple=1.0))
WHERE = ("a.v < b.v", "a.v < b.v and a.k <> 3", "a.v + b.v > 1.0 or b.v is null")


def database(n: int, *, text: bool = False, keys: int = 40) -> nile.Database:
    db = nile.connect()
    for seed, name in enumerate("ab"):
        rng = np.random.default_rng(seed)
        k, v = rng.zipf(1.3, n) % keys, rng.random(n)
        key = pa.array(k, mask=rng.random(n) < 0.05)
        ts = np.sort(rng.integers(0, n, n)).astype(np.float64)
        given = {"t": ts, "k": key.cast(pa.string()) if text else key, "v": pa.array(v, mask=v > 0.97)}
        db.register(name, pa.table(given), time="t")
    return db


def rows(answer: Any) -> list[tuple[Any, ...]]:
    table = answer.to_arrow().drop_columns(["weight"])
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("preference", ["desc", "asc"])
@pytest.mark.parametrize("where", WHERE)
def test_time_enough_finds_what_the_whole_budget_finds(where: str, preference: str) -> None:
    db = database(700, keys=400 if preference == "asc" else 40)
    query = db.join("a", "b", on="k", window="90 s", where=where).prefer(preference)
    whole = query.using(costs="engine").run(1.0)
    for budget in AMPLE:
        answer = query.using(costs="machine").run(budget)
        assert rows(answer) == rows(whole) != []
        assert answer.strategy
        assert answer.figures.candidates > answer.figures.outputs == len(rows(whole))
        assert answer.recall == 1.0
        assert answer.estimate.low == len(rows(whole))
        assert answer.budget.unit == budget.unit


def test_members_are_told_by_their_places_whoever_asks() -> None:
    db = database(700, text=True)
    query = db.join("a", "b", on="k", window="90 s", where=WHERE[0]).prefer("desc").using(costs="machine")
    answer, whole = query.run(AMPLE[0]), query.using(costs="engine").run(1.0)
    asked = {"n": "count(*)", "m": "max(a.v)"}
    tables = [each.aggregate(asked, by="a.k").to_arrow().select(["a.k", "n", "m"]) for each in (answer, whole)]
    found, every = (sorted((row["a.k"], row["n"], row["m"]) for row in table.to_pylist()) for table in tables)
    assert found == every != []
    last = [sorted(each.completions()[0].tolist()) for each in (answer, whole)]
    assert last[0] == last[1]
    sql = "SELECT a.v, b.v AS w FROM a, b WHERE a.k = b.k AND a.v < b.v WINDOW '90 s' WITH PREFERENCE desc a.k"
    out = db.sql(sql, budget=AMPLE[0], costs="machine").to_arrow().to_pylist()
    assert len(out) == len(rows(whole))
    assert all(row["v"] < row["w"] for row in out)


def test_what_is_found_in_less_time_is_of_the_exact_answer() -> None:
    db = database(20_000)
    query = db.join("a", "b", on="k", window="400 s", where=WHERE[0])
    every = query.run().to_arrow()
    found = []
    for seconds in (0.05 / 2**i for i in range(12)):  # until this machine, however fast, has too little for all
        try:
            table = query.prefer("desc").using(costs="machine").run(Budget(seconds=seconds)).to_arrow()
        except BudgetError:
            break
        found.append(len(table))
        if 0 < len(table) < len(every):
            break
    assert 0 < found[-1] < len(every), found
    a, b = (db.sql(f"SELECT v FROM {name}").to_arrow()["v"] for name in "ab")
    v, w = a.take(table["left_ordinal"]), b.take(table["right_ordinal"])
    assert all(x < y for x, y in zip(v.to_pylist(), w.to_pylist(), strict=True))


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is granted beside a fraction, and asking is what pairs cost."""
    for each in (choice, tested):
        cheap = replace(PRICES, start=0.0, begin=0.0, solve=0.0, seen=2.0, weigh=0.2, asked=20.0)
        monkeypatch.setattr(each, "machine_prices", lambda cheap=cheap: cheap)


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize("preference", ["desc", "asc"])
@pytest.mark.parametrize("where", WHERE)
def test_more_of_the_exact_cost_finds_no_less_and_no_pair_of_its_own(where: str, preference: str) -> None:
    db = database(6_000, keys=3_000 if preference == "asc" else 40)
    query = db.join("a", "b", on="k", window="60 s", where=where).prefer(preference)
    whole = set(rows(query.using(costs="engine").run(1.0)))
    machine, found = query.using(costs="machine"), []
    for fraction in (0.1, 0.3, 0.6, 0.9):
        answer = machine.run(fraction)
        found.append(set(rows(answer)))
        assert found[-1] <= whole
        assert rows(machine.run(fraction)) == rows(answer)
        assert "* " in answer.strategy
        assert answer.budget.spent <= 1.05 * fraction or found[-1] == whole
    assert sorted(map(len, found)) == [len(each) for each in found]
    assert found[0]
    assert len(found[0]) < len(whole) or preference == "asc"  # a tenth of all pairs is more than outliers take
    assert rows(machine.run(AMPLE[0]).again(0.3)) == rows(machine.run(0.3))


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize("fraction", [0.2, 0.5])
def test_a_sample_of_a_fraction_has_weights_of_the_whole(fraction: float) -> None:
    db = database(1_500)
    query = db.join("a", "b", on="k", window="60 s", where=WHERE[2]).prefer("weighted").using(costs="machine")
    answer = query.run(fraction)
    whole, seeds = answer.exact_outputs, 60
    assert answer.figures.outputs < whole
    told = [answer.again(seed=seed).estimate.value for seed in range(seeds)]
    assert abs(np.mean(told) - whole) <= 3.0 * np.std(told, ddof=1) / seeds**0.5


def test_by_tuples_a_fraction_has_no_contestants() -> None:
    query = database(700).join("a", "b", on="k", window="90 s", where=WHERE[0]).prefer("desc").using(costs="engine")
    assert query.run(0.3).strategy == ""


@pytest.mark.parametrize("preference", ["desc", "asc"])
def test_no_time_is_refused_before_a_pair_is_looked_for(preference: str) -> None:
    db = database(20_000)
    query = db.join("a", "b", on="k", window="90 s", where=WHERE[0]).prefer(preference).using(costs="machine")
    for budget in (Budget(seconds=1e-6), Budget(deadline=1e-6)):
        with pytest.raises(BudgetError, match=r"needed .* seconds .* 40,000 tuples .*; allow as much$"):
            query.run(budget)


@pytest.mark.parametrize("unit", ["seconds", "deadline", "seconds_per_tuple"])
def test_no_candidate_is_asked_before_a_sample_is_drawn_in_time(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    db = database(2_000)
    query = db.join("a", "b", on="k", window="90 s", where=WHERE[0]).prefer("weighted")

    def refuse(*_: Any) -> Any:
        raise AssertionError("the exact answer was made to price it")

    whole = len(query.using(costs="engine").run(1.0).to_arrow())
    monkeypatch.setattr("nile.exact.join.clique.ExactClique.passing", refuse)
    answer = query.run(Budget.of(unit, 600.0))
    assert len(answer.to_arrow()) > 0
    assert answer.estimate.value == pytest.approx(whole, rel=0.3)


@pytest.mark.parametrize("preference", ["desc", "asc", "weighted"])
def test_pairs_that_pass_by_are_told_once_and_those_that_are_held_as_often_as_asked(
    preference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nile.answers.kept_outputs._MOST_PASSING", 1)
    query = database(9_000, keys=400).join("a", "b", on="k", window="90 s").prefer(preference).using(costs="machine")
    held = query.run(AMPLE[0])
    assert held.budget.spent > 0.0
    assert held.to_arrow().equals(held.to_arrow())
    assert sum(map(len, held.batches())) == len(held.to_arrow()) > 0
    passing = query.run(AMPLE[0])
    assert sum(map(len, passing.batches())) == len(held.to_arrow())
    assert passing.estimate == held.estimate
    assert passing.budget.asked == AMPLE[0].seconds
    with pytest.raises(nile.MemoryRefused, match="read batches"):
        passing.to_arrow()
