"""Aggregates over a join to an ERROR: samples of the pairs that grow until their intervals are narrow enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile

TEXT = "SELECT count(*) AS n, sum(b.price) AS p FROM s a, r b WHERE a.item = b.item WINDOW 500"


@pytest.fixture(scope="module")
def db() -> nile.Database:
    made, draw = nile.connect(), np.random.default_rng(3)
    for name in ("s", "r"):
        item = (300 * draw.random(6_000) ** 2).astype(int)
        made.register(name, pa.table({"ts": np.arange(6_000.0), "item": item, "price": draw.random(6_000)}), time="ts")
    return made


def asked(db: nile.Database, rest: str, text: str = TEXT, **options: Any) -> nile.Result:
    result = db.sql(text + rest, costs="engine", **options)
    result.to_arrow()
    return result


@pytest.fixture(scope="module")
def truth(db: nile.Database) -> dict[str, float]:
    """Of two tuples within 500 seconds of each other, brute force."""
    s, r = (db.sql(f"SELECT ts, item, price FROM {name}", emit="append").to_arrow() for name in ("s", "r"))
    at, item, other, price = s["ts"].to_numpy(), s["item"].to_numpy(), r["item"].to_numpy(), r["price"].to_numpy()
    low, high = np.searchsorted(at, at - 500.0), np.searchsorted(at, at + 500.0, side="right")
    found = [low[j] + np.flatnonzero(item[low[j] : high[j]] == other[j]) for j in range(6_000)]
    sizes = np.array([each.shape[0] for each in found])
    return {"n": float(sizes.sum()), "p": float((sizes * price).sum())}


def test_it_comes_within_the_error_for_a_part_of_the_work(db: nile.Database, truth: dict[str, float]) -> None:
    misses, spent = 0, []
    for seed in range(15):
        result = asked(db, " ERROR 0.2", seed=seed)
        answer: Any = result.answer
        (row,) = result.to_arrow().to_pylist()
        assert answer.met
        misses += any(abs(row[name] / truth[name] - 1.0) > 0.2 for name in truth)
        spent.append(result.budget.spent)
    assert misses <= 2
    assert np.median(spent) < 0.6


def test_a_narrow_error_is_the_exact_answer_and_all_looks_are_paid(db: nile.Database, truth: dict[str, float]) -> None:
    result = asked(db, " ERROR 0.0001")
    answer: Any = result.answer
    (row,) = result.to_arrow().to_pylist()
    assert row["n"] == truth["n"]
    assert row["p"] == pytest.approx(truth["p"])
    assert answer.looks == 2
    assert result.budget.spent > 1.0


def test_what_a_limit_leaves_of_it(db: nile.Database, truth: dict[str, float]) -> None:
    flagged = asked(db, " BUDGET 10 % ERROR 0.001")
    answer: Any = flagged.answer
    assert not answer.met
    assert flagged.budget.spent <= 0.1 + 1e-9
    assert "needed an error of at most 0.001" in answer.notes[-1]
    with pytest.raises(nile.NileError, match="needed an error of at most"):
        asked(db, " BUDGET 10 % ERROR 0.001 ELSE REFUSE")
    exact = asked(db, " BUDGET 10 % ERROR 0.001 ELSE EXACT")
    assert exact.to_arrow()["n"].to_pylist() == [truth["n"]]


def test_groups_are_all_there(db: nile.Database) -> None:
    grouped = TEXT.replace("SELECT", "SELECT a.item,").replace(" WINDOW", " GROUP BY a.item WINDOW")
    told = {row["item"]: row["n"] for row in asked(db, " ERROR 0.3", grouped).to_arrow().to_pylist()}
    whole = asked(db, "", grouped.replace(" WINDOW", " WITH PREFERENCE desc a.item WINDOW"), budget=1.0)
    assert told == {row["item"]: row["n"] for row in whole.to_arrow().to_pylist()}


def test_a_preference_that_is_no_sample_is_refused(db: nile.Database) -> None:
    text = TEXT.replace(" WINDOW", " WITH PREFERENCE desc a.item WINDOW")
    with pytest.raises(nile.NotYet, match="random sample"):
        asked(db, " ERROR 0.2", text)
    with pytest.raises(nile.BudgetError, match="as a fraction"):
        asked(db, " BUDGET 5 SECONDS ERROR 0.2")
