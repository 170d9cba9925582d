"""Intervals of groups that have few units of a sample each cover what they claim to, and never end up as points."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.aggregates.catalogue import CATALOGUE
from nile.aggregates.linear import Linear, Units, linearised, reach_of_few

GROUPS = 400


def of_sample(kind: str, values: np.ndarray, group: np.ndarray, weight: float) -> Linear:
    units = Units.of_values(values, np.ones(values.shape[0]))
    with np.errstate(all="ignore"):
        return linearised(
            CATALOGUE[kind],
            units,
            group,
            Units.none(GROUPS),
            lambda amount: weight * np.bincount(group, amount, GROUPS),
        )


@pytest.mark.parametrize("spread", ["normal", "lognormal", "uneven"])
@pytest.mark.parametrize("kind", ["avg", "sum"])
@pytest.mark.parametrize("most", [10, 100, 1_000])
def test_intervals_of_small_groups_cover(kind: str, spread: str, most: int) -> None:
    covered, told = 0, 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(1, most, GROUPS)
        group = np.repeat(np.arange(GROUPS), sizes)
        if spread == "normal":
            values = rng.normal(10.0, 3.0, group.shape[0]) + rng.normal(0.0, 5.0, GROUPS)[group]
        elif spread == "lognormal":
            values = np.exp(rng.normal(5.0, 1.2, group.shape[0]))
        else:
            values = rng.normal(0.0, 1.0, group.shape[0]) * np.exp(rng.normal(0.0, 0.4, GROUPS))[group] + 20.0
        drawn = rng.random(group.shape[0]) < 0.1
        linear = of_sample(kind, values[drawn], group[drawn], 10.0)
        own = 1.96 * np.sqrt(90.0 * np.bincount(group[drawn], linear.residual**2, GROUPS))
        reach = reach_of_few(own, linear, group[drawn], np.ones(int(drawn.sum()), bool), 0.95)
        assert (reach >= own).all()
        seen = np.bincount(group[drawn], minlength=GROUPS) > 0
        assert (reach[seen] > 0.0).all()
        true = np.bincount(group, values, GROUPS)
        if kind == "avg":
            true /= sizes
        covered += int((np.abs(linear.value - true)[seen] <= reach[seen]).sum())
        told += int(seen.sum())
    assert covered >= 0.93 * told, (covered / told, told)


def test_what_is_certain_and_one_group_alone_stay_as_they_are() -> None:
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(GROUPS), 5)
    values = rng.normal(10.0, 3.0, group.shape[0])
    linear = of_sample("sum", values, group, 10.0)
    reach = np.where(np.arange(GROUPS) < 3, 0.0, 1.0)
    told = reach_of_few(reach, linear, group, np.ones(group.shape[0], bool), 0.95)
    assert (told[:3] == 0.0).all()
    assert (told[3:] > 0.0).all()
    one = Linear(*(each[:1] for each in (linear.value, linear.mean, linear.scale)), linear.residual[:5])
    assert reach_of_few(np.ones(1), one, np.zeros(5, np.int64), np.ones(5, bool), 0.95).tolist() == [1.0]


def test_where_no_group_has_two_units_nothing_is_known() -> None:
    linear = of_sample("avg", np.arange(GROUPS) + 1.0, np.arange(GROUPS), 10.0)
    told = reach_of_few(np.zeros(GROUPS), linear, np.arange(GROUPS), np.ones(GROUPS, bool), 0.95)
    assert np.isinf(told).all()


@pytest.mark.parametrize("costs", ["machine", "engine"])
@pytest.mark.parametrize("form", ["stream", "join"])
def test_numbers_of_groups_within_a_budget_cover(form: str, costs: str) -> None:
    rng = np.random.default_rng(11)
    n = 30_000
    sizes = np.maximum(1, rng.pareto(1.0, 500) * 20).astype(int)
    group = rng.permutation(np.repeat(np.arange(500), (sizes / sizes.sum() * n).astype(int) + 1))
    n = group.shape[0]
    values = np.exp(rng.normal(5.0, 1.2, n))
    table = pa.table({"at": np.arange(n, dtype=float), "g": group, "v": values, "k": rng.permutation(n)})
    count = np.bincount(group)
    true = {"s": np.bincount(group, values), "m": np.bincount(group, values) / count}
    asked = "SELECT a.g, sum(a.v) AS s, avg(a.v) AS m FROM a GROUP BY a.g BUDGET 10 %"
    if form == "join":
        asked = asked.replace("FROM a", "FROM a, b WHERE a.k = b.k").replace("BUDGET", f"WINDOW '{2 * n} s' BUDGET")
    covered: dict[str, list[bool]] = {"s": [], "m": []}
    with nile.connect() as db:
        db.register("a", table, time="at")
        db.register("b", table.select(["at", "k"]), time="at")
        for seed in range(6):
            answer = db.sql(asked, seed=seed, costs=costs)
            rows = answer.to_arrow()["g"].to_pylist()
            for name, own in covered.items():
                for g, estimate in zip(rows, answer.estimates[name], strict=True):
                    own.append(inside(estimate, float(true[name][g])))
    for name, own in covered.items():
        assert sum(own) >= 0.93 * len(own), (name, sum(own) / len(own), len(own))


def inside(estimate: Any, value: float) -> bool:
    room = 1e-9 * abs(value)
    return not math.isfinite(estimate.high) or bool(estimate.low - room <= value <= estimate.high + room)


@pytest.mark.parametrize("form", ["stream", "join"])
def test_groups_that_a_sample_hides_are_told_of_and_none_where_it_has_all(form: str) -> None:
    rng = np.random.default_rng(3)
    n = 60_000
    table = pa.table(
        {
            "at": np.arange(n, dtype=float),
            "few": rng.integers(0, 3, n),
            "many": rng.integers(0, 20_000, n),
            "k": np.arange(n),
        }
    )
    asked = "SELECT a.{by}, count(*) AS n FROM a GROUP BY a.{by} BUDGET 10 %"
    if form == "join":
        asked = asked.replace("FROM a", "FROM a, b WHERE a.k = b.k").replace("BUDGET", "WINDOW '60 s' BUDGET")
    with nile.connect() as db:
        db.register("a", table, time="at")
        db.register("b", table.select(["at", "k"]), time="at")
        few, many = (db.sql(asked.format(by=by), costs="engine") for by in ("few", "many"))
        assert few.warnings == ()
        rows = len(many)
        (told,) = many.warnings
    found = re.search(r"the sample has ([0-9,]+) of about ([0-9,]+) groups: of the others it has no tuple", told)
    assert found is not None, told
    met, there = (int(each.replace(",", "")) for each in found.groups())
    assert met == rows
    assert 12_000 <= there <= 30_000


@pytest.mark.parametrize("budget", ["5 %", "50 %", "100 %", "ERROR"])
@pytest.mark.parametrize("of", ["count(*) AS n", "avg(v) AS n", "min(v) AS n", "count(DISTINCT v) AS n"])
@pytest.mark.parametrize("by", ["", "few"])
def test_every_answer_tells_what_it_is_worth(budget: str, of: str, by: str) -> None:
    rng = np.random.default_rng(4)
    n = 20_000
    table = pa.table({"at": np.arange(n, dtype=float), "few": rng.integers(0, 3, n), "v": rng.normal(size=n)})
    how = "ERROR 0.9" if budget == "ERROR" else f"BUDGET {budget}"
    text = f"SELECT {of} FROM a {how}" if not by else f"SELECT {by}, {of} FROM a GROUP BY {by} {how}"
    with nile.connect() as db:
        answer = db.register("a", table, time="at").sql(text, costs="machine")
        assert len(answer) == (3 if by else 1)
        assert isinstance(answer.warnings, tuple)
        assert isinstance(answer.worth(), str)
        assert answer.accounting["a"].tuples_in == n
        assert answer.budget.spent >= 0.0
