"""Selections within time: conditions are answered at once, and what satisfies them comes by the preference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.answers.selection_answer import SelectionAnswer
from nile.operators.strategies import selected
from nile.operators.strategies.machine_prices import machine_prices
from nile.preferences.budget import Budget

AMPLE = (Budget(seconds=600.0), Budget(deadline=600.0), Budget(seconds_per_tuple=1.0))
PREDICATES = {"few": "k < 6", "other": "v < .2", "both": "k % 3 = 1 AND v > .5", "null": "k IS NULL", "none": "k > 999"}


def database(n: int) -> nile.Database:
    db = nile.connect()
    rng = np.random.default_rng(3)
    key = pa.array(rng.zipf(1.3, n) % 40, mask=rng.random(n) < 0.05)
    db.register("s", pa.table({"t": np.arange(n) * 1.0, "k": key, "v": rng.random(n)}), time="t")
    return db


def found(answer: Any) -> dict[str, list[int]]:
    return {name: sorted(answer.ordinals(name).tolist()) for name in PREDICATES}


@pytest.mark.parametrize("preference", ["desc", "asc", "weighted"])
@pytest.mark.parametrize("promise", ["share", "value"])
def test_time_enough_finds_what_the_exact_answer_has(preference: str, promise: str) -> None:
    query = database(3_000).select("s", on="k", predicates=PREDICATES).prefer(preference, by=promise)
    whole = query.run(1.0)
    for budget in AMPLE:
        answer = query.run(budget)
        assert found(answer) == found(whole)
        assert answer.exact == whole.exact == {name: len(each) for name, each in found(whole).items()}
        assert answer.figures.outputs == sum(map(len, found(whole).values()))
        assert answer.budget.unit == budget.unit
        assert 0.0 < answer.budget.spent < budget.amount
        assert answer.budget.fraction == pytest.approx(1.0)
        assert answer.accounting.shed == 0
        assert all(share == 1.0 for share in answer.shares.values() if share is not None)


def test_the_values_with_most_tuples_come_first() -> None:
    db = database(4_000)
    for preference, sign in (("desc", -1), ("asc", 1)):
        for promise in ("share", "value"):
            query = db.select("s", on="k", predicates={"q": "v < .4"}).prefer(preference, by=promise)
            table = query.run(AMPLE[0]).to_arrow("q")
            keys = table["k"].to_pylist()
            often = {key: keys.count(key) * (1 if promise == "share" else abs(key or 0)) for key in set(keys)}
            worth = [sign * often[key] for key in keys]
            assert worth == sorted(worth)
    drawn = db.select("s", on="k", predicates={"q": "v < .4"}).prefer("weighted").run(AMPLE[0]).ordinals("q")
    assert np.corrcoef(np.arange(drawn.shape[0]), drawn)[0, 1] < 0.1
    again = db.select("s", on="k", predicates={"q": "v < .4"}).prefer("weighted").run(AMPLE[0]).ordinals("q")
    assert again.tolist() == drawn.tolist()


def test_queries_take_turns_until_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selected, "_ROOM", 20)
    query = database(3_000).select("s", on="k", predicates=PREDICATES).prefer("desc")
    answer = query.run(Budget(seconds=600.0))
    looks = iter([0.0] * 6 + [1e12] * 100)

    class Over:
        """A clock that is over after some looks."""

        cpu = 7

        @property
        def elapsed(self) -> float:
            return next(looks)

    answer._operator._clock = Over()
    parts = list(answer._operator.run())
    assert [len(part) for part in parts] == [4] * 7
    assert [int(part.query[0]) for part in parts] == [0, 1, 2, 3, 0, 1, 2]


def test_a_least_is_told_by_what_it_took() -> None:
    n = 60_000
    db = nile.connect()
    values = np.random.default_rng(1).random(
        n
    )  # nearly all of them are distinct, which takes longer than is known before
    db.register("s", pa.table({"t": np.arange(n) * 1.0, "v": values}), time="t")
    text = "SELECT * FROM s WHERE v < .3 WITH PREFERENCE desc v"
    assert len(db.sql(text, budget=Budget(seconds=60.0)).to_arrow()) == int((values < 0.3).sum())
    prices = machine_prices()
    before = 1e-9 * n * (prices.seen + prices.look + prices.table)
    with pytest.raises(nile.BudgetError, match=f"seconds to pass over {n:,} tuples and find anything") as told:
        db.sql(text, budget=Budget(seconds=1.05 * before)).to_arrow()
    assert float(str(told.value).split("at least ")[1].split()[0]) > before
    assert str(told.value).endswith("; allow as much")


def test_what_is_played_back_or_told_as_ranges_goes_tuple_by_tuple() -> None:
    query = database(2_000).select("s", on="k", predicates=PREDICATES)
    for one in (query.using(output="ranges"), query.using(method="naive")):
        answer = one.run(Budget(seconds=600.0))
        assert isinstance(answer, SelectionAnswer)
        assert not isinstance(answer._operator, selected.TimedSelections)
        assert found(answer) == found(query.run(1.0))
