"""Aggregates under a budget in seconds: a sample as large as there is time for, by a clock that tests hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.answers import aggregate_answer
from nile.operators.aggregate import input as aggregate_input
from nile.operators.aggregate.input import in_random_order, unit_hash
from nile.operators.drive.clock import Clock
from nile.operators.strategies.prices import PRICES

N = 40_000


@pytest.fixture
def db() -> nile.Database:
    draw = np.random.default_rng(4)
    made = nile.connect()
    table = {"ts": np.arange(N) * 1.0, "item": draw.integers(0, 5, N), "price": draw.random(N)}
    made.register("s", pa.table(table), time="ts")
    return made


class Steps:
    """A clock of which every look takes a tenth of a second, in which all could be read."""

    def __init__(self, budget: Any) -> None:  # noqa: ARG002
        self.looks = 0

    @property
    def elapsed(self) -> int:
        self.looks += 1
        return self.looks * 100_000_000

    @property
    def cpu(self) -> int:
        """As many as were counted."""
        return self.looks * 100_000_000

    def pause(self) -> None:
        """It goes on by looks alone."""


@pytest.fixture
def by_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    import nile.answers.bound_aggregate as bound

    monkeypatch.setattr(bound, "Clock", Steps)
    monkeypatch.setattr(aggregate_answer, "Clock", Steps)


TEXTS = ("sum(price)", "avg(price)", "count(*)", "median(price)", "quantile_cont(price, 0.9)")


@pytest.mark.usefixtures("by_looks")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", TEXTS)
def test_more_seconds_are_a_larger_sample_and_in_the_end_all(db: nile.Database, what: str) -> None:
    text = f"SELECT {what} AS n FROM s WHERE item = 2"
    truth = db.sql(text).to_arrow()["n"].to_pylist()[0]
    read = []
    for seconds in (0.1, 1.2, 3.0, 900.0):
        result = db.sql(text, budget=nile.Budget(seconds=seconds), seed=1)
        (told,) = result.to_arrow()["n"].to_pylist()
        estimate: Any = result.estimate
        read.append(result.answer.figures.read)
        assert estimate.low <= told <= estimate.high + 1e-9
        assert result.budget.unit == "seconds"
        assert not result.budget.reproducible
        assert told == pytest.approx(truth, rel=0.25)
    assert read == sorted(read)
    assert 1_024 <= read[0] < read[-1] <= N
    assert told == pytest.approx(truth)


@pytest.mark.usefixtures("by_looks")
def test_a_limit_that_reading_alone_passes_is_told(db: nile.Database) -> None:
    with pytest.warns(nile.CostWarning, match="seconds in all; took"):
        db.sql("SELECT sum(price) AS n FROM s", budget=nile.Budget(seconds=0.1)).to_arrow()


def test_standing_queries_share_the_time(db: nile.Database) -> None:
    asked = db.aggregate("s", {"n": "count(*)"}, predicates={f"q{k}": f"item = {k}" for k in range(5)})
    found = asked.run(nile.Budget(deadline=60.0)).to_arrow()
    items = db.sql("SELECT item FROM s", emit="append").to_arrow()["item"].to_numpy()
    assert found["n"].to_pylist() == np.bincount(items).tolist()


@pytest.mark.usefixtures("by_looks")
@pytest.mark.filterwarnings("ignore")
def test_intervals_cover(db: nile.Database) -> None:
    text = "SELECT count(*) AS n FROM s WHERE item = 2"
    truth = db.sql(text).to_arrow()["n"].to_pylist()[0]
    told = [db.sql(text, budget=nile.Budget(seconds=0.1), seed=seed).estimate for seed in range(60)]
    assert sum(bool(each is not None and each.covers(truth)) for each in told) >= 52


def test_what_no_clock_can_bound_is_refused(db: nile.Database) -> None:
    text = "SELECT sum(price) AS n FROM s"
    with pytest.raises(nile.BudgetError, match="one output per group"):
        db.sql(text, budget=nile.Budget(outputs=5)).to_arrow()
    with pytest.raises(nile.BudgetError, match="cannot stop"):
        db.sql(text, budget=nile.Budget(seconds=5.0), method="grid").to_arrow()
    with pytest.raises(nile.BudgetError, match="one budget or an error"):
        db.sql(text + " BUDGET 5 SECONDS ERROR 0.1").to_arrow()
    assert Clock(nile.Budget(seconds=5.0)).limits


def test_more_groups_than_there_is_time_for_are_refused_once_they_are_counted() -> None:
    made = nile.connect()
    made.register("s", pa.table({"ts": np.arange(N) * 1.0, "item": np.arange(N) % 20_000}), time="ts")
    text = "SELECT item, count(*) AS n FROM s GROUP BY item"
    with pytest.raises(nile.BudgetError, match=r"needed at least .* seconds to pass over 40,000 tuples") as told:
        made.sql(text, budget=nile.Budget(seconds=0.05)).to_arrow()
    least = float(str(told.value).split("at least ")[1].split()[0])
    assert len(made.sql(text, budget=nile.Budget(seconds=60.0)).to_arrow()) == 20_000
    assert 20_000 * PRICES.group / 1e9 < 10.0 * least


@pytest.mark.parametrize("n", [0, 1, 7, 5_000, 300_000])
def test_the_random_order_is_that_of_the_hashes(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_random_order(n, 3).tolist() == np.argsort(unit_hash(n, 3), kind="stable").tolist()
    coarse = np.floor(unit_hash(n, 4) * 64.0) / 64.0 + 2.0**-40 * (
        np.arange(n) % 3
    )  # alike in their upper bits, or all
    monkeypatch.setattr(aggregate_input, "unit_hash", lambda *_: coarse)
    assert in_random_order(n, 4).tolist() == np.argsort(coarse, kind="stable").tolist()
