"""What small budgets leave out that they cannot pay for: values told apart, grids, and an order of all tuples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.answers.bound_aggregate import BoundAggregate
from nile.operators.aggregate import input as aggregate_input
from nile.operators.aggregate import run as aggregate_run
from nile.operators.aggregate.input import in_random_order

N = 40_000
WHERE = {
    "": None, "one value": "k = 3", "a range": "v < 0.2", "two columns": "v < 0.4 AND k > 5", "none": "k = 999",
    "all": "k < 900", "nulls": "w > 10", "of time": "ts > 20000 AND v < 0.5",
}  # fmt: skip
MADE = {
    "counts": {"n": "count(*)"}, "sums": {"s": "sum(v)", "a": "avg(w)"}, "median": {"m": "median(v)"},
    "extremes": {"l": "min(v)", "h": "max(w)"}, "distinct": {"d": "count(DISTINCT k)"},
}  # fmt: skip


@pytest.fixture(scope="module")
def db() -> nile.Database:
    rng = np.random.default_rng(1)
    gone = rng.random(N) < 0.3
    table = {
        "ts": np.arange(N) * 1.0, "k": (40 * rng.random(N) ** 2).astype(np.int64), "v": rng.random(N),
        "w": pa.array(rng.normal(10.0, 3.0, N), mask=gone),
    }  # fmt: skip
    return nile.connect().register("s", pa.table(table), time="ts")


def told(answer: Any) -> list[Any]:
    return [answer.to_arrow().to_pylist(), list(answer.notes), answer.figures.read, answer.budget.spent]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("by", [None, "k"])
def test_a_small_budget_tells_what_it_told_with_all_values_coded_and_all_tuples_in_order(
    db: nile.Database, monkeypatch: pytest.MonkeyPatch, where: str, made: str, by: str | None
) -> None:
    def asked(budget: float) -> Any:
        return db.aggregate("s", MADE[made], where=WHERE[where], by=by).using(seed=4).run(budget)

    budgets = (0.002, 0.05, 0.3)
    found = [asked(budget) for budget in budgets]
    again = [told(answer.again(0.9)) for answer in found]
    with monkeypatch.context() as patched:
        patched.setattr(BoundAggregate, "_samples", lambda *_: False)
        patched.setattr(aggregate_run, "least_summary", lambda *_: 0.0)
        patched.setattr(aggregate_input, "_FEW", 1 << 40)
        expected = [asked(budget) for budget in budgets]
    assert [told(answer) for answer in found] == [told(answer) for answer in expected]
    assert again == [told(answer.again(0.9)) for answer in expected]


def test_the_first_of_all_tuples_in_random_order_are_those_of_the_whole_order() -> None:
    for n in (0, 1, 7, 5_000):
        whole = in_random_order(n, 3).tolist()
        for most in (0, 1, n // 100, n // 10, n):
            first = in_random_order(n, 3, most).tolist()
            assert len(first) >= min(n, most)
            assert first == whole[: len(first)]
    assert len(in_random_order(5_000, 3, 50)) < 200
